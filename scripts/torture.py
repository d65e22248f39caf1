"""Tries to break ldsearch: kills at random moments, and wrong input drawn by hypothesis.

In turns: one kill (SIGKILL) of a searching worker, a training, an export or a report, after which the same
command must end where an undisturbed one ends; then wrong inputs, each in a fresh copy of a place with
data, a tiny supernet and its search, most in a process forked from this one, which has imported everything,
every tenth through the real program. A refusal must be one line or a usage box and leave nothing. Each
input that fails is printed as JSON, which ``--again`` takes. Searches are killed on a PostgreSQL server of
its own too, where its programs are installed. The last line is one JSON object of counts: but for ``kills``
(in all, and of each kind in ``killed``) and ``inputs`` all should be 0, and the exit status says whether
they are.

    PYTHONPATH=. OMP_NUM_THREADS=1 python scripts/torture.py --minutes 10 --seed 1
"""

import argparse
import contextlib
import hashlib
import importlib
import io
import json
import os
import pkgutil
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from torture_grammar import SECRET, inputs, words
from transformers.utils import logging as transformers_logging

import ldsearch
from ldsearch.cli import main as run_program
from scripts.kill_workers import Scene, killed, same, tables
from tests.cli.conftest import CONFIG, reviews, unsettle
from tests.postgres import database, serving
from tests.search.test_killed import train

ROOT = Path(__file__).parents[1]
HANG = 90  # seconds of its own; the longest command takes a tenth of that
PATIENCE = 6  # times as long on the clock, since other processes may have the machine
MEMORY = 12 * 2**30  # bytes of addresses that a command may have
INPUTS = 25  # after each kill
SEARCH = words("evolve --supernet runs/tiny --evaluations 24 --seed 4 --budget 0.8 --name tiny-evolve")
TRAIN = words(
    "train-supernet --data reviews.csv --model config.json --max-length 16 --max_steps 12 "
    "--save_steps 2 --save_total_limit 2 --name new"
)
WORK = {
    "train": TRAIN,
    "export-hf": ["export", "runs/tiny-evolve", "out"],
    "export-onnx": ["export", "runs/tiny-evolve", "out", "--format", "onnx"],
    "report": ["report", "runs/tiny-evolve"],
}
STORAGES = {
    "sqlite": "sqlite:///{folder}/shared.db",
    "journal": "journal:{folder}/shared.log",
    "postgresql": "",
}
CODES = (0, 1, 2, 130, 143)
COUNTS = words("kills inputs lost doubled tracebacks hangs leftovers wordy leaks")
_MAKES = ("measurements.db", "statistics")  # what a search keeps, whatever becomes of it


