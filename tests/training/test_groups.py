"""Structured groups: how often each is off, the one form of a sub-network, and that the model runs it."""

from fractions import Fraction

import numpy as np
import pytest

from ldsearch.errors import TrainingError
from ldsearch.subnet import Stack, Subnet
from ldsearch.training.strategies import Pass, Setting, StackSetting, make_strategy
from ldsearch.training.strategies.layerdrop import (
    GROUPS,
    applied_rates,
    draw_stack,
    drops_whole_blocks,
    parts_of,
)
from tests.training.test_strategies import passes_of

HEADS = 2


class Planted:
    """A generator whose uniforms are known: one array per part, in the order of drawing."""

    def __init__(self, *uniforms: list[list[float]]) -> None:
        self.uniforms = [np.array(part) for part in uniforms]

    def random(self, shape: tuple[int, int]) -> np.ndarray:
        part = self.uniforms.pop(0)
        assert part.shape == shape
        return part


def stack_of(blocks: int = 3, rate: float = 0.5, heads: int = HEADS, **changes: object) -> StackSetting:
    return StackSetting(**{"blocks": blocks, "layer_rates": (rate,) * blocks, "heads": heads, **changes})


def setting(drop_groups: str, **changes: object) -> Setting:
    return Setting({"encoder": stack_of(**changes)}, 64, Fraction(9, 25), drop_groups=drop_groups)


def planted(kind: str, *uniforms: list[list[float]], **changes: object) -> Stack:
    blocks = len(uniforms[0])
    return draw_stack(stack_of(blocks, **changes), parts_of(kind), Planted(*uniforms))


def stacks(kind: str, count: int = 4_000, **changes: object) -> list[Stack]:
    rng = np.random.default_rng(0)
    return [draw_stack(stack_of(**changes), parts_of(kind), rng) for _ in range(count)]


RATES = np.array((0.0, 0.2, 0.5))
HEAD, ATTENTION = 1 - (1 - RATES) ** 2, 1 - (1 - RATES) * (1 - RATES**3)
# How often groups of a block of three heads are off, from independent draws; attention is with all its heads.
OFF_AS_OFTEN = {
    "layer": {"block": RATES, "attention": RATES, "half": 0 * RATES},
    "sublayer": {"attention": RATES, "feed_forward": RATES, "block": RATES**2},
    "head": {"head 0": RATES, "attention": RATES**3, "block": 0 * RATES},
    "ffn": {"half": RATES, "block": 0 * RATES, "head 0": 0 * RATES},
    "head+layer": {"block": RATES, "head 0": HEAD, "attention": ATTENTION, "feed_forward": RATES},
    "head+sublayer": {"head 0": HEAD, "attention": ATTENTION, "block": RATES * ATTENTION},
    "layer+sublayer": {"block": 1 - (1 - RATES) * (1 - RATES**2)},
    "head+ffn": {"half": RATES, "head 0": RATES},
}


@pytest.mark.parametrize("kind", OFF_AS_OFTEN)
def test_every_group_is_off_as_often_as_independent_draws_say(kind):
    off, count = {name: np.zeros(3) for name in OFF_AS_OFTEN[kind]}, 4_000
    for stack in stacks(kind, count, layer_rates=tuple(RATES), heads=3):
        for block in range(3):
            gone, groups = block not in stack.blocks, stack.groups(block)
            attention = gone or not groups.runs("attention")
            found = {
                "block": gone,
                "attention": attention,
                "feed_forward": gone or not groups.runs("feed_forward"),
                "half": groups.ffn_share == 0.5,
                "head 0": attention or 0 in groups.heads_off,
            }
            for name, times in off.items():
                times[block] += found[name]
    for name, probability in OFF_AS_OFTEN[kind].items():
        assert off[name] / count == pytest.approx(probability, abs=0.03), name


@pytest.mark.parametrize("rate", [0.2, 1 / 3, 0.75, 1.0, 1e-300, 5e-324])
def test_a_group_is_off_iff_its_uniform_is_below_the_rate(rate):
    below, above = np.nextafter(rate, 0), np.nextafter(rate, 2)
    assert planted("layer", [[0.0]], rate=0.0) == Stack((0,))
    assert planted("layer", [[below], [rate], [above]], rate=rate) == Stack((1, 2))
    heads = planted("head", [[below, rate], [rate, below]], rate=rate)
    assert heads == Stack((0, 1), heads_off=((0, 0), (1, 1)))
    assert planted("ffn", [[below], [rate]], rate=rate) == Stack((0, 1), ffn_share=((0, 0.5),))
    sublayers = planted("sublayer", [[below], [rate]], [[rate], [below]], rate=rate)
    assert sublayers == Stack((0, 1), sublayers_off=((0, "attention"), (1, "feed_forward")))


