"""The graph of an encoder's sub-network: tokens dropped inside, each row by its own length.

Batch and length are dynamic. A padded batch keeps as many tokens as its longest row does and masks the
rest, as torch does it, so what a row gives does not depend on the other rows. Written by torch's
tracing exporter; docs/exporting.md says why not by its successor.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from ldsearch.errors import ExportError
from ldsearch.subnet import WHOLE, Groups, Lengths, Stack, Subnet
from ldsearch.supernet import FixedSubnet, Supernet, embedding, operators, tokens
from ldsearch.supernet.correction import corrected
from ldsearch.supernet.heads import run_head
from ldsearch.supernet.operators import reshaped
from ldsearch.supernet.saliency import WEIGHTS, token_score
from ldsearch.supernet.stages import Block, Dropped, Keep, embedded, run_stages
from ldsearch.supernet.tokens import Attention, Chosen, State, TokenScore, restored

OPSET = 17  # the first with layer norms as one operator
# The input of an elastic graph: tokens of the reference that leave each block that drops some, (1 or B,
# such blocks), int64.
KEEP = "keep"
# A mask of positions (B, n) beside attention (B, H, n, n).
KEYS = (0, 1, 1, -1)
# Above every token's score, in whatever half precision a runtime takes it.
_PINNED = 3e4
# What a protocol buffer can hold.
MOST_BYTES = 2**31


def trace(
    supernet: Supernet, subnet: Subnet, path: Path, *, fed: Sequence[int] = (), multiple: int = 1
) -> "Graph":
    """Write the file alone; returns what it was made of.

    Args:
        supernet: Whose sub-network it is.
        subnet: What runs; of an elastic graph with lengths in ratio.
        path: Where the file goes.
        fed: Places in the stack where lengths are an input too, ``keep``, whose default are the
            sub-network's; elsewhere no token is dropped then. Empty: lengths are fixed.
        multiple: Of positions, in which a batch runs: tokens that a row lacks are masked, as pads are.

    Raises:
        ExportError: As for ``write_onnx``.
        SubnetError: If the sub-network does not fit.
    """
    refuse(supernet)
    graph = Graph(supernet, subnet, fed=fed, multiple=multiple)
    if sum(tensor.nbytes for tensor in graph.state_dict().values()) >= MOST_BYTES:
        raise ExportError("an ONNX file holds less than 2 GiB of weights: export this model as --format hf")
    # An example, of which nothing but its number of axes stays.
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2], device=graph.model.device)
    example = {"input_ids": mask, "attention_mask": mask, "token_type_ids": torch.zeros_like(mask)}
    axes = {name: {0: "batch", 1: "length"} for name in graph.names}
    if graph.keep is not None:
        example[KEEP] = torch.tensor([graph.keep], device=mask.device)
        axes[KEEP] = {0: "rows"}
    with _expected_warnings(), torch.no_grad():
        torch.onnx.export(
            graph,
            tuple(example[name] for name in graph.inputs),
            path,
            input_names=graph.inputs,
            output_names=graph.outputs,
            dynamic_axes={
                **axes,
                **{
                    name: {0: "batch", **({} if graph.head.pools else {1: "length"})}
                    for name in graph.outputs
                },
            },
            opset_version=OPSET,
            dynamo=False,
        )
    onnx = import_module("onnx")
    if graph.keep is not None:
        model = onnx.load(path)
        # An input with an initializer of its name need not be fed.
        model.graph.initializer.append(onnx.numpy_helper.from_array(example[KEEP].cpu().numpy(), KEEP))
        onnx.save(model, path)
    onnx.checker.check_model(path)
    return graph


@contextmanager
def _expected_warnings() -> Iterator[None]:
    """Warnings on the exporter's age, and on Python branches, none of which depends on data here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You are using the legacy TorchScript", DeprecationWarning)
        warnings.filterwarnings("ignore", "The feature will be removed", DeprecationWarning)
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
        yield


def refuse(supernet: Supernet) -> None:
    """Refuse what no graph is made of, before anything is written.

    Raises:
        ExportError: If the model is no encoder of a registered family, or a library is missing.
    """
    if not supernet.supports_lengths or len(supernet.stacks) > 1:
        raise ExportError(
            f"graphs (compress, --format onnx) are of encoders that drop tokens, not of a "
            f"{type(supernet.model).__name__}: take train-supernet, evolve and export --format hf"
        )
    if find_spec("onnx") is None:
        raise ExportError("--format onnx needs onnx: pip install 'ldsearch[onnx]'")


