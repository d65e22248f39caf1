"""Operators of ONNX that torch's exporter would spell out in a dozen nodes each, for traced graphs."""

from typing import Any, cast

import torch
from torch import Tensor


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, index: Tensor) -> Tensor:
        return hidden.gather(1, index[..., None].expand(-1, -1, hidden.shape[-1]))

    @staticmethod
    def symbolic(g: Any, hidden: Any, index: Any) -> Any:
        last = g.op("Constant", value_t=torch.tensor([-1]))
        return g.op("GatherND", hidden, g.op("Unsqueeze", index, last), batch_dims_i=1)


class _Reshaped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
        return _of_shape(tensor, shape)

    @staticmethod
    def symbolic(g: Any, tensor: Any, shape: tuple[int, ...]) -> Any:
        return g.op("Reshape", tensor, g.op("Constant", value_t=torch.tensor(shape)))


def rows(hidden: Tensor, index: Tensor) -> Tensor:
    """Rows ``index`` (B, k) of ``hidden`` (B, n, d), each copied as a whole: shape (B, k, d)."""
    taken: Tensor = cast(Any, _Rows).apply(hidden, index)
    return taken


def reshaped(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor in another shape, in a graph or not: 0 stands for an axis as long as it was."""
    if not torch.onnx.is_in_onnx_export():
        return _of_shape(tensor, shape)
    other: Tensor = cast(Any, _Reshaped).apply(tensor, shape)
    return other


def _of_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return tensor.reshape([size or tensor.shape[axis] for axis, size in enumerate(shape)])
