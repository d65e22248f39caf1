"""Scores of texts: sacreBLEU of stock models' answers, a frontier's table, nothing decoded twice."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import sacrebleu
import torch
from safetensors.torch import load_file, save_file

from ldsearch import Bench
from ldsearch.commands import generation
from ldsearch.commands.evaluate import evaluate, evaluate_frontier
from ldsearch.commands.generation import TextTest
from ldsearch.commands.options import TrainSupernet
from ldsearch.commands.train_supernet import train_supernet
from ldsearch.decoding import Decoding, decode
from ldsearch.errors import DataError, RunError
from ldsearch.files import write_json
from ldsearch.reports.tables import COLUMNS, write_csv
from ldsearch.runs import Choice
from ldsearch.subnet import Subnet
from ldsearch.tasks.metrics import metric_named
from tests.translators import sentences

SIDE = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}
BART = {"model_type": "bart", "d_model": 16, "max_position_embeddings": 32} | {
    f"{side}_{part}": size for side in ("encoder", "decoder") for part, size in SIDE.items()
}
TEXTS = TextTest(metric_named("texts", "bleu", 1), Decoding(beams=2, max_length=10), limit=8)


@pytest.fixture(scope="module")
def supernet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator of random weights."""
    folder = tmp_path_factory.mktemp("evaluate")
    texts = list(dict.fromkeys(sentences(60)))
    for name, part in (("train", texts[:20]), ("validation", texts[20:40])):
        rows = [{"source": text, "target": text} for text in part]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "bart.json").write_text(json.dumps(BART))
    options = TrainSupernet(
        data=str(folder / "train.jsonl"),
        task="translation",
        validation=str(folder / "validation.jsonl"),
        keep_overlap=True,
        model=str(folder / "bart.json"),
        max_length=16,
        trainer={"max_steps": "1", "disable_tqdm": "True"},
    )
    supernet = train_supernet(folder / "runs" / "supernet", options)
    weights, generator = supernet / "model.safetensors", torch.Generator().manual_seed(3)
    tensors = {
        name: torch.randn(tensor.shape, generator=generator) if tensor.ndim == 2 else tensor
        for name, tensor in load_file(weights).items()
    }
    save_file(tensors, weights, metadata={"format": "pt"})
    return supernet


@pytest.fixture(scope="module")
def bench(supernet: Path) -> Bench:
    return Bench.open(supernet, "report")


@pytest.fixture(scope="module")
def run(supernet: Path, bench: Bench) -> Path:
    """What a search leaves, as far as it is read here."""
    run = supernet.parent / "run"
    run.mkdir()
    stacks = (((0,), (0,)), ((0, 1), (1,)), ((0,), (0, 1)))
    subnets = [Subnet.of_blocks({"encoder": m, "decoder": n}) for m, n in stacks]
    shares = bench.macs(subnets) / bench.macs([bench.full])
    rows = {"subnet": [s.to_json() for s in subnets], "macs_share": shares, "score": [5.0, 4.0, 3.0]}
    write_csv(pd.DataFrame({**dict.fromkeys(COLUMNS, 0), **rows}), run / "frontier.csv")
    best = Choice(
        subnets[1], "most accurate", "nats", 4.0, 5.0, "search", 20, None, {}, {}, "", "../supernet"
    )
    write_json(run / "best.json", best.to_dict())
    run_fields = {"measurements": "..", "supernet": "../supernet", "trials": 3, "options": {}, "identity": {}}
    write_json(run / "run.json", run_fields)
    return run


@pytest.fixture(autouse=True)
def opened_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting MACs takes a second each time."""

    def opened(folder: Path, split: str, *_: object) -> Bench:
        assert (folder.resolve(), split) == (bench.folder, "report")
        return bench

    monkeypatch.setattr(Bench, "open", opened)


@pytest.fixture
def rescored(run: Path):
    return evaluate_frontier(run, TEXTS)


def by_hand(bench: Bench, subnet: Subnet) -> float:
    """BLEU of what the stock model of a sub-network writes of the rows that chose nothing."""
    sources, references = bench.task.rows("report").sources[:8], bench.task.rows("report").targets[:8]
    model = bench.supernet.materialise(subnet)
    texts = decode(model, bench.tokenizer, sources, TEXTS.decoding, max_source=bench.record.reference)
    return sacrebleu.corpus_bleu(texts, [[own[0] for own in references]]).score


def test_a_frontier_has_the_scores_of_its_stock_models(run, rescored, bench):
    table = pd.read_csv(run / "generated.csv")
    front = pd.read_csv(run / "frontier.csv")
    assert list(table["subnet"]) == list(front["subnet"])
    assert list(table["search_score"]) == list(front["score"])
    assert list(table["macs_share"]) == list(front["macs_share"])
    assert len(table) > 1
    expected = [by_hand(bench, Subnet.from_json(subnet)) for subnet in table["subnet"]]
    assert len({*expected}) > 1
    assert list(table["generated_score"]) == pytest.approx(expected, abs=1e-6)
    assert rescored.full_score == pytest.approx(by_hand(bench, bench.full), abs=1e-6)
    assert list(table["difference"]) == pytest.approx([score - rescored.full_score for score in expected])
    assert (table["difference_low"] <= table["difference"]).all()
    assert (table["difference"] <= table["difference_high"]).all()
    assert (rescored.examples, rescored.split) == (8, "report")
    assert "beam 2" in rescored.how
    assert "nrefs:1" in rescored.how
    assert sacrebleu.__version__ in rescored.how


def test_one_sub_network_is_compared_with_the_full_model(run, rescored):
    subnet = rescored.table["subnet"].iloc[0]
    found = evaluate(run, subnet=subnet, texts=TEXTS)
    row = rescored.table.iloc[0]
    assert found.score.value == pytest.approx(row["generated_score"])
    assert found.full_score.value == pytest.approx(rescored.full_score)
    assert (found.difference.low, found.difference.high) == (row["difference_low"], row["difference_high"])
    assert (found.metric, found.split, found.how) == ("bleu", "report", rescored.how)
    assert not found.chosen_on


def test_what_was_decoded_is_not_decoded_again(run, rescored, bench, monkeypatch):
    decoded = []

    def watched(model, *inputs):
        decoded.append(model)
        return original(model, *inputs)

    original = generation.generate
    monkeypatch.setattr(generation, "generate", watched)
    files = sorted((run / "generated").glob("*/*.json"))
    texts = [path for path in files if path.name != "decoding.json"]
    assert len(texts) == len({*rescored.table["subnet"], bench.full.to_json()})
    assert evaluate_frontier(run, TEXTS).table.equals(rescored.table)
    assert decoded == []
    texts[0].unlink()  # as if a kill had come before it
    assert evaluate_frontier(run, TEXTS).table.equals(rescored.table)
    assert len(decoded) == 1
    # Another metric reads the same texts; another way of decoding makes its own.
    rouge = evaluate_frontier(run, replace(TEXTS, metric=metric_named("texts", "rouge1", 1)))
    assert set(rouge.table["metric"]) == {"rouge1"}
    assert len(decoded) == 1
    evaluate_frontier(run, replace(TEXTS, limit=2))
    assert len(decoded) == 1 + len(texts)


def test_what_cannot_be_scored_is_refused(run, tmp_path):
    with pytest.raises(DataError, match="no metric 'nats' for texts"):
        metric_named("texts", "nats", 1)
    with pytest.raises(RunError, match="is a model, not a search run"):
        evaluate_frontier(run.parent / "supernet", TEXTS)
    with pytest.raises(RunError, match="it has no run"):
        evaluate_frontier(tmp_path, TEXTS)
