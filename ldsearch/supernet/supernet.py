"""The supernet: a stock transformer run as any of its sub-networks, which are arguments, never state."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import ModelOutput

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.costs.parameters import Parameters
from ldsearch.costs.traced import TracedMacs
from ldsearch.costs.workload import Workload
from ldsearch.errors import SubnetError, SupernetError
from ldsearch.subnet import Groups, Stack, Subnet
from ldsearch.supernet import cutting
from ldsearch.supernet.counting import Known, parameters_of, shape_of, trace_macs
from ldsearch.supernet.families import FAMILIES, Family
from ldsearch.supernet.families.family import real_positions
from ldsearch.supernet.heads import Memory, head_named, logits_of, require_ends, require_memory
from ldsearch.supernet.refusals import refuse_model
from ldsearch.supernet.remote_code import HOW, save_subnet
from ldsearch.supernet.saliency import default_score, token_score
from ldsearch.supernet.stages import Between, Pipeline, pinned_until
from ldsearch.supernet.stock import checkpoint_stock, run_stock, shifted, without_own_layer_drop

Skipped = Literal["identity", "norm"]


class Supernet(nn.Module):
    """Runs a stock model at every depth and length and with every structured group on or off.

    The stock model keeps its modules and key names. A registered family's encoder is run block by block;
    every other stack depth-only, by the stock forward with some of its blocks.

    Args:
        model: A stock model with one of the heads of ``ldsearch.supernet.heads.HEADS``.
        score: Name of the token score: one of ``ldsearch.supernet.tokens.TOKEN_SCORES``, or ``learned``.
            None: ``default_score``, until a training of lengths learns one (``SupernetTrainer``).
        memory: What an encoder-decoder's decoder attends to where its encoder dropped tokens: all of them,
            ``"restored"``, or those that were ``"kept"``.
        skipped: What a sub-layer that is off is in a post-norm block: the identity, its norm off too, or
            x -> LN(x), ``"norm"``.
        attention_dropout: Of attention probabilities, where a registered family trains; None: the model's.

    Raises:
        SupernetError: If the model, its head or one of these is not supported.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        score: str | None = None,
        memory: Memory = "restored",
        skipped: Skipped = "identity",
        attention_dropout: float | None = 0.0,
    ) -> None:
        super().__init__()
        refuse_model(model)
        self.head = head_named(type(model).__name__)
        self.names_score, score = score is not None, score or default_score(model)
        scored = token_score(score)
        require_memory(model, memory)
        self.model, self.score, self.attention_dropout = model, score, attention_dropout
        # Families are encoders; a decoder of the same name is another model.
        family = None if self.head.causal else FAMILIES.get(model.config.model_type)
        self._unlike = family.unlike(model.config) if family is not None else ""
        family = None if self._unlike else family
        if skipped not in get_args(Skipped):
            raise SupernetError(f"unknown {skipped!r} for skipped sub-layers: use identity or norm")
        self.memory, self.skipped = memory, skipped
        if family is not None and skipped == "norm":
            family = family.with_norms()
        self.family: Family | None = family
        self.stacks = cutting.find_stacks(model)
        # A decoder's classifier reads the token that ends the text.
        self.reads_first = len(self.stacks) == 1 and self.head.reads_first(model.config)
        self.pipeline: Pipeline | None = None
        if family is not None:
            restores = not (self.reads_first or self.head.embeds) and memory == "restored"
            rules = scored, self.reads_first, restores, attention_dropout
            self.pipeline = Pipeline(model, self.layers_of("encoder"), family, *rules)
            if scored is None:
                self.pipeline.add_weights(self.head)
        self._traced: Known = {}
        without_own_layer_drop(model)
        self.train(model.training)

    def layers_of(self, stack: str) -> nn.ModuleList:
        """The stock layers of a stack."""
        return cutting.blocks_of(self.model, self.stacks[stack])

    @property
    def depths(self) -> Mapping[str, int]:
        """The number of blocks of each stack."""
        return {name: len(self.layers_of(name)) for name in self.stacks}

    @property
    def full(self) -> Subnet:
        """All blocks, all tokens."""
        return Subnet.full(**self.depths)

    @property
    def stack(self) -> str:
        """The name of the first stack: the encoder's, if there is one."""
        return next(iter(self.stacks))

    @property
    def blocks(self) -> int:
        """Number of blocks of that stack."""
        return self.depths[self.stack]

    def pinned_of(self, stack: str) -> tuple[int, ...]:
        """Blocks of a stack that stay, since stock classes cannot express a model without them."""
        return cutting.pinned(self.layers_of(stack))

    @property
    def longest(self) -> int:
        """The longest input in tokens."""
        return cutting.longest_input(self.model)

    @property
    def supports_lengths(self) -> bool:
        """Whether tokens and groups can be left out too, not only whole blocks: a registered family."""
        return self.family is not None

    @property
    def why_depth_only(self) -> str:
        """Why only whole blocks can be left out, in words; empty if ``supports_lengths``."""
        if self.supports_lengths:
            return ""
        why = self._unlike or f"it is no registered family of encoders (those are {', '.join(FAMILIES)})"
        return f"{self.model.config.model_type} works depth-only, through its own stock forward: {why}"

    @property
    def why_no_groups(self) -> str:
        """Why nothing inside a block can be left out, in words; empty if it can."""
        if self.why_depth_only or len(self.stacks) > 1:
            return self.why_depth_only or "a decoder works depth-only"
        if not cutting.repeats(self.model.config):
            return ""
        return f"all blocks of {self.model.config.model_type} are one layer: what is off in one is off in all"

    @property
    def shape(self) -> EncoderShape:
        """The dimensions that closed-form costs need.

        Raises:
            SupernetError: If its family is not registered.
        """
        if self.family is None:
            raise SupernetError(self.why_depth_only)
        shape = shape_of(self.model, list(self.layers_of("encoder")), self.family, self.head)
        return shape if self.pipeline is not None and self.pipeline.corrects else replace(shape, correcting=0)

    def macs(
        self, workload: Workload, *, name: str = "macs", torchprofile: bool = False
    ) -> Macs | TracedMacs:
        """MACs at a workload's lengths: in closed form where a family is registered, else traced.

        Args:
            workload: The lengths.
            name: In tables.
            torchprofile: Count as torchprofile does, where nothing is traced.
        """
        workload = replace(workload, pinned=()) if pinned_until(self.model.config) is None else workload
        if self.family is not None and len(self.stacks) == 1:
            return Macs(self.shape, workload, name=name, torchprofile=torchprofile)
        traced = trace_macs(self.model, self.stacks, workload, name, self._traced)
        if self.family is None:
            return traced
        encoder = Macs(self.shape, workload, name=name)
        return replace(traced, encoder=encoder, kept_memory=self.memory == "kept")

    @property
    def parameters_cost(self) -> Parameters:
        """Parameter counts per stage, as a cost."""
        return parameters_of(self.model, self.stacks, self.family)

    def inputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Model inputs of a task's batch; a decoder that writes reads its labels too, shifted right."""
        read = {name: tensor for name, tensor in batch.items() if name != "labels"}
        if len(self.stacks) > 1 and self.head.generates:
            read["decoder_input_ids"] = shifted(self.model, batch["labels"])
        return read

    def forward(
        self,
        batch: Mapping[str, Tensor],
        subnet: Subnet,
        between: Between | None = None,
        targets: Mapping[str, Tensor] | None = None,
    ) -> ModelOutput:
        """The stock model's output, of one sub-network.

        Args:
            batch: ``input_ids`` (B, n), and optionally ``attention_mask`` and ``token_type_ids``; an
                encoder-decoder's also ``decoder_input_ids`` (B, t).
            subnet: What runs.
            between: Called after each executed block of a model with one stack. Where a block drops tokens,
                fewer leave it than entered.
            targets: ``labels``, or what else the stock class makes a loss of; None: the output has no loss.

        Returns:
            The stock class's output. Dropped tokens are restored for what reads all of them (``Pipeline``).

        Raises:
            SubnetError: If the sub-network does not fit this model.
            SupernetError: If an encoder's input is padded on the left.
        """
        stacks, encoder = self.check(subnet), subnet.encoder
        if self.pipeline is None or encoder is None or "decoder" in stacks:
            kept = {name: stack.blocks for name, stack in stacks.items()}
            inputs = {**self.stock_inputs(batch, encoder), **(targets or {})}
            return run_stock(self.model, self.stacks, kept, inputs, between)
        state = self.pipeline(batch, encoder, between)
        mask = batch.get("attention_mask") if state.positions is None else state.real
        return self.pipeline.head(state, mask, targets)

    def stock_inputs(self, batch: Mapping[str, Tensor], encoder: Stack | None) -> Mapping[str, Any]:
        """Inputs of the stock forward: the batch, or encoder outputs where the encoder drops something.

        Raises:
            SupernetError: If an encoder's input is padded on the left, or rows of a decoder's classifier do
                not end alike.
        """
        if encoder is None:
            return batch
        real_positions(batch)  # refuses padding on the left
        require_ends(self.model, batch["input_ids"])
        own = encoder.structured or encoder.lengths or cutting.lost_heads(self.layers_of("encoder"))
        if self.pipeline is None or len(self.stacks) == 1 or not own:
            return batch
        return {**batch, **self.encoded(batch, encoder)}

    def encoded(self, batch: Mapping[str, Tensor], encoder: Stack) -> dict[str, Any]:
        """Encoder outputs that the stock forward or ``generate`` takes instead of ``input_ids``."""
        assert self.pipeline is not None
        state = self.pipeline(batch, encoder)
        return {
            "encoder_outputs": BaseModelOutput(last_hidden_state=cast(Any, self.pipeline.finish(state))),
            "attention_mask": state.real.long(),
        }

    def activation_checkpointing_enable(
        self, activation_checkpointing_kwargs: Any = None, every_n_layers: int = 1, offload: bool = False
    ) -> None:
        """Recompute each block in the backward pass; the Trainer calls this. Never the reentrant way."""
        if every_n_layers != 1 or offload:
            raise SupernetError("activation checkpointing recomputes every block and offloads none")
        if self.pipeline is not None:
            self.pipeline.checkpointing = True
        if self.pipeline is None or len(self.stacks) > 1:
            checkpoint_stock(self.model)

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: Any = None) -> None:
        """As earlier versions of transformers call it."""
        self.activation_checkpointing_enable()

    def check(self, subnet: Subnet) -> dict[str, Stack]:
        """The stacks of a sub-network that fits this model.

        Raises:
            SubnetError: If it does not fit.
        """
        stacks = subnet.stacks()
        if list(stacks) != list(self.stacks):
            raise SubnetError(f"name blocks of the {' and the '.join(self.stacks)} of this model")
        for name, stack in stacks.items():
            depth = self.depths[name]
            if stack.blocks and stack.blocks[-1] >= depth:
                raise SubnetError(f"block {stack.blocks[-1]} of a model of {depth} blocks (ids are 0-based)")
            if (self.family is None or name == "decoder") and (stack.structured or stack.lengths is not None):
                raise SubnetError(self.why_depth_only or "a decoder works depth-only")
            if stack.structured and cutting.repeats(self.model.config):
                raise SubnetError(self.why_no_groups)
            if stack.heads_off:
                cutting.check_groups(stack, self.model.config.num_attention_heads)
        return stacks

    def cut(self, subnet: Subnet) -> tuple[PreTrainedModel, Subnet]:
        """The stock model of the sub-network's blocks, and the sub-network as that model sees it.

        All encoder blocks stay where a pinned one is missing: stock classes cannot hold the others without.

        Raises:
            SubnetError: If it does not fit the model, leaves a stack that generates empty, or a pinned block
                out of a decoder.
        """
        stacks = self.check(subnet)
        kept: dict[str, Sequence[int]] = {name: stack.blocks for name, stack in stacks.items()}
        if "decoder" in kept and not all(kept.values()):
            raise SubnetError("an encoder-decoder, or a decoder, has at least one block in each stack")
        renumbered = {name: stack.renumbered() for name, stack in stacks.items()}
        if self.family is not None and not set(self.pinned_of(self.stack)) <= set(kept[self.stack]):
            kept[self.stack], renumbered[self.stack] = range(self.blocks), stacks[self.stack]
        return cutting.cut(self.model, self.stacks, kept), Subnet(**renumbered)

    def materialise(self, subnet: Subnet) -> "PreTrainedModel | FixedSubnet":
        """The model a sub-network is, sharing this supernet's weights where they are whole.

        Blocks are renumbered, so that caches work. Fewer blocks, or one narrower feed-forward width for all
        of them, give the stock class; everything else a ``FixedSubnet`` around it.

        Raises:
            SubnetError: If the sub-network does not fit the model.
        """
        model, renumbered = self.cut(subnet)
        left = {name: cutting.blocks_of(model, path) for name, path in self.stacks.items()}
        runs = self.family is None or self.family.runs_empty or all(map(len, left.values()))
        if runs and renumbered == Subnet.of_blocks({name: range(len(own)) for name, own in left.items()}):
            return model
        how = self.score, self.memory, self.skipped, self.attention_dropout
        fixed = FixedSubnet(Supernet(model, *how), renumbered)
        stack = renumbered.stacks()[self.stack]
        groups = {stack.groups(block) for block in range(len(left[self.stack]))}
        share = min((off.ffn_share for off in groups), default=1.0)
        narrows = self.family is not None and self.family.narrows and not stack.lengths
        if not narrows or share == 1 or groups != {Groups(ffn_share=share)}:
            return fixed
        name = cast(Family, self.family).width_name
        setattr(fixed.config, name, Groups(ffn_share=share).width(getattr(self.model.config, name)))
        return fixed.model


