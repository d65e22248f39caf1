"""How long a training takes: its work by hand, and that measuring leaves no trace."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.workload import Workload
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.training.estimate import step_work, training_minutes
from ldsearch.training.strategies import Pass, Setting, make_strategy
from tests.tiny import small_setting, tiny_model
from tests.training.test_strategies import setting
from tests.training.test_trainer import FULL, Fixed, assert_same, trainer_for

BLOCKS, TOKENS = 4, 16
MACS = Macs(EncoderShape(BLOCKS, 8, 32), Workload.padded(TOKENS))
WHOLE = float(MACS([Subnet.full(BLOCKS)])[0])


def work_of(name: str, rate: float, **changes: object) -> float:
    how = {"reference": TOKENS, "drop_bound": Fraction(1, 2), **changes}
    strategy = make_strategy(name, setting(rate, {"encoder": BLOCKS}, **how))
    return step_work(strategy, MACS, WHOLE, steps=400)


def test_the_work_of_a_step_is_that_of_its_passes():
    half = Subnet.of_encoder(range(BLOCKS // 2))
    passes = [
        Pass(Subnet.full(BLOCKS), "label", 0.5),
        Pass(half, "distill", 0.5),
        Pass(half, "distill", 0.5, (1, 4)),
    ]
    macs = float(MACS([half])[0])
    assert step_work(Fixed(passes), MACS, WHOLE) == pytest.approx(1 + 1.25 * macs / WHOLE)
    # Each of four blocks, which are the work but for the head, runs with probability 0.8.
    blocks = 2 * (WHOLE - macs) / WHOLE
    assert work_of("layerdrop", 0.2) == pytest.approx(1 - 0.2 * blocks, abs=0.02)
    assert work_of("plain", 0.2) == pytest.approx(1)


def test_while_the_full_model_has_a_share_for_itself_a_step_is_a_plain_one():
    always, later = (work_of("lengthdrop", 0.0, genes="lengths", plain_share=share) for share in (0.0, 0.5))
    # The smallest lengths halve at every block, and random ones lie between these and full ones.
    smallest = float(MACS([Subnet.of_encoder(range(BLOCKS), (8, 4, 2, 1), TOKENS)])[0]) / WHOLE
    assert 1 + 3 * smallest < always < 4
    assert later == pytest.approx((1 + always) / 2, abs=0.03)


def test_measuring_changes_nothing_of_the_training(tmp_path):
    models = []
    for measured in (False, True):
        torch.manual_seed(0)
        strategy, model = make_strategy("lengthdrop", small_setting(0.2)), tiny_model("bert")
        trainer = trainer_for(tmp_path / str(measured), strategy, Supernet(model), max_steps=3)
        if measured:
            assert min(trainer.step_seconds([strategy.passes(np.random.default_rng, 0.5)] * 2)) >= 0
            assert all(weight.grad is None for weight in model.parameters())
        trainer.train()
        models.append(model)
    assert_same(*models)


def test_the_batches_that_are_timed_are_of_those_that_train_shortest_first(tmp_path, monkeypatch):
    trainer = trainer_for(tmp_path, Fixed([Pass(FULL, "label", 1.0)]), max_steps=1)
    seen, read = [], trainer._batch
    monkeypatch.setattr(trainer, "_batch", lambda *asked: seen.append(asked[1].tolist()) or read(*asked))
    trainer.step_seconds([[Pass(FULL, "label", 1.0)]] * 3)
    order, size = [*trainer._get_train_sampler()], trainer.args.train_batch_size
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    longest = [max(trainer.train_rows.lengths[rows]) for rows in seen[1:]]
    assert all(rows in batches for rows in seen)
    assert longest == sorted(longest)
    assert len({*longest}) > 1


def test_measuring_leaves_the_means_that_rates_are_learned_by_as_they_were(tmp_path):
    setting = Setting.of(Supernet(tiny_model("bert")), 16, layer_drop=(0.3,), schedule="learned")
    strategy = make_strategy("layerdrop", setting)
    trainer = trainer_for(tmp_path, strategy, Supernet(tiny_model("bert")), max_steps=1)
    before = {name: own.clone() for name, own in trainer._rates.rates.state_dict().items()}
    trainer.step_seconds([strategy.passes(np.random.default_rng, 0.5)] * 2)
    after = trainer._rates.rates.state_dict()
    assert after.keys() == before.keys() >= {"activations", "batches"}
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_number_to_predict_may_be_what_marks_a_token_without_label(tmp_path):
    trainer = trainer_for(tmp_path, Fixed([Pass(FULL, "label", 1.0)]), max_steps=1)
    ids = torch.ones(3, 2, dtype=torch.long)
    assert trainer._items({"input_ids": ids, "labels": torch.tensor([-100.0, 1.0, 2.0])}) == 3
    assert trainer._items({"input_ids": ids, "labels": torch.tensor([[-100, 1], [2, -100], [3, 4]])}) == 4


@pytest.mark.parametrize(("bf16", "dtype"), [(False, torch.float32), (True, torch.bfloat16)])
def test_steps_are_timed_in_the_precision_that_trains(tmp_path, bf16, dtype):
    trainer = trainer_for(tmp_path, Fixed([Pass(FULL, "label", 1.0)]), bf16=bf16, max_steps=1)
    query = trainer.supernet.model.get_submodule("bert.encoder.layer.0.attention.self.query")
    seen = []
    query.register_forward_hook(lambda layer, inputs, output: seen.append(output.dtype))
    trainer.step_seconds([[Pass(FULL, "label", 1.0)]])
    timed = {*seen}
    seen.clear()
    trainer.train()
    assert timed == {*seen} == {dtype}


def test_minutes_grow_with_steps_and_passes_and_a_teacher_reads_too(tmp_path, monkeypatch):
    passes = [Pass(FULL, "label", 0.5), Pass(FULL, "distill", 0.5)]
    trainer = trainer_for(tmp_path, Fixed(passes), gradient_accumulation_steps=2)
    monkeypatch.setattr(trainer, "step_seconds", lambda steps: (30.0 * len(steps[0]), 10.0))
    trainer.teacher = trainer.supernet
    assert training_minutes(trainer, 7) == pytest.approx((7 * 2 * (60 + 10) / 60, 2.0))
    trainer.taught = trainer.train_rows  # 24 rows in batches of 4, once
    assert training_minutes(trainer, 7)[0] == pytest.approx((7 * 2 * 60 + 6 * 10) / 60)


class Growing(Fixed):
    """A step more has a pass more, five times in six."""

    def passes(self, draws, progress):
        return self.named[: 1 + round(5 * progress)]


def test_what_the_timed_steps_have_more_or_less_than_the_mean_is_made_up_for(tmp_path, monkeypatch):
    trainer = trainer_for(tmp_path, Growing([Pass(FULL, "label", 1.0)] * 6))
    monkeypatch.setattr(trainer, "step_seconds", lambda steps: (np.mean([len(own) for own in steps]), 0.0))
    minutes, work = training_minutes(trainer, 60)
    assert minutes == pytest.approx(work) == pytest.approx(3.5, abs=0.02)
