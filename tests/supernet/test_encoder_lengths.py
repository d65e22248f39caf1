"""Encoder-decoders whose encoder drops tokens, heads or units: what its decoder then attends to."""

import numpy as np
import pytest
import torch

from ldsearch.errors import SubnetError, SupernetError
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.heads import ended
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import assert_close, stock_masks, stock_output
from tests.supernet.exported import reloaded
from tests.tiny import ENCODER_DECODERS, padded_batch, tiny_encoder_decoder

EVERY, DECODER = (0, 1, 2), Stack((1, 3))
FALLING = Stack(EVERY, Lengths((10, 6, 3), 12))
DROPLESS = Stack(EVERY, Lengths((99, 98, 97), 99, "absolute"))  # block by block all the same
ENCODERS = {
    "lengths": FALLING,
    "no first block": Stack((1, 2), Lengths((7, 2), 12)),
    "absolute": Stack((0, 2), Lengths((5, 2), 12, "absolute")),
    "heads": Stack((0, 2), heads_off=((0, 1), (2, 0), (2, 3))),
    "narrow": Stack((0, 1), ffn_share=((0, 0.5), (1, 0.5))),
    "sub-layers": Stack((0, 1), sublayers_off=((0, "feed_forward"), (1, "attention"))),
    "all": Stack((0, 2), Lengths((8, 4), 12), heads_off=((2, 1),), ffn_share=((0, 0.3),)),
}
SOURCE = padded_batch([12, 5, 9])
LABELS = padded_batch([6, 4, 2], seed=1)["input_ids"]
LABELS[LABELS == 0] = -100

families = pytest.mark.parametrize("name", ENCODER_DECODERS)
memories = pytest.mark.parametrize("memory", ["restored", "kept"])


def batch_of(supernet: Supernet) -> dict[str, torch.Tensor]:
    ids = ended(supernet.model, SOURCE["input_ids"], SOURCE["attention_mask"])
    return supernet.inputs({**SOURCE, "input_ids": ids, "labels": LABELS})


def one_by_one(supernet: Supernet, subnet: Subnet) -> list[torch.Tensor]:
    """Logits of each row alone, its source without padding."""
    found = []
    for row, length in enumerate(SOURCE["attention_mask"].sum(dim=1).tolist()):
        alone = {name: tensor[row : row + 1] for name, tensor in batch_of(supernet).items()}
        found.append(inference(supernet, {**alone, **{n: alone[n][:, :length] for n in SOURCE}}, subnet)[0])
    return found


@memories
@families
def test_lengths_that_drop_nothing_are_the_stock_model_bit_for_bit(name, memory):
    supernet = Supernet(tiny_encoder_decoder(name), memory=memory)
    with torch.inference_mode():
        theirs = supernet.model(**SOURCE, labels=LABELS).logits
        own = supernet.pipeline.finish(supernet.pipeline(SOURCE, Stack(EVERY)))
        assert torch.equal(own, supernet.model.get_encoder()(**SOURCE).last_hidden_state)
    assert torch.equal(inference(supernet, batch_of(supernet), Subnet(DROPLESS, Stack((0, 1, 2, 3)))), theirs)


@pytest.mark.parametrize("kind", ENCODERS)
@memories
@families
def test_batching_and_materialising_change_nothing(name, memory, kind):
    supernet, subnet = Supernet(tiny_encoder_decoder(name), memory=memory), Subnet(ENCODERS[kind], DECODER)
    batch = batch_of(supernet)
    together = inference(supernet, batch, subnet)
    assert_close(torch.stack(one_by_one(supernet, subnet)), together, subnet)
    own = supernet.materialise(subnet)
    # T5's decoder would be as narrow.
    assert isinstance(own, FixedSubnet) == (kind != "narrow" or name.startswith("t5"))
    assert_close(stock_output(own.eval(), batch), together, subnet)
    assert supernet.parameters_cost([subnet])[0] == sum(p.numel() for p in own.parameters())
    # It is another model than with the whole encoder.
    whole = inference(supernet, batch, Subnet(Stack(subnet.encoder.blocks), DECODER))
    assert not torch.allclose(together, whole, atol=1e-3)


