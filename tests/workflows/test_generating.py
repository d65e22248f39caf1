"""Searches of models that write, from training to an export that generates."""

import pytest
import torch

from ldsearch import load
from ldsearch.commands.evolve import evolve
from ldsearch.errors import RunError
from ldsearch.export.export import export
from ldsearch.options import Evolve


@pytest.mark.slow  # the export is checked in a fresh process
def test_lengths_of_a_translator_are_searched_and_its_export_generates(translator, tmp_path):
    found = evolve(translator, tmp_path / "short", Evolve(genes="lengths", budget="0.95", evaluations=4))
    stack = found.best.subnet.encoder
    assert stack.lengths is not None
    assert found.best.subnet.decoder == translator.full.decoder
    model = load(export(tmp_path / "short", tmp_path / "translator").folder)
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


def test_blocks_of_two_stacks_are_selected_together(translator, tmp_path):
    every = evolve(translator, tmp_path / "every", Evolve(strategy="validation"))
    shapes = [tuple(len(s.blocks) for s in t.subnet.stacks().values()) for t in every.result.trials]
    assert shapes[0] == (2, 2)
    assert sorted(shapes[1:]) == [(1, 1)] * 4 + [(1, 2)] * 2 + [(2, 1)] * 2
    beam = evolve(translator, tmp_path / "beam", Evolve(strategy="beam", keep=(1, 1)))
    best = min(t.score.loss for t, shape in zip(every.result.trials, shapes, strict=True) if shape == (1, 1))
    assert beam.best.score.loss == best  # so few that the beam holds every parent
    named = evolve(translator, tmp_path / "named", Evolve(strategy="assignment", keep=(1, 2)))
    assert [len(s.blocks) for s in named.best.subnet.stacks().values()] == [1, 2]
    with pytest.raises(RunError, match=r"names 1 numbers of blocks; this model has 2 .*: --keep 2,2 is all"):
        evolve(translator, tmp_path / "no", Evolve(strategy="every-other", keep=(1,)))
    assert not (tmp_path / "no").exists()


def test_depths_of_two_stacks_and_lengths_evolve_together(translator, tmp_path):
    found = evolve(translator, tmp_path / "joint", Evolve(genes="depth+lengths", evaluations=8))
    shapes = {tuple(len(s.blocks) for s in t.subnet.stacks().values()) for t in found.result.trials}
    assert len(shapes) > 1
    assert any(t.subnet.encoder.lengths for t in found.result.trials)
