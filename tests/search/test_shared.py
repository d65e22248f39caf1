"""Workers that share a storage end at the frontier that one alone, without any storage, ends at."""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import optuna
import pytest

from ldsearch.errors import MachineError, RunError
from ldsearch.storage import MeasurementCache
from ldsearch.storage.backends import backend_of
from tests import fresh
from tests.postgres import serving
from tests.search.test_killed import fork, wait

pytestmark = pytest.mark.slow

EVALUATIONS = 24
LEASE = 2.0  # longer than storing takes on a busy machine
# Workers, and what happens to the first of them in the middle of a part that it has claimed.
SCENES = {"one": (1, None), "two": (2, None), "killed": (4, signal.SIGKILL), "stopped": (2, signal.SIGSTOP)}
PLAYED = {"sqlite": tuple(SCENES), "journal": ("two", "killed"), "postgresql": ("two", "killed")}
PLAYS = [(kind, scene) for kind, scenes in PLAYED.items() for scene in scenes]


def nothing() -> None:
    """Alone there is nobody to wait for."""


def evolve(
    cache: MeasurementCache | None,
    answer: Path,
    after_each: Callable[[], None] = nothing,
    when_ready: Callable[[], None] = nothing,
) -> None:
    """A search for planted scores; what it found, and what this worker did for it."""
    import numpy as np

    from ldsearch.evaluation import Evaluator
    from ldsearch.search.evolve import Evolve
    from ldsearch.search.loop import EvolveSettings, StrategyContext, search
    from ldsearch.space import LengthGenes, Space
    from ldsearch.tasks import Encoded
    from tests.evaluation.test_evaluator import evaluator_for

    labels = [n % 3 for n in range(41)]

    class Planted(Evaluator):
        """Tokens carry less the later they are kept; one example in 41 is lost for each step down."""

        def _run(self, subnets):
            for subnet in subnets:
                tokens = np.array(subnet.encoder.lengths.tokens if subnet.encoder.lengths else [24] * 4)
                right = round(41 * float(np.sqrt(tokens / 24) @ [0.4, 0.3, 0.2, 0.1]))
                answers = [(label + (i >= right)) % 3 for i, label in enumerate(labels)]
                time.sleep(0.02)
                after_each()
                yield subnet, [np.eye(3, dtype=np.float32)[answer] for answer in answers], 0.01

    rows = tuple({"input_ids": [7] * 24, "attention_mask": [1] * 24, "labels": label} for label in labels)
    evaluator = evaluator_for(Encoded(rows, 24), cache=cache)
    evaluator.__class__ = Planted
    costs = evaluator.costs[0]
    space = Space.of_lengths(LengthGenes.build(4, 24, 0.3, levels=None))
    settings = EvolveSettings(initial=8, mutants=5, crossovers=5)
    strategy = Evolve(StrategyContext(space, costs, 1, settings=settings))
    when_ready()
    result = search(strategy, evaluator, evaluator.supernet.full, evaluations=EVALUATIONS, patience=None)
    told = [[trial.subnet.to_json(), trial.score.value, trial.costs["macs"]] for trial in result.trials]
    front = [trial.subnet.to_json() for trial in result.frontier]
    counts = evaluator.counts
    asked = {trial.subnet for trial in result.trials}
    done = {
        "trials": told,
        "frontier": front,
        "measured": counts.measured,
        "cached": counts.cached,
        "redone": counts.redone,
        "workers": cache.workers(asked) if cache else 0,
    }
    answer.write_text(json.dumps(done))


def skew(seconds: float) -> None:
    """Machines set their clocks by hand, and were switched on at different times."""
    for name in ("time", "monotonic"):
        here = getattr(time, name)
        setattr(time, name, lambda here=here: here() + seconds)


def worker(storage: str, place: Path, rank: int, workers: int, blow: signal.Signals | None) -> None:
    from ldsearch.storage import claims

    # As on machines of their own, from which one cannot see that a process of another has died.
    claims.machine = lambda: f"machine{rank}"
    claims.LEASE = LEASE
    skew(600.0 * rank)
    seen, begun = 0, place / f"begun{rank}"
    cache = MeasurementCache(storage, "print")

    def after_each() -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            begun.touch()
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


def play(storage: str, place: Path, workers: int, blow: signal.Signals | None) -> list[int]:
    """Exit codes of the workers; the one that was stopped goes on after its lease and the others."""
    place.mkdir()
    children = [
        fork(lambda rank=rank: worker(storage, place, rank, workers, blow)) for rank in range(workers)
    ]
    if blow != signal.SIGSTOP:
        return [wait(child) for child in children]
    others = [wait(child) for child in children[1:]]
    os.kill(children[0], signal.SIGCONT)
    return [wait(children[0]), *others]


