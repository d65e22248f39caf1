"""Imitation: SciPy's relative entropies of stock models' outputs, position by position, for every task."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, rel_entr
from scipy.stats import entropy
from transformers import PreTrainedModel

from ldsearch.errors import DataError
from ldsearch.supernet.heads import logits_of
from ldsearch.tasks import TASKS, Encoded, Task
from ldsearch.tasks.base import score
from ldsearch.tasks.classification import TextRegression
from ldsearch.tasks.imitation import Imitation
from ldsearch.tasks.language import CausalLanguageModel, MaskedLanguageModel, TextLines
from ldsearch.tasks.sequences import SequencePairs, SequenceToSequence
from ldsearch.tasks.tokenizer import train_wordpiece
from ldsearch.tasks.tokens import TaggedExamples, TokenClassification
from tests.tasks.question_rows import rows_about, task_of
from tests.tiny import VOCABULARY, tiny_decoder, tiny_model
from tests.translators import sentences, tiny_translator, word_tokenizer

RNG = np.random.default_rng(0)
TEACHER, STUDENT = RNG.normal(0, 2, (2, 9, 3)).astype(np.float32)
NAMES = ("a", "b", "c")
TEXTS = tuple(sentences(7, seed=3))
PIECES = train_wordpiece(TEXTS, VOCABULARY)


def taught(task: Task, logits: np.ndarray, batch: dict[str, torch.Tensor]) -> Imitation:
    blank = Imitation(task)
    return replace(blank, teacher=dict(blank.answers(torch.from_numpy(logits.copy()), batch)))


def divergences(kind: str, teacher=TEACHER, student=STUDENT):
    """Of whole texts of one token, and the loss of training."""
    ids = torch.arange(len(teacher))[:, None]
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, 0]}
    if kind == "multi-label":
        batch["labels"] = torch.zeros(len(teacher), 3)
    imitation = taught(TASKS[kind]({}, NAMES, {}), teacher, batch)
    found = imitation.read(torch.from_numpy(student.copy()), batch).numpy()
    loss = imitation.task.objective.divergence(torch.tensor(teacher), torch.tensor(student), batch)
    return imitation, imitation.statistics(list(found), Encoded((), 8)), float(loss)


def probabilities(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


def coins(logits):
    """Of each label: off or on."""
    return np.stack([1 / (1 + np.exp(logits)), 1 / (1 + np.exp(-logits))])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("classification", entropy(probabilities(TEACHER), probabilities(STUDENT), axis=-1)),
        ("multi-label", entropy(coins(TEACHER), coins(STUDENT), axis=0).mean(axis=1)),
    ],
)
def test_each_example_has_scipys_relative_entropy_and_their_mean_is_the_loss(kind, expected):
    imitation, statistics, loss = divergences(kind)
    np.testing.assert_allclose(statistics, expected, rtol=1e-5)
    found = score(imitation.metric, statistics)
    assert found.value == pytest.approx(loss, rel=1e-5)
    assert found.loss == found.value  # lower is better


def test_the_full_model_is_like_itself_and_certain_answers_are_finite():
    logits = np.array([[0, 200, -200], [1, 2, 3]], dtype=np.float32)
    assert divergences("classification", logits, logits)[1].tolist() == [0.0, 0.0]
    turned = divergences("classification", logits, np.roll(logits, 1, axis=1))[1]
    assert turned == pytest.approx([200.0, entropy(*probabilities(np.array([[1, 2, 3], [3, 1, 2.0]])))])


def test_what_is_almost_alike_is_not_lost_in_rounding():
    change = np.array([1e-3, -1e-3, 0], dtype=np.float32)
    exact = rel_entr(*(probabilities(x.astype(np.float64)) for x in (TEACHER, TEACHER + change))).sum(axis=-1)
    assert exact.max() < 1e-6
    found = divergences("classification", student=TEACHER + change)[1]
    np.testing.assert_allclose(found, exact, rtol=2e-3, atol=1e-12)


def berts(head: str) -> list[PreTrainedModel]:
    return [tiny_model("bert", head=head, blocks=blocks) for blocks in (3, 2)]


def labelled(logits, feature):
    return logits[np.array(feature["labels"]) != -100]


# Of each task the data, a tokenizer, the reference length, two models, and where its distributions stand.


def causal():
    models = [tiny_decoder("llama"), tiny_decoder("llama", num_hidden_layers=3)]
    task = CausalLanguageModel({}, (), {"train": TextLines(TEXTS)})
    # Each token from those before it: all of a block's but the first.
    return task, PIECES, 10, models, lambda logits, feature: logits[:-1]


def masked():
    task = MaskedLanguageModel({}, (), {"train": TextLines(TEXTS)})
    return task, PIECES, 10, berts("MaskedLM"), labelled


def tagger(tag=lambda word: len(word) % 3):
    words = tuple(tuple(text.split()) for text in TEXTS)
    rows = TaggedExamples(words, tuple(tuple(map(tag, own)) for own in words))
    task = TokenClassification({}, NAMES, {"train": rows}, metric_name="accuracy")
    return task, PIECES, 12, berts("TokenClassification"), labelled


def questions():
    # A start and an end among all tokens of a window, several windows an example.
    task = task_of(rows_about(3, length=30, each=2), stride=8)
    pieces = train_wordpiece(task.splits["train"].texts, VOCABULARY)
    return task, pieces, 60, berts("QuestionAnswering"), lambda logits, feature: logits.T


def translation():
    models = [tiny_translator("bart"), tiny_translator("bart", seed=5)]
    pairs = SequencePairs(TEXTS, tuple((text,) for text in TEXTS[::-1]))
    task = SequenceToSequence({}, (), {"train": pairs})
    return task, word_tokenizer(), 12, models, lambda logits, feature: logits


KINDS = (causal, masked, tagger, questions, translation)


def run(model: PreTrainedModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Stock logits; of a translator with the true tokens given."""
    named = dict(batch)
    labels = named.pop("labels")
    if model.config.is_encoder_decoder:
        named["labels"] = labels
    with torch.no_grad():
        return logits_of(model.eval()(**named))


