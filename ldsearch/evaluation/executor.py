"""Runs many encoder sub-networks on one batch, each thing they have in common once.

Exact facts that it uses, none of them an approximation: what a common prefix computes is common; queries,
keys, values, token scores and feed-forward layers of a shorter sibling are rows of the longest one's; and a
head that reads the first token only needs one query of the last block, and no last length.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from ldsearch.costs.macs import EncoderShape
from ldsearch.errors import SupernetError
from ldsearch.evaluation.memory import WORK
from ldsearch.evaluation.prefixes import Kept, Node, Outcome, Path, PrefixCache, Step, grow
from ldsearch.subnet import WHOLE, Groups, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import evaluating
from ldsearch.supernet.tokens import Attention, State, drop_tokens, pairs, put_back

OnLogits = Callable[[Sequence[int], Tensor], None]


@dataclass
class Work:
    """Executed work.

    Args:
        evaluations: Block evaluations; one serves every sub-network with that prefix on that batch.
        hits: Block evaluations that an earlier run had made.
        heads: Head evaluations.
        macs: Multiply-accumulates of the blocks' and the head's matrix products, pads and masked units
            included. (The projection of narrower embeddings is charged with the head, as in ``Macs``, which
            counts no products of weights alone.)
    """

    evaluations: int = 0
    hits: int = 0
    heads: int = 0
    macs: int = 0


def shares_prefixes(supernet: Supernet) -> bool:
    """Whether an ``Executor`` can run it: encoders of a registered family. Others: ``StockExecutor``."""
    return supernet.pipeline is not None and list(supernet.stacks) == ["encoder"]


class Executor:
    """Runs many sub-networks of an encoder on a batch by walking their prefix tree depth-first.

    Logits equal those of ``supernet(batch, subnet)`` up to rounding. Alive at any time are the states of
    one path through the tree, whatever the number of sub-networks, and what a cache keeps within its own
    budget.

    Args:
        supernet: What the sub-networks belong to.
        budget: Bytes that the states of one path and the largest temporaries may take; it sets ``rows``.

    Raises:
        SupernetError: If the model is no encoder of a registered family.
    """

    def __init__(self, supernet: Supernet, budget: int = WORK) -> None:
        if not shares_prefixes(supernet):
            raise SupernetError(
                supernet.why_depth_only or "an encoder-decoder runs through its stock forward"
            )
        self.supernet = supernet
        self.budget = budget
        self.work = Work()

    def rows(self, length: int) -> int:
        """How many rows of ``length`` tokens fit the budget, at least one."""
        return max(1, self.budget // self.row_bytes(length))

    def row_bytes(self, length: int) -> int:
        """The most bytes that a row of ``length`` tokens takes while it runs."""
        shape = self.supernet.shape
        d, ff, reads_first = shape.hidden, shape.feed_forward, self.supernet.reads_first
        # Along the path: a state, its scores and positions, three shared projections, two restored inputs.
        level = length * ((4 if reads_first else 6) * d + 16)
        # In one block: projections, their gathered rows, context and merged; probabilities; or units.
        attention = length * 10 * d + 6 * shape.heads * length**2
        units = length * (4 * d + 2 * shape.ffn_matrices * ff)
        head = 0 if reads_first else length * (2 * d + 3 * shape.head_per_token // d)
        return 4 * ((shape.blocks + 1) * level + max(attention, units, head))

    def state_bytes(self, length: int) -> int:
        """Bytes that a cache keeps of a row of ``length`` tokens for one block evaluation, at most."""
        # The state and, where tokens come back, what they come back to; scores, positions and a mask.
        return length * ((4 if self.supernet.reads_first else 8) * self.supernet.shape.hidden + 13)

    def run(
        self,
        batch: Mapping[str, Tensor],
        subnets: Sequence[Subnet],
        on_logits: OnLogits,
        cache: PrefixCache | None = None,
    ) -> None:
        """Logits of every sub-network, in eval mode and without gradients.

        Args:
            batch: What the model reads, padded on the right.
            subnets: What to run, in any order; duplicates are welcome.
            on_logits: Called with the indices of sub-networks that act alike on this batch, and their logits;
                every index comes once.
            cache: What earlier runs on this very batch left; None: nothing is kept.

        Raises:
            SubnetError: If a sub-network does not fit the model.
            SupernetError: If the input is padded on the left.
        """
        stacks = [self.supernet.check(subnet)["encoder"] for subnet in subnets]
        assert self.supernet.pipeline is not None
        with evaluating(self.supernet, batch) as moved:
            walk = _Walk(self.supernet, moved, on_logits, self.work, cache)
            root = grow(stacks, walk.lengths, self.supernet.reads_first, walk.pinned)
            walk.fan({walk.lengths: root}, Outcome(walk.embedded, walk.lengths, entering=walk.lengths), ())


class _Walk:
    """One batch on its way through one tree."""

    def __init__(
        self,
        supernet: Supernet,
        batch: Mapping[str, Tensor],
        on_logits: OnLogits,
        work: Work,
        cache: PrefixCache | None,
    ) -> None:
        assert supernet.pipeline is not None
        self.batch, self.reads_first = batch, supernet.reads_first
        self.pipeline = supernet.pipeline
        self.on_logits, self.work, self.cache = on_logits, work, cache
        self.shape = supernet.shape
        self.embedded, true_lengths, pinned = self.pipeline.embed(batch)
        rows = list(zip(true_lengths, pinned or [1] * len(true_lengths), strict=True))
        distinct = sorted(set(rows))
        self.lengths, self.pinned = (tuple(side) for side in zip(*distinct, strict=True))
        self.which = [distinct.index(row) for row in rows]

    def fan(self, siblings: Mapping[Kept, Node], outcome: Outcome, path: Path) -> None:
        """The siblings of one block evaluation, and everything behind them."""
        uses: dict[int, list[tuple[Kept, Step]]] = {}
        for kept, node in siblings.items():
            if node.ends:
                self._answer(node.ends, self._sibling(outcome, kept)[0], outcome.restored_for(kept))
            for step in node.steps:
                uses.setdefault(step.block, []).append((kept, step))
        for block, steps in uses.items():
            known = [self._known((*path, kept, step), siblings[kept].steps[step]) for kept, step in steps]
            asking = [step for (_, step), left in zip(steps, known, strict=True) if left is None]
            # Queries, keys and values belong to a token: those of the longest serve every sibling.
            shared = len(asking) > 1 and any(step.groups.runs("attention") for step in asking)
            attention = None
            if shared:
                rows, n = outcome.state.real.shape
                self.work.macs += rows * n * self.shape.projecting
                family = self.pipeline.family
                attention = family.attention(family.parts(self.pipeline.blocks[block].layer), outcome.state)
            for (kept, step), left in zip(steps, known, strict=True):
                children, here = siblings[kept].steps[step], (*path, kept, step)
                if left is None:
                    left = self._evaluate(step, children, outcome, kept, attention)
                    if self.cache is not None:
                        self.cache.put(here, left)
                self.fan(children, left, here)

    def _known(self, path: Path, children: Iterable[Kept]) -> Outcome | None:
        """Outcome of an earlier run at this path, if these children can be derived from it."""
        left = None if self.cache is None else self.cache.get(path)
        if left is None or not left.serves(children, self.pipeline.restores):
            return None
        self.work.hits += 1
        return left

    def _evaluate(
        self,
        step: Step,
        children: Mapping[Kept, Node],
        before: Outcome,
        entering: Kept,
        attention: Attention | None,
    ) -> Outcome:
        """Run a block on one sibling, at the longest of its own children."""
        self.work.evaluations += 1
        state, index = self._sibling(before, entering)
        if attention is not None and index is not None:
            attention = rows_of(attention, index, state.real)
        block, (rows, n) = self.pipeline.blocks[step.block], state.real.shape
        projects = attention is None
        counts = [kept for kept in children if kept is not None]
        if not counts:
            state, _ = block.run_sublayers(state, None, step.groups, attention, first_only=True)
            self.work.macs += rows * block_macs(self.shape, step.groups, n, 1, 1, projects)
            return Outcome(state, None)
        restored, dropped, scores = before.restored_for(entering), None, None
        drops = any(kept != entering for kept in counts)
        # A later run may ask for any length, so what is kept is kept at the full one.
        longest = entering if self.cache is not None else tuple(map(max, zip(*counts, strict=True)))
        if step.groups == WHOLE and projects and not drops:
            state = block(state)
        else:
            if self.pipeline.restores and (drops or self.cache is not None):
                self.work.macs += rows * n * self.shape.mapping
                gone = block.left_behind(state)
                dropped = gone.hidden if restored is None else put_back(restored, gone)
            keep = None if longest == entering else self._of_rows(longest)
            state, scores = block.run_sublayers(state, keep, step.groups, attention, scored=True)
        left = state.real.shape[1]
        self.work.macs += rows * block_macs(self.shape, step.groups, n, n, left, projects)
        return Outcome(state, longest, scores, entering, restored, dropped)

    def _sibling(self, outcome: Outcome, kept: Kept) -> tuple[State, Tensor | None]:
        """A sibling's state, and which positions (B, k) of the longest it has; None: all of them."""
        if kept is None or kept == outcome.kept:
            return outcome.state, None
        assert outcome.scores is not None
        # Of the best k the best j are the best j of all, ties included.
        return drop_tokens(outcome.state, outcome.scores, self._of_rows(kept), self.reads_first)

    def _of_rows(self, kept: Kept) -> list[int]:
        """Tokens of each row, of those of each true length and what of it is pinned."""
        assert kept is not None
        return [kept[which] for which in self.which]

    def _answer(self, ends: Sequence[int], state: State, whole: Tensor | None) -> None:
        """The head, as ``Supernet.forward`` runs it."""
        self.work.heads += 1
        rows, n = self.embedded.real.shape
        self.work.macs += rows * (self.shape.head_per_example + n * self.shape.head_per_token)
        if self.reads_first:
            state = replace(state, hidden=state.hidden[:, :1], real=state.real[:, :1])
            mask: Tensor | None = state.real
        else:
            if whole is not None:
                state = replace(self.embedded, hidden=put_back(whole, state))
            mask = self.batch.get("attention_mask") if state.positions is None else state.real
        if state.entered is not None and state.positions is not None:
            self.work.macs += rows * self.shape.correcting
        self.on_logits(ends, logits_of(self.pipeline.head(state, mask)))


