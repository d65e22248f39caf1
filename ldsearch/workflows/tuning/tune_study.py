"""The study of ``ldsearch tune`` in its SQLite file: what was tried and is being tried, with its result."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from ldsearch.backends import STORAGE_ERRORS, backend_of, refusal
from ldsearch.errors import RunError
from ldsearch.intervals import Interval
from ldsearch.tuning import Value, next_parameters

STUDY_FILE = "tune.db"
_FINISHED = (TrialState.COMPLETE, TrialState.FAIL)


@dataclass(frozen=True)
class Attempt:
    """A training of the study.

    Args:
        number: Counts from 0.
        parameters: What it was trained with.
        area: Mean score over the cost range, with its 95% interval; None where it failed or is under way.
        higher_is_better: Direction of the score.
        seconds: Training and scoring, of the call that finished it.
        reason: Why it failed; empty where it did not.
        rows: Fingerprints of the splits it was trained and scored on, by name.
    """

    number: int
    parameters: Mapping[str, Value]
    area: Interval | None = None
    higher_is_better: bool = True
    seconds: float = 0.0
    reason: str = ""
    rows: Mapping[str, str] = field(default_factory=dict)

    @property
    def value(self) -> float | None:
        """What the study maximises: the area, negated where less is better."""
        if self.area is None:
            return None
        return self.area.mean if self.higher_is_better else -self.area.mean


class Study:
    """Trainings as Optuna trials: optuna-dashboard opens the file.

    Args:
        folder: Where the file lies, or is made.
        distributions: Of the hyperparameters, by name.
        seed: Of what is tried.

    Raises:
        RunError: If the file is damaged or cannot be used; from every method too.
    """

    def __init__(self, folder: Path, distributions: Mapping[str, BaseDistribution], seed: int) -> None:
        self.distributions = dict(distributions)
        self.seed = seed
        self._backend = backend_of(folder / STUDY_FILE)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with self._guarded():
            self._study = optuna.create_study(
                study_name="tune", storage=self._backend.open(), direction="maximize", load_if_exists=True
            )

    def finished(self) -> list[Attempt]:
        """What was tried, in order."""
        return [_attempt(trial) for trial in self._trials() if trial.state in _FINISHED]

    def next(self) -> Attempt:
        """What a killed study was trying, else something new."""
        trials = self._trials()
        left = next((trial for trial in trials if trial.state == TrialState.RUNNING), None)
        if left is not None:
            return _attempt(left)
        parameters = next_parameters(self.distributions, self.seed, trials)
        with self._guarded():
            self._study.add_trial(
                create_trial(
                    state=TrialState.RUNNING, params=dict(parameters), distributions=self.distributions
                )
            )
        return Attempt(len(trials), parameters)

    def finish(self, attempt: Attempt) -> None:
        """Store a result. A kill before the last line leaves the trial under way."""
        fields = asdict(attempt)
        with self._guarded():
            left = self._study.get_trials(deepcopy=False)[attempt.number]
            trial = optuna.Trial(self._study, left._trial_id)
            for name in ("area", "higher_is_better", "seconds", "reason", "rows"):
                trial.set_user_attr(name, fields[name])
            if attempt.value is None:
                self._study.tell(attempt.number, state=TrialState.FAIL)
            else:
                self._study.tell(attempt.number, attempt.value)

    def _trials(self) -> list[FrozenTrial]:
        with self._guarded():
            return self._study.get_trials(deepcopy=False)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except STORAGE_ERRORS as error:
            raise refusal(self._backend, error) from error


def _attempt(trial: FrozenTrial) -> Attempt:
    stored: dict[str, Any] = trial.user_attrs
    area = stored.get("area")
    return Attempt(
        trial.number,
        trial.params,
        None if area is None else Interval(**area),
        stored.get("higher_is_better", True),
        stored.get("seconds", 0.0),
        stored.get("reason", ""),
        stored.get("rows", {}),
    )


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time: two would write one training. The kernel's lock ends with the process.

    Raises:
        RunError: If another one is at work.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with (folder / ".lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"another process tunes in {folder}: wait until it has ended") from None
        yield
