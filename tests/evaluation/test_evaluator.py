"""The evaluator: right scores in the examples' own order, counted, cached."""

from itertools import chain

import numpy as np
import pytest
import torch
from transformers import BertTokenizer

from ldsearch.costs.macs import Macs
from ldsearch.costs.workload import Workload
from ldsearch.disk.fingerprint import digest
from ldsearch.evaluation import Evaluator
from ldsearch.evaluation.batches import length_batches
from ldsearch.storage import MeasurementCache
from ldsearch.storage.sidecar import Sidecar
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.tasks import Encoded, TextClassification
from ldsearch.tasks.tokens import EncodedWords, TokenClassification
from tests.tiny import tiny_model

TOKENIZER = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4})
TASK = TextClassification({}, ("a", "b", "c"), {})
HALF = Subnet.of_encoder([0, 1, 3], [12, 8, 4], 24)


@pytest.fixture
def encoded() -> Encoded:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 25, 41).tolist()
    drawn = [(rng.integers(5, 60, n).tolist(), int(rng.integers(3))) for n in lengths]
    rows = [{"input_ids": ids, "attention_mask": [1] * len(ids), "labels": own} for ids, own in drawn]
    return Encoded(tuple(rows), 24)


def evaluator_for(encoded: Encoded, task=TASK, head: str = "SequenceClassification", **changes) -> Evaluator:
    supernet = Supernet(tiny_model("bert", head=head))
    costs = (Macs(supernet.shape, encoded.workload), supernet.parameters_cost)
    values = {"split": "search", "tokenizer": TOKENIZER, "costs": costs, "fingerprint": "f"}
    return Evaluator(supernet, task, encoded, **{**values, **changes})


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_logits_come_in_the_examples_own_order_whatever_the_batches(encoded, batch_size):
    evaluator = evaluator_for(encoded, batch_size=batch_size)
    logits = evaluator.outputs(HALF)
    assert len(logits) == evaluator.examples == 41
    for index in (0, 3, 40):
        one = {k: torch.tensor([v]) for k, v in encoded[index].items() if k != "labels"}
        with torch.inference_mode():
            alone = evaluator.supernet(one, HALF).logits[0].numpy()
        np.testing.assert_allclose(logits[index], alone, atol=1e-5)


def words_of(encoded: Encoded) -> EncodedWords:
    """Every token is a word, and its id says its label."""
    tags = [tuple(token % 3 for token in row["input_ids"]) for row in encoded]
    features = tuple({**row, "labels": list(own)} for row, own in zip(encoded, tags, strict=True))
    firsts = tuple(np.arange(len(own)) for own in tags)
    return EncodedWords(features=features, reference=24, tags=tuple(tags), firsts=firsts)


@pytest.mark.parametrize("subnet", [HALF, Subnet.full(4)])
def test_outputs_per_token_come_without_padding_and_count_word_by_word(encoded, subnet):
    words, task = words_of(encoded), TokenClassification({}, ("a", "b", "c"), {}, metric_name="accuracy")
    evaluator = evaluator_for(words, task, "TokenClassification", batch_size=7)
    outputs = evaluator.outputs(subnet)
    alone = []
    for row in words:
        one = {"input_ids": torch.tensor([row["input_ids"]])}
        with torch.inference_mode():
            alone.append(evaluator.supernet(one, subnet).logits[0].argmax(-1).tolist())
    assert [output.tolist() for output in outputs] == alone
    right = [p == t for p, t in zip(chain(*alone), chain(*words.tags), strict=True)]
    trial = evaluator([subnet])[0]
    assert trial.score.value == pytest.approx(np.mean(right))
    assert (trial.examples, trial.metric) == (41, "accuracy")
    by_example = evaluator.statistics(subnet)
    assert by_example[:, 0].sum() == sum(right)
    assert by_example[:, 1].tolist() == words.lengths.tolist()


def test_examples_are_not_features(encoded):
    cut = Encoded(encoded.features[:5], 24, origins=(0, 0, 1, 2, 2))
    evaluator = evaluator_for(cut)
    assert evaluator.examples == 3
    assert len(evaluator.outputs(HALF)) == 5


def test_the_score_is_the_share_of_right_predictions(encoded):
    evaluator = evaluator_for(encoded)
    trial = evaluator([HALF], generation=4)[0]
    predictions = [logits.argmax() for logits in evaluator.outputs(HALF)]
    right = sum(int(p) == row["labels"] for p, row in zip(predictions, encoded, strict=True))
    assert trial.score.value == right / 41
    assert (trial.examples, trial.split, trial.generation) == (41, "search", 4)
    assert trial.costs["parameters"] < evaluator.costs_of([Subnet.full(4)])[0]["parameters"]
    assert trial.seconds > 0


