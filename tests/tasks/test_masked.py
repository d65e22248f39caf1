"""Masked language modelling: no token lost, masks at BERT's rates, the same ones every time."""

import gzip
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from ldsearch.errors import DataError
from ldsearch.fingerprint import digest
from ldsearch.tasks.base import Encoded, score
from ldsearch.tasks.language import MaskedLanguageModel, TextLines, load_masked
from ldsearch.tasks.tables import Columns, DataSource

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(5)
WORDS = 40


def tokenizer(words: int = WORDS) -> BertTokenizer:
    """One token a word, w0 to w39."""
    pieces = [*SPECIAL, *(f"w{i}" for i in range(words))]
    return BertTokenizer(vocab={piece: index for index, piece in enumerate(pieces)})


def text_of(*lines: str) -> MaskedLanguageModel:
    return MaskedLanguageModel({}, (), {"train": TextLines(lines)})


def random_text(lines: int = 60, seed: int = 0, longest: int = 40, words: int = WORDS) -> list[str]:
    rng = np.random.default_rng(seed)
    return [
        " ".join(f"w{i}" for i in rng.integers(words, size=rng.integers(1, longest))) for _ in range(lines)
    ]


def original(feature: Any) -> list[int]:
    """A feature's ids before masking."""
    pairs = zip(feature["input_ids"], feature["labels"], strict=True)
    return [token if label == -100 else label for token, label in pairs]


def words_of(text: str, reference: int, words: int) -> tuple[np.ndarray, np.ndarray]:
    """Originals and inputs of the chosen tokens of a text."""
    encoded = text_of(text).encode("train", tokenizer(words), reference)
    inputs, labels = (
        np.concatenate([np.array(feature[name]) for feature in encoded]) for name in ("input_ids", "labels")
    )
    return labels[labels != -100], inputs[labels != -100]


@pytest.mark.parametrize("reference", [4, 7, 16, 33, 4000])
def test_the_blocks_hold_every_token_once_and_in_order(reference: int) -> None:
    lines = random_text()
    encoded = text_of(*lines).encode("train", tokenizer(), reference)
    blocks = [original(feature) for feature in encoded]
    assert all(block[0] == CLS and block[-1] == SEP for block in blocks)
    assert {len(block) for block in blocks[:-1]} <= {reference}
    assert len(blocks[-1]) <= reference == encoded.reference
    stream = tokenizer().convert_ids_to_tokens([token for block in blocks for token in block[1:-1]])
    expected = " [SEP] ".join(lines).split()
    assert len(blocks) == math.ceil(len(expected) / (reference - 2))
    assert stream == expected


def test_a_text_by_hand() -> None:
    encoded = text_of("w0 w1 w2", "zzz", "w3", "w4 w5 w6 w7 w8").encode("train", tokenizer(), 10)
    assert [original(feature) for feature in encoded] == [
        [CLS, 5, 6, 7, SEP, UNK, SEP, 8, SEP, SEP],
        [CLS, 9, 10, 11, 12, 13, SEP],
    ]
    assert encoded[0]["attention_mask"] == [1] * 10
    assert encoded[1]["token_type_ids"] == [0] * 7
    assert encoded.lengths.tolist() == [10, 7]


@pytest.mark.parametrize(("more", "blocks"), [(0, 1), (1, 2), (8, 2), (9, 3)])
def test_a_short_last_block_stays(more: int, blocks: int) -> None:
    encoded = text_of(" ".join(["w0"] * (8 + more))).encode("train", tokenizer(), 10)
    assert len(encoded) == encoded.examples == blocks
    assert all(max(feature["labels"]) == 5 for feature in encoded)


def test_blocks_with_nothing_to_predict_are_left_out() -> None:
    text = " ".join(["w0"] * 8 + ["zzz"] * 8 + ["w1"] * 8)
    encoded = text_of(text).encode("train", tokenizer(), 10)
    assert [original(feature)[1] for feature in encoded] == [5, 6]


def test_a_line_that_is_no_token_leaves_no_separator() -> None:
    encoded = text_of("w0 w1", "\u200b", "w2 w3").encode("train", tokenizer(), 10)
    assert original(encoded[0]) == [CLS, 5, 6, SEP, 7, 8, SEP]