def import_everything() -> None:
    """So that a forked process starts at once; nothing has run backwards yet, which forks cannot bear."""
    for module in pkgutil.walk_packages(ldsearch.__path__, "ldsearch."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("onnx", "onnxruntime", "sklearn.gaussian_process", "pymoo.algorithms.moo.nsga2", "psycopg"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def fork(work: Callable[[], object], out: Path) -> int:
    """Run work in a copy of this process, in a process group of its own, with its output in a file."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.stdout = sys.__stdout__ = io.TextIOWrapper(io.FileIO(1, "w"), write_through=True)
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), write_through=True)
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def seconds_of(process: int) -> float:
    """Processor time of a process and of its children that have ended; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def wait(child: int, seconds: float = HANG) -> int | None:
    """Exit code; None where it takes so many seconds, when it and all that it started are killed."""
    end = time.monotonic() + PATIENCE * seconds
    while time.monotonic() < end and seconds_of(child) < seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def command(place: Path, argv: list[str], real: bool = False) -> None:
    """The program in this process; the real one in its stead."""
    os.chdir(place)
    if real:
        os.execv(sys.executable, [sys.executable, "-m", "ldsearch", *argv])
    sys.argv = ["ldsearch", *argv]
    run_program()


def call(place: Path, argv: list[str], real: bool = False) -> tuple[int | None, str]:
    """Exit code (None: it hung) and output of a command, forked or as the real program."""
    out = place.with_suffix(".out")
    code = wait(fork(lambda: command(place, argv, real), out))
    return code, out.read_text(encoding="utf-8", errors="replace")


def files(place: Path) -> dict[str, str]:
    """Digest of every file by its path, and of every folder an empty one."""
    found = sorted(place.rglob("*"))
    read = {str(p.relative_to(place)): hashlib.md5(p.read_bytes()).hexdigest() for p in found if p.is_file()}
    return {**read, **{str(p.relative_to(place)): "" for p in found if p.is_dir()}}


def stages(place: Path) -> list[str]:
    """Hidden files and folders, which nothing that has ended should leave."""
    return [str(path.relative_to(place)) for path in place.rglob(".*")]


def edit(place: Path, change: list[Any]) -> None:
    """Damage a file as an input says; what does not apply is left."""
    kind, path, *how = change[0], place / change[1], *change[2:]
    if not path.exists() and kind != "write":
        return
    data = path.read_bytes() if kind != "write" else b""
    if kind == "write":
        path.write_text(how[0], encoding="utf-8", errors="surrogatepass")
    elif kind == "remove":
        path.unlink()
    elif kind == "cut":
        path.write_bytes(data[: int(len(data) * how[0])])
    elif kind == "flip" and data:
        at = min(int(len(data) * how[0]), len(data) - 1)
        path.write_bytes(data[:at] + bytes([data[at] ^ how[1]]) + data[at + 1 :])
    elif kind == "cell" and data:
        cells = data.decode(errors="replace").split(",")
        cells[how[0] % len(cells)] = how[1]
        path.write_text(",".join(cells), encoding="utf-8")
    elif kind == "sql":
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as database:
            database.execute(how[0])
            database.commit()
    else:
        with contextlib.suppress(ValueError, LookupError, TypeError):
            tree = json.loads(data)
            *steps, last = how[0]
            inner = tree
            for step in steps:
                inner = inner[_member(inner, step)]
            if kind == "drop":
                del inner[_member(inner, last)]
            else:
                inner[_member(inner, last)] = how[1]
            path.write_text(json.dumps(tree))


def _member(inner: Any, step: int | str) -> Any:
    if isinstance(step, str):
        return step
    return list(inner)[step % len(inner)] if isinstance(inner, dict) else step % len(inner)


def faults(
    code: int | None, said: str, new: Iterable[str], place: Path, argv: Sequence[str] = ()
) -> dict[str, str]:
    """What is wrong with an outcome, by its kind; a file that an option but --name names is no leftover."""
    found = {}
    asked = {(place / word).resolve() for last, word in pairwise(["", *argv]) if last != "--name"}
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("note: ")]
    if code is None:
        return {"hangs": f"no end in {HANG} s"}
    if code not in CODES or "Traceback (most recent call last)" in said or (code and not lines):
        last = lines[-1] if lines else "silence"
        found["tracebacks"] = f"exit {code}: {last[:300]}"
    elif code in (1, 2):
        errors = [line for line in lines if line.startswith("error: ")]
        if len(errors) != 1 or lines[-1] != errors[0] or any("Warning" in line for line in lines):
            found["wordy"] = f"exit {code}: {' | '.join(lines)[:400]}"
    new = list(new)
    left = [path for path in new if Path(path).name.startswith(".")]
    if code == 2:
        # A search that has measured goes on, so its folder stays.
        left += [path for path in new if not any(part.startswith(_MAKES) for part in Path(path).parts)]
        left = [] if any(path.endswith((".npy", "trials.csv")) for path in new) else left
    own = {place, place.with_suffix(".out")} | asked
    left += [str(path) for path in place.parent.iterdir() if path not in own]
    if left:
        found["leftovers"] = f"exit {code}: {', '.join(sorted(set(left))[:6])}"
    leaks = [
        path for path in new if (place / path).is_file() and SECRET in (place / path).read_text("latin-1")
    ]
    if leaks or SECRET in said:
        found["leaks"] = ", ".join(leaks) or "on the terminal"
    return found


class Torture:
    """A place to copy, what undisturbed commands make of it, and the counts.

    Args:
        home: An empty folder.
        draw: Moments and victims.
        server: URL of a PostgreSQL server with ``{}`` for the database; or why there is none.
    """

    def __init__(self, home: Path, draw: random.Random, server: str) -> None:
        self.home, self.draw, self.server = home, draw, server
        self.killed: dict[str, int | str] = dict.fromkeys((*WORK, *STORAGES), 0)
        if "{}" not in server:
            self.killed["postgresql"] = f"skipped: {server}"
        self.counts = Counter(dict.fromkeys(COUNTS, 0))
        self.started = 0
        self.truth: dict[str, tuple[dict[str, str], float]] = {}
        self.place = self._made()

    def _made(self) -> Path:
        place = self.home / "made"
        place.mkdir()
        (place / "reviews.csv").write_text(reviews(400))
        (place / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
        (place / "space.yaml").write_text("name: x\nblocks: 3\ndepth: {keep: [1, 2]}\n")

        def trained() -> None:
            train(place)
            (place / "runs").mkdir()
            (place / "net").rename(place / "runs/tiny")
            unsettle(place / "runs/tiny")

        for work in (trained, lambda: command(place, SEARCH)):
            out = self.home / "made.out"
            if wait(fork(work, out), 3 * HANG):
                raise SystemExit(out.read_text())
        return place

    def copy(self) -> Path:
        """A fresh copy, alone in a folder."""
        folder = Path(tempfile.mkdtemp(dir=self.home))
        shutil.copytree(self.place, folder / "place")
        return folder / "place"

    def tell(self, fault: dict[str, str], what: dict[str, Any]) -> None:
        """Count faults and print how to see them again."""
        for kind, text in fault.items():
            self.counts[kind] += 1
            print(f"{kind}: {text}\n    --again {json.dumps(json.dumps(what))}", flush=True)

    def input(self, one: dict[str, Any]) -> None:
        """One wrong input."""
        place = self.copy()
        with contextlib.suppress(OSError):
            for change in one["edits"]:
                edit(place, change)
        before = files(place)
        self.started += 1
        code, said = call(place, one["argv"], one.setdefault("real", self.started % 10 == 0))
        self.counts["inputs"] += 1
        self.tell(faults(code, said, files(place).keys() - before.keys(), place, one["argv"]), one)
        shutil.rmtree(place.parent)

    def inputs(self, count: int, number: int) -> None:
        """Draw inputs, of which some come twice, and try each once."""
        drawn: dict[str, dict[str, Any]] = {}

        @seed(f"{number}")
        @settings(
            max_examples=count,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(inputs())
        def draw(one: dict[str, Any]) -> None:
            drawn[json.dumps(one)] = one

        draw()
        for one in drawn.values():
            self.input(one)

    def kill(self) -> None:
        """One kill of anything."""
        kind = self.draw.choice([kind for kind, count in self.killed.items() if isinstance(count, int)])
        before = self.counts["kills"]
        if kind in WORK:
            self._kill_command(kind)
        else:
            folder = Path(tempfile.mkdtemp(dir=self.home))
            with self._storage(kind, folder) as url:
                self._kill_search(kind, folder, url)
            shutil.rmtree(folder)
        self.killed[kind] = int(self.killed[kind]) + self.counts["kills"] - before

    def _kill_command(self, kind: str) -> None:
        argv = WORK[kind]
        if kind not in self.truth:
            place, start = self.copy(), time.monotonic()
            code, said = call(place, argv)
            if code:
                raise SystemExit(f"{argv}: {said}")
            self.truth[kind] = _made_by(place), time.monotonic() - start
        truth, seconds = self.truth[kind]
        place, moment = self.copy(), self.draw.uniform(0, seconds)
        child = fork(lambda: command(place, argv), place.with_suffix(".out"))
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL:
            self.counts["kills"] += 1
            code, said = call(place, argv)
            fault = faults(code, said, (), place)
            different = sorted(p for p, _ in _made_by(place).items() ^ truth.items() if ".out" not in p)
            if code or different:
                fault["lost"] = f"exit {code}, {said.strip()[-200:]!r}, {', '.join(dict.fromkeys(different))}"
            if left := stages(place):
                fault["leftovers"] = ", ".join(left[:6])
            self.tell(fault, {"kill": kind, "moment": moment})
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it had started
        shutil.rmtree(place.parent)

    def _kill_search(self, kind: str, folder: Path, url: str) -> None:
        """One of some workers that share a storage; a lone one is started again."""
        net = self.place / "runs/tiny"
        if "search" not in self.truth:
            alone = Scene(net, 24, folder / "alone", f"sqlite:///{folder}/alone.db", apart=False)
            scene, start = alone, time.monotonic()
            process = scene.start(0, 0)
            process.join()
            self.alone = tables(scene.runs(0) / "run"), set(scene.stored())
            self.truth["search"] = {}, time.monotonic() - start
        workers, apart = self.draw.choice([1, 2, 3]), self.draw.random() < 0.5
        scene = Scene(net, 24, folder / "scene", url, apart)
        victim, moment = self.draw.randrange(workers), self.draw.uniform(0, self.truth["search"][1])
        died, codes = killed(scene, workers, victim, moment)
        if died:
            self.counts["kills"] += 1
            truth, stored = self.alone
            fault, found = {}, scene.stored()
            alive = [rank for rank in range(workers) if rank != victim or workers == 1]
            ended = codes == [0] * len(codes)
            if not ended or not all(same(tables(scene.runs(rank) / "run"), truth) for rank in alive):
                fault["lost"] = f"exit {codes}, or other tables than those of one alone"
            elif set(found) != stored:
                fault["lost"] = f"{len(stored - set(found))} measurements, {len(set(found) - stored)} foreign"
            if twice := found.total() - len(found):
                fault["doubled"] = f"{twice} measurements"
            for rank in alive:
                if stages(
                    scene.runs(rank)
                ):  # the victim's, in a folder that they share: the next call's work
                    scene.start(rank, rank).join()
            if left := [path for rank in alive for path in stages(scene.runs(rank))]:
                fault["leftovers"] = ", ".join(left[:6])
            what = {"workers": workers, "victim": victim, "moment": moment, "apart": apart}
            self.tell(fault, {"kill": kind, **what})

    def _storage(self, kind: str, folder: Path) -> contextlib.AbstractContextManager[str]:
        """URL of an empty storage of that kind."""
        if kind == "postgresql":
            return database(self.server, f"torture{self.counts['kills']}")
        return contextlib.nullcontext(STORAGES[kind].format(folder=folder))


def _made_by(place: Path) -> dict[str, str]:
    """Files that a command made, but for records of times and paths."""
    unlike = ("README.md", "training.json", "supernet.json", "report.html", "optimizer.pt")
    return {p: d for p, d in files(place).items() if not p.endswith(unlike) and ".svg" not in p}


def again(torture: Torture, one: dict[str, Any]) -> None:
    """Try one input that failed again, and show what it says."""
    place = torture.copy()
    for change in one["edits"]:
        edit(place, change)
    before = files(place)
    code, said = call(place, one["argv"], one.get("real", False))
    print(said, f"exit {code}", sep="\n")
    torture.tell(faults(code, said, files(place).keys() - before.keys(), place, one["argv"]), one)


def main() -> None:
    """Kill and err for some minutes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=INPUTS, help="after each kill")
    parser.add_argument("--again", help="an input as it was printed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    os.environ.update(HF_HUB_OFFLINE="1", HF_TOKEN=SECRET, TOKENIZERS_PARALLELISM="false", COLUMNS="100")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    import_everything()
    with tempfile.TemporaryDirectory() as folder, serving() as server:
        torture = Torture(Path(folder), random.Random(options.seed), server)
        if options.again:
            again(torture, json.loads(options.again))
            return
        end = time.monotonic() + 60 * options.minutes
        for turn in range(10**9):
            torture.kill()
            torture.inputs(options.inputs, 10**6 * options.seed + turn)
            if time.monotonic() >= end:
                break
    print(json.dumps({**torture.counts, "killed": torture.killed, "seed": options.seed}))
    sys.exit(any(torture.counts[kind] for kind in COUNTS[2:]))


if __name__ == "__main__":
    main()
