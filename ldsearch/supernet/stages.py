"""A transformer as a pipeline of stages: embed, block i, head. One block runs on its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput

from ldsearch.errors import SupernetError
from ldsearch.subnet import WHOLE, Groups, Stack
from ldsearch.supernet import tokens
from ldsearch.supernet.correction import CORRECTION, corrected, correction_of, remembered
from ldsearch.supernet.cutting import repeats
from ldsearch.supernet.families import Family
from ldsearch.supernet.heads import Head, run_head
from ldsearch.supernet.left_behind import MAP, RANK, left_behind, map_of
from ldsearch.supernet.saliency import WEIGHTS, WEIGHTS_FILE, saliency
from ldsearch.supernet.tokens import (
    PINNED,
    Attention,
    Chosen,
    State,
    TokenScore,
    drop_tokens,
    first_text,
    restored,
)

# Tokens of each row that leave a block: numbers, or tensors in a traced graph.
Keep = Sequence[int] | Chosen
# The state of the tokens that stay, and which they are, as ``tokens.gather`` takes them.
Dropped = tuple[State, Tensor, Tensor | None]


@dataclass(frozen=True, eq=False)
class Block:
    """One stock layer, able to drop tokens between its sub-layers and to run without some of its groups.

    Args:
        layer: The stock layer.
        family: How to take it apart.
        config: The model's configuration (it names the attention implementation).
        score: Which tokens are worth keeping; None: what the layer's own weights say (``saliency``).
        keep_first: Whether position 0 always stays.
        attention_dropout: Dropout rate of attention probabilities in training; None: the layer's own.
    """

    layer: nn.Module
    family: Family
    config: PreTrainedConfig
    score: TokenScore | None
    keep_first: bool
    attention_dropout: float | None

    def __call__(
        self, state: State, keep: Keep | None = None, groups: Groups = WHOLE, *, first_only: bool = False
    ) -> State:
        """Run the block: in evaluation, where nothing is off, by the stock layer's own forward.

        Args:
            state: What enters.
            keep: Only that many tokens of each row leave; None: all of them.
            groups: What is off inside the block.
            first_only: As for ``run_sublayers``.
        """
        if keep is None and groups == WHOLE and not self.layer.training:
            return replace(state, hidden=self.family.run(self.layer, state, self.config))
        return self.run_sublayers(state, keep, groups, first_only=first_only)[0]

    def run_sublayers(
        self,
        state: State,
        keep: Keep | None,
        groups: Groups,
        attention: Attention | None = None,
        *,
        scored: bool = False,
        first_only: bool = False,
    ) -> tuple[State, Tensor | None]:
        """Run attention and feed-forward one after the other, dropping tokens before the output projection.

        Args:
            state: What enters.
            keep: As for ``__call__``.
            groups: As for ``__call__``.
            attention: Queries, keys and values of ``state`` if they are known already; None: computed here.
            scored: Whether token scores are wanted even if no token is dropped.
            first_only: Only position 0 leaves; the other tokens provide keys and values but no queries.

        Returns:
            What leaves, and the token scores (B, k) of the tokens that leave; None where nothing scored them.
        """
        family, parts = self.family, self.family.parts(self.layer)
        context, scores = None, None
        if groups.runs("attention"):
            attention = attention or family.attention(parts, state)
            attention = attention.of_queries(1) if first_only else attention
            rate = parts.attention_dropout if self.attention_dropout is None else self.attention_dropout
            dropout = rate if parts.layer.training else None
            scored = scored or keep is not None
            context, scores = self.mix(attention, groups, dropout, scored=scored)
            if scored and self.score is None:
                scores = self.saliency(state.hidden, context)
        if first_only:
            state = replace(state, hidden=state.hidden[:, :1], real=state.real[:, :1])
        if keep is not None:
            assert context is not None
            assert scores is not None
            state, index, flat = self.drop(state, scores, keep)
            # Before the output projection, so that it and what follows run on rows that stay.
            context, scores = tokens.gather(context, index, flat), scores.gather(1, index)
        if context is None:
            state = replace(state, hidden=family.skip(parts.attention_norm, state.hidden))
        else:
            state = replace(state, hidden=family.merge(parts, context, state.hidden))
        if not groups.runs("feed_forward"):
            state = replace(state, hidden=family.skip(parts.feed_forward_norm, state.hidden))
        else:
            units = family.expand(parts, state.hidden)
            whole = int(units.shape[-1])  # a tensor while the model is traced
            if (width := groups.width(whole)) < whole:
                units = units * (torch.arange(whole, device=units.device) < width)
            state = replace(state, hidden=family.contract(parts, units, state.hidden))
        return state, scores

    def left_behind(self, entered: State) -> State:
        """State that the head reads of tokens dropped here: mapped, where the learned score chooses."""
        mapped = left_behind(self.layer, entered.hidden) if self.score is None else entered.hidden
        return replace(entered, hidden=mapped)

    def saliency(self, entered: Tensor, context: Tensor) -> Tensor:
        """Score of each token by the layer's own weights, shape (B, n)."""
        return saliency(self.layer, entered, context)

    def drop(self, state: State, scores: Tensor, keep: Keep) -> Dropped:
        """Keep the best tokens of each row."""
        assert not isinstance(keep, Chosen)
        return *drop_tokens(state, scores, keep, self.keep_first), None

    def mix(
        self, attention: Attention, groups: Groups, dropout: float | None, *, scored: bool
    ) -> tuple[Tensor, Tensor | None]:
        """An attention sub-layer that runs, up to its output projection.

        Args:
            attention: Among all tokens; of as many queries as are wanted.
            groups: What is off.
            dropout: Dropout rate of attention probabilities; None in evaluation.
            scored: Whether token scores are wanted; they need the queries of all tokens.

        Returns:
            Context (B, queries, heads' width), and token scores (B, n) or nothing, as where no attention
            tells them.
        """
        heads = attention.queries.shape[1]
        on = [head for head in range(heads) if head not in groups.heads_off]
        if len(on) < heads:
            attention = attention.part(slice(None), on)
        context, scores = tokens.attend(attention, self.score if scored else None, dropout)
        if len(on) < heads:
            kept = context
            context = kept.new_zeros(kept.shape[0], heads, *kept.shape[2:])
            context[:, on] = kept
        return context.transpose(1, 2).flatten(2), None if scores is None else scores.detach()


