"""Prefill and per-token latency: what is read at each step, never an early end, exact on a planted clock."""

from contextlib import contextmanager

import pytest
import torch

from ldsearch.errors import LdsearchError
from ldsearch.latency.clock import Clock
from ldsearch.latency.measure import Entry, entries_of, generating, measure, random_cell, runs_of
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from tests.latency.planted_clock import PlantedClock
from tests.tiny import tiny_decoder, tiny_encoder_decoder


@contextmanager
def watched(layers):
    """Tokens that enter the layers, call after call; copies of a layer have its hooks too."""
    seen: list[int] = []

    def note(module, inputs, named):
        seen.append((inputs[0] if inputs else named["hidden_states"]).shape[1])

    hooks = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in layers]
    yield seen
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize(
    ("model", "stack", "prompt"),
    [
        (tiny_decoder("gpt2"), "transformer.h", 6),
        (tiny_decoder("llama"), "model.layers", 6),
        (tiny_encoder_decoder("bart"), "model.decoder.layers", 1),
        (tiny_encoder_decoder("marian"), "model.decoder.layers", 1),
    ],
)
def test_the_prompt_is_read_once_and_then_token_by_token(model, stack, prompt):
    # An end at every step, if it were let.
    head = model.get_output_embeddings()
    torch.nn.init.zeros_(head.weight)
    supernet = Supernet(model).eval()
    for subnet in (supernet.full, Subnet.of_blocks({k: range(1, n) for k, n in supernet.depths.items()})):
        cell, blocks = random_cell(supernet, 2, 6, 4), len(subnet.decoder.blocks)
        with watched(model.get_submodule(stack)) as seen:
            first, four = runs_of(generating(3), supernet, Entry(subnet, "eager"), cell)
            first()
            assert seen == [prompt] * blocks
            seen.clear()
            four()
            assert seen == [prompt] * blocks + [1] * 3 * blocks


def test_phases_are_exact_on_a_planted_clock():
    """A prompt takes 3 s (full) or 2 s, each token 0.5 s or 0.4 s: with the first of them in the prefill."""
    clock = PlantedClock()
    supernet = Supernet(tiny_decoder("gpt2")).eval()
    half = Subnet(decoder=Subnet.full(2).encoder)

    def planted(entry):
        prompt, token = (3.0, 0.5) if entry.subnet == supernet.full else (2.0, 0.4)
        return [clock.work("run", iter(lambda w=w: prompt + token * w, 0)) for w in generating(8).written]

    entries, cell = entries_of(supernet, [half], "eager"), random_cell(supernet, 2, 8, 9)
    lines, noise = measure(supernet, entries, cell, generating(8), Clock(3, 1, clock), runs=planted)
    found = {(line.subnet, line.phase): line for line in lines}
    assert found[supernet.full, "prefill"].median_ms == pytest.approx(3500)
    assert found[supernet.full, "per token"].median_ms == pytest.approx(500)
    assert found[half, "prefill"].median_ms == pytest.approx(2400)
    assert found[half, "prefill"].ratio == pytest.approx(2.4 / 3.5)
    assert found[half, "per token"].ratio == pytest.approx(0.8)
    assert not noise.noisy


def test_only_the_eager_model_writes_and_it_writes_something():
    supernet = Supernet(tiny_decoder("gpt2")).eval()
    with pytest.raises(LdsearchError, match="use --runtime eager"):
        runs_of(generating(2), supernet, Entry(supernet.full, "compile"), random_cell(supernet, 1, 4, 3))
    with pytest.raises(LdsearchError, match="1 token or more, not 0"):
        generating(0)
