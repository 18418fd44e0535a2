# SPDX-License-Identifier: Apache-2.0
"""Peers of indexer (peers.py): torch's chain of a batched product, ReLU, weighted sum and topk, written and compiled.

Keys are unpacked to bf16 in one piece a sequence before anything is timed: torch has no product on FP4, and its best FP8
product takes no ReLU before the sum over heads. Every value of mxfp4 and FP8 is exact in bf16; products are rounded to
bf16 by torch, so that winners near the last place differ: `recall` is the part of Quern's winners that the peer found too,
over the sampled rows. Rows of a prefill are done in blocks, or the scores of all heads would not fit the memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import timing

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
BLOCK_BYTES = 1 << 28  # of the scores of all heads at a time
SAMPLES = 32  # rows whose winners are compared
LEAST_RECALL = 0.9


@dataclass(frozen=True)
class Case:
    request: dict[str, Any]
    keys: list[torch.Tensor]  # copies of [B, C, L] bf16
    q: torch.Tensor  # [B, Q, H, C] bf16
    w: torch.Tensor  # [B, Q, H] f32
    length: torch.Tensor  # [B, Q]
    winners: torch.Tensor  # [B * Q, k], Quern's

    @property
    def k(self) -> int:
        return min(int(self.request["k"]), self.keys[0].shape[2])


def _score_block(q: torch.Tensor, keys: torch.Tensor, w: torch.Tensor, length: torch.Tensor, k: int) -> torch.Tensor:
    batch, rows, heads, width = q.shape
    dots = torch.bmm(q.reshape(batch, rows * heads, width), keys).view(batch, rows, heads, -1)
    scores = (torch.relu(dots).float() * w[..., None]).sum(2)
    past = torch.arange(scores.shape[-1], device=scores.device) >= length[..., None]
    return torch.topk(scores.masked_fill(past, float("-inf")), k).indices


class Peer:
    what, version = "bf16 product, ReLU, weighted sum, topk", torch.__version__
    block = staticmethod(_score_block)

    def __init__(self, case: Case) -> None:
        self.case = case
        batch, rows, heads, _ = case.q.shape
        a_row = batch * heads * case.keys[0].shape[2] * 2
        self.rows = max(1, min(rows, BLOCK_BYTES // a_row))

    def __call__(self, keys: torch.Tensor) -> torch.Tensor:
        c = self.case
        pieces = [
            self.block(c.q[:, i : i + self.rows], keys, c.w[:, i : i + self.rows], c.length[:, i : i + self.rows], c.k)
            for i in range(0, c.q.shape[1], self.rows)
        ]
        return torch.cat(pieces, 1)


class Compiled(Peer):
    what = "the same, compiled"
    block = staticmethod(torch.compile(_score_block, dynamic=False))


def missing() -> dict[str, str]:
    return {}


def peers() -> dict[str, type[Peer]]:
    return {"indexer_torch": Peer, "indexer_compiled": Compiled}


def _power(scale: torch.Tensor) -> torch.Tensor:
    return torch.exp2(scale.float() - 127.0)


def unpack(kind: str, values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Rows of bytes and their scales to bf16: "mxfp4" (a byte a scale), "fp8" (four bytes a scale)."""
    if kind == "fp8":
        scale = scales.contiguous().view(torch.float32)
        return (values.contiguous().view(torch.float8_e4m3fn).float() * scale).bfloat16()
    table = torch.tensor(E2M1 + tuple(-x for x in E2M1), device=values.device)
    codes = torch.stack((values & 15, values >> 4), -1).flatten(-2).long()
    return (table[codes] * _power(scales).repeat_interleave(32, -1)).bfloat16()


def read_keys(request: dict[str, Any], pages: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """[B, C, L]: the first copy's pages in the order of the block table."""
    kind, page, width = request["keys"], request["page"], request["C"]
    value = width if kind == "fp8" else width // 2
    rows = pages.view(request["pages"], -1)[table.long()]
    count = request["pages"]
    values = rows[:, : page * value].reshape(count * page, value)
    scales = rows[:, page * value :].reshape(count * page, -1)
    keys = unpack(kind, values, scales).view(request["B"], -1, width)[:, : request["L"]]
    return keys.transpose(1, 2).contiguous()


def read_case(request: dict[str, Any], inputs: Any) -> Case:
    batch, queries, heads, width = request["B"], request["Q"], request["H"], request["C"]
    rows = batch * queries
    part = {}
    for name, (offset, count) in request["parts"].items():
        part[name] = inputs.tensor(torch.uint8, count, offset).clone().cuda()
    keys = read_keys(request, part["keys"], part["table"].view(torch.int32))
    if request["q"] in ("fp8", "mxfp4"):
        q = unpack(request["q"], part["q"].view(rows * heads, -1), part["q_scale"].view(rows * heads, -1))
    else:
        q = part["q"].view(torch.bfloat16 if request["q"] == "bf16" else torch.float16).bfloat16()
    copies = max(1, -(-request["rotation_bytes"] // (keys.numel() * 2)))
    return Case(
        request,
        [keys] + [keys.clone() for _ in range(copies - 1)],
        q.view(batch, queries, heads, width),
        part["w"].view(torch.float32).view(batch, queries, heads),
        part["length"].view(torch.int32).view(batch, queries),
        part["indices"].view(torch.int32).view(rows, -1),
    )


def recall_of(case: Case, indices: torch.Tensor) -> float:
    rows = case.winners.shape[0]
    indices = indices.reshape(rows, -1)
    found = wanted = 0
    for row in range(0, rows, max(1, rows // SAMPLES)):
        winners = case.winners[row][case.winners[row] >= 0]
        found += int(torch.isin(winners, indices[row].to(winners.dtype)).sum())
        wanted += winners.numel()
    return found / max(1, wanted)


def time_peer(peer: Peer, case: Case) -> dict[str, Any]:
    recall = recall_of(case, peer(case.keys[0]))
    if recall < LEAST_RECALL:
        return {"error": f"it found {recall:.3f} of Quern's winners"}

    def call(index: int) -> torch.Tensor:
        return peer(case.keys[index % len(case.keys)])

    times = timing.measure(call, case.request["launches"], len(case.keys), case.request["repeats"])
    return {**times, "recall": float(f"{recall:.4g}")}


def answer(request: dict[str, Any], inputs: Any, arrays: Any, names: set[str]) -> dict[str, Any]:
    wanted = {name: peer for name, peer in peers().items() if name in names}
    results: dict[str, Any] = {}
    if not wanted:
        return {"peers": results}
    case = read_case(request, inputs)
    torch._dynamo.reset()  # what was compiled is of other shapes
    for name, peer in wanted.items():
        try:
            results[name] = time_peer(peer(case), case)
        except Exception as problem:  # what does not fit the memory, what does not compile
            results[name] = {"error": f"{type(problem).__name__}: {str(problem)[:200]}"}
    return {"peers": results}
