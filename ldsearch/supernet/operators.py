"""Operators of ONNX that torch's exporter would spell out in several nodes each, for traced graphs.

Numbers of tokens that depend on the data are tensors here, of shape (1,), since a trace would keep a number.
"""

from typing import Any, cast

import torch
from torch import Tensor


def reshaped(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor in another shape, in a graph or not: 0 stands for an axis as long as it was."""
    if not torch.onnx.is_in_onnx_export():
        return _of_shape(tensor, shape)
    return _applied(_Reshaped, tensor, shape)


def rows(hidden: Tensor, flat: Tensor) -> Tensor:
    """Rows of ``hidden`` (B, n, d) at ``flat`` (B, k), their places among all B n: shape (B, k, d)."""
    return _applied(_Rows, hidden, flat, int(hidden.shape[-1]))


def pairs(whole: Tensor, index: Tensor) -> Tensor:
    """Rows and columns ``index`` (B, k) of ``whole`` (1, C, n, n): shape (B, C, k, k)."""
    return _applied(_Pairs, whole, index, int(whole.shape[1]))


def leading(tensor: Tensor, count: Tensor) -> Tensor:
    """The first ``count`` (1,) columns of a tensor (B, n)."""
    return _applied(_Leading, tensor, count)


def rounded_up(counts: Tensor, multiple: int, most: int) -> Tensor:
    """Whole numbers, each as its next multiple, or ``most``."""
    return _applied(_RoundedUp, counts, multiple, most)


def widened(tensor: Tensor, multiple: int, most: int) -> Tensor:
    """A tensor (B, n) of whole numbers with zeros behind, as wide as the next multiple, or as ``most``."""
    return _applied(_Widened, tensor, multiple, most)


def best(scores: Tensor, count: Tensor) -> Tensor:
    """Positions of the ``count`` (1,) highest scores of each row (B, n), the best first."""
    return _applied(_Best, scores, count)


def split(tensor: Tensor, axis: int, parts: int) -> tuple[Tensor, ...]:
    """The slices of length 1 along an axis of so many numbers."""
    if parts == 1:  # the exporter cannot take a tuple of one apart
        return (tensor,)
    return cast(tuple[Tensor, ...], cast(Any, _Split).apply(tensor, axis, parts))


def _applied(function: Any, *inputs: Any) -> Tensor:
    return cast(Tensor, function.apply(*inputs))


def _of_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return tensor.reshape([size or tensor.shape[axis] for axis, size in enumerate(shape)])


def _constant(g: Any, *numbers: int) -> Any:
    return g.op("Constant", value_t=torch.tensor(numbers))


class _Reshaped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
        return _of_shape(tensor, shape)

    @staticmethod
    def symbolic(g: Any, tensor: Any, shape: tuple[int, ...]) -> Any:
        return g.op("Reshape", tensor, _constant(g, *shape))


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, flat: Tensor, width: int) -> Tensor:
        return hidden.flatten(0, 1)[flat]

    @staticmethod
    def symbolic(g: Any, hidden: Any, flat: Any, width: int) -> Any:
        # Laid end to end: OpenVINO makes several operators of GatherND.
        return g.op("Gather", g.op("Reshape", hidden, _constant(g, -1, width)), flat, axis_i=0)


class _Pairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, index: Tensor, channels: int) -> Tensor:
        return whole[0][:, index[:, :, None], index[:, None, :]].transpose(0, 1).contiguous()

    @staticmethod
    def symbolic(g: Any, whole: Any, index: Any, channels: int) -> Any:
        # By their places in the pairs laid end to end.
        first = g.op("Mul", index, g.op("Shape", whole, start_i=3, end_i=4))
        flat = g.op(
            "Add", g.op("Unsqueeze", first, _constant(g, 2)), g.op("Unsqueeze", index, _constant(g, 1))
        )
        table = g.op("Reshape", whole, _constant(g, channels, -1))
        return g.op("Transpose", g.op("Gather", table, flat, axis_i=1), perm_i=(1, 0, 2, 3))


class _Leading(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, count: Tensor) -> Tensor:
        return tensor[:, : int(count)].clone()

    @staticmethod
    def symbolic(g: Any, tensor: Any, count: Any) -> Any:
        return g.op("Slice", tensor, _constant(g, 0), count, _constant(g, 1))


class _RoundedUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, counts: Tensor, multiple: int, most: int) -> Tensor:
        return (counts + -counts % multiple).clamp(max=most)

    @staticmethod
    def symbolic(g: Any, counts: Any, multiple: int, most: int) -> Any:
        return _rounded_up(g, counts, multiple, most)


class _Widened(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, multiple: int, most: int) -> Tensor:
        width = tensor.shape[1]
        return torch.nn.functional.pad(tensor, (0, min(-width % multiple, most - width)))

    @staticmethod
    def symbolic(g: Any, tensor: Any, multiple: int, most: int) -> Any:
        width = g.op("Shape", tensor, start_i=1, end_i=2)
        more = g.op("Sub", _rounded_up(g, width, multiple, most), width)
        pads = g.op("Concat", _constant(g, 0, 0, 0), more, axis_i=0)
        return g.op("Pad", tensor, pads, g.op("Constant", value_t=torch.tensor(0)))


def _rounded_up(g: Any, counts: Any, multiple: int, most: int) -> Any:
    # Not divided and multiplied again: OpenVINO takes the two for one another's inverse.
    more = g.op("Mod", g.op("Neg", counts), _constant(g, multiple))
    return g.op("Min", g.op("Add", counts, more), _constant(g, most))


class _Best(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, count: Tensor) -> Tensor:
        return scores.topk(int(count), dim=1).indices

    @staticmethod
    def symbolic(g: Any, scores: Any, count: Any) -> Any:
        return g.op("TopK", scores, count, axis_i=1, outputs=2)[1]


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, axis: int, parts: int) -> tuple[Tensor, ...]:
        return tuple(part.clone() for part in tensor.tensor_split(parts, dim=axis))

    @staticmethod
    def symbolic(g: Any, tensor: Any, axis: int, parts: int) -> Any:
        return g.op("Split", tensor, axis_i=axis, outputs=parts)
