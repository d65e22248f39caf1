"""Health of a supernet: do inherited scores rank sub-networks as training each on its own would?"""

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from ldsearch.bench import Bench
from ldsearch.commands.console import print_table
from ldsearch.commands.options import TrainSupernet
from ldsearch.commands.recover import STEPS, train_fixed
from ldsearch.commands.spaces import search_space
from ldsearch.errors import RunError
from ldsearch.evaluation import Evaluator
from ldsearch.files import write_json
from ldsearch.fingerprint import versions
from ldsearch.interruption import interruptible
from ldsearch.intervals import Statistics
from ldsearch.reports.figures import draw_health, save_figure
from ldsearch.reports.tables import write_csv
from ldsearch.runs import HEALTH_FILE, RUN_FILE, claim, read_json
from ldsearch.search.controls import random_search
from ldsearch.search.loop import StrategyContext
from ldsearch.subnet import Subnet
from ldsearch.training.checkpoints import report_disk_full

COUNT = 8
LEAST = 3


@dataclass(frozen=True)
class Health:
    """Inherited and fine-tuned scores of a few sub-networks.

    Args:
        folder: Where health.csv, health.png and health.json lie.
        table: One row per sub-network: ``macs_share``, ``inherited``, ``fine_tuned``, ``subnet``.
        tau: Kendall's rank correlation (tau-b) of the two scores; NaN where one of them is constant.
        p_value: Of tau = 0.
        examples: Search and report examples that the scores rest on.
    """

    folder: Path
    table: pd.DataFrame
    tau: float
    p_value: float
    examples: int


def health(
    bench: Bench,
    folder: str | Path,
    *,
    count: int = COUNT,
    space: str | None = None,
    steps: int = STEPS,
    options: TrainSupernet | None = None,
    announce: Callable[[str], None] = lambda text: None,
) -> Health:
    """Fine-tune sub-networks spread over the cost range and compare; the same call goes on.

    Args:
        bench: The supernet.
        folder: Where reports go; a sub-network's weights are removed once it is scored.
        count: How many sub-networks.
        space: A search space as for ``evolve``.
        steps: Optimizer steps of each training.
        options: How each is trained, as for ``train_fixed``; by default on the labels.
        announce: Is told which sub-network is next.

    Raises:
        LdsearchError: One line for a bad option, space or folder.
        Interrupted: On SIGINT or SIGTERM.
    """
    if count < LEAST:
        raise RunError(f"a rank correlation needs at least {LEAST} sub-networks, not {count}")
    bench.require_supernet()
    folder = Path(folder)
    options = options or TrainSupernet(teacher="none")
    loss = "label" if options.teacher == "none" else "distill"
    chosen = search_space(bench, space)
    subnets = random_search(StrategyContext(chosen, bench.macs, options.seed, 1 + count)).subnets
    if len(subnets) < LEAST:
        raise RunError(f"the search space {chosen.name} has only {len(subnets)} sub-networks to compare")
    identity = {
        "strategy": "health",
        "fingerprint": bench.evaluator.fingerprint,
        "subnets": [subnet.to_json() for subnet in subnets],
        "steps": steps,
        "loss": loss,
        "seed": options.seed,
        "trainer": {name: str(value) for name, value in options.trainer.items()},
    }
    claim(folder, RUN_FILE, identity)
    options = replace(options, trainer={"max_steps": steps, **options.trainer})
    rows = []
    with interruptible() as stop, report_disk_full(folder):
        for index, subnet in enumerate(subnets):
            announce(f"sub-network {index + 1} of {len(subnets)}: {subnet.describe()}")
            rows.append(_row(bench, folder / f"subnet-{index}", subnet, options))
            stop.check()
    table = pd.DataFrame(rows).sort_values("macs_share", ignore_index=True)
    tau, p_value = kendalltau(table["inherited"], table["fine_tuned"])
    examples = sum(evaluator.examples for evaluator in _evaluators(bench))
    found = Health(folder, table, float(tau), float(p_value), examples)
    write_csv(table, folder / "health.csv")
    save_figure(draw_health(table, bench.folder.name, found.tau), folder / "health.png")
    write_json(
        folder / HEALTH_FILE,
        {
            "tau": None if math.isnan(found.tau) else found.tau,
            "p_value": None if math.isnan(found.p_value) else found.p_value,
            "examples": found.examples,
            "steps": steps,
            "loss": loss,
            "versions": versions(),
        },
    )
    return found


def _row(bench: Bench, folder: Path, subnet: Subnet, options: TrainSupernet) -> dict[str, object]:
    """One sub-network's scores; those of one that is done are read."""
    done = folder.with_suffix(".json")
    if not done.is_file():
        own_folder = train_fixed(bench, folder, subnet, options)
        trained = Bench.open(own_folder, runs=folder, task=bench.task)
        full, own = bench.macs([bench.full, subnet])
        inherited, fine_tuned = (_statistics(one, subnet) for one in (bench, trained))
        row = {
            "macs_share": float(own / full),
            "inherited": bench.score(inherited).value,
            "fine_tuned": bench.score(fine_tuned).value,
            "subnet": subnet.to_json(),
        }
        write_json(done, row)
        shutil.rmtree(folder)
    return read_json(done)


def _statistics(bench: Bench, subnet: Subnet) -> Statistics:
    """On every row that training did not see."""
    return np.concatenate([evaluator.statistics(subnet) for evaluator in _evaluators(bench)])


def _evaluators(bench: Bench) -> list[Evaluator]:
    return [bench.evaluator] if bench.held_out is None else [bench.evaluator, bench.held_out]


def print_health(result: Health) -> dict[str, Any]:
    """The scores and their rank correlation; returns what ``--json`` prints."""
    print_table(
        f"{len(result.table)} sub-networks, {result.examples} examples",
        ["MACs share", "inherited", "fine-tuned", "sub-network"],
        [
            [
                f"{row['macs_share']:.3f}",
                f"{row['inherited']:.4f}",
                f"{row['fine_tuned']:.4f}",
                Subnet.from_json(row["subnet"]).describe(),
            ]
            for row in result.table.to_dict("records")
        ],
    )
    if math.isnan(result.tau):
        print("Kendall's tau is undefined: all sub-networks score the same")
    else:
        print(f"Kendall's tau {result.tau:.3f} (p = {result.p_value:.3g}, {len(result.table)} sub-networks)")
    print(f"written: {result.folder}/ (health.csv, health.png, health.json)")
    return {"run": str(result.folder), "tau": None if math.isnan(result.tau) else result.tau}
