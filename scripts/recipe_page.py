"""What the arms of results/recipe label right: kept for each row, compared, and written as a page."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from recipe_arms import ARMS
from recipe_figure import draw_nested

from ldsearch.errors import LdsearchError
from ldsearch.reports.style import save_figure
from ldsearch.trials.intervals import Statistics, over_seeds

NESTED = "nested.png"
HOW = "how.json"  # steps and seconds of a training, beside its weights
FULL = "all 1.0"
BUDGETS = (1.0, 0.7, 0.5, 0.4, 0.3, 0.2)  # compared with the plain model at full length
LEVEL = 0.9  # each bound is a one-sided one of 95%
Right = NDArray[np.bool_]  # for each sub-network and row whether it is labelled right

GROUPS: Mapping[str, Callable[[str], bool]] = {
    "lengths": lambda name: name.startswith("all "),
    "every other, lengths": lambda name: name.startswith("half "),
    "depth": lambda name: name.startswith("depth "),
    "best of 0.2 to 0.45": lambda name: (
        name.startswith(("all ", "half ")) and 0.2 <= float(name.split()[1]) <= 0.45
    ),
    "full": lambda name: name == FULL,
}


@dataclass(frozen=True)
class Scored:
    """What the models of one arm label right, one of each seed.

    Args:
        right: Shape (seeds, sub-networks, rows).
        names: Of the sub-networks.
        how: Of the trainings, by seed.
    """

    right: Right
    names: tuple[str, ...]
    how: tuple[Mapping[str, Any], ...]

    def of(self, belongs: Callable[[str], bool], rows: slice) -> list[Statistics]:
        """A mean over sub-networks for each row, in points, by seed."""
        chosen = [belongs(name) for name in self.names]
        return list(100 * self.right[:, chosen, rows].mean(axis=1))


def together(scored: Sequence[Scored]) -> Scored:
    """The seeds of one arm."""
    right = np.concatenate([one.right for one in scored])
    return Scored(right, scored[0].names, tuple(how for one in scored for how in one.how))


def read(path: Path) -> Scored:
    """Scores of one training."""
    with np.load(path) as found:
        right = np.unpackbits(found["bits"], axis=1, count=int(found["rows"])).astype(bool)
        return Scored(right[None], tuple(found["names"].tolist()), (json.loads(str(found["how"])),))


def seeds_of(folder: Path) -> dict[str, Scored]:
    """All arms whose scores are kept, with as many seeds as each has."""
    found = {name: sorted(folder.glob(f"{name}-[0-9].npz")) for name in ARMS}
    return {name: together([read(path) for path in paths]) for name, paths in found.items() if paths}


def kept(path: Path, names: Sequence[str], rows: int, make: Callable[[], tuple[Path, Right]]) -> Scored:
    """Scores of one training, a bit for each row; made where they are not there.

    Raises:
        LdsearchError: If they are of other sub-networks or rows.
    """
    if not path.is_file():
        folder, right = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        bits, how = np.packbits(right, axis=1), (folder / HOW).read_text()
        np.savez_compressed(path, bits=bits, names=np.array(names), rows=right.shape[1], how=how)
    scored = read(path)
    if scored.names != tuple(names) or scored.right.shape[2] != rows:
        raise LdsearchError(f"{path} is of other sub-networks or rows: choose another --out")
    return scored


def difference(first: Sequence[Statistics], second: Sequence[Statistics]) -> dict[str, Any]:
    """Of two means over seeds, with the interval of seeds and rows."""
    return asdict(over_seeds([(1, first), (-1, second)], level=LEVEL))


def compare(scored: Scored, base: Scored, plain: Scored, held: int) -> dict[str, Any]:
    """Means over each group of sub-networks, and paired differences to an arm and to the plain model."""
    report, given = slice(held), slice(held, None)
    groups = {
        group: {
            "seeds": [float(seed.mean()) for seed in scored.of(belongs, report)],
            "validation": float(np.mean(scored.of(belongs, given))),
            "on validation": difference(scored.of(belongs, given), base.of(belongs, given)),
            **difference(scored.of(belongs, report), base.of(belongs, report)),
        }
        for group, belongs in GROUPS.items()
    }
    whole = plain.of(GROUPS["full"], report)
    return {
        "how": scored.how,
        "groups": groups,
        "to plain": {
            str(share): difference(scored.of(f"all {share}".__eq__, report), whole) for share in BUDGETS
        },
        "by": {name: float(np.mean(scored.of(name.__eq__, report))) for name in scored.names},
    }


def beside(alone: Scored, nested: Scored, held: int) -> dict[str, Any]:
    """A sub-network of a supernet less the same one trained alone, on the report rows."""
    (name,) = alone.names
    rows = slice(held)
    return difference(nested.of(name.__eq__, rows), alone.of(name.__eq__, rows))


def compared(found: Mapping[str, Scored], plain: Scored, base: str, held: int) -> dict[str, Any]:
    """What the page says of every arm, and of the plain model."""
    (whole,) = plain.of(GROUPS["full"], slice(None))
    arms = {name: scored for name, scored in found.items() if ARMS[name].alone is None}
    return {
        "arms": {name: compare(scored, found[base], plain, held) for name, scored in arms.items()},
        "specialists": {
            name: {
                "share": ARMS[name].alone,
                "how": alone.how,
                "accuracy": float(np.mean(alone.of(bool, slice(held)))),
                "validation": float(np.mean(alone.of(bool, slice(held, None)))),
                "nested": {arm: beside(alone, scored, held) for arm, scored in arms.items()},
            }
            for name, alone in found.items()
            if ARMS[name].alone is not None
        },
        "plain": {
            "rate": plain.how[0]["rate"],
            "accuracy": float(whole[:held].mean()),
            "validation": float(whole[held:].mean()),
        },
    }


def commands(result: Mapping[str, Any]) -> list[str]:
    """What was run: a line for each number of seeds."""
    base, arms = result["base"], {**result["arms"], **result["specialists"]}
    flags = " ".join(f"--{key.replace('_', '-')} {value:g}" for key, value in result["options"].items())
    counts = {name: len(row["how"]) for name, row in arms.items()}
    return [
        f"python scripts/recipe.py --data path/to/sst2 --runs runs/recipe --out {result['out']} {flags} "
        f"--base {base} --seeds {count} --arms {' '.join(name for name in arms if counts[name] == count)}"
        for count in sorted(set(counts.values()))
    ]


def cells(values: Sequence[Mapping[str, float]]) -> str:
    """Differences and their intervals as cells of a table."""
    return " | ".join(f"{one['mean']:+.2f} ({one['low']:+.2f} to {one['high']:+.2f})" for one in values)


def specialists(found: Mapping[str, Any], arms: Sequence[str], rows: int) -> list[str]:
    """Their table: the supernets less each of them."""
    ordered = sorted(found.values(), key=lambda row: float(row["share"]))
    lines = [
        "",
        "## One supernet, or each sub-network alone",
        "",
        "Specialists: one sub-network (constant ratio of all blocks) trained alone from the same plain",
        "model, with dropout at 1e-4, on labels and the frozen plain model's answers, for a third of a",
        f"supernet's compute each. The supernet's sub-network less the specialist, {rows:,} held-out rows:",
        "",
        "| MACs | " + " | ".join(f"{row['share']:g}" for row in ordered) + " |",
        f"|---|{'---|' * len(ordered)}",
    ]
    for label, key in (("specialist, held out", "accuracy"), ("specialist, validation rows", "validation")):
        lines.append(f"| {label} | {' | '.join(f'{row[key]:.2f}' for row in ordered)} |")
    lines += [f"| {arm} | {cells([row['nested'][arm] for row in ordered])} |" for arm in arms]
    return [
        *lines,
        "",
        "The base and the best arm beside them:",
        "",
        f"![one supernet beside specialists]({NESTED})",
    ]


def write_page(result: Mapping[str, Any], out: Path) -> None:
    """``README.md`` in the folder, and the figure of specialists where there are any."""
    options, arms, base, plain = (result[key] for key in ("options", "arms", "base", "plain"))
    rates = ", ".join(f"{rate:g}" for rate in result["rates"])
    lines = [
        "# Which way to train a supernet",
        "",
        "```",
        *commands(result),
        "```",
        "",
        f"MiniLM-L6 on a share of {options['rung']:g} of the rows of SST-2 that are left beside the held-out",
        "ones and what shares their text; every arm starts from one plain fine-tuning and spends the",
        f"multiply-accumulates of {options['epochs']:g} epochs of today's sandwich. Accuracy is a mean over",
        f"sub-networks, on {options['rows']:,} training rows that nobody saw; differences to `{base}` in",
        "points, 90% intervals of rows and seeds (each bound is a one-sided one of 95%). With one seed they",
        "are of the rows: two trainings of one recipe differ by some tenths of a point too.",
        "",
        f"| arm | what | steps | seeds | {' | '.join(GROUPS)} |",
        f"|---|---|---|---|{'---|' * len(GROUPS)}",
    ]
    for name, row in arms.items():
        groups, how = list(row["groups"].values()), row["how"]
        means = " | ".join(f"{np.mean(one['seeds']):.2f}" for one in groups)
        told = means if name == base else cells(groups)
        lines.append(f"| {name} | {ARMS[name].says} | {how[0]['steps']} | {len(how)} | {told} |")
    lines += [
        "",
        "Beside it, SST-2's own validation rows, whole sentences:",
        "",
        f"| arm | {' | '.join(GROUPS)} |",
        f"|---|{'---|' * len(GROUPS)}",
    ]
    for name, row in arms.items():
        groups = list(row["groups"].values())
        means = " | ".join(f"{one['validation']:.2f}" for one in groups)
        told = means if name == base else cells([one["on validation"] for one in groups])
        lines.append(f"| {name} | {told} |")
    lines += [
        "",
        f"Against plain fine-tuning of the whole model, at the best of {rates} by the search rows",
        f"({plain['rate']:g}: {plain['accuracy']:.2f} held out, {plain['validation']:.2f} on the validation",
        "rows): constant ratio of all blocks at shares of the MACs, 1 is the full model:",
        "",
        f"| arm | {' | '.join(map(str, BUDGETS))} |",
        f"|---|{'---|' * len(BUDGETS)}",
    ]
    lines += [f"| {name} | {cells(list(row['to plain'].values()))} |" for name, row in arms.items()]
    if result["specialists"]:
        lines += specialists(result["specialists"], list(arms), options["rows"])
        best = max(arms, key=lambda name: float(arms[name]["groups"]["lengths"]["mean"]))
        save_figure(draw_nested(result, (base, best)), out / NESTED)
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
