"""Nothing that is added to a sub-network ever lowers its MACs or its parameters."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.parameters import Parameters
from ldsearch.costs.workload import Workload
from ldsearch.space.space import grouped
from ldsearch.subnet import WHOLE, Groups, Stack, Subnet
from ldsearch.supernet import Supernet
from tests.costs.drawing import REFERENCE, drawn_stack
from tests.tiny import tiny_encoder_decoder

BLOCKS, HEADS = 5, 4
WORKLOAD = Workload.from_lengths([1, 2, 2, 5, 7, 11, 12, 12], REFERENCE)


def more_blocks(stack: Stack) -> Iterator[Stack]:
    """One more block, which drops no token."""
    for block in set(range(BLOCKS)) - set(stack.blocks):
        place = sum(other < block for other in stack.blocks)
        lengths = stack.lengths
        if lengths is not None:
            entering = (lengths.reference, *lengths.tokens)[place]
            tokens = (*lengths.tokens[:place], entering, *lengths.tokens[place:])
            lengths = replace(lengths, tokens=tokens)
        yield replace(stack, blocks=tuple(sorted((*stack.blocks, block))), lengths=lengths)


def more_tokens(stack: Stack) -> Iterator[Stack]:
    """One more token behind one block, where neither side's attention is off."""
    if stack.lengths is None:
        return
    lengths = stack.lengths
    entering = (lengths.reference, *lengths.tokens)
    for place, block in enumerate(stack.blocks):
        beside = (block, *stack.blocks[place + 1 : place + 2])
        scored = all(stack.groups(one).runs("attention") for one in beside)
        if scored and lengths.tokens[place] < entering[place]:
            tokens = (*lengths.tokens[:place], lengths.tokens[place] + 1, *lengths.tokens[place + 1 :])
            yield replace(stack, lengths=replace(lengths, tokens=tokens))


def more_inside(stack: Stack) -> Iterator[Stack]:
    """One more head, a wider feed-forward layer, one more sub-layer in one block."""
    groups = {block: stack.groups(block) for block in stack.blocks}
    for block, own in groups.items():
        for other in wider(own):
            yield grouped(stack.blocks, {**groups, block: other}, stack.lengths)


def wider(own: Groups) -> Iterator[Groups]:
    for head in own.heads_off:
        yield replace(own, heads_off=tuple(off for off in own.heads_off if off != head))
    for share in (own.ffn_share + 0.01, 1.0):
        if own.ffn_share < share <= 1:
            yield replace(own, ffn_share=share)
    for sublayer in own.sublayers_off:
        yield replace(own, sublayers_off=tuple(off for off in own.sublayers_off if off != sublayer))


@pytest.mark.parametrize("torchprofile", [False, True])
def test_one_more_of_anything_never_costs_less(torchprofile):
    shape = EncoderShape(BLOCKS, hidden=8, feed_forward=20, heads=HEADS, head_per_example=3, head_per_token=2)
    block = Supernet(tiny_encoder_decoder("bart")).parameters_cost.per_block["encoder"][0]
    parameters = Parameters({"encoder": (block,) * BLOCKS}, elsewhere=100)
    macs, rng, seen = Macs(shape, WORKLOAD, torchprofile=torchprofile), np.random.default_rng(0), 0
    for _ in range(150):
        stack = drawn_stack(rng, BLOCKS, HEADS)
        (own,), (held,) = macs([Subnet(stack)]), parameters([Subnet(stack)])
        least = own * (1 - 1e-12)
        for larger in more_blocks(stack):
            assert macs([Subnet(larger)])[0] > own, (stack, larger)
            assert parameters([Subnet(larger)])[0] > held, (stack, larger)
        for larger in more_tokens(stack):
            assert macs([Subnet(larger)])[0] >= least, (stack, larger)
            assert parameters([Subnet(larger)])[0] == held, (stack, larger)
        for larger in more_inside(stack):
            assert macs([Subnet(larger)])[0] >= least, (stack, larger)
            assert parameters([Subnet(larger)])[0] >= held, (stack, larger)
            seen += larger.groups(larger.blocks[0]) == WHOLE
    assert seen > 30
