"""Memory of a search: the bound holds in a process of its own, and is divided, refused and foretold."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ldsearch.errors import RunError
from ldsearch.evaluation import Evaluator, memory
from ldsearch.evaluation import evaluator as evaluators
from ldsearch.evaluation.memory import GIB, RESERVE, WORK, Memory, peak_memory, resident
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.tasks import Encoded
from tests import fresh
from tests.evaluation.test_evaluator import RATIOS, TASK, TOKENIZER, encoded, evaluator_for
from tests.tiny import tiny_model

__all__ = ["encoded"]


def search() -> None:
    """A search whose states take more than the bound where they may; expected, the peak, and the bound."""
    memory.RESERVE = evaluators.RESERVE = 2**26  # there are no strategies, figures or tables
    ids = np.random.default_rng(0).integers(5, 60, (1200, 64)).tolist()
    encoded = Encoded(tuple({"input_ids": row, "labels": 0} for row in ids), 64)
    evaluator = Evaluator(Supernet(tiny_model("bert", width=64)), TASK, encoded, tokenizer=TOKENIZER)
    bound = evaluator.memory.loaded + memory.RESERVE + 2**25
    for evaluator.bound in (bound, None):
        evaluator.forget()
        evaluator.memory.check()
        for first in (64, 52):
            evaluator([Subnet.of_encoder(range(4), [first - i, 40, 30, 20], 64) for i in (0, 4)])
        print(evaluator.expected_peak(6), peak_memory())
    print(bound)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere what is resident is not known")
def test_a_search_stays_below_its_bound_and_would_not_without() -> None:
    found = fresh.run(search)
    assert found.returncode == 0, found.stderr
    expected, peak, expected_without, peak_without, bound = map(int, found.stdout.split())
    assert peak <= expected <= bound < peak_without <= expected_without


@pytest.mark.skipif(sys.platform == "win32", reason="the system does not say")
def test_the_peak_is_in_bytes(monkeypatch) -> None:
    monkeypatch.setattr("resource.getrusage", lambda who: SimpleNamespace(ru_maxrss=3))
    assert peak_memory() == (3 if sys.platform == "darwin" else 3072)


def test_what_is_left_is_divided_and_nothing_twice() -> None:
    for bound in (1.2, 1.5, 2, 4, 40):
        memory = Memory(int(0.7 * GIB), 2**20, bound * GIB)
        memory.check()
        assert memory.loaded + RESERVE + memory.work + memory.outputs + memory.cache <= bound * GIB
        assert memory.least <= memory.work <= WORK
    assert Memory(2**28, 2**20).left == 3 * GIB - 2**28 - RESERVE
    # A large model by itself is no reason to refuse it, or to keep nothing.
    assert Memory(8 * GIB, 2**20).cache > GIB / 2
    assert Memory(8 * GIB, 2**20, 2 * GIB).cache == 0


def test_too_little_is_refused_with_the_least_that_does() -> None:
    too_little = Memory(GIB, 2**28, 1.2 * GIB)
    with pytest.raises(RunError, match=r"--max-memory 1\.2 is too little") as refused:
        too_little.check()
    least = float(str(refused.value).split("; ")[1].split(" ")[0])
    Memory(GIB, 2**28, least * GIB).check()
    with pytest.raises(RunError):
        Memory(GIB, 2**28, (least - 0.2) * GIB).check()


def test_batches_and_sub_networks_together_follow_the_bound_and_scores_do_not(encoded, monkeypatch) -> None:
    whole, small = evaluator_for(encoded), evaluator_for(encoded)
    small.memory = Memory(0, 1, RESERVE + 2**16)
    runs = []
    together = small._together
    monkeypatch.setattr(small, "_together", lambda *given: runs.append(len(given[1])) or together(*given))
    monkeypatch.setattr(Memory, "outputs", property(lambda memory: 41 * 3 * 4 * 4))
    subnets = [*RATIOS, Subnet.full(4)]
    wanted = {trial.subnet: trial.score.value for trial in whole(subnets)}
    assert {trial.subnet: trial.score.value for trial in small(subnets)} == wanted
    assert runs == [4, 3]
    assert len(small._alike) > len(whole._alike)
    assert sorted(np.concatenate(small._alike).tolist()) == list(range(41))
    small.forget()
    assert small.memory.loaded == pytest.approx(resident(), rel=0.2)


def test_the_peak_is_no_less_than_what_is_there() -> None:
    assert peak_memory() > 0.99 * resident() > 2**26  # the kernel adds pages up in batches
