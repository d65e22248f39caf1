"""Dimensions, parameter counts and traced MACs of a stock model, as the costs need them."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from ldsearch.costs.macs import EncoderShape
from ldsearch.costs.parameters import BlockParameters, Parameters
from ldsearch.costs.traced import Polynomial, TracedMacs, terms
from ldsearch.costs.workload import Workload
from ldsearch.errors import SupernetError, one_line
from ldsearch.supernet.correction import correction_of
from ldsearch.supernet.cutting import blocks_of, copy_sharing, handed_on, longest_input, repeats
from ldsearch.supernet.families import Family
from ldsearch.supernet.heads import Head, decodes, ended, head_named
from ldsearch.supernet.left_behind import map_of


def shape_of(model: PreTrainedModel, layers: Sequence[nn.Module], family: Family, head: Head) -> EncoderShape:
    """An encoder's dimensions, and its head's products, per example or per token; not those of a decoder.

    Args:
        model: The stock model.
        layers: Its encoder's layers.
        family: How to take them apart.
        head: The model's head.

    Raises:
        SupernetError: If a block has weights that the dimensions do not account for.
    """
    config = model.config
    width, matrices, attention = getattr(config, family.width_name), 2, config.hidden_size
    mapped = 0
    if layers:
        mapped = 0 if (beside := map_of(layers[0])) is None else len(beside) // 2
        parts = family.parts(layers[0])
        matrices = 1 + sum(linear.out_features for linear in parts.expanding) // width
        attention = parts.output.in_features
    shape = EncoderShape(
        *(len(layers), config.hidden_size, width, config.num_attention_heads),
        ffn_matrices=matrices,
        norms_stay=family.norms_stay,
        table_rows=family.table_rows(config),
        attention=attention,
        dropped_rank=mapped,
        correcting=0 if (own := correction_of(model)) is None else own[1:].numel(),  # no bias
    )
    known = (4 * attention + matrices * width) * shape.hidden
    for block, layer in enumerate(layers):
        looked_up = _count(*handed_on(layer).values())
        held = sum(p.numel() for p in layer.parameters() if p.dim() > 1) - looked_up
        if held != known:
            raise SupernetError(
                f"block {block} of {type(model).__name__} has {held:,} weights in matrices, not the "
                f"{known:,} of {config.model_type} blocks: its MACs cannot be counted"
            )
    if decodes(model):
        return shape
    outside = [child for child in model.children() if child is not model.base_model]
    pooler = getattr(model.base_model, "pooler", None)
    headed = _products([*outside, *([pooler] if pooler is not None else [])])
    # Such as the projection of narrower embeddings (ELECTRA).
    embedded = _products([model]) - headed - _products(layers)
    if head.pools:
        return replace(shape, head_per_example=headed, head_per_token=embedded)
    return replace(shape, head_per_token=headed + embedded)


def _products(modules: Iterable[nn.Module]) -> int:
    """Multiply-accumulates of the linear layers inside, each run once."""
    linears = {m for module in modules for m in module.modules() if isinstance(m, nn.Linear)}
    return sum(linear.in_features * linear.out_features for linear in linears)


def parameters_of(model: PreTrainedModel, stacks: Mapping[str, str], family: Family | None) -> Parameters:
    """Parameter counts of a model's stages, of its encoder's finer than blocks where its family is known."""
    heads = getattr(model.config, "num_attention_heads", 1)
    known = {"encoder": family}
    layers = {name: list(blocks_of(model, path)) for name, path in stacks.items()}
    if repeats(model.config):  # the layer stays however often it runs
        return Parameters(
            {name: (BlockParameters(0),) * len(own) for name, own in layers.items()}, _count(model)
        )
    once = {name: _count(*handed_on(blocks[0]).values()) for name, blocks in layers.items() if blocks}
    per_block = {
        name: tuple(block_parameters(layer, known.get(name), heads) for layer in blocks)
        for name, blocks in layers.items()
    }
    inside = sum(block.total for blocks in per_block.values() for block in blocks) + sum(once.values())
    return Parameters(per_block, _count(model) - inside, once)


def block_parameters(layer: nn.Module, family: Family | None, heads: int) -> BlockParameters:
    """Parameter counts of a layer with that many heads; without a family, only their total."""
    total = _count(layer) - _count(*handed_on(layer).values())
    if family is None:
        return BlockParameters(total)
    parts = family.parts(layer)
    units = parts.contract.in_features
    return BlockParameters(
        total=total,
        attention=_count(*family.sublayers(parts)["attention"]),
        feed_forward=_count(*family.sublayers(parts)["feed_forward"]),
        per_head=(_count(*parts.heads) + parts.output.weight.numel()) // heads,
        units=units,
        per_unit=(_count(*parts.expanding) + parts.contract.weight.numel()) // units,
    )


def _count(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


aten = torch.ops.aten
Counts = tuple[dict[str, list[float]], float]  # MACs of each block of each stack, and of everything else
Known = dict[tuple[int, int], Counts]  # by tokens read and written
# Tokens read and written, enough of them for every term of the polynomials.
_LENGTHS = ((8, 8), (16, 8), (24, 8), (8, 16), (8, 24), (16, 16))
_SHORTEST_CHECK = 41


def trace_macs(
    model: PreTrainedModel, stacks: Mapping[str, str], workload: Workload, name: str, known: Known
) -> TracedMacs:
    """The cost of a stock model's depth sub-networks at the lengths of a workload.

    Args:
        model: The stock model; it is traced eager, as fvcore counts no fused attention.
        stacks: Dotted names of its lists of blocks.
        workload: The lengths, of what is written too if there are two stacks.
        name: The cost's name in tables.
        known: What was traced before; what is traced now is added.

    Raises:
        SupernetError: If the model cannot be traced, multiplies matrices that are not counted, or its MACs
            are no quadratic in the lengths.
    """
    # That checks the polynomial; it is odd, as models that fill windows take steps that even ones could miss.
    room = longest_input(model)
    longest = [
        (min(room, max(_SHORTEST_CHECK, int(values.max()))) - 1) | 1
        for values in (workload.lengths, workload.written_lengths)
    ]
    if room <= max(max(pair) for pair in _LENGTHS):
        raise SupernetError(f"{type(model).__name__} cannot be traced: it has only {room} positions")
    lengths = sorted({(n, t * _writes(model, stacks)) for n, t in (*_LENGTHS, longest)})
    if missing := [pair for pair in lengths if pair not in known]:
        try:
            eager = copy_sharing(model).eval()
            eager.set_attn_implementation("eager")
            known.update({(n, t): _count_macs(eager, stacks, n, t) for n, t in missing})
        except (RuntimeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise SupernetError(f"{type(model).__name__} cannot be traced: {one_line(error)}") from error
    counted = [known[pair] for pair in lengths]
    points = terms(*np.array(lengths, dtype=np.float64).T)
    blocks = {
        stack: tuple(
            _polynomial(points, counts) for counts in zip(*(row[stack] for row, _ in counted), strict=True)
        )
        for stack in stacks
    }
    return TracedMacs(blocks, _polynomial(points, [rest for _, rest in counted]), workload, name)


def _writes(model: PreTrainedModel, stacks: Mapping[str, str]) -> bool:
    """Whether its decoder writes a text of a length of its own, rather than reading its input again."""
    return len(stacks) > 1 and head_named(type(model).__name__).generates


def _polynomial(points: NDArray[np.float64], counts: Sequence[float]) -> Polynomial:
    """The coefficients of ``terms``, from all points but the last, which must agree."""
    # Scaled, so that squares of long lengths do not drown the constant.
    scale = points[:-1].max(axis=0)
    scale[scale == 0] = 1.0
    fitted = np.linalg.lstsq(points[:-1] / scale, np.array(counts[:-1]), rcond=None)[0] / scale
    if not np.isclose(points[-1] @ fitted, counts[-1], rtol=1e-6):
        raise SupernetError(
            "the model's MACs do not grow as a quadratic of the lengths, so they cannot be traced"
        )
    return tuple(float(c) for c in fitted)


def _batched(inputs: Sequence[Any], outputs: Sequence[Any]) -> float:
    """Products of ``baddbmm(added, (B, n, k), (B, k, m))``."""
    _, left, right = (value.type().sizes() for value in inputs[:3])
    return float(math.prod(left) * right[-1])


def _attention(inputs: Sequence[Any], outputs: Sequence[Any]) -> float:
    """Products of ``scaled_dot_product_attention``: scores, and their product with the values."""
    queries, keys, values = (value.type().sizes() for value in inputs[:3])
    return float(math.prod(queries[:-1]) * keys[-2] * (queries[-1] + values[-1]))


# Which fvcore does not know.
_HANDLES = {"aten::baddbmm": _batched, "aten::scaled_dot_product_attention": _attention}
# Which neither counter knows: counted as one too many, so that the two disagree.
_UNKNOWN = {
    operator: lambda *inputs, **named: 2
    for operator in (aten.addbmm, aten.addmv, aten.addr, aten.dot, aten.mv, aten.vdot)
}


class _Logits(nn.Module):
    """Takes a tensor and gives one, as tracing needs."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, written: Tensor | None = None) -> Tensor:
        decoder = {} if written is None else {"decoder_input_ids": written}
        output = self.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, **decoder)
        return cast(Tensor, output[0])