def test_what_is_cached_is_not_run_again(encoded, tmp_path):
    evaluator = evaluator_for(encoded, cache=MeasurementCache(tmp_path / "m.db", "f"))
    first = evaluator([HALF, Subnet.full(4)])
    assert (evaluator.counts.measured, evaluator.counts.cached) == (2, 0)
    again, seen = evaluator_for(encoded, cache=MeasurementCache(tmp_path / "m.db", "f")), []
    second = again([Subnet.full(4), HALF], 1, seen.append)
    assert (again.counts.measured, again.counts.cached, again.counts.executed_macs) == (0, 2, 0)
    assert [t.score for t in second] == [t.score for t in reversed(first)]
    assert seen == second
    assert all(t.seconds == 0 and t.generation == 1 for t in second)


def forwards_of(evaluator: Evaluator) -> list[int]:
    """One for each forward pass of an evaluator from here on."""
    seen: list[int] = []
    evaluator.supernet.register_forward_hook(lambda *_: seen.append(1))
    return seen


def test_statistics_that_are_kept_are_not_run_again(encoded, tmp_path):
    evaluator = evaluator_for(encoded, sidecar=Sidecar(tmp_path, (41,), digest))
    forwards = forwards_of(evaluator)
    statistics = evaluator.statistics(HALF)
    predictions = np.stack(evaluator_for(encoded).outputs(HALF)).argmax(-1)
    right = predictions == [row["labels"] for row in encoded]
    assert statistics.tolist() == right.astype(float).tolist()
    assert len(forwards) == 1
    assert evaluator.statistics(HALF).tolist() == statistics.tolist()
    assert len(forwards) == 1
    other = evaluator_for(encoded, sidecar=Sidecar(tmp_path, (41,), digest))
    forwards = forwards_of(other)
    assert other.statistics(HALF).tolist() == statistics.tolist()
    assert len(forwards) == 0
    other.statistics(Subnet.full(4))
    assert len(forwards) == 1


def test_a_process_killed_between_statistics_and_trial_goes_on_to_the_same_trial(encoded, tmp_path):
    straight = evaluator_for(encoded)([HALF])[0]
    evaluator_for(encoded, sidecar=Sidecar(tmp_path / "s", (41,), digest)).statistics(HALF)  # and no more
    cache = MeasurementCache(tmp_path / "m.db", "f")
    evaluator = evaluator_for(encoded, sidecar=Sidecar(tmp_path / "s", (41,), digest), cache=cache)
    after = evaluator([HALF])[0]
    counts = evaluator.counts
    assert (counts.measured, counts.cached, counts.executed_macs) == (0, 1, 0)
    for name in ("score", "standard_error", "costs"):
        assert getattr(after, name) == getattr(straight, name)
    assert [trial.subnet for trial in cache.trials()] == [HALF]


def test_a_known_trial_without_statistics_needs_no_run_until_they_are_asked_for(encoded, tmp_path):
    evaluator_for(encoded, cache=MeasurementCache(tmp_path / "m.db", "f"))([HALF])
    cache, sidecar = MeasurementCache(tmp_path / "m.db", "f"), Sidecar(tmp_path / "s", (41,), digest)
    evaluator = evaluator_for(encoded, cache=cache, sidecar=sidecar)
    forwards = forwards_of(evaluator)
    trial = evaluator([HALF])[0]
    assert len(forwards) == 0
    assert evaluator.statistics(HALF).mean() == trial.score.value
    assert len(forwards) == 1


DEPTHS = [Subnet.of_encoder([b for b in range(4) if mask >> b & 1]) for mask in range(1, 16)]
RATIOS = [Subnet.of_encoder(range(4), [24, a, b, b], 24) for a in (24, 18, 12) for b in (12, 6)]


