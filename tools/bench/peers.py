# SPDX-License-Identifier: Apache-2.0
"""The peers of `quern bench FAMILY --vs torch`: other libraries, timed on the inputs that Quern was timed on.

Started by the command, never by hand (tools/quern/bench_peers.c). The two processes share a GPU and take turns: Quern
has checked and timed a case before this one hears of it, and waits while this one works. For a case:

    1  Quern's results for the first copy of the inputs are checked here, every row and every output (a second, separate
       check: the command has compared some rows with its host reference).
    2  A peer's results for that copy are compared with Quern's: a peer that answers something else has no time.
    3  The peer is timed.

What is the same for both sides: the GPU and the run; the inputs bit for bit (the command hands over its own, all
copies, in their layout); the rotation over the copies, more than twice the L2 in all; the launches in a graph; two
replays to warm up, then the measured ones, between two events; median, tenth and ninetieth percentile of the replays,
over the launches; the outputs that are asked for. What is not: peers allocate their outputs and intermediates
themselves, inside the graph, which costs no time in a replay; and one that takes long has fewer launches in its graph
(`launches`, always whole rotations) and fewer replays (`repeats`, at least 5). A peer that orders equal values in
another way, or at random, is not held against it: `same_order` says in which part of the rows its indices were Quern's
in Quern's order.

Messages are JSON, one a line. First this process says {"python", "torch", "cuda", "peers": {name: {"version",
"what"}}, "missing": {library: why}}, or {"error"}. A request is {"op", "inputs": {"number", "dtype", "rows", "V",
"copies", "pitch_bytes"}, "K", …, "launches", "repeats", "arrays": {name: {"dtype", "offset", "row"}}}: inputs and
arrays (optional inputs, Quern's outputs) lie in two pieces of shared memory. The answer is {"peers": {name:
{"us_median", "us_p10", "us_p90", "launches", "repeats", …} or {"error"}}}, or {"error"} when Quern's own result is
wrong; "error" is a text everywhere. What a family adds: "same_order", "recall" (indexer), "difference" (attention).
"""

from __future__ import annotations

import argparse
import json
import mmap
import platform
import socket
import sys
from typing import Any

Message = dict[str, Any]


class Shared:
    """Memory of the other process, whose size changes from case to case."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def tensor(self, dtype: Any, count: int, offset: int = 0) -> Any:
        import torch

        memory = mmap.mmap(self.descriptor, 0)  # closed with the last tensor on it
        return torch.frombuffer(memory, dtype=dtype, count=count, offset=offset)

    def bytes(self) -> Any:
        import torch

        return torch.frombuffer(mmap.mmap(self.descriptor, 0), dtype=torch.uint8)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Started by 'quern bench … --vs'.")
    for name in ("socket", "inputs", "arrays", "device"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--vs", required=True, help="'torch' for all, or names of peers separated by commas")
    return parser.parse_args()


def chosen(families: dict[str, Any], words: str) -> set[str]:
    """Names of the peers to time. ValueError for an unknown one."""
    known = {name for family in families.values() for name in family.peers()}
    if words == "torch":
        return known
    wanted = set(words.split(","))
    if not wanted <= known:
        unknown = ", ".join(sorted(wanted - known))
        raise ValueError(f"--vs: {unknown} is not 'torch' (all of them) or among {', '.join(sorted(known))}")
    return wanted


def load_families() -> dict[str, Any]:
    """Each family's module: peers(), missing(), answer(request, inputs, arrays, names)."""
    import attention
    import gate
    import indexer
    import router
    import softmax_topk

    return {"softmax_topk": softmax_topk, "gate": gate, "router": router, "attention": attention, "indexer": indexer}


def hello(families: dict[str, Any], names: set[str]) -> Message:
    import torch

    peers: Message = {}
    missing: Message = {}
    for family in families.values():
        missing.update(family.missing())
        for name, peer in family.peers().items():
            if name in names:
                peers[name] = {"version": peer.version, "what": peer.what}
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(),
        "peers": peers,
        "missing": missing,
    }


def open_device(ordinal: int) -> str | None:
    """Why there is nothing to time with; None when there is."""
    try:
        import torch
    except ImportError as error:
        return f"--vs: {sys.executable} can't import torch ({error}); --python names another interpreter"
    if not torch.cuda.is_available():
        return f"--vs: torch {torch.__version__} sees no GPU"
    torch.cuda.set_device(ordinal)
    return None


def serve(channel: Any, arguments: argparse.Namespace) -> None:
    families = load_families()
    names = chosen(families, arguments.vs)
    send(channel, hello(families, names))
    inputs, arrays = Shared(arguments.inputs), Shared(arguments.arrays)
    for line in channel:
        request = json.loads(line)
        try:
            answer = families[request["op"]].answer(request, inputs, arrays, names)
        except Exception as error:  # the command reports it
            answer = {"error": f"{type(error).__name__}: {error}"}
        send(channel, answer)


def send(channel: Any, message: Message) -> None:
    channel.write(json.dumps(message) + "\n")
    channel.flush()


def main() -> int:
    arguments = parse_arguments()
    channel = socket.socket(fileno=arguments.socket).makefile("rw", encoding="utf-8")
    try:
        error = open_device(arguments.device)
        if error is None:
            serve(channel, arguments)
    except ValueError as unusable:
        error = str(unusable)
    if error is not None:
        send(channel, {"error": error})
    return 0 if error is None else 1


if __name__ == "__main__":
    sys.exit(main())
