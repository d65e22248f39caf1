"""The prefix tree of encoder stacks on one batch, and a cache of what its block evaluations leave."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from ldsearch.subnet import Groups, Stack, Subnet
from ldsearch.supernet.tokens import State

# Tokens that leave a block, one count per distinct true length of the batch; None: only the first is read.
Kept = tuple[int, ...] | None


class Step(NamedTuple):
    """A block and what is off inside it."""

    block: int
    groups: Groups


@dataclass
class Node:
    """Continuations of one prefix.

    Args:
        ends: Indices of the stacks that end here; on this batch they are one and the same.
        steps: The block evaluations that follow, each with its outcomes by the tokens that leave it.
    """

    ends: list[int] = field(default_factory=list)
    steps: dict[Step, dict[Kept, "Node"]] = field(default_factory=dict)


def grow(
    stacks: Sequence[Stack],
    lengths: Sequence[int],
    reads_first: bool,
    pinned: Sequence[int] | None = None,
) -> Node:
    """The prefix tree of stacks on inputs of some true lengths.

    Lengths are resolved to the tokens that really stay, so stacks that act alike on these inputs are one
    path, and a drop that keeps everything is none.

    Args:
        stacks: What runs.
        lengths: The true lengths of the batch's rows, distinct but for what is pinned.
        reads_first: Whether the head reads position 0 only; then nothing that happens to other tokens
            after the last attention can matter, and the last length is left open.
        pinned: How many tokens at each of the lengths are never dropped; None: one.
    """
    rows = list(zip(lengths, pinned or [1] * len(lengths), strict=True))
    root = Node()
    for index, stack in enumerate(stacks):
        node, entering = root, tuple(lengths)
        for position, block in enumerate(stack.blocks):
            if stack.lengths is not None:
                entering = tuple(max(stack.lengths.kept(position, n), least) for n, least in rows)
            last = reads_first and position == len(stack.blocks) - 1
            children = node.steps.setdefault(Step(block, stack.groups(block)), {})
            node = children.setdefault(None if last else entering, Node())
        node.ends.append(index)
    return root


def path_of(subnet: Subnet) -> tuple[tuple[object, ...], ...]:
    """Blocks one after the other, each with what is off in it and what leaves it."""
    path: list[tuple[object, ...]] = []
    for stack in subnet.stacks().values():
        for position, block in enumerate(stack.blocks):
            groups = stack.groups(block)
            left = stack.lengths.tokens[position] / stack.lengths.reference if stack.lengths else 1.0
            path.append((block, groups.heads_off, groups.ffn_share, groups.sublayers_off, left))
    return tuple(path)


# From the embeddings to a block evaluation: which tokens enter each block, and the block.
Path = tuple[Kept | Step, ...]


@dataclass(frozen=True)
class Outcome:
    """Result of a block evaluation: the longest sibling, and what the shorter ones are made of.

    Args:
        state: What leaves the block in the longest.
        kept: Its tokens.
        scores: Shape (B, n) of its n positions; None where the block did not score.
        entering: The tokens that entered the block.
        restored: The restored sequence (B, n₀, d) of a sibling that drops nothing here; None before a drop.
        dropped: That of one that drops.
    """

    state: State
    kept: Kept
    scores: Tensor | None = None
    entering: Kept = None
    restored: Tensor | None = None
    dropped: Tensor | None = None

    def restored_for(self, kept: Kept) -> Tensor | None:
        """The restored sequence of a sibling."""
        return self.restored if kept == self.entering else self.dropped

    def serves(self, siblings: Iterable[Kept], restores: bool) -> bool:
        """Whether these siblings can be derived from it.

        Args:
            siblings: Their tokens; position 0 alone is in every state.
            restores: Whether dropped tokens come back before the head.
        """
        counts = [kept for kept in siblings if kept is not None]
        if all(kept == self.kept for kept in counts):
            return True
        return self.kept is not None and self.scores is not None and not (restores and self.dropped is None)

    @property
    def bytes(self) -> int:
        """Bytes of the storages; ``restored`` belongs to the outcome that made it."""
        state = self.state
        held = (state.hidden, state.real, state.positions, *state.per_token.values())
        held = (*held, self.scores, self.dropped)
        return sum({t.data_ptr(): t.untyped_storage().nbytes() for t in held if t is not None}.values())


class PrefixCache:
    """Outcomes by the path that leads to them; what was used last stays longest.

    Who uses an outcome uses all that lead to it, so a prefix outlives what hangs on it: a sweep over more
    than fits does not throw out the very things that it comes back to.

    Args:
        budget: Bytes of what is kept.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.bytes = 0
        self._kept: OrderedDict[Path, Outcome] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, path: Path) -> Outcome | None:
        """Outcome at a path; None if it is not kept."""
        self._use(path)
        return self._kept.get(path)

    def put(self, path: Path, outcome: Outcome) -> None:
        """Keep it, unless it alone is too large."""
        self._drop(path)
        if outcome.bytes <= self.budget:
            self._kept[path] = outcome
            self.bytes += outcome.bytes
            self._use(path)
            while self.bytes > self.budget:
                self._drop(next(iter(self._kept)))

    def _use(self, path: Path) -> None:
        for end in range(len(path), 0, -2):  # a step and what entered it
            if path[:end] in self._kept:
                self._kept.move_to_end(path[:end])

    def _drop(self, path: Path) -> None:
        if (gone := self._kept.pop(path, None)) is not None:
            self.bytes -= gone.bytes
