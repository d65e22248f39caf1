"""Agreement of an export's outputs with the supernet's: numbers, predictions, ties of token scores."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.utils.generic import ModelOutput

from ldsearch.errors import ExportError
from ldsearch.export.card import Written
from ldsearch.latency.runtimes import Forward
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.saliency import token_score
from ldsearch.supernet.stages import Block, Dropped, Keep, Pipeline
from ldsearch.supernet.supernet import evaluating, inference
from ldsearch.supernet.tokens import State

Batch = Mapping[str, Tensor]
# How alike the outputs of some batches are, in words and as a number.
LikenessOf = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[str, float]]

# Of one and a score: sums in another order differ by less than this, rarely by a tenth of it.
CLOSE = 1e-5


@dataclass(frozen=True)
class Agreement:
    """Agreement of outputs with the supernet's.

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
        likeness: Of outputs that are no predictions, by the task; None where predictions are compared.
        words: What the task says of it.
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
    likeness: float | None = None
    words: str = ""

    @property
    def share(self) -> float:
        """The share of predictions that are the same; of what makes none its likeness."""
        if self.likeness is not None:
            return self.likeness
        return (self.predictions - self.other) / self.predictions if self.predictions else 1.0

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

    def demand_share(self, reader: str, origin: str, least: float, score: str) -> None:
        """Raise an error where too few predictions are the same.

        Args:
            reader: What read the export.
            origin: Of the rows.
            least: The share that is enough.
            score: What the export reaches, in words; empty where nothing was scored.

        Raises:
            ExportError: If the share is below ``least``.
        """
        if not self.share >= least:
            raise ExportError(
                f"check of the predictions failed: {reader} gives {self.describe(origin, None)}"
                f"{score and f', {score}'}; --least-agreement asks for {least:g}; nothing was written"
            )

    def describe(self, origin: str, tolerance: float | None) -> str:
        """The comparison in words."""
        if tolerance is None and self.likeness is not None:
            return f"outputs on {self.rows} {origin} that {self.words} {self.share:.4f}"
        if tolerance is None:
            same = self.predictions - self.other
            return (
                f"{same} of {self.predictions} predictions ({self.share:.4f}) as the supernet on {self.rows} "
                f"{origin}"
            )
        text = (
            f"{self.rows} {origin}, outputs within {self.difference:.1e} of the supernet's "
            f"({tolerance:g} is allowed)"
        )
        if self.predictions:
            text += f", {self.predictions - self.other} of {self.predictions} predictions the same"
        if self.ties:
            text += f", {self.ties} rows left out whose token scores tie"
        return text


def agreement(
    supernet: Supernet,
    subnet: Subnet,
    tolerance: float | None,
    batches: Sequence[Batch],
    want: Sequence[Tensor],
    got: Sequence[Tensor],
    likeness: LikenessOf | None = None,
) -> Agreement:
    """Compare the outputs of every batch.

    Args:
        supernet: Whose sub-network ran elsewhere.
        subnet: What ran.
        tolerance: As of ``Written``.
        batches: What both read.
        want: The supernet's logits.
        got: Those from elsewhere.
        likeness: Of both, by the task; None: by their predictions, or where they make none, correlation.

    Raises:
        ExportError: If they differ in shape.
    """
    counts: Counter[str] = Counter()
    largest, limits = [0.0], []
    for batch, mine, theirs in zip(batches, want, got, strict=True):
        if theirs.shape != mine.shape:
            raise ExportError(
                f"check of the outputs failed: logits are {tuple(theirs.shape)}, the supernet's "
                f"{tuple(mine.shape)}; nothing was written"
            )
        mask = _real(supernet, batch, mine)
        # Of the logits' own size: a language model's are large.
        limit = (tolerance or 0.0) * max(1.0, float(mine[mask].abs().max()))
        differences = (mine - theirs).abs().masked_fill(~mask, 0.0).flatten(1).amax(dim=1)
        apart = ~(differences <= limit)
        tied = apart & differences.isfinite()
        if tolerance is None:  # what rounding decides is a difference like any other
            tied &= False
        if tied.any():
            tied &= ties(supernet, batch, subnet)
        other, margin = _predictions(supernet, mine, theirs, mask)
        other &= ~tied.reshape(-1, *[1] * (other.ndim - 1))
        limits.append(limit)
        largest += differences[~tied].tolist()
        counts.update(
            rows=len(mine),
            apart=int((apart & ~tied).sum()),
            ties=int(tied.sum()),
            predictions=int(margin.isfinite().sum()),
            other=int(other.sum()),
            clear=int((other & (margin > limit)).sum()),
            close=int((margin <= limit).flatten(1).any(dim=1).sum()),
        )
    if likeness is None and not counts["predictions"]:
        likeness = _correlation
    words, alike = ("", None) if likeness is None else likeness(want, got)
    # A difference that is no number is the largest.
    return Agreement(
        difference=float(np.max(largest)), limit=max(limits), likeness=alike, words=words, **counts
    )


