"""An export is what it should be, or an error names the check that failed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from ldsearch.errors import ExportError
from ldsearch.export import check
from ldsearch.export.agreement import Agreement, agreement, together
from ldsearch.export.staging import Written
from ldsearch.export.timing import Timed
from ldsearch.files import write_atomic
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference

Batch = Mapping[str, Tensor]
Run = Callable[[Sequence[check.Readers], Sequence[check.Batch], str], Iterator[Any]]

# What an example in doubt may move a score by, in examples: F1 of a rare label hangs on few of them.
SWAY = 10


class Scoring(Protocol):
    """Makes a score of outputs for all of ``Rows``."""

    @property
    def metric(self) -> str:
        """The score's name."""

    @property
    def recorded(self) -> Sequence[float | None]:
        """What was recorded for each export on these rows; None: nothing was."""

    def read(self, batch: int, logits: Tensor) -> Any:
        """What the score needs of a batch's logits, on the CPU."""

    def score(self, reads: Sequence[Any]) -> float:
        """Of what was read of every batch, in order."""


@dataclass(frozen=True)
class Rows:
    """What a check runs.

    Args:
        batches: What the model reads, padded, rows of several lengths together.
        origin: What they are, in words.
        scoring: How they are scored; None: they are not.
    """

    batches: Sequence[Batch]
    origin: str
    scoring: Scoring | None = None


@dataclass(frozen=True)
class Scored:
    """A score of the export's own outputs.

    Args:
        metric: Its name.
        value: The score.
        recorded: That of the run; where it has none, the supernet's on the same rows.
        by_run: Whether it is the run's.
    """

    metric: str
    value: float
    recorded: float
    by_run: bool

    def describe(self) -> str:
        """In words."""
        whose = "the run's" if self.by_run else "the supernet's"
        return f"{self.metric} {self.value:.4f}, {whose} {self.recorded:.4f}"


@dataclass(frozen=True)
class Verified:
    """What the checks of an export found.

    Args:
        where: Where it ran, and who read it, in words.
        origin: What was run, in words.
        tolerance: The share of the largest output, or of 1, that outputs may differ by.
        agreement: With the supernet.
        score: Measured again; None where the rows have none.
        latency: Measured; empty where it was not.
    """

    where: str
    origin: str
    tolerance: float
    agreement: Agreement
    score: Scored | None
    latency: tuple[Timed, ...] = ()

    def describe(self) -> str:
        """All but the latency, in words."""
        found = f"reloaded in {self.where}: {self.agreement.describe(self.origin, self.tolerance)}"
        return found if self.score is None else f"{found}, {self.score.describe()}"

    def to_dict(self) -> dict[str, Any]:
        """For ``index.json`` and ``--json``."""
        return {
            "verified": self.describe(),
            "measured_score": None if self.score is None else asdict(self.score),
            "latency": [{**asdict(timed), "not_faster": timed.not_faster} for timed in self.latency],
        }


