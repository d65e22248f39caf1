"""Writes one HTML page on one or several finished searches, and its figures next to it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ldsearch.commands.describe import info
from ldsearch.commands.options import flags
from ldsearch.errors import RunError, one_line
from ldsearch.reports.figures import (
    Marks,
    RunFrontier,
    common_areas,
    draw_convergence,
    draw_frontier,
    draw_health,
    draw_importance,
    draw_overlay,
    group_by_rows,
    plain,
)
from ldsearch.reports.heat_maps import draw_kept
from ldsearch.reports.page import Drawing, write_page
from ldsearch.reports.tables import COST_WORDS, area_table
from ldsearch.runs import SUPERNET_FILE, TRAINING_FILE, HealthRun, Run, read_json, read_table
from ldsearch.space import Space
from ldsearch.subnet import Subnet
from ldsearch.workload import Workload

_LATENCY_COLUMNS = (
    *("subnet", "runtime", "phase", "batch", "length", "median_ms", "low_ms", "high_ms", "ratio"),
    *("macs_ratio", "not_faster", "noisy"),
)
_COUNTS = {
    "measured": "sub-networks measured",
    "cached": "known from before",
    "redone": "taken over from other workers",
    "executed_macs": "executed, in F",
    "alone_macs": "the same one by one, in F",
    "padded_macs": "one by one and padded, in F",
    "evaluations": "block evaluations",
    "hits": "more that were in memory (hits)",
    "seconds": "seconds",
}
_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class WrittenReport:
    """A written report.

    Args:
        page: The HTML file.
        figures: The SVG and PNG files next to it.
    """

    page: Path
    figures: tuple[Path, ...]


def report(folders: Sequence[str | Path], output: str | Path = "report.html") -> WrittenReport:
    """Read finished searches and write the page; no model is loaded and nothing is run.

    Args:
        folders: The runs, in the order they are shown.
        output: The page; figures lie next to it, their names begin with its own. Files that this function
            wrote before are replaced.

    Raises:
        RunError: If a folder holds no finished search, is named twice or is damaged, or a file of another
            kind is where one would be written.
    """
    output = Path(output)
    if output.suffix != ".html":
        raise RunError(f"the report is an HTML page: name it .html, not {output.name}")
    runs = [Run.open(folder) for folder in folders]
    if not runs:
        raise RunError("a report needs at least one run")
    if len({run.folder.resolve() for run in runs}) < len(runs):
        raise RunError("a run is named twice")
    labels = [run.name for run in runs]
    if len(runs) > 1:
        labels = [f"{index} {name}" for index, name in enumerate(labels, 1)]
    shown = [_shown(run, labels[index], index + 1) for index, run in enumerate(runs)]
    drawings = [drawing for run in shown for drawing in run["drawings"].values() if drawing]
    title = f"Report: {', '.join(run.name for run in runs)}"
    context: dict[str, Any] = {"title": title, "runs": shown, "overlay": None}
    if len(runs) > 1:
        together = dict(zip(labels, runs, strict=True))
        frontiers = [RunFrontier(plain(label), r.frontier, r.trials.iloc[0]) for label, r in together.items()]
        context["overlay"] = Drawing("overlay", draw_overlay(frontiers))
        context["groups"] = _groups(together, frontiers)
        drawings.append(context["overlay"])
    return WrittenReport(output, write_page(output, drawings, context))


def _groups(runs: Mapping[str, Run], frontiers: Sequence[RunFrontier]) -> list[dict[str, Any]]:
    """A table for each kind of rows of the runs (by label) that can be compared."""
    labels = {plain(label): label for label in runs}
    groups = []
    for (metric, split, examples), members in group_by_rows(frontiers).items():
        areas, low, high = common_areas(members)
        rows = []
        for frontier, area in zip(members, areas, strict=True):
            label = labels[frontier.label]
            run = runs[label]
            held = run.fields.get("held_out") or {}
            gains = [
                f"{name} {gain['mean']:+.4f} ({gain['low']:+.4f} to {gain['high']:+.4f})"
                for name, gain in (held.get("gains") or {}).items()
            ]
            strategy, trials = run.identity.get("strategy"), run.fields["trials"]
            row = [label, run.supernet.name, strategy, trials, f"{frontier.full_score:.4f}"]
            rows.append([*row, _number(area), _number(held.get("area")), "; ".join(gains) or "none"])
        group = {"metric": metric, "split": split, "examples": examples, "rows": rows}
        groups.append({**group, "low": f"{low / 1e6:.4g}", "high": f"{high / 1e6:.4g}"})
    return groups


def _shown(run: Run, label: str, index: int) -> dict[str, Any]:
    """The template's variables of one run.

    Raises:
        RunError: If the folder is damaged.
    """
    variables: dict[str, Any] = {"label": label}
    figures: dict[str, Figure | None] = {}
    try:
        for chapter in (_identity, _frontier, _health, _importance, _costs, _latency, _commands):
            said = chapter(run)
            figures |= said.pop("figures", {})
            variables |= said
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{run.folder} is damaged: {one_line(error)}") from error
    variables["drawings"] = {
        name: figure and Drawing(f"{index}-{name.replace('_', '-')}", figure)
        for name, figure in figures.items()
    }
    return variables


def _identity(run: Run) -> dict[str, Any]:
    identity, first = run.identity, run.trials.iloc[0]
    searched = {
        "seed": identity.get("seed", "none: the strategy draws nothing"),
        "search space": _describe_space(identity),
        "chosen by": f"{first['metric']} on {first['examples']} examples of the {first['split']} split",
    }
    return {
        "head": {**info(run.folder), **searched},
        "folder": run.folder,
        "supernet": run.supernet,
        "supernet_name": run.supernet.name,
        "supernet_facts": info(run.supernet) if (run.supernet / SUPERNET_FILE).is_file() else None,
    }


def _describe_space(identity: Mapping[str, Any]) -> str:
    if "depths" in identity:
        return f"depths {identity['depths']}"
    if identity.get("space") is None:
        return "not recorded"
    space = Space.from_dict({"name": "", "source": "", **identity["space"]})
    parts = [" and ".join(space.varies) or "nothing free"]
    if "depth" in space.varies:
        parts += [f"{depth.stack} depths {list(depth.keep)}" for depth in space.depths]
    if (lengths := space.lengths) is not None:
        parts.append(
            f"{len(lengths.levels)} lengths up to {lengths.reference} tokens ({lengths.mode}), "
            f"costs from those of {' '.join(map(str, lengths.least or lengths.floors))}"
        )
    return "; ".join(parts)


def _frontier(run: Run) -> dict[str, Any]:
    """The frontier with its figures, the areas, and what each point keeps."""
    trials, cost = run.trials, run.costs[0]
    first = trials.iloc[0]
    full = Subnet.from_json(str(first["subnet"]))
    depths = {name: len(stack.blocks) for name, stack in full.stacks().items()}
    frontier = RunFrontier("frontier", run.frontier, first)
    best = next(
        (i for i, text in enumerate(trials["subnet"]) if Subnet.from_json(text) == run.best.subnet), None
    )
    marks = Marks(plain(run.name), best, run.goal.budget_share(run.best.full_costs), run.costs)
    heads = ["MACs share", f"{first['metric']}, {first['split']}"]
    if frontier.held_out:
        heads += [f"{first['metric']}, {frontier.rows[1]}", "minus full", "95% interval"]
    rows = []
    for row, subnet in zip(run.frontier.to_dict("records"), run.subnets, strict=True):
        cells = [f"{row['macs_share']:.3f}", f"{row['score']:.4f}"]
        if frontier.held_out:
            interval = f"{row['difference_low']:+.4f} to {row['difference_high']:+.4f}"
            cells += [f"{row['held_out_score']:.4f}", f"{row['difference']:+.4f}", interval]
        rows.append([*cells, subnet.describe()])
    areas = area_table(trials, run.controls, cost)
    held = run.fields["held_out"]
    costs = [float(share) for share in run.frontier["macs_share"]]
    return {
        "cost": COST_WORDS.get(cost, cost),
        "trials": len(trials),
        "metric": first["metric"],
        "search_split": first["split"],
        "held_out": frontier.held_out,
        "split": frontier.rows[1],
        "front": rows,
        "front_heads": [*heads, "sub-network"],
        "chosen": run.subnets.index(run.best.subnet) if run.best.subnet in run.subnets else None,
        "held_out_words": held["in_words"] if held else [],
        "areas": [
            [name, len(own), own["evaluations"].iloc[-1], _number(own["area"].iloc[-1])]
            for name, own in areas.groupby("strategy", sort=False)
        ],
        "structured": any(stack.structured for subnet in run.subnets for stack in subnet.stacks().values()),
        "figures": {
            "searched": draw_frontier(trials, marks, run.controls),
            "held_out": draw_overlay([frontier]) if frontier.held_out else None,
            "convergence": draw_convergence(areas, first["metric"]) if areas["area"].notna().any() else None,
            "kept": draw_kept(run.subnets, costs, depths),
        },
    }


def _health(run: Run) -> dict[str, Any]:
    health = HealthRun.newest(run)
    if health is None:
        return {"health": None}
    fields, table = health.fields, health.table
    tau, p_value = fields["tau"], fields["p_value"]
    facts = {
        "health run": health.folder.name,
        "Kendall's tau": _number(tau, "undefined"),
        "p-value": _number(p_value, "undefined"),
        "sub-networks": len(table),
        "trained on their own": f"{fields['steps']} steps each, on {fields['loss']}s",
        "examples": fields["examples"],
        "verdict": verdict(tau, p_value),
    }
    figure = draw_health(table, plain(run.supernet.name), math.nan if tau is None else tau)
    return {"health": facts, "figures": {"health": figure}}


def verdict(tau: float | None, p_value: float | None) -> str:
    """Say how far a search may trust inherited scores.

    Args:
        tau: Kendall's; None where one of the scores is constant.
        p_value: Of tau = 0.
    """
    if tau is None or p_value is None:
        return "none: the sub-networks all score the same"
    if p_value >= _SIGNIFICANT:
        return (
            "inherited scores may rank no better than chance: choose by a rule, or train the supernet longer"
        )
    if tau < 0:
        return "inherited scores rank the wrong way round: do not search by them"
    return "inherited scores rank these sub-networks better than chance, as a search trusts them to"


def _importance(run: Run) -> dict[str, Any]:
    """Block importances of the run's supernet, where ``ldsearch report --importance`` measured them."""
    shown: list[dict[str, Any]] = []
    figures: dict[str, Figure] = {}
    for path in sorted(run.folder.resolve().parent.glob("*/importance.json")):
        fields, folder = read_json(path), path.parent
        if (folder / fields["supernet"]).resolve() != run.supernet.resolve():
            continue
        columns = ("block", "loss", "standard_error", "without", "restored")
        table = read_table(folder / "importance.csv", columns)
        name = f"importance-{len(shown)}"
        figures[name] = draw_importance(table, plain(folder.name), fields["metric"])
        rows = [[int(row[0]), *map(_number, row[1:])] for row in table[list(columns)].to_numpy().tolist()]
        facts = {key: fields[key] for key in ("metric", "examples", "split")}
        stack = fields["identity"]["stack"]
        shown.append({**facts, "stack": stack, "folder": folder.name, "drawing": name, "rows": rows})
    return {"importance": shown, "figures": figures}


