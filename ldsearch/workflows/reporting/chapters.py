"""The chapters of a report on one finished search."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ldsearch.commands.finished import FinishedRun, health_beside
from ldsearch.commands.info import info
from ldsearch.commands.rebuild import genes_of, search_command, train_command
from ldsearch.reports.convergence import area_table, draw_convergence
from ldsearch.reports.drawing import Drawing, plain
from ldsearch.reports.figures import Marks, draw_frontier, draw_health
from ldsearch.reports.heat_map import draw_kept
from ldsearch.reports.html import Markup, bullets, code, definitions, paragraphs, table
from ldsearch.reports.overlay import Line, draw_overlay
from ldsearch.reports.tables import COST_WORDS
from ldsearch.subnet import Subnet
from ldsearch.workflows.reporting.chapters_of_costs import latency, number, spent

Part = Markup | Drawing
Chapter = Callable[[FinishedRun, str], list[Part]]
_CERTAIN = 0.05


def chapters(run: FinishedRun, prefix: str) -> list[tuple[str, list[Part]]]:
    """Everything that is said of a run: titles and what stands below them.

    Args:
        run: The run.
        prefix: Of its figures' names, distinct on a page.

    Raises:
        LdsearchError: If the folder is damaged.
    """
    found = [(title, chapter(run, prefix)) for title, chapter in _CHAPTERS]
    return [(title, parts) for title, parts in found if parts]


def _head(run: FinishedRun, prefix: str) -> list[Part]:
    fields, first = run.fields, run.trials.iloc[0]
    identity = fields["identity"]
    searched = {
        "seed": str(identity.get("seed", "none: the strategy draws nothing")),
        "search space": _space_in_words(identity),
        "chosen by": f"{first['metric']} on {first['examples']} examples of the {first['split']} split",
    }
    return [definitions({**info(run.folder), **searched})]


def _supernet(run: FinishedRun, prefix: str) -> list[Part]:
    if run.record is None:
        return [paragraphs([f"The supernet is not at {run.supernet} any more: its record cannot be shown."])]
    return [definitions(info(run.supernet))]


def _space_in_words(identity: Mapping[str, Any]) -> str:
    if "depths" in identity:
        return f"depths {identity['depths']}"
    space = identity.get("space")
    if space is None:
        return "not recorded"
    parts = [" and ".join(genes_of(space)) or "nothing free"]
    parts += [f"{stack} depths {keep}" for stack, keep in space.get("depths", ())]
    lengths = space if "levels" in space else space.get("lengths")
    if lengths is not None:
        least = lengths["least"] or lengths["floors"]
        parts.append(
            f"{len(lengths['levels'])} lengths up to {lengths['reference']} tokens ({lengths['mode']}), "
            f"costs from those of {' '.join(map(str, least))}"
        )
    return "; ".join(parts)


def _frontier(run: FinishedRun, prefix: str) -> list[Part]:
    chosen = next((i for i, text in enumerate(run.trials["subnet"]) if _same(text, run)), None)
    searched = Drawing(
        f"{prefix}searched",
        draw_frontier(run.trials, Marks(plain(run.name), chosen, run.budget_share, run.costs), run.controls),
        f"Score against share of the full model's {COST_WORDS.get(run.costs[0], run.costs[0])}: "
        f"{len(run.trials)} trials, their frontier of "
        f"{len(run.front)}, controls, the full model and what was chosen. The table below has the numbers.",
        "On the rows that chose: the search, and its controls with no more evaluations each. These scores "
        "are optimistic.",
    )
    parts: list[Part] = [searched]
    line = Line("frontier", run.front, run.trials.iloc[0])
    if line.held_out:
        parts.append(
            Drawing(
                f"{prefix}held-out",
                draw_overlay([line]),
                f"The {len(run.front)} frontier points scored on the {line.rows[1]} split, with intervals.",
                "The same sub-networks on rows that chose nothing; bars: 95% paired bootstrap intervals of "
                "the difference to the full model.",
            )
        )
    else:
        parts.append(paragraphs(["There were no rows that chose nothing: no score here is held out."]))
    held = run.fields["held_out"]
    return [*parts, _frontier_table(run, line.held_out), bullets(held["in_words"] if held else [])]


def _same(text: str, run: FinishedRun) -> bool:
    return Subnet.from_json(text) == run.chosen


def _frontier_table(run: FinishedRun, held_out: bool) -> Markup:
    first = run.front.iloc[0]
    heads = ["MACs share", f"{first['metric']}, {first['split']}"]
    if held_out:
        heads += [f"{first['metric']}, {first['held_out_split']}", "minus full", "95% interval"]
    rows = []
    for row, subnet in zip(run.front.to_dict("records"), run.subnets, strict=True):
        cells = [f"{row['macs_share']:.3f}", f"{row['score']:.4f}"]
        if held_out:
            interval = f"{row['difference_low']:+.4f} to {row['difference_high']:+.4f}"
            cells += [f"{row['held_out_score']:.4f}", f"{row['difference']:+.4f}", interval]
        rows.append([*cells, subnet.describe()])
    chosen = next((i for i, subnet in enumerate(run.subnets) if subnet == run.chosen), None)
    bold = "; what was chosen is bold" if chosen is not None else ""
    return table(f"The frontier, cheapest first{bold}", [*heads, "sub-network"], rows, [len(heads)], chosen)


def _convergence(run: FinishedRun, prefix: str) -> list[Part]:
    areas = area_table(run.trials, run.controls, run.costs[0])
    rows = [
        [str(name), str(len(own)), str(own["evaluations"].iloc[-1]), number(own["area"].iloc[-1])]
        for name, own in areas.groupby("strategy", sort=False)
    ]
    split, metric = (str(run.trials.iloc[0][name]) for name in ("split", "metric"))
    parts: list[Part] = []
    if areas["area"].notna().any():
        parts.append(
            Drawing(
                f"{prefix}convergence",
                draw_convergence(areas, metric),
                "Area under the frontier against the sub-networks measured, of the search and its controls.",
                f"Area: the mean over cost of the best {metric} on the {split} split, one range of costs for "
                "all. What proposes everything at once, as controls do, is a point.",
            )
        )
    else:
        parts.append(paragraphs(["Nothing was measured below the full model's cost: there is no area."]))
    caption = f"Area at the end, on the {split} split, which chose"
    return [*parts, table(caption, ["strategy", "generations", "evaluations", "area"], rows)]


def _kept(run: FinishedRun, prefix: str) -> list[Part]:
    costs = [float(share) for share in run.front["macs_share"]]
    finer = any(stack.structured for subnet in run.subnets for stack in subnet.stacks().values())
    hidden = (
        " What is off inside blocks is not shown here; the table of the frontier has it." if finer else ""
    )
    return [
        Drawing(
            f"{prefix}kept",
            draw_kept(run.subnets, costs, run.depths),
            "A row for each frontier point, cheapest first, a column for each block: the share of tokens "
            "that leaves it. The table of the frontier lists blocks and lengths.",
            "Each row is a sub-network of the frontier, cheap to dear. Numbers are percent of the tokens "
            f"that leave the block (0-based); an empty cell: the block does not run.{hidden}",
        ),
    ]


def _health(run: FinishedRun, prefix: str) -> list[Part]:
    found = health_beside(run)
    if found is None:
        missing = f"No health run of this supernet lies beside it: ldsearch health --supernet {run.supernet}"
        return [paragraphs([missing])]
    fields = found.fields
    tau, p_value = fields["tau"], fields["p_value"]
    facts = {
        "health run": found.folder.name,
        "Kendall's tau": number(tau, "undefined"),
        "p-value": number(p_value, "undefined"),
        "sub-networks": str(len(found.table)),
        "trained on their own": f"{fields['steps']} steps each, on {fields['loss']}s",
        "examples": str(fields["examples"]),
        "verdict": verdict(tau, p_value),
    }
    return [
        definitions(facts),
        Drawing(
            f"{prefix}health",
            draw_health(found.table, plain(run.supernet.name), math.nan if tau is None else tau),
            f"Inherited against fine-tuned scores of {len(found.table)} sub-networks.",
            "Inherited scores, which a search goes by, against those after training each sub-network alone.",
        ),
    ]


def verdict(tau: float | None, p_value: float | None) -> str:
    """What a health run says of a search's trust in inherited scores.

    Args:
        tau: Kendall's; None where one of the scores is constant.
        p_value: Of tau = 0.
    """
    if tau is None or p_value is None:
        return "none: the sub-networks all score the same"
    if p_value >= _CERTAIN:
        return (
            "inherited scores may rank no better than chance: choose by a rule, or train the supernet longer"
        )
    if tau < 0:
        return "inherited scores rank the wrong way round: do not search by them"
    return "inherited scores rank these sub-networks better than chance, as a search trusts them to"


def _commands(run: FinishedRun, prefix: str) -> list[Part]:
    commands = [search_command(run)]
    if run.record is not None:
        commands.insert(0, train_command(run.supernet, run.record))
    notes = [note for command in commands for note in command.notes]
    if run.record is None:
        notes.insert(0, "the supernet is not there any more: the command that trained it is not known")
    return [code([command.line for command in commands]), bullets(notes)]


_CHAPTERS: Sequence[tuple[str, Chapter]] = (
    ("What was searched and chosen", _head),
    ("Supernet", _supernet),
    ("Frontier", _frontier),
    ("Convergence", _convergence),
    ("Kept blocks and lengths", _kept),
    ("Health", _health),
    ("Costs", lambda run, prefix: [*spent(run)]),
    ("Latency", lambda run, prefix: [*latency(run)]),
    ("To rebuild it", _commands),
)