def random_rows(supernet: Supernet) -> Rows:
    """One padded batch of mixed lengths, of random tokens."""
    generator = torch.Generator().manual_seed(0)
    longest = min(64, supernet.longest)
    ids = torch.randint(0, supernet.model.config.vocab_size, (4, longest), generator=generator)
    mask = (torch.arange(longest) < torch.tensor([[longest], [longest // 2], [7], [2]])).long()
    batch = {"input_ids": ids * mask, "attention_mask": mask}
    if len(supernet.stacks) > 1:
        batch["decoder_input_ids"] = ids
    return Rows([batch], "rows of random tokens")


def verify(
    supernet: Supernet,
    exports: Sequence[Written],
    rows: Rows,
    run: Run = check.answers,
    where: str = "this process",
    on_batch: Callable[[], None] = lambda: None,
) -> list[Verified]:
    """Compare exports with their supernet and write what was found into their cards.

    Outputs must agree within the export's tolerance, predictions wherever their margin exceeds it. A row
    whose token scores tie may differ, since rounding decides which token stays; never half of the rows. The
    score must be the recorded one, within what the tolerance and the examples whose prediction rounding
    decides can move it.

    Args:
        supernet: Whose sub-networks they are.
        exports: What was written.
        rows: What to run.
        run: ``check.answers``, here or in another process.
        where: That place in words.
        on_batch: Called after each batch of each export.

    Raises:
        ExportError: Naming the check that failed.
    """
    arrays = [{name: tensor.cpu().numpy() for name, tensor in batch.items()} for batch in rows.batches]
    given = run([(each.folder, each.readers) for each in exports], arrays, str(supernet.model.device))
    found = []
    for index, written in enumerate(exports):
        readings = [_Reading(supernet, written, rows, reader, where) for reader in written.readers]
        for reading in readings:
            reading.labels(next(given))
        expected = _Reading(supernet, written, rows, "the supernet", where)
        for at, batch in enumerate(rows.batches):
            want = inference(supernet, batch, written.subnet).cpu()
            expected.read(at, want)
            for reading in readings:
                reading.compare(at, batch, want, torch.from_numpy(next(given)))
            on_batch()
        verified = [reading.finish(index, expected) for reading in readings][-1]
        verified = replace(verified, where=f"{where} by {' and '.join(written.readers)}")
        write_card(written, verified)
        found.append(verified)
    return found


def write_card(written: Written, verified: Verified) -> None:
    """The model card, with what is known by now."""
    write_atomic(written.folder / "README.md", written.card(verified.describe(), verified.latency))


class _Reading:
    """What one reader makes of an export, batch by batch."""

    def __init__(self, supernet: Supernet, written: Written, rows: Rows, reader: str, where: str) -> None:
        self._supernet, self._written, self._rows = supernet, written, rows
        self._reader, self._where = f"{reader} in {where}", where
        self._parts: list[Agreement] = []
        self.reads: list[Any] = []

    def labels(self, names: Sequence[str]) -> None:
        """Outputs that are classes must be called as the supernet's are."""
        own: dict[int, str] = cast(Any, self._supernet.model.config).id2label
        wanted = [own[index] for index in sorted(own)]
        if self._supernet.head.name.endswith("Classification") and list(names) != wanted:
            raise ExportError(
                f"check of the predictions failed: {self._reader} calls the labels {', '.join(names)}, the "
                f"supernet {', '.join(wanted)}; nothing was written"
            )

    def read(self, batch: int, logits: Tensor) -> None:
        """Keep what the score needs."""
        if self._rows.scoring is not None:
            self.reads.append(self._rows.scoring.read(batch, logits))

    def compare(self, at: int, batch: Batch, want: Tensor, got: Tensor) -> None:
        """With the supernet's."""
        self._parts.append(agreement(self._supernet, self._written, batch, want, got))
        self.read(at, got)

    def finish(self, export: int, expected: "_Reading") -> Verified:
        """All checks of what was read."""
        found, scoring = together(self._parts), self._rows.scoring
        found.demand(self._reader, self._rows.origin, self._written)
        score = None
        if scoring is not None:
            recorded = scoring.recorded[export]
            wanted = scoring.score(expected.reads) if recorded is None else recorded
            score = Scored(scoring.metric, scoring.score(self.reads), wanted, recorded is not None)
            self._demand(score, found)
        return Verified(self._where, self._rows.origin, self._written.tolerance, found, score)

    def _demand(self, score: Scored, found: Agreement) -> None:
        # A language model's score is of probabilities: no prediction can tip it over.
        close = 0 if self._supernet.head.name.endswith("LM") else found.close
        share = 2 * found.limit + SWAY * (close + found.ties) / found.rows
        allowed = share * max(1.0, abs(score.recorded))
        if not abs(score.value - score.recorded) <= allowed:
            whose = "the run recorded" if score.by_run else "the supernet has"
            raise ExportError(
                f"check of the score failed: {self._reader} has {score.metric} {score.value:.6f} on "
                f"{found.rows} {self._rows.origin}, {whose} {score.recorded:.6f}, for "
                f"{self._written.subnet.describe()}; nothing was written"
            )
