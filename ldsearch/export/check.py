"""Checks of exports against their supernet: outputs, predictions, labels, score."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ldsearch.errors import ExportError
from ldsearch.export import reader
from ldsearch.export.agreement import Agreement, Batch, agreement
from ldsearch.export.card import Provenance, Written
from ldsearch.export.folder import staged, write_huggingface
from ldsearch.export.timing import TimingJob
from ldsearch.files import write_atomic
from ldsearch.latency.measure import MeasuredLatency
from ldsearch.progress import NO_PROGRESS, Progress
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference

# What an example in doubt may move a score by, in examples: F1 of a rare label hangs on few of them.
SWAY = 10


@dataclass(frozen=True)
class Rows:
    """Inputs of a check.

    Args:
        batches: What the model reads, padded, rows of several lengths together.
        origin: What they are, in words.
        metric: Name of the score.
        score: Score of the logits of every batch, in order, on the CPU; None: they are not scored.
        recorded: Recorded score of each export on these rows; None where there is none.
    """

    batches: Sequence[Batch]
    origin: str
    metric: str = ""
    score: Callable[[Sequence[Tensor]], float] | None = None
    recorded: Sequence[float | None] = ()


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
        """Describe the checks in a sentence."""
        whose = "the run's" if self.by_run else "the supernet's"
        return f"{self.metric} {self.value:.4f}, {whose} {self.recorded:.4f}"


@dataclass(frozen=True)
class Verified:
    """Result of the checks of an export.

    Args:
        where: Where it ran, and who read it, in words.
        origin: What was run, in words.
        tolerance: The share of the largest output, or of 1, that outputs may differ by.
        agreement: With the supernet.
        score: Measured again; None where the rows have none.
        latency: Measured; empty where it was not.
        machine: What it was measured on, in words.
    """

    where: str
    origin: str
    tolerance: float
    agreement: Agreement
    score: Scored | None
    latency: tuple[MeasuredLatency, ...] = ()
    machine: str = ""

    def describe(self) -> str:
        """All but the latency, in words."""
        agreement = f"reloaded in {self.where}: {self.agreement.describe(self.origin, self.tolerance)}"
        return agreement if self.score is None else f"{agreement}, {self.score.describe()}"

    def to_dict(self) -> dict[str, Any]:
        """For ``index.json`` and ``--json``."""
        return {
            "verified": self.describe(),
            "measured_score": None if self.score is None else asdict(self.score),
            "latency": [line.to_dict() for line in self.latency],
            "machine": self.machine,
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
    answers: Iterable[Sequence[reader.Answer]] | None = None,
    where: str = "this process",
    measured: Mapping[str, Any] = MappingProxyType({}),
    progress: Progress = NO_PROGRESS,
) -> list[Verified]:
    """Compare exports with their supernet and write the result into their cards.

    Outputs must agree within the export's tolerance, predictions wherever their margin exceeds it. A row
    whose token scores tie may differ, since rounding decides which token stays; never half of the rows. The
    score must be the recorded one, within what the tolerance and the examples whose prediction rounding
    decides can move it.

    Args:
        supernet: Whose sub-networks they are.
        exports: What was written.
        rows: What they ran on.
        answers: Of each export, what each of its readers made of the rows; None: they are run here.
        where: The place that the answers come from, in words.
        measured: What ``ldsearch.export.timing.timings`` gave; empty: nothing was timed.
        progress: A phase "checking" with a step after each batch of each export.

    Raises:
        ExportError: Naming the check that failed.
    """
    if answers is None:
        readers = [(export.folder, export.readers) for export in exports]
        answers = reader.answers(readers, _arrays(rows), str(supernet.model.device))
    progress.phase("checking", len(exports) * len(rows.batches))
    recorded = rows.recorded or [None] * len(exports)
    latencies = measured.get("latencies") or [()] * len(exports)
    verified = []
    for written, own, score, lines in zip(exports, answers, recorded, latencies, strict=True):
        checked = _verify_export(supernet, written, rows, own, score, where, progress)
        latency = tuple(map(MeasuredLatency.from_dict, lines))
        verified.append(replace(checked, latency=latency, machine=measured.get("machine", "")))
        card = written.card(verified=checked.describe(), latency=latency, machine=verified[-1].machine)
        write_atomic(written.folder / "README.md", card)
    return verified


def verify_fresh(
    supernet: Supernet,
    exports: Sequence[Written],
    rows: Rows,
    timing: TimingJob | None,
    scratch: Path,
    progress: Progress = NO_PROGRESS,
) -> list[Verified]:
    """As ``verify``, but read and timed in a new process.

    Args:
        supernet: Whose sub-networks they are.
        exports: What was written.
        rows: What to run.
        timing: Which latencies are measured; None: none.
        scratch: A folder for what the two processes exchange; nothing of it is left.
        progress: Phases "reading and timing" and "checking".

    Raises:
        ExportError: Naming the check that failed.
    """
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".check.") as folder:
        place = Path(folder)
        progress.phase("reading and timing", 1)
        readers = [(export.folder, export.readers) for export in exports]
        job = None if timing is None else asdict(timing)
        reader.write_job(place, readers, _arrays(rows), str(supernet.model.device), job)
        run_reader(place)
        progress.step()
        answers = (reader.read_answers(place, index) for index in range(len(exports)))
        path = place / reader.LATENCY_FILE
        measured = {} if timing is None else json.loads(path.read_text(encoding="utf-8"))
        return verify(supernet, exports, rows, answers, "a fresh process", measured, progress)


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


def _arrays(rows: Rows) -> list[reader.Batch]:
    return [{name: tensor.cpu().numpy() for name, tensor in batch.items()} for batch in rows.batches]


def _verify_export(
    supernet: Supernet,
    written: Written,
    rows: Rows,
    answers: Sequence[reader.Answer],
    recorded: float | None,
    where: str,
    progress: Progress,
) -> Verified:
    """Every check of every reader; the last one's numbers."""
    want = []
    for batch in rows.batches:
        want.append(inference(supernet, batch, written.subnet).cpu())
        progress.step()
    for name, answer in zip(written.readers, answers, strict=True):
        _check_labels(supernet, f"{name} in {where}", answer.labels)
        got = [torch.from_numpy(logits) for logits in answer.logits]
        result = agreement(supernet, written, rows.batches, want, got)
        result.demand(f"{name} in {where}", rows.origin, written)
        score = None
        if rows.score is not None:
            wanted = rows.score(want) if recorded is None else recorded
            score = Scored(rows.metric, rows.score(got), wanted, recorded is not None)
            _check_score(supernet, f"{name} in {where}", written, rows.origin, score, result)
    place = f"{where} by {' and '.join(written.readers)}"
    return Verified(place, rows.origin, written.tolerance, result, score)


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