class Graph(nn.Module):
    """A sub-network as one function of tensors, free of decisions by data, so that it can be traced.

    Args:
        supernet: Whose sub-network it is.
        subnet: What runs.
        fed: As for ``trace``.
        multiple: As for ``trace``.

    Raises:
        ExportError: If an elastic graph's sub-network has no lengths in ratio.
    """

    def __init__(
        self, supernet: Supernet, subnet: Subnet, *, fed: Sequence[int] = (), multiple: int = 1
    ) -> None:
        super().__init__()
        self.widths = multiple, supernet.longest
        model = supernet.materialise(subnet)
        inner = model.supernet if isinstance(model, FixedSubnet) else Supernet(model, supernet.score)
        blocks = Stack(tuple(range(inner.blocks)))
        stack = model.subnet.encoder if isinstance(model, FixedSubnet) else blocks
        assert inner.family is not None
        assert stack is not None
        self.model, self.head = inner.model, inner.head
        self.family = inner.family
        # Heads and units that are off were cut out of the weights.
        self.stack = replace(stack, heads_off=(), ffn_share=())
        lengths = self.stack.lengths
        if fed and (lengths is None or lengths.mode != "ratio"):
            raise ExportError("an elastic graph is of a sub-network with lengths in ratio")
        self.fed = tuple(fed)
        self.keep = tuple(lengths.tokens[place] for place in fed) if lengths is not None and fed else None
        score = token_score(inner.score)
        score = None if score is None else PRODUCTS.get(score, score)
        self.reads_first = inner.reads_first
        assert inner.pipeline is not None
        self.restores, self.corrects = inner.pipeline.restores, inner.pipeline.corrects
        layers = inner.layers_of("encoder")
        how = self.family, self.model.config, score, self.reads_first, None
        self.blocks = [GraphBlock(layer, *how) for layer in layers]

    @property
    def inputs(self) -> list[str]:
        """Names of everything it reads."""
        return [*self.names, *([KEEP] if self.keep is not None else [])]

    @property
    def names(self) -> list[str]:
        """Names of what must be fed, each of shape (B, n)."""
        segments = getattr(self.model.config, "type_vocab_size", 0) > 1
        return ["input_ids", "attention_mask", *(["token_type_ids"] if segments else [])]

    @property
    def outputs(self) -> list[str]:
        """The outputs' names, the stock model's."""
        if self.head.embeds:
            return [embedding.OUTPUT]
        return ["start_logits", "end_logits"] if self.head.name == "QuestionAnswering" else ["logits"]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Inputs by ``inputs``; outputs by ``outputs``."""
        given = dict(zip(self.inputs, inputs, strict=True))
        keep = given.pop(KEEP, None)
        mask = given["attention_mask"]
        if self.widths[0] > 1:
            given = {name: operators.widened(one, *self.widths) for name, one in given.items()}
        entered = embedded(self.family, self.model, given, corrects=self.corrects)
        state = run_stages(
            self.stack.blocks,
            self._keeps(entered, keep),
            entered,
            self._run,
            restore=restored if self.restores else None,
            behind=lambda block, entered: self.blocks[block].left_behind(entered),
        )
        hidden = corrected(self.model, self.family.finish(self.model, state.hidden), state)
        output = run_head(self.model, hidden, {"attention_mask": state.real})
        # A model of sentences has its vectors by both names.
        found = tuple(cast(Tensor, getattr(output, name)) for name in self.outputs)
        if self.widths[0] == 1 or self.head.pools:
            return found
        return tuple(one[:, : mask.shape[1]] for one in found)

    def _run(self, block: int, state: State, keep: Chosen | None) -> State:
        # A head that reads the first token needs nothing else of the last block.
        first_only = self.reads_first and block == self.stack.blocks[-1]
        first_only = first_only and self.stack.groups(block).runs("attention")
        call = self.blocks[block]
        return call(state, None if first_only else keep, self.stack.groups(block), first_only=first_only)

    def _keeps(self, entered: State, keep: Tensor | None) -> "list[Chosen | None]":
        """The tokens that each block keeps of rows (B, n); None where as many tokens leave as enter."""
        real, pinned = entered.real, entered.pinned
        lengths, true_lengths = self.stack.lengths, real.sum(dim=1, keepdim=True)
        if lengths is None:
            return [None] * len(self.stack.blocks)
        places = self.fed or lengths.drops
        if not places:
            return [None] * len(lengths.tokens)
        if keep is None:
            counts = kept_counts(lengths, places, true_lengths)
        else:
            counts = shares(true_lengths, keep, lengths.reference)
        chosen = kept_tokens(counts, len(places), real.shape[1], *self.widths, pinned)
        return [next(chosen) if place in places else None for place in range(len(lengths.tokens))]


class GraphBlock(Block):
    """A block without decisions by data: its mask is always added, its tokens stay in rank order."""

    def __call__(
        self, state: State, keep: Keep | None = None, groups: Groups = WHOLE, *, first_only: bool = False
    ) -> State:
        """As of ``Block``, but sub-layer by sub-layer even where nothing is off."""
        return self.run_sublayers(state, keep, groups, first_only=first_only)[0]

    def mix(
        self, attention: Attention, groups: Groups, dropout: float | None, *, scored: bool
    ) -> tuple[Tensor, Tensor | None]:
        """As of ``Block``; heads that are off were cut out of the weights."""
        attention = traced(attention)
        context = (attention.probabilities @ attention.values).transpose(1, 2)
        context = reshaped(context, (0, 0, -1))
        return context, self.score(attention) if scored and self.score is not None else None

    def saliency(self, entered: Tensor, context: Tensor) -> Tensor:
        """As of ``Block``, as two products, which copy nothing."""
        weights = getattr(self.layer, WEIGHTS)[:, None]
        width = entered.shape[-1]
        return reshaped(entered @ weights[:width] + context @ weights[width:], (0, -1))

    def drop(self, state: State, scores: Tensor, keep: Keep) -> Dropped:
        """As of ``Block``, in rank order: positions travel with the tokens."""
        assert isinstance(keep, Chosen)
        # Pads lose against every score, and are the last among equals.
        ranked = chosen_of(state.real, scores, torch.finfo(scores.dtype).min)
        raised = self.keep_first or state.pinned is not None
        index = operators.best(ranked + keep.bonus if raised else ranked, keep.longest)
        flat = index + keep.first
        return state.take(index, keep.real, flat=flat), index, flat


class Traced(Attention):
    """Attention with its mask added: ONNX Runtime chooses between two tensors much more slowly."""

    @cached_property
    def probabilities(self) -> Tensor:
        """As of ``Attention``."""
        products = (self.queries * self.scaling) @ self.keys.transpose(-1, -2)
        assert self.allowed is not None
        nothing = torch.tensor(0.0, dtype=products.dtype, device=products.device)
        added = chosen_of(self.allowed, nothing, torch.finfo(products.dtype).min)
        if self.bias is not None:
            products = products + self.bias
        return (products + added).softmax(dim=-1)


def chosen_of(where: Tensor, chosen: Tensor, other: float) -> Tensor:
    """One operator, where the exporter makes three of ``masked_fill``."""
    return torch.where(where, chosen, torch.tensor(other, dtype=chosen.dtype, device=chosen.device))


def traced(attention: Attention) -> Traced:
    """The same, masked whether the example's rows end in pads here or not."""
    allowed = reshaped(attention.real, KEYS) if attention.allowed is None else attention.allowed
    parts = (attention.queries, attention.keys, attention.values, attention.real, attention.scaling)
    return Traced(*parts, allowed, bias=attention.bias)


