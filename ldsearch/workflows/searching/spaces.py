"""The search space of a supernet: a named one, or one of the genes that it was trained for."""

from dataclasses import replace

from ldsearch.bench import Workbench
from ldsearch.errors import SpaceError, unknown
from ldsearch.space import GENES, DepthGenes, LengthGenes, Space, load_space
from ldsearch.space.lengths import default_bound
from ldsearch.subnet import WHOLE, Groups
from ldsearch.supernet import Supernet

# A third of the blocks is the least that is searched, unless a space says otherwise or one alone was trained.
_SHALLOWEST = 3


def search_space(
    bench: Workbench, name: str | None = None, genes: str | None = None, parity: bool = False
) -> Space:
    """The named space; or one of the genes, over the range that was trained.

    Args:
        bench: The supernet.
        name: A shipped search space or a YAML file.
        genes: Of ``GENES``, joined by ``+``: ``"depth+lengths"``. ``ffn``, ``head`` and ``sublayer`` are the
            groups that ``--drop-groups`` trains. None: lengths, where the model can drop tokens, else depth.
        parity: For lengths alone: every length instead of 16 levels, and no pinned last length.

    Raises:
        SpaceError: If there is no such space or gene, or the supernet cannot be searched so.
    """
    supernet, record = bench.supernet, bench.record
    if name is not None:
        if genes is not None:
            raise SpaceError(f"the search space {name} says what is searched: name it or --genes, not both")
        return _named(bench, name)
    kinds = ("lengths" if supernet.supports_lengths else "depth",) if genes is None else kinds_of(genes)
    if parity and kinds != ("lengths",):
        raise SpaceError("--parity is the length-adaptive paper's search: it takes no --genes but lengths")
    lengths = None
    if "lengths" in kinds:
        if not supernet.supports_lengths:
            raise SpaceError(f"{supernet.why_depth_only}; select --strategy every-other cuts its depth")
        lengths = LengthGenes.build(
            record.blocks,
            record.reference,
            record.drop_bound or default_bound(record.blocks),
            levels=None if parity else 16,
            mode="absolute" if record.length_mode == "absolute" else "ratio",
            pin_last=supernet.reads_first and not parity,
        )
    depths = tuple(_depth(bench, stack, "depth" in kinds) for stack in supernet.depths)
    source = "built from the supernet's own training"
    return Space("+".join(kinds), source, depths, lengths, _options(supernet, kinds)).widened()


def pinned_of(supernet: Supernet, stack: str) -> tuple[int, ...]:
    """The blocks of a stack that always run."""
    return supernet.pinned if stack == supernet.stack else ()


def kinds_of(genes: str) -> tuple[str, ...]:
    """Genes joined by ``+``, in the order of ``GENES``.

    Raises:
        SpaceError: If one is unknown, or named twice.
    """
    kinds = genes.split("+")
    if len(set(kinds)) < len(kinds) or not set(kinds) <= set(GENES):
        raise SpaceError(f"{unknown('genes', genes, GENES)}, or different ones joined by +")
    return tuple(kind for kind in GENES if kind in kinds)


def _named(bench: Workbench, name: str) -> Space:
    space, record, supernet = load_space(name), bench.record, bench.supernet
    depths = {depth.stack: depth for depth in space.depths}
    if "depth" not in space.varies and {*depths} < {*supernet.depths}:
        # A space of an encoder's lengths fits the encoder of an encoder-decoder, whose decoder stays whole.
        others = {stack: DepthGenes.whole(stack, blocks) for stack, blocks in supernet.depths.items()}
        depths = others | depths
    if {stack: depth.blocks for stack, depth in depths.items()} != dict(supernet.depths):
        own = {stack: depth.blocks for stack, depth in depths.items()}
        raise SpaceError(
            f"the search space {space.name} is for {own} blocks, the supernet has {dict(supernet.depths)}"
        )
    if space.lengths is not None:
        if not supernet.supports_lengths:
            raise SpaceError(f"{supernet.why_depth_only}; select --strategy every-other cuts its depth")
        if space.lengths.reference != record.reference:
            raise SpaceError(
                f"the search space {space.name} refers to {space.lengths.reference} tokens, the supernet was "
                f"trained at {record.reference}"
            )
        if space.lengths.mode != record.length_mode:
            raise SpaceError(
                f"the search space {space.name} has {space.lengths.mode} lengths, the supernet was trained "
                f"with {record.length_mode} ones"
            )
    pinned = {
        stack: replace(depth, pinned=pinned_of(supernet, stack)) if isinstance(depth, DepthGenes) else depth
        for stack, depth in depths.items()
    }
    return replace(space, depths=tuple(pinned[stack] for stack in supernet.depths)).widened()


def _depth(bench: Workbench, stack: str, free: bool) -> DepthGenes:
    blocks, pinned = bench.supernet.depths[stack], pinned_of(bench.supernet, stack)
    if not free:
        return DepthGenes(stack, blocks, (blocks,), pinned)
    least = 1 if bench.record.strategy == "flexible-depth" else -(-blocks // _SHALLOWEST)
    return DepthGenes(stack, blocks, tuple(range(max(least, len(pinned)), blocks + 1)), pinned)


def _options(supernet: Supernet, kinds: tuple[str, ...]) -> tuple[Groups, ...]:
    """Nothing off, then for each kind of group what ``--drop-groups`` may have off, the halves of heads."""
    finer = set(kinds) & {"ffn", "head", "sublayer"}
    if not finer:
        return (WHOLE,)
    if not supernet.supports_lengths or len(supernet.stacks) > 1:
        raise SpaceError(supernet.why_depth_only or "inside a decoder's blocks nothing can be off")
    heads = supernet.shape.heads
    if "head" in finer and heads < 2:
        raise SpaceError("blocks of one head have no half of them to leave out")
    groups = {
        "ffn": [Groups(ffn_share=0.5)],
        "head": [
            Groups(heads_off=tuple(range(heads // 2))),
            Groups(heads_off=tuple(range(heads // 2, heads))),
        ],
        "sublayer": [Groups(sublayers_off=("attention",)), Groups(sublayers_off=("feed_forward",))],
    }
    return (WHOLE, *(option for kind, options in groups.items() if kind in finer for option in options))