def _costs(run: Run) -> dict[str, Any]:
    """Cost of the measurements, and how they were made."""
    fields, splits = run.fields, run.fields["this_call"]
    workload = Workload.from_dict(fields["workload"])
    lengths = workload.lengths
    written = f", {workload.written_lengths @ workload.shares:.1f} written" if workload.written else ""
    peak = int(fields["peak_memory_bytes"])
    facts = {
        "measured as": fields["measured_as"],
        "workload": f"true lengths {lengths.min()} to {lengths.max()} tokens, mean {workload.mean_length:.1f}"
        f"{written}; padded: {workload.reference}",
        "evaluations": f"search {fields['trials']}"
        + "".join(f", {name} {count}" for name, count in fields["controls"].items()),
        "peak memory": f"{peak / 2**30:.2f} GiB of the process" if peak else "the system does not say",
        "workers": fields.get("workers", "not recorded"),
        "versions": ", ".join(f"{name} {version}" for name, version in fields["versions"].items()),
    }
    counts = [
        [label, *(_count(counted, name) for counted in splits.values())] for name, label in _COUNTS.items()
    ]
    return {"costs": facts, "count_heads": [f"{split} split" for split in splits], "counts": counts}


def _count(counts: Mapping[str, Any], name: str) -> str:
    if name not in counts:
        return "not recorded"
    if name.endswith("_macs"):  # in passes of the full model
        full = counts["full_pass_macs"]
        return _number(counts[name] / full if full else None, digits=1)
    return f"{counts[name]:.1f}" if name == "seconds" else f"{counts[name]:,}"


