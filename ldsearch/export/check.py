"""An export is what it should be, or an error names the check that failed."""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import ExportError
from ldsearch.export import reader
from ldsearch.export.card import Provenance, Timed, Written
from ldsearch.export.folder import staged, write_huggingface
from ldsearch.export.timing import Timing
from ldsearch.files import write_atomic, write_json
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.stages import Pipeline, State
from ldsearch.supernet.supernet import evaluating, inference
from ldsearch.supernet.tokens import TOKEN_SCORES, Attention

Batch = Mapping[str, Tensor]
Run = Callable[[Sequence[reader.Readers], Sequence[reader.Batch], str], Iterator[Any]]


@dataclass(frozen=True)
class Agreement:
    """How well outputs agree with the supernet's.

    Args:
        rows: Rows compared.
        apart: Rows whose outputs differ by more than the tolerance, ties left out.
        ties: Rows that differ so and whose token scores tie.
        difference: The largest difference of outputs, ties left out.
        limit: The largest difference that was allowed.
        predictions: Predictions compared; a regression makes none.
        other: Predictions that differ.
        clear: Those of them whose margin exceeds the tolerance.
        close: Rows with a prediction whose margin does not.
    """

    rows: int
    apart: int
    ties: int
    difference: float
    limit: float
    predictions: int
    other: int
    clear: int
    close: int

    def demand(self, reader: str, origin: str, written: Written) -> None:
        """Raise the error of the first check that fails.

        Raises:
            ExportError: If one does.
        """
        where = f"of {self.rows} {origin}, for {written.subnet.describe()}; nothing was written"
        if self.apart:
            raise ExportError(
                f"check of the outputs failed: {reader} differs from the supernet by {self.difference:.2g} "
                f"({written.tolerance:g} is allowed) on {self.apart} {where}"
            )
        if self.clear:
            raise ExportError(
                f"check of the predictions failed: {reader} gives {self.clear} other ones than the supernet "
                f"{where}"
            )
        if 2 * self.ties >= self.rows:
            raise ExportError(
                f"check of the outputs failed: {reader} differs from the supernet wherever token scores tie, "
                f"on {self.ties} {where}"
            )

    def describe(self, origin: str, tolerance: float) -> str:
        """What was found, in words."""
        text = (
            f"{self.rows} {origin}, outputs within {self.difference:.1e} of the supernet's "
            f"({tolerance:g} is allowed)"
        )
        if self.predictions:
            text += f", {self.predictions - self.other} of {self.predictions} predictions the same"
        if self.ties:
            text += f", {self.ties} rows left out whose token scores tie"
        return text


def agreement(supernet: Supernet, written: Written, batch: Batch, want: Tensor, got: Tensor) -> Agreement:
    """Compare one batch.

    Args:
        supernet: Whose sub-network was exported.
        written: The export.
        batch: What both read.
        want: The supernet's logits.
        got: The export's.

    Raises:
        ExportError: If they differ in shape.
    """
    if got.shape != want.shape:
        raise ExportError(
            f"check of the outputs failed: logits are {tuple(got.shape)}, the supernet's "
            f"{tuple(want.shape)}; nothing was written"
        )
    mask = _real(supernet, batch, want)
    # Of the logits' own size: a language model's are large.
    limit = written.tolerance * max(1.0, float(want[mask].abs().max()))
    differences = (want - got).abs().masked_fill(~mask, 0.0).flatten(1).amax(dim=1)
    apart = ~(differences <= limit)
    tied = apart & differences.isfinite()
    if tied.any():
        tied &= ties(supernet, batch, written.subnet)
    other, margin = _predictions(supernet, want, got, mask)
    other &= ~tied.reshape(-1, *[1] * (other.ndim - 1))
    return Agreement(
        rows=len(want),
        apart=int((apart & ~tied).sum()),
        ties=int(tied.sum()),
        difference=float(differences[~tied].max()) if not tied.all() else 0.0,
        limit=limit,
        predictions=int(margin.isfinite().sum()),
        other=int(other.sum()),
        clear=int((other & (margin > limit)).sum()),
        close=int((margin <= limit).flatten(1).any(dim=1).sum()),
    )