def _count_macs(model: PreTrainedModel, stacks: Mapping[str, str], read: int, written: int) -> Counts:
    """MACs of an eager model in evaluation, for one input of those lengths; norms are free.

    Raises:
        SupernetError: If torch counts others, as products that fvcore does not know are left out.
    """
    with warnings.catch_warnings():
        # Of fvcore's own imports and of tracing, which torch deprecates.
        warnings.simplefilter("ignore")
        from fvcore.nn import FlopCountAnalysis

        lengths = (read, written) if _writes(model, stacks) else (read,)
        token = 2 if model.config.pad_token_id == 1 else 1  # mBART looks for the last that is no padding
        ids = tuple(torch.full((1, n), token, device=model.device) for n in lengths)
        ids = (ended(model, ids[0], torch.ones_like(ids[0])), *ids[1:])
        traced = _Logits(model)
        analysis = FlopCountAnalysis(traced, ids).set_op_handle(**_HANDLES)
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
        by_module: Mapping[str, Mapping[str, float]] = analysis.by_module_and_operator()
        with FlopCounterMode(display=False, custom_mapping=_UNKNOWN) as counter:
            traced(*ids)

    def macs(name: str) -> float:
        return float(sum(count for operator, count in by_module[name].items() if "norm" not in operator))

    if 2 * macs("") != counter.get_total_flops():
        raise SupernetError(
            f"{type(model).__name__} multiplies matrices that cannot be counted: fvcore finds "
            f"{macs(''):,.0f} MACs, torch {counter.get_total_flops() / 2:,.0f}"
        )
    blocks = {
        stack: [macs(f"model.{path}.{block}") for block, _ in enumerate(model.get_submodule(path).children())]
        for stack, path in stacks.items()
    }
    return blocks, macs("") - sum(sum(counts) for counts in blocks.values())
