"""LayerDrop: blocks and structured groups are skipped at their rates, once per batch (Fan et al. 2019)."""

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import TrainingError, unknown
from ldsearch.registry import Registry
from ldsearch.space import DepthGenes, Space
from ldsearch.subnet import WHOLE, Groups, Stack, Sublayer
from ldsearch.training.strategies.base import Setting, StackSetting

Part = Literal["layer", "attention", "feed_forward", "head", "half"]
Parts = tuple[Part, ...]

# What each kind drops of a block. The paper says no more of "Half FFN" than its name: here the first half
# of the units is what stays, always the same one, so that it can be cut out.
GROUPS: Registry[Parts] = Registry(
    "drop_groups",
    {
        "layer": ("layer",),
        "sublayer": ("attention", "feed_forward"),
        "head": ("head",),
        "ffn": ("half",),
    },
)
_HALF = 0.5
_SUBLAYERS: tuple[Sublayer, ...] = ("attention", "feed_forward")


def parts_of(name: str) -> Parts:
    """Parts of a block that a kind of group drops, or several kinds joined by ``+`` (``"head+layer"``).

    Raises:
        TrainingError: If there is none of that name.
    """
    kinds = name.split("+")
    if len(set(kinds)) < len(kinds) or not set(kinds) <= set(GROUPS):
        raise TrainingError(f"{unknown('drop groups', name, GROUPS)}, or different ones joined by +")
    # In the registry's order, so that head+layer and layer+head draw the same.
    return tuple(dict.fromkeys(part for kind in GROUPS if kind in kinds for part in GROUPS[kind]))


def drops_whole_blocks(parts: Collection[Part]) -> bool:
    """Whether a block can be off as a whole when these parts are dropped."""
    return "layer" in parts or ("feed_forward" in parts and bool({"attention", "head"} & set(parts)))


def applied_rates(setting: StackSetting, drop_groups: str) -> tuple[float, ...]:
    """The rate at which each block's groups are off: 0 for a pinned block where only layers are dropped."""
    spared = setting.pinned if parts_of(drop_groups) == GROUPS["layer"] else ()
    return tuple(0.0 if block in spared else rate for block, rate in enumerate(setting.layer_rates))


def options_of(kinds: Collection[str], heads: int) -> tuple[Groups, ...]:
    """Nothing off, then what each kind of group (``GROUPS``) may have off in a block.

    Of heads either half stands for all of the subsets that are dropped.

    Raises:
        TrainingError: If heads are chosen of blocks that have fewer than two.
    """
    if "head" in kinds and heads < 2:
        raise TrainingError("blocks of one head have no half of them to leave out")
    half = heads // 2
    options = {
        "ffn": (Groups(ffn_share=_HALF),),
        "head": (Groups(heads_off=tuple(range(half))), Groups(heads_off=tuple(range(half, heads)))),
        "sublayer": tuple(Groups(sublayers_off=(name,)) for name in _SUBLAYERS),
    }
    return (WHOLE, *(option for kind in options if kind in kinds for option in options[kind]))


def layerdrop_space(setting: Setting) -> Space:
    """Any blocks but those that are never skipped, and what the groups may have off inside them.

    No block at all is drawn too, but of no use.

    Raises:
        TrainingError: If the setting's groups are unknown, or heads are to be dropped of a model without.
    """
    parts, whole = parts_of(setting.drop_groups), setting.whole
    heads = min(stack.heads for stack in setting.stacks.values())
    if "head" in parts and heads < 1:
        raise TrainingError(f"drop groups {setting.drop_groups} need a model with attention heads")
    depths = []
    for name, stack in setting.stacks.items() if drops_whole_blocks(parts) else ():
        never = {block for block, rate in enumerate(stack.layer_rates) if rate == 0} | {*stack.pinned}
        keep = tuple(range(max(1, stack.min_layers, len(never)), stack.blocks + 1))
        depths.append(DepthGenes(name, stack.blocks, keep, tuple(sorted(never))))
    kinds = [kind for kind in setting.drop_groups.split("+") if kind != "head" or heads > 1]
    return replace(whole, depths=tuple(depths) or whole.depths, options=options_of(kinds, heads))


def draw_stacks(setting: Setting, rng: np.random.Generator) -> dict[str, Stack]:
    """One draw for each of the model's stacks, the encoder first: block i is skipped iff u_i < its rate.

    At rate 0 all run, at rate 1 none does, but for pinned blocks and ``min_layers``.
    """
    parts = parts_of(setting.drop_groups)
    return {name: draw_stack(stack, parts, rng) for name, stack in setting.stacks.items()}


def draw_stack(setting: StackSetting, parts: Parts, rng: np.random.Generator) -> Stack:
    """One draw: every group is off iff its u < its block's rate, u uniform on [0, 1) and its own.

    What is off is the union of the parts' draws, in the one form that a sub-network has: a block of whose
    heads all are off has its attention off, and one with both sub-layers off does not run. Nothing is
    rescaled, and what is off is the identity, norms included (Sec. 3.1 and fairseq's code); the norms of
    sub-layers may stay in blocks that run (``Supernet.skipped``). Pinned blocks always run, though maybe
    without their sub-layers.

    Where fewer than ``min_layers`` blocks would run, nothing is drawn again: those nearest to running are
    put back, that is, those with the highest u / rate (with equal rates, the highest u), and their groups
    are off only as far as at the highest rate at which they run. So the draw is a function of its uniforms.

    Args:
        setting: Rates, pinned blocks, heads and the fewest blocks.
        parts: What is dropped, in the order of drawing.
        rng: Gives one uniform per group: (blocks, heads) of them for heads, (blocks, 1) for other parts.
    """
    rates = np.array(setting.layer_rates)[:, None]
    never = np.full((setting.blocks, 1), np.inf)
    # Levels u / rate, (blocks, groups of the part in a block).
    levels: dict[Part, NDArray[np.float64]] = {}
    for part in parts:
        uniforms = rng.random((setting.blocks, setting.heads if part == "head" else 1))
        # Off iff below 1, exactly when u < rate: a quotient of floats is never rounded up to 1.
        levels[part] = np.divide(uniforms, rates, out=np.full_like(uniforms, np.inf), where=rates > 0)
    heads, half = levels.get("head", never), levels.get("half", never)[:, 0]
    sublayers = np.stack([levels.get(name, never)[:, 0] for name in _SUBLAYERS])
    sublayers[0] = np.minimum(sublayers[0], heads.max(axis=1))
    blocks = np.minimum(levels.get("layer", never)[:, 0], sublayers.max(axis=0))
    blocks[list(setting.pinned)] = np.inf
    # Below what level a block's groups are off: 1, and a block's own level where it is put back.
    bars = np.ones(setting.blocks)
    skipped = np.flatnonzero(blocks < 1)
    missing = max(0, setting.min_layers - (setting.blocks - len(skipped)))
    back = skipped[np.argsort(-blocks[skipped], kind="stable")][:missing]
    bars[back] = blocks[back]
    runs = blocks >= bars
    off = (sublayers < bars) & runs
    return Stack(
        blocks=tuple(np.flatnonzero(runs).tolist()),
        heads_off=tuple(
            (block, head)
            for block, head in np.argwhere((heads < bars[:, None]) & (runs & ~off[0])[:, None]).tolist()
        ),
        ffn_share=tuple((block, _HALF) for block in np.flatnonzero((half < bars) & runs & ~off[1]).tolist()),
        sublayers_off=tuple((block, _SUBLAYERS[which]) for which, block in np.argwhere(off).tolist()),
    )
