"""Sub-networks scored through the graph that will serve them."""

import numpy as np
import pytest
import torch

from ldsearch.costs.macs import Macs
from ldsearch.errors import SubnetError
from ldsearch.evaluation import Evaluator
from ldsearch.evaluation.served import ServedExecutor
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from tests.evaluation.test_evaluator import TASK, TOKENIZER, encoded
from tests.tiny import HEADED, learned, padded_batch, tiny_model

__all__ = ["encoded"]

REFERENCE = 24
FULL = Subnet.full(encoder=4)
SHORT = Subnet.of_encoder(range(4), [20, 12, 5, 2], REFERENCE)
SHORTER = Subnet.of_encoder(range(4), [12, 4, 4, 1], REFERENCE)


def served(supernet: Supernet, runtime: str = "onnx") -> ServedExecutor:
    return ServedExecutor(supernet.eval(), runtime, REFERENCE, lambda subnets: np.full(len(subnets), 7.0))


@pytest.mark.parametrize("head", [head for head in HEADED if head != "MaskedLM"])
def test_logits_are_those_of_the_supernet_and_every_index_comes_once(head):
    supernet = learned(tiny_model("bert", head=head))
    batch, found = padded_batch([24, 9, 3, 17], seed=3), {}
    executor, subnets = served(supernet), [SHORT, FULL, SHORTER, SHORT]
    executor.run(batch, subnets, lambda ends, own: found.update(dict.fromkeys(ends, own)))
    assert sorted(found) == [0, 1, 2, 3]
    assert found[0] is found[3]
    assert (executor.work.heads, executor.work.macs) == (3, 3 * 4 * 7)
    real = batch["attention_mask"].bool()
    for index, subnet in enumerate(subnets):
        want = inference(supernet, batch, subnet)
        where = real if want.ndim == 3 else slice(None)
        assert found[index].shape == want.shape
        torch.testing.assert_close(found[index][where], want[where], atol=1e-4, rtol=0)


def test_the_full_model_is_never_rounded():
    supernet = learned(tiny_model("bert"))
    batch, found = padded_batch([24, 9], seed=3), {}
    served(supernet, "onnx-int8").run(batch, [SHORT, FULL], lambda ends, own: found.update({ends[0]: own}))
    assert torch.equal(found[1], inference(supernet, batch, FULL))
    assert not torch.allclose(found[0], inference(supernet, batch, SHORT), atol=1e-6)


def test_other_blocks_than_all_are_refused():
    supernet = learned(tiny_model("bert"))
    with pytest.raises(SubnetError, match="lengths alone"):
        served(supernet).run(padded_batch([5, 3]), [Subnet.of_encoder([0, 2])], print)


def test_trials_are_those_of_the_own_executor(encoded):
    supernet = learned(tiny_model("bert")).eval()
    costs = (Macs(supernet.shape, encoded.workload), supernet.parameters_cost)
    here, there = (
        Evaluator(supernet, TASK, encoded, tokenizer=TOKENIZER, costs=costs, served=own)
        for own in (None, served(supernet))
    )
    wanted = [FULL, SHORT, SHORTER]
    assert [one.score for one in there(wanted)] == [one.score for one in here(wanted)]
    assert [one.score for one in there([SHORT])] == [one.score for one in here([SHORT])]
