"""Ranking: rows in every layout are the same queries; metrics are scikit-learn's; margins stay in a query."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer

import ldsearch as ld
from ldsearch.errors import DataError
from ldsearch.export.card import Provenance
from ldsearch.export.folder import write_huggingface
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.tasks import DataSource, load_task
from ldsearch.tasks.likeness import order_kept
from ldsearch.tasks.metrics import METRICS
from ldsearch.tasks.objectives import Relevance
from ldsearch.tasks.ranking import Ranking
from ldsearch.tasks.tables import Columns
from ldsearch.tasks.tokenizer import train_wordpiece
from ldsearch.training.sampler import LengthGroupedSampler
from ldsearch.training.start import task_of
from tests.tiny import tiny_model

QUERIES = [f"query {place}" for place in range(30)]
FOUND = {name: metric(1) for name, metric in METRICS["ranking"].items()}


def documents(place: int) -> list[str]:
    return [f"good {place}", *(f"bad {place} {other}" for other in range(1 + place % 3))]


def layouts() -> dict[str, pd.DataFrame]:
    lists = [(query, documents(place)) for place, query in enumerate(QUERIES)]
    ones = [(query, text, int(not at)) for query, own in lists for at, text in enumerate(own)]
    return {
        "a row for each pair": pd.DataFrame(ones, columns=["query", "passage", "label"]),
        "lists with labels": pd.DataFrame(
            [(query, own, [1.0, *[0.0] * (len(own) - 1)]) for query, own in lists],
            columns=["question", "documents", "labels"],
        ),
        "positives and negatives": pd.DataFrame(
            [(query, own[:1], own[1:]) for query, own in lists], columns=["query", "positives", "negatives"]
        ),
        "triplets": pd.DataFrame(
            [(query, own[0], other) for query, own in lists for other in own[1:]],
            columns=["anchor", "positive", "negative"],
        ),
    }


@pytest.mark.parametrize("layout", layouts())
def test_every_layout_is_the_same_queries_and_no_query_is_on_two_sides(layout: str, tmp_path: Path) -> None:
    table = layouts()[layout].sample(frac=1, random_state=1)
    table.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    source = DataSource(str(tmp_path / "rows.jsonl"), keep_overlap=True)
    task = load_task("ranking", source)
    seen: dict[str, dict[str, float]] = {}
    for rows in task.splits.values():
        for query, own, labels in zip(rows.queries, rows.documents, rows.labels, strict=True):
            assert query not in seen
            seen[query] = dict(zip(own, labels, strict=True))
    wanted = {query: dict.fromkeys(documents(place), 0.0) for place, query in enumerate(QUERIES)}
    assert seen == {query: {**own, next(iter(own)): 1.0} for query, own in wanted.items()}
    named = replace(source, columns=Columns(**task.source["columns"]))
    assert load_task("ranking", named).splits == task.splits


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_task_of_a_cross_encoder_is_read_from_its_rows(outputs: int, tmp_path: Path) -> None:
    """Queries with documents or pairs with a score, where it has one output; of two it may classify pairs."""
    tiny_model("bert", blocks=1, labels=outputs).save_pretrained(tmp_path / "model")
    pairs = pd.DataFrame(
        [(query, f"other {query}", 0.5) for query in QUERIES], columns=["query", "text", "score"]
    )
    for table, kind in [*((own, "ranking") for own in layouts().values()), (pairs, "regression")]:
        table.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
        found = task_of(str(tmp_path / "model"), DataSource(str(tmp_path / "rows.jsonl")))
        assert found == (kind if outputs == 1 else "classification"), [*table.columns]


@pytest.mark.parametrize(
    ("rows", "known", "message"),
    [
        ([("a", "x", 1), ("b", "y", 0)], None, "no train query has two documents.*--task regression"),
        ([("a", "x", 1), ("a", "x", 0)], None, "have a document twice with two labels"),
        ([("a", "x", 1), ("a", "y", -2)], None, "have a label below 0"),
        ([("a", "x", 1), ("a", "y", None)], None, "have a document without a number"),
        ([("a", "x", 1), ("a", " ", 0)], None, "have no text in 'document'"),
        ([("a", [], []), ("b", ["x", "y"], [1, 0])], None, "have no document"),
        ([("a", ["x", "y"], [1])], None, "a query has 2 documents and 1 labels"),
        ([("a", "x", 1), ("a", "y", 0)], ["a", "b", "c"], "classifies a, b, c; ranking needs one output, or"),
    ],
)
def test_what_ranks_nothing_is_refused(
    rows: list[tuple[object, ...]], known: list[str] | None, message: str
) -> None:
    table = pd.DataFrame(rows, columns=["query", "document", "label"])
    with pytest.raises(DataError, match=message):
        Ranking.of_tables({"train": table}, DataSource("rows"), known)


@pytest.mark.parametrize(
    ("scores", "labels", "wanted"),
    [
        ([2, 3, 1], [1, 0, 0], (1 / np.log2(3), 1 / 2, 1 / 2)),
        ([1, 1], [1, 0], ((1 + 1 / np.log2(3)) / 2, 1 / 2, 1 / 2)),  # half of each order, or the worse
        ([5], [0], (0, 0, 0)),
        ([2, 1], [0, 0], (0, 0, 0)),  # no positive
        ([*range(10, 0, -1), 0], [*[0] * 10, 1], (0, 0, 1 / 11)),  # behind the tenth
        ([3, np.nan], [1, 0], (np.nan, np.nan, np.nan)),
    ],
)
def test_metrics_by_hand(scores: list[float], labels: list[float], wanted: tuple[float, ...]) -> None:
    found = [metric.statistics([scores], [labels])[0] for metric in FOUND.values()]
    np.testing.assert_allclose(found, wanted)


def test_two_outputs_are_one_and_margins_stay_in_a_query() -> None:
    torch.manual_seed(0)
    logits = torch.randn(7, 2)
    labels = torch.tensor([[1.0, 0], [0, 0], [1, 1], [0, 1], [0, 1], [1, 2], [0, 3]])
    batch, loss = {"labels": labels}, Relevance()
    stock = torch.nn.functional.cross_entropy(logits, labels[:, 0].long())
    torch.testing.assert_close(loss.loss(logits, batch), stock)
    one = (logits[:, 1] - logits[:, 0])[:, None]
    torch.testing.assert_close(loss.loss(one, batch), stock)
    squared = ((one[:, 0] - labels[:, 0]) ** 2).mean()
    torch.testing.assert_close(Relevance(squares=True).loss(one, batch), squared)

    student = torch.randn(7, 1)
    off = (student - one)[:, 0]
    wanted = 0.0
    for row in range(7):
        mates = [other for other in range(7) if labels[other, 1] == labels[row, 1]]
        wanted += sum(float(off[row] - off[other]) ** 2 for other in mates) / len(mates) / 7
    assert float(loss.divergence(logits, student, batch)) == pytest.approx(wanted, rel=1e-5)
    shifted = student + 3 * labels[:, 1:] ** 2
    torch.testing.assert_close(loss.divergence(one, shifted, batch), loss.divergence(one, student, batch))


def test_a_query_stands_together_in_a_training() -> None:
    rng = np.random.default_rng(0)
    queries = np.repeat(np.arange(200), rng.integers(1, 9, 200))
    lengths = rng.integers(3, 60, len(queries))
    sampler = LengthGroupedSampler(lengths, 16, 0, queries)
    order = queries[list(sampler)]
    assert sorted(order) == sorted(queries)
    # But where a batch or a group of batches ends in its midst.
    runs = 1 + np.count_nonzero(np.diff(order))
    assert runs <= 200 + len(queries) / 16 + 1
    assert order.tolist() != queries[list(LengthGroupedSampler(lengths, 16, 1, queries))].tolist()


def test_order_is_kept_by_gains() -> None:
    want = [np.array([value]) for value in (4.0, 1.0, -9.0, -9.01, 2.0, 2.0)]
    swapped = [want[0], want[1], want[3], want[2], want[5], want[4]]  # two that are irrelevant
    assert order_kept(want, want, [0, 0, 0, 0, 1, 1]) == 1
    assert order_kept(want, swapped, [0, 0, 0, 0, 1, 1]) > 0.9999
    assert order_kept(want, [-one for one in want], [0, 0, 0, 0, 1, 1]) < 0.75


def test_pairs_are_cut_as_a_cross_encoder_cuts_them(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    tables = {"train": layouts()["a row for each pair"]}
    task = Ranking.of_tables(tables, DataSource("rows", keep_overlap=True))
    rows = task.rows("train")
    tokenizer = train_wordpiece(list(rows.texts), 60)
    encoded = task.encode("train", tokenizer, 9)
    both = zip(rows.queries, rows.documents, strict=True)
    pairs = [(query, own) for query, documents in both for own in documents]
    for part in (tiny_model("bert", labels=1), tokenizer):
        part.save_pretrained(tmp_path)
    stock = library.CrossEncoder(str(tmp_path), max_length=9, device="cpu")
    theirs = stock.tokenizer(pairs, truncation=True, max_length=9)["input_ids"]
    assert [feature["input_ids"] for feature in encoded] == theirs


def test_exports_are_cross_encoders_that_give_the_same_order(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    texts = [f"w{a} w{b} w{a * b % 17}" for a in range(20) for b in range(20)]
    tokenizer = train_wordpiece(texts, 60)
    supernet = Supernet(tiny_model("bert", labels=1)).eval()
    how = Provenance("it", "no", "none", "by hand", "none")
    documents = texts[::20]
    for name, subnet in (
        ("depth", Subnet.of_encoder([0, 2])),
        ("lengths", Subnet.of_encoder(range(4), [9, 5, 5, 2], 12)),
    ):
        folder = write_huggingface(supernet, tokenizer, subnet, tmp_path / name, how).folder
        ours, own = ld.load(folder), AutoTokenizer.from_pretrained(folder)
        theirs = library.CrossEncoder(str(folder), device="cpu", trust_remote_code=name == "lengths")
        for query in texts[:50]:
            pairs = own([query] * len(documents), documents, padding=True, return_tensors="pt")
            with torch.no_grad():
                wanted = ours(**pairs).logits[:, 0].sigmoid().numpy()
            found = theirs.predict([(query, text) for text in documents], show_progress_bar=False)
            np.testing.assert_allclose(found, wanted, atol=1e-5)
            assert np.argsort(-found).tolist() == np.argsort(-wanted).tolist()
