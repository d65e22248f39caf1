"""Writes one HTML page on finished searches; measures health and block importance first where told to."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ldsearch.bench import Bench
from ldsearch.commands.console import open_bench, progress_bars, quiet_libraries, resumable
from ldsearch.commands.describe import info
from ldsearch.commands.health import print_health
from ldsearch.commands.importance import block_importance, importances_of, print_importance, stack_of
from ldsearch.costs.workload import Workload
from ldsearch.errors import LdsearchError, RunError, one_line
from ldsearch.options import HealthOptions, ImportanceOptions, Report, flag_of, flags
from ldsearch.options.binding import changed
from ldsearch.reports.explorer import Explorer, Point
from ldsearch.reports.figures import (
    RunFrontier,
    common_areas,
    draw_convergence,
    draw_frontier,
    draw_health,
    draw_importance,
    draw_overlay,
    group_by_rows,
)
from ldsearch.reports.heat_maps import draw_kept
from ldsearch.reports.page import Drawing, number, write_page
from ldsearch.reports.style import plain
from ldsearch.reports.tables import COST_WORDS, area_table
from ldsearch.runs.compressed import Compressed
from ldsearch.runs.run import SUPERNET_FILE, TRAINING_FILE, Run, newest_supernet, read_json, run_within
from ldsearch.runs.summary import Summary
from ldsearch.search.health import health, newest_health, verdict
from ldsearch.space import Space
from ldsearch.subnet import Subnet

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


def main(options: Report) -> dict[str, Any]:
    """Measure what is asked for, then write the page, unless supernets alone were named."""
    measured: dict[str, Any] = {}
    check_report(options)
    runs = list(options.folders)
    if options.health or options.importance:
        quiet_libraries()
        supernets = [folder for folder in runs if (folder / SUPERNET_FILE).is_file()]
        runs = [folder for folder in runs if folder not in supernets]
        searched = [Run.open(folder).supernet for folder in runs]
        homes = list(dict.fromkeys(path.resolve() for path in (*supernets, *searched)))
        homes = homes or [newest_supernet(options.runs)]
        if options.name is not None and len(homes) * (options.health + options.importance) > 1:
            raise RunError("--name names one folder: measure one thing of one supernet with it")
        for home in homes:
            bench = open_bench(home, options.runs, options.data)
            if options.health:
                measured["health"] = _measure_health(bench, options)
            if options.importance:
                measured["importance"] = _measure_importance(bench, options)
        if not runs:
            return measured
    figures = report(runs, options.output)
    print(f"written: {options.output} ({len(figures) // 2} figures beside it, each as SVG and PNG)")
    return {"page": str(options.output), **measured}


def _measure_health(bench: Bench, options: Report) -> dict[str, Any]:
    folder = options.place(f"{bench.folder.name}-health")
    with resumable("run the same command again; finished sub-networks are kept"):
        result = health(bench, folder, options, announce=lambda text: print(text, file=sys.stderr))
    return print_health(result)


def _measure_importance(bench: Bench, options: Report) -> dict[str, Any]:
    stack = stack_of(bench, options.stack)
    suffix = f"-{stack}" if len(bench.supernet.depths) > 1 else ""
    folder = options.place(f"{bench.folder.name}-importance{suffix}")
    with resumable("run the same command again; nothing measured is lost"), progress_bars() as bars:
        result = block_importance(bench, folder, options, progress=bars)
    return print_importance(result)


def report(folders: Sequence[str | Path], output: str | Path = "report.html") -> tuple[Path, ...]:
    """Read finished searches and write the page; no model is loaded and nothing is run.

    Args:
        folders: The runs, in the order they are shown.
        output: The page; figures lie next to it, their names begin with its own. Files that this function
            wrote before are replaced.

    Returns:
        The figures' files.

    Raises:
        RunError: If a folder holds no finished search, is named twice or is damaged, or a file of another
            kind is where one would be written.
    """
    output = Path(output)
    if output.suffix != ".html":
        raise RunError(f"the report is an HTML page: name it .html, not {output.name}")
    runs = Run.open_all(folders)
    if not runs:
        raise RunError("a report needs at least one run")
    names = [run.name for run in runs]
    labels = names if len(runs) == 1 else [f"{index} {name}" for index, name in enumerate(names, 1)]
    shown = [
        _shown(run, label, index) for index, (run, label) in enumerate(zip(runs, labels, strict=True), 1)
    ]
    drawings = [drawing for variables in shown for drawing in variables["drawings"].values() if drawing]
    context: dict[str, Any] = {"title": f"Report: {', '.join(names)}", "runs": shown, "overlay": None}
    if len(runs) > 1:
        frontiers = {
            plain(label): RunFrontier(plain(label), run.frontier, run.trials.iloc[0])
            for label, run in zip(labels, runs, strict=True)
        }
        variables = dict(zip(frontiers, shown, strict=True))
        context["overlay"] = Drawing("overlay", draw_overlay([*frontiers.values()]))
        drawings.append(context["overlay"])
        context["groups"] = []
        for rows, members in group_by_rows([*frontiers.values()]).items():
            areas, low, high = common_areas(members)
            searches = [
                (variables[member.label], member, area) for member, area in zip(members, areas, strict=True)
            ]
            context["groups"].append({"rows": rows, "searches": searches, "low": low, "high": high})
    return write_page(output, drawings, context)


def _shown(run: Run, label: str, index: int) -> dict[str, Any]:
    """The template's variables of a run: its tables, facts in words, figures.

    Raises:
        RunError: If the folder is damaged.
    """
    run.check_rows()
    try:
        first = run.trials.iloc[0]
        has_supernet = (run.supernet / SUPERNET_FILE).is_file()
        held = run.fields["held_out"]
        device = run.folder / "latency.json"
        importance = [(study.folder.name, study.fields, study.table) for study in importances_of(run)]
        measured = newest_health(run)
        areas = area_table(run.trials, run.controls, run.costs[0])
        frontier = RunFrontier("frontier", run.frontier, first)
        figures = _figures(run, frontier, areas if areas["area"].notna().any() else None)
        if measured is not None:
            tau = measured.fields["tau_within"]
            figures["health"] = draw_health(measured.table, plain(run.supernet.name), tau)
        for place, (folder, fields, table) in enumerate(importance):
            figures[f"importance-{place}"] = draw_importance(table, plain(folder), fields["metric"])
        made_by_compress = run_within(run.folder.parent) == run.folder
        return {
            "label": label,
            "run": run,
            "summary": (made_by_compress and Compressed.open(run.folder.parent)) or Summary.of_run(run),
            "first": first,
            "frontier": frontier,
            "explorer": _explorer(run, frontier, run.latency),
            "cost": COST_WORDS.get(run.costs[0], run.costs[0]),
            "chosen": run.subnets.index(run.best.subnet) if run.best.subnet in run.subnets else None,
            "head": {
                **_shareable(info(run.folder)),
                "seed": run.identity.get("seed", "none: the strategy draws nothing"),
                "search space": _describe_space(run.identity),
                "chosen by": "{metric} on {examples} examples of the {split} split".format(**first),
            },
            "supernet_facts": _shareable(info(run.supernet)) if has_supernet else None,
            "held_out": held or {},
            "areas": areas,
            "structured": any(s.structured for subnet in run.subnets for s in subnet.stacks().values()),
            "health": measured,
            "verdict": measured and verdict(measured),
            "importance": importance,
            "costs": _measuring(run),
            "count_splits": list(run.fields["this_call"]),
            "counts": {
                words: [_count(counts, name) for counts in run.fields["this_call"].values()]
                for name, words in _COUNTS.items()
            },
            "latency": run.latency,
            "device": read_json(device) if device.is_file() else None,
            "commands": _commands(run),
            "drawings": {
                name: figure and Drawing(f"{index}-{name}", figure) for name, figure in figures.items()
            },
        }
    except (KeyError, TypeError, ValueError, AttributeError, LdsearchError) as error:
        raise RunError(f"{run.folder} is damaged: {one_line(error)}") from error


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


def _figures(run: Run, frontier: RunFrontier, areas: Any) -> dict[str, Figure | None]:
    """Figures of the trials, held-out scores, areas (None: there are none) and kept blocks and lengths."""
    texts, first = run.trials["subnet"], run.trials.iloc[0]
    full = Subnet.from_json(str(texts.iloc[0]))
    best = next((i for i, text in enumerate(texts) if Subnet.from_json(text) == run.best.subnet), None)
    shares = [float(share) for share in run.frontier["macs_share"]]
    depths = {name: len(stack.blocks) for name, stack in full.stacks().items()}
    return {
        "searched": draw_frontier(
            run.trials,
            plain(run.name),
            best=best,
            budget_share=run.goal.budget_share(run.best.full_costs),
            costs=run.costs,
            controls=run.controls,
        ),
        "held-out": draw_overlay([frontier]) if frontier.held_out else None,
        "convergence": None
        if areas is None
        else draw_convergence(areas, str(first["metric"]), float(first["standard_error"])),
        "kept": draw_kept(run.subnets, shares, depths),
    }


def _explorer(run: Run, frontier: RunFrontier, timed: pd.DataFrame | None) -> Explorer:
    """The frontier's points, each with what is known of it and the command that exports it."""
    full = Subnet.from_json(str(run.trials["subnet"].iloc[0]))
    cost, (metric, split, examples) = run.costs[0], frontier.rows
    milliseconds: dict[Subnet, list[str]] = {}
    for row in [] if timed is None else timed.to_dict("records"):
        words = f"{row['median_ms']:.4g} ms ({row['batch']} x {row['length']}, {row['runtime']})"
        milliseconds.setdefault(Subnet.from_json(row["subnet"]), []).append(words)
    ends = frontier.intervals or ([None] * len(run.subnets),) * 2
    points = []
    for choice, score, low, high in zip(run.points(), frontier.scores, *ends, strict=True):
        subnet, chosen = choice.subnet, choice.subnet == run.best.subnet
        share = choice.costs[cost] / choice.full_costs[cost]
        facts = {
            "sub-network": subnet.describe(),
            f"{metric}, {choice.split}": f"{choice.score:.4f}, which chose",
        }
        if (held := choice.held_out) is not None:
            gap = held.difference
            facts[f"{metric}, {split}"] = f"{held.score:.4f}"
            facts["minus full"] = f"{gap.mean:+.4f}, 95%: {gap.low:+.4f} to {gap.high:+.4f}"
        facts["MACs"] = f"{choice.costs['macs'] / 1e6:.4g} million per example"
        facts["parameters"] = f"{choice.costs['parameters']:,.0f}"
        if subnet in milliseconds:
            facts["latency"] = "; ".join(milliseconds[subnet])
        place = run.folder.name if run.folder.is_absolute() else str(run.folder)
        export: dict[str, Any] = {"folder": place, "output": f"exported/{run.name}-{share:.3f}"}
        command = flags("export", export if chosen else {**export, "subnet": subnet.to_json()})
        points.append(Point(subnet, share, float(score), low, high, facts, command, chosen))
    return Explorer(
        points,
        frontier.full_score,
        frontier.standard_error,
        run.goal.budget_share(run.best.full_costs),
        {name: len(stack.blocks) for name, stack in full.stacks().items()},
        COST_WORDS.get(cost, cost),
        f"{metric} on {examples} {split} rows",
    )


