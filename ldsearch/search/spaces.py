"""The search space of a supernet: what it was trained for, a named space, or a wider one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ldsearch.bench import Bench
from ldsearch.errors import RunError, SpaceError, TrainingError, unknown
from ldsearch.space import GENES, BlockGenes, DepthGenes, LengthGenes, ListedDepths, Space, load_space
from ldsearch.space.lengths import as_rate, constant_ratio_lengths, default_bound
from ldsearch.space.space import grouped
from ldsearch.subnet import LengthMode, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.cutting import repeats
from ldsearch.training.strategies import STRATEGIES, Setting, StackSetting
from ldsearch.training.strategies.layerdrop import options_of

# A third of the blocks is the least that is searched, unless a space says otherwise or one alone was trained.
_SHALLOWEST = 3
LEVELS = 16
LEAST_SHARE = 0.1  # of the full model's MACs, for --widen
_RATES = 100  # constant ratios that are tried for it
_GROUPS = {"ffn": "feed-forward halves", "head": "attention heads", "sublayer": "sub-layers"}


def trained_space(bench: Bench) -> Space:
    """The space that the supernet was trained on, as its record carries it.

    Records from before they carried it have the options of the training, whose strategy says the space.

    Raises:
        SpaceError: If the record carries none that can be read.
    """
    record, supernet = bench.record, bench.supernet
    if record.space is not None:
        space = Space.from_dict(record.space)
        stated = {depth.stack: depth.blocks for depth in space.depths}
        reference = record.reference if space.lengths is None else space.lengths.reference
        if stated != dict(supernet.depths) or reference != record.reference:
            raise SpaceError(f"{bench.folder.name} records a space of another model: it is damaged")
        return space
    stacks = {
        name: StackSetting(
            depth,
            tuple(record.rates_of(name)) or (record.layer_drop,) * depth,
            supernet.pinned_of(name),
            int(record.training.get("min_layers") or 0),
            supernet.shape.heads if name == "encoder" and supernet.supports_lengths else 0,
        )
        for name, depth in supernet.depths.items()
    }
    tasks: Mapping[str, Any] = record.training.get("depth_tasks") or {}
    setting = Setting(
        stacks,
        record.reference,
        as_rate(record.drop_bound) if record.drop_bound else Fraction(0),
        "absolute" if record.length_mode == "absolute" else "ratio",
        drop_groups=str(record.training.get("drop_groups") or "layer"),
        assignment=str(tasks.get("assignment", "optimal")),
        depth_lengths=bool(tasks.get("lengths")),
    )
    return STRATEGIES[record.strategy](setting).space if record.strategy in STRATEGIES else setting.whole


def search_space(
    bench: Bench,
    name: str | None = None,
    genes: str | None = None,
    parity: bool = False,
    widen: bool = False,
) -> Space:
    """The named space; or one of the genes, over the range that was trained.

    A kind of gene that was not trained is searched only where ``genes`` or the space names it, over its whole
    range; ``training_gaps`` says so.

    Args:
        bench: The supernet.
        name: A shipped search space or a YAML file.
        genes: Of ``GENES``, joined by ``+``: ``"depth+lengths"``. ``ffn``, ``head`` and ``sublayer`` are the
            groups that ``--drop-groups`` trains. None: those that were trained; where only the full model
            was, lengths if the model can drop tokens, else depth.
        parity: For lengths alone, as the reference code searches: every length instead of 16 levels, no
            pinned last length, and ``widen``.
        widen: Search beyond what was trained: any length of any block (``Space.widened``), blocks that were
            never skipped, depths that were not listed; lengths alone down to ``LEAST_SHARE``.

    Raises:
        SpaceError: If there is no such space or gene, or the supernet cannot be searched so.
    """
    if name is not None:
        if genes is not None:
            raise SpaceError(f"the search space {name} says what is searched: name it or --genes, not both")
        named = _named(bench, name)
        return named.widened() if widen else named
    supernet = bench.supernet
    trained = trained_space(bench)
    lone = ("lengths" if supernet.supports_lengths else "depth",)
    kinds = kinds_of(genes) if genes is not None else lone if parity else trained.varies or lone
    if parity and kinds != ("lengths",):
        raise SpaceError("--parity is the length-adaptive paper's search: it takes no --genes but lengths")
    lengths = _lengths(bench, trained, parity) if "lengths" in kinds else None
    depths = tuple(
        _depth(bench, depth, widen) if "depth" in kinds else DepthGenes.whole(depth.stack, depth.blocks)
        for depth in trained.depths
    )
    if repeats(supernet.model.config):  # only how many of its blocks run makes a difference
        depths = tuple(
            ListedDepths(depth.stack, depth.blocks, tuple(tuple(range(count)) for count in depth.keep))
            for depth in depths
        )
    finer = [kind for kind in kinds if kind in _GROUPS]
    if finer and supernet.why_no_groups:
        raise SpaceError(supernet.why_no_groups)
    try:
        options = options_of(finer, supernet.shape.heads if finer else 0)
    except TrainingError as error:
        raise SpaceError(str(error)) from error
    space = Space("+".join(kinds), "built from the supernet's training", depths, lengths, options)
    if not (widen or parity):
        return space
    wide = space.widened()
    if parity or wide.lengths is None or "depth" in kinds:  # fewer blocks are cheaper already
        return wide
    return replace(wide, lengths=_deepened(bench, wide.lengths))


def _deepened(bench: Bench, lengths: LengthGenes) -> LengthGenes:
    """The same lengths down to the constant ratio that costs ``LEAST_SHARE``, where training ended before."""
    blocks, reference = len(lengths.floors), lengths.reference
    ratios = [
        tuple(
            next(level for level in lengths.levels if level >= max(tokens, floor))
            for tokens, floor in zip(
                constant_ratio_lengths(reference, blocks, Fraction(step, _RATES)), lengths.floors, strict=True
            )
        )
        for step in range(_RATES)
    ]
    lines = [Subnet.of_encoder(range(blocks), own, reference, lengths.mode) for own in ratios]
    full, trained, *costs = bench.macs(
        [bench.full, Subnet.of_encoder(range(blocks), lengths.least, reference, lengths.mode), *lines]
    )
    cheaper = [
        (cost, own) for cost, own in zip(costs, ratios, strict=True) if LEAST_SHARE * full <= cost < trained
    ]
    return replace(lengths, least=min(cheaper)[1]) if cheaper else lengths


def rule_space(
    bench: Bench,
    strategy: str,
    chooses: str,
    keep: int | Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    name: str | None = None,
) -> Space:
    """The space of a rule, or of a search among sub-networks of given depths, trained or not.

    Args:
        bench: The supernet.
        strategy: For messages.
        chooses: What it chooses (``Search.chooses``).
        keep: How many blocks of each stack, in their order or by name; a stack that is not named stays
            whole. None: any number.
        name: A named space, for rules that choose lengths.

    Raises:
        RunError: If keep or name do not go with the rule, or there are not so many stacks or depths.
        SpaceError: If there are not so many blocks, or the named space does not fit.
    """
    supernet = bench.supernet
    if chooses == "lengths":
        if keep is not None:
            raise RunError(f"{strategy} shortens inputs and keeps every block: it takes no --keep")
        return search_space(bench, name, None if name else "lengths")
    if name is not None:
        raise RunError(f"{strategy} chooses blocks and takes no --space")
    if isinstance(keep, Mapping):
        if any(len(counts) != 1 for counts in keep.values()) or not set(keep) <= set(supernet.depths):
            raise RunError(f"--keep takes one number of blocks for {' and '.join(supernet.depths)} each")
        keep = [keep[stack][0] if stack in keep else blocks for stack, blocks in supernet.depths.items()]
    keep = [keep] if isinstance(keep, int) else keep
    if keep is not None and len(keep) != len(supernet.depths):
        raise RunError(
            f"--keep names {len(keep)} numbers of blocks; this model has {len(supernet.depths)} "
            f"({' and '.join(supernet.depths)}): --keep {','.join(map(str, supernet.depths.values()))} is all"
        )
    depths: list[BlockGenes] = []
    for index, (stack, blocks) in enumerate(supernet.depths.items()):
        counts = range(1, blocks + 1) if keep is None else (keep[index],)
        if chooses == "assignment":
            listed = ListedDepths.assigned(stack, blocks, trained_assignment(bench))
            choices = tuple(choice for choice in listed.choices if len(choice) in counts)
            if not choices:
                raise RunError(f"the assignment has {stack} depths {list(listed.keep)}, not {counts[0]}")
            depths.append(replace(listed, choices=choices))
        else:
            pinned = supernet.pinned_of(stack)
            counts = counts if keep is not None else range(max(1, len(pinned)), blocks + 1)
            depths.append(DepthGenes(stack, blocks, tuple(counts), pinned))
    return Space(chooses, "any blocks, trained or not", tuple(depths))


def trained_assignment(bench: Bench) -> str:
    """The assignment a supernet was trained with; ``"optimal"`` where it was not."""
    tasks = bench.record.training.get("depth_tasks") or {}
    return str(tasks.get("assignment", "optimal"))


def training_gaps(bench: Bench, space: Space) -> list[str]:
    """Warnings about what of a searched space training never covered."""
    trained, record, smallest = trained_space(bench), bench.record, space.smallest()
    depths = {depth.stack: depth for depth in trained.depths}
    notes = [
        note
        for name, stack in smallest.stacks().items()
        if (note := _depth_gap(bench, depths[name], stack.blocks))
    ]
    for depth, searched in zip(trained.depths, space.depths, strict=True):
        if isinstance(depth, ListedDepths) and searched.keep != (searched.blocks,):
            listed = searched.choices if isinstance(searched, ListedDepths) else ((),)
            if not {*listed} <= {*depth.choices}:
                notes.append(
                    f"of the {depth.stack} only {len(depth.choices)} choices of blocks were trained: scores "
                    "of others will suffer"
                )
    notes += [
        f"{words} were not trained (--drop-groups {kind}): scores will suffer"
        for kind, words in _GROUPS.items()
        if kind in space.varies and kind not in trained.varies
    ]
    stack = smallest.encoder
    if stack is None or stack.lengths is None:
        return notes
    if trained.lengths is None:
        return [
            *notes,
            f"lengths were not trained ({record.strategy}): scores of shortened inputs will suffer",
        ]
    # A head that reads the first token only does not see how many leave the last block.
    seen = len(stack.blocks) - bench.supernet.reads_first
    shares = zip(stack.blocks[:seen], stack.lengths.tokens, trained.lengths.floors, strict=False)
    if below := [block for block, tokens, floor in shares if tokens < floor]:
        notes.append(
            f"the search space goes below the trained lengths (bound {record.drop_bound}) at blocks "
            f"{', '.join(map(str, below))}: scores there will suffer"
        )
    bound = space.lengths.drop_bound or 1 if space.lengths is not None else 0
    if Fraction(bound) > Fraction(trained.lengths.drop_bound or 1):
        notes.append(
            f"single blocks may drop more than the {trained.lengths.drop_bound} of their tokens that were "
            "dropped in training: scores there may suffer"
        )
    return notes


def kinds_of(genes: str) -> tuple[str, ...]:
    """Genes joined by ``+``, in the order of ``GENES``.

    Raises:
        SpaceError: If one is unknown, or named twice.
    """
    kinds = genes.split("+")
    if len(set(kinds)) < len(kinds) or not set(kinds) <= set(GENES):
        raise SpaceError(f"{unknown('genes', genes, GENES)}, or different ones joined by +")
    return tuple(kind for kind in GENES if kind in kinds)


def _named(bench: Bench, name: str) -> Space:
    space, record, supernet = load_space(name), bench.record, bench.supernet
    depths: dict[str, BlockGenes] = {depth.stack: depth for depth in space.depths}
    if "depth" not in space.varies and {*depths} < {*supernet.depths}:
        # A space of an encoder's lengths fits the encoder of an encoder-decoder, whose decoder stays whole.
        for stack, blocks in supernet.depths.items():
            depths.setdefault(stack, DepthGenes.whole(stack, blocks))
    if {stack: depth.blocks for stack, depth in depths.items()} != dict(supernet.depths):
        stated = {stack: depth.blocks for stack, depth in depths.items()}
        raise SpaceError(
            f"the search space {space.name} is for {stated} blocks, the supernet has {dict(supernet.depths)}"
        )
    for option in space.options[1:]:
        supernet.check(Subnet(**{depth.stack: grouped((0,), {0: option}) for depth in space.depths}))
    if space.lengths is not None:
        _require_lengths(supernet)
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
        stack: replace(depth, pinned=supernet.pinned_of(stack)) if isinstance(depth, DepthGenes) else depth
        for stack, depth in depths.items()
    }
    return replace(space, depths=tuple(pinned[stack] for stack in supernet.depths))


def _require_lengths(supernet: Supernet) -> None:
    if not supernet.supports_lengths:
        raise SpaceError(f"{supernet.why_depth_only}; evolve --strategy every-other cuts its depth")


def _lengths(bench: Bench, trained: Space, parity: bool) -> LengthGenes:
    """The trained lengths on the grid of a search, or the default range where none were trained."""
    record, supernet = bench.record, bench.supernet
    _require_lengths(supernet)
    mode: LengthMode = "absolute" if record.length_mode == "absolute" else "ratio"
    lengths = trained.lengths or LengthGenes.build(
        record.blocks, record.reference, default_bound(record.blocks), levels=None, mode=mode
    )
    lengths = replace(lengths, pin_last=supernet.reads_first and not parity)
    return lengths if parity else lengths.on_grid(LEVELS)


def _depth(bench: Bench, trained: BlockGenes, widen: bool) -> BlockGenes:
    """The trained choices of blocks that are not too shallow, or any where none were trained."""
    blocks, pinned = trained.blocks, bench.supernet.pinned_of(trained.stack)
    if isinstance(trained, ListedDepths) and not widen:
        return trained
    least = trained.keep[0] if isinstance(trained, ListedDepths) else -(-blocks // _SHALLOWEST)
    if len(trained.keep) > 1 and not widen:
        assert isinstance(trained, DepthGenes)
        return replace(trained, keep=tuple(count for count in trained.keep if count >= least))
    return DepthGenes(trained.stack, blocks, tuple(range(max(least, len(pinned)), blocks + 1)), pinned)


def _depth_gap(bench: Bench, trained: BlockGenes, blocks: tuple[int, ...]) -> str:
    """Warnings about blocks that training never left out; empty where there are none."""
    record = bench.record
    missing = sorted({*range(trained.blocks)} - {*blocks})
    if missing and len(trained.keep) == 1:
        groups = record.training.get("drop_groups") or "layer"
        dropped = "no LayerDrop" if groups == "layer" else f"only {groups} groups dropped"
        return f"depths were not trained ({record.strategy}, {dropped}): scores of fewer blocks will suffer"
    never = [block for block in missing if isinstance(trained, DepthGenes) and block in trained.pinned]
    if never:
        skipped = ", ".join(map(str, never))
        return f"training never skipped blocks {skipped}: scores without them will suffer"
    return ""
