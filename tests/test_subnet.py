"""Sub-networks: one form for one thing, JSON there and back."""

import json

import numpy as np
import pytest

from ldsearch.errors import SubnetError
from ldsearch.subnet import WHOLE, Groups, Lengths, Stack, Subnet

EVERYTHING = Subnet(
    encoder=Stack(
        blocks=(0, 2, 5),
        lengths=Lengths((90, 90, 17), 128, "absolute"),
        heads_off=((2, 1), (0, 3)),
        ffn_share=((5, 0.5),),
        sublayers_off=((2, "attention"),),
    ),
    decoder=Stack(blocks=(1,)),
)


@pytest.mark.parametrize(
    "subnet", [EVERYTHING, Subnet.full(3), Subnet.of_encoder([]), Subnet.of_encoder([1, 2], [7, 3], 9)]
)
def test_json_reads_back_as_the_same_subnetwork(subnet):
    again = Subnet.from_json(subnet.to_json())
    assert again == subnet
    assert hash(again) == hash(subnet)
    assert again.to_json() == subnet.to_json()


def test_json_is_canonical_and_leaves_defaults_out():
    assert Subnet.full(2).to_json() == '{"encoder":{"blocks":[0,1]},"version":1}'
    assert json.loads(EVERYTHING.to_json())["encoder"]["heads_off"] == [[0, 3], [2, 1]]


def test_groups_are_one_blocks_own_and_say_what_runs_and_how_wide():
    stack, bare = EVERYTHING.encoder, Stack((0, 2), Lengths((4, 2), 8))
    assert stack.groups(0) == Groups(heads_off=(3,))
    assert stack.groups(2) == Groups(heads_off=(1,), sublayers_off=("attention",))
    assert stack.groups(5) == Groups(ffn_share=0.5)
    assert bare.groups(2) == WHOLE
    assert (stack.structured, bare.structured) == (True, False)
    several = Stack((1,), heads_off=((1, 2), (1, 0)), sublayers_off=((1, "feed_forward"), (1, "attention")))
    assert several.groups(1) == Groups(heads_off=(0, 2), sublayers_off=("attention", "feed_forward"))
    for groups, runs in ((WHOLE, [True, True]), (stack.groups(2), [False, True])):
        assert [groups.runs(sublayer) for sublayer in ("attention", "feed_forward")] == runs
    assert [Groups(ffn_share=share).width(10) for share in (1, 0.5, 0.34, 0.96, 0.01)] == [10, 5, 3, 10, 1]


def test_a_renumbered_stack_is_the_same_over_its_own_blocks():
    assert EVERYTHING.encoder.renumbered() == Stack(
        blocks=(0, 1, 2),
        lengths=Lengths((90, 90, 17), 128, "absolute"),
        heads_off=((0, 3), (1, 1)),
        ffn_share=((2, 0.5),),
        sublayers_off=((1, "attention"),),
    )
    assert Stack(()).renumbered() == Stack(())


def test_a_block_without_attention_lets_pass_what_came_and_drops_nothing():
    def lengths_of(tokens: tuple[int, ...], off: int) -> Stack:
        return Stack((1, 3), Lengths(tokens, 8), sublayers_off=((off, "attention"),))

    assert lengths_of((5, 5), off=3).lengths is not None
    assert lengths_of((8, 5), off=1).lengths is not None
    for tokens, off in (((5, 4), 3), ((7, 7), 1)):
        with pytest.raises(SubnetError, match=f"block {off} drops tokens, but its attention"):
            lengths_of(tokens, off)


def test_full_lengths_are_no_lengths():
    assert Subnet.of_encoder([0, 1], [64, 64], 64) == Subnet.full(2)
    assert Subnet.of_encoder([0, 1], [64, 63], 64) != Subnet.full(2)


def test_ratio_lengths_keep_the_exact_ceiling_and_at_least_one():
    lengths, every = Lengths((44, 28, 1), 64), range(1, 65)
    for position, tokens in enumerate(lengths.tokens):
        assert lengths.kept(position, np.array(every)).tolist() == [lengths.kept(position, n) for n in every]
        for n in every:
            kept = lengths.kept(position, n)
            assert kept >= 1
            assert 64 * kept >= n * tokens > 64 * (kept - 1)

    absolute = Lengths((44, 28), 64, "absolute")  # at most so many
    assert [absolute.kept(0, n) for n in (3, 44, 45, 64)] == [3, 44, 44, 44]
    assert absolute.kept(0, np.array([3, 44, 45, 64])).tolist() == [3, 44, 44, 44]


OF_ENCODER = [
    '"blocks":[0],"width":3',
    '"blocks":[0],"lengths":{"tokens":[3]}',
    '"lengths":null',
    *(f'"blocks":[0],"heads_off":[{one}]' for one in ("[0,0.5]", "[0,1,2]", "0", "[false,1]")),
    '"blocks":[0],"ffn_share":[[0,"half"]]',
]
TEXTS = ["[]", "nonsense", '{"version":2}', '{"version":1,"middle":{"blocks":[0]}}']
TEXTS += [f'{{"version":1,"encoder":{{{fields}}}}}' for fields in OF_ENCODER]


@pytest.mark.parametrize(
    "make",
    [
        *(lambda text=text: Subnet.from_json(text) for text in TEXTS),
        lambda: Lengths((5, 6), 8),
        lambda: Lengths((9,), 8),
        lambda: Lengths((0,), 8),
        lambda: Lengths((4,), 8, "share"),
        lambda: Stack((1, 0)),
        lambda: Stack((0, 0)),
        lambda: Stack((-1,)),
        lambda: Stack((0, 1), Lengths((4,), 8)),
        lambda: Stack((0,), heads_off=((1, 0),)),
        lambda: Stack((0,), ffn_share=((0, 1.5),)),
        lambda: Stack((0,), ffn_share=((0, 1.0),)),
        lambda: Stack((0,), ffn_share=((0, 0.0),)),
        lambda: Stack((0,), ffn_share=((0, 0.5), (0, 0.25))),
        lambda: Stack((0,), sublayers_off=((0, "norm"),)),
        lambda: Stack((0,), sublayers_off=((1, "attention"),)),
        lambda: Subnet.of_encoder([0], [4]),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(make):
    with pytest.raises(SubnetError) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_descriptions_are_short():
    assert Subnet.full(6).describe() == "encoder blocks 0-5"
    assert Subnet.of_encoder([0, 2, 3, 5]).describe() == "encoder blocks 0 2-3 5"
    assert Subnet.of_encoder([]).describe() == "encoder blocks none"
    assert EVERYTHING.describe() == (
        "encoder blocks 0 2 5, lengths 90 90 17 of 128, heads off 0:3 2:1, feed-forward shares 5:0.5, "
        "sub-layers off 2:attention; decoder blocks 1"
    )
