"""Searches and rules end to end: true frontiers, divergence, spaces from files, refusals, JSON output."""

import json
import shlex
import shutil
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from ldsearch.bench import Bench
from ldsearch.commands.evolve import evolve
from ldsearch.options import Evolve
from ldsearch.search.imitation import imitator
from ldsearch.search.run import plan_search, run_strategy
from ldsearch.search.spaces import search_space
from ldsearch.subnet import Subnet
from ldsearch.trials.pareto import frontier
from ldsearch.trials.trial import Trial
from ldsearch.work.progress import NO_PROGRESS, Counted, Progress
from tests.cli.conftest import Ldsearch, Outcome, read, rows, unsettle
from tests.stops import ask_to_stop


def blocks_of(run: Path) -> list[tuple[int, ...]]:
    return [Subnet.from_json(row["subnet"]).encoder.blocks for row in rows(run / "trials.csv")]


@pytest.mark.parametrize("genes", ["depth+lengths", "head+ffn+depth", "sublayer"])
def test_a_search_that_may_measure_everything_finds_the_true_frontier(
    ldsearch: Ldsearch, place: Path, genes: str
) -> None:
    unsettle(place / "runs/tiny")
    ldsearch.done("evolve", "--genes", genes, "--strategy", "random", "--evaluations", 500)
    bench = Bench.open("runs/tiny")
    space = search_space(bench, genes=genes)
    least = bench.macs([space.smallest()])[0]
    allowed = [subnet for subnet in space.enumerate() if bench.macs([subnet])[0] >= least]
    alone = [np.stack(bench.evaluator.outputs(subnet)) for subnet in [bench.full, *allowed]]
    values = [bench.score(bench.task.statistics(list(one), bench.evaluator.encoded)).loss for one in alone]
    costs = bench.macs([bench.full, *allowed])
    truth = frontier(np.stack([costs, values], axis=1))
    trials = rows(place / f"runs/tiny-random-{genes}/trials.csv")
    found = [row for row in trials if row["on_frontier"] == "True"]
    points = {(round(float(row["macs"])), round(float(row["score"]), 8)) for row in found}
    assert points == {(round(costs[i]), round(-values[i], 8)) for i in truth}
    assert all(space.contains(Subnet.from_json(row["subnet"])) for row in trials[1:])


def test_a_search_without_labels_measures_its_frontier_by_the_score(ldsearch: Ldsearch, place: Path) -> None:
    unsettle(place / "runs/tiny")
    # More evaluations than the space has sub-networks: the frontier is the true one.
    ldsearch.done("evolve", "--objective", "kl", "--evaluations", 1000)
    bench = Bench.open("runs/tiny")
    space = search_space(bench)
    subnets = [s for s in space.enumerate() if bench.macs([s]) >= bench.macs([space.smallest()])]
    measured = [trial.score.value for trial in imitator(bench)(subnets)]
    on_frontier = frontier(np.stack([bench.macs(subnets), measured], axis=1))
    trials = rows(place / "runs/tiny-evolve-kl/trials.csv")
    assert {row["metric"] for row in trials} == {"accuracy"}
    costs = [float(row["macs"]) for row in trials[1:]]
    assert costs == pytest.approx(bench.macs([subnets[i] for i in on_frontier]))
    run = read(place / "runs/tiny-evolve-kl/run.json")
    assert run["identity"]["strategy"] == "surrogate-kl"
    assert run["held_out"]["split"] == "report"


def test_a_search_out_of_time_takes_the_best_so_far(ldsearch: Ldsearch, wild_place: Path) -> None:
    short = ldsearch.done("evolve", "--evaluations", 30, "--name", "timed", "--minutes", "0")
    assert "stopped: time" in " ".join(short.out.split())
    assert 2 <= len(rows(wild_place / "runs/timed/trials.csv")) < 30