def test_a_sub_network_has_one_form():
    on, off = 0.9, 0.1
    # Both sub-layers off is no block at all.
    assert planted("sublayer", [[off], [on]], [[off], [on]]) == Stack((1,))
    # All heads off is no attention; with the feed-forward layer off too, no block.
    assert planted("head", [[off, off], [on, on]]) == Stack((0, 1), sublayers_off=((0, "attention"),))
    both = planted("head+sublayer", [[on], [on]], [[off], [on]], [[off, off], [on, off]])
    assert both == Stack((1,), heads_off=((1, 1),))
    # Nothing is said of the inside of what is off.
    inside = planted("head+layer", [[off], [on]], [[off, on], [off, on]])
    assert inside == Stack((1,), heads_off=((1, 0),))
    no_attention, no_units = (Stack((0,), sublayers_off=((0, n),)) for n in ("attention", "feed_forward"))
    assert planted("head+sublayer", [[off]], [[on]], [[off, on]]) == no_attention
    assert planted("sublayer+ffn", [[on]], [[off]], [[off]]) == no_units


def test_a_pinned_block_stays_without_its_sub_layers():
    off = [[0.1], [0.1]]
    assert planted("sublayer", off, off, pinned=(0,)) == Stack(
        (0,), sublayers_off=((0, "attention"), (0, "feed_forward"))
    )
    assert planted("layer", off, pinned=(0,)) == Stack((0,))
    # It counts as running.
    assert planted("layer", [[0.5]] * 4, rate=1.0, pinned=(2,), min_layers=1) == Stack((2,))
    two = planted("layer", [[0.1], [0.2], [0.0], [0.3]], rate=1.0, pinned=(2,), min_layers=2)
    assert two == Stack((2, 3))
    assert planted("head+layer", off, [[0.1, 0.9]] * 2, pinned=(0,)) == Stack((0,), heads_off=((0, 0),))


@pytest.mark.parametrize("kind", OFF_AS_OFTEN)
def test_enough_blocks_run_and_only_those_put_back_change(kind):
    rng = np.random.default_rng(1)
    changed = 0
    for _ in range(500):
        seed = int(rng.integers(2**31))
        free, kept = (
            draw_stack(stack_of(5, 0.8, min_layers=least), parts_of(kind), np.random.default_rng(seed))
            for least in (0, 3)
        )
        assert len(kept.blocks) == max(3, len(free.blocks))
        assert set(free.blocks) <= set(kept.blocks)
        assert all(kept.groups(block) == free.groups(block) for block in free.blocks)
        assert all(len(kept.groups(block).sublayers_off) < 2 for block in kept.blocks)
        changed += kept != free
    assert (changed > 0) == drops_whole_blocks(parts_of(kind))


def test_blocks_are_put_back_until_enough_run():
    uniforms = [[0.1], [0.9], [0.4], [0.3], [0.2]]
    for least, blocks in enumerate([(1,), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), (0, 1, 2, 3, 4)]):
        assert planted("layer", uniforms, min_layers=least) == Stack(blocks)
    # Lowering all rates by one factor until a block runs: 0.18 of 0.2 is nearer than 0.5 of 0.8.
    assert planted("layer", [[0.18], [0.5]], layer_rates=(0.2, 0.8), min_layers=1) == Stack((0,))


def test_a_block_put_back_runs_what_is_nearest_to_running():
    # Block 1's feed-forward layer, at 0.45 of 0.5, is nearer than anything of block 0.
    attention, feed_forward = [[0.4], [0.1]], [[0.3], [0.45]]
    assert planted("sublayer", attention, feed_forward) == Stack(())
    one, two = (planted("sublayer", attention, feed_forward, min_layers=least) for least in (1, 2))
    assert one == Stack((1,), sublayers_off=((1, "attention"),))
    assert two == Stack((0, 1), sublayers_off=((0, "feed_forward"), (1, "attention")))


def test_kinds_join_in_any_order_and_draw_the_same():
    assert parts_of("layer+head") == parts_of("head+layer")
    assert set(parts_of("head+sublayer")) == {"head", "attention", "feed_forward"}
    assert stacks("layer+head", 20) == stacks("head+layer", 20)


@pytest.mark.parametrize("name", ["neuron", "head+neuron", "head+head", "", "head+", "head, layer"])
def test_an_unknown_group_is_answered_with_those_there_are(name):
    with pytest.raises(TrainingError, match="use one of layer, sublayer, head, ffn") as refused:
        make_strategy("layerdrop", setting(name))
    assert repr(name) in str(refused.value)


def test_a_registered_kind_joins_in():
    GROUPS.register("attention", ("attention",))
    try:
        assert planted("attention", [[0.1], [0.9]]) == Stack((0, 1), sublayers_off=((0, "attention"),))
    finally:
        GROUPS.remove("attention")


def test_heads_of_a_model_without_heads_cannot_be_dropped():
    with pytest.raises(TrainingError, match="attention heads"):
        make_strategy("layerdrop", setting("head+layer", heads=0))


def test_the_strategy_draws_the_groups_of_its_setting_and_learns_from_labels():
    (one,) = passes_of(setting("head+sublayer"), 4, name="layerdrop")
    drawn = draw_stack(stack_of(), parts_of("head+sublayer"), np.random.default_rng([4, 0]))
    assert one == Pass(Subnet(drawn), "label", 1.0)


def test_a_pinned_block_has_no_rate_where_only_layers_are_dropped():
    assert applied_rates(stack_of(pinned=(0,)), "layer") == (0.0, 0.5, 0.5)
    assert applied_rates(stack_of(pinned=(0,)), "head+layer") == (0.5, 0.5, 0.5)
    assert applied_rates(stack_of(), "layer") == (0.5, 0.5, 0.5)
