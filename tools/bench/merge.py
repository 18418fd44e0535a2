#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts a bench report together of parts, where one run did not last for all cases.

    merge.py OUT.json PART.json ...

Every row has its own plain read and peers, timed in its own run, so rows of several runs may stand side by side; what may
not differ is the device, the driver, the compiler, Quern's version and those of the peers. Of a case that several parts
have the first one's row counts. Rows that were asked for by --rows and the like join the group "table". The parts' dates
are kept as "dates", their number as "merged". "complete" stays false where a part did not come to its end: which cases
are there is for the caller to know and to say.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SAME = ("bench", "quern", "device", "sm_count", "driver", "driver_cuda", "nvrtc", "repeats")
CASE = ("op", "rows", "V", "dtype", "K", "data", "with")


class Unusable(Exception):
    """Parts that make no report."""


def versions(report: dict[str, Any]) -> dict[str, str]:
    return {name: peer["version"] for name, peer in report.get("peers", {}).get("peers", {}).items()}


def check_same(first: dict[str, Any], part: dict[str, Any], name: str) -> None:
    for key in SAME:
        if first.get(key) != part.get(key):
            raise Unusable(f"{name}: '{key}' is {part.get(key)!r}, of the first part {first.get(key)!r}")
    for peer, version in versions(part).items():
        if versions(first).get(peer, version) != version:
            raise Unusable(f"{name}: {peer} is {version}, of the first part {versions(first)[peer]}")


def merge(parts: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    first = parts[0][1]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, part in parts:
        check_same(first, part, name)
        for row in part["rows"]:
            group = "table" if row["group"] == "asked" else row["group"]
            swept = row["quern"]["plan"] if row["quern"].get("chosen") == "given" else ""
            rows.setdefault((*(row[key] for key in CASE), swept), {**row, "group": group})
    dates = [part["date"] for _, part in parts]
    complete = all(part.get("complete") for _, part in parts)
    return {**first, "dates": dates, "merged": len(parts), "complete": complete, "rows": list(rows.values())}


def main() -> int:
    if len(sys.argv) < 3:
        print("usage: merge.py OUT.json PART.json ...", file=sys.stderr)
        return 2
    try:
        parts = [(name, json.loads(Path(name).read_text(encoding="utf-8"))) for name in sys.argv[2:]]
        report = merge(parts)
    except (Unusable, OSError, ValueError) as error:
        print(f"merge.py: {error}", file=sys.stderr)
        return 1
    Path(sys.argv[1]).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{len(report['rows'])} rows of {len(parts)} runs in {sys.argv[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
