# SPDX-License-Identifier: Apache-2.0
"""Peers of attention (peers.py): torch's scaled_dot_product_attention, a back end a peer.

Quern's numbers are made again here from the one piece that they repeat: bit for bit the same, in the layout that torch's
back ends like best, [B, H, S, d]. A peer's sampled rows are compared with f64 as Quern's are; `difference` is the largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import timing

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    request: dict[str, Any]
    copies: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]  # q, k, v, each [B, H, S, d]

    @property
    def causal(self) -> bool:
        return bool(self.request["causal"])

    @property
    def grouped(self) -> bool:
        return self.request["Hq"] != self.request["Hkv"]


class Peer:
    """One back end. Raises where it does not take a case."""

    what = version = ""
    backend: Any = None

    def __init__(self, case: Case) -> None:
        self.case = case

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(self.backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=self.case.causal, enable_gqa=self.case.grouped)


class Cudnn(Peer):
    what, version, backend = "SDPA, cuDNN", str(torch.backends.cudnn.version()), SDPBackend.CUDNN_ATTENTION


class Flash(Peer):
    what, version, backend = "SDPA, FlashAttention 2", torch.__version__, SDPBackend.FLASH_ATTENTION


class Efficient(Peer):
    what, version, backend = "SDPA, memory-efficient", torch.__version__, SDPBackend.EFFICIENT_ATTENTION


def missing() -> dict[str, str]:
    return {}


def peers() -> dict[str, type[Peer]]:
    return {"sdpa_cudnn": Cudnn, "sdpa_flash": Flash, "sdpa_efficient": Efficient}


def read_case(request: dict[str, Any], inputs: Any) -> Case:
    dtype, piece = DTYPES[request["dtype"]], request["piece"]
    numbers = inputs.tensor(dtype, piece).cuda()

    def tensor(copy: int, which: int, heads: int, length: int, width: int) -> torch.Tensor:
        count, offset = request["B"] * length * heads * width, request["offsets"][3 * copy + which]
        repeated = numbers.roll(-offset).repeat(-(-count // piece))[:count]
        return repeated.view(request["B"], length, heads, width).transpose(1, 2).contiguous()

    copies = []
    for copy in range(request["copies"]):
        q = tensor(copy, 0, request["Hq"], request["Sq"], request["d"])
        k = tensor(copy, 1, request["Hkv"], request["Sk"], request["d"])
        copies.append((q, k, tensor(copy, 2, request["Hkv"], request["Sk"], request["dv"])))
    return Case(request, copies)


def difference_of(case: Case, out: torch.Tensor) -> float:
    """The largest difference to f64 in the sampled rows."""
    q, k, v = case.copies[0]
    rows, group = case.request["rows"], case.request["Hq"] // case.request["Hkv"]
    worst = 0.0
    for b, i, h in zip(rows[0::3], rows[1::3], rows[2::3]):
        last = i + k.shape[2] - q.shape[2] + 1 if case.causal else k.shape[2]
        keys, values = k[b, h // group, :last].double(), v[b, h // group, :last].double()
        p = torch.softmax(keys @ q[b, h, i].double() / math.sqrt(q.shape[-1]), -1)
        worst = max(worst, float((out[b, h, i].double() - p @ values).abs().max()))
    return worst


def time_peer(peer: Peer, case: Case) -> dict[str, Any]:
    difference = difference_of(case, peer(*case.copies[0]))
    if not difference < 0.1:
        return {"error": f"its result is off by {difference:.3g}"}

    def call(index: int) -> torch.Tensor:
        return peer(*case.copies[index % len(case.copies)])

    times = timing.measure(call, case.request["launches"], len(case.copies), case.request["repeats"])
    return {**times, "difference": difference}


def answer(request: dict[str, Any], inputs: Any, arrays: Any, names: set[str]) -> dict[str, Any]:
    case, results = read_case(request, inputs), {}
    for name, peer in peers().items():
        if name not in names:
            continue
        try:
            results[name] = time_peer(peer(case), case)
        except Exception as problem:  # a shape that it refuses
            results[name] = {"error": f"{type(problem).__name__}: {str(problem)[:200]}"}
    return {"peers": results}
