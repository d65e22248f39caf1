"""A position bias that is forgotten in one place fails in the contract; ``test_fast_path`` computes it."""

from dataclasses import replace

import pytest
import torch

from ldsearch.evaluation import executor
from ldsearch.supernet import graph
from ldsearch.supernet.families.family import BIAS
from ldsearch.supernet.families.mpnet import MPNet
from ldsearch.testing import FamilyContract
from tests.tiny import tiny_model

Fail = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state").Fail


class Contract(FamilyContract):
    __test__ = False
    runtimes = ("onnx",)

    def models(self):
        return [tiny_model("mpnet", blocks=3)]


def not_in_stock_layers(run):
    return lambda family, layer, state, config: run(family, layer, replace(state, per_pair={}), config)


def not_where_tokens_drop(attention):
    return lambda *given: replace(attention(*given), bias=None)


def by_rank(bias):
    """Of those that are left, as if they stood side by side."""

    def wrong(family, layer, state):
        n = state.hidden.shape[1]
        return bias(family, layer, replace(state, positions=None))[:, :, :n, :n]

    return wrong


def of_the_first_heads(bias):
    """Where heads were cut out of the weights, that of others."""
    return lambda family, layer, state: state.pair(BIAS)[:, : len(getattr(layer, "heads_left", range(2)))]


def of_the_traced_length(embed):
    """A trace keeps the number of tokens that it saw."""

    def wrong(family, model, batch):
        state, place = embed(family, model, batch), torch.arange(int(batch["input_ids"].shape[1]))
        return replace(state, per_pair={BIAS: state.per_pair[BIAS][:, :, place][..., place]})

    return wrong


def not_in(called):
    return lambda attention, *more: called(replace(attention, bias=None), *more)


@pytest.mark.parametrize(
    ("where", "name", "wrong", "law"),
    [
        (MPNet, "run", not_in_stock_layers, "the_full_subnetwork_is_the_stock_model_bit_for_bit"),
        (MPNet, "attention", not_where_tokens_drop, "training_drops_out_what_the_stock_model_drops_out"),
        (MPNet, "bias", by_rank, "a_subnetwork_is_the_stock_model_with_that_hidden_zeroed_or_bypassed"),
        (MPNet, "bias", of_the_first_heads, "a_materialised_model_is_its_subnetwork_and_counts_as_it"),
        (MPNet, "embed", of_the_traced_length, "a_graph_is_its_subnetwork_in_every_runtime_installed"),
        (executor, "rows_of", not_in, "sub_networks_that_share_give_what_each_gives_alone"),
        (graph, "traced", not_in, "a_graph_is_its_subnetwork_in_every_runtime_installed"),
    ],
)
def test_a_bias_that_is_forgotten_in_one_place_fails_in_the_contract(monkeypatch, where, name, wrong, law):
    """Of the right one ``tests/test_laws.py`` tells."""
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    with pytest.raises((AssertionError, Fail)):
        getattr(Contract(), f"test_{law}")()
