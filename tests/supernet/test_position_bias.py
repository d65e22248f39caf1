"""A position bias: part of attention wherever it is computed or cut, and missed by the contract anywhere."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from ldsearch.evaluation import executor
from ldsearch.supernet import graph
from ldsearch.supernet.families.family import BIAS
from ldsearch.supernet.families.mpnet import MPNet
from ldsearch.supernet.tokens import Attention, attend, column, pairs
from ldsearch.testing import FamilyContract
from tests.tiny import tiny_model

Fail = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state").Fail


def test_pairs_are_rows_and_columns_of_one_table_or_of_one_a_row():
    generator = torch.Generator().manual_seed(0)
    index = torch.tensor([[3, 0], [1, 1], [0, 4]])
    for rows in (1, 3):
        whole = torch.randn(rows, 2, 5, 5, generator=generator)
        found = pairs(whole, index)
        for row, own in enumerate(index.tolist()):
            assert torch.equal(found[row], whole[row % rows][:, own][:, :, own])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_attention_adds_its_bias_whichever_way_it_is_computed(monkeypatch, rows, padded):
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = torch.randn(3, 3, 2, 7, 4, generator=generator)
    bias = torch.randn(rows, 2, 7, 7, generator=generator)
    real = torch.arange(7) < torch.tensor([[7], [4 if padded else 7], [7]])
    attention = Attention(queries, keys, values, real, 0.5, bias=bias)
    products = torch.einsum("bhqd,bhkd->bhqk", queries, keys) * 0.5 + bias
    wanted = products.masked_fill(~real[:, None, None], -torch.inf).softmax(-1) @ values
    torch.testing.assert_close(attend(attention, column)[0], wanted)
    torch.testing.assert_close(attend(attention, None, rate=0)[0], wanted)
    torch.testing.assert_close(attend(attention.of_queries(2), None)[0], wanted[:, :, :2])
    monkeypatch.setattr("ldsearch.supernet.tokens.CHUNK_BYTES", 1)  # a head of a row at a time
    torch.testing.assert_close(attend(attention, column)[0], wanted)


class NotInStockLayers(MPNet):
    def run(self, layer, state, config):
        return super().run(layer, replace(state, per_pair={}), config)


class NotWhereTokensAreDropped(MPNet):
    def attention(self, parts, state):
        return replace(super().attention(parts, state), bias=None)


class ByRank(MPNet):
    """The bias of those that are left as if they stood side by side."""

    def bias(self, layer, state):
        n = state.hidden.shape[1]
        return super().bias(layer, replace(state, positions=None))[:, :, :n, :n]


class OfTheFirstHeads(MPNet):
    """Where heads were cut out of the weights, the bias of others."""

    def bias(self, layer, state):
        whole, heads = state.pair(BIAS), getattr(layer, "heads_left", range(2))
        return whole[:, : len(heads)]


class OfTheTracedLength(MPNet):
    """A trace keeps the number of tokens that it saw."""

    def embed(self, model, batch):
        state, n = super().embed(model, batch), int(batch["input_ids"].shape[1])
        place = torch.arange(n)  # a constant
        return replace(state, per_pair={BIAS: state.per_pair[BIAS][:, :, place][..., place]})


LAWS = FamilyContract
WRONG: list[tuple[type[MPNet], Callable[[FamilyContract], None]]] = [
    (NotInStockLayers, LAWS.test_the_full_subnetwork_is_the_stock_model_bit_for_bit),
    (NotWhereTokensAreDropped, LAWS.test_training_drops_out_what_the_stock_model_drops_out),
    (ByRank, LAWS.test_a_subnetwork_is_the_stock_model_with_that_hidden_zeroed_or_bypassed),
    (OfTheFirstHeads, LAWS.test_a_materialised_model_is_its_subnetwork_and_counts_as_it),
    (OfTheTracedLength, LAWS.test_a_graph_is_its_subnetwork_in_every_runtime_installed),
]


class Contract(FamilyContract):
    __test__ = False
    runtimes = ("onnx",)

    def models(self):
        return [tiny_model("mpnet", blocks=3)]


@pytest.mark.parametrize(("family", "law"), WRONG)
def test_a_family_that_forgets_the_bias_in_one_place_fails_in_the_contract(monkeypatch, family, law):
    """Of the right one ``tests/test_laws.py`` tells."""
    monkeypatch.setattr("ldsearch.supernet.supernet.FAMILIES", {"mpnet": family()})
    with pytest.raises((AssertionError, Fail)):
        law(Contract())


@pytest.mark.parametrize(
    ("module", "name", "law"),
    [
        (executor, "rows_of", LAWS.test_sub_networks_that_share_give_what_each_gives_alone),
        (graph, "traced", LAWS.test_a_graph_is_its_subnetwork_in_every_runtime_installed),
    ],
)
def test_so_does_an_executor_or_a_graph_that_forgets_it(monkeypatch, module, name, law):
    whole = getattr(module, name)
    monkeypatch.setattr(module, name, lambda attention, *more: whole(replace(attention, bias=None), *more))
    with pytest.raises(AssertionError):
        law(Contract())
