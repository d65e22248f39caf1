"""Health of a supernet: do inherited scores rank sub-networks of equal cost as training each would?

Scores rise with cost, so ranks over the cost range agree whatever the supernet is worth; a search compares
sub-networks of about equal cost. Several are drawn from each part of the range, and ranks are compared there.
"""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from ldsearch.bench import Bench
from ldsearch.disk.files import report_disk_full, write_json
from ldsearch.disk.fingerprint import versions, weights_fingerprint
from ldsearch.disk.secrets import without_tokens
from ldsearch.errors import RunError
from ldsearch.options import Report, TrainSupernet
from ldsearch.reports.figures import draw_health
from ldsearch.reports.style import save_figure
from ldsearch.runs.folder import claim
from ldsearch.runs.run import HEALTH_FILE, RUN_FILE, Run, Study, read_json
from ldsearch.search.controls import nearest_costs
from ldsearch.search.loop import CostFunction
from ldsearch.search.spaces import search_space
from ldsearch.space import Space
from ldsearch.subnet import Subnet
from ldsearch.training.recover import train_fixed
from ldsearch.training.run import training_arguments
from ldsearch.trials.ranking import partial_tau, tau_within
from ldsearch.work.interruption import interruptible

LEAST = 3
ENOUGH = 30  # sub-networks; fewer cannot tell ranks from chance
PER_BIN = 4
_POOL = 200  # uniform draws per sub-network, so that every part of the cost range has some
_SIGNIFICANT = 0.05
COLUMNS = ("macs_share", "bin", "inherited", "fine_tuned", "subnet")


def health(
    bench: Bench, folder: Path, options: Report, announce: Callable[[str], None] = lambda text: None
) -> Study:
    """Fine-tune sub-networks of several costs, several of each, and compare; the same call goes on.

    Args:
        bench: The supernet. Inherited scores are of the rows that choose, scores after training of the
            report rows, where there are some: the same rows would share their noise.
        folder: Where reports go; a sub-network's weights are removed once it is scored.
        options: ``count``, ``space``, ``steps``, ``start``, ``seed`` and ``trainer`` of the measurement.
        announce: Called with a description of the next sub-network.

    Returns:
        A table with one row per sub-network: ``COLUMNS``, and ``from_start`` where ``options.start`` names
        other weights to fine-tune. Its fields are those of ``correlations``, for ``from_start`` once more
        with that prefix; ``inherited_examples`` and ``fine_tuned_examples``.

    Raises:
        LdsearchError: One line for a bad option, space or folder.
        Interrupted: On SIGINT or SIGTERM.
    """
    if options.count < LEAST:
        raise RunError(f"a rank correlation needs at least {LEAST} sub-networks, not {options.count}")
    bench.require_supernet()
    if options.start is not None and not any(options.start.glob("*.safetensors")):
        raise RunError(f"--start {options.start} holds no model.safetensors: name a model's folder")
    space = search_space(bench, options.space)
    subnets, bins = draw_in_bins(space, bench.macs, options.count, options.seed)
    if len(subnets) < LEAST:
        raise RunError(f"the search space {space.name} has only {len(subnets)} sub-networks to compare")
    trainer = {"max_steps": options.steps, **options.trainer}
    training_arguments(folder, trainer, seed=options.seed)  # refused before the folder is made
    how = TrainSupernet(teacher="none", seed=options.seed, trainer=trainer)
    identity = {
        "strategy": "health",
        "fingerprint": bench.evaluator.fingerprint,
        "subnets": [subnet.to_json() for subnet in subnets],
        "start": None if options.start is None else weights_fingerprint(options.start),
        "seed": how.seed,
        "trainer": {name: str(value) for name, value in without_tokens(trainer).items()},
    }
    claim(folder, RUN_FILE, identity)
    rows = []
    with interruptible() as stop, report_disk_full(folder):
        for index, (subnet, number) in enumerate(zip(subnets, bins, strict=True)):
            announce(f"sub-network {index + 1} of {len(subnets)}: {subnet.describe()}")
            rows.append(
                {"bin": number, **_row(bench, folder / f"subnet-{index}", subnet, how, options.start)}
            )
            stop.check()
    table = pd.DataFrame(rows).sort_values("macs_share", ignore_index=True)
    fields: dict[str, Any] = {
        **correlations(table, "fine_tuned"),
        **({} if options.start is None else {"from_start": correlations(table, "from_start")}),
        "inherited_examples": bench.evaluator.examples,
        "fine_tuned_examples": (bench.held_out or bench.evaluator).examples,
        "same_rows": bench.held_out is None,
        "steps": options.steps,
        "versions": versions(),
    }
    save_figure(draw_health(table, bench.folder.name, fields["tau_within"]), folder / "health.png")
    study = Study(folder, "health", fields, table)
    study.write()
    return study


