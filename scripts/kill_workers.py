"""Kills a worker at random moments: do the others still end where one alone ends?

One search, by 1, 2 and 4 workers, on each kind of storage; each time in folders of its own, on an empty
storage, and one of the workers is killed (SIGKILL) at a moment drawn from the time that one alone takes; a
lone worker is started again. Every second time the workers are as on machines of their own: none sees that
another's process is gone, clocks differ by ten minutes, no folder is shared, and a lease is 5 seconds (a
disk that stalls for longer than that makes a measurement be stored twice, of which the first counts). What is
compared are the three tables that each survivor writes, in every column but the seconds, with those of
the command line in a process of its own; and what the storage holds. What is done is kept in --output, and
is not done again.

    PYTHONPATH=. OMP_NUM_THREADS=1 python scripts/kill_workers.py --kills 10
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import optuna
import pandas as pd
import torch
from transformers.utils import logging as transformers_logging

from ldsearch import Bench
from ldsearch.commands.evolve import evolve
from ldsearch.disk.files import write_json
from ldsearch.options import Evolve
from ldsearch.storage import claims
from ldsearch.storage.backends import backend_of
from tests.cli.conftest import CONFIG, reviews
from tests.postgres import serving
from tests.search.test_killed import TABLES, train

STORAGES, WORKERS = ("sqlite", "journal", "postgresql"), (1, 2, 4)
COMMAND = "import sys; from ldsearch.cli import main; sys.argv[0] = 'ldsearch'; main()"
PATIENCE = 300  # seconds until a worker counts as stuck
TRIES = 2  # for each kill: one may come when its worker has ended


class Scene:
    """One search on one storage by some workers, in a folder of its own."""

    def __init__(self, net: Path, evaluations: int, place: Path, storage: str, apart: bool) -> None:
        self.net, self.evaluations, self.place, self.apart = net, evaluations, place, apart
        self.storage = storage
        place.mkdir()

    def runs(self, rank: int) -> Path:
        """Where a worker writes; its machine's own folder, if it has a machine of its own."""
        return self.place / (f"machine{rank}" if self.apart else "here")

    def start(self, rank: int, machine: int) -> BaseProcess:
        """A worker that searches."""
        process = multiprocessing.get_context("fork").Process(target=self._work, args=(rank, machine))
        process.start()
        return process

    def _work(self, rank: int, machine: int) -> None:
        signal.alarm(PATIENCE)
        if self.apart:
            claims.machine, claims.LEASE, here = lambda: f"machine{machine}", 5.0, time.time
            time.time = lambda: here() + 600 * machine
        runs = self.runs(rank)
        runs.mkdir(exist_ok=True)
        bench = Bench.open(self.net, runs=runs, storage=self.storage)
        evolve(bench, runs / "run", Evolve(evaluations=self.evaluations, seed=1))
        evaluators = [bench.evaluator, bench.held_out]
        redone = sum(evaluator.counts.redone for evaluator in evaluators)
        (self.place / f"redone{rank}").write_text(str(redone))

    def redone(self) -> int:
        """Sub-networks that survivors took over."""
        return sum(int(path.read_text()) for path in self.place.glob("redone*"))

    def stored(self) -> Counter[tuple[str, str]]:
        """(Fingerprint, sub-network) of every stored measurement, read without our own reader."""
        storage = backend_of(self.storage).open()
        names = [name for name in optuna.get_all_study_names(storage) if not name.endswith(" claims")]
        found = {name: optuna.load_study(study_name=name, storage=storage).get_trials() for name in names}
        storage.remove_session()
        return Counter((name, trial.user_attrs["subnet"]) for name in names for trial in found[name])


def tables(run: Path) -> list[pd.DataFrame]:
    """What a run's own files say, but how long it took."""
    read = (pd.read_csv(run / name) for name in TABLES)
    return [table.drop(columns="seconds") for table in read]


def same(first: list[pd.DataFrame], second: list[pd.DataFrame]) -> bool:
    """Whether they are, row for row and bit for bit."""
    return all(one.equals(other) for one, other in zip(first, second, strict=True))


def alone(net: Path, evaluations: int, runs: Path) -> list[pd.DataFrame]:
    """By the command line, in a process of its own."""
    words = ["--quiet", "evolve", "--supernet", net, "--runs", runs, "--name", "run"]
    words += ["--evaluations", evaluations, "--seed", 1]
    subprocess.run([sys.executable, "-c", COMMAND, *map(str, words)], check=True)
    return tables(runs / "run")


def killed(scene: Scene, workers: int, victim: int, moment: float) -> tuple[bool, list[int | None]]:
    """Whether one died of it, and the exit codes of the others."""
    processes = [scene.start(rank, rank) for rank in range(workers)]
    time.sleep(moment)
    processes[victim].kill()
    if workers == 1:
        processes[0].join()
        processes.append(scene.start(0, 1))
    for process in processes:
        process.join()
    died = processes.pop(victim).exitcode == -signal.SIGKILL
    return died, [process.exitcode for process in processes]