def together(parts: Sequence[Agreement]) -> Agreement:
    """Of several batches."""
    counts = {
        name: sum(getattr(part, name) for part in parts)
        for name in ("rows", "apart", "ties", "predictions", "other", "clear", "close")
    }
    # A difference that is no number is the largest.
    largest = {
        name: float(np.max([getattr(part, name) for part in parts])) for name in ("difference", "limit")
    }
    return Agreement(**largest, **counts)  # type: ignore[arg-type]  # whole numbers, and not


def _real(supernet: Supernet, batch: Batch, logits: Tensor) -> Tensor:
    """Where logits mean something: not at pads, where there is one row per token. The logits' shape."""
    mask = batch.get("attention_mask")
    # What a decoder makes of pads at an encoder's end counts like everything else.
    if logits.ndim < 3 or mask is None or len(supernet.stacks) > 1:
        return torch.ones_like(logits, dtype=torch.bool)
    return mask.cpu().bool()[..., None].expand_as(logits)


def _predictions(supernet: Supernet, want: Tensor, got: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Which predictions differ, and by how much the supernet's lead, of shape (B, …) both.

    A class, of each token where there are several; the ends of a span; each yes or no. A margin of infinity:
    none is made.
    """
    kind = supernet.model.config.problem_type if supernet.head.pools else None
    if kind == "multi_label_classification":
        return (want > 0) != (got > 0), want.abs()
    want, got = (logits.masked_fill(~mask, -torch.inf) for logits in (want, got))
    if supernet.head.name == "QuestionAnswering":
        want, got = want.transpose(1, 2), got.transpose(1, 2)  # among positions
    if want.shape[-1] == 1 or kind == "regression":
        return torch.zeros(len(want), 1, dtype=torch.bool), torch.full((len(want), 1), torch.inf)
    best = want.topk(2, dim=-1).values
    margin = best[..., 0] - best[..., 1]
    margin = margin.masked_fill(~best[..., 1].isfinite(), torch.inf)
    other = (want.argmax(dim=-1) != got.argmax(dim=-1)) & margin.isfinite()
    return other.reshape(len(want), -1), margin.reshape(len(want), -1)


# Of one and a score: sums in another order differ by less than this, rarely by a tenth of it.
CLOSE = 1e-5


def ties(supernet: Supernet, batch: Mapping[str, Tensor], subnet: Subnet) -> Tensor:
    """Whether some block of the sub-network kept one token rather than another for almost nothing.

    Returns:
        Shape (B,), on the CPU.
    """
    watch = _Watch(supernet)
    encoder = subnet.encoder
    if supernet.family is None or encoder is None or encoder.lengths is None:
        return torch.zeros(len(batch["input_ids"]), dtype=torch.bool)
    pipeline = Pipeline(supernet.model, supernet.family, watch.score, supernet.reads_first, restores=False)
    with evaluating(supernet, batch) as moved:
        pipeline(moved, encoder, False, watch.between)
    return torch.stack([torch.zeros_like(moved["input_ids"][:, 0]).bool(), *watch.found]).any(dim=0).cpu()


class _Watch:
    """Sees the scores of each block, and how many tokens were kept by them."""

    def __init__(self, supernet: Supernet) -> None:
        self._score = TOKEN_SCORES[supernet.score]
        self._keep_first = supernet.reads_first
        self._scores = torch.empty(0)
        self.found: list[Tensor] = []

    def score(self, attention: Attention) -> Tensor:
        """What the supernet scores by."""
        self._scores = self._score(attention)
        return self._scores

    def between(self, block: int, before: State, after: State) -> Tensor:
        """Compare the scores on both sides of where a block cut."""
        if after.positions is not before.positions:
            ranked = self._scores.float().masked_fill(~before.real, -torch.inf)
            if self._keep_first:
                ranked[:, 0] = torch.inf
            ranked = ranked.sort(dim=1, descending=True).values
            kept = after.real.sum(dim=1, keepdim=True)
            last = ranked.gather(1, kept - 1)
            # Infinite where every token was kept, or [CLS] alone.
            gap = last - ranked.gather(1, kept.clamp(max=ranked.shape[1] - 1))
            some = kept < before.real.sum(dim=1, keepdim=True)
            self.found.append((some & (gap <= CLOSE * (1 + last.abs())) & last.isfinite())[:, 0])
        return after.hidden


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
    run: Run = reader.answers,
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
        run: ``reader.answers``, here or in another process.
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


class FreshProcess:
    """``reader.answers`` in one new process, then ``timing.timings``; a context, at whose end it is gone.

    Args:
        scratch: What it reads is left in a folder below this one, for as long as the context lasts.
        timing: What is timed.
    """

    where = "a fresh process"

    def __init__(self, scratch: Path, timing: Timing) -> None:
        self._place = tempfile.TemporaryDirectory(dir=scratch, prefix=".check.")
        self._stderr = Path(self._place.name) / "stderr"
        self._timing = timing
        self._exports: Sequence[reader.Readers] = ()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "FreshProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            with self._process:  # closes its pipes and waits
                pass
        self._place.cleanup()

    def answers(
        self, exports: Sequence[reader.Readers], batches: Sequence[reader.Batch], device: str
    ) -> Iterator[Any]:
        """As ``reader.answers``.

        Raises:
            ExportError: If the process fails.
        """
        place = Path(self._place.name)
        self._exports = [(folder.resolve(), list(readers)) for folder, readers in exports]
        write_json(
            place / reader.ASKED,
            {
                "exports": [[str(folder), readers] for folder, readers in self._exports],
                "batches": len(batches),
                "device": device,
                "timing": asdict(self._timing),
            },
        )
        arrays = {f"{i}.{key}": array for i, batch in enumerate(batches) for key, array in batch.items()}
        np.savez(place / reader.INPUTS, **arrays)  # type: ignore[arg-type]  # its only other argument is a flag
        command = [sys.executable, "-m", "ldsearch.export.reader", str(place)]
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )
        for _, readers in self._exports:
            for _ in range(len(readers) * (1 + len(batches))):
                yield self._next("loading")

    def timings(self) -> Iterator[list[Timed]]:
        """Of each export; this process should do nothing meanwhile.

        Raises:
            ExportError: If the process fails.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what ended it stands on its stderr
            self._process.stdin.write(b"time\n")
            self._process.stdin.flush()
        for _ in self._exports:
            yield [Timed(**fields) for fields in self._next("latency")]

    def _next(self, check: str) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            return reader.receive(self._process.stdout)
        except EOFError:
            code = self._process.wait()
            said = self._stderr.read_text(encoding="utf-8", errors="replace")
            last = (said.strip().splitlines() or [f"exit code {code}"])[-1]
            raise ExportError(
                f"check of the {check} failed: the export does not run in a fresh process: {last}; nothing "
                "was written"
            ) from None


def export_subnet(
    supernet: Supernet,
    tokenizer: PreTrainedTokenizerBase,
    subnet: Subnet,
    folder: Path,
    provenance: Provenance,
) -> Path:
    """Write a sub-network as a Hugging Face folder and check it, in this process, before it appears.

    Args:
        supernet: Whose sub-network it is.
        tokenizer: Goes into the folder.
        subnet: What to export.
        folder: Must not exist or be empty.
        provenance: For the model card.

    Raises:
        RunError: If the folder holds something or cannot be written.
        ExportError: If the reloaded logits differ.
        SubnetError: If the sub-network does not fit.
    """
    with staged(folder) as staging:
        written = write_huggingface(supernet, tokenizer, subnet, staging, provenance)
        verify(supernet, [written], random_rows(supernet))
    return folder