def _correlation(want: Sequence[Tensor], got: Sequence[Tensor]) -> tuple[str, float]:
    sides = (torch.cat([batch.flatten() for batch in side]).double() for side in (want, got))
    return "correlate with the supernet's by", float(torch.corrcoef(torch.stack([*sides]))[0, 1])


def share_of_full(
    supernet: Supernet, batches: Sequence[Batch], likeness: LikenessOf | None = None
) -> Callable[[Forward], float]:
    """The share of predictions of the full model, run in some way, that are the supernet's own.

    Args:
        supernet: The full model.
        batches: What both read.
        likeness: As for ``agreement``.
    """
    device = supernet.model.device
    moved = [{name: tensor.to(device) for name, tensor in batch.items()} for batch in batches]
    want = [inference(supernet, batch, supernet.full).cpu() for batch in batches]

    def share(forward: Forward) -> float:
        got = [_logits(forward(batch)) for batch in moved]
        return agreement(supernet, supernet.full, None, batches, want, got, likeness).share

    return share


def _logits(output: Any) -> Tensor:
    """Logits from a model's output, or from a graph's arrays."""
    if isinstance(output, ModelOutput):
        return logits_of(output).float().cpu()
    arrays = [torch.from_numpy(array) for array in output]
    return torch.stack(arrays, dim=-1) if len(arrays) > 1 else arrays[0]


def _real(supernet: Supernet, batch: Batch, logits: Tensor) -> Tensor:
    """Mask of the logits' shape that leaves out those of pads."""
    mask = batch.get("attention_mask")
    # What a decoder makes of pads at an encoder's end counts like everything else.
    if logits.ndim < 3 or mask is None or len(supernet.stacks) > 1:
        return torch.ones_like(logits, dtype=torch.bool)
    return mask.cpu().bool()[..., None].expand_as(logits)


def _predictions(supernet: Supernet, want: Tensor, got: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Where predictions differ, and the margin of the supernet's own, both of shape (B, …).

    A class, of each token where there are several; the ends of a span; each yes or no. A margin of infinity:
    none is made, as by a regression or of a vector.
    """
    kind = supernet.model.config.problem_type if supernet.head.pools else None
    if kind == "multi_label_classification":
        return (want > 0) != (got > 0), want.abs()
    want, got = (logits.masked_fill(~mask, -torch.inf) for logits in (want, got))
    if supernet.head.name == "QuestionAnswering":
        want, got = want.transpose(1, 2), got.transpose(1, 2)  # among positions
    if want.shape[-1] == 1 or kind == "regression" or supernet.head.embeds:
        return torch.zeros(len(want), 1, dtype=torch.bool), torch.full((len(want), 1), torch.inf)
    best = want.topk(2, dim=-1).values
    margin = best[..., 0] - best[..., 1]
    margin = margin.masked_fill(~best[..., 1].isfinite(), torch.inf)
    other = (want.argmax(dim=-1) != got.argmax(dim=-1)) & margin.isfinite()
    return other.reshape(len(want), -1), margin.reshape(len(want), -1)


@dataclass(frozen=True, eq=False)
class _Told(Block):
    """A block that tells the scores of what enters it where it drops tokens."""

    told: Callable[[Tensor], None]

    def drop(self, state: State, scores: Tensor, keep: Keep) -> Dropped:
        """As of ``Block``."""
        self.told(scores)
        return super().drop(state, scores, keep)


def ties(supernet: Supernet, batch: Batch, subnet: Subnet) -> Tensor:
    """Whether some block of the sub-network kept one token rather than another for almost nothing.

    Returns:
        Shape (B,), on the CPU.
    """
    encoder = subnet.encoder
    close = [torch.zeros(len(batch["input_ids"]), dtype=torch.bool)]
    if supernet.family is None or encoder is None or encoder.lengths is None:
        return close[0]
    seen: list[Tensor] = []

    def between(block: int, before: State, after: State) -> Tensor:
        """Compare the scores on both sides of where a block cut."""
        if after.positions is not before.positions:
            ranked = before.pinned_first(seen[-1].float()).masked_fill(~before.real, -torch.inf)
            if supernet.reads_first:
                ranked[:, 0] = torch.inf
            ranked = ranked.sort(dim=1, descending=True).values
            kept = after.real.sum(dim=1, keepdim=True)
            last = ranked.gather(1, kept - 1)
            # Infinite where every token was kept, or [CLS] alone.
            gap = last - ranked.gather(1, kept.clamp(max=ranked.shape[1] - 1))
            dropped = kept < before.real.sum(dim=1, keepdim=True)
            close.append((dropped & (gap <= CLOSE * (1 + last.abs())) & last.isfinite())[:, 0].cpu())
        return after.hidden

    layers, family, score = supernet.layers_of("encoder"), supernet.family, token_score(supernet.score)
    pipeline = Pipeline(supernet.model, layers, family, score, supernet.reads_first, restores=False)
    pipeline.blocks = tuple(_Told(**vars(block), told=seen.append) for block in pipeline.blocks)
    with evaluating(supernet, batch) as moved:
        pipeline(moved, encoder, between)
    return torch.stack(close).any(dim=0)
