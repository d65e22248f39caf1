"""Workers that share a storage end at the frontier that one alone, without any storage, ends at."""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import optuna
import pytest

from ldsearch.errors import MachineError, RunError
from ldsearch.evaluation import Evaluator
from ldsearch.search.evolve import Evolve
from ldsearch.search.loop import EvolveSettings, StrategyContext, search
from ldsearch.space import LengthGenes, Space
from ldsearch.storage import MeasurementCache, claims
from ldsearch.storage.backends import backend_of
from ldsearch.tasks import Encoded
from tests import fresh
from tests.evaluation.test_evaluator import evaluator_for
from tests.postgres import serving
from tests.search.test_killed import fork, wait

pytestmark = pytest.mark.slow

EVALUATIONS = 24
LEASE = 2.0  # longer than storing takes on a busy machine
LABELS = [n % 3 for n in range(41)]
# Workers, and what happens to the first of them in the middle of a part that it has claimed.
SCENES = {"two": (2, None), "killed": (3, signal.SIGKILL), "stopped": (2, signal.SIGSTOP)}
PLAYS = [("sqlite", scene) for scene in SCENES] + [("journal", "killed"), ("postgresql", "killed")]


class Planted(Evaluator):
    """Tokens carry less the later they are kept; one example in 41 is lost for each step down."""

    after_each: Callable[[], None]

    def _run(self, subnets):
        for subnet in subnets:
            tokens = np.array(subnet.encoder.lengths.tokens if subnet.encoder.lengths else [24] * 4)
            right = round(41 * float(np.sqrt(tokens / 24) @ [0.4, 0.3, 0.2, 0.1]))
            answers = [(label + (i >= right)) % 3 for i, label in enumerate(LABELS)]
            time.sleep(0.02)
            self.after_each()
            yield subnet, [np.eye(3, dtype=np.float32)[answer] for answer in answers], 0.01


def nothing() -> None:
    """Alone there is nobody to wait for."""


def evolve(
    cache: MeasurementCache | None,
    answer: Path,
    after_each: Callable[[], None] = nothing,
    when_ready: Callable[[], None] = nothing,
) -> None:
    """A search for planted scores; what it found, and what this worker did for it."""
    rows = tuple({"input_ids": [7] * 24, "attention_mask": [1] * 24, "labels": label} for label in LABELS)
    evaluator = evaluator_for(Encoded(rows, 24), cache=cache)
    evaluator.__class__, evaluator.after_each = Planted, after_each
    space = Space.of_lengths(LengthGenes.build(4, 24, 0.3, levels=None))
    settings = EvolveSettings(initial=8, mutants=5, crossovers=5)
    strategy = Evolve(StrategyContext(space, evaluator.costs[0], 1, settings=settings))
    when_ready()
    result = search(strategy, evaluator, evaluator.supernet.full, evaluations=EVALUATIONS, patience=None)
    counts = evaluator.counts
    done = {
        "trials": [[own.subnet.to_json(), own.score.value, own.costs["macs"]] for own in result.trials],
        "frontier": [own.subnet.to_json() for own in result.frontier],
        "measured": counts.measured,
        "cached": counts.cached,
        "redone": counts.redone,
        "workers": cache.workers({trial.subnet for trial in result.trials}) if cache else 0,
    }
    answer.write_text(json.dumps(done))


def skew(seconds: float) -> None:
    """Machines set their clocks by hand, and were switched on at different times."""
    for name in ("time", "monotonic"):
        here = getattr(time, name)
        setattr(time, name, lambda here=here: here() + seconds)


def worker(storage: str, place: Path, rank: int, workers: int, blow: signal.Signals | None) -> None:
    # As on machines of their own, from which one cannot see that a process of another has died.
    claims.machine = lambda: f"machine{rank}"
    claims.LEASE = LEASE
    skew(600.0 * rank)
    seen = 0
    cache = MeasurementCache(storage, "print")

    def after_each() -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            (place / f"begun{rank}").touch()
        if blow is not None and rank == 0 and seen == 3:
            with cache.claims._lock:  # not while its lease is renewed: it would keep the storage locked
                os.kill(os.getpid(), blow)

    def when_ready() -> None:
        (place / f"ready{rank}").touch()
        # All begin together; but the first is to have claimed something when the blow falls.
        awaited = [f"ready{other}" for other in range(workers)]
        awaited += ["begun0"] if blow is not None and rank else []
        while not all((place / name).exists() for name in awaited):
            time.sleep(0.01)

    evolve(cache, place / f"{rank}.json", after_each, when_ready)


