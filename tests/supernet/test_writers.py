"""Models that write: causal language models and encoder-decoders, pruned, padded, cached and exported."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ldsearch.export.check import export_subnet
from ldsearch.export.loading import load_exported
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.stock import shifted
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import assert_close, stock_output
from tests.export.test_export import PROVENANCE
from tests.supernet.test_encoder_lengths import ENCODERS
from tests.supernet.test_generic import build
from tests.tiny import DECODERS, padded_batch, tiny_decoder, tiny_encoder_decoder
from tests.translators import word_tokenizer

BATCH = padded_batch([12, 5, 9])
SOURCE = padded_batch([9, 4, 6])
LABELS = padded_batch([7, 5, 2], seed=1)["input_ids"]
LABELS[LABELS == 0] = -100


def of(*blocks: int) -> Subnet:
    return Subnet(decoder=Stack(blocks))


def test_windows_matter_and_stay_with_their_blocks():
    pruned = Supernet(tiny_decoder("qwen2")).materialise(of(1, 3))
    assert pruned.config.layer_types == ["full_attention", "sliding_attention"]
    narrow, wide = (Supernet(tiny_decoder("mistral", sliding_window=width)) for width in (4, 64))
    assert not torch.allclose(*(inference(one, BATCH, of(1, 3)) for one in (narrow, wide)), atol=1e-3)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("blocks", [(0, 1, 2, 3), (1, 3), ()], ids=str)
def test_rows_padded_on_the_left_are_the_rows_alone(name, blocks):
    supernet, subnet = Supernet(tiny_decoder(name)), of(*blocks)
    lengths = [9, 4, 1]
    left = {key: tensor.flip(1) for key, tensor in padded_batch(lengths).items()}
    together = inference(supernet, left, subnet)
    for row, length in enumerate(lengths):
        alone = inference(supernet, {"input_ids": left["input_ids"][row : row + 1, -length:]}, subnet)
        assert_close(together[row : row + 1, -length:], alone, subnet)


PRUNED = Subnet(Stack((1, 2)), Stack((1, 3)))


@pytest.mark.parametrize(
    ("name", "subnet", "memory"),
    [
        ("gpt2", of(1, 3), "restored"),
        ("qwen2", of(1, 3), "restored"),
        ("bart", PRUNED, "restored"),
        ("t5", PRUNED, "restored"),
        ("mbart", Subnet(ENCODERS["heads"], Stack((1, 3))), "kept"),
        ("mbart", Subnet(ENCODERS["all"], Stack((1, 3))), "restored"),
    ],
)
def test_an_export_is_a_folder_that_writes_as_its_card_says(name, subnet, memory, tmp_path):
    """An ordinary one where only blocks are missing, one with lengths and memory otherwise."""
    supernet, ordinary = Supernet(build(name), memory=memory), subnet in (PRUNED, of(1, 3))
    folder = export_subnet(supernet, word_tokenizer(), subnet, tmp_path / "out", PROVENANCE)
    assert (folder / "ldsearch_subnet.json").exists() != ordinary
    loaded, batch = load_exported(folder), supernet.inputs({**SOURCE, "labels": LABELS})
    assert type(loaded) is (type(supernet.model) if ordinary else FixedSubnet)
    assert ordinary or loaded.supernet.memory == memory
    assert_close(stock_output(loaded, batch), inference(supernet, batch, subnet), subnet)
    card = (folder / "README.md").read_text()
    decodes = name in DECODERS
    assert f"pipeline_tag: {'text' if decodes else 'text2text'}-generation" in card
    assert f"AutoModelFor{'CausalLM' if decodes else 'Seq2SeqLM'}" in card
    assert ("import ldsearch" in card) != ordinary
    names: dict[str, Any] = {}
    exec(card.split("```python\n")[1].split("```")[0].replace("this folder", str(folder)), names)
    # Whatever tokenizer stock code makes of the folder (Qwen2's is always its own).
    prompt = names["tokenizer"]("some text", return_tensors="pt")
    assert torch.equal(names["ids"], loaded.generate(**prompt, max_new_tokens=50))


def test_stock_t5_itself_runs_out_of_caches_where_the_decoder_is_deeper():
    """Once this fails, transformers has mended it, and ``cutting.cut`` need not switch the cache off."""
    options = {**SOURCE, "do_sample": False, "max_new_tokens": 7, "min_new_tokens": 7, "use_cache": True}
    with pytest.raises(IndexError):
        tiny_encoder_decoder("t5").generate(**options)
    assert tiny_encoder_decoder("t5", num_layers=4).generate(**options).shape == (3, 8)


@pytest.mark.parametrize("name", ["bart", "marian", "mbart"])
def test_stock_layerdrop_is_switched_off(name):
    supernet = Supernet(tiny_encoder_decoder(name, encoder_layerdrop=0.9, decoder_layerdrop=0.9, dropout=0.0))
    batch = supernet.inputs({**SOURCE, "labels": LABELS})
    quiet = inference(supernet, batch, supernet.full)
    supernet.train()
    with torch.no_grad():
        assert torch.equal(supernet(batch, supernet.full).logits, quiet)


@pytest.mark.parametrize("name", ["bart", "marian", "pegasus", "t5"])
def test_what_a_decoder_reads_is_what_the_stock_model_says(name: str) -> None:
    """Asked of a model that says, as if it did not."""
    model = tiny_encoder_decoder(name)
    labels = torch.tensor([[5, 6, 7], [8, 2, -100]])
    theirs = model.prepare_decoder_input_ids_from_labels(labels)
    assert torch.equal(shifted(SimpleNamespace(config=model.config), labels), theirs)