# Called after a block with its id, what entered and what left; gives the hidden states that go on.
Between = Callable[[int, State, State], Tensor]
Left = TypeVar("Left")
Kept = TypeVar("Kept")


def run_stages(
    blocks: Sequence[int],
    keeps: Sequence[Kept | None],
    entered: Left,
    run: Callable[[int, Left, Kept | None], Left],
    *,
    between: Callable[[int, Left, Left], Left] | None = None,
    restore: Callable[[Left, Left], Left] | None = None,
    behind: Callable[[int, Left], Left] | None = None,
) -> Left:
    """Run the blocks of a stack one after the other.

    Where dropped tokens come back, each carries the output of the last block that processed it
    (Drop-and-Restore, Kim & Cho 2020, Sec. 3.3), or what ``behind`` makes of it.

    Args:
        blocks: What runs.
        keeps: What each block keeps of what enters it; None: everything.
        entered: What enters the first block: a state, or anything else that ``run`` takes.
        run: Runs a block, given its id, what enters and what it keeps.
        between: Given a block, what entered and what left; gives what goes on.
        restore: Writes the tokens of its second argument back into its first; None: dropped tokens stay
            away.
        behind: Gives, of a block and what entered it, the state that its dropped tokens keep; None: the same.

    Returns:
        What leaves the last block, dropped tokens restored.
    """
    state, whole = entered, None
    for block, keep in zip(blocks, keeps, strict=True):
        before, state = state, run(block, state, keep)
        if between is not None:
            state = between(block, before, state)
        if keep is not None and restore is not None:
            gone = before if behind is None else behind(block, before)
            whole = gone if whole is None else restore(whole, gone)
    return state if whole is None or restore is None else restore(whole, state)


