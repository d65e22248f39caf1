"""Searches of models that write, from training to an export that generates."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ldsearch import Bench, load
from ldsearch.commands.binding import read_trainer
from ldsearch.commands.evolve import evolve
from ldsearch.commands.export import export
from ldsearch.commands.options import Evolve, TrainSupernet
from ldsearch.commands.train_supernet import train_supernet
from ldsearch.errors import RunError
from tests.translators import sentences

FLAGS = ("--max_steps", "2", "--disable_tqdm", "True")
LLAMA = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
SIDE = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}
BART = {"model_type": "bart", "d_model": 16} | {
    f"{side}_{part}": size for side in ("encoder", "decoder") for part, size in SIDE.items()
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generating")
    texts = list(dict.fromkeys(sentences(60)))
    for name, part in (("train", texts[:30]), ("validation", texts[30:])):
        rows = [{"source": text, "target": text[::-1]} for text in part]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.txt").write_text("".join(f"{text}\n" for text in part))
    (folder / "llama.json").write_text(json.dumps({**LLAMA, "intermediate_size": 32}))
    (folder / "bart.json").write_text(json.dumps({**BART, "max_position_embeddings": 64}))
    return folder


@pytest.fixture(scope="module")
def translator(place: Path) -> Bench:
    options = TrainSupernet(
        data=str(place / "train.jsonl"),
        task="translation",
        validation=str(place / "validation.jsonl"),
        keep_overlap=True,
        model=str(place / "bart.json"),
        memory="kept",
        max_length=24,
        trainer=read_trainer(list(FLAGS)),
    )
    return Bench.open(train_supernet(place / "runs" / "translator", options))


def test_the_best_blocks_of_a_language_model_are_an_ordinary_folder(place):
    options = TrainSupernet(
        data=str(place / "train.txt"),
        task="causal",
        validation=str(place / "validation.txt"),
        model=str(place / "llama.json"),
        strategy="layerdrop",
        max_length=24,
        trainer=read_trainer(list(FLAGS)),
    )
    bench = Bench.open(train_supernet(place / "runs" / "writer", options))
    outcome = evolve(bench, place / "runs" / "two", Evolve(strategy="validation", keep=(2,)))
    tried = [trial for trial in outcome.result.trials if trial.subnet != bench.full]
    assert {trial.subnet.decoder.blocks for trial in tried} == {(0, 1), (0, 2), (1, 2)}
    assert outcome.best.score.value == min(trial.score.value for trial in tried)
    folder = export(place / "runs" / "two", place / "writer").folder
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.num_hidden_layers == 2
    written = model.generate(**tokenizer("the dog", return_tensors="pt"), max_new_tokens=4, min_new_tokens=4)
    assert written.shape[1] >= 6


def test_lengths_of_a_translator_are_searched_and_its_export_generates(place, translator):
    found = evolve(translator, place / "runs" / "short", Evolve(budget="0.95", evaluations=4))
    stack = found.best.subnet.encoder
    assert stack.lengths is not None
    assert found.best.subnet.decoder == translator.full.decoder
    model = load(export(place / "runs" / "short", place / "translator").folder)
    ids = translator.tokenizer("the dog sees a big red house", return_tensors="pt")["input_ids"]
    seen = []
    decoder = model.model.get_decoder()
    decoder.register_forward_pre_hook(
        lambda _, __, named: seen.append(named["encoder_hidden_states"].shape[1]), with_kwargs=True
    )
    with torch.no_grad():
        model.generate(input_ids=ids, max_new_tokens=3)
    # Memory "kept": the decoder reads what the last encoder block let through.
    assert set(seen) == {stack.lengths.kept(len(stack.blocks) - 1, ids.shape[1])}


def test_blocks_of_two_stacks_are_selected_together(place, translator):
    every = evolve(translator, place / "runs" / "every", Evolve(strategy="validation"))
    shapes = [tuple(len(s.blocks) for s in t.subnet.stacks().values()) for t in every.result.trials]
    assert shapes[0] == (2, 2)
    assert sorted(shapes[1:]) == [(1, 1)] * 4 + [(1, 2)] * 2 + [(2, 1)] * 2
    even = evolve(translator, place / "runs" / "even", Evolve(strategy="every-other", keep=(1, 2)))
    assert [t.subnet.stacks()["encoder"].blocks for t in even.result.candidates] == [(0,)]
    assert even.best.subnet.decoder.blocks == (0, 1)
    beam = evolve(translator, place / "runs" / "beam", Evolve(strategy="beam", keep=(1, 1)))
    best = min(t.score.loss for t, shape in zip(every.result.trials, shapes, strict=True) if shape == (1, 1))
    assert beam.best.score.loss == best  # so few that the beam holds every parent
    named = evolve(translator, place / "runs" / "named", Evolve(strategy="assignment", keep=(1, 1)))
    assert [len(s.blocks) for s in named.best.subnet.stacks().values()] == [1, 1]
    with pytest.raises(RunError, match=r"names 1 numbers of blocks; this model has 2 .*: --keep 2,2 is all"):
        evolve(translator, place / "runs" / "no", Evolve(strategy="every-other", keep=(1,)))
    with pytest.raises(RunError, match="one stack"):
        evolve(translator, place / "runs" / "no", Evolve(strategy="swaps", keep=(1, 1)))
    assert not (place / "runs" / "no").exists()


def test_depths_of_two_stacks_and_lengths_evolve_together(place, translator):
    found = evolve(translator, place / "runs" / "joint", Evolve(genes="depth+lengths", evaluations=8))
    shapes = {tuple(len(s.blocks) for s in t.subnet.stacks().values()) for t in found.result.trials}
    assert len(shapes) > 1
    assert any(t.subnet.encoder.lengths for t in found.result.trials)