def test_a_stopped_halving_goes_on_to_the_same_end_and_scores_on_few_rows_stay_apart(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsettle(place / "runs/tiny")
    shutil.copytree(place, place.parent / "other")
    search = ("evolve", "--strategy", "halving", "--evaluations", 9, "--option", "eta=2", "--most-accurate")
    ldsearch.done(*search)
    whole, bench = rows(Path("runs/tiny-halving/trials.csv")), Bench.open("runs/tiny")
    every = bench.evaluator.examples
    assert {int(row["examples"]) for row in whole} == {every}  # none on few rows is in the tables
    # Nor passes for one on all.
    assert {trial.examples for trial in bench.evaluator.cache.trials()} == {every}
    rungs = [bench.share_of(bench.evaluator, share).cache.trials() for share in (1 / 4, 1 / 2)]
    assert [len(rung) for rung in rungs] == [8, 4]
    assert [{trial.examples for trial in rung} for rung in rungs] == [{round(every / 4)}, {round(every / 2)}]
    monkeypatch.chdir(place.parent / "other")
    # In the first rung.
    with mock.patch.object(Counted, "step", side_effect=ask_to_stop):
        stopped = ldsearch(*search)
    assert stopped.code == 143
    assert stopped.err.endswith("interrupted: run the same command again; nothing measured is lost\n")
    assert not Path("runs/tiny-halving/best.json").exists()
    assert "unfinished" in ldsearch("info", "runs/tiny-halving").out
    ldsearch.done(*search)
    again = rows(Path("runs/tiny-halving/trials.csv"))
    assert [{**row, "seconds": ""} for row in again] == [{**row, "seconds": ""} for row in whole]


def test_searches_of_few_depths_end_at_the_best_of_all(ldsearch: Ldsearch, wild_place: Path) -> None:
    for strategy in ("validation", "swaps", "surrogate"):
        ldsearch.done("evolve", "--strategy", strategy, "--keep", 2, "--name", f"two-{strategy}")
    assert blocks_of(wild_place / "runs/two-validation") == [(0, 1, 2), (0, 1), (0, 2), (1, 2)]
    truth, *others = (
        read(wild_place / f"runs/two-{name}/best.json") for name in ("validation", "swaps", "surrogate")
    )
    for best in others:
        assert (best["score"], best["costs"]["macs"]) == (truth["score"], truth["costs"]["macs"])
    # By the divergence only its best is measured by the score.
    ldsearch.done("evolve", "--strategy", "validation", "--keep", 2, "--objective", "kl")
    assert [len(blocks) for blocks in blocks_of(wild_place / "runs/tiny-validation-kl")] == [3, 2]


def test_json_is_all_that_is_printed_and_quiet_prints_nothing_but_errors(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = Ldsearch(monkeypatch, capfd)
    printed = json.loads(run.done("--json", "evolve", "--evaluations", 5, "--budget", "0.9").out)
    best = read(place / "runs/tiny-evolve/best.json")
    assert printed == {"run": "runs/tiny-evolve", **best}
    scored = json.loads(run.done("--json", "evaluate", "runs/tiny-evolve").out)
    assert (scored["score"], scored["subnet"]) == (best["held_out"]["score"], best["subnet"])
    assert run.done("--quiet", "info", "runs/tiny").out == ""
    assert run("--version") == Outcome(0, f"ldsearch {version('ldsearch')}\n", "")
    failed = run("--json", "info", "runs/nothing")
    assert (failed.code, failed.out, failed.err[:7]) == (2, "", "error: ")


def test_a_margin_to_the_full_model_is_chosen_by_and_refused_where_examples_are_unknown(
    ldsearch: Ldsearch, place: Path
) -> None:
    ldsearch.done("evolve", "--at-least", "full-0.9", "--evaluations", 5)
    best = read(place / "runs/tiny-evolve/best.json")
    assert best["selector"] == "at least full-0.9"
    assert "ldsearch evolve" in ldsearch.refused("info", "runs/tiny-evolve", "--at-least", "full-0.9")


class Order(Progress):
    """What was measured in each phase, in order."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, list[Subnet]]] = []

    def phase(self, name: str, total: int | None) -> None:
        self.phases.append((name, []))

    def trial(self, trial: Trial) -> None:
        self.phases[-1][1].append(trial.subnet)


@pytest.mark.parametrize("options", [{"strategy": "lat"}, {"objective": "kl"}])
def test_a_constant_ratio_is_measured_before_any_search_of_lengths_which_proposes_what_it_did(
    wild_place: Path, options: dict[str, str]
) -> None:
    asked = Evolve(**options, evaluations=12, budget="0.9")
    order = Order()
    outcome = evolve(Bench.open("runs/tiny"), "runs/ordered", asked, progress=order)
    (name, first), (_, searched), *_, (other, _), _ = order.phases
    assert (name, other) == ("constant-ratio", "random")
    for lengths in (subnet.encoder.lengths.tokens for subnet in first[1:] if subnet.encoder.lengths):
        # Levels are two tokens of 16 apart; the last is free, since nothing reads the other tokens.
        before = (16, *lengths[:-1])
        shares = [now / entered for entered, now in pairwise(before)]
        assert max(shares) - min(shares) < 0.25
    assert [trial.subnet for trial in outcome.controls["constant-ratio"].trials] == first

    bench = Bench.open("runs/tiny")
    spec = plan_search(bench, asked)
    evaluator = imitator(bench) if options.get("objective") == "kl" else bench.evaluator
    alone = run_strategy(bench, spec, spec.search.build(spec.context), 12, NO_PROGRESS, evaluator=evaluator)
    assert searched == [trial.subnet for trial in alone.trials]


def test_where_nothing_beats_a_constant_ratio_its_command_is_offered(ldsearch: Ldsearch, place: Path) -> None:
    lengths = ("--genes", "lengths", "--name", "tiny-evolve")
    outcome = ldsearch("evolve", "--budget", "0.9", "--evaluations", 5, *lengths)
    gains = read(place / "runs/tiny-evolve/run.json")["held_out"]["gains"]
    offered = outcome.out.partition("not significantly better")[2].splitlines()
    assert gains["constant-ratio"]["low"] <= 0  # of a model that has learned nothing
    words = shlex.split(offered[1])
    assert words[:2] == ["ldsearch", "evolve"]
    ldsearch.done(*words[1:])
    best = read(place / "runs/tiny-constant-ratio/best.json")
    assert best["selector"] == "budget 0.9"
    tried = rows(place / "runs/tiny-constant-ratio/trials.csv")
    assert {(row["strategy"], row["blocks"]) for row in tried} == {("constant-ratio", "0 1")}
