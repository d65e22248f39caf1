"""Scores of texts: sacreBLEU of stock models' answers, a frontier's table, nothing decoded twice."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import sacrebleu

from ldsearch import Bench
from ldsearch.commands.evaluate import evaluate, evaluate_frontier, main
from ldsearch.commands.evolve import evolve
from ldsearch.errors import DataError, RunError
from ldsearch.evaluation.decoding import decode
from ldsearch.options import Evaluate, Evolve
from ldsearch.search import generation
from ldsearch.search.generation import decoding_of
from ldsearch.subnet import Subnet


@pytest.fixture(scope="module")
def run(translator: Bench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search among all choices of blocks."""
    run = tmp_path_factory.mktemp("evaluate") / "run"
    evolve(translator, run, Evolve(strategy="validation"))
    return run


@pytest.fixture
def options(run: Path, reported: Bench, monkeypatch: pytest.MonkeyPatch) -> Evaluate:
    """Of the run's frontier; the supernet is opened once."""
    monkeypatch.setattr(Bench, "open", lambda *_: reported)
    return Evaluate(folder=run, metric="bleu", frontier=True, beams=2, max_target=10, limit=8)


def table(options: Evaluate) -> pd.DataFrame:
    return pd.read_csv(evaluate_frontier(options)["written"])


def by_hand(bench: Bench, subnet: Subnet, options: Evaluate) -> float:
    """BLEU of what the stock model of a sub-network writes of the rows that chose nothing."""
    sources, references = bench.task.rows("report").sources[:8], bench.task.rows("report").targets[:8]
    model = bench.supernet.materialise(subnet)
    texts = decode(model, bench.tokenizer, sources, decoding_of(options), max_source=bench.record.reference)
    return sacrebleu.corpus_bleu(texts, [[own[0] for own in references]]).score


def test_a_frontier_has_the_scores_of_its_stock_models(run, options, reported, capsys):
    result = evaluate_frontier(options)
    assert result["written"] == str(run / "generated.csv")
    rows, front = pd.read_csv(run / "generated.csv"), pd.read_csv(run / "frontier.csv")
    for column, same in (("subnet", "subnet"), ("search_score", "score"), ("macs_share", "macs_share")):
        assert list(rows[column]) == list(front[same])
    expected = [by_hand(reported, Subnet.from_json(subnet), options) for subnet in rows["subnet"]]
    assert len({*expected}) > 1
    assert list(rows["generated_score"]) == pytest.approx(expected, abs=1e-6)
    assert result["full_score"] == pytest.approx(by_hand(reported, reported.full, options), abs=1e-6)
    assert list(rows["difference"]) == pytest.approx([score - result["full_score"] for score in expected])
    assert (rows["difference_low"] <= rows["difference"]).all()
    assert (rows["difference"] <= rows["difference_high"]).all()
    said = " ".join(capsys.readouterr().out.split())
    for words in ("bleu on 8 report examples", "beam 2", "nrefs:1", sacrebleu.__version__):
        assert words in said


def test_one_sub_network_is_compared_with_the_full_model(options):
    row = table(options).iloc[0]
    found = evaluate(replace(options, frontier=False, subnet=row["subnet"]))
    assert (found["metric"], found["split"]) == ("bleu", "report")
    assert found["score"] == pytest.approx(row["generated_score"])
    assert found["difference"]["low"] == pytest.approx(row["difference_low"])
    assert found["difference"]["high"] == pytest.approx(row["difference_high"])


def test_what_was_decoded_is_not_decoded_again(run, options, monkeypatch):
    first, decoded = table(options), []
    count = len({*first["subnet"], Bench.open().full.to_json()})

    def watched(model, *inputs, **named):
        decoded.append(model)
        return original(model, *inputs, **named)

    original = generation.decode
    monkeypatch.setattr(generation, "decode", watched)
    files = sorted((run / "generated").glob("*/*.json"))
    texts = [path for path in files if path.name != "decoding.json"]
    assert len(texts) == count > 2
    assert table(options).equals(first)
    assert decoded == []
    texts[0].unlink()  # as if a kill had come before it
    assert table(options).equals(first)
    assert len(decoded) == 1
    # Another metric reads the same texts; another way of decoding makes its own.
    assert set(table(replace(options, metric="rouge1"))["metric"]) == {"rouge1"}
    assert len(decoded) == 1
    evaluate_frontier(replace(options, limit=2))
    assert len(decoded) == 1 + count
    assert len(json.loads(texts[0].read_text())) == 8


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"metric": "nats"}, DataError, "'nats'"),
        ({"metric": None}, RunError, "--metric"),
        ({"metric": None, "frontier": False, "beams": 1, "max_target": 128}, RunError, "--limit"),
        ({"subnet": "full"}, RunError, "--subnet"),
        ({"assignment": "head"}, RunError, "--all-depths"),
        ({"all_depths": True}, RunError, "--frontier"),
        ({"folder": Path("nowhere")}, RunError, "nowhere"),
    ],
)
def test_what_cannot_be_scored_is_refused(options, changes, error, says):
    with pytest.raises(error, match=says):
        main(replace(options, **changes))
