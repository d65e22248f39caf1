"""Depths and lengths in one training: the passes, their gradient, and the record that says both."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch.nn.functional import cross_entropy, kl_div

from ldsearch.errors import TrainingError
from ldsearch.space.assignments import configurations
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import read_record
from ldsearch.supernet.heads import logits_of
from ldsearch.testing import StrategyContract
from ldsearch.training.strategies import Setting, make_strategy
from ldsearch.training.train_supernet import train_supernet
from tests.tiny import tiny_model
from tests.training import test_strategies as strategies
from tests.training import test_trainer as one_stack
from tests.training import test_two_stacks as two_stacks
from tests.workflows.conftest import texts_options, write_texts

# The shortest of 32 tokens after each block: ceil of 16/25.
SMALLEST = (21, 14, 9, 6)
DEPTHS = {"encoder": 4, "decoder": 6}
GRID = configurations(DEPTHS, "optimal")


passes_of = partial(strategies.passes_of, name="flexible-depth")


def setting(depths: Mapping[str, int] = DEPTHS, **tasks: object) -> Setting:
    return strategies.setting(0.0, depths, **{"reference": 32, "depth_lengths": True, **tasks})


def at_full_length(subnet: Subnet) -> Subnet:
    return replace(subnet, encoder=replace(subnet.encoder, lengths=None))


def tokens_of(subnet: Subnet) -> tuple[int, ...]:
    """That leave each executed block."""
    lengths = subnet.encoder.lengths
    return (32,) * len(subnet.encoder.blocks) if lengths is None else lengths.tokens


class TestContract(StrategyContract):
    """The laws of every strategy, where depths and lengths are trained together."""

    def strategy(self, given):
        return make_strategy("flexible-depth", given)

    def settings(self):
        free = [one for one in super().settings() if not any(stack.pinned for stack in one.stacks.values())]
        drawn = {"encoder_tasks": 1, "batch_share": 0.5, "reduction": "mean", "plain_share": 0.0}
        how = ({"plain_share": 0.4}, drawn)
        return [replace(one, depth_lengths=True, **options) for one in free for options in how]


def test_every_depth_runs_at_full_length_and_at_one_draw_and_one_at_the_smallest():
    for seed in range(50):
        passes = passes_of(setting(), seed)
        labelled, shortened, last = passes[:12], passes[12:24], passes[24]
        assert len(passes) == 25
        assert passes[0].subnet == Subnet.full(4, 6)
        assert Counter(one.subnet for one in labelled) == Counter(GRID.values())
        assert [at_full_length(one.subnet) for one in shortened] == [*GRID.values()]
        assert at_full_length(last.subnet) in GRID.values()
        assert tokens_of(last.subnet) == SMALLEST[: len(last.subnet.encoder.blocks)]
        assert [one.loss for one in passes] == ["label"] * 12 + ["distill"] * 13
        assert {(one.weight, one.rows) for one in passes} == {(1.0, (0, 1))}


def test_lengths_have_lengthdrops_support_at_each_depth_and_the_smallest_come_at_every_depth():
    seen: dict[int, Counter[int]] = {1: Counter(), 4: Counter()}
    least: Counter[Subnet] = Counter()
    for seed in range(600):
        *drawn, last = (one.subnet for one in passes_of(setting(), seed)[12:])
        least[at_full_length(last)] += 1
        for subnet in drawn:
            for before, after in pairwise((32, *tokens_of(subnet))):
                assert max(2, -(-16 * before // 25)) <= after <= before
        assert len({tokens_of(subnet) for subnet in drawn if len(subnet.encoder.blocks) == 4}) > 1
        for depth, counts in seen.items():
            one = next(subnet for subnet in drawn if len(subnet.encoder.blocks) == depth)
            counts[tokens_of(one)[0]] += 1
    assert all(set(counts) == set(range(21, 33)) for counts in seen.values())
    assert len(least) == 12
    for counts in (least, *seen.values()):
        assert chisquare([*counts.values()]).pvalue > 0.001


def test_where_tasks_are_drawn_the_full_model_teaches_all_the_same_and_alone_sees_all_rows():
    drawn = {"encoder_tasks": 1, "decoder_tasks": 2, "batch_share": 0.25, "reduction": "mean"}
    sizes = set()
    for seed in range(60):
        plain = passes_of(setting(depth_lengths=False, **drawn), seed)
        first, *others = passes_of(setting(**drawn), seed)
        tasks = [one.subnet for one in plain]
        assert (first.subnet, first.loss, first.rows) == (Subnet.full(4, 6), "label", (0, 1))
        # The tasks and rows of the batch are those that it has without lengths.
        assert {one.rows for one in others} == {plain[0].rows}
        assert [one.subnet for one in others if one.loss == "label"] == [
            task for task in tasks if task != Subnet.full(4, 6)
        ]
        *shortened, last = [one.subnet for one in others if one.loss == "distill"]
        assert [at_full_length(subnet) for subnet in shortened] == tasks
        assert at_full_length(last) in tasks
        assert sum(one.weight for one in (first, *others)) == pytest.approx(1)
        sizes.add(len(others))
    assert sizes == {4, 5}  # with and without the full depth among the two


def test_without_a_teacher_everything_learns_from_the_labels():
    loud, quiet = passes_of(setting()), passes_of(setting(distil=False))
    assert [one.subnet for one in quiet] == [one.subnet for one in loud]
    assert {one.loss for one in quiet} == {"label"}


def test_while_the_plain_share_lasts_it_is_flexible_depth_alone():
    options = {"encoder_tasks": 2, "batch_share": 0.5}
    for seed in range(20):
        alone = passes_of(setting(depth_lengths=False, **options), seed)
        assert passes_of(setting(plain_share=0.3, **options), seed, 0.29) == alone
        assert len(passes_of(setting(plain_share=0.3, **options), seed, 0.3)) > len(alone)


def test_an_encoder_is_enough_and_a_decoder_is_not():
    passes = passes_of(setting({"encoder": 4}))
    assert [len(one.subnet.encoder.blocks) for one in passes[:6]] == [4, 1, 2, 1, 2, 4]
    assert len(passes) == 7
    with pytest.raises(TrainingError, match="lengths are dropped in encoders: train a decoder without"):
        make_strategy("flexible-depth", setting({"decoder": 4}))


def make(kind: str, folder: Path):
    """A trainer of one step without dropout, and the same model again, both in double precision."""
    depths = {"encoder": 4} if kind == "bert" else two_stacks.DEPTHS
    options = setting(depths, reference=16, depth_lengths=kind != "t5")
    if kind == "bert":
        strategy = make_strategy("flexible-depth", options)
        nets = (Supernet(tiny_model("bert"), "column") for _ in range(2))
        ours, theirs = (one_stack.without_dropout(net).double() for net in nets)
        return one_stack.trainer_for(folder, strategy, ours), theirs, one_stack.examples(4)
    name, memory = ("t5", "restored") if kind == "t5" else ("mbart", kind)
    ours, theirs = (Supernet(two_stacks.still(name), "column", memory=memory).double() for _ in range(2))
    trainer = two_stacks.trainer_for(folder, ours, "flexible-depth", options)
    return trainer, theirs, two_stacks.examples(4)


@pytest.mark.parametrize("kind", ["t5", "bert", "restored", "kept"])
def test_one_step_is_the_sum_of_separate_gradients(kind, tmp_path):
    """Of T5 that of depths alone."""
    trainer, reference, rows = make(kind, tmp_path)
    batch = one_stack.batch_of(trainer, rows)
    found = one_stack.gradients(trainer, batch)
    passes = trainer.strategy.passes(lambda i: np.random.default_rng([42, 0, 0, i]), 0.0)
    inputs, real = reference.inputs(batch), batch["labels"] != -100
    labels = batch["labels"][real]
    teacher = None
    for one in passes:
        # The model that the sub-network is, of its own.
        logits = logits_of(reference.materialise(one.subnet)(**inputs))[real]
        teacher = logits.detach() if teacher is None else teacher
        if one.loss == "label":
            cross_entropy(logits, labels).backward()
        else:
            ours, theirs = logits.log_softmax(-1), teacher.log_softmax(-1)
            kl_div(ours, theirs, reduction="batchmean", log_target=True).backward()
    assert {one.loss for one in passes} == ({"label"} if kind == "t5" else {"label", "distill"})
    torch.testing.assert_close(found, one_stack.gradients_of(reference), atol=2e-5, rtol=2e-5)
    assert max(float(gradient.abs().max()) for gradient in found.values()) > 1e-2


@pytest.mark.parametrize(
    ("how", "bound"), [({"drop_bound": 0.36, "memory": "kept", "plain_share": 0.0}, "9/25"), ({}, None)]
)
def test_the_record_says_whether_lengths_were_trained_with_the_depths(tmp_path, how, bound):
    write_texts(tmp_path)
    options = texts_options(tmp_path, "translation", {}, strategy="flexible-depth", **how)
    record = read_record(train_supernet(tmp_path / "new", options))
    assert (record.strategy, record.drop_bound, record.memory) == (
        "flexible-depth",
        bound,
        how.get("memory", "restored"),
    )
    assert record.training["plain_share"] == how.get("plain_share")
    assert record.training["depth_tasks"]["assignment"] == "optimal"
    assert record.training["depth_tasks"]["lengths"] == bool(how)


def test_a_stock_forward_refuses_a_drop_bound(tmp_path):
    write_texts(tmp_path)
    options = texts_options(tmp_path, "causal", {}, strategy="flexible-depth", drop_bound=0.2)
    with pytest.raises(TrainingError, match=r"depth-only.*or flexible-depth without --drop-bound"):
        train_supernet(tmp_path / "refused", options)
