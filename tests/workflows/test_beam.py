"""Beam over a model: the wanted depth is kept exactly, and a search without gains goes on to it."""

import json
from pathlib import Path

import pytest
from transformers import AutoModelForMaskedLM

from ldsearch import Bench
from ldsearch.commands.evolve import evolve
from ldsearch.commands.export import export
from ldsearch.commands.options import Evolve, TrainSupernet
from ldsearch.commands.train_supernet import train_supernet
from ldsearch.errors import RunError
from tests.translators import sentences

BERT = {"model_type": "bert", "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}


def opened(place: Path, blocks: int) -> Bench:
    """A BERT of so many blocks, hardly trained, whose blocks do something all the same."""
    texts = list(dict.fromkeys(sentences(60)))[:32]
    for name, part in (("train", texts[:16]), ("validation", texts[16:])):
        (place / f"{name}.txt").write_text("".join(f"{text}\n" for text in part))
    config = {**BERT, "num_hidden_layers": blocks, "initializer_range": 0.5}
    (place / "bert.json").write_text(json.dumps(config))
    options = TrainSupernet(
        data=str(place / "train.txt"),
        task="masked",
        validation=str(place / "validation.txt"),
        keep_overlap=True,
        model=str(place / "bert.json"),
        strategy="layerdrop",
        max_length=16,
        trainer={"max_steps": "1", "disable_tqdm": "True"},
    )
    return Bench.open(train_supernet(place / "runs" / "bert", options))


def test_keep_gives_exactly_so_many_blocks_the_best_of_all_as_the_beam_holds_every_parent(tmp_path):
    bench = opened(tmp_path, 4)
    # Four sub-networks of three blocks all go on, so the pairs are measured one and all.
    outcome = evolve(bench, tmp_path / "runs" / "two", Evolve(strategy="beam", keep=(2,)))
    every = evolve(bench, tmp_path / "runs" / "every", Evolve(strategy="validation", keep=(2,)))
    assert outcome.best in outcome.result.candidates
    assert {t.subnet for t in outcome.result.candidates} == {t.subnet for t in every.result.candidates}
    assert outcome.best.subnet == every.best.subnet
    assert len({t.score.value for t in every.result.trials}) == 7
    depths = [len(t.subnet.encoder.blocks) for t in outcome.result.trials]
    assert depths == [4] + [3] * 4 + [2] * 6
    exported = export(tmp_path / "runs" / "two", tmp_path / "out").folder
    model = AutoModelForMaskedLM.from_pretrained(exported)
    assert model.config.num_hidden_layers == 2
    with pytest.raises(RunError, match=r"beam .* takes no --space"):
        evolve(bench, tmp_path / "runs" / "no", Evolve(strategy="beam", space="demo"))


def test_a_beam_that_gains_nothing_goes_on_to_the_least_depth(tmp_path):
    bench = opened(tmp_path, 8)
    for parameter in bench.supernet.model.parameters():
        parameter.data.zero_()  # every sub-network says the same
    outcome = evolve(bench, tmp_path / "runs" / "one", Evolve(strategy="beam", keep=(1,)))
    assert len({t.score.value for t in outcome.result.trials}) == 1
    assert outcome.best.subnet.encoder.blocks == (0,)
    assert outcome.result.stopped == "exhausted"