def _measuring(run: Run) -> dict[str, Any]:
    """The section on how the measurements were made."""
    fields = run.fields
    workload = Workload.from_dict(fields["workload"])
    lengths = workload.lengths
    written = f", {workload.written_lengths @ workload.shares:.1f} written" if workload.written else ""
    peak = int(fields["peak_memory_bytes"])
    return {
        "measured as": fields["measured_as"],
        "workload": f"true lengths {lengths.min()} to {lengths.max()} tokens, mean {workload.mean_length:.1f}"
        f"{written}; padded: {workload.reference}",
        "evaluations": f"search {fields['trials']}"
        + "".join(f", {name} {count}" for name, count in fields["controls"].items()),
        "peak memory": f"{peak / 2**30:.2f} GiB of the process" if peak else "the system does not say",
        "workers": fields.get("workers", "not recorded"),
        "versions": ", ".join(f"{name} {version}" for name, version in fields["versions"].items()),
    }


def _count(counts: Mapping[str, Any], name: str) -> str:
    if name not in counts:
        return "not recorded"
    if name.endswith("_macs"):  # in passes of the full model
        full = counts["full_pass_macs"]
        return number(counts[name] / full if full else None, digits=1)
    return f"{counts[name]:.1f}" if name == "seconds" else f"{counts[name]:,}"


