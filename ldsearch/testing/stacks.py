"""The laws of stacks of blocks that are cut by depth, in models of any family."""

import copy
import tempfile
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ldsearch.errors import SubnetError, SupernetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import ended, logits_of
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import assert_close, padded_batch, refuses, stock_output
from ldsearch.testing.reference import bypassed

READ, WRITTEN = (9, 4, 1), (7, 5, 2)


class StackContract:
    """Laws of the depth sub-networks of a model; a test class inherits it."""

    def model(self) -> PreTrainedModel:
        """A tiny stock model with random weights, in eval mode; the same each time.

        Of at least three blocks in each stack, two attention heads and 12 positions.
        """
        raise NotImplementedError

    def depths(self, supernet: Supernet) -> Sequence[Subnet]:
        """Sub-networks with at least one block in each stack; the first block is missing where it may be."""
        ends = {name: depth - 1 for name, depth in supernet.depths.items()}
        kept: list[dict[str, Sequence[int]]] = [
            {name: range(1, last + 1) for name, last in ends.items()},
            dict.fromkeys(ends, (0, 2)),
            {name: (last,) for name, last in ends.items()},
            {name: (1, last) for name, last in ends.items()},
        ]
        for name, last in ends.items() if len(ends) > 1 else ():
            kept.append({**{other: range(n + 1) for other, n in ends.items()}, name: (last,)})
        stay = {name: supernet.pinned_of(name) for name in ends}
        return [
            Subnet.of_blocks({name: sorted({*stay[name], *own}) for name, own in blocks.items()})
            for blocks in kept
        ]

    def test_the_full_subnetwork_is_the_stock_model_bit_for_bit(self) -> None:
        """Eager and sdpa, padded, unpadded and without a mask."""
        supernet = Supernet(self.model())
        for attention in ("eager", "sdpa"):
            supernet.model.set_attn_implementation(attention)
            for lengths in (READ, (7, 7, 7)):
                batch = self._batch(supernet, lengths)
                assert torch.equal(
                    inference(supernet, batch, supernet.full), stock_output(supernet.model, batch)
                )
            del batch["attention_mask"]
            assert torch.equal(inference(supernet, batch, supernet.full), stock_output(supernet.model, batch))

    def test_a_subnetwork_is_the_stock_model_with_the_other_blocks_bypassed(self) -> None:
        """Bit for bit, also without any block of a stack; and a call leaves nothing behind."""
        supernet = Supernet(self.model())
        batch = self._batch(supernet)
        empty: list[dict[str, Sequence[int]]] = [dict.fromkeys(supernet.stacks, ())]
        if len(supernet.stacks) > 1:
            empty += [{**empty[0], name: (0, 1)} for name in supernet.stacks]
        full = stock_output(self.model(), batch)
        for subnet in (*self.depths(supernet), *map(Subnet.of_blocks, empty)):
            kept = {supernet.stacks[name]: stack.blocks for name, stack in subnet.stacks().items()}
            theirs = stock_output(bypassed(self.model(), kept), batch)
            assert torch.equal(inference(supernet, batch, subnet), theirs), subnet
            assert torch.equal(inference(supernet, batch, supernet.full), full), subnet

    def test_materialised_saved_and_reloaded_it_is_the_subnetwork(self) -> None:
        """As the stock class, its weights shared and counted; the supernet stays as it was."""
        supernet = Supernet(self.model())
        batch, config = self._batch(supernet), copy.deepcopy(supernet.model.config.to_dict())
        stock: Any = type(supernet.model)
        for subnet in self.depths(supernet):
            expected = inference(supernet, batch, subnet)
            own = cast(Any, supernet.materialise(subnet))
            assert type(own) is stock
            assert {p.data_ptr() for p in own.parameters()} <= {p.data_ptr() for p in supernet.parameters()}
            with tempfile.TemporaryDirectory() as folder:
                own.save_pretrained(folder)
                loaded, info = stock.from_pretrained(folder, output_loading_info=True)
            assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
            for model in (own, loaded.eval()):
                assert_close(stock_output(model, batch), expected, subnet)
                assert Supernet(model).depths == {
                    name: len(stack.blocks) for name, stack in subnet.stacks().items()
                }
                assert _tied(model) == _tied(supernet.model)
            counted = sum(p.numel() for p in loaded.parameters())
            assert supernet.parameters_cost([subnet])[0] == counted
        assert supernet.model.config.to_dict() == config
        assert torch.equal(stock_output(supernet.model, batch), stock_output(self.model(), batch))

    def test_gradients_are_those_of_the_materialised_model(self) -> None:
        """Exactly the blocks that run have gradients, recomputed or not."""
        reference = Supernet(self.model())
        batch, subnet = self._batch(reference), self.depths(reference)[0]
        _train(reference.materialise(subnet), **batch)
        wanted = [parameter.grad for parameter in reference.model.parameters()]
        for checkpointing in (False, True):
            supernet = Supernet(self.model())
            if checkpointing and not supernet.model.supports_gradient_checkpointing:
                assert refuses(supernet.gradient_checkpointing_enable, SupernetError)
                continue
            if checkpointing:
                supernet.gradient_checkpointing_enable()
            _train(supernet, batch, subnet)
            for (name, ours), theirs in zip(supernet.model.named_parameters(), wanted, strict=True):
                assert (ours.grad is None) == (theirs is None), name
                if ours.grad is not None and theirs is not None:
                    scale = max(1.0, float(theirs.abs().max()))  # the sums' rounding is of this size
                    torch.testing.assert_close(ours.grad / scale, theirs / scale, atol=1e-5, rtol=1e-5)

    def test_what_is_generated_with_a_cache_is_what_is_generated_without(self) -> None:
        """Greedily and with two beams: every block finds its own place in the cache."""
        supernet = Supernet(self.model())
        if not supernet.head.generates:
            return
        read = {name: self._batch(supernet, (7, 7, 7))[name] for name in ("input_ids", "attention_mask")}
        options = {**read, "do_sample": False, "max_new_tokens": 4, "min_new_tokens": 4}
        for subnet in self.depths(supernet):
            own = cast(Any, supernet.materialise(subnet))
            cached = own.generate(**options, output_logits=True, return_dict_in_generate=True)
            plain = own.generate(**options, output_logits=True, return_dict_in_generate=True, use_cache=False)
            assert (cached.past_key_values is not None) == own.generation_config.use_cache
            assert torch.equal(cached.sequences, plain.sequences), subnet
            assert_close(torch.stack(cached.logits), torch.stack(plain.logits), subnet, 1e-4)
            beams = [own.generate(**options, num_beams=2, **use) for use in ({}, {"use_cache": False})]
            assert torch.equal(*beams), subnet

    def test_what_does_not_fit_is_refused(self) -> None:
        """Other stacks, blocks that are not there, finer parts of blocks, an empty stack to generate with."""
        supernet = Supernet(self.model())
        batch, last = self._batch(supernet), list(supernet.stacks)[-1]
        stacks = supernet.full.stacks()
        blocks = stacks[last].blocks
        finer = Stack(blocks, heads_off=((0, 1),)), Stack(blocks, ffn_share=((0, 0.5),))
        strangers = [Subnet(**{**stacks, last: stack}) for stack in (Stack((0, len(blocks))), *finer)]
        for subnet in (Subnet(), *strangers):
            for call in (lambda s: supernet(batch, s), supernet.materialise):
                assert refuses(lambda: call(subnet), SubnetError)  # noqa: B023 (run at once)
        if supernet.head.generates:
            empty = Subnet(**{**stacks, last: Stack(())})
            assert refuses(lambda: supernet.materialise(empty), SubnetError)

    def _batch(self, supernet: Supernet, lengths: Sequence[int] = READ) -> dict[str, Tensor]:
        config = supernet.model.config
        batch = padded_batch(lengths, config.vocab_size, config.pad_token_id or 0)
        batch["input_ids"] = ended(supernet.model, batch["input_ids"], batch["attention_mask"])
        labels = padded_batch(WRITTEN, config.vocab_size, config.pad_token_id or 0, seed=1)["input_ids"]
        return supernet.inputs({**batch, "labels": labels})


def _train(model: nn.Module, *inputs: Any, **named: Any) -> None:
    torch.manual_seed(0)
    torch.autograd.backward(logits_of(model.train()(*inputs, **named)).square().sum())


def _tied(model: PreTrainedModel) -> bool:
    """Whether the head is the embedding."""
    head = cast(Any, model).get_output_embeddings()
    return head is not None and head.weight is cast(Any, model).get_input_embeddings().weight
