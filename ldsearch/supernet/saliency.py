"""The learned token score: how much the loss depends on a token, by a linear map of what a block knows of it.

A block knows the state that entered it and what its attention read. The weights of the map are a buffer of
each stock layer (``ldsearch.training.saliency`` fits them), so they are saved, averaged, cut and renumbered
with it. Stock classes know no such tensor and leave it out.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import cached_file  # type: ignore[attr-defined]

from ldsearch.errors import SupernetError, unknown
from ldsearch.supernet.families.family import Parts
from ldsearch.supernet.tokens import TOKEN_SCORES, TokenScore

LEARNED = "learned"
WEIGHTS = "token_score"  # the buffer's name


def token_score(name: object) -> TokenScore | None:
    """The token score of that name; None for the learned one, which no attention tells alone.

    Raises:
        SupernetError: If there is none.
    """
    if name == LEARNED:
        return None
    if not isinstance(name, str) or name not in TOKEN_SCORES:
        raise SupernetError(unknown("token score", str(name), (LEARNED, *TOKEN_SCORES)))
    return TOKEN_SCORES[name]


def with_weights(parts: Parts) -> None:
    """Give a layer weights, unless it has some; zeros until they are fitted."""
    if not hasattr(parts.layer, WEIGHTS):
        width = parts.output.out_features + parts.output.in_features
        parts.layer.register_buffer(WEIGHTS, parts.output.weight.new_zeros(width, dtype=torch.float32))


def saliency(layer: Any, entered: Tensor, context: Tensor) -> Tensor:
    """Score of each token.

    Args:
        layer: A stock layer with weights.
        entered: Shape (B, n, d), what enters the block.
        context: Shape (B, n, heads' width), what its attention read, before the output projection.

    Returns:
        Shape (B, n), in fp32 whatever the layer computes in: scores of half precision tie.
    """
    weights: Tensor = getattr(layer, WEIGHTS)
    known = torch.cat([entered.detach().float(), context.detach().float()], dim=-1)
    # A product and a sum, which autocast leaves in fp32.
    return (known * weights).sum(dim=-1)


def narrow_weights(parts: Parts, inner: Tensor) -> None:
    """Keep the weights of some of the heads' outputs, in place of the layer's."""
    if hasattr(parts.layer, WEIGHTS):
        weights = getattr(parts.layer, WEIGHTS)
        whole = torch.arange(parts.output.out_features)
        setattr(parts.layer, WEIGHTS, weights[torch.cat([whole, parts.output.out_features + inner])])


def stock_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The state of a model without the weights of token scores."""
    return {name: tensor for name, tensor in model.state_dict().items() if not is_weights(name)}


def is_weights(name: str) -> bool:
    """Whether a tensor of that name holds weights of token scores."""
    return name.endswith(f".{WEIGHTS}")


def load_weights(model: PreTrainedModel, name: str, unexpected: Collection[str]) -> None:
    """Weights of token scores that lie beside a stock model's own.

    Args:
        model: Loaded by its stock class.
        name: The folder or hub id it was loaded from.
        unexpected: What the stock class did not take.
    """
    own = set(filter(is_weights, unexpected))
    if not own:
        return
    folder = Path(cast(str, cached_file(name, "config.json"))).parent
    for key, tensor in _read(folder, own):
        layer: nn.Module = model.get_submodule(key.removesuffix(f".{WEIGHTS}"))
        layer.register_buffer(WEIGHTS, tensor.float())


def _read(folder: Path, names: Collection[str]) -> Iterator[tuple[str, Tensor]]:
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as weights:
            for name in set(weights.keys()) & set(names):
                yield name, weights.get_tensor(name)
