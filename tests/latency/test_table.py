"""The predictor: exact on planted stages, resumed where it stopped, and refused where it knows nothing."""

from dataclasses import replace

import numpy as np
import pytest

from ldsearch.errors import LdsearchError, RunError, SubnetError
from ldsearch.latency.clock import Clock
from ldsearch.latency.table import LatencyTable, SupernetStages, build_table, length_grid
from ldsearch.latency.whole import PredictedLatency, whole_keys, whole_models
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from tests.latency.planted_clock import Counted, PlantedClock
from tests.tiny import tiny_model

DEVICE = {"device": "planted", "threads": 1, "dtype": "float32", "versions": {}}
GRID = length_grid([16])


class PlantedStages:
    """Stages whose seconds are a known function, linear between the lengths 2, 4, ... 16."""

    def __init__(self, clock, restores, weight=1.0):
        self.clock, self.restores, self.weight, self.timed = clock, restores, weight, []

    @property
    def facts(self):
        return {"model": {"weight": self.weight}, "blocks": 3, "restores": self.restores}

    def run(self, stage, batch, enter, leave):
        self.timed.append((stage, batch, enter, leave))
        seconds = self.seconds(stage, batch, enter, leave)
        return self.clock.work(stage, iter(lambda: seconds, 0))

    def seconds(self, stage, batch, enter, leave):
        def bend(n):
            # With a corner at a length of the grid; one token is taken for two.
            return max(n, 2) + 3 * max(n - 8, 0)

        own = {"embed": 1.0, "head": 2.0, "restore": 0.25}.get(stage)
        if own is None:
            own = 5.0 + int(stage.split()[1])
        if leave == enter:
            return 1e-3 * batch * own * bend(enter)
        # The other function: of what enters, and of one more than what leaves.
        return 1e-3 * batch * (own * (2 * bend(enter) + 0.5 * bend(leave + 1)) + 7)


def built(path, restores=False, batches=(2,), lengths=GRID, clock=None, **changes):
    clock = clock or PlantedClock()
    stages = PlantedStages(clock, restores, **changes)
    table, noises = build_table(stages, DEVICE, lengths, batches, path, Clock(2, 0, clock))
    return table, stages, noises


def closed_form(stages, subnet, batch, length):
    """Milliseconds, stage by stage."""
    enter, total = length, stages.seconds("embed", batch, length, length)
    for position, block in enumerate(subnet.encoder.blocks):
        lengths = subnet.encoder.lengths
        leave = enter if lengths is None else min(enter, lengths.kept(position, length))
        total += stages.seconds(f"block {block}", batch, enter, leave)
        if stages.restores and leave < enter:
            total += stages.seconds("restore", batch, length, leave)
        enter = leave
    last = length if stages.restores else enter
    return 1e3 * (total + stages.seconds("head", batch, last, last))


@pytest.mark.parametrize("restores", [False, True])
def test_predictions_are_the_closed_form_at_every_length(tmp_path, restores):
    table, stages, _ = built(tmp_path / "t.csv", restores, batches=(2, 3))
    rng = np.random.default_rng(0)
    subnets = [Subnet.full(3), Subnet.of_encoder([1]), Subnet.of_encoder([])]
    for _ in range(60):
        tokens = sorted(rng.integers(1, 17, 3).tolist(), reverse=True)
        subnets.append(Subnet.of_encoder([0, 1, 2], tokens, 16))
    for batch, length in ((2, 16), (3, 13), (2, 5), (2, 2)):
        expected = [closed_form(stages, subnet, batch, length) for subnet in subnets]
        assert np.allclose(table.predict(subnets, batch, length), expected, rtol=1e-4), length
    # As a cost, read back from its file.
    cost = PredictedLatency(LatencyTable.load(tmp_path / "t.csv"), 2, 16)
    assert cost.name == "latency"
    assert np.allclose(cost(subnets), [closed_form(stages, s, 2, 16) for s in subnets], rtol=1e-4)
    assert cost([]).shape == (0,)


