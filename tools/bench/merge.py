#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts a bench report together of parts, where one run did not last for all cases.

    merge.py OUT.json PART.json ...

The parts are of one bench, of any family. Every row has its own peers, timed in its own run, and softmax_topk's its own
plain read, so rows of several runs may stand side by side; what may not differ is the device, the driver, the compiler,
Quern's version and those of the peers. Of a case that several parts have the first one's row counts. Rows of softmax_topk
that were asked for by --rows and the like join the group "table". The parts' dates are kept as "dates", their number as
"merged". "complete" stays false where a part did not come to its end: which cases are there is for the caller to know and
to say.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SAME = ("bench", "quern", "device", "sm_count", "driver", "driver_cuda", "nvrtc", "repeats")
CASE = {  # what tells one case from another, by bench
    "softmax_topk": ("op", "rows", "V", "dtype", "K", "data", "with"),
    "gate": ("spec", "N"),
    "router": ("spec", "N"),
    "attention": ("spec", "shape"),
    "indexer": ("spec", "sequences", "length", "queries"),
}


class Unusable(Exception):
    """Parts that make no report."""


def versions(report: dict[str, Any]) -> dict[str, str]:
    return {name: peer["version"] for name, peer in report.get("peers", {}).get("peers", {}).items()}


def check_same(first: dict[str, Any], part: dict[str, Any], name: str) -> None:
    for key in SAME:
        if first.get(key) != part.get(key):
            raise Unusable(f"{name}: '{key}' is {part.get(key)!r}, of the first part {first.get(key)!r}")


def peers_of(parts: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """What the first part with peers says of them; a part without has none to say of."""
    known: dict[str, str] = {}
    for name, part in parts:
        for peer, version in versions(part).items():
            if known.setdefault(peer, version) != version:
                raise Unusable(f"{name}: {peer} is {version}, of a part before {known[peer]}")
    return next(({"peers": part["peers"]} for _, part in parts if "peers" in part), {})


def row_as_kept(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "group": "table"} if row.get("group") == "asked" else row


def key_of(bench: str, row: dict[str, Any]) -> tuple[Any, ...]:
    """A sweep has a case several times, in one configuration each."""
    own = row.get("quern", {})
    return (*(row[name] for name in CASE[bench]), own["plan"] if own.get("chosen") == "given" else "")


def read_part(name: str) -> dict[str, Any]:
    part = json.loads(Path(name).read_text(encoding="utf-8"))
    rows = part.get("rows") if isinstance(part, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Unusable(f"{name}: no report of a bench: an object with a list of \"rows\" is needed")
    if "date" not in part and "dates" not in part:
        raise Unusable(f"{name}: no report of a bench: it has no \"date\"")
    return part


def check_row(name: str, bench: str, number: int, row: dict[str, Any]) -> None:
    missing = [key for key in CASE[bench] if key not in row]
    if missing:
        raise Unusable(f"{name}: rows[{number}] has no \"{missing[0]}\"")


def merge(parts: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    first = parts[0][1]
    if first.get("bench") not in CASE:
        raise Unusable(f"{parts[0][0]}: '{first.get('bench')}' is none of the benches {', '.join(CASE)}")
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, part in parts:
        check_same(first, part, name)
        for number, row in enumerate(part["rows"]):
            check_row(name, first["bench"], number, row)
            rows.setdefault(key_of(first["bench"], row), row_as_kept(row))
    dates = list(dict.fromkeys(date for _, part in parts for date in part.get("dates") or [part["date"]]))
    complete = all(part.get("complete") for _, part in parts)
    head = {**first, **peers_of(parts)}
    return {**head, "dates": dates, "merged": len(dates), "complete": complete, "rows": list(rows.values())}


def main() -> int:
    if len(sys.argv) < 3:
        print("usage: merge.py OUT.json PART.json ...", file=sys.stderr)
        return 2
    try:
        parts = [(name, read_part(name)) for name in sys.argv[2:]]
        report = merge(parts)
        Path(sys.argv[1]).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    except (Unusable, OSError, ValueError) as error:
        print(f"merge.py: {error}", file=sys.stderr)
        return 1
    print(f"{len(report['rows'])} rows of {len(parts)} runs in {sys.argv[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
