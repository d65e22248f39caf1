"""Encoder-decoders whose encoder drops tokens, heads or units: what its decoder then attends to."""

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from ldsearch.errors import SubnetError, SupernetError
from ldsearch.export.card import Provenance
from ldsearch.export.check import export_subnet
from ldsearch.export.loading import load_exported
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.heads import ended
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import assert_close, stock_masks, stock_output
from tests.tiny import padded_batch, tiny_encoder_decoder
from tests.translators import word_tokenizer

REFERENCE = 12
DECODER = Stack((1, 3))
FALLING = Stack((0, 1, 2), Lengths((10, 6, 3), REFERENCE))
ENCODERS = {
    "lengths": FALLING,
    "no first block": Stack((1, 2), Lengths((7, 2), REFERENCE)),
    "absolute": Stack((0, 2), Lengths((5, 2), REFERENCE, "absolute")),
    "heads": Stack((0, 2), heads_off=((0, 1), (2, 0), (2, 3))),
    "narrow": Stack((0, 1), ffn_share=((0, 0.5), (1, 0.5))),
    "sub-layers": Stack((0, 1), sublayers_off=((0, "feed_forward"), (1, "attention"))),
    "all": Stack((0, 2), Lengths((8, 4), REFERENCE), heads_off=((2, 1),), ffn_share=((0, 0.3),)),
}
SOURCE = padded_batch([12, 5, 9])
LABELS = padded_batch([6, 4, 2], seed=1)["input_ids"]
LABELS[LABELS == 0] = -100


