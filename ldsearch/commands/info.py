"""Describes what training and search left in their folders."""

import json
from pathlib import Path
from typing import Any

from ldsearch.commands.words import layer_drop_in_words, score_in_words, training_in_words
from ldsearch.errors import RunError
from ldsearch.runs import BEST_FILE, HEALTH_FILE, RUN_FILE, SUPERNET_FILE, beside, read_json
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import read_record


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
        "trained": training_in_words(record),
        "data": str(record.source["data"]),
        "task": str(record.source.get("task", "classification")),
        "labels": ", ".join(record.labels) or "none",
        "splits": ", ".join(f"{name} {split['examples']:,}" for name, split in record.splits.items()),
        "overlap": record.overlap or "nothing dropped",
        "lengths": f"mean {workload.mean_length:.1f}, cut to {workload.reference} tokens",
        "LengthDrop bound": str(record.drop_bound),
        "LayerDrop": layer_drop_in_words(record),
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
        "best": f"{score_in_words(best)}; {share:.3f} of the full model's MACs",
        "measured as": str(run["measured_as"]),
        "sub-network": subnet.describe(),
        "fingerprint": str(best["fingerprint"]),
    }
