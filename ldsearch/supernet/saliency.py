"""The learned token score: how much the loss depends on a token, by a linear map of what a block knows of it.

A block knows the state that entered it and what its attention read. The weights of the map are a buffer of
each stock layer (``ldsearch.training.saliency`` fits them), so they are averaged, cut and renumbered with it.
They are saved in a file of their own, since stock classes know no such tensor.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import cached_file  # type: ignore[attr-defined]

from ldsearch.errors import SupernetError, unknown
from ldsearch.supernet.correction import CORRECTION
from ldsearch.supernet.families.family import Parts
from ldsearch.supernet.left_behind import MAP
from ldsearch.supernet.tokens import TOKEN_SCORES, TokenScore

LEARNED = "learned"
WEIGHTS = "token_score"  # the buffer's name
WEIGHTS_FILE = "token_score.safetensors"
_FITTED = (WEIGHTS, MAP, CORRECTION)


def default_score(model: PreTrainedModel) -> str:
    """The token score where none is named: the learned one where a model has weights of it."""
    return LEARNED if score_weights(model) else "column"


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


def without_weights(model: PreTrainedModel) -> None:
    """Take the weights of a token score from a model: another score would carry them along, and they age."""
    for module in model.modules():
        for name in _FITTED:
            if hasattr(module, name):
                delattr(module, name)


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


def score_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of its token score, by their names in its state; none where it has none."""
    return {name: tensor for name, tensor in model.state_dict().items() if is_weights(name)}


def is_weights(name: str) -> bool:
    """Whether a tensor of that name holds weights of token scores, or what is fitted with them."""
    return name.rpartition(".")[2] in _FITTED


def save_with_weights(
    model: PreTrainedModel, folder: Path, extra: Mapping[str, Tensor] | None = None
) -> None:
    """Write a model folder that stock classes load whole, and the weights of its token score beside.

    Args:
        model: Stock, with weights or without.
        folder: Where it goes.
        extra: What its own file holds besides.
    """
    model.save_pretrained(folder, state_dict={**stock_weights(model), **(extra or {})})
    if own := score_weights(model):
        save_file(own, folder / WEIGHTS_FILE)


def require_weights(score: object, folder: Path) -> None:
    """Refuse a folder whose tokens are chosen by weights that it does not hold.

    Raises:
        SupernetError: If it is one.
    """
    if score == LEARNED and not (folder / WEIGHTS_FILE).is_file():
        raise SupernetError(f"{folder} has no {WEIGHTS_FILE}, which says what tokens it keeps")


def load_weights(model: PreTrainedModel, name: str) -> None:
    """Give a stock model the weights of its token score that lie beside it, if any do.

    Args:
        model: Stock.
        name: The folder or hub id that it is from.

    Raises:
        SafetensorError: If their file is damaged.
        AttributeError: If they are of another model.
    """
    path = cached_file(
        name,
        WEIGHTS_FILE,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,  # of a stock model the cache has all but this
    )
    for key, tensor in {} if path is None else load_file(path).items():
        module, _, buffer = key.rpartition(".")
        model.get_submodule(module).register_buffer(buffer, tensor.float())
