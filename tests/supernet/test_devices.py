"""Every family forwards and backwards on a device other than the processor, made up by ``FakeTensorMode``.

Tensors have shapes and devices there and no numbers, so it needs no GPU; two tensors on different devices
fail as they would on one. Answers that the code reads from the device are made up too, both ways.
"""

import itertools
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import backend_registration
from transformers import PreTrainedModel

from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.testing.inputs import one_of_each
from tests import fresh
from tests.supernet.test_generic import build
from tests.tiny import DECODERS, ENCODER_DECODERS, FAMILIES, padded_batch

DEVICE = "elsewhere:0"
BATCH = padded_batch([12, 5, 9, 4])
BATCH["labels"] = padded_batch([6, 4, 2, 3], seed=1)["input_ids"]


class Elsewhere(FakeTensorMode):
    """A device without numbers; what is read from it is ``answers`` for booleans, 3 or 7 for integers."""

    avoid_device_init = True  # there is none to initialise

    def __init__(self, answers: Iterator[bool]) -> None:
        super().__init__()
        self.answers, self.numbers = answers, itertools.cycle((3, 7))

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return next(self.answers if args[0].dtype == torch.bool else self.numbers)
        return super().dispatch(func, types, args, kwargs)


def moved(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=DEVICE)


def move(model: PreTrainedModel) -> None:
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = moved(tensor)
                    if tensors is module._parameters:
                        tensors[name] = torch.nn.Parameter(tensors[name])


def subnets(supernet: Supernet) -> list[Subnet]:
    if "decoder" not in supernet.stacks:
        kinds = one_of_each(supernet.blocks, 12)
        return [kinds["lengths"], kinds["all at once"]]
    if "encoder" not in supernet.stacks:
        return [Subnet(decoder=Stack((0, 2)))]
    lengths = Lengths((7, 2), 12) if supernet.supports_lengths else None
    return [Subnet(Stack((0, 2), lengths), Stack((1, 3)))]


def run(name: str, planted: bool) -> None:
    """Forward and backward of a family's sub-networks; ``planted`` leaves the mask on the processor."""
    if torch._C._get_privateuse1_backend_name() != "elsewhere":
        backend_registration._setup_privateuseone_for_python_backend("elsewhere")
    model = build(name)
    # The first answers say that padding is on the right. The others: no padding at all, or some.
    for others in (True, False):
        with Elsewhere(iter(())) as mode:
            move(model)
            supernet = Supernet(model.train())
            inputs = supernet.inputs({key: moved(tensor) for key, tensor in BATCH.items()})
            if planted:
                inputs["attention_mask"] = torch.empty(BATCH["attention_mask"].shape, dtype=torch.int64)
            checks = len(supernet.stacks)  # of the padding's side
            for subnet in subnets(supernet):
                mode.answers = itertools.chain([True] * checks, itertools.repeat(others))
                logits = logits_of(supernet(inputs, subnet))
                assert logits.device == torch.device(DEVICE)
                logits.square().sum().backward()
                supernet.zero_grad()


def attempt(name: str, planted: bool) -> str:
    """The traceback as text (torch's errors do not pass between processes); empty if all went well."""
    try:
        run(name, planted)
    except Exception:
        return traceback.format_exc()
    return ""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Callable[..., str]]:
    """``attempt`` in a process of its own: a registered device stays for the life of a process."""
    with ProcessPoolExecutor(1, fresh.CONTEXT) as pool:
        yield lambda name, planted=False: pool.submit(attempt, name, planted).result()


@pytest.mark.parametrize("name", [*FAMILIES, *DECODERS, *ENCODER_DECODERS])
def test_every_tensor_is_made_where_the_model_is(name, elsewhere):
    assert elsewhere(name) == ""


def test_a_tensor_on_the_processor_is_noticed(elsewhere):
    # As torch 2.13 says it, and 2.11.
    said = elsewhere("bert", planted=True)
    assert "to be on the same device" in said or "found two different devices" in said
