"""Encoder-decoders: both stacks are pruned, each by itself; what is left is a stock model that writes."""

import copy
from typing import Any

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from ldsearch.errors import SubnetError, SupernetError
from ldsearch.export import export_subnet, load_exported
from ldsearch.export.card import Provenance
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from tests.tiny import ENCODER_DECODERS, bypassing, padded_batch, tiny_encoder_decoder
from tests.translators import word_tokenizer

ENCODER, DECODER = (0, 1, 2), (0, 1, 2, 3)
# Block 0 is missing on either side, on both, on none.
DEPTHS = [((1, 2), (1, 2, 3)), ((2,), DECODER), (ENCODER, (3,)), ((0, 2), (0, 2))]
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


def depths_in(model: PreTrainedModel) -> tuple[int, int]:
    """Blocks of the encoder and of the decoder, as the model holds them."""
    sides = (model.get_encoder(), model.get_decoder())
    return tuple(len(side.block if hasattr(side, "block") else side.layers) for side in sides)


def test_the_full_subnetwork_is_the_stock_model_bit_for_bit(name):
    supernet = Supernet(tiny_encoder_decoder(name))
    assert supernet.depths == {"encoder": 3, "decoder": 4}
    assert supernet.full == of(ENCODER, DECODER) == Subnet.full(3, 4)
    for attention in ("eager", "sdpa"):
        supernet.model.set_attn_implementation(attention)
        with torch.inference_mode():
            # The stock class shifts the labels itself.
            theirs = supernet.model(**SOURCE, labels=LABELS).logits
        assert torch.equal(inference(supernet, batch_of(supernet), supernet.full), theirs), attention
        batch = batch_of(supernet)
        del batch["attention_mask"]
        assert torch.equal(inference(supernet, batch, supernet.full), stock(supernet.model, batch))


@pytest.mark.parametrize("depths", [*DEPTHS, ((), (1, 2)), ((0, 1), ()), ((), ())], ids=str)
def test_a_subnetwork_is_the_stock_model_with_the_other_blocks_bypassed(name, depths):
    supernet = Supernet(tiny_encoder_decoder(name))
    batch, theirs = batch_of(supernet), tiny_encoder_decoder(name)
    for path, blocks in zip(supernet.stacks.values(), depths, strict=True):
        bypassing(theirs, path, blocks)
    assert torch.equal(inference(supernet, batch, of(*depths)), stock(theirs, batch))
    full = inference(supernet, batch, supernet.full)
    assert torch.equal(full, stock(tiny_encoder_decoder(name), batch))


@pytest.mark.parametrize("depths", DEPTHS, ids=str)
def test_materialised_saved_and_reloaded_it_is_the_subnetwork(name, depths, tmp_path):
    supernet = Supernet(tiny_encoder_decoder(name))
    subnet, batch = of(*depths), batch_of(supernet)
    expected = inference(supernet, batch, subnet)
    pruned = supernet.materialise(subnet)
    assert type(pruned) is type(supernet.model)
    assert_same(stock(pruned, batch), expected)
    pruned.save_pretrained(tmp_path)
    loaded, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_same(stock(loaded.eval(), batch), expected)
    wanted = tuple(map(len, depths))
    assert depths_in(pruned) == depths_in(loaded) == wanted
    for model in (pruned, loaded):
        # Both sides read one table, and so does the head; T5's is untied in earlier transformers.
        tables = [side.get_input_embeddings().weight for side in (model.get_encoder(), model.get_decoder())]
        assert tables[0] is tables[1]
        assert (model.get_output_embeddings().weight is tables[0]) == model.config.tie_word_embeddings
    counted = sum(p.numel() for p in loaded.parameters())
    assert supernet.parameters_cost([subnet])[0] == counted


def test_one_side_is_pruned_and_the_other_left_alone(name):
    supernet = Supernet(tiny_encoder_decoder(name))
    config = copy.deepcopy(supernet.model.config.to_dict())
    for depths, kept in ((((1,), DECODER), "decoder"), ((ENCODER, (2,)), "encoder")):
        pruned = supernet.materialise(of(*depths))
        ours, theirs = (m.get_submodule(supernet.stacks[kept]) for m in (pruned, supernet.model))
        own, whole = dict(ours.named_parameters()), dict(theirs.named_parameters())
        assert own.keys() == whole.keys()
        assert all(own[key] is whole[key] for key in own)
        assert depths_in(pruned) == tuple(map(len, depths))
    assert supernet.model.config.to_dict() == config
    assert depths_in(supernet.model) == (3, 4)
    batch = batch_of(supernet)
    assert torch.equal(stock(supernet.model, batch), stock(tiny_encoder_decoder(name), batch))


def test_every_block_finds_its_own_place_in_a_cache(name):
    pruned = Supernet(tiny_encoder_decoder(name)).materialise(of((1, 2), (1, 3)))
    layers = pruned.get_submodule(Supernet(pruned).stacks["decoder"])
    for index, layer in enumerate(layers):
        found = {m.layer_idx for m in layer.modules() if getattr(m, "layer_idx", None) is not None}
        assert found == {index}


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


@pytest.mark.parametrize("depths", [*DEPTHS, ((1, 2), (1, 3))], ids=str)
def test_what_is_written_with_a_cache_is_what_is_written_without(name, depths):
    pruned = Supernet(tiny_encoder_decoder(name)).materialise(of(*depths))
    caches = not name.startswith("t5") or len(depths[0]) >= len(depths[1])
    assert pruned.generation_config.use_cache == caches
    # What is not asked for is what the model's own settings say.
    written = [
        (
            pruned.generate(**SOURCE, **WRITES, **asked, output_logits=True, return_dict_in_generate=True),
            pruned.generate(**SOURCE, **WRITES, **asked, num_beams=2),
        )
        for asked in ({}, {"use_cache": False})
    ]
    (greedy, beams), (greedy_again, beams_again) = written
    assert (greedy.past_key_values is not None) == caches
    assert greedy.sequences.shape == beams.shape == (3, 8)
    assert torch.equal(greedy.sequences, greedy_again.sequences)
    assert torch.equal(beams, beams_again)
    torch.testing.assert_close(
        torch.stack(greedy.logits), torch.stack(greedy_again.logits), atol=1e-4, rtol=1e-4
    )


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


def test_subnetworks_that_do_not_fit_are_refused(name):
    supernet = Supernet(tiny_encoder_decoder(name))
    batch = batch_of(supernet)
    narrow = Stack(DECODER, ffn_share=((0, 0.5),))
    for subnet, why in (
        (Subnet(Stack(ENCODER)), "blocks of the encoder and the decoder of this model"),
        (of((0, 3), DECODER), "block 3 of a model of 3 blocks"),
        (of(ENCODER, (0, 4)), "block 4 of a model of 4 blocks"),
        (Subnet(Stack(ENCODER), narrow), "depth-only"),
    ):
        with pytest.raises(SubnetError, match=why):
            inference(supernet, batch, subnet)
    with pytest.raises(SubnetError, match="at least one block in each stack"):
        supernet.materialise(of(ENCODER, ()))


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
