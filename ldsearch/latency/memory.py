"""Memory of a materialised model: weights, key-value cache, activations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ldsearch.latency.inputs import random_tokens
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet


@dataclass(frozen=True)
class Memory:
    """What a sub-network holds.

    Args:
        weight_bytes: Parameters and buffers of its materialised model; tied ones once.
        cache_bytes_per_token: Keys and values that each token of a text adds; None where none are kept.
        cache_bytes_per_source_token: Keys and values that each token of an encoder-decoder's input adds.
    """

    weight_bytes: int
    cache_bytes_per_token: int | None = None
    cache_bytes_per_source_token: int | None = None


def memory_of(supernet: Supernet, subnet: Subnet) -> Memory:
    """From the model's tensors; a model that writes is asked for a token, for its cache."""
    model = supernet.materialise(subnet).eval()
    weights = weight_bytes(model)
    if not supernet.head.generates:
        return Memory(weights)
    ids = random_tokens(supernet, 1, 4)
    writes: Any = model
    with torch.no_grad():
        found = writes.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=2,
            num_beams=1,
            do_sample=False,
            return_dict_in_generate=True,
        )
    cache = found.past_key_values
    if cache is None:
        return Memory(weights)
    if supernet.head.causal:
        return Memory(weights, _per_token(cache))
    return Memory(weights, _per_token(cache.self_attention_cache), _per_token(cache.cross_attention_cache))


def weight_bytes(model: nn.Module) -> int:
    """Of distinct parameters and buffers."""
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


def peak_activation_bytes(run: Callable[[], object], device: torch.device) -> int | None:
    """The most a call allocates beside what is there already; None where that is not measured (CPU)."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    return torch.cuda.max_memory_allocated(device) - before


def _per_token(cache: Any) -> int:
    """Heads x width x bytes of keys and values, over the layers; each of shape (B, H, n, width)."""
    tensors: list[Tensor] = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    return sum(tensor.shape[1] * tensor.shape[3] * tensor.element_size() for tensor in tensors)
