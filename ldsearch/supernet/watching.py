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
    layers: Mapping[str, nn.Module],
    blocks: Mapping[str, Sequence[int]],
    between: Mapping[str, Between | None],
    batch: Mapping[str, Any],
) -> Iterator[None]:
    """While inside, a stack's ``between`` is called after each of its blocks, as forward hooks."""
    mask = batch.get("attention_mask")

    def hook(block: int, call: Between) -> Callable[..., Any]:
        def changed(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
            entered = inputs[0] if inputs else named["hidden_states"]
            left = output[0] if isinstance(output, tuple) else output
            if mask is not None and mask.shape == entered.shape[:2]:
                real = mask.bool()
            else:
                real = torch.ones(entered.shape[:2], dtype=torch.bool, device=entered.device)
            goes_on = call(block, State(entered, real), State(left, real))
            return (goes_on, *output[1:]) if isinstance(output, tuple) else goes_on

        return changed

    handles = [
        layers[name].get_submodule(str(block)).register_forward_hook(hook(block, call), with_kwargs=True)
        for name, call in between.items()
        if call is not None
        for block in blocks[name]
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