def _shareable(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with the names of absolute paths, which would tell a reader whose machine it was."""
    return {
        name: Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value
        for name, value in fields.items()
    }


def _commands(run: Run) -> dict[str, list[str]]:
    """The command lines that made the supernet and the run, from the options that both recorded; notes."""
    lines, notes = [flags("evolve", _shareable(run.options))], []
    training = run.supernet / TRAINING_FILE
    options = read_json(training).get("options") if training.is_file() else None
    if options is None:
        notes.append("the command that trained the supernet is not recorded")
    else:
        lines.insert(0, flags("train-supernet", _shareable(options)))
        if options.keys() & {"model", "validation", "data"}:
            notes.append(
                "paths are as they were given, seen from where the command was run; of absolute ones the name"
            )
    return {"lines": lines, "notes": notes}


def check_report(options: Report) -> None:
    """Refuse options of measurements that are not asked for.

    Raises:
        LdsearchError: Naming the first.
    """
    measures = {"health": HealthOptions, "importance": ImportanceOptions}
    for name in changed(options):
        for what, own in measures.items():
            if name in own.__annotations__ and not getattr(options, what):
                raise LdsearchError(f"{flag_of(name)} is for --{what}")
    if not options.health and not options.importance and (options.data or options.name is not None):
        raise LdsearchError("--data and --name are for --health and --importance")
    if options.trainer and not options.health:
        raise LdsearchError(f"--{next(iter(options.trainer))} is for --health, which trains")
    if "max_steps" in options.trainer or "num_train_epochs" in options.trainer:
        raise LdsearchError("--steps says how long each sub-network of --health is trained")
