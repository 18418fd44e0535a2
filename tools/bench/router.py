# SPDX-License-Identifier: Apache-2.0
"""Peers of router (peers.py): torch's product and gate, as written and compiled, and torch's product before FlashInfer's
gate where that serves the case.

torch's product of 16-bit inputs rounds its logits to 16 bits, which Quern does not: such a peer is judged with that much
room, and `same_order` says how often it chose the same experts in the same order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import torch

import routing

SLACK = 1e-4
ROUNDED = 0.05  # of logits in 16 bits


@dataclass(frozen=True)
class Peer:
    version: str
    what: str


def missing() -> dict[str, str]:
    return routing.missing()


def peers() -> dict[str, Peer]:
    known = {
        "torch.linear_gate": Peer(torch.__version__, "torch.nn.functional.linear, then torch.gate's chain"),
        "torch.linear_gate_compiled": Peer(torch.__version__, "the same by torch.compile"),
        "torch.linear": Peer(torch.__version__, "the product alone: no peer, but what the rest is measured by"),
    }
    if not missing():
        what = "torch.nn.functional.linear, then flashinfer.fused_moe.fused_topk_deepseek"
        known["flashinfer.linear_gate"] = Peer(routing.flashinfer_version(), what)
    return known


Pair = tuple[torch.Tensor, torch.Tensor]  # x [N, D], w [E, D]


def read_copies(request: dict[str, Any], inputs: Any) -> list[Pair]:
    d = request["inputs"]
    memory, pairs = inputs.bytes().cuda(), []
    x_type, w_type = routing.DTYPES[d["x"]], routing.DTYPES[d["w"]]
    N, D, E = d["rows"], d["D"], request["E"]
    for copy in range(d["copies"]):
        at = copy * d["pitch_bytes"]
        x = memory[at : at + N * D * x_type.itemsize].view(x_type).view(N, D)
        at += d["w_offset"]
        w = memory[at : at + E * D * w_type.itemsize].view(w_type)
        pairs.append((x, w.view(D, E).t() if d["transposed"] else w.view(E, D)))
    return pairs


def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """In the wider of the two types."""
    common = torch.promote_types(x.dtype, w.dtype)
    return torch.nn.functional.linear(x.to(common), w.to(common))


def answer(request: dict[str, Any], inputs: Any, arrays: Any, names: set[str]) -> dict[str, Any]:
    pairs = read_copies(request, inputs)
    case = routing.read_case(request, len(pairs[0][0]), arrays)
    exact = pairs[0][0].double() @ pairs[0][1].double().t()
    try:
        routing.check(case, exact, case.weights, case.ids.long(), SLACK)
    except routing.Mismatch as error:
        return {"error": f"Quern's result is wrong: {error}"}
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, w: routing.gate(case, linear(x, w)), dynamic=False)

    def of(call: Callable[..., Any]) -> Callable[[int], Any]:
        return lambda launch: call(*pairs[launch % len(pairs)])

    chains: dict[str, Any] = {
        "torch.linear_gate": of(lambda x, w: routing.gate(case, linear(x, w))),
        "torch.linear_gate_compiled": of(compiled),
        # The gate's own results beside the product, so that there is something to judge.
        "torch.linear": of(lambda x, w: (linear(x, w), (case.weights, case.ids))[1]),
    }
    if not missing() and routing.flashinfer_serves(case):
        chains["flashinfer.linear_gate"] = of(lambda x, w: routing.flashinfer_gate(case, linear(x, w)))
    chains = {name: call for name, call in chains.items() if name in names}
    rounds = linear(*pairs[0]).dtype != torch.float32
    return {"peers": routing.time_peers(chains, case, exact, ROUNDED if rounds else SLACK, request)}
