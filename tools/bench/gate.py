# SPDX-License-Identifier: Apache-2.0
"""Peers of gate (peers.py): torch's chain as written and compiled, and FlashInfer's kernel where it serves the case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import routing

SLACK = 1e-5


@dataclass(frozen=True)
class Peer:
    version: str
    what: str


def missing() -> dict[str, str]:
    return routing.missing()


def peers() -> dict[str, Peer]:
    known = {
        "torch.gate": Peer(torch.__version__, "activation, bias, groups, topk, gather, renormalisation, one call each"),
        "torch.gate_compiled": Peer(torch.__version__, "the same by torch.compile"),
    }
    if not missing():
        what = "flashinfer.fused_moe.fused_topk_deepseek, where it serves the case"
        known["flashinfer.gate"] = Peer(routing.flashinfer_version(), what)
    return known


def answer(request: dict[str, Any], inputs: Any, arrays: Any, names: set[str]) -> dict[str, Any]:
    described = request["inputs"]
    dtype, N, E = routing.DTYPES[described["dtype"]], described["rows"], request["E"]
    memory = inputs.bytes().cuda()
    starts = [copy * described["pitch_bytes"] for copy in range(described["copies"])]
    copies = [memory[start : start + N * E * dtype.itemsize].view(dtype).view(N, E) for start in starts]
    case = routing.read_case(request, N, arrays)
    try:
        routing.check(case, copies[0], case.weights, case.ids.long(), SLACK)
    except routing.Mismatch as error:
        return {"error": f"Quern's result is wrong: {error}"}
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: routing.gate(case, x), dynamic=False)
    chains: dict[str, Any] = {
        "torch.gate": lambda launch: routing.gate(case, copies[launch % len(copies)]),
        "torch.gate_compiled": lambda launch: compiled(copies[launch % len(copies)]),
    }
    if not missing() and routing.flashinfer_serves(case):
        chains["flashinfer.gate"] = lambda launch: routing.flashinfer_gate(case, copies[launch % len(copies)])
    chains = {name: call for name, call in chains.items() if name in names}
    return {"peers": routing.time_peers(chains, case, copies[0], SLACK, request)}
