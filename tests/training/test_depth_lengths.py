"""Depths and lengths in one training: the passes, their gradient, and the record that says both."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch.nn.functional import cross_entropy, kl_div

from ldsearch.bench import Bench
from ldsearch.cli import main
from ldsearch.errors import TrainingError
from ldsearch.options import TrainSupernet
from ldsearch.space.assignments import assignment_named, configurations
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import read_record
from ldsearch.supernet.heads import logits_of
from ldsearch.testing import StrategyContract
from ldsearch.training.strategies import Pass, Setting, StackSetting, make_strategy
from ldsearch.training.train_supernet import train_supernet
from tests.tiny import tiny_model
from tests.training import test_trainer as one_stack
from tests.training import test_two_stacks as two_stacks
from tests.translators import sentences

# Where the shortest of 32 tokens lies after each block: ceil of 16/25, and never below two.
FLOORS = {32: 21, 21: 14, 14: 9, 9: 6, 6: 4, 4: 3, 3: 2, 2: 2}
DEPTHS = {"encoder": 4, "decoder": 6}
GRID = configurations(DEPTHS, "optimal")


def setting(depths: dict[str, int] | None = None, plain_share: float = 0.0, **tasks: object) -> Setting:
    stacks = {name: StackSetting(blocks, (0.0,) * blocks) for name, blocks in (depths or DEPTHS).items()}
    how = {"depth_lengths": True, "plain_share": plain_share, **tasks}
    return Setting(stacks, 32, Fraction(9, 25), **how)


def passes_of(options: Setting, seed: int = 0, progress: float = 0.5) -> Sequence[Pass]:
    strategy = make_strategy("flexible-depth", options)
    return strategy.passes(lambda index: np.random.default_rng([seed, index]), progress)


def at_full_length(subnet: Subnet) -> Subnet:
    return replace(subnet, encoder=replace(subnet.encoder, lengths=None))


def tokens_of(subnet: Subnet) -> tuple[int, ...]:
    """That leave each executed block."""
    lengths = subnet.encoder.lengths
    return (32,) * len(subnet.encoder.blocks) if lengths is None else lengths.tokens


def smallest(blocks: int) -> tuple[int, ...]:
    lengths = [32]
    for _ in range(blocks):
        lengths.append(FLOORS[lengths[-1]])
    return tuple(lengths[1:])


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
        assert tokens_of(last.subnet) == smallest(len(last.subnet.encoder.blocks))
        assert [one.loss for one in passes] == ["label"] * 12 + ["distill"] * 13
        assert {(one.weight, one.rows) for one in passes} == {(1.0, (0, 1))}


def test_lengths_have_lengthdrops_support_at_the_blocks_that_run_each_depth_its_own():
    seen: dict[int, Counter[int]] = {1: Counter(), 4: Counter()}
    for seed in range(400):
        drawn = [one.subnet for one in passes_of(setting(), seed)[12:24]]
        for subnet in drawn:
            before = 32
            for after in tokens_of(subnet):
                shortest = max(2, -(-16 * before // 25))
                assert shortest <= after <= before
                before = after
        assert len({tokens_of(subnet) for subnet in drawn if len(subnet.encoder.blocks) == 4}) > 1
        for depth, counts in seen.items():
            one = next(subnet for subnet in drawn if len(subnet.encoder.blocks) == depth)
            counts[tokens_of(one)[0]] += 1
    for counts in seen.values():
        assert set(counts) == set(range(21, 33))
        assert chisquare([*counts.values()]).pvalue > 0.001


def test_the_smallest_lengths_come_equally_often_at_every_depth():
    seen = Counter(at_full_length(passes_of(setting(), seed)[-1].subnet) for seed in range(600))
    assert len(seen) == 12
    assert chisquare([*seen.values()]).pvalue > 0.001


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
    loud, quiet = passes_of(setting()), passes_of(replace(setting(), distil=False))
    assert [one.subnet for one in quiet] == [one.subnet for one in loud]
    assert {one.loss for one in quiet} == {"label"}


def test_while_the_plain_share_lasts_and_without_lengths_it_is_flexible_depth_alone():
    options = {"encoder_tasks": 2, "batch_share": 0.5}
    for seed in range(20):
        alone = passes_of(setting(depth_lengths=False, **options), seed)
        assert passes_of(setting(plain_share=0.3, **options), seed, 0.29) == alone
        assert len(passes_of(setting(plain_share=0.3, **options), seed, 0.3)) > len(alone)
        rng = np.random.default_rng([seed, 0])
        drawn = sorted(rng.choice((1, 2, 4), size=2, replace=False).tolist())
        rows = (int(rng.integers(2)), 2)
        blocks = assignment_named("optimal", 4)
        assert [one.subnet.encoder.blocks for one in alone] == [blocks[m] for m in drawn for _ in range(4)]
        assert {(one.loss, one.weight, one.rows) for one in alone} == {("label", 1.0, rows)}


def test_an_encoder_is_enough_and_a_decoder_is_not():
    passes = passes_of(setting({"encoder": 4}))
    assert [len(one.subnet.encoder.blocks) for one in passes[:6]] == [4, 1, 2, 1, 2, 4]
    assert len(passes) == 7
    with pytest.raises(TrainingError, match="lengths are dropped in encoders: train a decoder without"):
        make_strategy("flexible-depth", setting({"decoder": 4}))


def make(kind: str, folder: Path):
    """A trainer of one step without dropout, and the same model again, both in double precision."""
    options = replace(setting({"encoder": 4} if kind == "bert" else two_stacks.DEPTHS), reference=16)
    if kind == "bert":
        strategy = make_strategy("flexible-depth", options)
        nets = (Supernet(tiny_model("bert"), "column") for _ in range(2))
        ours, theirs = (one_stack.without_dropout(net).double() for net in nets)
        return one_stack.trainer_for(folder, strategy, ours), theirs, one_stack.examples(4)
    ours, theirs = (Supernet(two_stacks.still("mbart"), "column", memory=kind).double() for _ in range(2))
    trainer = two_stacks.trainer_for(folder, ours, "flexible-depth", options)
    return trainer, theirs, two_stacks.examples(4)


@pytest.mark.parametrize("kind", ["bert", "restored", "kept"])
def test_one_step_is_the_sum_of_separate_gradients(kind, tmp_path):
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
    assert {one.loss for one in passes} == {"label", "distill"}
    torch.testing.assert_close(found, one_stack.gradients_of(reference), atol=2e-5, rtol=2e-5)
    assert max(float(gradient.abs().max()) for gradient in found.values()) > 1e-2


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("both")
    rows = [{"source": text, "target": text[::-1]} for text in dict.fromkeys(sentences(60))]
    for name, part in (("train", rows[:30]), ("validation", rows[30:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    sizes = {"d_model": 16, "max_position_embeddings": 32, "encoder_layers": 2, "decoder_layers": 2}
    for stack in ("encoder", "decoder"):
        sizes |= {f"{stack}_attention_heads": 2, f"{stack}_ffn_dim": 32}
    (folder / "config.json").write_text(json.dumps({"model_type": "pegasus", **sizes}))
    (folder / "text.txt").write_text("".join(f"{text}\n" for text in sentences(60)))
    gpt2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
    (folder / "gpt2.json").write_text(json.dumps(gpt2))
    return folder


def test_a_training_with_a_drop_bound_records_depths_and_lengths(place, monkeypatch):
    monkeypatch.chdir(place)
    command = "ldsearch train-supernet --task translation --data train.jsonl --validation validation.jsonl "
    command += "--keep-overlap --model config.json --max-length 24 --strategy flexible-depth --memory kept "
    command += "--drop-bound 0.36 --plain-share 0 --max_steps 2 --disable_tqdm True --name both"
    monkeypatch.setattr(sys, "argv", command.split())
    with pytest.raises(SystemExit) as exit_:
        main()
    assert not exit_.value.code
    record = Bench.open("runs/both").record
    assert (record.strategy, record.drop_bound, record.memory) == ("flexible-depth", "9/25", "kept")
    assert record.training["depth_tasks"]["assignment"] == "optimal"
    assert record.training["depth_tasks"]["lengths"]
    assert record.training["plain_share"] == 0


def test_without_a_drop_bound_the_record_says_depths_alone_and_stock_forwards_refuse_one(place):
    named = {"data": "train.jsonl", "validation": "validation.jsonl", "model": "config.json"}
    options = TrainSupernet(
        **{name: str(place / file) for name, file in named.items()},
        task="translation",
        keep_overlap=True,
        strategy="flexible-depth",
        max_length=24,
        trainer={"max_steps": "1", "disable_tqdm": "True"},
    )
    record = read_record(train_supernet(place / "depths", options))
    assert (record.drop_bound, record.training["plain_share"]) == (None, None)
    assert not record.training["depth_tasks"]["lengths"]
    lines = {"task": "causal", "data": str(place / "text.txt"), "model": str(place / "gpt2.json")}
    refused = replace(options, **lines, validation=None, drop_bound=0.2)
    with pytest.raises(TrainingError, match=r"depth-only.*or flexible-depth without --drop-bound"):
        train_supernet(place / "refused", refused)