def play(storage: str, place: Path, workers: int, blow: signal.Signals | None) -> list[int | None]:
    """Exit codes of the workers; the one that was stopped goes on after its lease and the others."""
    place.mkdir()
    first, *others = (fork(worker, storage, place, rank, workers, blow) for rank in range(workers))
    codes = [wait(other) for other in others]
    if blow == signal.SIGSTOP:
        os.kill(first.pid, signal.SIGCONT)
    return [wait(first), *codes]


def all_plays(place: Path, storages: dict[str, str]) -> None:
    backend_of(place / "warm.db").open()  # children start with every import made
    assert wait(fork(evolve, None, place / "alone.json")) == 0
    for kind, scene in PLAYS:
        if kind in storages:
            own = place / f"{kind}-{scene}"
            codes = play(storages[kind].format(f"{own}.store"), own, *SCENES[scene])
            (own / "codes").write_text(json.dumps(codes))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL with a database; or why there is none."""
    with serving(["shared"]) as url:
        yield url


@pytest.fixture(scope="module")
def storages(server: str) -> dict[str, str]:
    """Of each kind, with a place for the path; the server's database serves one play."""
    own = {"sqlite": "sqlite:///{}", "journal": "journal:{}"}
    return {**own, "postgresql": server.format("shared")} if "{}" in server else own


@pytest.fixture(scope="module")
def place(storages: dict[str, str]) -> Iterator[Path]:
    # In memory where there is some: many searches, every row of which would wait for a disk.
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="shared", dir=memory if os.access(memory, os.W_OK) else None))
    done = fresh.run(all_plays, place, storages)
    assert done.returncode == 0, done.stderr
    (place / "errors.txt").write_text(done.stderr)
    yield place
    shutil.rmtree(place)


def answers(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.mark.parametrize(("kind", "scene"), PLAYS)
def test_every_worker_ends_with_what_one_without_a_storage_ends_with(
    place: Path, storages: dict[str, str], kind: str, scene: str, server: str
) -> None:
    if kind not in storages:
        pytest.skip(server)
    folder = place / f"{kind}-{scene}"
    alone = json.loads((place / "alone.json").read_text())
    assert len(alone["trials"]) == EVALUATIONS
    assert len(alone["frontier"]) >= 3
    workers, blow = SCENES[scene]
    killed = [-signal.SIGKILL] if blow == signal.SIGKILL else []
    codes = json.loads((folder / "codes").read_text())
    assert codes == killed + [0] * (workers - len(killed)), (place / "errors.txt").read_text()
    ended = answers(folder)
    assert len(ended) == workers - len(killed)
    for one in ended:
        assert (one["trials"], one["frontier"]) == (alone["trials"], alone["frontier"])
    # What a killed or a stopped worker had claimed is done again, and counted.
    assert bool(sum(one["redone"] for one in ended)) == (blow is not None)
    # None twice, none lost, as our own reader does not say.
    storage = backend_of(storages[kind].format(f"{folder}.store")).open()
    stored = optuna.load_study(study_name="print", storage=storage).get_trials()
    if kind == "postgresql":
        storage.remove_session()
        storage.engine.dispose()
    told = [trial.user_attrs["subnet"] for trial in stored]
    assert sorted(told) == sorted(subnet for subnet, _, _ in alone["trials"])


@pytest.mark.parametrize("scene", ["two", "stopped"])
def test_two_workers_divide_the_work_and_a_stopped_one_stores_nothing_that_was_taken_over(
    place: Path, scene: str
) -> None:
    first, second = answers(place / f"sqlite-{scene}")
    assert min(first["measured"], second["measured"]) > 0
    assert first["measured"] + second["measured"] == EVALUATIONS + second["redone"]
    assert second["measured"] + second["cached"] == EVALUATIONS
    assert [one["workers"] for one in (first, second)] == [2, 2]
    assert first["redone"] == 0


def refused(storage: str) -> Exception:
    with pytest.raises((RunError, MachineError)) as caught:
        MeasurementCache(storage, "print")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ("mysql+nosuchdriver://me:secret@host/x", "cannot use"),
        ("measurements", "names no storage"),
        ("sqlite://", "names no file"),
    ],
)
def test_what_is_no_storage_is_one_line_without_the_password(storage: str, words: str) -> None:
    assert words in str(refused(storage))


def test_a_server_that_refuses_is_one_line_without_the_password(server: str) -> None:
    if "{}" not in server:
        pytest.skip(server)
    url = server.replace("me@", "me:secret@")
    unknown, silent = refused(url.format("nowhere")), refused(f"{url.format('shared')}&port=1")
    assert isinstance(unknown, RunError)
    assert '"nowhere" does not exist' in str(unknown)
    assert isinstance(silent, MachineError)
    assert "connection" in str(silent)
