"""The measurement cache: (fingerprint, sub-network) to a trial, on an Optuna storage.

It answers what was measured and never influences what is proposed. One study per fingerprint, with one
finished Optuna trial per measurement, so that optuna-dashboard opens it; and a second study with the claims
on what is being measured, one finished trial per entry.
"""

import contextlib
import json
import math
import threading
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from ldsearch.disk.records import typed
from ldsearch.errors import SubnetError
from ldsearch.storage.backends import Backend, attributes_since, backend_of
from ldsearch.storage.claims import Claims, Entry, name_of
from ldsearch.subnet import Subnet
from ldsearch.trials.trial import Score, Trial


class MeasurementCache:
    """Measurements of one supernet on one split, stored one by one as they are made.

    An existing storage is read at once; a file is created by the first claim or measurement. If a worker is
    suspended for longer than its lease while storing, a sub-network can be measured twice: the first
    measurement stored counts for every reader.

    Args:
        storage: A SQLite file's path, or what ``backend_of`` reads.
        fingerprint: What the measurements belong to.

    Raises:
        RunError: If the storage is damaged, locked by another process, or cannot be read.
    """

    def __init__(self, storage: Path | str, fingerprint: str) -> None:
        self.backend = backend_of(storage)
        self.fingerprint = fingerprint
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._held_out: set[Subnet] = set()
        self._known: dict[Subnet, Trial] = {}
        self._makers: dict[Subnet, str] = {}
        self._read = 0
        self._study: optuna.Study | None = None
        if self.backend.exists():
            self.refresh()

    @cached_property
    def _storage(self) -> BaseStorage:
        return self.backend.open()

    @cached_property
    def claims(self) -> Claims:
        """The claims on what is being measured.

        Raises:
            RunError: If the storage cannot be written; from its methods too.
        """
        storage = self.backend.guarded(lambda: self._storage)
        return Claims(_ClaimLog(self.backend, storage, self.fingerprint))

    def refresh(self) -> None:
        """Read what other workers have stored meanwhile.

        Raises:
            RunError: If it cannot be read.
        """
        self.backend.guarded(self._read_news)

    def _read_news(self) -> None:
        for fields in attributes_since(self._storage, self.fingerprint, self._read):
            self._read += 1
            # Optuna's add_trial writes a trial and its attributes in one transaction, so a killed process
            # leaves all or nothing; but other programs may add trials of their own to an Optuna storage.
            with contextlib.suppress(KeyError, TypeError, ValueError, SubnetError):
                trial = _from_attributes(fields)
                if trial.subnet not in self._makers:
                    self._known[trial.subnet] = trial
                    self._makers[trial.subnet] = str(fields.get("worker", ""))
                    if fields.get("held_out", False):
                        self._held_out.add(trial.subnet)

    def workers(self, subnets: Iterable[Subnet]) -> int:
        """Number of processes that measured these; a restarted process counts again."""
        return len({self._makers[subnet] for subnet in subnets if subnet in self._makers})

    def __len__(self) -> int:
        return len(self._known)

    def get(self, subnet: Subnet) -> Trial | None:
        """The stored measurement; its ``seconds`` are 0, since looking it up takes no time."""
        trial = self._known.get(subnet)
        return None if trial is None else replace(trial, seconds=0.0)

    def trials(self) -> tuple[Trial, ...]:
        """Trials that a choice may be made among, in stored order.

        Sub-networks that were scored here only because other rows had chosen them are left out: to choose
        among them would be a choice by those rows too.
        """
        return tuple(trial for subnet, trial in self._known.items() if subnet not in self._held_out)

    def put(self, trial: Trial, held_out: bool = False) -> bool:
        """Store a measurement at once, unless another worker has taken over the claim on it.

        Args:
            trial: The measurement.
            held_out: Whether it was made to score what other rows had chosen.

        Returns:
            Whether it was stored; without any claim on it, it is.

        Raises:
            RunError: If the storage cannot be written; the measurement is not remembered then.
        """
        if self.claims.lost(name_of(trial.subnet.to_json())):
            return False
        value = trial.score.value
        lengths = trial.subnet.encoder.lengths if trial.subnet.encoder else None
        params = {f"length {i}": n for i, n in enumerate(lengths.tokens)} if lengths else {}
        measured = not math.isnan(value)
        frozen = optuna.trial.create_trial(
            state=TrialState.COMPLETE if measured else TrialState.FAIL,
            values=[trial.costs["macs"], value] if measured else None,
            params=params,
            distributions={
                name: optuna.distributions.IntDistribution(1, lengths.reference if lengths else 1)
                for name in params
            },
            user_attrs={**_to_attributes(trial), "held_out": held_out, "worker": self.claims.worker},
        )
        self.backend.guarded(lambda: self._add(frozen, trial))
        self._known[trial.subnet] = trial
        if held_out:
            self._held_out.add(trial.subnet)
        return True

    def _add(self, frozen: FrozenTrial, trial: Trial) -> None:
        if self._study is None:
            better = StudyDirection.MAXIMIZE if trial.score.higher_is_better else StudyDirection.MINIMIZE
            objectives = {"macs": StudyDirection.MINIMIZE, trial.metric: better}
            self._study = _create_study(self._storage, self.fingerprint, objectives)
        self._study.add_trial(frozen)


