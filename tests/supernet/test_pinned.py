"""A pair's first text that is pinned: never dropped, run alone, together, in a graph, loaded; and costs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ldsearch.costs.workload import Workload
from ldsearch.evaluation.executor import Executor
from ldsearch.evaluation.prefixes import PrefixCache
from ldsearch.latency.runtimes import graph_runtime
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.graph import KEEP, trace
from ldsearch.supernet.supernet import inference
from ldsearch.supernet.tokens import PINNED
from ldsearch.testing.inputs import stock_output
from tests.supernet.exported import reloaded
from tests.tiny import learned, padded_batch, tiny_model

END = 59
FIRST = [3, 7, 1, 12]  # tokens of each row's first text; one ends none
LENGTHS = [20, 12, 9, 20]


@pytest.fixture
def batch() -> dict[str, Tensor]:
    batch = padded_batch(LENGTHS)
    batch["input_ids"][batch["input_ids"] == END] = 5
    for row, first in enumerate(FIRST):
        if first > 1:
            batch["input_ids"][row, first - 1] = END
            batch["input_ids"][row, first + 1] = END  # the second text has an end too
    return batch


def pinned(score: str = "column", **options: object) -> Supernet:
    model = tiny_model("bert", labels=1, **options)
    setattr(model.config, PINNED, END)
    return (learned(model) if score == "learned" else Supernet(model, score)).eval()


SUBNETS = [
    Subnet.of_encoder(range(4), tokens, 20)
    for tokens in ([20, 16, 8, 2], [10, 6, 6, 2], [4, 3, 2, 2], [20, 20, 11, 11])
]


@pytest.mark.parametrize("score", ["column", "learned"])
def test_no_token_of_a_first_text_is_dropped(batch: dict[str, Tensor], score: str) -> None:
    supernet = pinned(score)
    subnet, seen = Subnet.of_encoder(range(4), [10, 4, 3, 2], 20), []
    inference(supernet, batch, subnet, lambda block, before, after: seen.append(after) or after.hidden)
    for place, state in enumerate(seen):
        for row, (n, first) in enumerate(zip(LENGTHS, FIRST, strict=True)):
            kept = state.positions[row][state.real[row]].tolist()
            assert kept[:first] == [*range(first)]
            assert len(kept) == max(first, subnet.encoder.lengths.kept(place, n))


@pytest.mark.parametrize("score", ["column", "learned"])
def test_run_together_and_in_a_graph_it_is_the_same(batch: dict[str, Tensor], score: str, tmp_path: Path):
    pytest.importorskip("onnxruntime")
    supernet, cache, found = pinned(score), PrefixCache(10**8), {}

    def keep(ends, logits):
        found.update(dict.fromkeys(ends, logits))

    for _ in range(2):
        Executor(supernet).run(batch, SUBNETS, keep, cache)
    trace(supernet, SUBNETS[0], path := tmp_path / "model.onnx", fed=range(supernet.blocks))
    graph = graph_runtime("onnx").of_graph(path)
    for index, subnet in enumerate(SUBNETS):
        wanted = inference(supernet, batch, subnet)
        (logits,) = graph({**batch, KEEP: torch.tensor([subnet.encoder.lengths.tokens])})
        for one in (found[index], torch.from_numpy(logits)):
            torch.testing.assert_close(one, wanted, atol=1e-5, rtol=1e-4)


def test_costs_know_how_much_stays() -> None:
    supernet = pinned()
    workload = Workload.from_pairs([20, 20], [9, 9], 20)
    low, raised = (Subnet.of_encoder(range(4), tokens, 20) for tokens in ([12, 9, 5, 2], [12, 9, 9, 9]))
    plain = Supernet(tiny_model("bert", labels=1))
    assert supernet.macs(workload)([low]) == plain.macs(workload)([raised]) > plain.macs(workload)([low])
    assert Workload.from_dict(workload.to_dict()) == workload
    assert replace(workload, pinned=()) == Workload.from_lengths([20, 20], 20)


@pytest.mark.parametrize("subnet", [SUBNETS[1], Subnet.of_encoder([0, 2])])
def test_an_export_keeps_it(batch: dict[str, Tensor], tmp_path: Path, subnet: Subnet) -> None:
    supernet = pinned("learned")
    found = stock_output(reloaded(supernet, subnet, tmp_path), batch)
    torch.testing.assert_close(found, inference(supernet, batch, subnet), atol=1e-5, rtol=1e-4)
