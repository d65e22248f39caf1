"""tune: what a study leaves, what it is measured by, and the command that trains its best again."""

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import pytest
import torch
from optuna.trial import TrialState

from ldsearch.bench import Workbench
from ldsearch.cli.tune import options_of
from ldsearch.errors import RunError
from ldsearch.evaluation import Evaluator
from ldsearch.intervals import Statistics
from ldsearch.reports.held_out import hold_out
from ldsearch.subnet import Subnet
from ldsearch.training.trainer import SupernetTrainer
from ldsearch.workflows.tuning.variation import varied
from ldsearch.workflows.tuning.yardstick import Yardstick, area_of
from tests.cli.conftest import TRAIN, Ldsearch, read, weights

WORDS = (*TRAIN[1:], "--max_steps", "2")
VARY = ("--vary", "learning_rate=1e-3,1e30", "--vary", "drop_bound=0.3:0.6")


def test_a_study_trains_scores_and_says_how_to_train_its_best_again(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[tuple[str, str]] = []
    statistics = Evaluator.statistics

    def watched(self: Evaluator, subnet: Subnet) -> Statistics:
        scored.append((self.split, self.fingerprint))
        return statistics(self, subnet)

    monkeypatch.setattr(Evaluator, "statistics", watched)
    command = ("tune", *WORDS, *VARY, "--trials", 3, "--evaluations", 4, "--seed", 5, "--keep-all")
    outcome = ldsearch(*command)
    assert outcome.code == 0, outcome.err
    folder = place / "runs/reviews-tune"
    table, best = pd.read_csv(folder / "tune.csv"), read(folder / "tune.json")["best"]
    # What a learning rate of 1e30 leaves is no model.
    diverged = table["learning_rate"] > 1
    assert set(diverged) == {True, False}
    assert (table["area"].isna() == diverged).all()
    assert table["failed"].notna().tolist() == diverged.tolist()
    assert best == table["area"].idxmax()
    assert f"best, trial {best}, on 6 report examples" in outcome.out
    assert "3/3" not in outcome.err
    assert "2/3" in outcome.err
    assert (folder / "tune.png").read_bytes()[:4] == b"\x89PNG"

    with closing(sqlite3.connect(folder / "tune.db")) as file:
        assert file.execute("select study_name from studies").fetchall() == [("tune",)]
    study = optuna.load_study(study_name="tune", storage=f"sqlite:///{folder}/tune.db")
    assert [one.state == TrialState.FAIL for one in study.trials] == diverged.tolist()

    # The report rows are read last, of one supernet alone; the training rows never.
    order = [split for split, _ in scored]
    assert set(order[: order.index("report")]) == {"search"}
    last = order.index("report")
    assert set(order[last:]) == {"report"}
    assert len({fingerprint for _, fingerprint in scored[last:]}) == 1

    line = next(line for line in outcome.out.splitlines() if line.startswith("its training: "))
    words = shlex.split(line.removeprefix("its training: "))
    parameters = study.trials[best].params
    assert words[:2] == ["ldsearch", "train-supernet"]
    own, again = options_of([*WORDS, "--seed", "5"]), options_of(words[2:-2])
    rates = ("--learning_rate", str(parameters["learning_rate"]))
    assert again == varied(own, parameters)
    assert again.trainer == (*own.trainer, *rates)
    assert ldsearch(*words[1:]).code == 0
    first, second = weights(folder / f"trial-{best}"), weights(place / "runs/reviews-tune-best")
    assert all(torch.equal(first[name], second[name]) for name in first)

    monkeypatch.delattr(SupernetTrainer, "training_step")  # the stock Trainer's would fail
    said = [line for line in outcome.out.splitlines() if not line.startswith("{'train_runtime'")]
    assert ldsearch(*command).out.splitlines() == said


def test_the_area_is_that_of_a_held_out_frontier_and_all_supernets_are_asked_for_the_same(
    wild_place: Path,
) -> None:
    bench = Workbench.open("runs/tiny")
    yardstick = Yardstick(6, None, 0.5, False)
    name, trials = yardstick.line(bench)
    assert name == "lengths"
    full = next(one for one in trials if one.subnet == bench.full)
    assert bench.held_out is not None
    of_means = bench.task.metric.of_means
    points = sorted(trials, key=lambda one: one.costs["macs"])
    expected = hold_out(points, full, "report", bench.held_out.statistics, of_means=of_means)
    assert area_of(bench, trials, held_out=True).mean == expected.area

    # By hand: at each of many costs the best search score that is to be had.
    costs = np.array([one.costs["macs"] for one in points])
    scores = np.array([one.score.value for one in points])
    at = np.linspace(costs[0], costs[-1], 200_001)[:-1]
    by_hand = np.maximum.accumulate(scores)[np.searchsorted(costs, at, side="right") - 1].mean()
    assert len(set(scores.tolist())) > 2
    assert area_of(bench, trials).mean == pytest.approx(by_hand, abs=1e-5)

    record = bench.record
    object.__setattr__(record, "drop_bound", "0.2")
    assert [one.subnet for one in yardstick.line(bench)[1]] == [one.subnet for one in trials]
    assert costs[0] < bench.macs([bench.length_space(None, parity=False).smallest()])[0]


def test_depths_are_measured_where_depths_were_trained(ldsearch: Ldsearch, wild_place: Path) -> None:
    trained = ("--strategy", "layerdrop", "--max_steps", "1", "--name", "depths")
    assert ldsearch(*TRAIN, *trained).code == 0
    bench = Workbench.open("runs/depths")
    name, trials = Yardstick(5, None, None, False).line(bench)
    assert name == "depth"
    assert {len(one.subnet.encoder.blocks) for one in trials} == {1, 2, 3}
    with pytest.raises(RunError, match="nothing cheaper"):
        area_of(bench, [one for one in trials if one.subnet == bench.full])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--vary", "learning_rate=1e-3:1e-3"), "error: --vary learning_rate=1e-3:1e-3: a range is low:high"),
        (("--vary", "layer_dorp=0,0.1"), "error: --vary layer_dorp: use one of strategy, drop_bound"),
        (("--vary", "layer_drop=0,0.1", "--learning_rat_e", "1"), "error: neither ldsearch nor the Trainer"),
        (("--vary", "layer_drop=0,0.1", "--batch-share", "x"), "error: --batch-share takes 1, 1/2"),
        (("--vary", "layer_drop=0,0.1", "--genes", "lenghts"), "error: unknown genes 'lenghts'"),
        (("--vary", "layer_drop=0,0.1", "--name", "tiny"), "error: runs/tiny is not empty and holds another"),
    ],
)
def test_bad_words_are_one_line(ldsearch: Ldsearch, place: Path, words: tuple[str, ...], said: str) -> None:
    outcome = ldsearch("tune", *WORDS, *words)
    assert outcome.code == 2
    assert outcome.err.startswith(said)
    assert outcome.err.count("\n") == 1
    assert not (place / "runs/reviews-tune").exists()


def test_nothing_to_vary_and_a_word_for_a_number_are_usage_errors(ldsearch: Ldsearch, place: Path) -> None:
    for words, said in ((WORDS, "--vary"), ((*WORDS, *VARY, "--min-layers", "x"), "--min-layers")):
        outcome = ldsearch("tune", *words)
        assert outcome.code == 2
        assert said in outcome.err
    assert not (place / "runs/reviews-tune").exists()
