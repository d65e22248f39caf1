"""Searches without labels: the stock models' divergences, rows within a budget, a planted useless block."""

import numpy as np
import pytest
import torch
from torch.nn.functional import kl_div

from ldsearch.errors import DataError
from ldsearch.search import imitation
from ldsearch.search.imitation import imitator
from ldsearch.search.loop import search
from ldsearch.search.rules import Listed
from ldsearch.space import DepthGenes, Space
from ldsearch.subnet import Subnet


def test_a_useless_block_is_found_without_labels(writer):
    space = Space("two", "of three", (DepthGenes("decoder", 3, (2,)),))
    evaluator = imitator(writer)
    line = Listed("every", list(space.enumerate()))
    result = search(line, evaluator, writer.full)
    (proposed,) = (trial.subnet for trial in result.frontier if trial.subnet in result.proposed)
    assert proposed == Subnet.of_blocks({"decoder": (0, 2)})
    found = {tried: trial.score.value for tried in space.enumerate() for trial in evaluator([tried])}
    assert found.pop(proposed) < 1e-9
    assert min(found.values()) > 0.1
    (full,) = evaluator([writer.full])
    assert full.metric == "kl"
    assert full.score.value < 1e-9


def test_a_translators_divergence_is_that_of_its_stock_models(translator, monkeypatch):
    monkeypatch.setattr(imitation, "ROWS", 8)
    evaluator = imitator(translator)
    assert evaluator.examples == 8
    subnets = [Subnet.of_blocks({"encoder": m, "decoder": n}) for m in ((0,), (0, 1)) for n in ((1,), (0, 1))]
    found = [trial.score.value for trial in evaluator(subnets)]
    expected = []
    teacher, *_ = models = [translator.supernet.materialise(subnet).eval() for subnet in subnets[::-1]]
    for model in models[::-1]:
        nats = []
        for feature in evaluator.encoded:
            batch = {name: torch.tensor([values]) for name, values in feature.items()}
            with torch.no_grad():
                theirs, ours = (m(**batch).logits[0].double().log_softmax(-1) for m in (teacher, model))
            nats.append(float(kl_div(ours, theirs, log_target=True, reduction="sum")) / len(theirs))
        expected.append(np.mean(nats))
    assert min(expected[:3]) > 1e-3
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_a_budget_takes_fewer_rows_and_the_same_score(writer):
    some, all_ = Subnet.of_blocks({"decoder": (0,)}), imitator(writer)
    vocabulary = len(writer.tokenizer)
    longest = 4 * vocabulary * (writer.record.reference - 1)
    small = imitator(writer, 3 * longest)
    assert 3 <= small.examples < all_.examples
    rows = [list(all_.encoded).index(feature) for feature in small.encoded]
    np.testing.assert_allclose(small.statistics(some), all_.statistics(some)[rows], rtol=1e-4)
    assert small.fingerprint != all_.fingerprint
    with pytest.raises(DataError, match="a single row are larger than the budget"):
        imitator(writer, vocabulary)