def kept_of_rows(
    stack: Stack, true_lengths: Sequence[int], pinned: Sequence[int] | None = None
) -> list[tuple[int, ...] | None]:
    """Number of tokens of each row that leave each block; None where all of them leave.

    Args:
        stack: What runs.
        true_lengths: Tokens of each row without padding.
        pinned: How many of them are never dropped; None: one.
    """
    if stack.lengths is None:
        return [None] * len(stack.blocks)
    lengths, places = stack.lengths, range(len(stack.blocks))
    rows = list(zip(true_lengths, pinned or [1] * len(true_lengths), strict=True))
    left = [tuple(max(lengths.kept(place, n), least) for n, least in rows) for place in places]
    return [None if now == before else now for before, now in pairwise([tuple(true_lengths), *left])]


def pinned_until(config: PreTrainedConfig) -> int | None:
    """The token that ends a pair's first text, of which no token is dropped; None: any may be."""
    return cast(int | None, getattr(config, PINNED, None))


def embedded(
    family: Family, model: PreTrainedModel, batch: Mapping[str, Tensor], *, corrects: bool = False
) -> State:
    """State that enters the first block, with what is pinned, and what a correction reads where one is."""
    state, end = family.embed(model, batch), pinned_until(model.config)
    state = remembered(state) if corrects else state
    return state if end is None else replace(state, pinned=first_text(batch["input_ids"], end))


