"""compress: what a head answers, and rows as it needs them."""

import json
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
from ldsearch.compression import search as searching
from ldsearch.compression import texts as own_texts
from ldsearch.compression.texts import OwnTexts, read_texts
from ldsearch.runs.run import Run
from ldsearch.subnet import Subnet, drop_places
from ldsearch.supernet import Supernet
from ldsearch.supernet.correction import CORRECTION
from ldsearch.supernet.embedding import write_modules
from ldsearch.supernet.folder import load_model, load_supernet
from ldsearch.supernet.tokens import PINNED
from ldsearch.tasks import DataSource, load_task
from ldsearch.training.start import known_labels
from ldsearch.trials.goal import Goal
from ldsearch.work.progress import Progress
from tests.cli.conftest import Ldsearch, lines, read, rows_of, write

pytest.importorskip("onnxruntime")

TAGS = ("O", "B-X", "I-X")
OF_TEXTS = AutoModelForSequenceClassification
# For each kind of task the stock class, and what its configuration says.
HEADS: dict[str, tuple[Any, dict[str, Any]]] = {
    "classification": (OF_TEXTS, {"num_labels": 3, "problem_type": "single_label_classification"}),
    "multi-label": (
        OF_TEXTS,
        {"id2label": {0: "a", 1: "the"}, "problem_type": "multi_label_classification"},
    ),
    "regression": (OF_TEXTS, {"num_labels": 1, "problem_type": "regression"}),
    "ranking": (OF_TEXTS, {"num_labels": 1, "problem_type": None}),
    "tokens": (AutoModelForTokenClassification, {"id2label": dict(enumerate(TAGS))}),
    "questions": (AutoModelForQuestionAnswering, {}),
}


def headed(kind: str) -> tuple[PreTrainedModel, Any]:
    """A random model with a head, saved as ``headed``, and its tokenizer."""
    head, config = HEADS[kind]
    torch.manual_seed(0)
    own = AutoConfig.from_pretrained("tuned", initializer_range=0.5, **config)
    model, tokenizer = head.from_config(own).eval(), AutoTokenizer.from_pretrained("tuned")
    model.save_pretrained("headed")
    tokenizer.save_pretrained("headed")
    return model, tokenizer


def read_for(kind: str, data: str, cut: int = 16) -> OwnTexts:
    """Rows as compress reads them for such a model, and writes them to ``written``."""
    model, tokenizer = headed(kind)
    supernet = Supernet(model).eval()
    known = known_labels("headed", supernet.head.name) or []
    texts = read_texts(DataSource(data), known, supernet, tokenizer, cut)
    Path("written").mkdir(exist_ok=True)
    texts.write(Path("written"), supernet, tokenizer, Progress())
    return texts


def texts_with_marks() -> list[str]:
    return [f"{text}, ok." for text in Path("texts.txt").read_text().splitlines()]


@pytest.mark.usefixtures("tuned")
def test_as_many_rows_fit_as_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.random.default_rng(0).choice([*"abcdefghijklmnop"], (200, 30))
    Path("long.txt").write_text("\n".join(" ".join(row) for row in words))  # all are cut to 16 tokens
    for tokens, fit in ((16 * 200, 40), (16 * 10 + 15, 10)):
        monkeypatch.setattr(own_texts, "TOKENS", tokens)
        tables = read_for("classification", "long.txt").tables
        sizes = {role: len(rows) for role, rows in tables.items()}
        assert sizes == {"report": 75, "search": 85, "train": fit}


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize("kind", ["classification", "regression", "multi-label"])
def test_the_task_is_read_from_the_model_and_answers_stand_in_for_labels(kind: str) -> None:
    texts = read_for(kind, "texts.txt")
    assert (texts.kind.kind, texts.labelled) == (kind, [])
    # Read again as a task, with these labels, the model that gave them is right everywhere.
    task = load_task(kind, DataSource("written"), [*texts.names])
    model, tokenizer = headed(kind)
    supernet, encoded = Supernet(model).eval(), task.encode("report", tokenizer, 16)
    (trial,) = ld.Evaluator(supernet, task, encoded, split="report", tokenizer=tokenizer)([supernet.full], 0)
    assert trial.score.value == pytest.approx(1.0)
    assert trial.examples == len(texts.tables["report"]) > 40


@pytest.mark.usefixtures("tuned")
def test_labels_that_are_hidden_are_none() -> None:
    pd.read_csv("more.csv").assign(label=-1).to_csv("hidden.csv", index=False)
    assert not read_for("classification", "hidden.csv").labelled


