# SPDX-License-Identifier: Apache-2.0
"""Timing of a peer by graph replay, as src/tune/timing.c does it for Quern."""

from __future__ import annotations

from typing import Any, Callable

import torch

WARM_UP = 2
LEAST_REPEATS = 5
SECONDS = 1.0  # for the measured replays of one peer; fewer than asked for where they would take longer


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


def _capture(call: Callable[[int], Any], launches: int) -> torch.cuda.CUDAGraph:
    """Outputs are dropped at once, so that their memory serves the next launch of the graph too."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for index in range(2):  # what compiles or allocates on its first call
            call(index)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(launches):
            call(index)
    return graph


def measure(call: Callable[[int], Any], launches: int, repeats: int) -> dict[str, float]:
    """Microseconds a launch; call(i) puts launch i on the current stream."""
    graph = _capture(call, launches)
    warm = [_replay(graph) for _ in range(WARM_UP)]
    count = max(LEAST_REPEATS, min(repeats, int(SECONDS * 1e6 / max(warm[-1], 1.0))))
    times = summary([_replay(graph) / launches for _ in range(count)])
    return {**{key: float(f"{value:.5g}") for key, value in times.items()}, "repeats": count}