class _ClaimLog:
    """A study of claims: Optuna numbers trials in the order in which they are stored.

    On every storage: it locks the study on a server, SQLite has one writer, and a journal is a list.
    """

    def __init__(self, backend: Backend, storage: BaseStorage, fingerprint: str) -> None:
        self._backend = backend
        self._storage = storage
        self._name = f"{fingerprint} claims"
        self._read = 0
        self._lock = threading.Lock()

    @cached_property
    def _study(self) -> optuna.Study:
        return _create_study(self._storage, self._name, {"sub-networks": StudyDirection.MAXIMIZE})

    def append(self, entry: Entry) -> None:
        frozen = optuna.trial.create_trial(values=[float(len(entry.names))], user_attrs=asdict(entry))
        self._backend.guarded(lambda: self._study.add_trial(frozen))

    def news(self) -> list[Entry]:
        with self._lock:
            fresh = self._backend.guarded(
                lambda: list(attributes_since(self._storage, self._name, self._read))
            )
            self._read += len(fresh)
        entries = []
        for fields in fresh:
            with contextlib.suppress(KeyError, TypeError, ValueError):  # of trials that other programs added
                entries.append(Entry.from_fields(fields))
        return entries

    def close(self) -> None:
        self._storage.remove_session()


def _create_study(storage: BaseStorage, name: str, objectives: Mapping[str, StudyDirection]) -> optuna.Study:
    study = optuna.create_study(
        study_name=name, storage=storage, directions=list(objectives.values()), load_if_exists=True
    )
    if study.metric_names is None:
        with warnings.catch_warnings():
            # Names for optuna-dashboard; the call is marked experimental since Optuna 3.2.
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names(list(objectives))
    return study


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
    costs = typed(json.loads(fields["costs"]), dict[str, float], "costs")
    if not (math.isfinite(costs["macs"]) and costs["macs"] > 0):
        raise ValueError("no measurement has such a cost")
    value, error = (typed(fields[name], float | None, name) for name in ("score", "standard_error"))
    return Trial(
        subnet=Subnet.from_json(fields["subnet"]),
        metric=typed(fields["metric"], str, "metric"),
        score=Score(math.nan if value is None else value, typed(fields["higher_is_better"], bool)),
        costs=costs,
        examples=typed(fields["examples"], int, "examples"),
        split=typed(fields["split"], str, "split"),
        seconds=typed(fields["seconds"], float, "seconds"),
        fingerprint=typed(fields["fingerprint"], str, "fingerprint"),
        standard_error=math.nan if error is None else error,
    )
