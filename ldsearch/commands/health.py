"""Health of a supernet: do inherited scores rank sub-networks as training each on its own would?"""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from ldsearch.bench import Bench
from ldsearch.commands.console import print_table
from ldsearch.commands.options import Report, TrainSupernet
from ldsearch.commands.recover import train_fixed
from ldsearch.commands.spaces import search_space
from ldsearch.errors import RunError
from ldsearch.files import write_json
from ldsearch.fingerprint import versions
from ldsearch.interruption import interruptible
from ldsearch.reports.figures import draw_health, save_figure
from ldsearch.runs import HEALTH_FILE, RUN_FILE, Run, Study, claim, read_json
from ldsearch.search.controls import random_search
from ldsearch.search.loop import StrategyContext
from ldsearch.subnet import Subnet
from ldsearch.training.checkpoints import report_disk_full

LEAST = 3
COLUMNS = ("macs_share", "inherited", "fine_tuned", "subnet")


def health(
    bench: Bench, folder: Path, options: Report, announce: Callable[[str], None] = lambda text: None
) -> Study:
    """Fine-tune sub-networks spread over the cost range and compare; the same call goes on.

    Args:
        bench: The supernet.
        folder: Where reports go; a sub-network's weights are removed once it is scored.
        options: ``count``, ``space``, ``steps``, ``seed`` and ``trainer`` of the measurement.
        announce: Called with a description of the next sub-network.

    Returns:
        A table with one row per sub-network: ``macs_share``, ``inherited``, ``fine_tuned``, ``subnet``. Its
        fields hold Kendall's rank correlation of the two scores (``tau``, tau-b; None where one of them is
        constant), the ``p_value`` of tau = 0, and the ``examples`` that the scores rest on.

    Raises:
        LdsearchError: One line for a bad option, space or folder.
        Interrupted: On SIGINT or SIGTERM.
    """
    if options.count < LEAST:
        raise RunError(f"a rank correlation needs at least {LEAST} sub-networks, not {options.count}")
    bench.require_supernet()
    space = search_space(bench, options.space)
    context = StrategyContext(space, bench.macs, options.seed, 1 + options.count)
    subnets = random_search(context).subnets
    if len(subnets) < LEAST:
        raise RunError(f"the search space {space.name} has only {len(subnets)} sub-networks to compare")
    trainer = {"max_steps": options.steps, **options.trainer}
    how = TrainSupernet(teacher="none", seed=options.seed, trainer=trainer)
    identity = {
        "strategy": "health",
        "fingerprint": bench.evaluator.fingerprint,
        "subnets": [subnet.to_json() for subnet in subnets],
        "steps": options.steps,
        "loss": "label",
        "seed": options.seed,
        "trainer": {name: str(value) for name, value in options.trainer.items()},
    }
    claim(folder, RUN_FILE, identity)
    rows = []
    with interruptible() as stop, report_disk_full(folder):
        for index, subnet in enumerate(subnets):
            announce(f"sub-network {index + 1} of {len(subnets)}: {subnet.describe()}")
            rows.append(_row(bench, folder / f"subnet-{index}", subnet, how))
            stop.check()
    table = pd.DataFrame(rows).sort_values("macs_share", ignore_index=True)
    tau, p_value = (float(value) for value in kendalltau(table["inherited"], table["fine_tuned"]))
    fields = {
        "tau": None if math.isnan(tau) else tau,
        "p_value": None if math.isnan(p_value) else p_value,
        "examples": bench.evaluator.examples + (bench.held_out.examples if bench.held_out else 0),
        "steps": options.steps,
        "loss": "label",
        "versions": versions(),
    }
    save_figure(draw_health(table, bench.folder.name, tau), folder / "health.png")
    study = Study(folder, "health", fields, table)
    study.write()
    return study


def _row(bench: Bench, folder: Path, subnet: Subnet, how: TrainSupernet) -> dict[str, Any]:
    """One sub-network's scores on every row that training did not see; those of one that is done are read."""
    done = folder.with_suffix(".json")
    if not done.is_file():
        trained = Bench.open(train_fixed(bench, folder, subnet, how), runs=folder, task=bench.task)
        scores = []
        for own in (bench, trained):
            evaluators = [own.evaluator] if own.held_out is None else [own.evaluator, own.held_out]
            statistics = np.concatenate([evaluator.statistics(subnet) for evaluator in evaluators])
            scores.append(bench.score(statistics).value)
        full, cost = bench.macs([bench.full, subnet])
        values = (float(cost / full), *scores, subnet.to_json())
        write_json(done, dict(zip(COLUMNS, values, strict=True)))
        shutil.rmtree(folder)
    return read_json(done)


def newest_health(run: Run) -> Study | None:
    """The newest health run in the same runs folder with the run's fingerprint; None where there is none.

    Raises:
        RunError: If it is damaged.
    """
    markers = [
        path
        for path in run.folder.resolve().parent.glob(f"*/{HEALTH_FILE}")
        if (path.parent / RUN_FILE).is_file()
        and (read_json(path.parent / RUN_FILE).get("identity") or {}).get("fingerprint")
        == run.identity["fingerprint"]
    ]
    newest = max(markers, key=lambda path: path.stat().st_mtime, default=None)
    return None if newest is None else Study.open(newest, COLUMNS)


def print_health(study: Study) -> dict[str, Any]:
    """The scores and their rank correlation; returns what ``--json`` prints."""
    table, tau = study.table, study.fields["tau"]
    print_table(
        f"{len(table)} sub-networks, {study.fields['examples']} examples",
        ["MACs share", "inherited", "fine-tuned", "sub-network"],
        [
            [
                f"{row['macs_share']:.3f}",
                f"{row['inherited']:.4f}",
                f"{row['fine_tuned']:.4f}",
                Subnet.from_json(row["subnet"]).describe(),
            ]
            for row in table.to_dict("records")
        ],
    )
    if tau is None:
        print("Kendall's tau is undefined: all sub-networks score the same")
    else:
        print(f"Kendall's tau {tau:.3f} (p = {study.fields['p_value']:.3g}, {len(table)} sub-networks)")
    print(f"written: {study.folder}/ (health.csv, health.png, health.json)")
    return {"run": str(study.folder), "tau": tau}
