"""Lets a caller see, and change, what leaves each block of a stock model's own forward."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ldsearch.supernet.stages import State

# Called after a block with its id, what entered and what left; gives the hidden states that go on.
Between = Callable[[int, State, State], Tensor]


@contextlib.contextmanager
def watched(
    layers: nn.ModuleList, blocks: Sequence[int], between: Between | None, batch: Mapping[str, Tensor]
) -> Iterator[None]:
    """While inside, ``between`` is called after each of the blocks, as forward hooks."""
    if between is None:
        yield
        return
    mask = batch.get("attention_mask")
    real = torch.ones_like(batch["input_ids"]).bool() if mask is None else mask.bool()

    def hook(block: int) -> Callable[..., Any]:
        def call(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
            entered = inputs[0] if inputs else named["hidden_states"]
            left = output[0] if isinstance(output, tuple) else output
            goes_on = between(block, State(entered, real), State(left, real))
            return (goes_on, *output[1:]) if isinstance(output, tuple) else goes_on

        return call

    handles = [layers[block].register_forward_hook(hook(block), with_kwargs=True) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
