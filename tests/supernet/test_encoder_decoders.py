"""Encoder-decoders: both stacks are pruned, each by itself; what is left is a stock model that writes."""

from typing import Any

import pytest
import torch

from ldsearch.errors import SupernetError
from ldsearch.export import export_subnet, load_exported
from ldsearch.export.card import Provenance
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from tests.tiny import ENCODER_DECODERS, padded_batch, tiny_encoder_decoder
from tests.translators import word_tokenizer

ENCODER, DECODER = (0, 1, 2), (0, 1, 2, 3)
SOURCE = padded_batch([9, 4, 6])
LABELS = padded_batch([7, 5, 2], seed=1)["input_ids"]
LABELS[LABELS == 0] = -100
WRITES = {"do_sample": False, "max_new_tokens": 7, "min_new_tokens": 7}


@pytest.fixture(params=ENCODER_DECODERS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def of(encoder: tuple[int, ...], decoder: tuple[int, ...]) -> Subnet:
    return Subnet(Stack(encoder), Stack(decoder))


def batch_of(supernet: Supernet) -> dict[str, torch.Tensor]:
    return supernet.inputs({**SOURCE, "labels": LABELS})


@torch.inference_mode()
def stock(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return model(**batch).logits


def assert_same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) <= 1e-5 * max(1.0, float(theirs.abs().max()))


def test_a_decoder_reads_the_labels_as_the_stock_class_shifts_them(name):
    supernet = Supernet(tiny_encoder_decoder(name))
    with torch.inference_mode():
        theirs = supernet.model(**SOURCE, labels=LABELS).logits
    assert torch.equal(inference(supernet, batch_of(supernet), supernet.full), theirs)


@pytest.mark.parametrize("name", ["t5", "t5-gated"])
def test_t5s_first_kept_block_takes_over_the_relative_positions(name):
    supernet = Supernet(tiny_encoder_decoder(name))
    pruned = supernet.materialise(of((1, 2), (2, 3)))
    for side in ("encoder", "decoder"):
        first, second = (layer.layer[0].SelfAttention for layer in pruned.get_submodule(f"{side}.block"))
        whole = supernet.model.get_submodule(f"{side}.block")
        own = whole[0].layer[0].SelfAttention.relative_attention_bias.weight
        assert first.relative_attention_bias.weight is own
        assert not second.has_relative_attention_bias
        # In the supernet they stay where they were.
        flags = [layer.layer[0].SelfAttention.has_relative_attention_bias for layer in whole]
        assert flags == [True] + [False] * (len(whole) - 1)
    # Each side has a configuration of its own, which stock code reads the depth from.
    assert (pruned.encoder.config.num_layers, pruned.decoder.config.num_layers) == (2, 2)
    assert (pruned.config.num_layers, pruned.config.num_decoder_layers) == (2, 2)
    longer = supernet.materialise(of((0,), (0, 1, 3)))
    assert (longer.config.num_layers, longer.config.num_decoder_layers) == (1, 3)
    assert (longer.encoder.config.num_layers, longer.decoder.config.num_layers) == (1, 3)
    # Stock code makes as many caches as the encoder has blocks.
    assert pruned.generation_config.use_cache
    assert not longer.generation_config.use_cache


def test_stock_t5_itself_runs_out_of_caches_where_the_decoder_is_deeper():
    """Once this fails, transformers has mended it, and ``cutting.cut`` need not switch the cache off."""
    deeper = tiny_encoder_decoder("t5")
    with pytest.raises(IndexError):
        deeper.generate(**SOURCE, **WRITES, use_cache=True)
    as_deep = tiny_encoder_decoder("t5", num_layers=4)
    assert as_deep.generate(**SOURCE, **WRITES, use_cache=True).shape == (3, 8)


def test_a_source_padded_on_the_left_is_refused(name):
    supernet = Supernet(tiny_encoder_decoder(name))
    batch = batch_of(supernet)
    left = {key: tensor.flip(1) for key, tensor in SOURCE.items()}
    with pytest.raises(SupernetError, match="left-padded input"):
        inference(supernet, {**batch, **left}, supernet.full)


@pytest.mark.parametrize("name", ["bart", "marian", "mbart"])
def test_stock_layerdrop_is_switched_off(name):
    supernet = Supernet(tiny_encoder_decoder(name, encoder_layerdrop=0.9, decoder_layerdrop=0.9, dropout=0.0))
    batch = batch_of(supernet)
    quiet = inference(supernet, batch, supernet.full)
    supernet.train()
    with torch.no_grad():
        assert torch.equal(supernet(batch, supernet.full).logits, quiet)


def test_an_export_is_an_ordinary_folder_that_writes(name, tmp_path):
    supernet = Supernet(tiny_encoder_decoder(name))
    subnet, batch = of((1, 2), (1, 3)), batch_of(supernet)
    tokenizer, provenance = word_tokenizer(), Provenance("s", "t", "d", "c", "m")
    folder = export_subnet(supernet, tokenizer, subnet, tmp_path / "out", provenance)
    assert not (folder / "ldsearch_subnet.json").exists()
    loaded = load_exported(folder)
    assert type(loaded) is type(supernet.model)
    assert_same(stock(loaded, batch), inference(supernet, batch, subnet))
    card = (folder / "README.md").read_text()
    assert "tags: [ldsearch, text2text-generation]" in card
    assert "AutoModelForSeq2SeqLM" in card
    names: dict[str, Any] = {}
    exec(card.split("```python\n")[1].split("```")[0].replace("this folder", str(folder)), names)
    prompt = names["tokenizer"]("some text", return_tensors="pt")
    assert torch.equal(names["ids"], loaded.generate(**prompt, max_new_tokens=50))
