#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the figures of a bench report into the documents, so that none is typed by hand.

    tables.py [--report FILE.json] [DOCUMENT.md ...]            writes them
    tables.py --check [--report FILE.json] [DOCUMENT.md ...]    exit status 1 where a document says something else

The report is what `quern bench softmax_topk … --out FILE.json` wrote (tools/bench/h200.json unless named). Beside it lie
those that some tables have of their own: FILE_gate.json, FILE_router.json, FILE_attention.json and FILE_indexer.json, of
`quern bench gate … --out` and so on, FILE_local_k_random.json and FILE_local_k_real.json of `--sweep local_k --repairs`.
The documents are README.md and kernel_templates/*/ANALYSIS.md unless named. In a document a table stands between two comments and is made anew:

    <!-- bench:softmax_topk -->
    …
    <!-- /bench:softmax_topk -->

TABLES, at the end, lists the names. A table that finds none of its rows in the report is an error, as is an unknown
name.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Callable, Iterable, Optional

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "tools/bench/h200.json"
MARKED = re.compile(r"<!-- bench:(\w+) -->\n(.*?)<!-- /bench:(\w+) -->", re.DOTALL)
OPENED = re.compile(r"<!-- /?bench:\w+ -->")

Row = dict[str, Any]
Report = dict[str, Any]
Pair = tuple[Optional[Row], Optional[Row]]  # a row and the one that it is compared with


class Unusable(Exception):
    """A report or a document that no table can be made for."""


# ---- numbers


def number(value: float) -> str:
    """Three digits, or all of those before the point: 5.23, 14.5, 260, 9187."""
    magnitude = abs(value)
    return f"{value:.{2 if magnitude < 10 else 1 if magnitude < 100 else 0}f}"


def spread(timing: Row) -> str:
    """A median with its tenth and ninetieth percentile."""
    low, high = number(timing["us_p10"]), number(timing["us_p90"])
    middle = number(timing["us_median"])
    return middle if low == high == middle else f"{middle} ({low}–{high})"


def ratio(over: Row, under: Row) -> str:
    """How many of `under` one `over` takes: of the medians, and from the least to the most that the spreads allow."""
    middle = number(over["us_median"] / under["us_median"])
    low, high = number(over["us_p10"] / under["us_p90"]), number(over["us_p90"] / under["us_p10"])
    return f"{middle}×" if low == high else f"{middle}× ({low}–{high})"


# ---- rows


def shape(row: Row) -> str:
    return f"{row['rows']} × {row['V']} {row['dtype']}"


def by_shape(row: Row) -> tuple[Any, ...]:
    return (row["dtype"], row["V"], row["rows"], row["K"], row["data"], row["with"])


def select(report: Report, **wanted: Any) -> list[Row]:
    """Rows that have these fields, in order; a tuple allows several values. Each case once."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in report["rows"]:
        if all(row[key] in (value if isinstance(value, tuple) else (value,)) for key, value in wanted.items()):
            found.setdefault(by_shape(row), row)
    return [found[key] for key in sorted(found)]


def beside(report: Report, row: Row, **changed: Any) -> Row | None:
    """The row that differs from this one in these fields only."""
    wanted = {key: row[key] for key in ("op", "rows", "V", "dtype", "K", "data", "with")} | changed
    found = select(report, **wanted)
    return found[0] if found else None


def timed_peers(row: Row) -> list[tuple[str, Row]]:
    """Those with a time, fastest first."""
    peers = [(name, peer) for name, peer in row["peers"].items() if "us_median" in peer]
    return sorted(peers, key=lambda peer: (peer[1]["us_median"], peer[0]))


def table(title: str, lines: Iterable[list[str]]) -> str:
    """title: "rows × V | K | µs", the first column to the left, the others to the right."""
    columns = title.count("|") + 1
    made = ["| " + " | ".join(line) + " |" for line in lines]
    if not made:
        raise Unusable(f"the report has no row for the table '{title}'")
    return "\n".join([f"| {title} |", "|---|" + "---:|" * (columns - 1), *made])


# ---- tables of every family


def version(text: str) -> str:
    """'nvrtc 13.0 build 1f2e…' → 'NVRTC 13.0'"""
    return " ".join(["NVRTC", *text.split()[1:2]])


def machine(report: Report) -> str:
    timed = {name for row in report["rows"] for name in row.get("peers") or {}}
    peers = report.get("peers", {}).get("peers", {})
    versions = {name.split(".")[0]: peer["version"] for name, peer in peers.items() if name in timed}
    software = [f"Quern {report['quern']}", f"driver {report.get('driver', 'of unknown version')}"]
    software += [f"CUDA {report['driver_cuda']}", version(report.get("nvrtc", ""))]
    software += [f"{name} {versions[name]}" for name in sorted(versions)]
    device = f"{report['device']}, {report['sm_count']} SMs, L2 {report['l2_bytes'] >> 20} MiB"
    return f"{device}; {', '.join(software)}; {report['date'][:10]}. Medians of {report['repeats']} replays."


# ---- tables of softmax_topk


def softmax_topk(report: Report) -> str:
    """The shapes of language models, beside a plain read and the fastest peer."""

    def line(row: Row) -> list[str]:
        peers = timed_peers(row)
        name, peer = peers[0] if peers else ("–", None)
        best = [spread(peer), ratio(peer, row["quern"])] if peer else ["–", "–"]
        return [shape(row), str(row["K"]), spread(row["quern"]), ratio(row["quern"], row["read"]), *best, name]

    rows = select(report, op="softmax_topk", group="table")
    return table("rows × V | K | µs | of a plain read | fastest peer, µs | takes | which", map(line, rows))


def softmax_topk_peers(report: Report) -> str:
    """Every peer of every case that has some."""
    rows = [row for row in select(report, op="softmax_topk") if row["peers"]]
    names = sorted({name for row in rows for name in row["peers"]})

    def cell(row: Row, name: str) -> str:
        peer = row["peers"].get(name, {})
        if "error" in peer:
            return "fails"
        return f"{number(peer['us_median'])}, {ratio(peer, row['quern'])}" if "us_median" in peer else "–"

    def line(row: Row) -> list[str]:
        case = [shape(row), str(row["K"]), " ".join(filter(None, (row["data"], row["with"])))]
        return [*case, spread(row["quern"]), *(cell(row, name) for name in names)]

    return table(" | ".join(["rows × V", "K", "data, options", "Quern, µs", *names]), map(line, rows))


def softmax_topk_plans(report: Report) -> str:
    def line(row: Row) -> list[str]:
        own = row["quern"]
        return [shape(row), str(row["K"]), number(own["gb_per_s"]), ratio(own, row["read"]), f"`{own['plan']}`"]

    rows = select(report, op="softmax_topk", group=("table", "rows"))
    return table("rows × V | K | GB/s | of a plain read | configuration", map(line, rows))


def softmax_topk_rows(report: Report) -> str:
    """Few rows to many: a line that is slower than one of more rows is marked."""
    of = {"op": "softmax_topk", "V": 128256, "dtype": "bf16", "data": "random", "with": ""}
    Ks = sorted({row["K"] for row in select(report, group="rows", **of)})
    every = {(row["rows"], row["K"]): row["quern"] for row in select(report, group=("rows", "table"), **of)}
    counts = sorted({rows for rows, K in every if K in Ks})

    def cell(rows: int, K: int) -> str:
        own = every.get((rows, K))
        if own is None:
            return "–"
        faster = [more for more in counts if more > rows and every.get((more, K), own)["us_p90"] < own["us_p10"]]
        return spread(own) + (f", slower than {faster[0]} rows" if faster else "")

    lines = [[str(rows), *(cell(rows, K) for K in Ks)] for rows in counts]
    return table(" | ".join(["rows × 128256 bf16", *(f"K {K}, µs" for K in Ks)]), lines)


def softmax_topk_data(report: Report) -> str:
    """Hard values, as multiples of the random case of the same shape."""
    kinds = ("ties", "two", "sorted", "equal")
    rows = select(report, op="softmax_topk", group="data")
    plain: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        base = beside(report, row, data="random")
        if base:
            plain.setdefault(by_shape(base), base)

    def cell(base: Row, kind: str) -> str:
        row = beside(report, base, data=kind)
        return ratio(row["quern"], base["quern"]) if row else "–"

    def line(row: Row) -> list[str]:
        return [shape(row), str(row["K"]), spread(row["quern"]), *(cell(row, kind) for kind in kinds)]

    return table(" | ".join(["rows × V", "K", "random, µs", *kinds]), map(line, plain.values()))


def beside_table(title: str, pairs: Iterable[Pair], label: Callable[[Row], str] = shape) -> str:
    """Rows, each with the one that it is compared with."""
    lines = []
    for row, plain in pairs:
        if row and plain and row is not plain:
            own, other = row["quern"], plain["quern"]
            lines.append([label(row), str(row["K"]), spread(own), spread(other), ratio(own, other)])
    return table(title, lines)


def softmax_topk_real(report: Report) -> str:
    rows = select(report, op="softmax_topk", group="real", data="real")
    pairs = [(row, beside(report, row, data="random")) for row in rows]
    return beside_table("rows × V | K | real logits, µs | random, µs | ratio", pairs)


def softmax_topk_alignment(report: Report) -> str:
    """V odd, where most rows start anywhere, beside the neighbour whose rows start at 16 bytes."""

    def pair(row: Row) -> Pair:
        next_one = beside(report, row, V=row["V"] + 1)
        return (row, next_one) if row["V"] % 2 else (next_one, row)

    rows = select(report, op="softmax_topk", group="alignment")
    return beside_table("rows × V | K | µs | V even, µs | ratio", map(pair, rows))


def plain_pairs(report: Report, group: str) -> list[Pair]:
    return [(row, beside(report, row, **{"with": ""})) for row in select(report, op="softmax_topk", group=group)]


def softmax_topk_batch_invariant(report: Report) -> str:
    title = "rows × V | K | batch_invariant=1, µs | without, µs | ratio"
    return beside_table(title, plain_pairs(report, "batch_invariant"))


def softmax_topk_outputs(report: Report) -> str:
    title = "rows × V, options | K | µs | without, µs | ratio"
    return beside_table(title, plain_pairs(report, "outputs"), lambda row: f"{shape(row)}, {row['with']}")


def local_k(report: Report) -> str:
    """Time of each LOCAL_K, and of how many rows the list was too short."""
    found: dict[tuple[int, int], Row] = {}
    for row in report["rows"]:
        words = dict(word.split("=", 1) for word in row["quern"]["plan"].split())
        found[int(words["local_k"]), row["K"]] = row
    Ks = sorted({K for _, K in found})

    def cell(entries: int, K: int) -> str:
        row = found.get((entries, K))
        if row is None:
            return "–"
        return number(row["quern"]["us_median"]) + (f", {row['repairs']} rows" if row.get("repairs") else "")

    entries = sorted({entries for entries, _ in found})
    title = " | ".join([f"local_k, of {report['rows'][0]['rows']} rows", *(f"K {K}, µs" for K in Ks)])
    return table(title, ([str(each), *(cell(each, K) for K in Ks)] for each in entries))


def options(row: Row) -> str:
    """A spec's fields, without its family."""
    return f"`{row['spec'].partition(' ')[2]}`"


# ---- tables of gate and router


def routing(report: Report) -> str:
    """Each spec and number of tokens beside the fastest peer; for a router also the product alone, which is no peer."""
    product = "torch.linear"
    rows = [row for row in report["rows"] if row.get("peers")]
    with_product = any(product in row["peers"] for row in rows)

    def line(row: Row) -> list[str]:
        peers = [(name, peer) for name, peer in timed_peers(row) if name != product]
        name, peer = peers[0] if peers else ("–", None)
        best = [spread(peer), ratio(peer, row)] if peer else ["–", "–"]
        alone = row["peers"].get(product, {})
        alone_us = [spread(alone) if "us_median" in alone else "–"] if with_product else []
        return [options(row), str(row["N"]), spread(row), *best, name, *alone_us]

    title = "spec | tokens | µs | fastest peer, µs | takes | which"
    return table(title + (" | its product alone, µs" if with_product else ""), map(line, rows))


# ---- tables of attention and indexer


def beside_fastest(title: str, report: Report, cells: Callable[[Row], list[str]]) -> str:
    """Rows beside the fastest peer of each; cells: what stands before it."""

    def line(row: Row) -> list[str]:
        peers = timed_peers({"peers": row.get("peers") or {}})
        best = [spread(peers[0][1]), ratio(peers[0][1], row), peers[0][0]] if peers else ["–", "–", "–"]
        return [*cells(row), *best]

    return table(f"{title} | fastest peer, µs | takes | which", map(line, report["rows"]))


def attention(report: Report) -> str:
    def cells(row: Row) -> list[str]:
        work = [number(row["tflop_per_s"]), number(row["tb_per_s"])]
        spec = row["spec"] if " d=" in row["spec"] else row["spec"].replace("attention", "attention d=64", 1)
        return [options({"spec": spec}), row["shape"], spread(row), *work]

    return beside_fastest("spec | batch × heads, queries × keys | µs | TFLOP/s | TB/s", report, cells)


def indexer(report: Report) -> str:
    def cells(row: Row) -> list[str]:
        sizes = [str(row[name]) for name in ("sequences", "length", "queries")]
        return [options(row), " × ".join(sizes), spread(row), number(row["gb_per_s"])]

    return beside_fastest("spec | sequences × entries × queries | µs | GB/s", report, cells)


# ---- some rows of a table, for README.md


def brief(whole: Callable[[Report], str], keep: Callable[[Row], bool]) -> Callable[[Report], str]:
    return lambda report: whole({**report, "rows": list(filter(keep, report["rows"]))})


def is_top_6(row: Row) -> bool:
    return " K=6 " in row["spec"] and "in=f32" in row["spec"]


def is_main_router(row: Row) -> bool:
    return " K=6 " in row["spec"] and row["N"] in (1, 8, 64, 512, 4096)


def is_main_indexer(row: Row) -> bool:
    return " k=2048 q=mxfp4" in row["spec"]


def is_8192_tokens(row: Row) -> bool:
    return "8192 × 8192" in row["shape"] or ("1 × 8192" in row["shape"] and "kv_alias" not in row["spec"])


TABLES: dict[str, Callable[[Report], str]] = {
    function.__name__: function
    for function in (
        machine,
        softmax_topk,
        softmax_topk_peers,
        softmax_topk_plans,
        softmax_topk_rows,
        softmax_topk_data,
        softmax_topk_real,
        softmax_topk_alignment,
        softmax_topk_batch_invariant,
        softmax_topk_outputs,
    )
}
OF_THEIR_OWN: dict[str, Callable[[Report], str]] = {  # tables with a report of their own
    "gate": routing,
    "router": routing,
    "attention": attention,
    "indexer": indexer,
    "local_k_random": local_k,
    "local_k_real": local_k,
}
BRIEF: dict[str, Callable[[Report], str]] = {
    "gate_brief": brief(routing, is_top_6),
    "router_brief": brief(routing, is_main_router),
    "attention_brief": brief(attention, is_8192_tokens),
    "indexer_brief": brief(indexer, is_main_indexer),
}
TABLES |= OF_THEIR_OWN | BRIEF | {f"machine_{name}": machine for name in OF_THEIR_OWN}


# ---- documents


def read_report(file: Path) -> Report:
    try:
        report: Report = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"{file}: {error}") from error
    if not report.get("complete") and not report.get("merged"):
        raise Unusable(f"{file}: the bench did not come to its end")
    return report


def renewed(text: str, report: Callable[[str], Report]) -> str:
    """The document with every table made anew. A report is read only for a document that has a table of it."""

    def make(found: re.Match[str]) -> str:
        name = found[1]
        if name not in TABLES or found[3] != name:
            raise Unusable(f"<!-- bench:{name} --> … <!-- /bench:{found[3]} -->: known are {', '.join(TABLES)}")
        return f"<!-- bench:{name} -->\n{TABLES[name](report(name))}\n<!-- /bench:{name} -->"

    if len(OPENED.findall(text)) != 2 * len(MARKED.findall(text)):
        raise Unusable("a table's comment has no partner")
    return MARKED.sub(make, text)


def first_difference(old: str, new: str) -> int:
    """The number of the first line that differs."""
    pairs = zip(old.splitlines() + [""], new.splitlines() + [""])
    return next((place for place, (a, b) in enumerate(pairs, 1) if a != b), 0)


def treat(document: Path, report: Callable[[str], Report], check: bool) -> bool:
    """Whether the document was right, or is now."""
    try:
        old = document.read_text(encoding="utf-8")
        new = renewed(old, report)
    except (Unusable, OSError) as error:
        print(f"{document}: {error}", file=sys.stderr)
        return False
    if check and old != new:
        print(f"{document}:{first_difference(old, new)}: not what the report says; tables.py mends it", file=sys.stderr)
        return False
    if old != new:
        document.write_text(new, encoding="utf-8")
        print(f"{document}: written")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Tables of documents from a bench report.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit status 1 where a document disagrees")
    parser.add_argument("--report", type=Path, default=REPORT, help="what 'quern bench … --out' wrote")
    parser.add_argument("documents", type=Path, nargs="*")
    arguments = parser.parse_args()
    documents = arguments.documents or [ROOT / "README.md", *sorted(ROOT.glob("kernel_templates/*/ANALYSIS.md"))]
    cache: dict[str, Report] = {}

    def report(name: str) -> Report:
        own = name.removeprefix("machine_").removesuffix("_brief")
        if own not in OF_THEIR_OWN:
            own = ""
        if own not in cache:
            file: Path = arguments.report
            cache[own] = read_report(file.with_stem(f"{file.stem}_{own}") if own else file)
        return cache[own]

    results = [treat(document, report, arguments.check) for document in documents]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