def test_many_together_score_as_each_alone_and_are_kept(encoded, tmp_path, monkeypatch):
    monkeypatch.setattr("ldsearch.evaluation.evaluator.TOGETHER", 8)
    cache = MeasurementCache(tmp_path / "m.db", "f")
    evaluator = evaluator_for(encoded, cache=cache, sidecar=Sidecar(tmp_path / "s", (41,), digest))
    evaluator([RATIOS[2]])
    seen, subnets = [], [*DEPTHS, *RATIOS, DEPTHS[3]]
    trials = evaluator(subnets, 2, seen.append)
    alone = evaluator_for(encoded)
    assert [trial.subnet for trial in trials] == subnets
    assert len(seen) == len(set(subnets)) == len(cache.trials()) == 21
    assert seen[0].subnet == RATIOS[2]
    for trial in trials:
        assert evaluator.statistics(trial.subnet).tolist() == alone.statistics(trial.subnet).tolist()
        assert trial.score.value == alone.statistics(trial.subnet).mean()
        assert (trial.generation, trial.seconds > 0) == (2, trial.subnet != RATIOS[2])
    assert (evaluator.counts.measured, evaluator.counts.cached) == (21, 1)


def test_what_was_shared_is_counted(encoded):
    evaluator = evaluator_for(encoded)
    evaluator(DEPTHS)
    forms = evaluator.costs_of(DEPTHS)
    assert evaluator.counts.alone_macs == pytest.approx(41 * sum(form["macs"] for form in forms))
    # Alone the 15 choices run 32 blocks; together block i runs once behind each choice of those before it,
    # and the last one, behind which nothing comes, for the first token only.
    one, two = (float(evaluator.costs[0]([Subnet.of_encoder(range(count))])[0]) for count in (1, 2))
    block = 41 * (two - one)
    assert evaluator.counts.alone_macs == pytest.approx(32 * block, rel=0.01)  # the head is small
    assert (1 + 2 + 4) * block < evaluator.counts.executed_macs < (1 + 2 + 4 + 8) * block
    # 15 depths, once on each batch.
    assert evaluator.counts.evaluations % 15 == 0
    assert 0 < evaluator.counts.evaluations <= 15 * 41


def test_padded_inputs_run_one_by_one(encoded):
    evaluator = evaluator_for(encoded, pad_to=24)
    evaluator(DEPTHS)
    assert evaluator.counts.evaluations == 0
    assert evaluator.counts.executed_macs == evaluator.counts.alone_macs


@pytest.mark.parametrize("least", [1, 4, 100])
def test_every_row_is_in_one_batch_that_fits_its_longest(least):
    lengths = np.random.default_rng(0).integers(1, 20, 300)
    batches = length_batches(lengths, lambda n: 60 // n, least)
    assert sorted(np.concatenate(batches).tolist()) == list(range(300))
    assert [n for batch in batches for n in lengths[batch]] == sorted(lengths)
    assert all(len(batch) <= max(1, 60 // lengths[batch].max()) for batch in batches)
    for batch in batches:
        # Where the length changes, there were not enough rows.
        changes = np.flatnonzero(np.diff(lengths[batch]))
        assert all(change + 1 < least for change in changes)


def test_the_cuts():
    cuts = lambda most, least: [b.tolist() for b in length_batches([5, 3, 5, 3, 9, 5], lambda n: most, least)]  # noqa: E731
    assert cuts(10, 2) == [[1, 3], [0, 2, 5], [4]]
    assert cuts(10, 3) == [[1, 3, 0, 2, 5], [4]]
    assert cuts(2, 2) == [[1, 3], [0, 2], [5, 4]]
    assert cuts(10, 99) == [[1, 3, 0, 2, 5, 4]]
    assert length_batches([], lambda n: 1, 1) == []


def test_the_equivalents_are_the_costs_of_every_subnetwork(encoded):
    evaluator = evaluator_for(encoded)
    evaluator(RATIOS[:4])
    evaluator(RATIOS[4:])
    counts, shape = evaluator.counts, evaluator.supernet.shape
    own, padded = (Macs(shape, workload) for workload in (encoded.workload, Workload.padded(24)))
    assert counts.full_pass_macs == pytest.approx(41 * own([Subnet.full(4)])[0])
    assert counts.padded_macs == pytest.approx(41 * padded(RATIOS).sum())
    assert counts.alone_macs == pytest.approx(41 * own(RATIOS).sum())


@pytest.mark.parametrize("cache_budget", [0, 2**20, 2**30])
def test_generations_share_and_the_budget_changes_no_score(encoded, cache_budget):
    evaluator, whole = evaluator_for(encoded, cache_budget=cache_budget), evaluator_for(encoded)
    together = {trial.subnet: trial.score.value for trial in whole(RATIOS)}
    for first in range(0, len(RATIOS), 2):
        for trial in evaluator(RATIOS[first : first + 2]):
            assert trial.score.value == together[trial.subnet]
    assert (evaluator.counts.hits > 0) == (cache_budget > 0)
    assert whole.counts.hits == 0
