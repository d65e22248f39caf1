"""Causal language models: what a sub-network is, what it materialises into, and that its caches are right."""

from typing import Any

import pytest
import torch
import transformers

from ldsearch.export import export_subnet, load_exported
from ldsearch.export.card import Provenance
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from tests.tiny import DECODERS, VOCABULARY, padded_batch, tiny_decoder
from tests.translators import word_tokenizer

BATCH = padded_batch([12, 5, 9])
EVEN = {"attention_mask": torch.ones(3, 7, dtype=torch.long), "input_ids": BATCH["input_ids"][:, :7]}
TOKENIZER = word_tokenizer()


@pytest.fixture(params=DECODERS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def of(blocks: tuple[int, ...]) -> Subnet:
    return Subnet(decoder=Stack(blocks))


@torch.inference_mode()
def stock(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return model(**batch).logits


def assert_same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) <= 1e-5 * max(1.0, float(theirs.abs().max()))


def test_windows_matter_and_stay_with_their_blocks():
    supernet = Supernet(tiny_decoder("qwen2"))
    assert supernet.model.config.layer_types == ["full_attention"] * 2 + ["sliding_attention"] * 2
    pruned = supernet.materialise(of((1, 3)))
    assert pruned.config.layer_types == ["full_attention", "sliding_attention"]
    pruned.config.layer_types = ["full_attention"] * 2
    assert not torch.allclose(stock(pruned, EVEN), inference(supernet, EVEN, of((1, 3))), atol=1e-3)
    narrow, wide = (Supernet(tiny_decoder("mistral", sliding_window=width)) for width in (4, 64))
    assert not torch.allclose(*(inference(s, EVEN, of((1, 3))) for s in (narrow, wide)), atol=1e-3)


@pytest.mark.parametrize("blocks", [(0, 1, 2, 3), (1, 3), ()], ids=str)
def test_rows_padded_on_the_left_are_the_rows_alone(name, blocks):
    supernet = Supernet(tiny_decoder(name))
    lengths = [9, 4, 1]
    left = {key: tensor.flip(1) for key, tensor in padded_batch(lengths).items()}
    together = inference(supernet, left, of(blocks))
    for row, length in enumerate(lengths):
        alone = {"input_ids": left["input_ids"][row : row + 1, -length:]}
        assert_same(together[row : row + 1, -length:], inference(supernet, alone, of(blocks)))


def test_an_export_is_an_ordinary_folder_that_writes(name, tmp_path):
    supernet = Supernet(tiny_decoder(name))
    provenance = Provenance("s", "t", "d", "c", "m")
    folder = export_subnet(supernet, TOKENIZER, of((1, 3)), tmp_path / "out", provenance)
    assert not (folder / "ldsearch_subnet.json").exists()
    loaded = load_exported(folder)
    assert type(loaded) is type(supernet.model)
    assert_same(stock(loaded, BATCH), inference(supernet, BATCH, of((1, 3))))
    card = (folder / "README.md").read_text()
    assert "tags: [ldsearch, text-generation]" in card
    assert "AutoModelForCausalLM" in card
    assert "import ldsearch" not in card
    names: dict[str, Any] = {}
    exec(card.split("```python\n")[1].split("```")[0].replace("this folder", str(folder)), names)
    # Whatever tokenizer stock code makes of the folder (Qwen2's is always its own).
    prompt = names["tokenizer"]("some text", return_tensors="pt")
    assert torch.equal(names["ids"], loaded.generate(**prompt, max_new_tokens=50))
    assert names["ids"].shape[1] > prompt["input_ids"].shape[1]
    assert int(names["ids"].max()) < VOCABULARY


def test_the_decoder_of_an_encoder_decoder_on_its_own_keeps_its_depth(tmp_path):
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY,
        d_model=16,
        encoder_layers=3,  # which is not there
        decoder_layers=3,
        decoder_attention_heads=2,
        decoder_ffn_dim=8,
        max_position_embeddings=32,
        is_decoder=True,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
    )
    supernet = Supernet(transformers.MarianForCausalLM(config).eval())
    supernet.materialise(of((1, 2))).save_pretrained(tmp_path)
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert loaded.config.decoder_layers == 2
    assert_same(stock(loaded.eval(), BATCH), inference(supernet, BATCH, of((1, 2))))
