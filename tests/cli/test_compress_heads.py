"""compress: what a head answers, and rows as it needs them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import ndcg_score
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
)

import ldsearch as ld
from ldsearch.compression import texts as own_texts
from ldsearch.compression.texts import OwnTexts, read_texts
from ldsearch.subnet import Subnet, drop_places
from ldsearch.supernet import Supernet
from ldsearch.supernet.correction import CORRECTION
from ldsearch.supernet.embedding import write_modules
from ldsearch.supernet.folder import load_model, load_supernet
from ldsearch.tasks import DataSource, load_task
from ldsearch.work.progress import Progress
from tests.cli.conftest import Ldsearch, lines, read, reviews, rows_of, write

pytest.importorskip("onnxruntime")

TAGS = ("O", "B-X", "I-X")


def headed(folder: Path, problem: str, labels: int) -> PreTrainedModel:
    """The model with a new head, the same one every time."""
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(folder, num_labels=labels, problem_type=problem)
    return AutoModelForSequenceClassification.from_config(config).eval()


def own_head(head: Any, config: dict[str, Any]) -> tuple[PreTrainedModel, Any]:
    """A random model with a head, saved as ``headed``, and its tokenizer."""
    torch.manual_seed(0)
    own = AutoConfig.from_pretrained("tuned", initializer_range=0.5, **config)
    model, tokenizer = head.from_config(own).eval(), AutoTokenizer.from_pretrained("tuned")
    model.save_pretrained("headed")
    tokenizer.save_pretrained("headed")
    return model, tokenizer


def given(place: Path, table: pd.DataFrame, problem: str, labels: int) -> OwnTexts:
    """Rows as compress reads and writes them, for a tiny model with such a head."""
    model = headed(place / "tuned", problem, labels)
    supernet = Supernet(model).eval()
    tokenizer = AutoTokenizer.from_pretrained(place / "tuned")
    table.to_json(place / "own.jsonl", orient="records", lines=True)
    known = [model.config.id2label[number] for number in range(labels)]
    texts = read_texts(DataSource(str(place / "own.jsonl")), known, supernet, tokenizer, 16)
    (place / "written").mkdir()
    texts.write(place / "written", supernet, tokenizer, Progress())
    return texts


def test_as_many_rows_fit_as_are_read(tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.random.default_rng(0).choice([*"abcdefghijklmnop"], (200, 30))
    table = pd.DataFrame({"text": [" ".join(row) for row in words]})  # all are cut to 16 tokens
    sizes = []
    for tokens in (16 * 200, 16 * 10 + 15):
        monkeypatch.setattr(own_texts, "TOKENS", tokens)
        found = given(tuned, table, "single_label_classification", 3)
        sizes.append({role: len(rows) for role, rows in found.tables.items()})
        shutil.rmtree(tuned / "written")
    assert sizes == [
        {"report": 75, "search": 85, "train": 40},
        {"report": 75, "search": 85, "train": 10},
    ]


@pytest.mark.parametrize(
    ("problem", "labels", "kind"),
    [
        ("single_label_classification", 3, "classification"),
        ("regression", 1, "regression"),
        ("multi_label_classification", 4, "multi-label"),
    ],
)
def test_the_task_is_read_from_the_model_and_answers_stand_in_for_labels(
    tuned: Path, problem: str, labels: int, kind: str
) -> None:
    table = pd.DataFrame({"text": [line.partition(",")[0] for line in reviews(120, 2).splitlines()[1:]]})
    texts = given(tuned, table, problem, labels)
    assert texts.kind.kind == kind
    assert not texts.labelled
    written = lines(tuned / "written/test.jsonl")
    # Read again as a task, with these labels, the model that gave them is right everywhere.
    task = load_task(kind, DataSource(str(tuned / "written")), [*texts.names])
    model = Supernet(headed(tuned / "tuned", problem, labels)).eval()
    tokenizer = AutoTokenizer.from_pretrained(tuned / "tuned")
    evaluator = ld.Evaluator(
        model, task, task.encode("report", tokenizer, 16), split="report", tokenizer=tokenizer
    )
    (trial,) = evaluator([model.full], 0)
    assert trial.score.value == pytest.approx(1.0)
    assert 40 <= len(written) <= 45


def test_a_folder_of_sentence_transformers_keeps_its_vectors(
    ldsearch: Ldsearch, tuned: Path, quick: None
) -> None:
    model = AutoModelForSequenceClassification.from_pretrained("tuned")
    model.base_model.save_pretrained("sentences")
    AutoTokenizer.from_pretrained("tuned").save_pretrained("sentences")
    write_modules(model.config, Path("sentences"), 16)
    outcome = ldsearch.done("compress", "sentences", "--data", "texts.txt", "--budget", 0.6)
    folder = tuned / "runs/sentences-compressed"
    found, rows = read(folder / "compress.json"), lines(folder / "data/test.jsonl")
    whole, tokenizer = load_model("sentences")
    inputs = tokenizer([*rows["text"]], return_tensors="pt", padding=True, truncation=True)
    with torch.no_grad():
        wanted = whole.eval()(**inputs).sentence_embedding.numpy()
    np.testing.assert_allclose(np.stack(rows["label"]), wanted, atol=1e-5)
    served = ld.load(folder / "model")(**inputs).sentence_embedding.numpy()
    cosines = (served * wanted).sum(axis=1)
    assert found["points"][1]["score"] == pytest.approx(cosines.mean(), abs=1e-5)
    assert found["points"][1]["score"] < 1
    assert found["points"][0]["score"] == pytest.approx(1, abs=1e-3)  # the longest lack a token there
    assert "cosines to the full model's own vectors" in outcome.out
    assert "fitted the correction of means" in outcome.out
    assert getattr(load_supernet(folder / "supernet")[0].model, CORRECTION).any()
    # Every shape was measured: some lengths drop in the first block alone.
    tried = [
        json.loads(one)["encoder"].get("lengths")
        for one in pd.read_csv(folder / "search/trials.csv")["subnet"]
    ]
    assert any(own and len({*own["tokens"]}) == 1 and 4 < own["tokens"][0] < 15 for own in tried)
    # The file ranks tokens where the chosen one drops some, so all of its rows drop there.
    fields = read(folder / "model/ldsearch_subnet.json")["subnet"]
    chosen = drop_places([Subnet.from_fields(fields)])
    assert {len(row["keep"]) for row in read(folder / "model/budgets.json")["rows"]} == {len(chosen)}
    # Vectors of another model are refused before anything is trained.
    write(Path("short.jsonl"), [{"text": text, "label": [1.0, 2.0]} for text in rows["text"]])
    assert "vectors have 2 numbers, the model's" in ldsearch.refused(
        "train-supernet", "--task", "embedding", "--model", "sentences", "--data", "short.jsonl"
    )


@pytest.mark.parametrize("words", [True, False])
def test_words_without_tags_get_the_models_own(
    ldsearch: Ldsearch, tuned: Path, quick: None, words: bool
) -> None:
    model, tokenizer = own_head(AutoModelForTokenClassification, {"id2label": dict(enumerate(TAGS))})
    texts = [f"{text}, ok." for text in Path("texts.txt").read_text().splitlines()]
    if words:
        write(Path("own.jsonl"), [{"tokens": text.split()} for text in texts])
    else:
        Path("own.txt").write_text("\n".join(texts))
    data = "own.jsonl" if words else "own.txt"
    ldsearch.done("compress", "headed", "--data", data, "--budget", 0.7, "--max-length", 12)
    folder = tuned / "runs/headed-compressed"
    found, written = read(folder / "compress.json"), lines(folder / "data/test.jsonl")
    assert found["metric"] == "agreement (f1)"
    assert found["points"][0]["score"] == pytest.approx(1, abs=0.1)
    (column,) = {*written} - {"label"}
    for own, tags in zip(written[column], written["label"], strict=True):
        assert " ".join(own) in texts
        inputs = tokenizer(own, is_split_into_words=True, return_tensors="pt", truncation=True, max_length=12)
        best = model(**inputs).logits[0].argmax(-1).tolist()
        seen = dict(zip(reversed(inputs.word_ids()), reversed(best), strict=True))  # a word's first token
        assert tags == [TAGS[seen.get(word, 0)] for word in range(len(own))]
    assert {tag for tags in written["label"] for tag in tags} == {*TAGS}


def test_tagged_rows_beside_texts_score(ldsearch: Ldsearch, tuned: Path, quick: None) -> None:
    own_head(AutoModelForTokenClassification, {"id2label": dict(enumerate(TAGS))})
    texts = [f"{text}, ok." for text in Path("texts.txt").read_text().splitlines()]
    Path("both").mkdir()
    Path("both/train.txt").write_text("\n".join(texts[:110]) + "\n\n")
    rows = [[f"{word} {'O' if at else 'B-X'}" for at, word in enumerate(one.split())] for one in texts[110:]]
    tagged = ["\n".join(row) for row in rows]
    Path("both/test.conll").write_text("\n\n".join(tagged))
    ldsearch.done("compress", "headed", "--data", "both", "--budget", 0.7, "--max-length", 12)
    found = read(tuned / "runs/headed-compressed/compress.json")
    assert found["metric"] == "f1"
    assert "what chose had no labels" in " ".join(found["words"])
    held = lines(tuned / "runs/headed-compressed/data/test.jsonl")
    assert {" ".join(words) for words in held["tokens"]} <= {*texts[110:]}


def test_questions_without_answers_get_the_models_own(ldsearch: Ldsearch, tuned: Path, quick: None) -> None:
    model, tokenizer = own_head(AutoModelForQuestionAnswering, {})
    texts = Path("texts.txt").read_text().splitlines()
    rows = [{"context": f"{number} {text}", "question": text.split()[0]} for number, text in enumerate(texts)]
    pd.DataFrame(rows).to_csv("own.csv", index=False)
    ldsearch.done("compress", "headed", "--data", "own.csv", "--budget", 0.7)
    folder = tuned / "runs/headed-compressed"
    found, written = read(folder / "compress.json"), lines(folder / "data/test.jsonl")
    assert found["metric"] == "agreement (f1)"
    assert found["points"][0]["score"] > 0.7  # in int8, of random weights
    there = 0
    for context, question, cell in zip(
        *(written[name] for name in ("context", "question", "label")), strict=True
    ):
        inputs = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
        inside = [part == 1 for part in inputs.sequence_ids()]
        (characters,) = inputs.pop("offset_mapping").tolist()
        outputs = model(**inputs)
        starts, ends = outputs.start_logits[0].tolist(), outputs.end_logits[0].tolist()
        spans = [
            (starts[one] + ends[other], characters[one][0], characters[other][1])
            for one in range(len(starts))
            for other in range(one, len(ends))
            if inside[one] and inside[other]
        ]
        best, first, stop = max(spans)
        said = [(first, context[first:stop])] if best >= starts[0] + ends[0] else []
        assert [*zip(cell["answer_start"], cell["text"], strict=True)] == said
        there += len(said)
    assert 0 < there < len(written)


def test_labels_that_are_hidden_are_none(tuned: Path) -> None:
    rows = pd.read_csv(tuned / "more.csv").assign(label=-1)
    assert not given(tuned, rows, "single_label_classification", 2).labelled


@pytest.mark.parametrize("labelled", [True, False])
def test_a_cross_encoder_keeps_the_order_of_a_querys_documents(
    ldsearch: Ldsearch, tuned: Path, quick: None, labelled: bool
) -> None:
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained("tuned", initializer_range=0.5)
    config.num_labels, config.problem_type = 1, None
    AutoModelForSequenceClassification.from_config(config).save_pretrained("reranker")
    AutoTokenizer.from_pretrained("tuned").save_pretrained("reranker")
    texts = Path("texts.txt").read_text().splitlines()
    rows = [
        (f"{query} {place}", text, int(at == 0))
        for place, query in enumerate(texts[:60])
        for at, text in enumerate(texts[place + 60 : place + 64])
    ]
    table = pd.DataFrame(rows, columns=["query", "document", "label"])
    (table if labelled else table.drop(columns="label")).to_csv("queries.csv", index=False)
    ldsearch.done("compress", "reranker", "--data", "queries.csv", "--budget", 0.7, "--pin-query")
    folder = tuned / "runs/reranker-compressed"
    found, held = read(folder / "compress.json"), lines(folder / "data/test.jsonl")
    assert found["metric"] == ("ndcg@10" if labelled else "agreement (ndcg@10)")
    assert any("a query is 4.0 rows" in words for words in found["words"])
    assert {*held["query"]}.isdisjoint(lines(folder / "data/validation.jsonl")["query"])
    # By hand: the file's order of each query's documents, with the labels as gains.
    served, tokenizer = ld.load(found["model"]), AutoTokenizer.from_pretrained("reranker")
    scores = []
    for query, documents, gains in zip(held["query"], held["document"], held["label"], strict=True):
        inputs = tokenizer(
            [query] * len(documents), documents, return_tensors="pt", padding=True, truncation=True
        )
        scores.append(ndcg_score([[*map(float, gains)]], served(**inputs).logits.numpy().T, k=10))
    assert np.mean(scores) == pytest.approx(found["points"][1]["score"], abs=1e-3)


@pytest.mark.parametrize(
    ("task", "head", "config", "metric"),
    [
        ("questions", AutoModelForQuestionAnswering, {}, "f1"),
        ("tokens", AutoModelForTokenClassification, {"id2label": {0: "O", 1: "B-X"}}, "f1"),
        ("regression", AutoModelForSequenceClassification, {"num_labels": 1}, "pearson"),
        ("multi-label", AutoModelForSequenceClassification, {"id2label": {0: "a", 1: "the"}}, "micro-f1"),
    ],
)
def test_every_other_head_is_compressed(
    ldsearch: Ldsearch, tuned: Path, quick: None, task: str, head: Any, config: dict[str, Any], metric: str
) -> None:
    problem = {"regression": "regression", "multi-label": "multi_label_classification"}.get(task)
    own_head(head, {**config, "problem_type": problem})
    write(Path("own.jsonl"), rows_of(task, 160, 3))
    ldsearch.done("compress", "headed", "--data", "own.jsonl", "--budget", 0.7)
    found = read(tuned / "runs/headed-compressed/compress.json")
    assert found["metric"] == metric
    assert 0.5 < found["points"][1]["macs"] <= 0.7