@pytest.mark.parametrize("reference", [6, 12, 32, 128])
def test_fifteen_percent_of_the_words_of_each_block_are_chosen_and_at_least_one(reference: int) -> None:
    for feature in text_of(*random_text(200)).encode("train", tokenizer(), reference):
        free = sum(token not in range(5) for token in original(feature))
        chosen = sum(label != -100 for label in feature["labels"])
        assert chosen >= 1
        assert abs(chosen - 0.15 * free) <= 0.5 or (chosen == 1 and 0.15 * free < 1)


def test_of_the_chosen_80_percent_are_masks_10_random_and_10_kept() -> None:
    words = 1000
    labels, inputs = words_of(random_text(1, 3, 200_001, words)[0], 128, words)
    count = len(labels)
    assert count > 10_000
    # A tenth is drawn among all words, one in a thousand of which is the word itself.
    shares = np.array([0.8, 0.1 * (1 - 1 / words), 0.1 * (1 + 1 / words)])
    seen = [np.sum(inputs == MASK), np.sum((inputs != MASK) & (inputs != labels)), np.sum(inputs == labels)]
    assert chisquare(seen, shares * count).pvalue > 0.001
    drawn = inputs[(inputs != MASK) & (inputs != labels)]
    assert chisquare(np.bincount((drawn - 5) // 100, minlength=10)).pvalue > 0.001


def test_every_place_is_chosen_as_often_as_any_other() -> None:
    encoded = text_of(" ".join(["w0"] * 60_000)).encode("train", tokenizer(), 32)
    chosen = np.array([feature["labels"] for feature in encoded]) != -100
    assert chosen[:, [0, -1]].sum() == 0
    assert chosen[:, 1:-1].sum(axis=1).tolist() == [4] * 2000  # 0.15 · 30 = 4.5, to the even number
    assert chisquare(chosen[:, 1:-1].sum(axis=0)).pvalue > 0.001


def test_special_tokens_are_never_chosen_and_never_drawn() -> None:
    lines = [f"{line} zzz w0 [MASK] w1 w2" for line in random_text(2000, longest=6)]
    encoded = text_of(*lines).encode("train", tokenizer(), 32)
    drawn, unknown = set(), 0
    for feature in encoded:
        for token, label, real in zip(
            feature["input_ids"], feature["labels"], original(feature), strict=True
        ):
            assert label == -100 or label >= len(SPECIAL)
            assert real >= len(SPECIAL) or token == real
            unknown += real == UNK
            if label != -100 and token not in (MASK, label):
                drawn.add(token)
    assert unknown > 1000
    assert drawn <= set(range(5, 45))
    assert len(drawn) > 30


def fingerprint(encoded: Encoded) -> str:
    return digest([dict(feature) for feature in encoded])


PROGRAM = """
from tests.tasks.test_masked import fingerprint, random_text, text_of, tokenizer
import numpy, random, torch
numpy.random.seed(1); random.seed(1); torch.manual_seed(1)
print(fingerprint(text_of(*random_text()).encode("train", tokenizer(), 32)))
"""


def test_masks_are_the_same_in_every_call_and_every_process() -> None:
    first = text_of(*random_text()).encode("train", tokenizer(), 32)
    assert fingerprint(text_of(*random_text()).encode("train", tokenizer(), 32)) == fingerprint(first)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == fingerprint(first)


def test_a_blocks_masks_depend_on_its_number_not_on_the_other_blocks() -> None:
    one, other = (
        text_of(" ".join([word] * 30 + ["w2"] * 60)).encode("train", tokenizer(), 32)
        for word in ("w0", "zzz w1")
    )
    assert one[0] != other[0]
    first, again, shifted = (
        text_of(" ".join(["w0"] * 30 * count)).encode("train", tokenizer(), 32) for count in (3, 3, 2)
    )
    assert list(first) == list(again)
    assert list(first)[:2] == list(shifted)
    places = [tuple(label != -100 for label in feature["labels"]) for feature in first]
    assert len(set(places)) == 3


def batch_of(reference: int = 32, pad_to: int | None = None) -> tuple[Any, dict[str, torch.Tensor]]:
    task = text_of(*random_text(12), "w1 w2 w3 w4 zzz w5")
    features = list(task.encode("train", tokenizer(), reference))
    assert len({len(feature["input_ids"]) for feature in features}) == 2
    return features, task.collate(tokenizer(), pad_to)(features)


def unmasked(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.where(batch["labels"] == -100, batch["input_ids"], batch["labels"])


def test_training_masks_the_same_text_anew() -> None:
    task = text_of()
    features, batch = batch_of()
    before = {name: tensor.clone() for name, tensor in batch.items()}
    seen = []
    current = batch
    for seed in range(150):
        # Each from the last one, as if errors could pile up.
        current = task.prepare(current, tokenizer(), np.random.default_rng(seed))
        again = task.prepare(batch, tokenizer(), np.random.default_rng(seed))
        assert all(torch.equal(current[name], again[name]) for name in batch)
        seen.append(current["labels"] != -100)
    assert all(torch.equal(batch[name], before[name]) for name in batch)
    text = unmasked(current)
    for row, feature in enumerate(features):
        assert text[row, : len(feature["input_ids"])].tolist() == original(feature)
    assert torch.equal(current["attention_mask"], batch["attention_mask"])
    assert {tensor.dtype for tensor in current.values()} == {torch.int64}
    chosen = torch.stack(seen)
    free = text >= len(SPECIAL)
    assert torch.equal(chosen.any(dim=0), free)
    assert len({tuple(draw.flatten().tolist()) for draw in seen}) == 150
    expected = np.maximum(1, np.rint(0.15 * free.sum(dim=1).numpy()))
    assert (chosen.sum(dim=2).numpy() == expected).all()


def stock(seed: int = 0) -> BertForMaskedLM:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=WORDS + 5, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, initializer_range=0.5,
    )  # fmt: skip
    return BertForMaskedLM(config).eval()


def test_perplexity_is_that_of_the_stock_models_loss_over_all_tokens_whatever_the_padding() -> None:
    task, model = text_of(*random_text(30)), stock()
    encoded = task.encode("train", tokenizer(), 32)
    collate = task.collate(tokenizer(), None)
    with torch.no_grad():
        whole = collate(list(encoded))
        result = model(**whole)
        torch.testing.assert_close(task.objective.loss(result.logits, whole), result.loss)
        one_by_one = []
        for feature in encoded:
            batch = task.collate(tokenizer(), 40)([feature])
            (read,) = task.read(model(**{k: v for k, v in batch.items() if k != "labels"}).logits, batch)
            one_by_one.append(read.numpy())
        together = task.read(result.logits, whole)
    assert together.shape == (len(encoded), 2)
    np.testing.assert_allclose(together.numpy(), one_by_one, rtol=1e-5)
    statistics = task.statistics(list(together.numpy()), encoded)
    assert statistics.dtype == np.float64
    measured = score(task.metric, statistics)
    assert measured.value == pytest.approx(math.exp(result.loss.item()), rel=1e-5)
    assert measured.value > 100
    assert not measured.higher_is_better


def test_what_is_read_of_a_block_is_its_own_sum_and_count() -> None:
    labels = torch.tensor([[-100, 2, 0], [-100, -100, 1], [-100, -100, -100]])
    probabilities = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.125, 0.125, 0.75]])
    logits = probabilities.log()[torch.tensor([[0, 1, 2], [2, 1, 0], [0, 0, 0]])]
    read = text_of().read(logits + 7.0, {"labels": labels})
    expected = [[math.log(4) + math.log(8), 2], [math.log(4), 1], [0, 0]]
    np.testing.assert_allclose(read.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("words", [1, 20, 1000])
def test_uniform_logits_have_the_vocabulary_as_perplexity_and_a_perfect_model_one(words: int) -> None:
    task = text_of(*random_text(40, words=words))
    encoded = task.encode("train", tokenizer(words), 32)
    batch = task.collate(tokenizer(words), None)(list(encoded))
    uniform = torch.zeros(*batch["labels"].shape, words + 5)
    outputs = task.read(uniform, batch).numpy()
    assert score(task.metric, task.statistics(list(outputs), encoded)).value == pytest.approx(words + 5)
    perfect = 100.0 * torch.nn.functional.one_hot(batch["labels"].clamp(min=0), words + 5)
    outputs = task.read(perfect, batch).numpy()
    assert score(task.metric, task.statistics(list(outputs), encoded)).value == pytest.approx(1.0)


Folder = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Write text files into a folder; returns its path."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))

    def write(**files: str) -> str:
        (tmp_path / "text").mkdir()
        for name, content in files.items():
            (tmp_path / "text" / f"{name}.txt.gz").write_bytes(gzip.compress(content.encode()))
        return str(tmp_path / "text")

    return write


def lines(name: str, count: int) -> list[str]:
    """Lines that share no words with one another or with other names'."""
    return [f"{name}{i} {name}a{i} größe{name}{i}" for i in range(count)]


def test_the_splits_of_a_folder_are_used_as_given_without_blank_lines(folder: Folder) -> None:
    heading = "= Plot ="
    parts = {name: [heading, *lines(name, 5)] for name in ("train", "validation", "test")}
    files = {name: " \n\n" + "\n\n".join(part) + "\n" for name, part in parts.items()}
    path = folder(**files)
    task = load_masked(DataSource(path))
    texts = {name: list(split.texts) for name, split in task.splits.items()}
    assert texts == {"train": parts["train"], "search": parts["validation"], "report": parts["test"]}
    assert task.overlap == "splits of running text used as given: not compared with each other"
    assert load_masked(DataSource(path, keep_overlap=True)).overlap == ""
    assert list(task.splits["train"].texts) == parts["train"]


@pytest.mark.parametrize("suffix", ["txt", "txt.gz"])
def test_one_file_is_cut_by_lines_that_share_no_text(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text.{suffix}"
    content = "\n".join([*lines("a", 40), "", *lines("a", 40)]).encode()
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    task = load_masked(DataSource(str(path)))
    sets = [set(split.texts) for split in task.splits.values()]
    assert set().union(*sets) == set(lines("a", 40))
    assert sum(map(len, sets)) == 40
    assert sum(map(len, task.splits.values())) == 80
    assert sorted(task.splits["train"].texts[:5], key=lines("a", 40).index) == list(
        task.splits["train"].texts[:5]
    )


@pytest.mark.parametrize("column", ["text", "sentence", "content", "document", "body"])
def test_tables_have_a_column_of_texts(tmp_path: Path, column: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"id,{column}\n" + "".join(f"{i},{text}\n" for i, text in enumerate(lines("a", 30))))
    columns = Columns(text="body" if column == "body" else None)
    task = load_masked(DataSource(str(path), columns=columns))
    assert sum(map(len, task.splits.values())) == 30
    assert task.source["columns"] == {"text": column, "pair": None, "label": None}


def refused(says: str, source: DataSource) -> None:
    with pytest.raises(DataError, match=says) as caught:
        load_masked(source)
    assert "\n" not in str(caught.value)


def test_data_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    def file(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        return str(tmp_path / name)

    good = file("good.txt", "\n".join(lines("a", 30)).encode())
    refused("no data file .*none.txt", DataSource(str(tmp_path / "none.txt")))
    refused("no data file .*none.txt.gz", DataSource(good, validation=str(tmp_path / "none.txt.gz")))
    refused("good.txt is the training data", DataSource(good, validation=good))
    refused("blank.txt has no text", DataSource(file("blank.txt", b"\n \n\n")))
    refused("cannot read .*latin.txt: .*codec", DataSource(file("latin.txt", "größe".encode("latin-1"))))
    refused("cannot read .*cut.txt.gz", DataSource(file("cut.txt.gz", gzip.compress(b"a\n" * 99)[:-9])))
    refused("no text or sentence or content", DataSource(file("a.csv", b"words,id\na,1\n")))
    refused(
        "a2.csv has no column 'lines'; it has text",
        DataSource(file("a2.csv", b"text\na\n"), columns=Columns(text="lines")),
    )
    refused("1 train rows have no text in column 'text'", DataSource(file("n.jsonl", b'{"text": null}\n')))
    refused("n2.jsonl .train. has no text", DataSource(file("n2.jsonl", b'{"text": " "}\n')))
    refused("has no column 'text'", DataSource(good, validation=file("v.csv", b"words\na\n")))


def test_a_length_or_a_tokenizer_that_cannot_be_used_is_one_line() -> None:
    task = text_of("w0 w1 w2 w3 w4")
    with pytest.raises(DataError, match="blocks of 2 tokens have no room for text: 3 are the least"):
        task.encode("train", tokenizer(), 2)
    with pytest.raises(DataError, match="the tokenizer knows no word of the train text"):
        text_of("zzz yyy", "\u200b").encode("train", tokenizer(), 16)
    for name, says in (("mask_token", r"with \[MASK\]"), ("sep_token", r"with \[CLS\] and \[SEP\]")):
        bare = tokenizer()
        setattr(bare, name, None)
        with pytest.raises(DataError, match=says):
            task.encode("train", bare, 16)
