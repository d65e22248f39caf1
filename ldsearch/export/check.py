"""Checks of exports against their supernet: outputs in fp32, agreement of int8 and bf16, labels, score."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.disk.files import write_atomic
from ldsearch.disk.staging import staged
from ldsearch.errors import ExportError
from ldsearch.export import reader
from ldsearch.export.agreement import Agreement, Batch, LikenessOf, agreement
from ldsearch.export.card import Provenance, Written, file_dtype
from ldsearch.export.folder import write_huggingface
from ldsearch.export.timing import TimingJob
from ldsearch.latency.measure import MeasuredLatency
from ldsearch.options.serving import LEAST_AGREEMENT
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import ended
from ldsearch.supernet.supernet import inference
from ldsearch.trials.intervals import Interval
from ldsearch.work.progress import NO_PROGRESS, Progress

# What an example in doubt may move a score by, in examples: F1 of a rare label hangs on few of them.
SWAY = 10


@dataclass(frozen=True)
class Rows:
    """Inputs of a check.

    Args:
        batches: What the model reads, padded, rows of several lengths together.
        origin: What they are, in words.
        split: Their split; empty: none.
        metric: Name of the score.
        score: Score of the logits of every batch, in order, on the CPU; None: they are not scored.
        difference: The first logits' score minus the second's, with a 95% interval (paired bootstrap).
        recorded: Recorded score of each export on these rows; None where there is none.
        likeness: How the task compares the logits of the first batches with others'; None: by predictions.
    """

    batches: Sequence[Batch]
    origin: str
    split: str = ""
    metric: str = ""
    score: Callable[[Sequence[Tensor]], float] | None = None
    difference: Callable[[Sequence[Tensor], Sequence[Tensor]], Interval] | None = None
    recorded: Sequence[float | None] = ()
    likeness: LikenessOf | None = None

    def first(self, count: int) -> list[Batch]:
        """The first batches, of so many rows or a few more."""
        ends = accumulate(len(batch["input_ids"]) for batch in self.batches)
        return [
            batch
            for batch, end in zip(self.batches, ends, strict=True)
            if end < count + len(batch["input_ids"])
        ]


@dataclass(frozen=True)
class Scored:
    """A score of the export's own outputs.

    Args:
        metric: Its name.
        value: The score.
        recorded: That of the run; where it has none, the supernet's on the same rows.
        by_run: Whether it is the run's.
        difference: Of a runtime that rounds, the score minus the supernet's in fp32 on these rows.
    """

    metric: str
    value: float
    recorded: float
    by_run: bool
    difference: Interval | None = None

    def describe(self) -> str:
        """Describe the checks in a sentence."""
        whose = "the run's" if self.by_run else "the supernet's"
        text = f"{self.metric} {self.value:.4f}, {whose} {self.recorded:.4f}"
        if self.difference is None:
            return text
        low, high = self.difference.low, self.difference.high
        return f"{text} (less the supernet's in fp32: {low:+.4f} to {high:+.4f})"


@dataclass(frozen=True)
class Unseen:
    """Score, in a runtime that rounds, on rows that chose nothing.

    Args:
        metric: Its name.
        split: Of the rows.
        score: The export's.
        full_score: The full model's in fp32.
        difference: Score minus full score.
    """

    metric: str
    split: str
    score: float
    full_score: float
    difference: Interval

    def describe(self) -> str:
        """Describe the score in a sentence."""
        own = self.difference
        return (
            f"{self.metric} {self.score:.4f} on {own.examples} {self.split} rows, which chose nothing: "
            f"{own.mean:+.4f} ({own.low:+.4f} to {own.high:+.4f}) beside the full model in fp32"
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields of a search run's held-out score."""
        return {name: value for name, value in asdict(self).items() if name != "metric"}


@dataclass(frozen=True)
class Verified:
    """Result of the checks of an export.

    Args:
        where: Where it ran, and who read it, in words.
        origin: What was run, in words.
        tolerance: The share of the largest output, or of 1, that outputs may differ by; None: of a runtime
            that rounds.
        agreement: With the supernet.
        score: Measured again; None where the rows have none.
        unseen: In a runtime that rounds, measured on rows that chose nothing; None where there are none.
        latency: Measured; empty where it was not.
        machine: What it was measured on, in words.
        runtime: As of ``Written``.
    """

    where: str
    origin: str
    tolerance: float | None
    agreement: Agreement
    score: Scored | None
    unseen: Unseen | None = None
    latency: tuple[MeasuredLatency, ...] = ()
    machine: str = ""
    runtime: str = ""

    def describe(self) -> str:
        """All but the latency, in words."""
        agreement = f"reloaded in {self.where}: {self.agreement.describe(self.origin, self.tolerance)}"
        scores = [one.describe() for one in (self.score, self.unseen) if one is not None]
        return ", ".join([agreement, *scores])

    def to_dict(self) -> dict[str, Any]:
        """For ``index.json`` and ``--json``."""
        return {
            "runtime": self.runtime,
            "dtype": file_dtype(self.runtime),
            "verified": self.describe(),
            "measured_score": None if self.score is None else asdict(self.score),
            "held_out": None if self.unseen is None else self.unseen.to_dict(),
            "latency": [line.to_dict() for line in self.latency],
            "machine": self.machine,
        }


