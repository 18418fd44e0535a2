# SPDX-License-Identifier: Apache-2.0
"""What the peers of gate and router (peers.py) share: the chain that a user of torch writes, FlashInfer's kernel where it
serves the case, the check of Quern's results and the comparison of theirs."""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any, Callable

import torch

import timing

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32, "i64": torch.int64}
Routed = tuple[torch.Tensor, torch.Tensor]  # weights, ids


class Mismatch(Exception):
    """A result that is not what it should be."""


@dataclass(frozen=True)
class Case:
    """A gate on the device, and Quern's results for the first copy of its inputs."""

    K: int
    act: str  # sqrt_softplus, sigmoid, softmax
    n_group: int
    topk_group: int
    renormalize: bool
    scale: float
    bias: torch.Tensor | None  # [E]
    weights: torch.Tensor  # [N, K]
    ids: torch.Tensor


def read_case(request: dict[str, Any], rows: int, shared: Any) -> Case:
    K, arrays = request["K"], request["arrays"]

    def read(name: str, count: int) -> torch.Tensor:
        return shared.tensor(DTYPES[arrays[name]["dtype"]], count, arrays[name]["offset"]).cuda()

    return Case(
        K=K,
        act=request["act"],
        n_group=request["n_group"],
        topk_group=request["topk_group"],
        renormalize=bool(request["renormalize"]),
        scale=request["scale"],
        bias=read("bias", request["E"]) if "bias" in arrays else None,
        weights=read("weights", rows * K).view(rows, K),
        ids=read("ids", rows * K).view(rows, K),
    )


# ---- the chain


def activation(case: Case, x: torch.Tensor) -> torch.Tensor:
    if case.act == "softmax":
        return torch.softmax(x, -1)
    if case.act == "sigmoid":
        return torch.sigmoid(x)
    return torch.sqrt(torch.nn.functional.softplus(x))


def scores_of(case: Case, a: torch.Tensor) -> torch.Tensor:
    """What is chosen by: dropped groups are -inf."""
    scores = a if case.bias is None else a + case.bias.to(a.dtype)
    if case.topk_group >= case.n_group:
        return scores
    grouped = scores.view(len(a), case.n_group, -1)
    best = grouped.topk(min(2, grouped.shape[-1]), -1).values.sum(-1)
    kept = torch.zeros_like(best, dtype=torch.bool).scatter_(1, best.topk(case.topk_group, -1).indices, True)
    return grouped.masked_fill(~kept[:, :, None], -torch.inf).view_as(scores)


def weights_of(case: Case, a: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    weights = a.gather(1, ids)
    if case.renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * case.scale


def gate(case: Case, logits: torch.Tensor) -> Routed:
    a = activation(case, logits.float())
    ids = scores_of(case, a).topk(case.K, -1).indices
    return weights_of(case, a, ids), ids


# ---- FlashInfer: sigmoid, a bias, renormalised


@functools.cache
def missing() -> dict[str, str]:
    try:
        importlib.import_module("flashinfer.fused_moe").fused_topk_deepseek
    except Exception as error:  # whatever its own imports raise
        return {"flashinfer": f"{type(error).__name__}: {error}"[:300]}
    return {}


def flashinfer_version() -> str:
    return importlib.import_module("flashinfer").__version__


def flashinfer_serves(case: Case) -> bool:
    return case.act == "sigmoid" and case.bias is not None and case.renormalize


def flashinfer_gate(case: Case, logits: torch.Tensor) -> Routed:
    weights = torch.empty(len(logits), case.K, dtype=logits.dtype, device=logits.device)  # it takes no other type
    ids = torch.empty(len(logits), case.K, dtype=torch.int32, device=logits.device)
    route = importlib.import_module("flashinfer.fused_moe").fused_topk_deepseek
    route(logits, case.bias, case.n_group, case.topk_group, case.K, case.scale, weights, ids)
    return weights, ids.long()


# ---- checks, by scores in f64: tolerance is how far they may be off where a logit is off by `slack` of its size


def close(a: torch.Tensor, b: torch.Tensor, relative: float) -> bool:
    return a.shape == b.shape and bool(((a - b).abs() <= relative * b.abs() + 1e-6).all())


def check(case: Case, logits: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, slack: float) -> None:
    a = activation(case, logits.double())
    scores = scores_of(case, a)
    if bool(((ids < 0) | (ids >= a.shape[1])).any()) or bool((ids.sort(-1).values.diff(dim=-1) == 0).any()):
        raise Mismatch("an id is no expert, or appears twice")
    won = scores.gather(1, ids).sort(-1, descending=True).values
    if not close(won, scores.topk(case.K, -1).values, slack):
        raise Mismatch("other experts were chosen")
    if not close(weights.double(), weights_of(case, a, ids), 10 * slack + torch.finfo(weights.dtype).eps):
        raise Mismatch("other weights")


def time_peers(
    chains: dict[str, Callable[[int], Routed]],
    case: Case,
    logits: torch.Tensor,  # of the first copy
    slack: float,
    request: dict[str, Any],
) -> dict[str, Any]:
    """chains: from the number of a launch to its results."""
    results: dict[str, Any] = {}
    for name, call in chains.items():
        try:
            weights, ids = call(0)
            check(case, logits, weights, ids.long(), slack)
            same = (ids.long() == case.ids.long()).all(-1).float().mean().item()
            copies = request["inputs"]["copies"]
            times = timing.measure(call, request["launches"], copies, request["repeats"])
            results[name] = {**times, "same_order": round(same, 4)}
        except Mismatch as error:
            results[name] = {"error": f"its results are not right: {error}"}
        except Exception as error:
            torch.cuda.synchronize()  # raises when the device is lost: then the whole run has failed
            results[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
    return results