@families
def test_restored_memory_is_as_long_as_the_source_and_kept_memory_is_what_is_left(name):
    seen = []
    for memory in ("restored", "kept"):
        supernet = Supernet(tiny_encoder_decoder(name), memory=memory)
        supernet.model.get_decoder().register_forward_pre_hook(
            lambda module, inputs, named: seen.append(named["encoder_hidden_states"]), with_kwargs=True
        )
        inference(supernet, batch_of(supernet), Subnet(FALLING, DECODER))
    # A quarter of the longest row's twelve tokens.
    assert [tuple(one.shape) for one in seen] == [(3, 12, 16), (3, 3, 16)]
    # The kept ones are among the restored ones, in their order, row by row: 3 of 12, 2 of 5, 3 of 9.
    for restored, kept, count in zip(*seen, (3, 2, 3), strict=True):
        near = (restored[None] - kept[:count, None]).abs().amax(dim=-1)
        assert float(near.amin(dim=1).max()) < 1e-6
        found = near.argmin(dim=1).tolist()
        assert found == sorted(set(found))


@memories
@families
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
    assert torch.equal(fixed.generate(SOURCE["input_ids"][1:2, :5], **options), ids[1:2])  # without a mask


@families
def test_training_drops_out_what_the_stock_encoder_drops_out(name):
    rates = dict.fromkeys(("dropout", "dropout_rate", "activation_dropout", "attention_dropout"), 0.2)
    model = tiny_encoder_decoder(name, **rates)
    model.set_attn_implementation("eager")
    supernet, real = Supernet(model.train(), attention_dropout=None), SOURCE["attention_mask"].bool()
    torch.manual_seed(0)
    theirs = model.get_encoder()(**SOURCE).last_hidden_state
    # The second goes block by block, and all units are left after rounding.
    for stack in (Stack(EVERY), Stack(EVERY, ffn_share=((0, np.nextafter(1, 0)),))):
        torch.manual_seed(0)
        with stock_masks():
            ours = supernet.pipeline.finish(supernet.pipeline(SOURCE, stack))
        assert_close(ours[real], theirs[real], Subnet(stack))
    quiet = model.eval().get_encoder()(**SOURCE).last_hidden_state
    assert not torch.allclose(theirs, quiet, atol=1e-3)


@pytest.mark.parametrize("head", ["SequenceClassification", "QuestionAnswering"])
@pytest.mark.parametrize("name", ["bart", "t5-gated"])
def test_a_decoder_that_reads_its_input_again_is_given_all_of_it(tmp_path, name, head):
    """Bit for bit where nothing is dropped; padded or alone, materialised, and from a folder elsewhere."""
    supernet = Supernet(tiny_encoder_decoder(name, head))
    batch, real = batch_of(supernet), SOURCE["attention_mask"].bool()
    theirs = stock_output(supernet.model, batch)
    assert torch.equal(inference(supernet, batch, Subnet(DROPLESS, Stack((0, 1, 2, 3)))), theirs)
    for kind in ("lengths", "all"):
        subnet = Subnet(ENCODERS[kind], DECODER)
        together = inference(supernet, batch, subnet)
        assert not torch.allclose(together, theirs, atol=1e-3)
        for alone, row in zip(one_by_one(supernet, subnet), together, strict=True):
            assert_close(alone, row[: len(alone)], subnet)
        for own in (supernet.materialise(subnet).eval(), reloaded(supernet, subnet, tmp_path / kind)):
            found = stock_output(own, batch)
            pairs = (found[real], together[real]) if head == "QuestionAnswering" else (found, together)
            assert_close(*pairs, subnet)


def test_what_cannot_be_is_refused_in_one_line():
    with pytest.raises(SubnetError, match="blenderbot works depth-only"):
        Supernet(tiny_encoder_decoder("blenderbot")).materialise(Subnet(FALLING, DECODER))
    model = tiny_encoder_decoder("bart", "SequenceClassification")
    with pytest.raises(SupernetError, match="--memory kept is for decoders that write"):
        Supernet(model, memory="kept")
    supernet = Supernet(model)
    for ids in ([[5, 6, 2], [5, 2, 2]], [[5, 6, 7], [5, 6, 7]]):
        batch = {"input_ids": torch.tensor(ids), "attention_mask": torch.ones(2, 3, dtype=torch.long)}
        with pytest.raises(SupernetError, match="reads the token that ends a text"):
            inference(supernet, batch, supernet.full)
