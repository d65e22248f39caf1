"""What of a supernet is searched: a named space, or one made of the genes that are asked for."""

from dataclasses import asdict, replace
from typing import Any

from ldsearch.bench import Workbench
from ldsearch.errors import SpaceError, unknown
from ldsearch.space import load_space
from ldsearch.space.blocks import DepthSpace
from ldsearch.space.lengths import LengthSpace
from ldsearch.space.space import JointSpace
from ldsearch.subnet import WHOLE, Groups
from ldsearch.supernet import Supernet

Searched = LengthSpace | JointSpace
GENES = ("lengths", "depth", "ffn", "head", "sublayer")
# A third of the blocks is the least that is searched, unless a space says otherwise or one alone was trained.
_SHALLOWEST = 3


def search_space(
    bench: Workbench, name: str | None = None, genes: str | None = None, parity: bool = False
) -> Searched:
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
    supernet = bench.supernet
    if name is not None:
        if genes is not None:
            raise SpaceError(f"the search space {name} says what is searched: name it or --genes, not both")
        return _named(bench, name)
    kinds = ("lengths" if supernet.supports_lengths else "depth",) if genes is None else kinds_of(genes)
    if kinds == ("lengths",):
        return bench.length_space(None, parity)
    if parity:
        raise SpaceError("--parity is the length-adaptive paper's search: it takes no --genes but lengths")
    return JointSpace(
        name="+".join(kinds),
        source="built from the supernet's own training",
        depths=_depths(supernet, "depth" in kinds, 1 if bench.record.strategy == "flexible-depth" else None),
        lengths=bench.length_space(None, parity=False) if "lengths" in kinds else None,
        options=_options(supernet, kinds),
    )


def pinned_of(supernet: Supernet, stack: str) -> tuple[int, ...]:
    """The blocks of a stack that always run."""
    return supernet.pinned if stack == supernet.stack else ()


def identity_of(space: Searched) -> dict[str, Any]:
    """What makes two spaces the same; their names do not."""
    fields = {key: value for key, value in asdict(space).items() if key not in ("name", "source")}
    if isinstance(space, JointSpace):
        fields["depths"] = [[depth.stack, list(depth.keep)] for depth in space.depths]
        fields["lengths"] = None if space.lengths is None else identity_of(space.lengths)
    return fields


def _named(bench: Workbench, name: str) -> Searched:
    space = load_space(name)
    if isinstance(space, DepthSpace):
        space = JointSpace(space.name, space.source, (space,))
    if not isinstance(space, JointSpace):
        return bench.length_space(name, parity=False)
    own = [(stack, blocks) for stack, blocks in bench.supernet.depths.items()]
    if [(depth.stack, depth.blocks) for depth in space.depths] != own:
        raise SpaceError(f"the search space {space.name} is for another number of blocks than {dict(own)}")
    if space.lengths is not None:
        bench.check_lengths(space.lengths, space.name)
    supernet = bench.supernet
    depths = tuple(replace(own, pinned=pinned_of(supernet, own.stack)) for own in space.depths)
    return replace(space, depths=depths)


def kinds_of(genes: str) -> tuple[str, ...]:
    """Genes joined by ``+``, in the order of ``GENES``.

    Raises:
        SpaceError: If one is unknown, or named twice.
    """
    kinds = genes.split("+")
    if len(set(kinds)) < len(kinds) or not set(kinds) <= set(GENES):
        raise SpaceError(f"{unknown('genes', genes, GENES)}, or different ones joined by +")
    return tuple(kind for kind in GENES if kind in kinds)


def _depths(supernet: Supernet, free: bool, trained: int | None) -> tuple[DepthSpace, ...]:
    depths = []
    for stack, blocks in supernet.depths.items():
        pinned = pinned_of(supernet, stack)
        least = max(trained or -(-blocks // _SHALLOWEST), len(pinned)) if free else blocks
        depths.append(
            DepthSpace("depth", "the trained blocks", blocks, tuple(range(least, blocks + 1)), pinned, stack)
        )
    return tuple(depths)


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
    found = {
        "ffn": [Groups(ffn_share=0.5)],
        "head": [
            Groups(heads_off=tuple(range(heads // 2))),
            Groups(heads_off=tuple(range(heads // 2, heads))),
        ],
        "sublayer": [Groups(sublayers_off=("attention",)), Groups(sublayers_off=("feed_forward",))],
    }
    return (WHOLE, *(option for kind, options in found.items() if kind in finer for option in options))
