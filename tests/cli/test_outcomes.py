"""What a search reports: its controls, its frontier on rows that chose nothing, and what was asked for."""

import json
from pathlib import Path

import numpy as np
import pytest

from ldsearch.bench import Bench
from ldsearch.search.spaces import search_space
from ldsearch.subnet import Subnet
from ldsearch.trials.intervals import paired_bootstrap
from tests.cli.conftest import WILD_SEARCH, Ldsearch, read, rows

Row = dict[str, str]


def by_strategy(path: Path) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows(path):
        found.setdefault(row["strategy"], []).append(row)
    return found


def number(row: Row, *names: str) -> tuple[float, ...]:
    return tuple(float(row[name]) for name in names)


class Fresh:
    """Statistics of a split by the model itself: nothing stored is read."""

    def __init__(self, folder: Path, split: str, elsewhere: Path) -> None:
        self.bench = Bench.open(folder, split, runs=elsewhere)

    def __call__(self, subnet: Subnet) -> np.ndarray:
        evaluator = self.bench.evaluator
        predictions = np.stack(evaluator.outputs(subnet)).argmax(axis=-1)
        return (predictions == [row["labels"] for row in evaluator.encoded]).astype(float)

    def of(self, row: Row) -> np.ndarray:
        return self(Subnet.from_json(row["subnet"]))


def test_random_search_makes_as_many_measurements_as_the_search_in_the_same_space(wild: Path) -> None:
    trials = rows(wild / "runs/tiny-evolve/trials.csv")
    assert len(rows(wild / "runs/tiny-evolve/frontier.csv")) >= 3  # or what follows would test little
    controls = by_strategy(wild / "runs/tiny-evolve/controls.csv")
    assert set(controls) == {"random", "constant-ratio"}
    assert len(trials) == len(controls["random"]) == 30
    assert 3 < len(controls["constant-ratio"]) <= 30  # a coarse grid holds no longer line
    space = search_space(Bench.open(wild / "runs/tiny"))
    for found in controls.values():
        subnets = [Subnet.from_json(row["subnet"]) for row in found]
        assert subnets[0] == Subnet.full(3)
        assert len(set(subnets)) == len(subnets)
        assert all(space.contains(subnet) for subnet in subnets[1:])
    searched = {row["subnet"] for row in trials}
    assert len({row["subnet"] for row in controls["random"]} - searched) > 5  # it is another search


def test_a_control_is_measured_and_marked_as_the_search_is(wild: Path) -> None:
    measured = {row["subnet"]: row for row in rows(wild / "runs/tiny-evolve/trials.csv")}
    same = ("score", "macs", "macs_share", "padded_macs", "parameters", "split", "examples", "fingerprint")
    for found in by_strategy(wild / "runs/tiny-evolve/controls.csv").values():
        common = [row for row in found if row["subnet"] in measured]
        assert common
        for row in common:
            assert [row[name] for name in same] == [measured[row["subnet"]][name] for name in same]


def test_a_swapped_search_chooses_on_report_and_its_held_out_columns_are_a_fresh_measurement_of_the_others(
    ldsearch: Ldsearch, wild_place: Path
) -> None:
    before = (wild_place / "runs/tiny-evolve/trials.csv").read_bytes()
    outcome = ldsearch.done("evolve", *WILD_SEARCH, "--swap")
    assert outcome.out.startswith("supernet runs/tiny: 40 report examples\n")
    assert "on 40 search examples, which chose nothing" in outcome.out
    assert (wild_place / "runs/tiny-evolve/trials.csv").read_bytes() == before
    run, (chosen_on, other) = wild_place / "runs/tiny-evolve-swap", ("report", "search")
    choosing, held = (
        Fresh(wild_place / "runs/tiny", split, wild_place / "new") for split in (chosen_on, other)
    )
    full = Subnet.full(3)
    front = rows(run / "frontier.csv")
    assert len(front) > 1
    for row in front:
        assert (row["split"], row["held_out_split"]) == (chosen_on, other)
        assert number(row, "score") == pytest.approx((choosing.of(row).mean(),))
        own = held.of(row)
        assert number(row, "held_out_examples", "held_out_score") == pytest.approx((40, own.mean()))
        expected = paired_bootstrap(own, held(full))
        assert number(row, "difference", "difference_low", "difference_high") == pytest.approx(
            (own.mean() - held(full).mean(), expected.low, expected.high), abs=1e-9
        )
    assert not (wild_place / "new").exists()
    trials, best = rows(run / "trials.csv"), read(run / "best.json")
    assert {row["split"] for row in trials} == {"report"}
    affordable = [number(row, "score")[0] for row in trials[1:] if float(row["macs_share"]) <= 0.8]
    assert best["score"] == pytest.approx(max(affordable))
    assert (best["split"], best["held_out"]["split"]) == ("report", "search")
    assert "on 40 search examples" in ldsearch.done("evaluate", run).out


