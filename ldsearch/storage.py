"""The measurement cache: (fingerprint, sub-network) to a trial, on an Optuna storage.

It answers what was measured; it never influences what is asked. One study per fingerprint, one finished
Optuna trial per measurement, so that optuna-dashboard opens it.
"""

import contextlib
import json
import math
import sqlite3
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, OptunaError
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError

from ldsearch.errors import RunError, SubnetError, one_line
from ldsearch.subnet import Subnet
from ldsearch.trial import Score, Trial

# Optuna wraps some of SQLAlchemy's errors and lets others through; of a file that another of its versions
# made it says so by a RuntimeError.
_STORAGE_ERRORS = (SQLAlchemyError, OptunaError, sqlite3.Error, OSError, RuntimeError)
_DAMAGED = "the measurement cache {} is damaged: move it away; measurements will be made again"
_PATIENCE = 5.0  # seconds for another process to finish what it writes


class MeasurementCache:
    """Measurements of one supernet on one split, stored one by one as they are made.

    An existing file is read at once; a file is made by the first measurement.

    Args:
        path: The SQLite file.
        fingerprint: What the measurements belong to.

    Raises:
        RunError: If the file is damaged, locked by another process, or cannot be read.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path = path
        self.fingerprint = fingerprint
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._held_out: set[Subnet] = set()
        self._known = self._read() if path.exists() else {}

    def _read(self) -> dict[Subnet, Trial]:
        known: dict[Subnet, Trial] = {}
        try:
            self._check()
            names = optuna.get_all_study_names(self._url)
            stored = self._study.get_trials(deepcopy=False) if self.fingerprint in names else []
        except _STORAGE_ERRORS as error:
            raise self._refusal(error) from error
        for item in stored:
            # Optuna's add_trial writes a trial and its attributes in one transaction, so a killed process
            # leaves all or nothing; but other programs may add trials of their own to an Optuna storage.
            with contextlib.suppress(KeyError, TypeError, ValueError, SubnetError):
                trial = _from_attributes(item.user_attrs)
                known.setdefault(trial.subnet, trial)
                if item.user_attrs.get("held_out", False):
                    self._held_out.add(trial.subnet)
        return known

    def _check(self) -> None:
        """Let SQLite undo what a killed process left half-written, and look at every page."""
        # Not mode=ro, which cannot undo; not the default, which would make a file that is not there.
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise RunError(_DAMAGED.format(self.path))

    def _refusal(self, error: BaseException) -> RunError:
        while error.__cause__ is not None:
            error = error.__cause__  # Optuna and SQLAlchemy guess at what SQLite says.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest is detail
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return RunError(_DAMAGED.format(self.path))
        if code == sqlite3.SQLITE_BUSY:
            return RunError(
                f"the measurement cache {self.path} is locked by another process: "
                "run the same command again once that has ended"
            )
        return RunError(f"cannot use the measurement cache {self.path}: {one_line(error)}")

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.path}?timeout={_PATIENCE}"

    @cached_property
    def _study(self) -> optuna.Study:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        study = optuna.create_study(
            study_name=self.fingerprint,
            storage=self._url,
            directions=["minimize", "maximize"],
            load_if_exists=True,
        )
        with warnings.catch_warnings():
            # Names for optuna-dashboard; the call is marked experimental since Optuna 3.2.
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names(["macs", "score"])
        return study

    def __len__(self) -> int:
        return len(self._known)

    def get(self, subnet: Subnet) -> Trial | None:
        """The stored measurement; its ``seconds`` are 0, since nothing was spent on it now."""
        found = self._known.get(subnet)
        return None if found is None else replace(found, seconds=0.0)

    def trials(self) -> tuple[Trial, ...]:
        """What was measured to be chosen from, in stored order.

        What was only scored here because other rows had chosen it is left out: a choice among the chosen
        would be one by those rows too.
        """
        return tuple(trial for subnet, trial in self._known.items() if subnet not in self._held_out)

    def put(self, trial: Trial, held_out: bool = False) -> None:
        """Store a measurement at once.

        Args:
            trial: The measurement.
            held_out: Whether it was made to score what other rows had chosen.

        Raises:
            RunError: If the file cannot be written; the measurement is not remembered then.
        """
        value = trial.score.value
        stack = trial.subnet.encoder
        tokens = stack.lengths.tokens if stack and stack.lengths else ()
        reference = stack.lengths.reference if stack and stack.lengths else 1
        measured = not math.isnan(value)
        try:
            self._study.add_trial(
                optuna.trial.create_trial(
                    state=TrialState.COMPLETE if measured else TrialState.FAIL,
                    values=[trial.costs["macs"], value] if measured else None,
                    params={f"length {i}": length for i, length in enumerate(tokens)},
                    distributions={
                        f"length {i}": optuna.distributions.IntDistribution(1, reference)
                        for i in range(len(tokens))
                    },
                    user_attrs={**_to_attributes(trial), "held_out": held_out},
                )
            )
        except _STORAGE_ERRORS as error:
            raise self._refusal(error) from error
        self._known[trial.subnet] = trial
        if held_out:
            self._held_out.add(trial.subnet)


def _to_attributes(trial: Trial) -> dict[str, Any]:
    return {
        "subnet": trial.subnet.to_json(),
        "metric": trial.metric,
        "score": None if math.isnan(trial.score.value) else trial.score.value,
        "higher_is_better": trial.score.higher_is_better,
        "costs": json.dumps(dict(trial.costs)),
        "examples": trial.examples,
        "split": trial.split,
        "seconds": trial.seconds,
        "fingerprint": trial.fingerprint,
        "standard_error": None if math.isnan(trial.standard_error) else trial.standard_error,
    }


def _from_attributes(fields: Mapping[str, Any]) -> Trial:
    value = math.nan if fields["score"] is None else float(fields["score"])
    return Trial(
        subnet=Subnet.from_json(fields["subnet"]),
        metric=fields["metric"],
        score=Score(value, fields["higher_is_better"]),
        costs=json.loads(fields["costs"]),
        examples=fields["examples"],
        split=fields["split"],
        seconds=fields["seconds"],
        fingerprint=fields["fingerprint"],
        standard_error=math.nan if fields["standard_error"] is None else fields["standard_error"],
    )