class Pipeline:
    """Stages of a stock encoder: embed, block i, head. Holds no weights of its own.

    Args:
        model: The stock model.
        layers: Its encoder's layers.
        family: How to take them apart.
        score: As of ``Block``.
        keep_first: Whether position 0 always stays.
        restores: Whether dropped tokens come back for what follows the last block.
        attention_dropout: As of ``Block``.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        layers: Iterable[nn.Module],
        family: Family,
        score: TokenScore | None,
        keep_first: bool,
        restores: bool,
        attention_dropout: float | None = None,
    ) -> None:
        self.model = model
        self.family = family
        self.restores = restores
        self.keep_first = keep_first
        how = family, model.config, score, keep_first, attention_dropout
        self.blocks = tuple(Block(layer, *how) for layer in layers)
        self.checkpointing = False

    def __call__(self, batch: Mapping[str, Tensor], stack: Stack, between: Between | None = None) -> State:
        """State behind the last block of the stack: all tokens if they are restored, else those kept."""
        entered, true_lengths, pinned = self.embed(batch)
        # In evaluation outputs are those of the stock forward, to the bit.
        reads_first = self.keep_first and self.model.training and between is None

        def run(block: int, state: State, keep: Sequence[int] | None) -> State:
            # A head that reads the first token needs nothing else of what leaves the last block.
            first_only = reads_first and block == stack.blocks[-1]
            call = partial(self.blocks[block], first_only=first_only)
            inputs = state, None if first_only else keep, stack.groups(block)
            if self.checkpointing and self.model.training and torch.is_grad_enabled():
                return cast(State, checkpoint(call, *inputs, use_reentrant=False))
            return call(*inputs)

        def changed(block: int, before: State, after: State) -> State:
            assert between is not None
            return replace(after, hidden=between(block, before, after))

        return run_stages(
            stack.blocks,
            kept_of_rows(stack, true_lengths, pinned),
            entered,
            run,
            between=changed if between else None,
            restore=restored if self.restores else None,
            behind=lambda block, entered: self.blocks[block].left_behind(entered),
        )

    def add_weights(self, head: Head) -> None:
        """Give layers without weights of the learned token score some, zeros until they are fitted.

        And what is fitted with them: maps (``add_maps``), and a correction where the answer is the mean of
        all states.

        Raises:
            SupernetError: If the weights that they have do not fit them.
        """
        stack = [self.family.parts(block.layer) for block in self.blocks]
        own = [getattr(parts.layer, WEIGHTS, None) for parts in stack]
        lacking = [index for index, weights in enumerate(own) if weights is None]
        if 0 < len(lacking) < len(own):
            raise SupernetError(
                f"{WEIGHTS_FILE} is of another model: it has no weights for block {lacking[0]}"
            )
        for parts, weights in zip(stack, own, strict=True):
            d, inner = parts.output.out_features, parts.output.in_features
            if weights is None:
                weights = parts.output.weight.new_zeros(d + inner, dtype=torch.float32)
                parts.layer.register_buffer(WEIGHTS, weights)
            beside = map_of(parts.layer)
            if weights.shape != (d + inner,) or (beside is not None and beside.shape[1:] != (d,)):
                shapes = " and ".join(str(tuple(one.shape)) for one in (weights, beside) if one is not None)
                raise SupernetError(
                    f"{WEIGHTS_FILE} is of another model: {shapes} weights a layer, not {d + inner}"
                )
        if lacking or not head.maps:
            self.add_maps(head.maps)
        averages, d = head.averages(self.keep_first), self.model.config.hidden_size
        if lacking or not averages:
            self.add_correction(averages)
        if (beside := correction_of(self.model)) is not None and beside.shape != (2 * d + 1, d):
            raise SupernetError(f"{WEIGHTS_FILE} is of another model: its vectors have not {d} numbers")

    @property
    def corrects(self) -> bool:
        """Whether vectors of texts that lost tokens are corrected: where the learned score chooses those."""
        return correction_of(self.model) is not None and all(block.score is None for block in self.blocks)

    def add_correction(self, averages: bool) -> None:
        """Give the model a correction of vectors, zeros until it is fitted, if it has none; or take it away.

        Args:
            averages: Whether the answer is the mean of all states.
        """
        d = self.model.config.hidden_size
        if not averages:
            self.model._buffers.pop(CORRECTION, None)  # of another head
        elif correction_of(self.model) is None:
            self.model.register_buffer(CORRECTION, torch.zeros(2 * d + 1, d, device=self.model.device))

    def add_maps(self, maps: bool) -> None:
        """Give layers without a map of dropped tokens' states one, zeros until it is fitted; or none any.

        Args:
            maps: Whether the head wants states mapped. They are where they come back, each block by its own
                layer: one layer for all would map late states as early ones.
        """
        maps = maps and self.restores and not repeats(self.model.config)
        for block in self.blocks:
            if not maps:
                block.layer._buffers.pop(MAP, None)  # of another head
            elif map_of(block.layer) is None:
                weights = self.family.parts(block.layer).output.weight
                rank = min(len(weights), max(RANK, self.model.config.num_labels or 1))
                block.layer.register_buffer(MAP, weights.new_zeros(2 * rank + 1, len(weights)).float())

    def embed(self, batch: Mapping[str, Tensor]) -> tuple[State, list[int], list[int] | None]:
        """State that enters the first block, the true length of each row, and how much of it is pinned."""
        state = embedded(self.family, self.model, batch, corrects=self.corrects)
        # Here alone, since a device must be waited for.
        true_lengths: list[int] = state.real.sum(dim=1).tolist()
        pinned = None if state.pinned is None else state.pinned[:, 0].tolist()
        return replace(state, padded=min(true_lengths) < state.real.shape[1]), true_lengths, pinned

    def finish(self, state: State) -> Tensor:
        """Last hidden states (B, n, d), as the head reads them."""
        return corrected(self.model, self.family.finish(self.model, state.hidden), state)

    def head(
        self, state: State, mask: Tensor | None, targets: Mapping[str, Tensor] | None = None
    ) -> ModelOutput:
        """The stock model's output.

        Args:
            state: What leaves the last block.
            mask: The attention mask of the state's tokens; None: none was given.
            targets: What the stock class makes a loss of (``labels``); None: no loss.
        """
        masked = {} if mask is None else {"attention_mask": mask}
        return run_head(self.model, self.finish(state), {**masked, **(targets or {})})