@pytest.mark.usefixtures("tuned")
def test_tagged_rows_beside_texts_report_alone() -> None:
    texts = texts_with_marks()
    Path("both").mkdir()
    Path("both/train.txt").write_text("\n".join(texts[:110]) + "\n\n")
    tagged = ["\n".join(f"{word} O" for word in text.split()) for text in texts[110:]]
    Path("both/test.conll").write_text("\n\n".join(tagged))
    found = read_for("tokens", "both")
    assert found.labelled == ["report"]
    assert {" ".join(words) for words in found.tables["report"]["tokens"]} <= {*texts[110:]}


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize("words", [True, False])
def test_words_without_tags_get_the_models_own(words: bool) -> None:
    texts = texts_with_marks()
    write(Path("own.jsonl"), [{"tokens": text.split()} for text in texts])
    Path("own.txt").write_text("\n".join(texts))
    read_for("tokens", "own.jsonl" if words else "own.txt", cut=12)
    written, (model, tokenizer) = lines(Path("written/test.jsonl")), headed("tokens")
    (column,) = {*written} - {"label"}
    for own, tags in zip(written[column], written["label"], strict=True):
        assert " ".join(own) in texts
        inputs = tokenizer(own, is_split_into_words=True, return_tensors="pt", truncation=True, max_length=12)
        best = model(**inputs).logits[0].argmax(-1).tolist()
        seen = dict(zip(reversed(inputs.word_ids()), reversed(best), strict=True))  # a word's first token
        assert tags == [TAGS[seen.get(word, 0)] for word in range(len(own))]
    assert {tag for tags in written["label"] for tag in tags} == {*TAGS}


@pytest.mark.usefixtures("tuned")
def test_questions_without_answers_get_the_models_own() -> None:
    texts = Path("texts.txt").read_text().splitlines()
    rows = [{"context": f"{number} {text}", "question": text.split()[0]} for number, text in enumerate(texts)]
    pd.DataFrame(rows).to_csv("own.csv", index=False)
    read_for("questions", "own.csv", cut=64)
    written, (model, tokenizer) = lines(Path("written/test.jsonl")), headed("questions")
    there = 0
    for row in written.itertuples():
        inputs = tokenizer(row.question, row.context, return_tensors="pt", return_offsets_mapping=True)
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
        said = [(first, row.context[first:stop])] if best >= starts[0] + ends[0] else []
        assert [*zip(row.label["answer_start"], row.label["text"], strict=True)] == said
        there += len(said)
    assert 0 < there < len(written)


def sentence_encoder() -> None:
    """A folder of sentence-transformers in the current one."""
    model = AutoModelForSequenceClassification.from_pretrained("tuned")
    model.base_model.save_pretrained("sentences")
    AutoTokenizer.from_pretrained("tuned").save_pretrained("sentences")
    write_modules(model.config, Path("sentences"), 16)


def test_a_folder_of_sentence_transformers_keeps_its_vectors(ldsearch: Ldsearch, tuned: Path) -> None:
    sentence_encoder()
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
    full, chosen, *_ = found["points"]
    assert chosen["score"] == pytest.approx(cosines.mean(), abs=1e-5)
    assert chosen["score"] < 1
    assert full["score"] == pytest.approx(1, abs=1e-3)  # the longest lack a token there
    assert "cosines to the full model's own vectors" in outcome.out
    assert "fitted the correction of means" in outcome.out
    assert getattr(load_supernet(folder / "supernet")[0].model, CORRECTION).any()
    # Every shape was measured: some lengths drop in the first block alone.
    trials = pd.read_csv(folder / "search/trials.csv")["subnet"]
    tried = [json.loads(one)["encoder"].get("lengths") for one in trials]
    assert any(own and len({*own["tokens"]}) == 1 and 4 < own["tokens"][0] < 15 for own in tried)
    # The file ranks tokens where the chosen one drops some, so all of its rows drop there.
    fields = read(folder / "model/ldsearch_subnet.json")["subnet"]
    places = drop_places([Subnet.from_fields(fields)])
    assert {len(row["keep"]) for row in read(folder / "model/budgets.json")["rows"]} == {len(places)}
    # Vectors of another model are refused before anything is trained.
    write(Path("short.jsonl"), [{"text": text, "label": [1.0, 2.0]} for text in rows["text"]])
    assert "vectors have 2 numbers, the model's" in ldsearch.refused(
        "train-supernet", "--task", "embedding", "--model", "sentences", "--data", "short.jsonl"
    )


@pytest.mark.parametrize(("blocks", "first"), [((), "search"), (("--blocks", 2), "search-untrained")])
def test_of_sentences_a_training_is_of_what_the_budget_chose(
    ldsearch: Ldsearch, tuned: Path, blocks: tuple[str | int, ...], first: str
) -> None:
    sentence_encoder()
    asked = ("compress", "sentences", "--data", "texts.txt", "--train", 0.02, *blocks)
    ldsearch.done(*asked, "--budget", 0.5)
    folder = tuned / "runs/sentences-compressed"
    chosen, taught = Run.open(folder / first).best, read(folder / "taught.json")
    assert taught["subnet"] == json.loads(chosen.subnet.to_json())
    assert load_supernet(folder / "trained")[1].at == chosen.subnet
    tried = pd.read_csv(folder / "search-trained/trials.csv")["subnet"]
    assert chosen.subnet in {Subnet.from_json(text) for text in tried}
    share = chosen.costs["macs"] / chosen.full_costs["macs"]
    words = f"for 0.02 minutes at {share:.2f} of the MACs"
    assert words in " ".join(read(folder / "compress.json")["words"])
    assert Run.open(folder / "search-trained").best.costs["macs"] <= 1.01 * chosen.costs["macs"]
    # Another budget later chooses among what was trained.
    ldsearch.done(*asked, "--budget", 0.7)
    assert read(folder / "taught.json") == taught
    assert words in " ".join(read(folder / "compress.json")["words"])
    macs = pd.read_csv(folder / "search-trained/trials.csv")["macs"]
    assert macs.between(1.1 * chosen.costs["macs"], 0.7 * chosen.full_costs["macs"]).any()