def received(attention: Attention) -> Tensor:
    """Attention received from real queries, (B, H, 1, n): one matrix product reads the probabilities once."""
    return reshaped(attention.real, KEYS).to(attention.probabilities.dtype) @ attention.probabilities


def product_column(attention: Attention) -> Tensor:
    """``ldsearch.supernet.tokens.column``."""
    return received(attention).sum(dim=(1, 2))


# Scores that the exporter would spell out in many operators.
PRODUCTS: Mapping[TokenScore, TokenScore] = {tokens.column: product_column}


def kept_counts(lengths: Lengths, places: Sequence[int], true_lengths: Tensor) -> Tensor:
    """``Lengths.kept`` of rows (B, 1) at several places at once, shape (B, places), in whole numbers.

    Lengths never rise, so no row keeps more than entered.
    """
    kept = torch.tensor([lengths.tokens[place] for place in places], device=true_lengths.device)
    if lengths.mode == "absolute":
        return torch.minimum(true_lengths, kept)
    return shares(true_lengths, kept, lengths.reference)


def shares(true_lengths: Tensor, kept: Tensor, reference: int) -> Tensor:
    """So many of a reference's tokens, of rows (B, 1): rounded up, never none."""
    raised = true_lengths * kept + (reference - 1)
    # A division without a remainder: OpenVINO rounds that of one number to the nearest.
    even = raised - torch.remainder(raised, reference)
    return torch.div(even, reference, rounding_mode="trunc").clamp(min=1)


def kept_tokens(
    counts: Tensor, places: int, width: int, multiple: int, most: int, pinned: Tensor | None = None
) -> Iterator[Chosen]:
    """The tokens kept by counts (B, places) of ``width`` positions, place by place; what is pinned, always.

    A place is as wide as the next multiple of the most that a row keeps, or as ``most``.
    """
    position = torch.arange(width, device=counts.device)[None]
    nothing = torch.tensor(0.0, device=counts.device)
    if pinned is not None:
        counts = torch.maximum(counts, pinned)
    longest = counts.amax(dim=0)
    if multiple > 1:
        longest = operators.rounded_up(longest, multiple, most)
    entered: Tensor | int = width
    row = torch.arange(counts.shape[0], device=counts.device)[:, None]
    both = operators.split(longest, 0, places), operators.split(counts, 1, places)
    for widest, count in zip(*both, strict=True):
        bonus = chosen_of(position > 0, nothing, torch.inf)
        if pinned is not None:
            # Once they have been ranked these stand first, position 0, whose bonus is larger, before all.
            bonus = bonus + chosen_of(position >= pinned, nothing, _PINNED)
        position = operators.leading(position, widest)
        yield Chosen(widest, position < count, bonus, row * entered)
        entered = widest
