"""Trains a supernet, or one sub-network of it on its own, and prints the scores."""

from pathlib import Path
from typing import Any

from ldsearch.commands.console import lines_without_terminal, print_notes, quiet_libraries, resumable
from ldsearch.commands.describe import info
from ldsearch.commands.recover import recover
from ldsearch.options import TrainSupernet
from ldsearch.runs.run import RUN_FILE, run_within
from ldsearch.training.train_supernet import train_supernet

_NEXT = {
    "flexible-depth": "evaluate {folder} --all-depths",
    "lengthdrop": "evolve --supernet {folder} --budget 0.4",
    "layerdrop": "evolve --supernet {folder} --strategy every-other",
}


def main(options: TrainSupernet) -> dict[str, Any]:
    """Train, or recover the sub-network that ``--model`` and ``--subnet`` name, and print the scores."""
    quiet_libraries()
    told = lines_without_terminal()
    with resumable("run the same command again to go on from the last checkpoint"), told as progress:
        searched = options.model is not None and (run_within(Path(options.model)) / RUN_FILE).is_file()
        if options.subnet is not None or searched:
            return recover(options, progress)
        folder = train_supernet(options.folder, options, lambda text: print_notes([text]), progress)
    facts = info(folder)
    print(f"splits: {facts['splits']}; {facts['overlap']}")
    hint = _NEXT.get(options.strategy, "evaluate {folder} --subnet full").format(folder=folder)
    print(f"supernet {folder}: full model {facts['metrics']}; next: ldsearch {hint}")
    return {"supernet": str(folder), "metrics": facts["metrics"], "splits": facts["splits"]}
