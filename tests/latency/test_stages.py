"""The real stages: together they are the supernet's forward; what has no such stages is refused."""

import pytest
import torch

from ldsearch.errors import SupernetError
from ldsearch.latency.measure import random_tokens
from ldsearch.latency.table import SupernetStages
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.stages import Block
from ldsearch.supernet.supernet import inference
from tests.tiny import learned, tiny_decoder, tiny_encoder_decoder, tiny_model


def test_a_vector_that_is_corrected_has_its_stages():
    stages = SupernetStages(learned(tiny_model("bert", head="SentenceEmbedding")))
    assert stages.run("embed", 3, 8, 8)().entered[0].shape == (3, 16)
    assert stages.run("block 1", 3, 8, 5)().entered[0].shape == (3, 16)
    assert stages.run("head", 3, 5, 5)().sentence_embedding.shape == (3, 16)


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_stages_run_at_the_lengths_they_are_asked_for(family):
    stages = SupernetStages(Supernet(tiny_model(family)))
    assert stages.run("embed", 3, 8, 8)().hidden.shape == (3, 8, 16)
    for leave in (8, 7, 1):
        after = stages.run("block 1", 3, 8, leave)()
        assert after.hidden.shape == (3, leave, 16)
        assert after.real.shape == (3, leave)
    assert stages.run("head", 3, 5, 5)()["logits"].shape == (3, 3)
    assert stages.run("restore", 3, 8, 5)().shape == (3, 8, 16)


def test_the_stage_of_a_block_is_the_block():
    """A model of one block: embedding, block and head are its forward, also where it drops tokens."""
    supernet = Supernet(tiny_model("bert", blocks=1)).eval()
    stages = SupernetStages(supernet)
    batch = {"input_ids": random_tokens(supernet, 2, 9)}
    for leave in (9, 4):
        after = stages.run("block 0", 2, 9, leave)()
        with torch.inference_mode():
            head = supernet.model.classifier(supernet.model.bert.pooler(after.hidden))
        subnet = Subnet.of_encoder([0], [leave], 9)
        assert torch.allclose(head, inference(supernet, batch, subnet), atol=1e-6)


def test_a_block_is_timed_on_what_the_forward_hands_it(monkeypatch):
    """All of the second block's arguments but the numbers in its state."""
    supernet, calls = Supernet(tiny_model("bert", blocks=2)).eval(), []
    second, run = supernet.pipeline.blocks[1], Block.__call__

    def noted(block, *arguments, first_only=False):
        if block is second:
            calls.append(arguments)
        return run(block, *arguments, first_only=first_only)

    monkeypatch.setattr(Block, "__call__", noted)
    inference(supernet, {"input_ids": random_tokens(supernet, 3, 9)}, Subnet.of_encoder([0, 1], [6, 4], 9))
    SupernetStages(supernet).run("block 1", 3, 6, 4)()
    (state, *others), (timed, *given) = calls
    assert tuple(given) == tuple(others)[: len(given)]
    assert given[0] is not None
    for name, value in vars(timed).items():
        expected = getattr(state, name)
        if isinstance(value, torch.Tensor):
            assert (value.shape, value.dtype) == (expected.shape, expected.dtype), name
        else:
            assert value == expected, name


def test_what_is_no_registered_encoder_is_refused():
    for model, words in (
        (tiny_decoder("gpt2"), "gpt2 works depth-only"),
        (tiny_encoder_decoder("bart"), "two"),
    ):
        with pytest.raises(SupernetError, match=f"only registered encoders are tabled.*{words}"):
            SupernetStages(Supernet(model))
