"""Choosing the blocks of a shallower model: planted blocks that do nothing, and stock models one by one."""

import pytest
import torch
from torch import nn

from ldsearch.errors import SpaceError
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.tasks import TASKS, Encoded, TextClassification
from ldsearch.tasks.objectives import Relevance
from ldsearch.training import shallower
from ldsearch.training.shallower import most_missed
from ldsearch.work.progress import Progress
from tests.tiny import tiny_model
from tests.training.test_trainer import TOKENIZER, examples

TASK = TextClassification({}, ("a", "b", "c"), {})


@pytest.fixture(autouse=True)
def in_fp32(monkeypatch):
    monkeypatch.setattr(shallower, "bf16_is_fast", lambda: False)


class Steps(Progress):
    """Counts what is told."""

    def __init__(self) -> None:
        self.total, self.done = 0, 0

    def phase(self, name: str, total: int | None) -> None:
        self.total = total or 0

    def step(self) -> None:
        self.done += 1


@pytest.mark.parametrize("idle", [(0, 3), (1, 2), (3, 4)])
def test_blocks_that_do_nothing_go_first(idle):
    net = Supernet(tiny_model("bert", blocks=5))
    with torch.no_grad():
        # Behind a norm without weights another one changes nothing.
        for norm in (module for module in net.model.modules() if isinstance(module, nn.LayerNorm)):
            norm.weight.fill_(1)
            norm.bias.zero_()
        for block in idle:
            layer = net.model.bert.encoder.layer[block]
            for dense in (layer.attention.output.dense, layer.output.dense):
                dense.weight.zero_()
                dense.bias.zero_()
    told = Steps()
    wanted = tuple(block for block in range(5) if block not in idle)
    assert most_missed(net, TASK, examples(), TOKENIZER, 3, progress=told) == wanted
    assert (told.total, told.done) == (5 + 4, 5 + 4)


def test_every_step_leaves_out_what_stock_models_miss_least():
    net, rows = Supernet(tiny_model("bert", blocks=4)).eval(), examples()
    batch = {
        name: tensor for name, tensor in TASK.collate(TOKENIZER, None)([*rows]).items() if name != "labels"
    }

    def answers(blocks) -> torch.Tensor:
        with torch.no_grad():
            return net.materialise(Subnet.of_encoder(blocks)).eval()(**batch).logits.log_softmax(dim=-1)

    whole, kept = answers(range(4)), tuple(range(4))
    for count in (3, 2, 1):
        losses = {}
        for block in kept:
            others = tuple(own for own in kept if own != block)
            losses[others] = nn.functional.kl_div(answers(others), whole, log_target=True, reduction="sum")
        kept = min(losses, key=lambda blocks: float(losses[blocks]))
        assert most_missed(net, TASK, rows, TOKENIZER, count) == kept


def test_examples_are_whole_and_as_many_as_have_the_tokens(monkeypatch):
    """Of 12 queries with three documents each, margins are compared of some, and of these of all three."""
    features = tuple({**row, "labels": [float(at % 3 == 0), at // 3]} for at, row in enumerate(examples(36)))
    rows = Encoded(features, 16, origins=tuple(at // 3 for at in range(36)))
    seen: list[list[int]] = []

    class Spied(Relevance):
        def divergence(self, teacher, student, batch, reverse=False):
            seen.append(batch["labels"][:, 1].int().tolist())
            return super().divergence(teacher, student, batch, reverse)

    monkeypatch.setattr(TASKS["ranking"], "objective", Spied())
    monkeypatch.setattr(shallower, "TOKENS", 150)
    net = Supernet(tiny_model("bert", blocks=2, labels=1))
    most_missed(net, TASKS["ranking"]({}, ("relevance",), {}), rows, TOKENIZER, 1)
    queries = seen[0]
    assert seen == [queries, queries]
    assert queries == sorted(queries)
    assert {queries.count(query) for query in queries} == {3}
    tokens = sum(rows.lengths[3 * query : 3 * query + 3].sum() for query in set(queries))
    assert 150 <= tokens < 150 + 3 * 16


def test_as_many_as_there_are_stay_and_no_other_number():
    net = Supernet(tiny_model("bert", blocks=3))
    assert most_missed(net, TASK, examples(), TOKENIZER, 3) == (0, 1, 2)
    for keep in (0, 4):
        with pytest.raises(SpaceError):
            most_missed(net, TASK, examples(), TOKENIZER, keep)