def test_in_another_runtime_two_whole_models_set_the_scale(tmp_path):
    """Planted: another runtime takes 0.3 of the time, and 2 ms for a call."""
    table, stages, _ = built(tmp_path / "t.csv")
    subnets = [Subnet.full(3), Subnet.of_encoder([1]), Subnet.of_encoder([0, 1, 2], [9, 4, 2], 16)]
    own = np.array([closed_form(stages, subnet, 2, 16) for subnet in subnets])

    def within(*milliseconds: float) -> LatencyTable:
        found = zip(whole_keys("fast", 2, 16), milliseconds, strict=True)
        return replace(table, cells={**table.cells, **{key: (ms, ms, ms, 3) for key, ms in found}})

    full, half = (closed_form(stages, subnet, 2, 16) for subnet in whole_models(3))
    asked = (2, 16, "fast")
    exact = PredictedLatency(within(2 + 0.3 * full, 2 + 0.3 * half), *asked)
    assert np.allclose(exact(subnets), 2 + 0.3 * own, rtol=1e-4)
    # A line that starts below nothing, or falls, is noise: one factor, of the full model.
    for half_ms in (0.1 * half, 0.4 * full):
        noisy = PredictedLatency(within(0.3 * full, half_ms), *asked)
        assert np.allclose(noisy(subnets), 0.3 * own, rtol=1e-4)
    with pytest.raises(LdsearchError, match="no times of whole models in fast at batch 2, length 16"):
        PredictedLatency(table, *asked)(subnets)


def test_a_table_goes_on_where_it_stopped(tmp_path):
    clock, path = PlantedClock(), tmp_path / "t.csv"

    stages, killed = PlantedStages(clock, False), Counted(last=120)
    with pytest.raises(KeyboardInterrupt):
        build_table(stages, DEVICE, GRID, (2,), path, Clock(2, 0, clock), killed)
    assert killed.phases == [("stages", 2 * (3 * 44 + 8 * 3))]
    half = LatencyTable.load(path)
    with pytest.raises(LdsearchError, match="no batch 2, or not all of it"):
        half.predict([Subnet.full(3)], 2, 16)
    whole, stages, noises = built(path, clock=clock)
    assert not {*half.cells} & {*stages.timed}
    assert {*half.cells} | {*stages.timed} == {*whole.cells}
    assert len(half.cells) + len(stages.timed) == len(whole.cells)
    assert 0 < len(noises) < len(list(whole.wanted(2)))
    _, again, _ = built(path, batches=(2, 1))
    assert {batch for _, batch, _, _ in again.timed} == {1}


def test_stages_are_timed_behind_one_another(tmp_path):
    _, stages, _ = built(tmp_path / "t.csv")
    longest = [key for key in stages.timed if key[2] == 16 and key[0].startswith("block")]
    assert [key[0] for key in longest] == ["block 0", "block 1", "block 2"] * (len(GRID) + 1)
    assert [key[3] for key in longest[::3]] == [16, *(n - 1 for n in GRID)]


def test_a_table_of_another_model_device_or_grid_is_left_alone(tmp_path):
    path = tmp_path / "t.csv"
    table, _, _ = built(path)
    before = path.read_bytes()
    for changes, named in (({"weight": 2.0}, r"model \(weight\)"), ({"lengths": (2, 16)}, "lengths")):
        with pytest.raises(RunError, match=f"of another {named}: choose another file"):
            built(path, **changes)
    assert path.read_bytes() == before
    table.require({"model": {"weight": 1.0}})
    for old in (before.replace(b'"version": 2, ', b""), before.replace(b'"version": 2', b'"version": 3')):
        assert old != before
        path.write_bytes(old)
        with pytest.raises(RunError, match="of another version of ldsearch: remove it"):
            LatencyTable.load(path)
    path.write_text("stage,batch\n")
    with pytest.raises(RunError, match="is no latency table"):
        LatencyTable.load(path)


def test_a_table_from_before_a_dimension_had_a_name_is_read_where_it_was_the_default():
    """T5's heads are wider together than the model, which no older table says; BERT's are as wide."""
    named = SupernetStages(Supernet(tiny_model("bert"))).facts["model"]
    new = ("norms_stay", "table_rows", "attention")
    older = LatencyTable({"model": {name: value for name, value in named.items() if name not in new}})
    older.require({"model": named})
    for name in new:
        with pytest.raises(RunError, match=rf"another model \({name}\)"):
            older.require({"model": {**named, name: 99}})


def test_what_it_cannot_know_is_refused(tmp_path):
    table, _, _ = built(tmp_path / "t.csv")
    for batch, length, words in ((8, 16, "no batch 8"), (2, 17, "ends at 16 tokens, before 17")):
        with pytest.raises(LdsearchError, match=words):
            table.predict([Subnet.full(3)], batch, length)
    for subnet in (Subnet.full(3, 3), Subnet(encoder=Stack((0,), heads_off=((0, 1),)))):
        with pytest.raises(SubnetError, match="encoders of whole blocks"):
            table.predict([subnet], 2, 16)
    with pytest.raises(SubnetError, match="block 3 of a model of 3 blocks"):
        table.predict([Subnet.of_encoder([3])], 2, 16)
    with pytest.raises(LdsearchError, match="lengths above 2 tokens, not 1"):
        length_grid([1, 8])
