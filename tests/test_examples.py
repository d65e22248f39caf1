"""The examples run, at tiny size."""

import json
import os
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tests.cli.conftest import CONFIG, reviews

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_a_study_of_trainings_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text(reviews())
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
    words = [
        "reviews.csv",
        "--model",
        "config.json",
        "--evaluations",
        "5",
        "--low",
        "0.8",
        "--max_steps",
        "2",
    ]

    def tune(trials: int) -> str:
        command = [sys.executable, "-W", "ignore", ROOT / "examples/tune.py", *words, "--trials", str(trials)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    def load() -> optuna.Study:
        return optuna.load_study(study_name="tune", storage=f"sqlite:///{tmp_path}/runs/tune/tune.db")

    tune(1)
    (first,) = load().trials
    interrupted = load().ask(first.distributions)
    last = tune(2).splitlines()[-1]
    study = load()
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2
    assert study.trials[0].value == first.value
    assert study.trials[1].params == interrupted.params
    assert f"trial {study.best_trial.number}," in last
    assert f"{study.best_value:.4f}" in last
