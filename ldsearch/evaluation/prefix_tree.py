"""Which block evaluations many encoder stacks have in common on one batch: their prefix tree. No tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ldsearch.subnet import Groups, Stack, Subnet

# Tokens that leave a block, one count per distinct true length of the batch; None: only the first is read.
Kept = tuple[int, ...] | None


class Step(NamedTuple):
    """A block and what is off inside it."""

    block: int
    groups: Groups


@dataclass
class Node:
    """What follows one prefix.

    Args:
        ends: Indices of the stacks that end here; on this batch they are one and the same.
        steps: The block evaluations that follow, each with its outcomes by the tokens that leave it.
    """

    ends: list[int] = field(default_factory=list)
    steps: dict[Step, dict[Kept, "Node"]] = field(default_factory=dict)

    @property
    def evaluations(self) -> int:
        """Block evaluations from here on."""
        outcomes = [node for children in self.steps.values() for node in children.values()]
        return len(self.steps) + sum(node.evaluations for node in outcomes)


def grow(stacks: Sequence[Stack], lengths: Sequence[int], reads_first: bool) -> Node:
    """The prefix tree of stacks on inputs of some true lengths.

    Lengths are resolved to the tokens that really stay, so stacks that act alike on these inputs are one
    path, and a drop that keeps everything is none.

    Args:
        stacks: What runs.
        lengths: The distinct true lengths of the batch's rows.
        reads_first: Whether the head reads position 0 only; then nothing that happens to other tokens
            after the last attention can matter, and the last length is left open.
    """
    root = Node()
    for index, stack in enumerate(stacks):
        node, entering = root, tuple(lengths)
        for position, block in enumerate(stack.blocks):
            if stack.lengths is not None:
                entering = tuple(stack.lengths.kept(position, n) for n in lengths)
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
