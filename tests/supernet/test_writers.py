"""Models that write: causal language models and encoder-decoders, pruned, padded, cached and exported."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from ldsearch.errors import SupernetError
from ldsearch.export.card import Provenance
from ldsearch.export.check import export_subnet
from ldsearch.export.loading import load_exported
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.stock import shifted
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import assert_close, stock_output
from tests.tiny import DECODERS, VOCABULARY, padded_batch, tiny_decoder, tiny_encoder_decoder
from tests.translators import word_tokenizer

BATCH = padded_batch([12, 5, 9])
EVEN = {"attention_mask": torch.ones(3, 7, dtype=torch.long), "input_ids": BATCH["input_ids"][:, :7]}
SOURCE = padded_batch([9, 4, 6])
LABELS = padded_batch([7, 5, 2], seed=1)["input_ids"]
LABELS[LABELS == 0] = -100
WRITES = {"do_sample": False, "max_new_tokens": 7, "min_new_tokens": 7}


def of(blocks: tuple[int, ...]) -> Subnet:
    return Subnet(decoder=Stack(blocks))


def test_windows_matter_and_stay_with_their_blocks():
    supernet = Supernet(tiny_decoder("qwen2"))
    assert supernet.model.config.layer_types == ["full_attention"] * 2 + ["sliding_attention"] * 2
    pruned = supernet.materialise(of((1, 3)))
    assert pruned.config.layer_types == ["full_attention", "sliding_attention"]
    pruned.config.layer_types = ["full_attention"] * 2
    assert not torch.allclose(stock_output(pruned, EVEN), inference(supernet, EVEN, of((1, 3))), atol=1e-3)
    narrow, wide = (Supernet(tiny_decoder("mistral", sliding_window=width)) for width in (4, 64))
    assert not torch.allclose(*(inference(s, EVEN, of((1, 3))) for s in (narrow, wide)), atol=1e-3)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("blocks", [(0, 1, 2, 3), (1, 3), ()], ids=str)
def test_rows_padded_on_the_left_are_the_rows_alone(name, blocks):
    supernet = Supernet(tiny_decoder(name))
    lengths = [9, 4, 1]
    left = {key: tensor.flip(1) for key, tensor in padded_batch(lengths).items()}
    together = inference(supernet, left, of(blocks))
    for row, length in enumerate(lengths):
        alone = {"input_ids": left["input_ids"][row : row + 1, -length:]}
        assert_close(together[row : row + 1, -length:], inference(supernet, alone, of(blocks)), of(blocks))


@pytest.mark.parametrize("name", ["gpt2", "qwen2", "bart", "t5"])
def test_an_export_is_an_ordinary_folder_that_writes(name, tmp_path):
    if name in DECODERS:
        supernet, subnet, batch = Supernet(tiny_decoder(name)), of((1, 3)), BATCH
        task, auto = "text-generation", "AutoModelForCausalLM"
    else:
        supernet, subnet = Supernet(tiny_encoder_decoder(name)), Subnet(Stack((1, 2)), Stack((1, 3)))
        batch = supernet.inputs({**SOURCE, "labels": LABELS})
        task, auto = "text2text-generation", "AutoModelForSeq2SeqLM"
    provenance = Provenance("s", "t", "d", "c", "m")
    folder = export_subnet(supernet, word_tokenizer(), subnet, tmp_path / "out", provenance)
    assert not (folder / "ldsearch_subnet.json").exists()
    loaded = load_exported(folder)
    assert type(loaded) is type(supernet.model)
    assert_close(stock_output(loaded, batch), inference(supernet, batch, subnet), subnet)
    card = (folder / "README.md").read_text()
    assert f"pipeline_tag: {task}" in card
    assert auto in card
    assert "import ldsearch" not in card
    names: dict[str, Any] = {}
    exec(card.split("```python\n")[1].split("```")[0].replace("this folder", str(folder)), names)
    # Whatever tokenizer stock code makes of the folder (Qwen2's is always its own).
    prompt = names["tokenizer"]("some text", return_tensors="pt")
    assert torch.equal(names["ids"], loaded.generate(**prompt, max_new_tokens=50))


def test_the_decoder_of_an_encoder_decoder_on_its_own_keeps_its_depth(tmp_path):
    sizes = {"vocab_size": VOCABULARY, "d_model": 16, "decoder_layers": 3, "decoder_attention_heads": 2}
    sizes |= {"decoder_ffn_dim": 8, "max_position_embeddings": 32, "encoder_layers": 3}  # which is not there
    tokens = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    config = transformers.MarianConfig(**sizes, **tokens, is_decoder=True)
    supernet = Supernet(transformers.MarianForCausalLM(config).eval())
    supernet.materialise(of((1, 2))).save_pretrained(tmp_path)
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert loaded.config.decoder_layers == 2
    assert_close(stock_output(loaded.eval(), BATCH), inference(supernet, BATCH, of((1, 2))), of((1, 2)))


def test_stock_t5_itself_runs_out_of_caches_where_the_decoder_is_deeper():
    """Once this fails, transformers has mended it, and ``cutting.cut`` need not switch the cache off."""
    deeper = tiny_encoder_decoder("t5")
    with pytest.raises(IndexError):
        deeper.generate(**SOURCE, **WRITES, use_cache=True)
    as_deep = tiny_encoder_decoder("t5", num_layers=4)
    assert as_deep.generate(**SOURCE, **WRITES, use_cache=True).shape == (3, 8)


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_a_source_padded_on_the_left_is_refused(name):
    supernet = Supernet(tiny_encoder_decoder(name))
    batch = supernet.inputs({**SOURCE, "labels": LABELS})
    left = {key: tensor.flip(1) for key, tensor in SOURCE.items()}
    with pytest.raises(SupernetError, match="left-padded input"):
        inference(supernet, {**batch, **left}, supernet.full)


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
