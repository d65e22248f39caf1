"""The chapters of a report that say what a search took: counts, memory, measured latency."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ldsearch.commands.finished import FinishedRun, read_table
from ldsearch.reports.html import Markup, definitions, paragraphs, table
from ldsearch.runs import read_json
from ldsearch.subnet import Subnet
from ldsearch.workload import Workload

_LATENCY_FILES = ("latency.csv", "latency.json")
_LATENCY_COLUMNS = (
    *("subnet", "runtime", "phase", "batch", "length", "median_ms", "low_ms", "high_ms", "ratio"),
    *("macs_ratio", "not_faster", "noisy"),
)


def spent(run: FinishedRun) -> list[Markup]:
    """Counts, and how they were taken.

    Raises:
        KeyError: If the run records none.
    """
    fields = run.fields
    splits = fields["this_call"]
    rows = [[label, *(value(counts) for counts in splits.values())] for label, value in _COUNTS]
    workload = Workload.from_dict(fields["workload"])
    lengths = workload.lengths
    written = f", {workload.written_lengths @ workload.shares:.1f} written" if workload.written else ""
    peak = int(fields["peak_memory_bytes"])
    facts = {
        "measured as": str(fields["measured_as"]),
        "workload": f"true lengths {lengths.min()} to {lengths.max()} tokens, mean {workload.mean_length:.1f}"
        f"{written}; padded: {workload.reference}",
        "evaluations": f"search {fields['trials']}"
        + "".join(f", {name} {count}" for name, count in fields["controls"].items()),
        "peak memory": f"{peak / 2**30:.2f} GiB of the process" if peak else "the system does not say",
        "workers": str(fields.get("workers", "not recorded")),
        "versions": ", ".join(f"{name} {version}" for name, version in fields["versions"].items()),
    }
    explained = (
        "MACs are matrix products at true lengths. F is one pass of the full model over a split. Counts are "
        "of the call that finished the run, controls included: what an earlier, interrupted call measured is "
        "among the known ones."
    )
    heads = ["count", *(f"{split} split" for split in splits)]
    return [
        table("What measuring took", heads, rows),
        paragraphs([explained]),
        definitions(facts),
    ]


def _passes(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda counts: number(
        counts[name] / counts["full_pass_macs"] if counts["full_pass_macs"] else math.nan, digits=1
    )


def _count(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda counts: f"{counts[name]:,}" if name in counts else "not recorded"


_COUNTS: Sequence[tuple[str, Callable[[Mapping[str, Any]], str]]] = (
    ("sub-networks measured", _count("measured")),
    ("known from before", _count("cached")),
    ("taken over from other workers", _count("redone")),
    ("executed, in F", _passes("executed_macs")),
    ("the same one by one, in F", _passes("alone_macs")),
    ("one by one and padded, in F", _passes("padded_macs")),
    ("block evaluations", _count("evaluations")),
    ("more that were in memory (hits)", _count("hits")),
    ("seconds", lambda counts: f"{counts['seconds']:.1f}"),
)


def latency(run: FinishedRun) -> list[Markup]:
    """Measured latencies, where ``ldsearch profile`` left some in the run's folder.

    Raises:
        RunError: If they are damaged.
    """
    csv, facts = (run.folder / name for name in _LATENCY_FILES)
    if not csv.is_file():
        return []
    rows = read_table(csv, _LATENCY_COLUMNS).to_dict("records")
    heads = [
        "batch x length",
        "runtime, phase",
        "median ms",
        "quartiles",
        "ratio",
        "MACs ratio",
        "remark",
        "sub-network",
    ]
    cells = [
        [
            f"{row['batch']} x {row['length']}",
            f"{row['runtime']}, {row['phase']}",
            f"{row['median_ms']:.4g}",
            f"{row['low_ms']:.4g} to {row['high_ms']:.4g}",
            f"{row['ratio']:.3f}",
            f"{row['macs_ratio']:.3f}",
            ", ".join(word for word in ("not_faster", "noisy") if row[word]).replace("_", " "),
            Subnet.from_json(str(row["subnet"])).describe(),
        ]
        for row in rows
    ]
    how = "How it was measured is not recorded."
    if facts.is_file():
        found = read_json(facts)
        how = f"On {found['device']}, {found['dtype']}; threads: {found['threads']}."
    caption = "Latency; ratio: to the full model, the faster of its own path and stock sdpa"
    return [paragraphs([how]), table(caption, heads, cells, [1, 7])]


def number(value: float | None, otherwise: str = "none", digits: int = 4) -> str:
    """A number, or what stands for none."""
    return otherwise if value is None or math.isnan(value) else f"{value:,.{digits}f}"