def rows_of(attention: Attention, index: Tensor, real: Tensor) -> Attention:
    """The attention among some tokens only: queries, keys and values belong to a token, as windows do.

    Args:
        attention: Among n tokens.
        index: Shape (B, k), positions among the n.
        real: Shape (B, k).
    """

    def of_heads(whole: Tensor) -> Tensor:
        return whole.gather(2, index[:, None, :, None].expand(-1, whole.shape[1], -1, whole.shape[3]))

    allowed = attention.allowed
    if allowed is not None:
        # Where a row is shorter here than others, its last positions hold tokens that are gone.
        allowed = pairs(allowed, index) & real[:, None, None, :]
    bias = attention.bias
    return replace(
        attention,
        queries=of_heads(attention.queries),
        keys=of_heads(attention.keys),
        values=of_heads(attention.values),
        real=real,
        allowed=allowed,
        bias=None if bias is None else pairs(bias, index),
    )


def block_macs(shape: EncoderShape, groups: Groups, n: int, queries: int, left: int, projects: bool) -> int:
    """Multiply-accumulates of one row's matrix products in a block as they are executed: on whole layers.

    Args:
        shape: The model's dimensions.
        groups: What is off.
        n: Tokens that enter, pads included.
        queries: Tokens that attend.
        left: Tokens that leave.
        projects: Whether queries, keys and values are computed here.
    """
    d, macs = shape.hidden, 0
    if groups.runs("attention"):
        inner = shape.inner
        on = inner - inner // shape.heads * len(groups.heads_off)
        macs = 2 * queries * n * on + left * inner * d + (n * shape.projecting if projects else 0)
    if groups.runs("feed_forward"):
        macs += left * shape.ffn_matrices * d * shape.feed_forward
    return macs
