"""MACs as quadratics of the length: by hand, and only for whole blocks."""

import pytest

from ldsearch.costs.traced import TracedMacs
from ldsearch.errors import SubnetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.workload import Workload

WORKLOAD = Workload.from_lengths([2, 2, 2, 6], 8)
REST = (0.0, 0.0, 0.0)  # of what is written, and of both
BLOCKS = ((0.0, 3.0, 1.0, *REST), (1.0, 0.0, 2.0, *REST))
MACS = TracedMacs({"encoder": BLOCKS}, elsewhere=(5.0, 10.0, 0.0, *REST), workload=WORKLOAD)


def test_the_mean_over_the_lengths_by_hand():
    first = (3 * (3 * 2 + 2**2) + (3 * 6 + 6**2)) / 4
    second = (3 * (1 + 2 * 2**2) + (1 + 2 * 6**2)) / 4
    elsewhere = (3 * (5 + 10 * 2) + (5 + 10 * 6)) / 4
    found = MACS([Subnet.full(2), Subnet.of_encoder([1]), Subnet.of_encoder([])])
    assert found.tolist() == pytest.approx([first + second + elsewhere, second + elsewhere, elsewhere])
    assert MACS([]).shape == (0,)
    assert (MACS.name, MACS.unit) == ("macs", "MACs/example")


@pytest.mark.parametrize(
    "subnet",
    [
        Subnet.of_encoder([0, 1], [4, 2], 8),
        Subnet(encoder=Stack((0,), heads_off=((0, 0),))),
        Subnet(encoder=Stack((0,), ffn_share=((0, 0.5),))),
        Subnet(encoder=Stack((0,), sublayers_off=((0, "attention"),))),
    ],
)
def test_what_is_finer_than_whole_blocks_is_refused(subnet):
    with pytest.raises(SubnetError, match="whole blocks"):
        MACS([subnet])


def test_other_stacks_are_refused():
    for subnet in (Subnet(), Subnet(encoder=Stack((0,)), decoder=Stack((0,)))):
        with pytest.raises(SubnetError, match="counted of encoder"):
            MACS([subnet])


def test_what_is_read_and_written_by_hand():
    both = Workload.from_lengths([2, 3], 8, [5, 7])
    macs = TracedMacs({"encoder": ((0, 1, 0, 0, 0, 0),), "decoder": ((7, 0, 0, 2, 3, 4),)}, (0,) * 6, both)
    decoder = sum(7 + 2 * t + 3 * t**2 + 4 * n * t for n, t in ((2, 5), (3, 7))) / 2
    assert macs([Subnet.full(1, 1)])[0] == pytest.approx(2.5 + decoder)
    assert Workload.from_dict(both.to_dict()) == both


def test_a_block_that_is_not_there_is_named():
    with pytest.raises(SubnetError, match="block 2 of a model of 2 blocks"):
        MACS([Subnet.of_encoder([0, 2])])
