"""Flexible depth: which blocks make up the sub-network of each depth (Wang, Xiao & Zhu 2020)."""

import itertools
from collections.abc import Callable, Collection, Mapping

from ldsearch.errors import SpaceError, unknown
from ldsearch.registry import Registry
from ldsearch.subnet import MOST_BLOCKS, Stack, Subnet

# Depth to its blocks, 0-based, in the order they were taken: only Seq's are not ascending.
Walks = Mapping[int, tuple[int, ...]]


def divisors(depth: int) -> tuple[int, ...]:
    """The depths that a stack of ``depth`` blocks is trained for (Eq. 4), ascending.

    Raises:
        SpaceError: If there is no block.
    """
    check_blocks(depth)
    return tuple(count for count in range(1, depth + 1) if depth % count == 0)


def check_blocks(depth: int) -> None:
    """Refuse a number of blocks that no stack has.

    Raises:
        SpaceError: If it is below 1 or absurd: what follows from it would be built first.
    """
    if not 1 <= depth <= MOST_BLOCKS:
        raise SpaceError(f"a stack has 1..{MOST_BLOCKS:,} blocks, not {depth}")


def warn_if_prime(depth: int) -> str | None:
    """A sentence for a depth with only 1 and itself as divisors, which the paper rules out; else None."""
    if len(divisors(depth)) != 2:
        return None
    return f"{depth} blocks is a prime depth: it has only 1 and {depth} as depth tasks"


def head(depth: int) -> Walks:
    """The first d blocks."""
    return {count: tuple(range(count)) for count in divisors(depth)}


def seq(depth: int) -> Walks:
    """The next d blocks after those of the depth before, going round."""
    walks, start = {}, 0
    for count in divisors(depth):
        walks[count] = tuple((start + step) % depth for step in range(count))
        start += count
    return walks


def left(depth: int) -> Walks:
    """The first block of each of d equal chunks."""
    return {count: tuple(range(0, depth, depth // count)) for count in divisors(depth)}


def middle_left(depth: int) -> Walks:
    """The middle block of each of d equal chunks, the left one of two."""
    return {count: tuple(range(_middle(depth // count), depth, depth // count)) for count in divisors(depth)}


def optimal(depth: int) -> Walks:
    """Middle-left among the blocks that no other depth has used yet (Sec. 3).

    The text leaves open what to take where the middle block is used: here the next unused one to its right
    in its chunk, going round, which gives both numbers of the paper's Table 3. The deepest depth that finds
    a block in each of its chunks is next; when none does, all blocks count as unused again.
    """
    walks: dict[int, tuple[int, ...]] = {}
    todo, alive = [*reversed(divisors(depth))], {*range(depth)}
    while todo:
        fitting = ((count, walk) for count in todo if (walk := _alive_walk(depth, count, alive)))
        count, walk = next(fitting, (0, ()))
        if not walk:
            alive = {*range(depth)}
            continue
        walks[count] = walk
        todo.remove(count)
        alive -= {*walk}
    return {count: walks[count] for count in divisors(depth)}


def _middle(size: int) -> int:
    return -(-size // 2) - 1


def _alive_walk(depth: int, count: int, alive: Collection[int]) -> tuple[int, ...]:
    """One alive block of each chunk; nothing where a chunk has none."""
    size = depth // count
    offsets = [(_middle(size) + step) % size for step in range(size)]
    nearest = [
        next((start + offset for offset in offsets if start + offset in alive), None)
        for start in range(0, depth, size)
    ]
    walk = tuple(block for block in nearest if block is not None)
    return walk if len(walk) == count else ()


ASSIGNMENTS: Registry[Callable[[int], Walks]] = Registry(
    "assignments",
    {"head": head, "seq": seq, "left": left, "middle-left": middle_left, "optimal": optimal},
)


def assignment_named(name: str, depth: int) -> dict[int, tuple[int, ...]]:
    """The blocks of each depth, 0-based and ascending: the same in training and in inference.

    Args:
        name: One of ``ASSIGNMENTS``.
        depth: Number of blocks of the stack.

    Raises:
        SpaceError: If there is none of that name, or it does not give every divisor so many blocks.
    """
    if name not in ASSIGNMENTS:
        raise SpaceError(unknown("assignment", name, ASSIGNMENTS))
    chosen = {count: tuple(sorted(walk)) for count, walk in ASSIGNMENTS[name](depth).items()}
    sizes = [(count, len({*blocks} & {*range(depth)}), len(blocks)) for count, blocks in chosen.items()]
    if sorted(sizes) != [(count, count, count) for count in divisors(depth)]:
        raise SpaceError(f"assignment {name!r} must give each divisor of {depth} so many of its blocks")
    return chosen


def configurations(depths: Mapping[str, int], assignment: str) -> dict[tuple[int, ...], Subnet]:
    """Every depth configuration of a model: (m, n), or (n,) where there is one stack; shallow first.

    Args:
        depths: Number of blocks of each stack, ``"encoder"`` and ``"decoder"`` (``Supernet.depths``).
        assignment: One of ``ASSIGNMENTS``, for all stacks.

    Raises:
        SpaceError: If a stack, a depth or the assignment makes no sense.
    """
    names = [name for name in ("encoder", "decoder") if name in depths]
    if not names or {*depths} - {*names}:
        raise SpaceError(f"depths are those of an encoder, a decoder or both, not of {sorted(depths)}")
    sets = [assignment_named(assignment, depths[name]) for name in names]
    return {
        key: Subnet(**{name: Stack(of[count]) for name, of, count in zip(names, sets, key, strict=True)})
        for key in itertools.product(*sets)
    }
