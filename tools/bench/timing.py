# SPDX-License-Identifier: Apache-2.0
"""Timing of a peer by graph replay, as src/tune/timing.c does it for Quern."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch

WARM_UP = 2
LEAST_REPEATS = 5
SECONDS = 0.4  # for the measured replays of one peer; fewer than asked for where they would take longer
REPLAY_US = 1e4  # a graph holds fewer launches than asked for where they take longer than this, but every copy


def summary(samples: list[float]) -> dict[str, float]:
    """Median, tenth and ninetieth percentile, by the same places in the sorted list as in qn_timing_summary."""
    ordered, last = sorted(samples), len(samples) - 1
    return {
        "us_median": 0.5 * (ordered[last // 2] + ordered[len(samples) // 2]),
        "us_p10": ordered[last // 10],
        "us_p90": ordered[last - last // 10],
    }


def _replay(graph: torch.cuda.CUDAGraph) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end)


def _warm(call: Callable[[int], Any]) -> float:
    """Calls what compiles or allocates on its first call. Microseconds of the third one."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(side):
        call(0)
        call(1)
        start.record()
        call(2)
        end.record()
    torch.cuda.synchronize()
    return 1e3 * start.elapsed_time(end)


def launches_of(asked: int, copies: int, call_us: float) -> int:
    """Whole rotations over the copies; as many as asked for unless a call is long, which needs no repetition."""
    rotations = max(1, asked // copies)
    return copies * min(rotations, max(1, math.ceil(REPLAY_US / max(call_us * copies, 1.0))))


def _capture(call: Callable[[int], Any], launches: int) -> torch.cuda.CUDAGraph:
    """Outputs are dropped at once, so that their memory serves the next launch of the graph too."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(launches):
            call(index)
    return graph


def measure(call: Callable[[int], Any], asked: int, copies: int, repeats: int) -> dict[str, float]:
    """Microseconds a launch; call(i) puts launch i, on copy i modulo the copies, on the current stream."""
    launches = launches_of(asked, copies, _warm(call))
    graph = _capture(call, launches)
    warm = [_replay(graph) for _ in range(WARM_UP)]
    count = max(LEAST_REPEATS, min(repeats, int(SECONDS * 1e6 / max(warm[-1], 1.0))))
    times = summary([_replay(graph) / launches for _ in range(count)])
    rounded = {key: float(f"{value:.5g}") for key, value in times.items()}
    return {**rounded, "launches": launches, "repeats": count}
