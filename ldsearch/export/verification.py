"""An export is what it should be, or an error names the check that failed."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ldsearch.errors import ExportError
from ldsearch.export import check
from ldsearch.export.check import INPUTS, JOBS, OUTPUTS, Job, Logits
from ldsearch.export.staging import Written
from ldsearch.export.ties import ties
from ldsearch.files import write_atomic, write_json
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference

Batch = Mapping[str, Tensor]
Runner = Callable[[Sequence[Job], Sequence[check.Batch], str], list[list[Logits]]]


@dataclass(frozen=True)
class Rows:
    """What a check runs.

    Args:
        batches: What the model reads, padded, rows of several lengths together.
        origin: What they are, in words.
    """

    batches: Sequence[Batch]
    origin: str


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


def fresh_process(jobs: Sequence[Job], batches: Sequence[check.Batch], device: str) -> list[list[Logits]]:
    """``check.run`` in one new process.

    Raises:
        ExportError: If the process fails.
    """
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        named = [[str(folder.resolve()), reader] for folder, reader in jobs]
        write_json(place / JOBS, {"jobs": named, "batches": len(batches), "device": device})
        arrays = {f"{i}.{key}": array for i, batch in enumerate(batches) for key, array in batch.items()}
        np.savez(place / INPUTS, **arrays)  # type: ignore[arg-type]  # its only other argument is a flag
        command = [sys.executable, "-m", "ldsearch.export.check", name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise ExportError(f"check failed: the export does not run in a fresh process: {last}")
        with np.load(place / OUTPUTS) as file:
            return [[file[f"{job}.{i}"] for i in range(len(batches))] for job in range(len(jobs))]


def verify(supernet: Supernet, exports: Sequence[Written], rows: Rows, run: Runner = check.run) -> list[str]:
    """Compare exports with their supernet and write what was found into their cards.

    Logits must agree within the export's tolerance, predictions wherever their margin exceeds it. A row
    whose token scores tie may differ, since rounding decides which token stays; never half of the rows.

    Args:
        supernet: Whose sub-networks they are.
        exports: What was written.
        rows: What to run.
        run: Where: in this process, or ``fresh_process``.

    Returns:
        What was checked, in words, for each export.

    Raises:
        ExportError: Naming the check that failed.
    """
    jobs = [(written.folder, reader) for written in exports for reader in written.readers]
    arrays = [{name: tensor.cpu().numpy() for name, tensor in batch.items()} for batch in rows.batches]
    found = dict(zip(jobs, run(jobs, arrays, str(supernet.model.device)), strict=True))
    where = "a fresh process" if run is fresh_process else "this process"
    sentences = []
    for written in exports:
        expected = [inference(supernet, batch, written.subnet).cpu() for batch in rows.batches]
        for reader in written.readers:
            agreement = _agreement(supernet, written, rows, expected, found[written.folder, reader])
            agreement.demand(f"{reader} in {where}", rows.origin, written)
        readers = " and ".join(written.readers)
        sentence = f"reloaded in {where} by {readers}: {agreement.describe(rows.origin, written.tolerance)}"
        write_atomic(written.folder / "README.md", written.card(sentence))
        sentences.append(sentence)
    return sentences


@dataclass(frozen=True)
class Agreement:
    """How well outputs agree with the supernet's.

    Args:
        rows: Rows compared.
        apart: Rows whose logits differ by more than the tolerance, ties left out.
        ties: Rows that differ so and whose token scores tie.
        difference: The largest difference of logits, ties left out.
        predictions: Predictions compared.
        other: Predictions that differ.
        clear: Those of them whose margin exceeds the tolerance.
    """

    rows: int
    apart: int
    ties: int
    difference: float
    predictions: int
    other: int
    clear: int

    def demand(self, reader: str, origin: str, written: Written) -> None:
        """Raise the error of the first check that fails.

        Raises:
            ExportError: If one does.
        """
        where = f"of {self.rows} {origin}, for {written.subnet.describe()}; nothing was written"
        if self.apart:
            raise ExportError(
                f"check of the logits failed: {reader} differs from the supernet by {self.difference:.2g} "
                f"({written.tolerance:g} is allowed) on {self.apart} {where}"
            )
        if self.clear:
            raise ExportError(
                f"check of the predictions failed: {reader} gives {self.clear} other ones than the supernet "
                f"{where}"
            )
        if 2 * self.ties >= self.rows:
            raise ExportError(
                f"check of the logits failed: {reader} differs from the supernet wherever token scores tie, "
                f"on {self.ties} {where}"
            )

    def describe(self, origin: str, tolerance: float) -> str:
        """What was found, in words."""
        text = (
            f"{self.rows} {origin}, logits within {self.difference:.1e} of the supernet's "
            f"({tolerance:g} is allowed), {self.predictions - self.other} of {self.predictions} predictions "
            "the same"
        )
        if self.ties:
            text += f", {self.ties} rows left out whose token scores tie"
        return text


def _agreement(
    supernet: Supernet,
    written: Written,
    rows: Rows,
    expected: Sequence[Tensor],
    found: Sequence[Logits],
) -> Agreement:
    masks = [_real(supernet, batch, logits) for batch, logits in zip(rows.batches, expected, strict=True)]
    # Of the logits' own size: a language model's are large.
    largest = [float(own[mask].abs().max()) for own, mask in zip(expected, masks, strict=True)]
    tolerance = written.tolerance * max(1.0, *largest)
    parts = []
    for batch, want, mask, logits in zip(rows.batches, expected, masks, found, strict=True):
        got = torch.from_numpy(logits)
        if got.shape != want.shape:
            raise ExportError(
                f"check of the shapes failed: logits are {tuple(got.shape)}, the supernet's "
                f"{tuple(want.shape)}; nothing was written"
            )
        differences = (want - got).abs().masked_fill(~mask, 0.0).flatten(1).amax(dim=1)
        apart = ~(differences <= tolerance)
        tied = apart & differences.isfinite()
        if tied.any():
            tied &= ties(supernet, batch, written.subnet)
        other, margin = _predictions(supernet, want, got, mask)
        other &= ~tied.reshape(-1, *[1] * (other.ndim - 1))
        parts.append(
            Agreement(
                rows=len(want),
                apart=int((apart & ~tied).sum()),
                ties=int(tied.sum()),
                difference=float(differences[~tied].max()) if not tied.all() else 0.0,
                predictions=int(margin.isfinite().sum()),
                other=int(other.sum()),
                clear=int((other & (margin > tolerance)).sum()),
            )
        )
    return _total(parts)


def _total(parts: Sequence[Agreement]) -> Agreement:
    counts = {
        name: sum(getattr(part, name) for part in parts)
        for name in ("rows", "apart", "ties", "predictions", "other", "clear")
    }
    # A difference that is no number is the largest.
    differences = [part.difference for part in parts]
    return Agreement(difference=float(np.max(differences)), **counts)


def _real(supernet: Supernet, batch: Batch, logits: Tensor) -> Tensor:
    """Where logits mean something: not at pads, where there is one row per token. The logits' shape."""
    mask = batch.get("attention_mask")
    # What a decoder makes of pads at an encoder's end counts like everything else.
    if logits.ndim < 3 or mask is None or len(supernet.stacks) > 1:
        return torch.ones_like(logits, dtype=torch.bool)
    return mask.cpu().bool()[..., None].expand_as(logits)


def _predictions(supernet: Supernet, want: Tensor, got: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Which predictions differ, and by how much the supernet's lead; a margin of infinity: none is made."""
    want, got = (logits.masked_fill(~mask, -torch.inf) for logits in (want, got))
    if supernet.head.name == "QuestionAnswering":
        want, got = want.transpose(1, 2), got.transpose(1, 2)  # among positions
    best = want.topk(min(2, want.shape[-1]), dim=-1).values
    margin = best[..., 0] - best[..., -1]
    margin = margin.masked_fill(~best[..., -1].isfinite(), torch.inf)
    other = want.argmax(dim=-1) != got.argmax(dim=-1)
    return other & margin.isfinite(), margin
