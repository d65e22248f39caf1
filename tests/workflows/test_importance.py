"""Importance over a model: planted additive scores, an encoder-decoder's stacks, going on after a kill."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ldsearch import Bench
from ldsearch.commands.importance import block_importance
from ldsearch.commands.options import Report, TrainSupernet
from ldsearch.commands.train_supernet import train_supernet
from ldsearch.errors import RunError, SpaceError
from ldsearch.evaluation.evaluator import Counts
from ldsearch.subnet import Subnet
from ldsearch.trial import Score, Trial
from tests.translators import sentences

WEIGHTS = (4.0, -1.0, 0.5, 0.0, 2.0, 8.0)


class PlantedEvaluator:
    """Scores a sub-network by the sum of its blocks' weights, of every stack."""

    def __init__(self, higher: bool) -> None:
        self.higher = higher
        self.fingerprint = "planted"
        self.counts = Counts()
        self.asked: list[Subnet] = []

    def __call__(
        self,
        subnets: Sequence[Subnet],
        generation: int,
        on_trial: Callable[[Trial], None],
        on_wait: Callable[[int], None],
    ) -> list[Trial]:
        trials = []
        for subnet in subnets:
            kept = [block for stack in subnet.stacks().values() for block in stack.blocks]
            value = sum(WEIGHTS[block] for block in kept) * (1 if self.higher else -1)
            trials.append(Trial(subnet, "planted", Score(value, self.higher), {}, 7, "search", 0.0, "f"))
            on_trial(trials[-1])
        self.asked += subnets
        return trials


def planted_bench(place: Path, higher: bool, pinned: tuple[int, ...] = (), **depths: int) -> SimpleNamespace:
    """As much of a workbench as importance looks at."""
    supernet = SimpleNamespace(depths=depths, pinned=pinned, stack=next(iter(depths)))
    return SimpleNamespace(
        folder=place / "runs" / "planted",
        supernet=supernet,
        evaluator=PlantedEvaluator(higher),
        require_supernet=lambda: None,
    )


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("keep", [None, 2, 5])
def test_planted_contributions_come_back_exactly(tmp_path, higher, keep):
    bench = planted_bench(tmp_path, higher, decoder=6)
    study = block_importance(bench, tmp_path / "i", Report(keep=keep, subsets=4))
    assert study.table["block"].tolist() == list(range(6))
    assert study.table["loss"].tolist() == list(WEIGHTS)
    assert study.table["standard_error"].tolist() == [0.0] * 6
    kept = keep or 3
    assert {len(subnet.decoder.blocks) for subnet in bench.evaluator.asked} == {kept, kept + 1}
    assert [study.fields[name] for name in ("metric", "examples", "split")] == ["planted", 7, "search"]
    assert (tmp_path / "i" / "importance.png").stat().st_size > 5_000


def test_a_stack_of_two_is_named_and_the_other_one_stays_whole(tmp_path):
    bench = planted_bench(tmp_path, True, encoder=3, decoder=6)
    study = block_importance(bench, tmp_path / "d", Report(stack="decoder", subsets=3))
    assert study.table["loss"].tolist() == list(WEIGHTS)
    assert {subnet.encoder.blocks for subnet in bench.evaluator.asked} == {(0, 1, 2)}
    with pytest.raises(RunError, match=r"more than one stack: choose --stack encoder or --stack decoder"):
        block_importance(bench, tmp_path / "e", Report())


def test_pinned_blocks_run_in_all_and_have_no_importance(tmp_path):
    bench = planted_bench(tmp_path, True, pinned=(0,), encoder=6)
    study = block_importance(bench, tmp_path / "i", Report(keep=2))
    assert study.table["block"].tolist() == [1, 2, 3, 4, 5]
    assert all(0 in subnet.encoder.blocks for subnet in bench.evaluator.asked)
    with pytest.raises(SpaceError, match="cannot keep 6 of 6"):
        block_importance(bench, tmp_path / "no", Report(keep=6))


BART = {
    "model_type": "bart",
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 32,
    "init_std": 0.5,
}
GPT = {"model_type": "gpt2", "n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 32}


def trained(place: Path, task: str, model: dict[str, object]) -> Bench:
    """A supernet after one step, whose blocks do something all the same."""
    texts = list(dict.fromkeys(sentences(60)))[:32]
    rows = [{"source": text, "target": text[::-1], "text": text} for text in texts]
    for name, part in (("train", rows[:16]), ("validation", rows[16:])):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    (place / "config.json").write_text(json.dumps({**model, "initializer_range": 0.5}))
    options = TrainSupernet(
        data=str(place / "train.jsonl"),
        task=task,
        validation=str(place / "validation.jsonl"),
        keep_overlap=True,
        model=str(place / "config.json"),
        strategy="layerdrop",
        max_length=16,
        trainer={"max_steps": "1", "disable_tqdm": "True"},
    )
    return Bench.open(train_supernet(place / "runs" / "model", options))


def test_a_translators_decoder_and_a_killed_measurement_goes_on(tmp_path, monkeypatch):
    bench = trained(tmp_path, "translation", BART)
    seen: list[Trial] = []

    class Killer:
        def phase(self, name: str, total: int | None) -> None:
            assert (name, total) == ("sub-networks", 3 * 2 * 2)

        def trial(self, trial: Trial) -> None:
            seen.append(trial)
            if len(seen) == 6:
                raise KeyboardInterrupt

    options = Report(stack="decoder", keep=1)
    with pytest.raises(KeyboardInterrupt):
        block_importance(bench, tmp_path / "i", options, progress=Killer())
    assert [path.name for path in (tmp_path / "i").iterdir()] == ["importance.json"]
    study = block_importance(bench, tmp_path / "i", options)
    assert bench.evaluator.counts.measured == 6  # three single blocks and three pairs, none twice
    direction = 1 if bench.task.metric.higher_is_better else -1

    def loss(*blocks: int) -> float:
        whole = Subnet.of_blocks({"encoder": (0, 1), "decoder": blocks})
        return -direction * bench.score(bench.evaluator.statistics(whole)).value

    by_hand = np.mean([loss(0) - loss(0, 2), loss(1) - loss(1, 2)])
    assert study.table["loss"][2] == pytest.approx(by_hand)
    assert by_hand != 0
    with pytest.raises(RunError, match=r"holds another run \(its keep differ\)"):
        block_importance(bench, tmp_path / "i", Report(stack="decoder", keep=2))


def test_a_language_model_has_a_decoder_only(tmp_path):
    bench = trained(tmp_path, "causal", GPT)
    study = block_importance(bench, tmp_path / "i", Report())
    assert [study.fields["identity"][name] for name in ("stack", "keep")] == ["decoder", 2]
    full = bench.score(bench.evaluator.statistics(bench.full)).value
    assert study.table["restored"].tolist() == pytest.approx([full] * 3)
    assert study.table["loss"].tolist() == pytest.approx((study.table["without"] - full).tolist())
