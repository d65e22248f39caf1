"""MACs of models without a closed form: traced with fvcore at a few lengths, quadratic between them."""

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ldsearch.costs.traced import Quadratic, TracedMacs
from ldsearch.errors import SupernetError, one_line
from ldsearch.workload import Workload

# Three points fix a quadratic; the workload's longest input says whether it is one.
_LENGTHS = (8, 16, 24)
_SHORTEST_CHECK = 40


def trace_macs(model: PreTrainedModel, stack: str, workload: Workload, name: str) -> TracedMacs:
    """The cost of a stock model's depth sub-networks at the lengths of a workload.

    Args:
        model: The stock model; it is traced eager, as fvcore counts no fused attention.
        stack: Dotted name of its list of blocks.
        workload: The lengths.
        name: The cost's name in tables.

    Raises:
        SupernetError: If the model cannot be traced, or its MACs are no quadratic in the length.
    """
    lengths = (*_LENGTHS, max(_SHORTEST_CHECK, int(workload.lengths[-1])))
    try:
        counted = [_count(model, stack, length) for length in lengths]
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise SupernetError(f"{type(model).__name__} cannot be traced: {one_line(error)}") from error
    blocks = tuple(
        _quadratic(lengths, [row[block] for row, _ in counted]) for block in range(len(counted[0][0]))
    )
    return TracedMacs(blocks, _quadratic(lengths, [rest for _, rest in counted]), workload, name)


def _quadratic(lengths: Sequence[int], counts: Sequence[float]) -> Quadratic:
    """The coefficients of 1, n and n²."""
    powers = np.vander(np.array(lengths, dtype=np.float64), 3, increasing=True)
    coefficients = np.linalg.solve(powers[:3], np.array(counts[:3]))
    if not np.isclose(powers[3] @ coefficients, counts[3], rtol=1e-6):
        raise SupernetError(
            "the model's MACs do not grow as a quadratic of the input length, so they cannot be traced"
        )
    constant, linear, square = (float(c) for c in coefficients)
    return constant, linear, square


class _Logits(nn.Module):
    """Takes a tensor and gives one, as tracing needs."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        output = self.model(input_ids=ids, attention_mask=torch.ones_like(ids))
        logits: Tensor = output[0]
        return logits


def _count(model: PreTrainedModel, stack: str, length: int) -> tuple[list[float], float]:
    """MACs of each block and of everything else, for one input of that length; norms are free."""
    with warnings.catch_warnings():
        # Of fvcore's own imports and of tracing, which torch deprecates.
        warnings.simplefilter("ignore")
        from fvcore.nn import FlopCountAnalysis

        shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        eager = copy.deepcopy(model, shared).eval()
        eager.set_attn_implementation("eager")
        ids = torch.ones((1, length), dtype=torch.long, device=model.device)
        analysis = FlopCountAnalysis(_Logits(eager), (ids,))
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
        by_module: Mapping[str, Mapping[str, float]] = analysis.by_module_and_operator()

    def macs(name: str) -> float:
        return float(sum(count for operator, count in by_module[name].items() if "norm" not in operator))

    depth = model.config.num_hidden_layers
    blocks = [macs(f"model.{stack}.{block}") for block in range(depth)]
    return blocks, macs("") - sum(blocks)
