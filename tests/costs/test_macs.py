"""MACs at true lengths: by hand on small cases, refusals."""

import pytest

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.parameters import Parameters
from ldsearch.errors import DataError, SubnetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.workload import Workload

SHAPE = EncoderShape(blocks=2, hidden=2, feed_forward=3, head_per_example=10, head_per_token=1)


def block(enter: int, leave: int) -> int:
    """By hand for width 2 and feed-forward 3: projections 4·2·2, products 2·2, feed-forward 2·2·3."""
    return 16 * enter + 4 * enter * enter + 12 * leave


def test_macs_by_hand_at_two_true_lengths():
    workload = Workload.from_lengths([4, 4, 4, 1], 4)
    subnet = Subnet.of_encoder([0, 1], [2, 1], 4)
    long = block(4, 2) + block(2, 1) + 10 + 4
    short = block(1, 1) + block(1, 1) + 10 + 1
    assert Macs(SHAPE, workload)([subnet])[0] == pytest.approx((3 * long + short) / 4)


def test_absolute_lengths_do_not_touch_short_inputs():
    workload = Workload.from_lengths([2], 4)
    subnet = Subnet.of_encoder([0, 1], [3, 2], 4, "absolute")
    assert Macs(SHAPE, workload)([subnet])[0] == 2 * block(2, 2) + 10 + 2


def test_a_missing_block_costs_nothing_and_no_blocks_cost_the_head():
    macs = Macs(SHAPE, Workload.padded(4))
    assert macs([Subnet.of_encoder([1])])[0] == block(4, 4) + 14
    assert macs([Subnet.of_encoder([])])[0] == 14
    assert macs.by_stage(Subnet.of_encoder([1])) == {
        "embed": 0,
        "block 0": 0,
        "block 1": block(4, 4),
        "head": 14,
    }
    assert macs([]).shape == (0,)


@pytest.mark.parametrize(
    "subnet",
    [
        Subnet.of_encoder([2]),
        Subnet(),
        Subnet(encoder=Stack((0,)), decoder=Stack((0,))),
        Subnet(encoder=Stack((0,), heads_off=((0, 0),))),
    ],
)
def test_what_cannot_be_counted_is_refused(subnet):
    with pytest.raises(SubnetError):
        Macs(SHAPE, Workload.padded(4))([subnet])


def test_parameters_refuse_what_they_cannot_count():
    parameters = Parameters((5, 7), 100)
    assert parameters([Subnet.full(2), Subnet.of_encoder([1])]).tolist() == [112.0, 107.0]
    with pytest.raises(SubnetError):
        parameters([Subnet(encoder=Stack((0,), heads_off=((0, 0),)))])


def test_workloads_average_their_histogram():
    workload = Workload.from_lengths([3, 1, 3, 3], 8)
    assert workload.histogram == ((1, 1), (3, 3))
    assert workload.mean_length == 2.5
    assert workload.shares.tolist() == [0.25, 0.75]
    assert Workload.from_dict(workload.to_dict()) == workload
    for lengths in ([], [0], [9]):
        with pytest.raises(DataError):
            Workload.from_lengths(lengths, 8)