def area(staircase: list[tuple[float, float]], low: float, high: float) -> float:
    """Mean height of stairs between two costs: each step holds until the next, the last to the end."""
    ends = [cost for cost, _ in staircase[1:]] + [high]
    steps = zip(staircase, ends, strict=True)
    return sum(score * max(0.0, min(end, high) - max(cost, low)) for (cost, score), end in steps) / (
        high - low
    )


def test_what_the_search_chose_and_gained_can_be_computed_from_its_files(wild: Path, tmp_path: Path) -> None:
    run, printed = wild / "runs/tiny-evolve", " ".join((wild / "said.txt").read_text().split())
    tables = {"": rows(run / "frontier.csv"), **by_strategy(run / "controls.csv")}
    held = Fresh(wild / "runs/tiny", "report", tmp_path / "new")
    best = read(run / "best.json")
    own, full = held(Subnet.from_json(json.dumps(best["subnet"]))), held(Subnet.full(3))
    found = best["held_out"]
    assert (found["split"], found["score"], found["full_score"]) == ("report", own.mean(), full.mean())
    assert found["difference"]["mean"] == pytest.approx(own.mean() - full.mean())
    assert f"on 40 report examples, which chose nothing: {own.mean():.4f}" in printed
    stairs, choices = {}, {}
    for name, table in tables.items():
        front = [row for row in table if row["on_frontier"] == "True"]
        assert [float(row["held_out_score"]) for row in front] == [held.of(row).mean() for row in front]
        stairs[name] = sorted(number(row, "macs", "held_out_score") for row in front)
        affordable = [row for row in front if float(row["macs_share"]) <= 0.8]
        choices[name] = max(affordable, key=lambda row: float(row["macs"]))  # the best of a frontier
    low, high = max(one[0][0] for one in stairs.values()), number(rows(run / "trials.csv")[0], "macs")[0]
    gains = read(run / "run.json")["held_out"]["gains"]
    for name in ("random", "constant-ratio"):
        gain = area(stairs[""], low, high) - area(stairs[name], low, high)
        assert gains[name]["mean"] == pytest.approx(gain, abs=1e-12)
        own, theirs = (number(choices[key], "held_out_score")[0] for key in ("", name))
        said = f"over {name}, {len(tables[name])} trials: {own - theirs:+.4f} ("
        assert said in printed
        assert f"by its choice, at {number(choices[name], 'macs_share')[0]:.3f}; {gain:+.4f} (" in printed


def test_a_score_that_nothing_reaches_is_one_line_and_another_is_chosen_from_the_same_measurements(
    ldsearch: Ldsearch, wild_place: Path
) -> None:
    search = ("evolve", "--supernet", "runs/tiny", "--evaluations", "12", "--name", "new")
    refused = ldsearch(*search, "--at-least", "1.01")
    assert refused.code == 2
    trials = rows(wild_place / "runs/new/trials.csv")
    best = max(number(row, "score")[0] for row in trials[1:])
    (line,) = [text for text in refused.err.splitlines() if text]
    assert line.startswith("error: none of the 11 measured sub-networks has accuracy at least 1.01 (1.0100)")
    assert f"the best has {best:.4f}" in line
    outcome = ldsearch.done(*search, "--at-least", "full")
    full = number(trials[0], "score")[0]
    enough = [row for row in trials[1:] if number(row, "score")[0] >= full]
    cheapest = min(enough, key=lambda row: number(row, "macs"))
    best = read(wild_place / "runs/new/best.json")
    assert Subnet.from_json(json.dumps(best["subnet"])) == Subnet.from_json(cheapest["subnet"])
    assert "chosen (at least full): accuracy" in outcome.out
    run = read(wild_place / "runs/new/run.json")
    # The search itself is known, and what it has to beat; random search comes after the choice.
    assert run["this_call"]["search"]["measured"] <= sum(run["controls"].values()) - 2
    assert run["this_call"]["search"]["cached"] >= 12


def test_a_short_search_spans_the_cost_range_too(ldsearch: Ldsearch, wild_place: Path) -> None:
    ldsearch.done("evolve", "--evaluations", 6, "--name", "short")
    found = rows(wild_place / "runs/short/trials.csv")
    assert len(found) == 6
    every = rows(wild_place / "runs/tiny-evolve/trials.csv")
    for end in (min, max):
        assert end(number(row, "macs") for row in found[1:]) == end(number(row, "macs") for row in every[1:])
