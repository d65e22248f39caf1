"""What is timed of a sub-network, and how its phases follow: one forward, or prefill and per-token."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig

from ldsearch.errors import LdsearchError
from ldsearch.latency.inputs import Cell
from ldsearch.latency.runtimes import Runtime
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet


@dataclass(frozen=True)
class Probe:
    """The runs that a latency is made of.

    Args:
        written: Tokens that each run writes; 0: a forward.
        phases: Name to the weights of the runs, whose weighted sum of seconds (or MACs) is the phase's.
    """

    written: tuple[int, ...]
    phases: Mapping[str, tuple[float, ...]]


FORWARD = Probe((0,), MappingProxyType({"forward": (1.0,)}))


def generating(tokens: int) -> Probe:
    """Prefill is all it takes to the first token; per token is the mean of those that follow.

    Raises:
        LdsearchError: If none follows.
    """
    if tokens < 1:
        raise LdsearchError(f"the latency of a token needs 1 token or more, not {tokens}")
    phases = {"prefill": (1.0, 0.0), "per token": (-1 / tokens, 1 / tokens)}
    return Probe((1, 1 + tokens), MappingProxyType(phases))


def runs_of(
    probe: Probe, runtime: Runtime, supernet: Supernet, subnet: Subnet, cell: Cell
) -> list[Callable[[], object]]:
    """The probe's runs over all batches of a cell.

    Raises:
        LdsearchError: If the runtime cannot run the sub-network, or not write with it.
    """
    if not supernet.head.generates:
        return [_forward(runtime(supernet, subnet), cell)]
    if not runtime.generates:
        raise LdsearchError("prefill and per-token latency are those of the eager model: use --runtime eager")
    return [_generate(supernet.materialise(subnet), cell, written) for written in probe.written]


def _forward(forward: Callable[[Any], object], cell: Cell) -> Callable[[], object]:
    def run() -> None:
        with torch.inference_mode():
            for inputs in cell.batches:
                forward(inputs)

    return run


def _generate(model: nn.Module, cell: Cell, written: int) -> Callable[[], object]:
    """Greedy, cached, and never at an end before ``written`` tokens."""
    model.eval()
    writes: Any = model
    for part in model.modules():
        # Materialised: the stock model keeps its own. generate() fills in what is left open from this one.
        saved = getattr(part, "generation_config", None)
        if saved is not None:
            part.generation_config = _greedy(saved, written)  # type: ignore[assignment]

    def run() -> None:
        # Not inference_mode: position tables grown inside it could not be trained through afterwards.
        with torch.no_grad():
            for inputs in cell.batches:
                ids, mask = inputs["input_ids"], inputs["attention_mask"]
                found = writes.generate(input_ids=ids, attention_mask=mask)
                start = 1 if writes.config.is_encoder_decoder else ids.shape[1]
                if found.shape[1] != start + written:  # it would pass for a fast one
                    raise LdsearchError(f"{type(model).__name__} does not write {written} tokens when asked")

    return run


def _greedy(saved: GenerationConfig, written: int) -> GenerationConfig:
    return GenerationConfig(
        max_new_tokens=written,
        do_sample=False,
        num_beams=1,
        use_cache=saved.use_cache,
        bos_token_id=saved.bos_token_id,
        pad_token_id=saved.pad_token_id,
        decoder_start_token_id=saved.decoder_start_token_id,
    )