@pytest.fixture(params=["bart", "marian", "mbart", "pegasus", "t5", "t5-gated"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def batch_of(supernet: Supernet) -> dict[str, torch.Tensor]:
    return supernet.inputs({**SOURCE, "labels": LABELS})


def one_by_one(supernet: Supernet, subnet: Subnet) -> torch.Tensor:
    """Logits of each row alone, its source without padding."""
    batch, rows = batch_of(supernet), []
    for row, length in enumerate(SOURCE["attention_mask"].sum(dim=1).tolist()):
        alone = {key: batch[key][row : row + 1, :length] for key in SOURCE}
        alone["decoder_input_ids"] = batch["decoder_input_ids"][row : row + 1]
        rows.append(inference(supernet, alone, subnet))
    return torch.cat(rows)


def memories(model: PreTrainedModel) -> list[torch.Tensor]:
    """What the decoder is given to attend to, call by call from now on."""
    seen: list[torch.Tensor] = []

    def look(module, inputs, named):
        seen.append(named["encoder_hidden_states"])

    model.get_decoder().register_forward_pre_hook(look, with_kwargs=True)
    return seen


@pytest.mark.parametrize("memory", ["restored", "kept"])
def test_lengths_that_drop_nothing_are_the_stock_model_bit_for_bit(name, memory):
    supernet = Supernet(tiny_encoder_decoder(name), memory=memory)
    with torch.inference_mode():
        theirs = supernet.model(**SOURCE, labels=LABELS).logits
        own = supernet.pipeline.finish(supernet.pipeline(SOURCE, Stack((0, 1, 2))))
        assert torch.equal(own, supernet.model.get_encoder()(**SOURCE).last_hidden_state)
    dropless = Stack((0, 1, 2), Lengths((99, 98, 97), 99, "absolute"))
    subnet = Subnet(dropless, Stack((0, 1, 2, 3)))
    assert dropless.lengths is not None  # so that it goes block by block
    assert torch.equal(inference(supernet, batch_of(supernet), subnet), theirs)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("memory", ["restored", "kept"])
def test_batching_and_materialising_change_nothing(name, memory, kind):
    supernet, subnet = Supernet(tiny_encoder_decoder(name), memory=memory), Subnet(ENCODERS[kind], DECODER)
    batch = batch_of(supernet)
    together = inference(supernet, batch, subnet)
    assert_close(one_by_one(supernet, subnet), together, subnet)
    own = supernet.materialise(subnet)
    # T5's decoder would be as narrow.
    assert isinstance(own, FixedSubnet) == (kind != "narrow" or name.startswith("t5"))
    assert_close(stock_output(own.eval(), batch), together, subnet)
    assert supernet.parameters_cost([subnet])[0] == sum(p.numel() for p in own.parameters())
    # It is another model than with the whole encoder.
    whole = inference(supernet, batch, Subnet(Stack(subnet.encoder.blocks), DECODER))
    assert not torch.allclose(together, whole, atol=1e-3)


def test_restored_memory_is_as_long_as_the_source_and_kept_memory_is_what_is_left(name):
    subnet, seen = Subnet(FALLING, DECODER), {}
    for memory in ("restored", "kept"):
        supernet = Supernet(tiny_encoder_decoder(name), memory=memory)
        looked = memories(supernet.model)
        inference(supernet, batch_of(supernet), subnet)
        (seen[memory],) = looked
    assert seen["restored"].shape == (3, 12, 16)
    # A quarter of the longest row's twelve tokens.
    assert seen["kept"].shape == (3, 3, 16)
    # The kept ones are among the restored ones, in their order, row by row: 3 of 12, 2 of 5, 3 of 9.
    for restored, kept, count in zip(seen["restored"], seen["kept"], (3, 2, 3), strict=True):
        near = (restored[None] - kept[:count, None]).abs().amax(dim=-1)
        assert float(near.amin(dim=1).max()) < 1e-6
        found = near.argmin(dim=1).tolist()
        assert found == sorted(set(found))


@pytest.mark.parametrize("memory", ["restored", "kept"])
def test_a_fixed_subnetwork_writes_what_the_supernets_logits_say(name, memory):
    model = tiny_encoder_decoder(name, forced_eos_token_id=None)
    supernet, subnet = Supernet(model, memory=memory), Subnet(FALLING, DECODER)
    fixed = supernet.materialise(subnet)
    ids = torch.full((3, 1), model.config.decoder_start_token_id)
    for _ in range(5):
        logits = inference(supernet, {**SOURCE, "decoder_input_ids": ids}, subnet)[:, -1].clone()
        logits[:, model.config.eos_token_id] = -torch.inf
        ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=1)
    options = {"do_sample": False, "max_new_tokens": 5, "min_new_tokens": 5}
    for cached in (True, False):
        assert torch.equal(fixed.generate(**SOURCE, **options, use_cache=cached), ids)
    alone = {key: tensor[1:2, :5] for key, tensor in SOURCE.items()}
    assert torch.equal(fixed.generate(alone["input_ids"], **options), ids[1:2])


@pytest.mark.parametrize(("kind", "memory"), [("heads", "kept"), ("all", "restored")])
def test_an_export_reloads_with_its_lengths_and_its_memory(tmp_path, kind, memory):
    supernet, subnet = Supernet(tiny_encoder_decoder("mbart"), memory=memory), Subnet(ENCODERS[kind], DECODER)
    provenance = Provenance("s", "t", "d", "c", "m")
    folder = export_subnet(supernet, word_tokenizer(), subnet, tmp_path / "out", provenance)
    loaded, batch = load_exported(folder), batch_of(supernet)
    assert isinstance(loaded, FixedSubnet)
    assert loaded.supernet.memory == memory
    assert_close(stock_output(loaded, batch), inference(supernet, batch, subnet), subnet)
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(code.replace("this folder", str(folder)), names)
    assert isinstance(names["text"], str)


def test_training_drops_out_what_the_stock_encoder_drops_out(name):
    rates = {"dropout_rate": 0.2}
    if not name.startswith("t5"):
        rates = {"dropout": 0.2, "activation_dropout": 0.2, "attention_dropout": 0.2}
    model = tiny_encoder_decoder(name, **rates)
    model.set_attn_implementation("eager")
    silent = Stack((0, 1, 2), ffn_share=((0, np.nextafter(1, 0)),))
    supernet = Supernet(model.train(), attention_dropout=None)
    found = []
    for stack in (Stack((0, 1, 2)), silent):
        torch.manual_seed(0)
        with stock_masks():
            found.append(supernet.pipeline.finish(supernet.pipeline(SOURCE, stack)))
    torch.manual_seed(0)
    found.append(model.get_encoder()(**SOURCE).last_hidden_state)
    real = SOURCE["attention_mask"].bool()
    for ours in found[:2]:
        assert_close(ours[real], found[2][real], Subnet(silent))
    assert not torch.allclose(found[2], model.eval().get_encoder()(**SOURCE).last_hidden_state, atol=1e-3)


def test_what_cannot_be_is_refused_in_one_line():
    with pytest.raises(SupernetError, match="unknown memory 'lost': use restored or kept"):
        Supernet(tiny_encoder_decoder("bart"), memory="lost")
    with pytest.raises(SubnetError, match="blenderbot works depth-only"):
        Supernet(tiny_encoder_decoder("blenderbot")).materialise(Subnet(FALLING, DECODER))


@pytest.mark.parametrize("head", ["SequenceClassification", "QuestionAnswering"])
@pytest.mark.parametrize("name", ["bart", "t5-gated"])
def test_a_decoder_that_reads_its_input_again_is_given_all_of_it(tmp_path, name, head):
    """Bit for bit where nothing is dropped; padded or alone, materialised, and from a folder elsewhere."""
    supernet = Supernet(tiny_encoder_decoder(name, head))
    batch = {**SOURCE, "input_ids": ended(supernet.model, SOURCE["input_ids"], SOURCE["attention_mask"])}
    dropless = Stack((0, 1, 2), Lengths((99, 98, 97), 99, "absolute"))
    theirs = stock_output(supernet.model, batch)
    assert torch.equal(inference(supernet, batch, Subnet(dropless, Stack((0, 1, 2, 3)))), theirs)
    for kind in ("lengths", "all"):
        subnet, real = Subnet(ENCODERS[kind], DECODER), batch["attention_mask"].bool()
        each = real if head == "QuestionAnswering" else torch.ones(3, dtype=torch.bool)
        together = inference(supernet, batch, subnet)
        assert not torch.allclose(together, theirs, atol=1e-3)
        assert_close(stock_output(supernet.materialise(subnet).eval(), batch)[each], together[each], subnet)
        for row, length in enumerate(real.sum(dim=1).tolist()):
            alone = inference(supernet, {k: t[row : row + 1, :length] for k, t in batch.items()}, subnet)[0]
            assert_close(alone, together[row, :length] if each is real else together[row], subnet)
        place = export_subnet(supernet, word_tokenizer(), subnet, tmp_path / kind, Provenance(*"stdcm"))
        assert_close(stock_output(load_exported(place), batch)[each], together[each], subnet)


def test_rows_that_do_not_end_alike_and_kept_memory_are_refused_where_the_end_is_read():
    model = tiny_encoder_decoder("bart", "SequenceClassification")
    with pytest.raises(SupernetError, match="--memory kept is for decoders that write"):
        Supernet(model, memory="kept")
    supernet = Supernet(model)
    for ids in ([[5, 6, 2], [5, 2, 2]], [[5, 6, 7], [5, 6, 7]]):
        batch = {"input_ids": torch.tensor(ids), "attention_mask": torch.ones(2, 3, dtype=torch.long)}
        with pytest.raises(SupernetError, match="reads the token that ends a text"):
            inference(supernet, batch, supernet.full)
