"""Sub-networks: one form for one thing, JSON there and back."""

import json

import pytest

from ldsearch.errors import SubnetError
from ldsearch.subnet import Lengths, Stack, Subnet

EVERYTHING = Subnet(
    encoder=Stack(
        blocks=(0, 2, 5),
        lengths=Lengths((90, 63, 17), 128, "absolute"),
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


def test_full_lengths_are_no_lengths():
    assert Subnet.of_encoder([0, 1], [64, 64], 64) == Subnet.full(2)
    assert Subnet.of_encoder([0, 1], [64, 63], 64) != Subnet.full(2)


@pytest.mark.parametrize("n", range(1, 65))
def test_ratio_lengths_keep_the_exact_ceiling_and_at_least_one(n):
    lengths = Lengths((44, 28, 1), 64)
    for position, tokens in enumerate(lengths.tokens):
        kept = lengths.kept(position, n)
        assert kept >= 1
        assert 64 * kept >= n * tokens > 64 * (kept - 1) or kept == 1


def test_absolute_lengths_keep_at_most_so_many():
    lengths = Lengths((44, 28), 64, "absolute")
    assert [lengths.kept(0, n) for n in (3, 44, 45, 64)] == [3, 44, 44, 44]


@pytest.mark.parametrize(
    "make",
    [
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
        lambda: Subnet.of_encoder([0], [4]),
        lambda: Subnet.from_json("[]"),
        lambda: Subnet.from_json("nonsense"),
        lambda: Subnet.from_json('{"version":2}'),
        lambda: Subnet.from_json('{"version":1,"middle":{"blocks":[0]}}'),
        lambda: Subnet.from_json('{"version":1,"encoder":{"blocks":[0],"width":3}}'),
        lambda: Subnet.from_json('{"version":1,"encoder":{"blocks":[0],"lengths":{"tokens":[3]}}}'),
        lambda: Subnet.from_json('{"version":1,"encoder":{"lengths":null}}'),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(make):
    with pytest.raises(SubnetError) as refused:
        make()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("subnet", "text"),
    [
        (Subnet.full(6), "encoder blocks 0-5"),
        (Subnet.of_encoder([0, 2, 3, 5]), "encoder blocks 0 2-3 5"),
        (Subnet.of_encoder([]), "encoder blocks none"),
        (Subnet.of_encoder([0, 1], [9, 4], 12), "encoder blocks 0-1, lengths 9 4 of 12"),
    ],
)
def test_descriptions_are_short(subnet, text):
    assert subnet.describe() == text