@pytest.mark.parametrize("again", ["2x", "1.5x"])
def test_what_a_budget_in_time_chose_is_not_lost_to_other_times(
    ldsearch: Ldsearch, tuned: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """The budget that chose what is trained is not measured again of it; another is."""
    sentence_encoder()
    timed = [0.6, 0.45, 0.45]  # shares of the MACs, as if times were noisy

    def noisy(bench: Any, context: Any, goal: Goal, *given: Any, **named: Any) -> tuple[Goal, bool]:
        if goal.in_time is None:
            return goal, True
        return Goal.parse(budget=f"{timed.pop(0)}"), True

    monkeypatch.setattr(searching, "_in_macs", noisy)
    asked = ("compress", "sentences", "--data", "texts.txt", "--train", 0.02)
    ldsearch.done(*asked, "--budget", "2x")
    folder = tuned / "runs/sentences-compressed"
    ldsearch.done(*asked, "--budget", again)
    share = Run.open(folder / "search-trained").best.costs["macs"] / Run.open(folder).best.full_costs["macs"]
    assert (share > 0.45) is (again == "2x")


@pytest.mark.parametrize("labelled", [True, False])
def test_a_cross_encoder_keeps_the_order_of_a_querys_documents(
    ldsearch: Ldsearch, tuned: Path, labelled: bool
) -> None:
    _, tokenizer = headed("ranking")
    texts = Path("texts.txt").read_text().splitlines()
    rows = [
        (f"{query} {place}", text, int(at == 0))
        for place, query in enumerate(texts[:60])
        for at, text in enumerate(texts[place + 60 : place + 64])
    ]
    table = pd.DataFrame(rows, columns=["query", "document", "label"])
    (table if labelled else table.drop(columns="label")).to_csv("queries.csv", index=False)
    trains = ("--train", 0.02) if labelled else ()
    ldsearch.done("compress", "headed", "--data", "queries.csv", "--budget", 0.7, "--pin-query", *trains)
    folder = tuned / "runs/headed-compressed"
    if trains:
        assert load_supernet(folder / "trained")[1].at is not None
    found, held = read(folder / "compress.json"), lines(folder / "data/test.jsonl")
    assert found["metric"] == ("ndcg@10" if labelled else "agreement (ndcg@10)")
    assert any("a query is 4.0 rows" in words for words in found["words"])
    assert read(folder / "supernet/config.json")[PINNED] == tokenizer.sep_token_id
    assert {*held["query"]}.isdisjoint(lines(folder / "data/validation.jsonl")["query"])
    # By hand: the file's order of each query's documents, with the labels as gains.
    served, scores = ld.load(found["model"]), []
    for row in held.itertuples():
        pairs = [row.query] * len(row.document), row.document
        inputs = tokenizer(*pairs, return_tensors="pt", padding=True, truncation=True)
        scores.append(ndcg_score([[*map(float, row.label)]], served(**inputs).logits.numpy().T, k=10))
    assert np.mean(scores) == pytest.approx(found["points"][1]["score"], abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "metric"),
    [("questions", "f1"), ("tokens", "f1"), ("regression", "pearson"), ("multi-label", "micro-f1")],
)
def test_every_other_head_is_compressed(ldsearch: Ldsearch, tuned: Path, kind: str, metric: str) -> None:
    headed(kind)
    write(Path("own.jsonl"), rows_of(kind, 160, 3))
    ldsearch.done("compress", "headed", "--data", "own.jsonl", "--budget", 0.7)
    found = read(tuned / "runs/headed-compressed/compress.json")
    assert found["metric"] == metric
    assert 0.5 < found["points"][1]["macs"] <= 0.7


@pytest.mark.usefixtures("tuned")
def test_of_a_head_that_reads_every_token_the_served_model_is_chosen_and_not_the_reference(
    ldsearch: Ldsearch,
) -> None:
    """Its lengths may be those of the full model, of which no elastic file is made."""
    headed("questions")  # which gives its own answers everywhere
    texts = Path("texts.txt").read_text().splitlines()
    rows = [{"context": f"{number} {text}", "question": text.split()[0]} for number, text in enumerate(texts)]
    write(Path("own.jsonl"), rows)
    ldsearch.done("compress", "headed", "--data", "own.jsonl", "--most-accurate")
    run = Run.open("runs/headed-compressed")
    assert run.best.subnet.stacks()["encoder"].lengths is not None
    (full, *others) = run.trials.itertuples()
    assert full.subnet == Subnet.full(3).to_json()
    assert run.best.score == pytest.approx(max(row.score for row in others))
    rows = read(Path("runs/headed-compressed/model/budgets.json"))["rows"]
    assert all(row["subnet"]["encoder"]["lengths"] for row in rows)