def inference(
    supernet: Supernet, batch: Mapping[str, Tensor], subnet: Subnet, between: Between | None = None
) -> Tensor:
    """Logits without gradients, in eval mode whatever mode the supernet is in, on its own device."""
    with evaluating(supernet, batch) as moved:
        return logits_of(supernet(moved, subnet, between))


@contextlib.contextmanager
def evaluating(supernet: Supernet, batch: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Context of eval mode without gradients; yields the batch on the supernet's device."""
    device, was_training = supernet.model.device, supernet.training
    supernet.eval()
    try:
        with torch.inference_mode():
            yield {name: tensor.to(device) for name, tensor in batch.items()}
    finally:
        supernet.train(was_training)


class FixedSubnet(nn.Module):
    """A stock model that runs as one sub-network of itself; called like the stock model.

    Args:
        supernet: Around the stock model, of which the weights of what is off are taken out.
        subnet: What runs of it.
    """

    def __init__(self, supernet: Supernet, subnet: Subnet) -> None:
        super().__init__()
        self.supernet = supernet
        self.subnet = subnet
        stacks = supernet.check(subnet)
        encoder = subnet.encoder
        self._runs = subnet
        if supernet.family is not None and encoder is not None:
            for block, layer in enumerate(supernet.layers_of("encoder")):
                if block in encoder.blocks:
                    cutting.narrow(supernet.family, layer, encoder.groups(block))
                else:
                    cutting.empty(layer)
            self._runs = Subnet(**{**stacks, "encoder": replace(encoder, heads_off=(), ffn_share=())})

    @property
    def model(self) -> PreTrainedModel:
        """The stock model inside."""
        return self.supernet.model

    @property
    def config(self) -> PreTrainedConfig:
        """The stock model's configuration (labels, widths), as pipelines read it."""
        return self.model.config

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        return_dict: bool = True,
    ) -> Any:  # a ModelOutput; where it says so, sentence-transformers wants to know the fields of one class
        """The stock model's output, with its loss where it is given labels, or the positions of a span.

        So the stock ``Trainer`` fine-tunes it. An encoder-decoder reads its labels, shifted right, where
        ``decoder_input_ids`` are left out.
        """
        named = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "decoder_input_ids": decoder_input_ids,
        }
        answers = {"labels": labels, "start_positions": start_positions, "end_positions": end_positions}
        batch = {name: tensor for name, tensor in named.items() if tensor is not None}
        targets = {name: tensor for name, tensor in answers.items() if tensor is not None}
        if labels is not None and decoder_input_ids is None:
            batch = self.supernet.inputs({**batch, "labels": labels})
        output: ModelOutput = self.supernet(batch, self._runs, targets=targets)
        return output if return_dict else output.to_tuple()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a folder that ``ldsearch.load`` reads once the tokenizer is saved there too.

        Raises:
            SupernetError: If heads, units or blocks were cut out of the weights, which stock classes cannot
                hold: fine-tune before they are, or export the supernet's sub-network instead.
        """
        if any(stack.structured for stack in self.subnet.stacks().values()) or (
            set(self.subnet.stacks()[self.supernet.stack].blocks) != set(range(self.supernet.blocks))
        ):
            raise SupernetError("a sub-network whose weights are cut cannot be saved by itself: export it")
        how = {name: getattr(self.supernet, name) for name in HOW}
        save_subnet(self.model, Path(folder), self.subnet, how)

    def generate(self, input_ids: Tensor, attention_mask: Tensor | None = None, **options: Any) -> Any:
        """The stock ``generate`` of an encoder-decoder, from what its encoder gives.

        Args:
            input_ids: Shape (B, n).
            attention_mask: Shape (B, n); None: all ones.
            options: Go on to the stock method.

        Raises:
            SupernetError: If the model is no encoder-decoder.
        """
        encoder, decoder = self._runs.encoder, self._runs.decoder
        if encoder is None or decoder is None:
            raise SupernetError("only encoder-decoders generate from dropped tokens")
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        encoded = self.supernet.encoded({"input_ids": input_ids, "attention_mask": mask}, encoder)
        return cast(Any, self.model).generate(**encoded, **options)
