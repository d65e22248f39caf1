"""Evaluates, exports and describes what training and search left in their folders."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ldsearch.errors import RunError
from ldsearch.export import export_subnet
from ldsearch.export.card import Provenance
from ldsearch.intervals import Interval
from ldsearch.runs import BEST_FILE, HEALTH_FILE, RUN_FILE, SUPERNET_FILE, beside, read_json
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import SupernetRecord, read_record
from ldsearch.training.rates import mean
from ldsearch.trial import Score
from ldsearch.workflows.target import Target
from ldsearch.workflows.workbench import Workbench


@dataclass(frozen=True)
class Evaluation:
    """A sub-network beside the full model on the same examples.

    Args:
        subnet: The sub-network.
        metric: Name of the score.
        score: The sub-network's.
        full_score: The full model's.
        difference: The sub-network's score minus the full model's, paired bootstrap.
        costs: The sub-network's, by name.
        full_costs: The full model's.
        split: Where the examples come from.
        chosen_on: Whether a search chose the sub-network by these very examples.
    """

    subnet: Subnet
    metric: str
    score: Score
    full_score: Score
    difference: Interval
    costs: Mapping[str, float]
    full_costs: Mapping[str, float]
    split: str
    chosen_on: bool


def evaluate(
    folder: str | Path, *, subnet: str | None = None, split: str | None = None, data: str | None = None
) -> Evaluation:
    """Score a sub-network and the full model on one split, with the interval of their difference.

    Args:
        folder: A search run, or a supernet together with ``subnet``.
        subnet: JSON or ``"full"``; None takes the run's best.
        split: ``search`` or ``report``; None takes the one that did not choose the sub-network.
        data: Where the supernet's data lie now, if they were moved.

    Raises:
        LdsearchError: One line for a bad folder, sub-network or split.
    """
    target = Target.resolve(folder, subnet)
    chosen_split = split or target.unbiased_split(read_record(target.supernet).splits)
    bench = Workbench.open(target.supernet, chosen_split, data, target.runs)
    bench.supernet.check(target.subnet)
    # Of a model with one sub-network trained on its own, the full model is nothing to compare with.
    whole = bench
    if target.parent is not None:
        whole = Workbench.open(target.parent, chosen_split, data, target.runs, bench.task)
    own, full = bench.evaluator.statistics(target.subnet), whole.evaluator.statistics(bench.full)
    costs, full_costs = bench.evaluator.costs_of([target.subnet, bench.full])
    return Evaluation(
        subnet=target.subnet,
        metric=bench.task.metric.name,
        score=bench.score(own),
        full_score=bench.score(full),
        difference=bench.difference(own, full),
        costs=costs,
        full_costs=full_costs,
        split=chosen_split,
        chosen_on=target.chosen_on == chosen_split,
    )


def export_model(folder: str | Path, output: str | Path, *, subnet: str | None = None) -> Path:
    """Write a sub-network as a Hugging Face folder with a model card; returns the folder.

    Args:
        folder: A search run, or a supernet together with ``subnet``.
        output: Must not exist or be empty.
        subnet: JSON or ``"full"``; None takes the run's best.

    Raises:
        LdsearchError: One line for a bad folder, sub-network or output.
    """
    from ldsearch.supernet.folder import load_supernet

    target = Target.resolve(folder, subnet)
    supernet, record, tokenizer = load_supernet(target.supernet)
    best = target.best or {}
    searched = f"run {Path(folder).name}, {best.get('selector')}" if best else "named by hand"
    provenance = Provenance(
        supernet=target.supernet.name,
        training=_training_in_words(record),
        data=Path(str(record.source["data"])).name,
        search="recovered on its own" if record.subnet else searched,
        score=_score_in_words(best) if best else _recovered_in_words(record),
        costs={name: (value, best["full_costs"][name]) for name, value in best.get("costs", {}).items()},
        fingerprint=best.get("fingerprint", ""),
        versions=record.versions,
    )
    return export_subnet(supernet, tokenizer, target.subnet, Path(output), provenance)


def _training_in_words(record: SupernetRecord) -> str:
    if record.subnet is not None:
        training = record.training
        source = "the full model's logits" if training["loss"] == "distill" else "the labels"
        return (
            f"{training['arguments'].get('max_steps')} steps on its own, from {source}, starting from the "
            f"weights of {training['model']}, seed {record.seed}"
        )
    return (
        f"strategy {record.strategy}, seed {record.seed}, LengthDrop bound {record.drop_bound}, "
        f"LayerDrop {_layer_drop_in_words(record)}, inputs cut to {record.reference} tokens"
    )


def _layer_drop_in_words(record: SupernetRecord) -> str:
    rates = record.layer_rates or [record.layer_drop]
    words = f"{rates[0]:g}"
    if len(set(rates)) > 1:
        words = f"{' '.join(f'{rate:g}' for rate in rates)} (mean {mean(rates):g})"
    if (groups := record.training.get("drop_groups") or "layer") != "layer":
        words += f" of {groups} groups"
    if least := record.training.get("min_layers"):
        words += f", at least {least} blocks running"
    return words


def _recovered_in_words(record: SupernetRecord) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in record.metrics.items()) or "not measured"


def _score_in_words(best: Mapping[str, Any]) -> str:
    chosen_by = (
        f"{best['metric']} {best['score']:.4f} on {best['examples']} {best['split']} examples, by which it "
        f"was chosen (full model {best['full_score']:.4f})"
    )
    held = best.get("held_out")
    if held is None:
        return f"{chosen_by}: optimistic"
    difference = held["difference"]
    return (
        f"{best['metric']} {held['score']:.4f} on {difference['examples']} {held['split']} examples that "
        f"chose nothing (full model {held['full_score']:.4f}, difference {difference['mean']:+.4f}, "
        f"95% interval {difference['low']:+.4f} to {difference['high']:+.4f}); {chosen_by}"
    )


def info(folder: str | Path) -> dict[str, str]:
    """What a supernet or run folder holds, as label and text.

    Raises:
        RunError: If it is neither.
    """
    folder = Path(folder)
    if (folder / SUPERNET_FILE).is_file():
        return _supernet_info(folder)
    if (folder / RUN_FILE).is_file():
        return _run_info(folder)
    raise RunError(f"{folder} is neither a supernet nor a search run")


def _supernet_info(folder: Path) -> dict[str, str]:
    record = read_record(folder)
    workload = record.lengths_seen
    return {
        "supernet": str(folder),
        "strategy": f"{record.strategy}, seed {record.seed}" + (", parity" if record.parity else ""),
        "model": f"{record.blocks} blocks, {record.training['model'] or 'from scratch'}",
        "trained": _training_in_words(record),
        "data": str(record.source["data"]),
        "task": str(record.source.get("task", "classification")),
        "labels": ", ".join(record.labels) or "none",
        "splits": ", ".join(f"{name} {split['examples']:,}" for name, split in record.splits.items()),
        "overlap": record.overlap or "nothing dropped",
        "lengths": f"mean {workload.mean_length:.1f}, cut to {workload.reference} tokens",
        "LengthDrop bound": str(record.drop_bound),
        "LayerDrop": _layer_drop_in_words(record),
        "metrics": ", ".join(f"{name} {value:.4f}" for name, value in record.metrics.items()),
        "weights": record.weights,
        "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
    }


def _run_info(folder: Path) -> dict[str, str]:
    if (folder / HEALTH_FILE).is_file():
        found = read_json(folder / HEALTH_FILE)
        return {
            "health run": str(folder),
            **{name: str(found.get(name)) for name in ("tau", "examples", "steps")},
        }
    run = read_json(folder / RUN_FILE)
    if "trials" not in run or not (folder / BEST_FILE).is_file():
        return {"run": str(folder), "state": "unfinished: run the same command again to go on"}
    best = read_json(folder / BEST_FILE)
    try:
        return _finished_run_info(folder, run, best)
    except KeyError as error:
        raise RunError(f"{folder} is damaged: {RUN_FILE} or {BEST_FILE} has no {error}") from error


def _finished_run_info(folder: Path, run: dict[str, Any], best: dict[str, Any]) -> dict[str, str]:
    subnet = Subnet.from_json(json.dumps(best["subnet"]))
    share = best["costs"]["macs"] / best["full_costs"]["macs"]
    return {
        "run": str(folder),
        "strategy": f"{run['identity']['strategy']}, stopped: {run['stopped']}",
        "supernet": str(beside(folder, run["supernet"])),
        "trials": f"{run['trials']}, {run['frontier']} on the frontier",
        "asked for": str(run["selector"]),
        "best": f"{_score_in_words(best)}; {share:.3f} of the full model's MACs",
        "measured as": str(run["measured_as"]),
        "sub-network": subnet.describe(),
        "fingerprint": str(best["fingerprint"]),
    }
