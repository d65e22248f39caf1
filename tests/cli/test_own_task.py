"""A kind of task and a search of one's own, from their contracts to finished runs of the command line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from scipy.stats import entropy

from ldsearch.bench import Bench
from ldsearch.search.imitation import imitator
from ldsearch.search.loop import StrategyContext
from ldsearch.search.rules import Listed
from ldsearch.search.spaces import search_space
from ldsearch.search.strategies import SEARCHES, Search
from ldsearch.tasks import TASKS, Encoded, Task
from ldsearch.tasks.base import Rows, features_of
from ldsearch.tasks.labels import class_ids, class_names
from ldsearch.tasks.objectives import Categorical, one_label
from ldsearch.tasks.tables import Columns, refuse_rows
from ldsearch.testing import TaskContract
from ldsearch.testing.tasks import WORDS
from tests.cli.conftest import Ldsearch, read, unsettle


@dataclass(frozen=True)
class Talks(Rows):
    """Turns of each talk, and how it ended."""

    turns: tuple[tuple[str, ...], ...]
    labels: tuple[int, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(turn for own in self.turns for turn in own)

    @property
    def compared(self) -> Sequence[str]:
        return [" ".join(own) for own in self.turns]


class Talk(Task):
    """A class of several texts together: the sum of their logits decides."""

    kind, metrics, head = "talk", "classification", "SequenceClassification"
    objective = Categorical(one_label)
    column_names = {"text": ("turns", "talk"), "label": ("outcome",)}  # noqa: RUF012

    @classmethod
    def label_names(cls, train: pd.DataFrame, columns: Columns, known: Sequence[str] | None) -> Sequence[str]:
        return class_names(train[columns.label], known)

    @classmethod
    def read_rows(cls, table: pd.DataFrame, columns: Columns, names: Sequence[str], role: str) -> Talks:
        refuse_rows((not isinstance(own, list) for own in table[columns.text]), role, "have no turns")
        return Talks(tuple(map(tuple, table[columns.text])), class_ids(table[columns.label], names, role))

    def encode(self, split: str, tokenizer: Any, reference: int) -> Encoded:
        rows: Talks = self.rows(split)
        origins = tuple(place for place, own in enumerate(rows.turns) for _ in own)
        tokens = tokenizer(list(rows.texts), truncation=True, max_length=reference)
        return Encoded(features_of(tokens, [rows.labels[place] for place in origins]), reference, origins)

    def statistics(self, outputs: Sequence[np.ndarray], encoded: Encoded) -> np.ndarray:
        own = pd.DataFrame(np.stack(outputs)).groupby(list(encoded.origins)).sum().to_numpy()
        labels = pd.Series([row["labels"] for row in encoded]).groupby(list(encoded.origins)).first()
        return self.metric.statistics(own.argmax(axis=-1), labels.to_numpy())


def talks(count: int, seed: int) -> list[dict[str, Any]]:
    draw = np.random.default_rng(seed)
    return [
        {
            "turns": [" ".join(draw.choice(WORDS, 5)) for _ in range(draw.integers(1, 4))],
            "outcome": str(draw.choice(["deal", "none"])),
        }
        for _ in range(count)
    ]


class TestTalk(TaskContract):
    def kind(self) -> type[Task]:
        return Talk

    def rows(self, count: int, seed: int) -> list[dict[str, Any]]:
        return talks(count, seed)


@pytest.fixture
def registered() -> Iterator[None]:
    TASKS.register("talk", Talk)
    try:
        yield
    finally:
        TASKS.remove("talk")


@pytest.mark.usefixtures("registered")
def test_rows_of_ones_own_are_searched_by_divergence(ldsearch: Ldsearch, place: Path) -> None:
    """The mean over talks of the mean over their turns, against SciPy's."""
    pd.DataFrame(talks(60, 3)).to_json("talks.jsonl", orient="records", lines=True)
    train = ("train-supernet", "--task", "talk", "--data", "talks.jsonl", "--model", "config.json")
    ldsearch.done(*train, "--name", "talks", "--max-length", 16, "--max_steps", 2)
    unsettle(place / "runs/talks")
    flags = ("--supernet", "runs/talks", "--objective", "kl", "--budget", "0.9", "--evaluations", 6)
    ldsearch.done("evolve", *flags)
    bench = Bench.open("runs/talks")
    best = read(place / "runs/talks-evolve-kl/best.json")
    assert best["metric"] == "accuracy"
    subnet = next(own for own in bench.evaluator.cache.trials() if own.subnet != bench.full).subnet
    full, ours = (softmax(np.stack(bench.evaluator.outputs(own)), -1) for own in (bench.full, subnet))
    turns = pd.Series(entropy(full, ours, axis=-1)).groupby(list(bench.evaluator.encoded.origins)).mean()
    (trial,) = imitator(bench)([subnet])
    assert trial.examples == len(turns) < bench.evaluator.encoded.origins[-1] + 2
    np.testing.assert_allclose(trial.score.value, turns.mean(), rtol=1e-3)


@dataclass(frozen=True)
class FirstOptions:
    """Options of a search of one's own."""

    count: int = 2
    dearest: bool = False


def first(context: StrategyContext) -> Listed:
    """So many sub-networks, from the cheap end or from the dear one."""
    allowed = [subnet for subnet in context.space.enumerate() if context.allowed([subnet])[0]]
    ordered = sorted(allowed, key=lambda subnet: context.cost([subnet])[0], reverse=context.options.dearest)
    return Listed("first", ordered[: context.options.count])


def test_options_of_ones_own_reach_a_finished_run(ldsearch: Ldsearch, place: Path) -> None:
    SEARCHES.register("first", Search(first, options=FirstOptions))
    try:
        asked = ("evolve", "--strategy", "first", "--budget", "1.0")
        ldsearch.done(*asked, "--option", "count=3,dearest=true")
        bench = Bench.open("runs/tiny")
        macs = sorted(bench.macs([*search_space(bench).enumerate()]))
        trials = pd.read_csv("runs/tiny-first/trials.csv")
        assert trials["macs"][1:].tolist() == pytest.approx(macs[:-4:-1])
        run = read(place / "runs/tiny-first/run.json")
        assert run["identity"]["option"] == {"count": 3, "dearest": True}
        assert "differs in option" in ldsearch.refused(*asked, "--option", "count=3")
        said = ldsearch.refused(*asked, "--option", "many=3")
        assert "--option many: this strategy has count, dearest" in said
    finally:
        SEARCHES.remove("first")
