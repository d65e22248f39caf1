"""Descriptions of supernet and run folders: for ``ldsearch info``, reports and model cards."""

from pathlib import Path

from ldsearch.errors import RunError
from ldsearch.export.words import layer_drop_in_words, training_in_words
from ldsearch.runs.run import BEST_FILE, HEALTH_FILE, RUN_FILE, SUPERNET_FILE, Run, read_json, run_within
from ldsearch.supernet.folder import SupernetRecord, read_record


def info(folder: str | Path) -> dict[str, str]:
    """Describe a supernet or run folder, as label and text.

    Raises:
        RunError: If it is neither.
    """
    folder = run_within(Path(folder))
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
        "trained": training_in_words(record),
        "data": str(record.source["data"]),
        "task": str(record.source.get("task", "classification")),
        "labels": ", ".join(record.labels) or "none",
        "splits": ", ".join(f"{name} {split['examples']:,}" for name, split in record.splits.items()),
        "overlap": record.overlap or "nothing dropped",
        "lengths": f"mean {workload.mean_length:.1f}, cut to {workload.reference} tokens",
        "LengthDrop bound": str(record.drop_bound),
        "LayerDrop": layer_drop_in_words(record),
        "metrics": ", ".join(f"{name} {value:.4f}" for name, value in record.metrics.items()) or "none",
        "clipped": _clipped_in_words(record),
        "weights": record.weights,
        "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
    }


def _clipped_in_words(record: SupernetRecord) -> str:
    share = record.training.get("clipped_share")
    return "not recorded" if share is None else f"{share:.0%} of the updates"


def _run_info(folder: Path) -> dict[str, str]:
    if (folder / HEALTH_FILE).is_file():
        health = read_json(folder / HEALTH_FILE)
        return {
            "health run": str(folder),
            **{name: str(health.get(name)) for name in ("tau_within", "tau", "tau_of_cost", "steps")},
        }
    if "trials" not in read_json(folder / RUN_FILE) or not (folder / BEST_FILE).is_file():
        return {"run": str(folder), "state": "unfinished: run the same command again to go on"}
    run = Run.open(folder)
    best, fields = run.best, run.fields
    try:
        share = best.costs["macs"] / best.full_costs["macs"]
        return {
            "run": str(folder),
            "strategy": f"{run.identity['strategy']}, stopped: {fields['stopped']}",
            "supernet": str(run.supernet),
            "trials": f"{fields['trials']}, {fields['frontier']} on the frontier",
            "asked for": run.goal.take.text,
            "best": f"{best.describe()}; {share:.3f} of the full model's MACs",
            "measured as": str(fields["measured_as"]),
            "sub-network": best.subnet.describe(),
            "fingerprint": best.fingerprint,
        }
    except KeyError as error:
        raise RunError(f"{folder} is damaged: {RUN_FILE} or {BEST_FILE} has no {error}") from error
