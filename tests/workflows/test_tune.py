"""Tuning: a study with planted areas is chosen from, swept, interrupted and taken up again."""

import fcntl
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import torch

from ldsearch.commands.train_options import TrainOptions
from ldsearch.errors import RunError, TrainingError
from ldsearch.intervals import Interval
from ldsearch.reports.tune import draw_tuning, tuning_table
from ldsearch.subnet import Stack, Subnet
from ldsearch.trial import Score, Trial
from ldsearch.workflows.tuning import tune as module
from ldsearch.workflows.tuning.tune import tune
from ldsearch.workflows.tuning.tune_study import Attempt, Study
from ldsearch.workflows.tuning.variation import kind_of, parse_variations, varied
from ldsearch.workflows.tuning.yardstick import Yardstick

VARY = ("learning_rate=1e-5:1e-1:log", "layer_drop=0,0.1,0.2")


class Planted:
    """Trainings that only write a folder; their area is nearest to 1 where the learning rate is 1e-3."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trained: list[TrainOptions] = []
        self.on_disk: list[set[str]] = []
        self.higher_is_better = True
        self.rows = "rows"
        self.model = torch.nn.Linear(1, 1)
        self.logits = np.zeros(2)
        monkeypatch.setattr(module, "train_supernet", self.train)
        monkeypatch.setattr(module, "Workbench", SimpleNamespace(open=self.open))
        monkeypatch.setattr(module, "save_figure", lambda figure, path: None)
        monkeypatch.setattr(Yardstick, "line", lambda yardstick, bench: ("planted", bench.trials))
        monkeypatch.setattr(module, "area_of", lambda bench, trials, held_out=False: bench.area)

    def train(self, folder: Path, options: TrainOptions) -> Path:
        self.trained.append(options)
        self.on_disk.append({path.name for path in folder.parent.glob("trial-*")})
        folder.mkdir(exist_ok=True)
        (folder / "supernet.json").write_text(options.trainer[-1])
        return folder

    def open(self, folder: Path) -> Any:
        rate = float((folder / "supernet.json").read_text())
        area = 1 - abs(math.log10(rate) + 3) / 10
        trials = [trial((0,), 1.0), trial((0, 1), 2.0)]
        return SimpleNamespace(
            area=Interval(area, area - 0.1, area + 0.1, 50),
            trials=trials,
            full=trials[-1].subnet,
            supernet=SimpleNamespace(model=self.model),
            record=SimpleNamespace(splits={"train": {"fingerprint": self.rows}}),
            task=SimpleNamespace(
                metric=SimpleNamespace(name="accuracy", higher_is_better=self.higher_is_better)
            ),
            evaluator=SimpleNamespace(examples=50, outputs=lambda subnet: [self.logits]),
            held_out=None,
            untrained=lambda subnet: [],
        )

    def rates(self) -> list[float]:
        return [float(options.trainer[-1]) for options in self.trained]


def trial(blocks: tuple[int, ...], macs: float) -> Trial:
    return Trial(Subnet(Stack(blocks)), "accuracy", Score(0.5), {"macs": macs}, 50, "search", 0.0, "f")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Planted:
    return Planted(monkeypatch)


def run(folder: Path, trials: int = 6, **named: Any) -> Any:
    return tune(folder, TrainOptions(seed=3), VARY, trials=trials, **named)


def test_the_best_is_kept_and_the_beaten_go_at_once(planted: Planted, tmp_path: Path) -> None:
    found = run(tmp_path / "a")
    miss = np.abs(np.log10(planted.rates()) + 3)
    assert found.best.number == miss.argmin() > 0
    assert {path.name for path in (tmp_path / "a").glob("trial-*")} == {f"trial-{miss.argmin()}"}
    # While one trains, the best of those before it is all that lies beside it.
    expected = [set() if n == 0 else {f"trial-{miss[:n].argmin()}"} for n in range(6)]
    assert planted.on_disk == expected
    table = pd.read_csv(tmp_path / "a/tune.csv")
    np.testing.assert_allclose(table["area"], 1 - miss / 10)
    assert set(table["layer_drop"]) <= {0.0, 0.1, 0.2}
    assert [options.layer_drop for options in planted.trained] == [(rate,) for rate in table["layer_drop"]]
    assert json.loads((tmp_path / "a/tune.json").read_text())["best"] == miss.argmin()


def test_where_less_is_better_the_least_area_wins_and_all_are_kept_where_that_is_asked(
    planted: Planted, tmp_path: Path
) -> None:
    planted.higher_is_better = False
    found = run(tmp_path / "a", 4, keep_all=True)
    assert found.best.number == np.abs(np.log10(planted.rates()) + 3).argmax()
    assert len(list((tmp_path / "a").glob("trial-*"))) == 4


def test_a_study_that_was_cut_off_goes_on_as_if_it_had_not_been(
    planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "straight", 12)
    straight, planted.trained = planted.rates(), []

    def cut(work: Any, name: str) -> Any:
        def until(folder: Path, *rest: Any) -> Any:
            if folder.name == name:
                raise KeyboardInterrupt
            return work(folder, *rest)

        return until

    # Ten at random come first; the eleventh is from what was learned.
    for number, train, load in (
        (2, cut(planted.train, "trial-2"), planted.open),
        (10, planted.train, cut(planted.open, "trial-10")),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, "train_supernet", train)
            patch.setattr(module, "Workbench", SimpleNamespace(open=load))
            with pytest.raises(KeyboardInterrupt):
                run(tmp_path / "a", 12)
        study = optuna.load_study(study_name="tune", storage=f"sqlite:///{tmp_path}/a/tune.db")
        assert [one.state.name for one in study.trials] == ["COMPLETE"] * number + ["RUNNING"]
    run(tmp_path / "a", 12)
    # Nothing is trained twice: where the scoring was cut off, the supernet was there.
    assert planted.rates() == straight
    tables = [pd.read_csv(tmp_path / name / "tune.csv").drop(columns="seconds") for name in ("a", "straight")]
    pd.testing.assert_frame_equal(*tables)


def test_more_trials_extend_a_study_and_the_same_ones_train_nothing(planted: Planted, tmp_path: Path) -> None:
    assert run(tmp_path / "a", 2).best == run(tmp_path / "a", 2).best
    assert len(planted.trained) == 2
    assert len(run(tmp_path / "a", 4).attempts) == 4
    assert len(planted.trained) == 4


def test_a_training_that_fails_is_recorded_and_the_study_goes_on(
    planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(folder: Path, options: TrainOptions) -> Path:
        planted.model.weight.data.fill_(math.nan if len(planted.trained) == 0 else 1.0)
        planted.train(folder, options)
        planted.logits = np.full(2, math.nan if len(planted.trained) == 4 else 0.0)
        if len(planted.trained) == 2:
            raise torch.OutOfMemoryError("out of memory")
        if len(planted.trained) == 3:
            raise TrainingError("no such depth")
        return folder

    monkeypatch.setattr(module, "train_supernet", train)
    found = run(tmp_path / "a", 5)
    assert [attempt.reason for attempt in found.attempts] == [
        "training diverged: weights or outputs are not finite",
        "out of memory",
        "no such depth",
        "training diverged: weights or outputs are not finite",
        "",
    ]
    assert found.best.number == 4
    study = optuna.load_study(study_name="tune", storage=f"sqlite:///{tmp_path}/a/tune.db")
    assert [one.state.name for one in study.trials] == ["FAIL"] * 4 + ["COMPLETE"]
    assert pd.read_csv(tmp_path / "a/tune.csv")["area"].isna().tolist() == [True] * 4 + [False]


def test_where_every_training_fails_the_last_reason_is_said(planted: Planted, tmp_path: Path) -> None:
    planted.model.weight.data.fill_(math.inf)
    with pytest.raises(RunError, match="every training failed, the last one so: training diverged"):
        run(tmp_path / "a", 2)


def test_other_rows_another_study_and_another_process_are_refused(planted: Planted, tmp_path: Path) -> None:
    run(tmp_path / "a", 1)
    with pytest.raises(RunError, match="measured_by differ"):
        run(tmp_path / "a", 1, evaluations=5)
    with (tmp_path / "a/.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="another process tunes in"):
            run(tmp_path / "a", 2)
    planted.rows = "other rows"
    with pytest.raises(RunError, match="the data are not those"):
        run(tmp_path / "a", 2)


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ((), "nothing to vary"),
        (("data=a,b",), "use one of strategy, drop_bound"),
        (("learning_rat=1:2",), "or an argument of the Trainer"),
        (("seed=0:9",), "would be luck"),
        (("layer-drop=0,0.1", "layer_drop=0.2,0.3"), "given twice"),
        (("drop_bound=0.2:1.5",), "must lie in"),
        (("learning_rate=-1:1",), "must not be negative"),
        (("optim=adamw_torch,adamw_torsh",), "adamw_torsh"),
        (("strategy=plain,layerdrop",), "--genes"),
    ],
)
def test_what_cannot_be_varied_is_refused_before_anything_runs(
    tmp_path: Path, vary: tuple[str, ...], words: str
) -> None:
    with pytest.raises(Exception, match=words) as caught:
        tune(tmp_path / "a", TrainOptions(), vary)
    assert type(caught.value).__module__ == "ldsearch.errors"
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a").exists()


def test_values_reach_the_options_and_the_trainer() -> None:
    assert [kind_of(name) for name in ("learning_rate", "max_steps", "optim", "drop_groups")] == [
        *(float, int, str, str)
    ]
    options = varied(TrainOptions(), {"drop_bound": 0.25, "layer_drop": 0.1, "max_steps": 7})
    assert options == TrainOptions(drop_bound=0.25, layer_drop=(0.1,), trainer=("--max_steps", "7"))


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tune.db").write_text("no database, but long enough to be one " * 9)
    with pytest.raises(RunError, match="is damaged"):
        Study(tmp_path, parse_variations(VARY), 0)


def test_the_figure_shows_every_training_and_the_best_so_far() -> None:
    areas = [0.5, None, 0.7, 0.6]
    attempts = [
        Attempt(n, {"optim": "ab"[n % 2], "x": 10.0**-n}, a and Interval(a, a - 0.1, a + 0.2, 9))
        for n, a in enumerate(areas)
    ]
    table = tuning_table([vars(one) | {"area": one.area and vars(one.area)} for one in attempts])
    figure = draw_tuning(table, ["optim", "x"], ["x"], "t", "accuracy", higher_is_better=True)
    history, optim, x = figure.axes
    so_far = next(line for line in history.lines if line.get_label() == "best so far")
    assert so_far.get_ydata().tolist() == [0.5, 0.7, 0.7]
    assert next(line for line in history.lines if line.get_label() == "failed").get_xdata().tolist() == [1]
    assert (optim.get_xscale(), x.get_xscale()) == ("linear", "log")
    assert x.collections[1].get_offsets().tolist() == [[0.01, 0.7]]