def by_hand(models: Sequence[PreTrainedModel], feature, positions) -> tuple[float, int]:
    """Nats and positions of one feature, without any padding."""
    batch = {name: torch.tensor([values]) for name, values in feature.items()}
    both = [positions(run(model, batch)[0].numpy().astype(np.float64), feature) for model in models]
    p, q = (np.exp(log_softmax(logits, axis=-1)) for logits in both)
    return float(rel_entr(p, q).sum()), len(p)


@pytest.mark.parametrize("kind", KINDS)
def test_examples_in_batches_have_the_relative_entropies_of_their_positions_one_by_one(kind):
    task, tokenizer, reference, models, positions = kind()
    blank = Imitation(task)
    encoded, collate = blank.encode("train", tokenizer, reference), blank.collate(tokenizer, None)
    teacher = {}
    for feature in encoded:
        batch = collate([feature])
        teacher |= dict(blank.answers(run(models[0], batch), batch))
    imitation = replace(blank, teacher=teacher)
    order = np.random.default_rng(1).permutation(len(encoded)).tolist()
    batches = [order[start : start + 4] for start in range(0, len(order), 4)]

    def measured(model: PreTrainedModel) -> np.ndarray:
        outputs = {}
        for own in batches:
            batch = collate([encoded[row] for row in own])
            outputs |= dict(zip(own, imitation.read(run(model, batch), batch).numpy(), strict=True))
        return imitation.statistics([outputs[row] for row in range(len(encoded))], encoded)

    origins = encoded.origins or range(len(encoded))
    sums = {origin: np.zeros(2) for origin in origins}
    for origin, feature in zip(origins, encoded, strict=True):
        sums[origin] += by_hand(models, feature, positions)
    expected = [nats / count for nats, count in sums.values()]
    assert min(expected) > 1e-3
    np.testing.assert_allclose(measured(models[1]), expected, rtol=1e-3)
    assert measured(models[0]).max() < 1e-9
    lengths = {len(feature["input_ids"]) for feature in encoded}
    assert len(lengths) > 1  # else nothing was padded


def test_what_the_labels_say_is_not_read():
    found, models = [], berts("TokenClassification")
    for task, tokenizer, reference, *_ in (tagger(), tagger(lambda word: (len(word) + 1) % 3)):
        blank = Imitation(task)
        batch = blank.collate(tokenizer, None)(blank.encode("train", tokenizer, reference).features)
        imitation = replace(blank, teacher=dict(blank.answers(run(models[0], batch), batch)))
        found.append(imitation.read(run(models[1], batch), batch))
    assert torch.equal(*found)


def test_numbers_are_refused():
    with pytest.raises(DataError, match="kl compares probabilities, and this task has none"):
        Imitation(TextRegression({}, ("score",), {}))
