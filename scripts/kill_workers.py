"""Kills a worker at random moments: do the others still end where one alone ends?

Each time, some workers start the same search on one empty storage in a folder of their own, and one of them
is killed (SIGKILL) at a moment drawn from the time that one alone takes. The last line is one JSON object.

    OMP_NUM_THREADS=1 python scripts/kill_workers.py --supernet runs/demo --workers 2 --kills 10
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

SAME = ["subnet", "score", "macs", "on_frontier"]
COMMAND = "import sys; from ldsearch.cli import main; sys.argv[0] = 'ldsearch'; main()"


def workers(options: argparse.Namespace, runs: Path, count: int) -> list[subprocess.Popen[str]]:
    """So many processes of the same search."""
    words = ["--quiet", "evolve", "--supernet", str(options.supernet), "--runs", str(runs), "--name", "run"]
    words += ["--evaluations", str(options.evaluations), "--seed", "1"]
    if options.storage == "journal":
        words += ["--storage", f"journal:{runs / 'measurements.log'}"]
    command = [sys.executable, "-c", COMMAND, *words]
    return [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(count)
    ]


def found(runs: Path) -> pd.DataFrame:
    """What the run's own files say."""
    return pd.read_csv(runs / "run/trials.csv")[SAME]


def ended(processes: Sequence[subprocess.Popen[str]]) -> list[int]:
    """Exit codes; what went wrong is said."""
    for process in processes:
        _, said = process.communicate()
        if process.returncode not in (0, -signal.SIGKILL):
            print(said, file=sys.stderr)
    return [process.returncode for process in processes]


def main() -> None:
    """One alone, then kill after kill."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--supernet", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=24)
    parser.add_argument("--storage", choices=("sqlite", "journal"), default="sqlite")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as place:
        alone = Path(place) / "alone"
        alone.mkdir()
        start = time.perf_counter()
        assert ended(workers(options, alone, 1)) == [0]
        seconds, truth = time.perf_counter() - start, found(alone)
        moments, same, codes = [], 0, []
        for kill in range(options.kills):
            runs = Path(place) / f"kill{kill}"
            runs.mkdir()
            processes = workers(options, runs, options.workers)
            moments.append(round(draw.uniform(0, seconds), 2))
            time.sleep(moments[-1])
            processes[0].kill()
            codes.append(ended(processes))
            same += found(runs).equals(truth)
            print(f"killed after {moments[-1]} s of {seconds:.0f}: {codes[-1]}, same {same}", flush=True)
    survivors = sum(code == 0 for own in codes for code in own[1:])
    told = {"storage": options.storage, "workers": options.workers, "kills": options.kills, "same": same}
    print(
        json.dumps({**told, "survivors_that_ended": survivors, "seconds_alone": seconds, "moments": moments})
    )


if __name__ == "__main__":
    main()
