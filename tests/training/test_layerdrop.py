"""LayerDrop: who is skipped, how often, at which rates, and what a trained supernet says of it."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ldsearch.errors import SupernetError, TrainingError
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import SupernetRecord, read_record
from ldsearch.training.drop_rates import constant
from ldsearch.training.strategies import Setting, StackSetting, make_strategy
from ldsearch.training.strategies.layerdrop import draw_stack
from tests.cli.conftest import EPOCHS, TRAIN, Ldsearch, ldsearch, place, read, trained

__all__ = ["ldsearch", "place", "trained"]  # fixtures


class Planted:
    """A generator whose uniforms are known."""

    def __init__(self, *uniforms: float) -> None:
        self.uniforms = np.array(uniforms)

    def random(self, shape: tuple[int, int]) -> np.ndarray:
        return self.uniforms.reshape(shape)


def stack_of(rates: tuple[float, ...], **changes: object) -> StackSetting:
    return StackSetting(len(rates), rates, **changes)


def setting(rates: tuple[float, ...], teacher_drops: bool = False, **changes: object) -> Setting:
    return Setting({"encoder": stack_of(rates, **changes)}, 64, Fraction(9, 25), teacher_drops=teacher_drops)


def draw_blocks(stack: StackSetting, rng: object) -> tuple[int, ...]:
    return draw_stack(stack, ("layer",), rng).blocks


def drawn(rates: tuple[float, ...], count: int = 10_000, **changes: object) -> np.ndarray:
    """Which blocks run, (draws, blocks)."""
    rng = np.random.default_rng(0)
    runs = np.zeros((count, len(rates)), dtype=bool)
    for draw in runs:
        draw[list(draw_blocks(stack_of(rates, **changes), rng))] = True
    return runs


def draws_of(seed: int):
    return lambda index: np.random.default_rng([seed, index])


def test_every_block_is_skipped_at_its_rate_and_on_its_own():
    runs = drawn(constant(0.2, 12))
    assert runs.sum(axis=1).mean() == pytest.approx(9.6, abs=0.05)
    assert (~runs).mean(axis=0) == pytest.approx(0.2, abs=0.015)
    together = (~runs).T.astype(float) @ (~runs) / len(runs)
    assert together[~np.eye(12, dtype=bool)] == pytest.approx(0.04, abs=0.01)


@pytest.mark.parametrize("rate", [0.2, 1 / 3, 0.75, 1.0, 1e-300, 5e-324])
def test_a_block_is_skipped_iff_its_uniform_is_below_its_rate(rate):
    below = np.nextafter(rate, 0)
    assert draw_blocks(stack_of((rate,) * 3), Planted(below, rate, np.nextafter(rate, 2))) == (1, 2)


def test_blocks_are_put_back_until_enough_run():
    uniforms = (0.1, 0.9, 0.4, 0.3, 0.2)
    run = {
        least: draw_blocks(stack_of((0.5,) * 5, min_layers=least), Planted(*uniforms)) for least in range(6)
    }
    assert run == {
        0: (1,),
        1: (1,),
        2: (1, 2),
        3: (1, 2, 3),
        4: (1, 2, 3, 4),
        5: (0, 1, 2, 3, 4),
    }


def test_with_unequal_rates_the_block_nearest_to_its_own_rate_is_put_back():
    # Lowering all rates by one factor until a block runs: 0.18 of 0.2 is nearer than 0.5 of 0.8.
    assert draw_blocks(stack_of((0.2, 0.8), min_layers=1), Planted(0.18, 0.5)) == (0,)


def test_pinned_blocks_are_never_skipped_and_count_as_running():
    runs = drawn((0.5,) * 4, 3_000, pinned=(0, 2))
    assert runs[:, [0, 2]].all()
    assert runs[:, [1, 3]].mean(axis=0) == pytest.approx(0.5, abs=0.03)
    assert draw_blocks(stack_of((1.0,) * 4, pinned=(2,), min_layers=1), Planted(*[0.5] * 4)) == (2,)
    assert draw_blocks(stack_of((1.0,) * 4, pinned=(2,), min_layers=2), Planted(0.1, 0.2, 0, 0.3)) == (2, 3)


def test_a_batch_makes_one_labelled_pass_that_is_a_function_of_the_draws():
    strategy = make_strategy("layerdrop", setting((0.5,) * 6))
    (one,) = strategy.passes(draws_of(3), 0.5)
    assert (one.loss, one.weight, one.rows) == ("label", 1.0, (0, 1))
    uniforms = np.random.default_rng([3, 0]).random(6)
    assert one.subnet == Subnet.of_encoder(np.flatnonzero(uniforms >= 0.5))
    assert strategy.passes(draws_of(3), 0.9) == [one]


def test_lengthdrop_draws_its_sub_networks_at_the_same_rates():
    rates, skipped = (0.0, 0.25, 0.5, 1.0), np.zeros((3, 4))
    strategy = make_strategy("lengthdrop", setting(rates))
    for seed in range(600):
        full, *shortened = strategy.passes(draws_of(seed), 0.5)
        assert full.subnet == Subnet.full(4)
        for count, one in zip(skipped, shortened, strict=True):
            count[list({*range(4)} - {*one.subnet.encoder.blocks})] += 1
    for share in skipped / 600:
        assert share == pytest.approx(rates, abs=0.08)


def test_lengthdrop_keeps_pinned_and_enough_blocks_in_its_teacher_under_parity_too():
    strategy = make_strategy("lengthdrop", setting((1.0,) * 4, teacher_drops=True, pinned=(0,), min_layers=2))
    for seed in range(20):
        for one in strategy.passes(draws_of(seed), 0.5):
            blocks = one.subnet.encoder.blocks
            assert blocks[0] == 0
            assert len(blocks) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_rates": (0.2, 0.2)},
        {"layer_rates": (0.2, 0.2, 1.5)},
        {"layer_rates": (0.2, 0.2, float("nan"))},
        {"min_layers": 4},
        {"min_layers": -1},
    ],
)
def test_senseless_settings_are_refused(changes):
    with pytest.raises(TrainingError):
        StackSetting(**{"blocks": 3, "layer_rates": (0.2,) * 3} | changes)


LAYERDROP = (*TRAIN, *EPOCHS, "--strategy", "layerdrop", "--name", "new")


@pytest.mark.parametrize(
    ("flags", "rates", "mean", "says"),
    [
        ((), [0.2, 0.2], 0.2, "0.2"),
        (("--layer-drop", "0,0.5"), [0.0, 0.5], 0.25, "0 0.5 (mean 0.25)"),
        (("--layer-drop", "0.4", "--layer-drop-schedule", "linear"), [0.2, 0.4], 0.3, "0.2 0.4 (mean 0.3)"),
        (("--layer-drop", "0.5", "--min-layers", "1"), [0.5, 0.5], 0.5, "0.5, at least 1 blocks running"),
        (("--drop-groups", "head"), [0.2, 0.2], 0.0, "0.2 of head groups"),
        (("--strategy", "plain"), [], 0.0, "0"),
    ],
)
def test_a_trained_supernet_says_what_was_dropped(
    ldsearch: Ldsearch,
    place: Path,
    flags: tuple[str, ...],
    rates: list[float],
    mean: float,
    says: str,
) -> None:
    assert ldsearch(*LAYERDROP, *flags).code == 0
    record = read(place / "runs/new/supernet.json")
    assert record["layer_rates"] == rates
    assert record["layer_drop"] == mean
    lines = dict(line.split("  ", 1) for line in ldsearch("info", "runs/new").out.splitlines())
    assert lines["LayerDrop"].strip() == says


def test_the_trained_passes_are_drawn_at_the_rates_that_were_asked_for(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ldsearch.supernet import Supernet

    seen: list[Subnet] = []
    forward = Supernet.forward

    def recording(self: Supernet, batch: object, subnet: Subnet, *more: object) -> object:
        if self.training:
            seen.append(subnet)
        return forward(self, batch, subnet, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Supernet, "forward", recording)
    five = (*TRAIN, "--max_steps", "5", "--strategy", "layerdrop", "--name", "new")
    assert ldsearch(*five, "--layer-drop", "0,1").code == 0
    # Some of its steps are timed before, to say how long five take.
    assert len(seen) > 5
    assert {*seen} == {Subnet.of_encoder([0])}


def of_family(place: Path, family: str) -> None:
    (place / "config.json").write_text(json.dumps({**read(place / "config.json"), "model_type": family}))


def test_a_family_s_pinned_block_is_trained_as_one(ldsearch: Ldsearch, place: Path) -> None:
    of_family(place, "modernbert")
    assert ldsearch(*LAYERDROP, "--layer-drop", "1").code == 0
    assert read(place / "runs/new/supernet.json")["layer_rates"] == [0.0, 1.0]
    assert ldsearch(*LAYERDROP[:-1], "all", "--layer-drop", "1", "--drop-groups", "sublayer").code == 0
    assert read(place / "runs/all/supernet.json")["layer_rates"] == [1.0, 1.0]


def test_the_generic_view_drops_whole_blocks_only(ldsearch: Ldsearch, place: Path) -> None:
    of_family(place, "layoutlm")
    assert ldsearch(*LAYERDROP).code == 0
    refused = ldsearch(*LAYERDROP[:-1], "heads", "--drop-groups", "head")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "works depth-only" in refused.err


def test_a_search_is_told_which_blocks_were_never_skipped(ldsearch: Ldsearch, place: Path) -> None:
    assert ldsearch(*LAYERDROP, "--layer-drop", "0.5,0").code == 0
    said = ldsearch("evolve", "--supernet", "runs/new", "--strategy", "every-other", "--keep", 1).err
    assert said == "note: training never skipped blocks 1: scores without them will suffer\n"
    assert ldsearch(*LAYERDROP[:-1], "heads", "--drop-groups", "head+ffn").code == 0
    said = ldsearch("evolve", "--supernet", "runs/heads", "--strategy", "every-other", "--keep", 1).err
    assert "depths were not trained (layerdrop, only head+ffn groups dropped)" in said


def test_a_record_from_before_there_were_rates_per_block_still_loads(trained: Path, tmp_path: Path) -> None:
    fields = read(trained / "runs/tiny/supernet.json")
    del fields["layer_rates"]
    SupernetRecord(**fields).save(tmp_path)
    assert read_record(tmp_path).layer_rates == []
    SupernetRecord(**fields, layer_rates=[0.1, 0.2]).save(tmp_path)
    assert read_record(tmp_path).layer_rates == [0.1, 0.2]
    (tmp_path / "supernet.json").write_text("{}")
    with pytest.raises(SupernetError, match="damaged"):
        read_record(tmp_path)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--layer-drop", "0.1,0.2,0.3"), "3 LayerDrop rates for 2 blocks"),
        (("--layer-drop", "often"), "'often'"),
        (("--min-layers", "3"), "--min-layers must lie in 0..2"),
        (("--drop-groups", "neuron"), "layer, sublayer, head, ffn"),
        (("--strategy", "lengthdrop", "--drop-groups", "head"), "for --strategy layerdrop, not lengthdrop"),
    ],
)
def test_contradictions_are_one_line_and_leave_nothing_behind(
    ldsearch: Ldsearch, place: Path, flags: tuple[str, ...], says: str
) -> None:
    outcome = ldsearch(*LAYERDROP, *flags)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert says in outcome.err
    assert not (place / "runs/new").exists()