def random_rows(supernet: Supernet, count: int = 4) -> Rows:
    """Padded batches of four rows of mixed lengths, of random tokens."""
    generator = torch.Generator().manual_seed(0)
    longest = min(64, supernet.longest)
    mask = (torch.arange(longest) < torch.tensor([[longest], [longest // 2], [7], [2]])).long()
    batches = []
    for _ in range(-(-count // len(mask))):
        ids = torch.randint(0, supernet.model.config.vocab_size, mask.shape, generator=generator)
        batches.append({"input_ids": ended(supernet.model, ids * mask, mask), "attention_mask": mask})
        if len(supernet.stacks) > 1 and supernet.head.generates:
            batches[-1]["decoder_input_ids"] = ids
    return Rows(batches, "rows of random tokens")


def verify(
    supernet: Supernet,
    exports: Sequence[Written],
    rows: Rows,
    answers: Iterable[Sequence[reader.Answer]] | None = None,
    where: str = "this process",
    measured: Mapping[str, Any] = MappingProxyType({}),
    progress: Progress = NO_PROGRESS,
    unseen: Rows | None = None,
    least_agreement: float = LEAST_AGREEMENT,
) -> list[Verified]:
    """Compare exports with their supernet and write the result into their cards.

    Outputs must agree within the export's tolerance, predictions wherever their margin exceeds it. A row
    whose token scores tie may differ, since rounding decides which token stays; never half of the rows. The
    score must be the recorded one, within what the tolerance and the examples whose prediction rounding
    decides can move it. Of a runtime that rounds, a share of the
    predictions must be the same, and the score is measured.

    Args:
        supernet: Whose sub-networks they are.
        exports: What was written.
        rows: What they ran on.
        answers: Of each export, what each of its readers made of the rows; None: they are run here.
        where: The place that the answers come from, in words.
        measured: What ``ldsearch.export.timing.timings`` gave; empty: nothing was timed.
        progress: A phase "checking" with a step after each batch of each export.
        unseen: Rows that chose nothing, on which what rounds is scored; the answers go on with them.
        least_agreement: The least share of predictions that must be the supernet's where a runtime rounds.

    Raises:
        ExportError: Naming the check that failed.
    """
    if answers is None:
        readers = [(export.folder, export.readers, export.keep) for export in exports]
        answers = reader.answers(readers, _arrays(rows, unseen), str(supernet.model.device))
    progress.phase("checking", len(exports) * len(rows.batches))
    full = [] if unseen is None else [inference(supernet, one, supernet.full).cpu() for one in unseen.batches]
    recorded = rows.recorded or [None] * len(exports)
    latencies = measured.get("latencies") or [()] * len(exports)
    verified = []
    for written, own, score, lines in zip(exports, answers, recorded, latencies, strict=True):
        checked = _verify_export(supernet, written, rows, own, score, where, progress, least_agreement)
        latency = tuple(map(MeasuredLatency.from_dict, lines))
        verified.append(replace(checked, latency=latency, machine=measured.get("machine", "")))
        if unseen is not None and written.tolerance is None:
            got = [torch.from_numpy(logits) for logits in own[-1].logits[len(rows.batches) :]]
            verified[-1] = replace(verified[-1], unseen=_unseen(unseen, got, full))
        if written.card is not None:
            told = verified[-1]
            card = written.card(verified=told.describe(), latency=latency, machine=told.machine)
            write_atomic(written.folder / "README.md", card)
    return verified


def verify_fresh(
    supernet: Supernet,
    exports: Sequence[Written],
    rows: Rows,
    timing: TimingJob | None,
    scratch: Path,
    progress: Progress = NO_PROGRESS,
    unseen: Rows | None = None,
    least_agreement: float = LEAST_AGREEMENT,
) -> list[Verified]:
    """As ``verify``, but read and timed in a new process.

    Args:
        supernet: Whose sub-networks they are.
        exports: What was written.
        rows: What to run.
        timing: Which latencies are measured; None: none.
        scratch: A folder for what the two processes exchange; nothing of it is left.
        progress: Phases "reading and timing" and "checking".
        unseen: As for ``verify``.
        least_agreement: As for ``verify``.

    Raises:
        ExportError: Naming the check that failed.
    """
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".check.") as folder:
        place = Path(folder)
        progress.phase("reading and timing", 1)
        readers = [(export.folder, export.readers, export.keep) for export in exports]
        job = None if timing is None else asdict(timing)
        reader.write_job(place, readers, _arrays(rows, unseen), str(supernet.model.device), job)
        run_reader(place)
        progress.step()
        answers = (reader.read_answers(place, index) for index in range(len(exports)))
        path = place / reader.LATENCY_FILE
        measured = {} if timing is None else json.loads(path.read_text(encoding="utf-8"))
        return verify(
            supernet,
            exports,
            rows,
            answers,
            "a fresh process",
            measured,
            progress,
            unseen=unseen,
            least_agreement=least_agreement,
        )


def run_reader(place: Path) -> None:
    """Run ``ldsearch.export.reader`` on a folder in a new process, while this one waits.

    Raises:
        ExportError: If the process fails.
    """
    command = [sys.executable, "-m", "ldsearch.export.reader", str(place)]
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    if done.returncode:
        check = "latency" if any(place.glob(f"*/{reader.LOGITS_FILE}")) else "loading"
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ExportError(
            f"check of the {check} failed: the export does not run in a fresh process: {last}; nothing was "
            "written"
        )


def _arrays(rows: Rows, unseen: Rows | None = None) -> list[reader.Batch]:
    batches = [*rows.batches, *([] if unseen is None else unseen.batches)]
    return [{name: tensor.cpu().numpy() for name, tensor in batch.items()} for batch in batches]


def _unseen(rows: Rows, got: Sequence[Tensor], full: Sequence[Tensor]) -> Unseen | None:
    if rows.score is None or rows.difference is None:
        return None
    difference = rows.difference(got, full)
    return Unseen(rows.metric, rows.split, rows.score(got), rows.score(full), difference)


def _verify_export(
    supernet: Supernet,
    written: Written,
    rows: Rows,
    answers: Sequence[reader.Answer],
    recorded: float | None,
    where: str,
    progress: Progress,
    least_agreement: float,
) -> Verified:
    """Every check of every reader; the last one's numbers."""
    rounds = written.tolerance is None
    want = []
    for batch in rows.batches:
        want.append(inference(supernet, batch, written.subnet).cpu())
        progress.step()
    for name, answer in zip(written.readers, answers, strict=True):
        _check_labels(supernet, f"{name} in {where}", answer.labels)
        got = [torch.from_numpy(logits) for logits in answer.logits[: len(rows.batches)]]
        result = agreement(
            supernet, written.subnet, written.tolerance, rows.batches, want, got, rows.likeness
        )
        score = None
        if rows.score is not None:
            wanted = rows.score(want) if recorded is None else recorded
            change = rows.difference(got, want) if rounds and rows.difference is not None else None
            score = Scored(rows.metric, rows.score(got), wanted, recorded is not None, change)
        if rounds:
            told = "" if score is None else score.describe()
            result.demand_share(f"{name} in {where}", rows.origin, least_agreement, told)
            continue
        result.demand(f"{name} in {where}", rows.origin, written)
        if score is not None:
            _check_score(supernet, f"{name} in {where}", written, rows.origin, score, result)
    place = f"{where} by {' and '.join(written.readers)}"
    return Verified(place, rows.origin, written.tolerance, result, score, runtime=written.runtime)


def _check_labels(supernet: Supernet, name: str, labels: Sequence[str]) -> None:
    """Outputs that are classes must be called as the supernet's are."""
    config: Any = supernet.model.config
    wanted = [config.id2label[index] for index in sorted(config.id2label)]
    if supernet.head.name.endswith("Classification") and list(labels) != wanted:
        raise ExportError(
            f"check of the predictions failed: {name} calls the labels {', '.join(labels)}, the supernet "
            f"{', '.join(wanted)}; nothing was written"
        )


def _check_score(
    supernet: Supernet, name: str, written: Written, origin: str, score: Scored, result: Agreement
) -> None:
    # A language model's score is of probabilities: no prediction can tip it over.
    close = 0 if supernet.head.name.endswith("LM") else result.close
    share = 2 * result.limit + SWAY * (close + result.ties) / result.rows
    if not abs(score.value - score.recorded) <= share * max(1.0, abs(score.recorded)):
        whose = "the run recorded" if score.by_run else "the supernet has"
        raise ExportError(
            f"check of the score failed: {name} has {score.metric} {score.value:.6f} on {result.rows} "
            f"{origin}, {whose} {score.recorded:.6f}, for {written.subnet.describe()}; nothing was written"
        )


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