def cell(options: argparse.Namespace, place: Path, storage: str, workers: int, truth: dict) -> dict:
    """One row of the answer: one storage, so many workers, kill after kill."""
    draw = random.Random(f"{storage} {workers}")
    row: Counter[str] = Counter()
    moments, start, latest = [], time.perf_counter(), truth["seconds"]
    for kill in range(TRIES * options.kills):
        name = f"{storage}{workers}_{kill}"
        url = options.urls[storage].format(name, place=place)
        scene = Scene(truth["net"], options.evaluations, place / name, url, apart=bool(kill % 2))
        moment, victim = draw.uniform(0, latest), draw.randrange(workers)
        died, codes = killed(scene, workers, victim, moment)
        if not died:
            latest = moment  # it had ended, which is no kill
            continue
        moments.append(round(moment, 2))
        survivors = [rank for rank in range(workers) if rank != victim or workers == 1]
        wrote = {scene.runs(rank) for rank in survivors}
        ended = codes == [0] * len(codes)
        row["all_ended"] += ended
        row["same_tables"] += ended and all(same(tables(runs / "run"), truth["tables"]) for runs in wrote)
        stored = scene.stored()
        row["same_storage"] += set(stored) == set(truth["stored"])
        row["stored_twice"] += stored.total() - len(stored)
        row["redone"] += scene.redone()
        print(storage, workers, f"killed {victim} after {moment:.2f} s: {codes}", dict(row), flush=True)
        if len(moments) == options.kills:
            break
    seconds = round(time.perf_counter() - start)
    head = {"storage": storage, "workers": workers, "kills": len(moments)}
    return {**head, **row, "moments": moments, "seconds": seconds}


def main() -> None:
    """One alone, then cell after cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10, help="in each cell")
    parser.add_argument("--evaluations", type=int, default=24)
    parser.add_argument("--output", type=Path, default=Path("results/search/kills.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    answer = json.loads(options.output.read_text()) if options.output.exists() else {"rows": []}
    rows = [row for row in answer["rows"] if row["kills"] == options.kills]
    cells = [(storage, workers) for storage in STORAGES for workers in WORKERS]
    names = [
        f"{storage}{workers}_{kill}" for storage, workers in cells for kill in range(TRIES * options.kills)
    ]
    databases = ["alone", *(name for name in names if name.startswith("postgresql"))]
    with tempfile.TemporaryDirectory() as folder, serving(databases) as server:
        place = Path(folder)
        (place / "reviews.csv").write_text(reviews(400))
        (place / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
        train(place)
        net = place / "net"
        options.urls = {"sqlite": "sqlite:///{place}/{}.db", "journal": "journal:{place}/{}.log"}
        options.urls |= {"postgresql": server} if "{}" in server else {}
        told = alone(net, options.evaluations, place / "command")
        first = Scene(net, options.evaluations, place / "alone", f"sqlite:///{place}/alone.db", apart=False)
        start = time.perf_counter()
        process = first.start(0, 0)
        process.join()
        seconds = time.perf_counter() - start
        truth = {"net": net, "tables": told, "stored": first.stored(), "seconds": seconds}
        assert same(tables(first.runs(0) / "run"), told)
        for storage, workers in cells:
            if storage not in options.urls:
                print(f"{storage}: {server}")
            elif not any((row["storage"], row["workers"]) == (storage, workers) for row in rows):
                rows.append(cell(options, place, storage, workers, truth))
                write_json(options.output, told_by(rows, options.evaluations, seconds, truth["stored"]))
    sys.exit(any(row["same_tables"] != row["kills"] or row["same_storage"] != row["kills"] for row in rows))


def told_by(rows: list[dict], evaluations: int, seconds: float, stored: Counter) -> dict:
    """What the file says."""
    return {
        "question": "one seed, one frontier, after a worker is killed (SIGKILL) at a random moment?",
        "how": "scripts/kill_workers.py: a 3-block model of 16 hidden units trained for 1 step, 40 rows to "
        "search and 40 to report; every second kill as between machines (lease 5 s, clocks 10 minutes apart, "
        "no common folder); trials.csv, controls.csv and frontier.csv of each survivor against the command "
        "line's, every column but the seconds; the storage against one worker's, none lost; "
        "seconds_alone is of the last sitting",
        "evaluations": evaluations,
        "stored": stored.total(),
        "seconds_alone": round(seconds, 2),
        "kills": sum(row["kills"] for row in rows),
        "same": sum(min(row["same_tables"], row["same_storage"], row["all_ended"]) for row in rows),
        "cores": os.cpu_count(),
        "at": time.strftime("%Y-%m-%d"),
        "rows": rows,
    }


if __name__ == "__main__":
    main()