def all_scenes(place: Path, storages: Sequence[str]) -> None:
    # Children start with every import made.
    import ldsearch.search.evolve  # noqa: F401
    import tests.evaluation.test_evaluator  # noqa: F401

    backend_of(place / "warm.db").open()

    assert wait(fork(lambda: evolve(None, place / "alone.json"))) == 0
    codes: dict[str, dict[str, list[int]]] = {}
    for storage in storages:
        kind = storage.partition(":")[0].partition("+")[0]
        codes[kind] = {}
        for scene in PLAYED[kind]:
            workers, blow = SCENES[scene]
            own = storage.format(scene=scene, place=place)
            codes[kind][scene] = play(own, place / f"{kind}-{scene}", workers, blow)
    (place / "codes.json").write_text(json.dumps(codes))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL with a database per scene; or why there is none."""
    with serving(SCENES) as url:
        yield url


@pytest.fixture(scope="module")
def place(server: str) -> Iterator[Path]:
    # In memory where there is some: many searches, every row of which would wait for a disk.
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="shared", dir=memory if os.access(memory, os.W_OK) else None))
    storages = ["sqlite:///{place}/{scene}.db", "journal:{place}/{scene}.log"]
    if "{}" in server:
        storages.append(server.replace("{}", "{scene}"))
    done = fresh.run(all_scenes, place, storages)
    assert done.returncode == 0, done.stderr
    (place / "errors.txt").write_text(done.stderr)
    yield place
    shutil.rmtree(place)


def skip_without(kind: str, server: str) -> None:
    if kind == "postgresql" and "{}" not in server:
        pytest.skip(server)


def stored(kind: str, scene: str, place: Path, server: str) -> list[str]:
    """The sub-networks of all rows, read without our own reader."""
    url = {
        "sqlite": f"sqlite:///{place}/{scene}.db",
        "journal": f"journal:{place}/{scene}.log",
        "postgresql": server.format(scene),
    }[kind]
    storage = backend_of(url).open()
    study = optuna.load_study(study_name="print", storage=storage)
    found = [trial.user_attrs["subnet"] for trial in study.get_trials()]
    if kind == "postgresql":
        storage.remove_session()
        storage.engine.dispose()
    return found


def answers(place: Path, kind: str, scene: str) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((place / f"{kind}-{scene}").glob("*.json"))]


@pytest.mark.parametrize(("kind", "scene"), PLAYS)
def test_every_worker_ends_with_what_one_without_a_storage_ends_with(
    place: Path, kind: str, scene: str, server: str
) -> None:
    skip_without(kind, server)
    alone = json.loads((place / "alone.json").read_text())
    assert len(alone["trials"]) == EVALUATIONS
    assert len(alone["frontier"]) >= 3
    workers, blow = SCENES[scene]
    killed = [-signal.SIGKILL] if blow == signal.SIGKILL else []
    codes = json.loads((place / "codes.json").read_text())[kind][scene]
    assert codes == killed + [0] * (workers - len(killed)), (place / "errors.txt").read_text()
    ended = answers(place, kind, scene)
    assert len(ended) == workers - len(killed)
    for one in ended:
        assert one["trials"] == alone["trials"]
        assert one["frontier"] == alone["frontier"]
    # None twice, none lost.
    assert sorted(stored(kind, scene, place, server)) == sorted(subnet for subnet, _, _ in alone["trials"])


def test_one_worker_takes_everything(place: Path) -> None:
    (one,) = answers(place, "sqlite", "one")
    assert (one["measured"], one["cached"], one["redone"], one["workers"]) == (EVALUATIONS, 0, 0, 1)


@pytest.mark.parametrize("kind", PLAYED)
def test_two_workers_divide_the_work(place: Path, kind: str, server: str) -> None:
    skip_without(kind, server)
    two = answers(place, kind, "two")
    assert sum(one["measured"] for one in two) == EVALUATIONS
    assert all(one["measured"] for one in two)
    assert all(one["measured"] + one["cached"] == EVALUATIONS for one in two)
    assert [(one["redone"], one["workers"]) for one in two] == [(0, 2)] * 2


@pytest.mark.parametrize("kind", PLAYED)
def test_what_a_killed_worker_had_claimed_is_done_again_and_counted(
    place: Path, kind: str, server: str
) -> None:
    skip_without(kind, server)
    assert sum(one["redone"] for one in answers(place, kind, "killed")) >= 1


def test_a_stopped_worker_stores_nothing_that_was_taken_over(place: Path) -> None:
    stopped, other = answers(place, "sqlite", "stopped")
    assert (stopped["redone"], stopped["workers"]) == (0, 2)
    assert other["redone"] >= 1
    assert other["measured"] + stopped["measured"] == EVALUATIONS + other["redone"]


def test_a_driver_that_is_not_there_and_a_text_that_names_nothing_are_one_line() -> None:
    for storage, words in (
        ("mysql+nosuchdriver://me:secret@host/x", "no driver|names no storage|cannot use"),
        ("measurements", "names no storage"),
        ("sqlite://", "names no file"),
    ):
        with pytest.raises(RunError, match=words) as caught:
            MeasurementCache(storage, "print")
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)


def test_a_server_that_refuses_is_one_line_without_the_password(server: str) -> None:
    skip_without("postgresql", server)
    url = server.replace("me@", "me:secret@")
    for own, kind, words in (
        (url.format("nowhere"), RunError, '"nowhere" does not exist'),
        (f"{url.format('one')}&port=1", MachineError, "connection"),
    ):
        with pytest.raises(kind, match=words) as caught:
            MeasurementCache(own, "print")
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)
