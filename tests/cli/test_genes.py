"""evolve over depths, lengths and groups: the frontier against brute force, spaces from files, refusals."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from ldsearch.bench import Bench
from ldsearch.commands.spaces import search_space
from ldsearch.pareto import frontier
from ldsearch.subnet import Subnet
from tests.cli.conftest import Ldsearch, read, unsettle

SPACE = """
name: mine
source: a test
blocks: 2
depth: {keep: [1, 2]}
lengths: {reference: 16, mode: ratio, drop_bound: 0.5, levels: 4, pin_last: true}
options: [{ffn_share: 0.5}]
"""


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("genes", ["depth", "depth+lengths", "head+ffn+depth", "sublayer"])
def test_a_search_that_may_measure_everything_finds_the_true_frontier(
    ldsearch: Ldsearch, place: Path, genes: str
) -> None:
    unsettle(place / "runs/tiny")
    outcome = ldsearch("evolve", "--genes", genes, "--strategy", "random", "--evaluations", 500)
    assert outcome.code == 0, outcome.err
    bench = Bench.open("runs/tiny")
    space = search_space(bench, genes=genes)
    least = bench.macs([space.smallest()])[0]
    allowed = [subnet for subnet in space.enumerate() if bench.macs([subnet])[0] >= least]
    alone = [np.stack(bench.evaluator.outputs(subnet)) for subnet in [bench.full, *allowed]]
    values = [bench.score(bench.task.statistics(list(one), bench.evaluator.encoded)).loss for one in alone]
    costs = bench.macs([bench.full, *allowed])
    truth = frontier(np.stack([costs, values], axis=1))
    rows = rows_of(place / f"runs/tiny-random-{genes}")
    found = [row for row in rows if row["on_frontier"] == "True"]
    points = {(round(float(row["macs"])), round(float(row["score"]), 8)) for row in found}
    assert points == {(round(costs[i]), round(-values[i], 8)) for i in truth}
    assert all(space.contains(Subnet.from_json(row["subnet"])) for row in rows[1:])


def test_a_space_from_a_file_is_searched_and_exported(ldsearch: Ldsearch, place: Path) -> None:
    (place / "mine.yaml").write_text(SPACE)
    outcome = ldsearch("evolve", "--space", "mine.yaml", "--evaluations", 15, "--budget", "0.7")
    assert outcome.code == 0, outcome.err
    assert "feed-forward halves were not trained" in outcome.err
    assert "control regular" in outcome.out
    chosen = json.dumps(read(place / "runs/tiny-evolve/best.json")["subnet"])
    assert Subnet.from_json(chosen).encoder.blocks
    assert (exported := ldsearch("export", "runs/tiny-evolve", "out")).code == 0, exported.err


def test_genes_that_were_not_trained_are_noted(ldsearch: Ldsearch, place: Path) -> None:
    outcome = ldsearch("evolve", "--genes", "ffn", "--evaluations", 4)
    assert outcome.code == 0, outcome.err
    assert "note: feed-forward halves were not trained" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--genes", "width"), "unknown genes 'width'"),
        (("--genes", "depth+depth"), "unknown genes 'depth+depth'"),
        (("--genes", "depth", "--space", "demo"), "name it or --genes, not both"),
        (("--genes", "depth", "--parity"), "--parity is the length-adaptive paper's search"),
        (("--genes", "lengths+sublayer"), "attention scores the tokens"),
        (("--genes", "depth", "--strategy", "lat"), "it chooses lengths only"),
        (("--space", "joint-6x128"), "6} blocks, the supernet has"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_line(
    ldsearch: Ldsearch, place: Path, arguments: tuple[str, ...], words: str
) -> None:
    outcome = ldsearch("evolve", *arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert outcome.err.strip().splitlines()[-1].startswith("error: ")
