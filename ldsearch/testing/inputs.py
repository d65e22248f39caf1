"""Inputs for the laws: random weights, padded batches, sub-networks of every kind."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from typing import TypeVar
from unittest import mock

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ldsearch.errors import LdsearchError
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import tokens
from ldsearch.supernet.families import family
from ldsearch.supernet.heads import logits_of

Model = TypeVar("Model", bound=PreTrainedModel)


def randomised(model: Model, generator: torch.Generator | None = None) -> Model:
    """The model in eval mode, every weight drawn from a wide normal: fresh norms hide mistakes.

    Args:
        model: Changed in place.
        generator: Of the draws; torch's own if left out.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue  # sinusoids, which stock code computes anew when it loads
            # Of the weights, norms' alone are vectors.
            is_norm_weight = parameter.ndim == 1 and name.endswith("weight")
            parameter.normal_(mean=1.0 if is_norm_weight else 0.0, std=0.3, generator=generator)
    model.train(False)
    return model


def padded_batch(lengths: Sequence[int], vocabulary: int, pad: int = 0, seed: int = 0) -> dict[str, Tensor]:
    """Random ids of the given true lengths, padded on the right.

    Args:
        lengths: Real tokens of each row.
        vocabulary: Ids lie below it.
        pad: The padding's id, which no real token has.
        seed: Of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    ids = torch.randint(1, vocabulary, (len(lengths), longest), generator=generator)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    ids = ids.masked_fill(ids == pad, 0).masked_fill(~mask, pad)
    return {"input_ids": ids, "attention_mask": mask.long()}


def stock_output(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """A stock model's logits, without gradients and without a cache.

    A cache puts the keys into another layout, whose products some processors round otherwise.
    """
    uncached = {"use_cache": False} if "use_cache" in signature(model.forward).parameters else {}
    with torch.no_grad():
        return logits_of(model(**batch, **uncached))


def assert_close(ours: Tensor, theirs: Tensor, subnet: Subnet, tolerance: float = 1e-5) -> None:
    """Equal within a share of the largest logit, or of 1."""
    assert ours.shape == theirs.shape
    ours, theirs = ours.detach(), theirs.detach()
    difference = float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1))
    assert difference <= tolerance, f"{difference:.2g} apart: {subnet.describe()}"


def one_of_each(blocks: int, reference: int) -> Mapping[str, Subnet]:
    """Sub-networks of every kind, by a word for it.

    Args:
        blocks: Of the model, at least three; each with two heads or more.
        reference: Reference length of the length configurations.
    """
    every, last = tuple(range(blocks)), blocks - 1
    falling = tuple(max(1, reference * (blocks - i) // (blocks + 1)) for i in every)
    half = reference // 2
    stacks = {
        "nothing": Stack(()),
        "no first block": Stack(every[1:]),
        "no second block": Stack((0, *every[2:])),
        "lengths": Stack(every, Lengths(falling, reference)),
        "lengths that level off": Stack(every, Lengths((half,) * blocks, reference)),
        "absolute lengths": Stack(every[1:], Lengths(falling[1:], reference, "absolute")),
        "heads": Stack(every, heads_off=((0, 1), (last, 0))),
        "narrow": Stack(every, ffn_share=tuple((block, 0.5) for block in every)),
        "one narrow block": Stack(every, ffn_share=((1, 0.3),)),
        "sub-layers": Stack(every, sublayers_off=((0, "feed_forward"), (1, "attention"))),
        "an empty block": Stack(every, sublayers_off=((last, "attention"), (last, "feed_forward"))),
        "lengths past an attention that is off": Stack(
            (0, 1, last), Lengths((half, half, 2), reference), sublayers_off=((1, "attention"),)
        ),
        "all at once": Stack(
            (0, last),
            Lengths((half, 3), reference),
            heads_off=((0, 0), (last, 1)),
            ffn_share=((last, 0.5),),
            sublayers_off=((0, "feed_forward"),),
        ),
    }
    return {kind: Subnet(encoder=stack) for kind, stack in stacks.items()}


def refuses(call: Callable[[], object], error: type[LdsearchError]) -> bool:
    """Whether a call raises that error, with one line for a person."""
    try:
        call()
    except error as refusal:
        return "\n" not in str(refusal)
    return False


@contextlib.contextmanager
def stock_masks() -> Iterator[None]:
    """Context in which dropout is torch's, which draws other masks of the same random state."""
    with (
        mock.patch.object(tokens, "dropout", nn.functional.dropout),
        mock.patch.object(family, "dropout", nn.functional.dropout),
    ):
        yield
