# SPDX-License-Identifier: Apache-2.0
"""Peers of softmax_topk (peers.py): what a user of torch would write, and the fastest chain of FlashInfer."""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import torch

import timing

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32, "i64": torch.int64}
ROWS_AT_ONCE = 256  # of checks, so that their intermediates stay small
NAMES = ("values", "indices", "lse", "token_value", "token_rank")  # outputs
Tensors = dict[str, torch.Tensor]


class Mismatch(Exception):
    """A result that is not what it should be."""


@dataclass(frozen=True)
class Case:
    """A case on the device: what to compute, from what."""

    K: int
    value: str  # prob, logprob, logit
    norm: str  # all, topk
    copies: list[torch.Tensor]  # each [rows, V]
    arrays: Tensors  # temperature, token [rows]; Quern's outputs for copies[0]

    @property
    def wants_lse(self) -> bool:
        return "lse" in self.arrays

    def rows(self, at: slice) -> Case:
        """The same for some rows of the first copy."""
        arrays = {name: array[at] for name, array in self.arrays.items()}
        return Case(self.K, self.value, self.norm, [self.copies[0][at]], arrays)

    def slices(self) -> Iterator[slice]:
        for start in range(0, len(self.copies[0]), ROWS_AT_ONCE):
            yield slice(start, start + ROWS_AT_ONCE)


# ---- what peers are made of


