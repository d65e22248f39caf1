"""Health: inherited scores beside those of sub-networks trained on their own."""

import os
from json import dumps
from pathlib import Path

import numpy as np
import pytest

from ldsearch import Bench
from ldsearch.costs.workload import Workload
from ldsearch.search.health import draw_in_bins
from ldsearch.space import load_space
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from tests.cli.conftest import Ldsearch, read, rows
from tests.tiny import tiny_model


def health(ldsearch: Ldsearch, *flags: object) -> object:
    return ldsearch("report", "--health", "--count", 3, "--steps", 2, *flags)


def test_fine_tuning_with_a_rate_of_zero_changes_no_score(ldsearch: Ldsearch, place: Path) -> None:
    """And both scores are of different rows; weights to start from replace the inherited ones."""
    (place / "elsewhere").mkdir()
    (place / "reviews.csv").rename(place / "elsewhere/reviews.csv")
    moved = ("--data", "elsewhere/reviews.csv")
    assert health(ldsearch, "--learning_rate", 0, *moved, "--start", "runs/tiny").code == 0
    found = rows(place / "runs/tiny-health/health.csv")
    assert len(found) == 3
    for split, columns in (("search", ("inherited",)), ("report", ("fine_tuned", "from_start"))):
        bench = Bench.open(place / "runs/tiny", split, "elsewhere/reviews.csv")
        for row in found:
            score = bench.score(bench.evaluator.statistics(Subnet.from_json(row["subnet"]))).value
            assert [float(row[column]) for column in columns] == pytest.approx([score] * len(columns))


def test_taus_are_of_the_table_and_finished_sub_networks_are_kept(ldsearch: Ldsearch, place: Path) -> None:
    assert health(ldsearch, "--learning_rate", "1e-2").code == 0
    folder = place / "runs/tiny-health"
    written = {f"health.{kind}" for kind in ("csv", "json", "png", "svg")}
    assert {*os.listdir(folder)} == written | {"run.json", *(f"subnet-{i}.json" for i in range(3))}
    # Planted scores are taken as they are: nothing is trained again.
    for i in range(3):
        row = read(folder / f"subnet-{i}.json")
        planted = {"inherited": [1, 3, 2][i], "fine_tuned": [1, 2, 3][i], "macs_share": [0.5, 0.6, 0.7][i]}
        (folder / f"subnet-{i}.json").write_text(dumps({**row, **planted}))
    outcome = health(ldsearch, "--learning_rate", "1e-2")
    fields = read(folder / "health.json")
    assert fields["tau"] == pytest.approx(1 / 3)  # of three pairs two agree
    assert fields["tau_within"] == pytest.approx(1 / 3)  # three are one bin
    assert fields["tau_of_cost"] == pytest.approx(1)
    assert fields["tau_partial"] is None  # the cost ranks one side perfectly
    assert "at equal cost 0.333" in outcome.out
    assert "30 or more can tell" in outcome.out
    assert "0.333" in ldsearch("info", "runs/tiny-health").out
    for verb in ("evaluate", "report"):
        assert "is a health run" in ldsearch.refused(verb, "runs/tiny-health")


def test_where_few_costs_are_there_a_bin_has_those_that_lie_in_it(tmp_path: Path) -> None:
    """Of depths alone: what is nearest to the middle of one may lie in another, and cost more."""
    (tmp_path / "depths.yaml").write_text(
        "name: depths\nsource: here\nblocks: 6\ndepth: {keep: [1, 2, 3, 4, 5, 6]}\n"
    )
    space = load_space(str(tmp_path / "depths.yaml"), blocks=6, reference=128)
    macs = Supernet(tiny_model("bert", blocks=6)).macs(Workload.padded(128))
    subnets, bins = draw_in_bins(space, macs, 40, seed=1)
    low, high = macs([space.smallest(), space.largest()])
    ends = np.linspace(low, high, 11)
    assert np.clip(np.searchsorted(ends, macs(subnets), "right") - 1, 0, 9).tolist() == bins
    depths = {number: set() for number in bins}
    for subnet, number in zip(subnets, bins, strict=True):
        depths[number].add(len(subnet.stacks()["encoder"].blocks))
    assert all(len(own) == 1 for own in depths.values())


def test_sub_networks_of_a_bin_cost_about_the_same() -> None:
    space = load_space("demo", blocks=6, reference=128)
    macs = Supernet(tiny_model("bert", blocks=6)).macs(Workload.padded(128))
    subnets, bins = draw_in_bins(space, macs, 14, seed=1)
    assert len(set(subnets)) == len(subnets) == 14
    assert [bins.count(number) for number in range(4)] == [4, 4, 3, 3]
    costs, width = macs(subnets), np.ptp(macs([space.smallest(), space.largest()])) / 4
    assert all(np.ptp(costs[np.array(bins) == number]) < 0.25 * width for number in range(4))
    assert all(space.contains(subnet) for subnet in subnets)
    assert (subnets, bins) == draw_in_bins(space, macs, 14, seed=1)
    assert subnets != draw_in_bins(space, macs, 14, seed=2)[0]