def draw_in_bins(space: Space, cost: CostFunction, count: int, seed: int) -> tuple[list[Subnet], list[int]]:
    """Sub-networks of a space, up to ``PER_BIN`` of about equal cost from each part of its cost range.

    Args:
        space: What is drawn from, uniformly.
        cost: As a function of sub-networks.
        count: How many; fewer where the space has fewer.
        seed: Of the draws.

    Returns:
        The sub-networks, cheapest bin first, and the bin of each.
    """
    rng = np.random.default_rng(seed)
    pool = list(dict.fromkeys(space.sample(rng) for _ in range(_POOL * count)))
    low, high = cost([space.smallest(), space.largest()])
    count = min(count, len(pool))
    parts = np.array_split(np.arange(count), math.ceil(count / PER_BIN))
    aims = [number for number, part in enumerate(parts) for _ in part]
    middles = [low + (high - low) * (number + 0.5) / len(parts) for number in aims]
    costs = cost(pool)
    drawn = sorted(nearest_costs(costs, middles), key=lambda index: costs[index])
    # Few costs are there of depths alone: what is nearest to a middle may lie in another bin.
    places = (costs[drawn] - low) / max(high - low, 1e-12) * len(parts)
    bins = np.clip(places.astype(int), 0, len(parts) - 1)
    return [pool[index] for index in drawn], bins.tolist()


def correlations(table: pd.DataFrame, trained: str) -> dict[str, float | None]:
    """Kendall's tau of inherited scores with scores after training; None where one side is constant.

    Args:
        table: ``COLUMNS``.
        trained: The column of scores after training.

    Returns:
        ``tau`` and ``p_value`` over all sub-networks; ``tau_of_cost``, of MACs alone with the scores after
        training, which any useful score has to add to; ``tau_within`` and ``p_value_within``, over pairs of
        about equal cost only; ``tau_partial``, of all pairs given the cost.
    """
    costs, inherited, tuned = table["macs_share"], table["inherited"], table[trained]
    tau, p_value = kendalltau(inherited, tuned)
    of_cost, of_inherited = kendalltau(costs, tuned).statistic, kendalltau(costs, inherited).statistic
    within = tau_within(inherited, tuned, table["bin"])
    values = {
        "tau": tau,
        "p_value": p_value,
        "tau_of_cost": of_cost,
        "tau_within": within.tau,
        "p_value_within": within.p_value,
        "tau_partial": partial_tau(of_inherited, of_cost, tau),
    }
    return {name: None if math.isnan(value) else float(value) for name, value in values.items()}


def _row(
    bench: Bench, folder: Path, subnet: Subnet, how: TrainSupernet, start: Path | None
) -> dict[str, Any]:
    """One sub-network's scores; those of one that is done are read."""
    done = folder.with_suffix(".json")
    if not done.is_file():
        full, cost = bench.macs([bench.full, subnet])
        row = {"macs_share": float(cost / full), "subnet": subnet.to_json()}
        row["inherited"] = bench.score(bench.evaluator.statistics(subnet)).value
        places: list[Path] = []
        for column, weights in (("fine_tuned", None), *([("from_start", start)] if start else [])):
            places.append(place := folder.with_name(f"{folder.name}-{column}"))
            trained = train_fixed(bench, place, subnet, how, start=weights)
            own = Bench.open(trained, runs=place, task=bench.task)
            row[column] = bench.score((own.held_out or own.evaluator).statistics(subnet)).value
        write_json(done, row)
        for place in places:
            shutil.rmtree(place)
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
        and "tau_within" in read_json(path)  # older ones compared ranks over all costs
    ]
    newest = max(markers, key=lambda path: path.stat().st_mtime, default=None)
    return None if newest is None else Study.open(newest, COLUMNS)


def verdict(study: Study) -> str:
    """Say how far a search may trust inherited scores: what they tell beyond the cost."""
    tau, p_value, count = study.fields["tau_within"], study.fields["p_value_within"], len(study.table)
    if tau is None or p_value is None:
        return "none: the sub-networks of each cost all score the same"
    if p_value >= _SIGNIFICANT:
        few = f", by {count} sub-networks; {ENOUGH} or more can tell" if count < ENOUGH else ""
        return (
            "at equal cost inherited scores may rank no better than chance: choose by a rule, or train the "
            f"supernet longer{few}"
        )
    if tau < 0:
        return "at equal cost inherited scores rank the wrong way round: do not search by them"
    return "at equal cost inherited scores rank better than chance, as a search trusts them to"
