"""MACs at true lengths and parameters: by hand on small cases, refusals."""

import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.parameters import BlockParameters, Parameters
from ldsearch.costs.traced import TracedMacs
from ldsearch.costs.workload import Workload
from ldsearch.errors import DataError, SubnetError
from ldsearch.subnet import Stack, Subnet

SHAPE = EncoderShape(blocks=2, hidden=2, feed_forward=3, head_per_example=10, head_per_token=1)
PARAMETERS = Parameters({"encoder": (BlockParameters(5), BlockParameters(7))}, 100)


def block(enter: int, leave: int) -> int:
    """By hand for width 2 and feed-forward 3.

    Projections 3·2·2 in and 2·2 out, products 2·2, feed-forward 2·2·3.
    """
    return 12 * enter + 4 * leave + 4 * enter * enter + 12 * leave


def test_macs_by_hand_at_two_true_lengths():
    workload = Workload.from_lengths([4, 4, 4, 1], 4)
    subnet = Subnet.of_encoder([0, 1], [2, 1], 4)
    long = block(4, 2) + block(2, 1) + 10 + 4
    short = block(1, 1) + block(1, 1) + 10 + 1
    macs = Macs(SHAPE, workload)
    assert macs([subnet])[0] == pytest.approx((3 * long + short) / 4)
    assert macs([]).shape == (0,)


@pytest.mark.parametrize(
    "off", [(), ("attention",), ("feed_forward",), ("attention", "feed_forward")], ids=" and ".join
)
def test_the_papers_convention_counts_norms_and_the_embedding(off):
    """Both norms of a block, each with the sub-layer it belongs to: of 4 tokens and width 2.

    With dropped tokens: the published numbers of ``tests/test_numbers.py``.
    """
    subnet = Subnet(Stack((0, 1), sublayers_off=tuple((0, name) for name in off)))
    ours, theirs = (Macs(SHAPE, Workload.padded(4), torchprofile=own)([subnet])[0] for own in (False, True))
    assert theirs - ours == (4 - len(off)) * 4 * 2 + 4 * (2 + 1)


def test_parameters_of_blocks_and_of_everything_else():
    found = PARAMETERS([Subnet.full(2), Subnet.of_encoder([1]), Subnet.of_encoder([])])
    assert found.tolist() == [112.0, 107.0, 100.0]


def test_workloads_average_their_histogram():
    workload = Workload.from_lengths([3, 1, 3, 3], 8)
    assert workload.histogram == ((1, 1), (3, 3))
    assert workload.mean_length == 2.5
    assert workload.shares.tolist() == [0.25, 0.75]
    assert Workload.from_dict(workload.to_dict()) == workload
    for lengths in ([], [0], [9]):
        with pytest.raises(DataError):
            Workload.from_lengths(lengths, 8)


WORKLOAD = Workload.from_lengths([2, 2, 2, 6], 8)
REST = (0.0, 0.0, 0.0)  # of what is written, and of both
BLOCKS = ((0.0, 3.0, 1.0, *REST), (1.0, 0.0, 2.0, *REST))
TRACED = TracedMacs({"encoder": BLOCKS}, elsewhere=(5.0, 10.0, 0.0, *REST), workload=WORKLOAD)


def test_the_mean_over_the_lengths_by_hand():
    first = (3 * (3 * 2 + 2**2) + (3 * 6 + 6**2)) / 4
    second = (3 * (1 + 2 * 2**2) + (1 + 2 * 6**2)) / 4
    elsewhere = (3 * (5 + 10 * 2) + (5 + 10 * 6)) / 4
    found = TRACED([Subnet.full(2), Subnet.of_encoder([1]), Subnet.of_encoder([])])
    assert found.tolist() == pytest.approx([first + second + elsewhere, second + elsewhere, elsewhere])
    assert TRACED([]).shape == (0,)


def test_what_is_read_and_written_by_hand():
    both = Workload.from_lengths([2, 3], 8, [5, 7])
    macs = TracedMacs({"encoder": ((0, 1, 0, 0, 0, 0),), "decoder": ((7, 0, 0, 2, 3, 4),)}, (0,) * 6, both)
    decoder = sum(7 + 2 * t + 3 * t**2 + 4 * n * t for n, t in ((2, 5), (3, 7))) / 2
    assert macs([Subnet.full(1, 1)])[0] == pytest.approx(2.5 + decoder)
    assert Workload.from_dict(both.to_dict()) == both


OTHER_STACKS = [Subnet(), Subnet(encoder=Stack((0,)), decoder=Stack((0,)))]
FINER = [
    Subnet.of_encoder([0, 1], [4, 2], 8),
    Subnet(encoder=Stack((0,), heads_off=((0, 0),))),
    Subnet(encoder=Stack((0,), ffn_share=((0, 0.5),))),
    Subnet(encoder=Stack((0,), sublayers_off=((0, "attention"),))),
]


@pytest.mark.parametrize(
    ("cost", "subnets", "words"),
    [
        (Macs(SHAPE, Workload.padded(4)), OTHER_STACKS, "encoders only"),
        (Macs(SHAPE, Workload.padded(4)), [Subnet.of_encoder([2])], "block 2 of a model of 2 blocks"),
        (PARAMETERS, OTHER_STACKS, "parameters are counted of encoder"),
        (TRACED, OTHER_STACKS, "these MACs are counted of encoder"),
        (TRACED, FINER, "whole blocks"),
        (TRACED, [Subnet.of_encoder([0, 2])], "block 2 of a model of 2 blocks"),
    ],
)
def test_what_cannot_be_counted_is_refused(cost, subnets, words):
    for subnet in subnets:
        with pytest.raises(SubnetError, match=words):
            cost([subnet])