def tempered(case: Case, x: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    temperature = case.arrays.get("temperature")
    return x.to(dtype) if temperature is None else x.to(dtype) / temperature[:, None].to(dtype)


def token_rank(x: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """How many elements come before the token: larger ones, and equal ones of lower index."""
    at = token[:, None].long()
    own = x.gather(1, at)
    before = torch.arange(x.shape[1], device=x.device) < at
    return ((x > own) | ((x == own) & before)).sum(-1)


def finish(case: Case, x: torch.Tensor, v: torch.Tensor, dtype: torch.dtype = torch.float32) -> Tensors:
    """From the K largest logits to every other output: the log-sum-exp of the row, then values of the winners."""
    kept = tempered(case, v, dtype)
    lse = torch.logsumexp(tempered(case, x, dtype), -1)
    norm = torch.logsumexp(kept, -1) if case.norm == "topk" else lse
    out: Tensors = {}
    if case.value == "logit":
        out["values"] = v.to(dtype)
    elif case.value == "logprob":
        out["values"] = kept - norm[:, None]
    else:
        out["values"] = torch.exp(kept - norm[:, None])
    if case.wants_lse:
        out["lse"] = lse
    if "token" in case.arrays:
        at = case.arrays["token"][:, None].long()
        out["token_value"] = tempered(case, x.gather(1, at), dtype)[:, 0] - lse
        out["token_rank"] = token_rank(x, case.arrays["token"])
    return out


def compiled(case: Case) -> Callable[[torch.Tensor, torch.Tensor], Tensors]:
    """finish by torch.compile, for these rows and this V; one compilation serves every K."""
    run = torch.compile(lambda x, v: finish(case, x, v), dynamic=False)

    def call(x: torch.Tensor, v: torch.Tensor) -> Tensors:
        torch._dynamo.maybe_mark_dynamic(v, 1)
        return run(x, v)

    return call


# ---- the peers


class Peer:
    """A chain for one case. Called with logits; returns every output that the case has."""

    name = what = version = ""

    def __init__(self, case: Case) -> None:
        self.case = case

    def __call__(self, x: torch.Tensor) -> Tensors:
        raise NotImplementedError


class SoftmaxTopk(Peer):
    """As most people write it. Selects among probabilities, so equal ones may hide logits that differ by rounding."""

    name = "torch.softmax_topk"
    what = "torch.softmax(x, dtype=float32), then torch.topk"
    version = torch.__version__

    def __call__(self, x: torch.Tensor) -> Tensors:
        case = self.case
        values, indices = torch.topk(self.scores(x), case.K, -1)
        out: Tensors = {}
        if case.norm == "topk" or case.wants_lse or "token" in case.arrays:
            out = finish(case, x, x.gather(1, indices))
        if case.norm == "all":
            out["values"] = values.float()
        return {**out, "indices": indices}

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        if self.case.value == "logit":
            return x
        function = torch.softmax if self.case.value == "prob" else torch.log_softmax
        if "temperature" in self.case.arrays:
            return function(tempered(self.case, x), -1)
        return function(x, -1, dtype=torch.float32)


class TopkLse(Peer):
    name = "torch.topk_lse"
    what = "torch.topk of the logits, then logsumexp and the values of the winners by torch.compile"
    version = torch.__version__

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.finish = compiled(case)

    def topk(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.topk(x, self.case.K, -1)

    def __call__(self, x: torch.Tensor) -> Tensors:
        v, indices = self.topk(x)
        return {**self.finish(x, v), "indices": indices}


class FlashInferTopkLse(TopkLse):
    name = "flashinfer.topk_lse"
    what = "flashinfer.top_k(sorted=True) of the logits, then the same compiled rest as torch.topk_lse"

    def topk(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return flashinfer().top_k(x, self.case.K, sorted=True)


class FlashInferOrderedTopkLse(TopkLse):
    name = "flashinfer.topk_lse_ordered"
    what = "the same with deterministic=True, tie_break=1: the only peer whose order of ties is the lowest index"

    def topk(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return flashinfer().top_k(x, self.case.K, sorted=True, deterministic=True, tie_break=1)


def flashinfer() -> Any:
    return importlib.import_module("flashinfer")


@functools.cache
def missing() -> dict[str, str]:
    try:
        flashinfer()
    except Exception as error:  # whatever its own imports raise
        return {"flashinfer": f"{type(error).__name__}: {error}"[:300]}
    return {}


def peers() -> dict[str, type[Peer]]:
    known: list[type[Peer]] = [SoftmaxTopk, TopkLse]
    if not missing():
        for peer in (FlashInferTopkLse, FlashInferOrderedTopkLse):
            peer.version = flashinfer().__version__
            known.append(peer)
    return {peer.name: peer for peer in known}


# ---- Quern's results: exact in what and in which order


def check_selection(x: torch.Tensor, K: int, indices: torch.Tensor) -> None:
    """The K largest in descending order, equal values by lowest index, which decides at the last place too."""
    at = indices.long()
    if at.shape != (len(x), K) or bool(((at < 0) | (at >= x.shape[1])).any()):
        raise Mismatch("an index is outside the row")
    won = x.gather(1, at)
    if not torch.equal(won, torch.topk(x, K, -1).values):
        raise Mismatch("not the largest values, or not in descending order")
    tied = won[:, 1:] == won[:, :-1]
    if bool((tied & (at[:, 1:] <= at[:, :-1])).any()):
        raise Mismatch("equal values are not in the order of their indices")
    last = won[:, -1:]
    before = torch.arange(x.shape[1], device=x.device) <= at[:, -1:]
    if not torch.equal(((x == last) & before).sum(-1), (won == last).sum(-1)):
        raise Mismatch("an equal value of lower index was passed over")


def close(got: torch.Tensor, want: torch.Tensor, relative: float, absolute: float) -> bool:
    a, b = got.double(), want.double()
    return a.shape == b.shape and bool(((a - b).abs() <= relative * b.abs() + absolute).all())


def check_quern(case: Case) -> None:
    """Every row of the first copy, every output, against sums in f64."""
    for at in case.slices():
        part = case.rows(at)
        x, mine = part.copies[0], part.arrays
        check_selection(x, case.K, mine["indices"])
        want = finish(part, x, x.gather(1, mine["indices"].long()), torch.float64)
        for name, expected in want.items():
            exact = name == "token_rank" or (name == "values" and case.value == "logit")
            plain = name == "values" and case.value == "prob"
            tolerance = (0.0, 0.0) if exact else (2e-5, 1e-37 if plain else 4e-6)
            if not close(mine[name], expected, *tolerance):
                raise Mismatch(f"{name} in rows {at.start} to {at.start + len(x) - 1}")


# ---- a peer's results beside Quern's


def compare(case: Case, theirs: Tensors) -> float:
    """Part of the rows whose indices agree in their order. Mismatch when more than the order of ties differs."""
    same = 0
    for at in case.slices():
        part = case.rows(at)
        same += compare_rows(part, {name: array[at] for name, array in theirs.items()})
    return same / len(case.copies[0])


def compare_rows(case: Case, theirs: Tensors) -> int:
    x, mine = case.copies[0], case.arrays
    at, own = theirs["indices"].long(), mine["indices"].long()
    if at.shape != own.shape or bool(((at < 0) | (at >= x.shape[1])).any()):
        raise Mismatch("an index is outside the row")
    if bool((at.sort(-1).values.diff(dim=-1) == 0).any()):
        raise Mismatch("an index appears twice")
    if not close(x.gather(1, at), x.gather(1, own), 1e-5, 1e-5):
        raise Mismatch("other logits were selected")
    for name in NAMES:
        if name in mine and name != "indices":
            exact = name == "token_rank"
            if not close(theirs[name], mine[name], 0.0 if exact else 1e-4, 0.0 if exact else 2e-5):
                raise Mismatch(f"other {name}")
    return int((at == own).all(-1).sum())


# ---- one request


class Inputs:
    """The copies of the last request, kept on the device while the next has the same."""

    number = -1
    memory = torch.empty(0, dtype=torch.uint8)

    @classmethod
    def copies(cls, described: dict[str, Any], shared: Any) -> list[torch.Tensor]:
        if cls.number != described["number"]:
            cls.memory = torch.empty(0, dtype=torch.uint8)
            torch.cuda.empty_cache()
            cls.memory = shared.bytes().cuda()
            cls.number = described["number"]
            torch._dynamo.reset()  # what was compiled is of other shapes
        dtype, rows, V = DTYPES[described["dtype"]], described["rows"], described["V"]
        size = rows * V * dtype.itemsize
        starts = [copy * described["pitch_bytes"] for copy in range(described["copies"])]
        return [cls.memory[start : start + size].view(dtype).view(rows, V) for start in starts]


def read_arrays(described: dict[str, Any], rows: int, shared: Any) -> Tensors:
    arrays: Tensors = {}
    for name, array in described.items():
        width = array["row"]  # 0: one number a row, and no axis
        flat = shared.tensor(DTYPES[array["dtype"]], rows * max(width, 1), array["offset"]).cuda()
        arrays[name] = flat.view(rows, width) if width else flat
    return arrays


def read_case(request: dict[str, Any], inputs: Any, arrays: Any) -> Case:
    copies = Inputs.copies(request["inputs"], inputs)
    given = read_arrays(request["arrays"], request["inputs"]["rows"], arrays)
    return Case(request["K"], request["value"], request["norm"], copies, given)


def time_peer(peer: Peer, case: Case, request: dict[str, Any]) -> dict[str, Any]:
    try:
        same_order = compare(case, peer(case.copies[0]))
        call = lambda launch: peer(case.copies[launch % len(case.copies)])
        times = timing.measure(call, request["launches"], len(case.copies), request["repeats"])
        return {**times, "same_order": round(same_order, 4)}
    except Mismatch as error:
        return {"error": f"its results are not Quern's: {error}"}
    except Exception as error:
        torch.cuda.synchronize()  # raises when the device is lost: then the whole run has failed
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def answer(request: dict[str, Any], inputs: Any, arrays: Any, names: set[str]) -> dict[str, Any]:
    torch._dynamo.config.recompile_limit = 256
    case = read_case(request, inputs, arrays)
    try:
        check_quern(case)
    except Mismatch as error:
        return {"error": f"Quern's result is wrong: {error}"}
    results = {name: time_peer(peer(case), case, request) for name, peer in peers().items() if name in names}
    del case
    torch.cuda.empty_cache()
    return {"peers": results}
