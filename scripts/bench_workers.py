"""What a second worker gives: one search by one worker and by two, each with one thread, on one SQLite file.

Takes a trained supernet, measures nothing twice: every search starts from an empty storage in a folder of
its own. The clock runs from the first worker's first line of work to the last one's end; loading the
supernet is not in it, since a search that is worth sharing takes longer. The last line is one JSON object.

    OMP_NUM_THREADS=1 python scripts/bench_workers.py --supernet runs/demo --evaluations 24
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKER = """
import json, sys, time
from pathlib import Path
import torch
from ldsearch import Bench
from ldsearch.commands.evolve import evolve
from ldsearch.options import Evolve
torch.set_num_threads(1)
supernet, runs, evaluations = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
bench = Bench.open(supernet, runs=runs)
bench.held_out
print("ready", flush=True)
if not sys.stdin.readline():
    raise SystemExit("not started")
start = time.time()
outcome = evolve(bench, runs / "run", Evolve(evaluations=evaluations))
front = sorted(trial.subnet.to_json() for trial in outcome.result.frontier)
counts = outcome.counts
print(json.dumps([start, time.time(), counts.measured, counts.seconds, counts.redone, front]))
"""


def searched(supernet: Path, evaluations: int, workers: int) -> dict[str, object]:
    """Wall-clock seconds of one search, and what each worker did for it."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-c", WORKER, str(supernet.resolve()), runs, str(evaluations)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        children = [
            subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(workers)
        ]
        for child in children:
            while child.stdout.readline() != "ready\n":
                if child.poll() is not None:
                    raise SystemExit(child.returncode)
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        told = [json.loads(child.communicate()[0].splitlines()[-1]) for child in children]
    starts, ends, measured, seconds, redone, fronts = zip(*told, strict=True)
    return {
        "workers": workers,
        "seconds": round(max(ends) - min(starts), 2),
        "measured": measured,
        "seconds_of_running": [round(one, 2) for one in seconds],
        "redone": sum(redone),
        "frontiers": len({tuple(front) for front in fronts}),
        "frontier": fronts[0],
    }


def main() -> None:
    """One worker, then two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--supernet", type=Path, required=True)
    parser.add_argument("--evaluations", type=int, default=24)
    options = parser.parse_args()
    rows = []
    for workers in (1, 2):
        rows.append(searched(options.supernet, options.evaluations, workers))
        print({key: value for key, value in rows[-1].items() if key != "frontier"}, flush=True)
    one, two = rows
    answer = {
        "question": "wall-clock of one search (controls and held-out rows included), 1 and 2 workers",
        "evaluations": options.evaluations,
        "same_frontier": one.pop("frontier") == two.pop("frontier") and two["frontiers"] == 1,
        "speedup": round(one["seconds"] / two["seconds"], 3),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "at": time.strftime("%Y-%m-%d"),
        "rows": rows,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