def _latency(run: Run) -> dict[str, Any]:
    """Measured latencies, where ``ldsearch profile`` left some in the run's folder."""
    if not (run.folder / "latency.csv").is_file():
        return {"latency": []}
    rows = [
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
        for row in read_table(run.folder / "latency.csv", _LATENCY_COLUMNS).to_dict("records")
    ]
    timed = "How it was measured is not recorded."
    if (run.folder / "latency.json").is_file():
        facts = read_json(run.folder / "latency.json")
        timed = f"On {facts['device']}, {facts['dtype']}; threads: {facts['threads']}."
    return {"latency": rows, "timed": timed}


def _commands(run: Run) -> dict[str, Any]:
    """The command lines that made the supernet and the run, from the options that both recorded."""
    commands, notes = [flags("evolve", run.options)], []
    training = run.supernet / TRAINING_FILE
    options = read_json(training).get("options") if training.is_file() else None
    if options is None:
        notes.append("the command that trained the supernet is not recorded")
    else:
        commands.insert(0, flags("train-supernet", options))
        if options.keys() & {"model", "validation", "data"}:
            notes.append("paths are as they were given, seen from where the command was run")
    return {"commands": commands, "command_notes": notes}


def _number(value: float | None, otherwise: str = "none", digits: int = 4) -> str:
    return otherwise if value is None or math.isnan(value) else f"{value:,.{digits}f}"
