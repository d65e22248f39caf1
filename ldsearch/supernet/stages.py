"""A transformer as a pipeline of stages: embed, block i, head. One small module runs one block."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput

from ldsearch.costs.macs import EncoderShape
from ldsearch.errors import SupernetError
from ldsearch.subnet import WHOLE, Groups, Stack
from ldsearch.supernet import tokens
from ldsearch.supernet.heads import run_head
from ldsearch.supernet.tokens import Attention, TokenScore, reshaped


@dataclass(frozen=True)
class State:
    """State of a batch between two stages.

    Args:
        hidden: Shape (B, n, d).
        real: Shape (B, n), True where a position is no padding.
        positions: Shape (B, n), where each token stood in the input; None while none was dropped.
        per_token: What else belongs to a token (rotary angles), each of shape (B or 1, n, …).
        padded: Whether some position may be padding; False spares a look at the data.
    """

    hidden: Tensor
    real: Tensor
    positions: Tensor | None = None
    per_token: Mapping[str, Tensor] = field(default_factory=dict)
    padded: bool = True

    def take(self, hidden: Tensor, index: Tensor, real: Tensor, padded: bool = True) -> "State":
        """The state of some tokens: rows ``index`` (B, k) of ``hidden`` and of everything else."""
        positions = index if self.positions is None else self.positions.gather(1, index)
        per_token = {
            name: tokens.gather(tensor.expand(index.shape[0], -1, -1), index)
            for name, tensor in self.per_token.items()
        }
        return State(tokens.gather(hidden, index), real, positions, per_token, padded)


@dataclass(frozen=True)
class Parts:
    """The modules of one stock layer.

    In a post-norm layer, the last module of a sub-layer gives what leaves the sub-layer.

    Args:
        attention: Everything of the attention sub-layer, its norm included.
        heads: The projections whose outputs are heads: three, or one for queries, keys and values at once.
        output: The projection back from the heads.
        feed_forward: Everything of the feed-forward sub-layer, its norm included.
        expand: The projection to the feed-forward width; a gated layer's has twice its outputs.
        contract: The projection back.
    """

    attention: tuple[nn.Module, ...]
    heads: tuple[nn.Linear, ...]
    output: nn.Linear
    feed_forward: tuple[nn.Module, ...]
    expand: nn.Linear
    contract: nn.Linear


class Family(Protocol):
    """Interface to a model family: where its parts are. Calls the stock modules and forks none.

    Every method takes stock modules. ``layer`` is one element of ``layers(model)``.
    """

    @property
    def model_type(self) -> str:
        """The ``model_type`` of the family's configurations."""

    @property
    def pinned(self) -> tuple[int, ...]:
        """Blocks that are unlike the others, so that stock classes cannot express a model without them."""

    @property
    def pre_norm(self) -> bool:
        """Whether the residual goes round a sub-layer's norm, so that a zeroed sub-layer is the identity."""

    @property
    def width_name(self) -> str:
        """Attribute of the configuration that holds the feed-forward width."""

    def layers(self, model: PreTrainedModel) -> nn.ModuleList:
        """The stack of blocks."""

    def longest(self, config: PreTrainedConfig) -> int:
        """The longest input in tokens."""

    def shape(self, config: PreTrainedConfig) -> EncoderShape:
        """The dimensions that costs are made of, without the head's."""

    def embed(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> State:
        """State that enters the first block."""

    def parts(self, layer: nn.Module) -> Parts:
        """The modules of a layer."""

    def run(self, layer: nn.Module, state: State, config: PreTrainedConfig) -> Tensor:
        """The stock layer's own path, sdpa or eager: bit-equal to the model. Shape (B, n, d)."""

    def attention(self, layer: nn.Module, state: State) -> Attention:
        """Queries, keys and values, and who may see whom."""

    def attention_dropout(self, layer: nn.Module) -> float:
        """Dropout probability on attention probabilities."""

    def merge(self, layer: nn.Module, context: Tensor, hidden: Tensor) -> Tensor:
        """Project attention output (B, n, heads' width), add the block input: what feeds the second half."""

    def expand(self, layer: nn.Module, hidden: Tensor) -> Tensor:
        """The feed-forward units, shape (B, n, width)."""

    def contract(self, layer: nn.Module, units: Tensor, hidden: Tensor) -> Tensor:
        """Project the units (B, n, width) and add their input: output of the block."""

    def finish(self, model: PreTrainedModel, hidden: Tensor) -> Tensor:
        """Final norm of a pre-norm model; the identity elsewhere."""


# Tokens of each row that leave a block: numbers, or a tensor (B,) in a traced graph.
Keep = Sequence[int] | Tensor


class Block(nn.Module):
    """One stock layer, able to drop tokens between its sub-layers and to run without some of its groups.

    Args:
        layer: The stock layer.
        family: How to take it apart.
        config: The model's configuration (it names the attention implementation).
        score: Which tokens are worth keeping.
        keep_first: Whether position 0 always stays.
    """

    def __init__(
        self,
        layer: nn.Module,
        family: Family,
        config: PreTrainedConfig,
        score: TokenScore,
        keep_first: bool,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.family = family
        self.config = config
        self.score = score
        self.keep_first = keep_first

    def forward(self, state: State, keep: Keep | None = None, groups: Groups = WHOLE) -> State:
        """Run the block.

        Args:
            state: What enters.
            keep: Only that many tokens of each row leave; None: all of them.
            groups: What is off inside the block.
        """
        if keep is None and groups == WHOLE:
            return replace(state, hidden=self.family.run(self.layer, state, self.config))
        return self.run_sublayers(state, keep, groups)[0]

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
            keep: As for ``forward``.
            groups: As for ``forward``.
            attention: Queries, keys and values of ``state`` if they are known already; None: computed here.
            scored: Whether token scores are wanted even if no token is dropped.
            first_only: Only position 0 leaves; the other tokens provide keys and values but no queries.

        Returns:
            What leaves, and the token scores (B, k) of the tokens that leave; None where nothing scored them.
        """
        context, scores = None, None
        if groups.runs("attention"):
            attention = attention or self.family.attention(self.layer, state)
            attention = attention.of_queries(1) if first_only else attention
            context, scores = self.mix(attention, groups, scored=scored or keep is not None)
        if first_only:
            state = replace(state, hidden=state.hidden[:, :1], real=state.real[:, :1])
        if keep is not None:
            assert context is not None
            assert scores is not None
            state, index = self.drop(state, scores, keep)
            # Before the output projection, so that it and what follows run on rows that stay.
            context, scores = tokens.gather(context, index), scores.gather(1, index)
        if context is not None:
            state = replace(state, hidden=self.family.merge(self.layer, context, state.hidden))
        if groups.runs("feed_forward"):
            state = replace(state, hidden=self.feed(state.hidden, groups))
        return state, scores

    def drop(self, state: State, scores: Tensor, keep: Keep) -> tuple[State, Tensor]:
        """The state of the best tokens of each row, and their indices (B, longest)."""
        assert not isinstance(keep, Tensor)
        return drop_tokens(state, scores, keep, self.keep_first)

    def mix(self, attention: Attention, groups: Groups, *, scored: bool) -> tuple[Tensor, Tensor | None]:
        """An attention sub-layer that runs, up to its output projection.

        Args:
            attention: Among all tokens; of as many queries as are wanted.
            groups: What is off.
            scored: Whether token scores are wanted; they need the queries of all tokens.

        Returns:
            Context (B, queries, heads' width), and token scores (B, n) or nothing.
        """
        heads = attention.queries.shape[1]
        on = [head for head in range(heads) if head not in groups.heads_off]
        if len(on) < heads:
            attention = attention.of_heads(on)
        dropout = self.family.attention_dropout(self.layer) if self.training else 0.0
        context, scores = tokens.attend(attention, self.score if scored else None, dropout)
        if len(on) < heads:
            kept = context
            context = kept.new_zeros(kept.shape[0], heads, *kept.shape[2:])
            context[:, on] = kept
        return context.transpose(1, 2).flatten(2), None if scores is None else scores.detach()

    def feed(self, hidden: Tensor, groups: Groups) -> Tensor:
        """A feed-forward sub-layer that runs: shape (B, n, d) in and out."""
        units = self.family.expand(self.layer, hidden)
        whole = int(units.shape[-1])  # a tensor while the model is traced
        if (width := groups.width(whole)) < whole:
            units = units * (torch.arange(whole, device=units.device) < width)
        return self.family.contract(self.layer, units, hidden)


def drop_tokens(state: State, scores: Tensor, keep: Sequence[int], keep_first: bool) -> tuple[State, Tensor]:
    """The state of the best tokens of each row, and their indices (B, longest).

    Args:
        state: Of n tokens.
        scores: Shape (B, n).
        keep: How many tokens of each row stay.
        keep_first: Whether position 0 always stays.
    """
    alike = min(keep) == max(keep)
    if alike and not state.padded:
        index, real = tokens.select_alike(scores, keep[0], keep_first), state.real[:, : keep[0]]
    else:
        counts = torch.tensor(keep, device=scores.device)
        index, real = tokens.select(scores, state.real, counts, keep_first)
    return state.take(state.hidden, index, real, padded=not alike), index


def split_heads(
    hidden: Tensor, linears: tuple[nn.Module, nn.Module, nn.Module], width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values: each projection of (B, n, d) split into heads, (B, H, n, width)."""
    shape = (0, 0, -1, width)
    queries, keys, values = (reshaped(linear(hidden), shape).transpose(1, 2) for linear in linears)
    return queries, keys, values


def real_positions(batch: Mapping[str, Tensor]) -> Tensor:
    """Shape (B, n), True where the batch's attention mask (all ones if absent) marks a token.

    Raises:
        SupernetError: If padding precedes a token (left-padded input).
    """
    mask = batch.get("attention_mask")
    if mask is None:
        return torch.ones_like(batch["input_ids"], dtype=torch.bool)
    real = mask.bool()
    # One question to the device: reading an answer waits for all that was queued there.
    if not bool((real[:, 0] & (real[:, 1:] <= real[:, :-1]).all(dim=1)).all()):
        raise SupernetError("left-padded input: encoders need padding on the right")
    return real


def put_back(sequence: Tensor, state: State) -> Tensor:
    """The sequence (B, n₀, d) with the state's real tokens at the positions they came from."""
    assert state.positions is not None
    index = state.positions[..., None].expand(-1, -1, sequence.shape[-1])
    # Under autocast the two may differ in precision, which scatter refuses.
    written = torch.where(state.real[..., None], state.hidden.to(sequence.dtype), sequence.gather(1, index))
    return sequence.scatter(1, index, written)


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
) -> Left:
    """Run the blocks of a stack one after the other.

    Where dropped tokens come back, each carries the output of the last block that processed it
    (Drop-and-Restore, Kim & Cho 2020, Sec. 3.3).

    Args:
        blocks: What runs.
        keeps: What each block keeps of what enters it; None: everything.
        entered: What enters the first block: a state, or anything else that ``run`` takes.
        run: Runs a block, given its id, what enters and what it keeps.
        between: Given a block, what entered and what left; gives what goes on.
        restore: Writes the tokens of its second argument back into its first; None: dropped tokens stay
            away.

    Returns:
        What leaves the last block, dropped tokens restored.
    """
    state, whole = entered, None
    for block, keep in zip(blocks, keeps, strict=True):
        before, state = state, run(block, state, keep)
        if between is not None:
            state = between(block, before, state)
        if keep is not None and restore is not None:
            whole = before if whole is None else restore(whole, before)
    return state if whole is None or restore is None else restore(whole, state)


def kept_of_rows(stack: Stack, true_lengths: Sequence[int]) -> list[tuple[int, ...] | None]:
    """Number of tokens of each row that leave each block; None where all of them leave.

    Args:
        stack: What runs.
        true_lengths: Tokens of each row without padding.
    """
    if stack.lengths is None:
        return [None] * len(stack.blocks)
    lengths, places = stack.lengths, range(len(stack.blocks))
    left = [tuple(lengths.kept(place, n) for n in true_lengths) for place in places]
    return [None if now == before else now for before, now in pairwise([tuple(true_lengths), *left])]


def restored(whole: State, state: State) -> State:
    """The whole state with the other's real tokens at the positions they came from."""
    return replace(whole, hidden=put_back(whole.hidden, state))


class Pipeline:
    """Stages of a stock encoder: embed, block i, head. Holds no weights of its own.

    Args:
        model: The stock model.
        family: How to take it apart.
        score: Which tokens are worth keeping.
        keep_first: Whether position 0 always stays.
        restores: Whether dropped tokens come back for what follows the last block.
    """

    def __init__(
        self, model: PreTrainedModel, family: Family, score: TokenScore, keep_first: bool, restores: bool
    ) -> None:
        self.model = model
        self.family = family
        self.restores = restores
        layers = family.layers(model)
        self.blocks = tuple(Block(layer, family, model.config, score, keep_first) for layer in layers)
        self.checkpointing = False

    def __call__(
        self, batch: Mapping[str, Tensor], stack: Stack, training: bool, between: Between | None = None
    ) -> State:
        """State behind the last block of the stack: all tokens if they are restored, else those kept."""
        entered, true_lengths = self.embed(batch, training)

        def run(block: int, state: State, keep: Sequence[int] | None) -> State:
            inputs = self.blocks[block], state, keep, stack.groups(block)
            if self.checkpointing and training and torch.is_grad_enabled():
                return cast(State, checkpoint(*inputs, use_reentrant=False))
            return cast(State, inputs[0](*inputs[1:]))

        def changed(block: int, before: State, after: State) -> State:
            assert between is not None
            return replace(after, hidden=between(block, before, after))

        return run_stages(
            stack.blocks,
            kept_of_rows(stack, true_lengths),
            entered,
            run,
            between=changed if between else None,
            restore=restored if self.restores else None,
        )

    def embed(self, batch: Mapping[str, Tensor], training: bool) -> tuple[State, list[int]]:
        """State that enters the first block, and the true length of each row."""
        for block in self.blocks:
            # Not a registered submodule: train() and eval() do not propagate to it.
            block.training = training
        state = self.family.embed(self.model, batch)
        # Here alone, since a device must be waited for.
        true_lengths: list[int] = state.real.sum(dim=1).tolist()
        return replace(state, padded=min(true_lengths) < state.real.shape[1]), true_lengths

    def finish(self, state: State) -> Tensor:
        """Last hidden states (B, n, d), as the head reads them."""
        return self.family.finish(self.model, state.hidden)

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
