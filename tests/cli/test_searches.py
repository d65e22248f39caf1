"""Searches and rules end to end: true frontiers, divergence, spaces from files, refusals, JSON output."""

import csv
import json
import re
import shlex
import shutil
import sys
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import entropy

from ldsearch.bench import Bench
from ldsearch.cli import main
from ldsearch.commands.evolve import evolve
from ldsearch.options import Evolve
from ldsearch.search.imitation import imitator
from ldsearch.search.run import plan_search, run_strategy
from ldsearch.search.spaces import search_space
from ldsearch.subnet import Subnet
from ldsearch.trials.pareto import frontier
from ldsearch.trials.trial import Trial
from ldsearch.work.progress import NO_PROGRESS, Counted, Progress
from tests.cli.conftest import Ldsearch, read, unsettle
from tests.stops import ask_to_stop

SPACE = """
name: mine
source: a test
blocks: 2
depth: {keep: [1, 2]}
lengths: {reference: 16, mode: ratio, drop_bound: 0.5, levels: 4, pin_last: true}
options: [{ffn_share: 0.5}]
"""


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "trials.csv").open() as file:
        return list(csv.DictReader(file))


def blocks_of(run: Path) -> list[tuple[int, ...]]:
    return [Subnet.from_json(row["subnet"]).encoder.blocks for row in rows_of(run)]


@pytest.mark.parametrize("genes", ["depth+lengths", "head+ffn+depth", "sublayer"])
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


def test_a_search_without_labels_measures_its_frontier_by_the_score(ldsearch: Ldsearch, place: Path) -> None:
    unsettle(place / "runs/tiny")
    # More evaluations than the space has sub-networks: the frontier is the true one.
    assert (outcome := ldsearch("evolve", "--objective", "kl", "--evaluations", 1000)).code == 0, outcome.err
    bench = Bench.open("runs/tiny")
    space = search_space(bench)
    subnets = [s for s in space.enumerate() if bench.macs([s]) >= bench.macs([space.smallest()])]
    theirs, *ours = (softmax(np.stack(bench.evaluator.outputs(s))) for s in (bench.full, *subnets))
    divergences = [float(entropy(theirs, own, axis=-1).mean()) for own in ours]
    measured = [trial.score.value for trial in imitator(bench)(subnets)]
    np.testing.assert_allclose(measured, divergences, rtol=1e-3, atol=1e-9)
    assert max(divergences) > 1e-4
    on_frontier = frontier(np.stack([bench.macs(subnets), measured], axis=1))
    rows = rows_of(place / "runs/tiny-evolve-kl")
    assert {row["metric"] for row in rows} == {"accuracy"}
    assert len(rows) == 1 + len(on_frontier)
    costs = [float(row["macs"]) for row in rows[1:]]
    assert costs == pytest.approx(bench.macs([subnets[i] for i in on_frontier]))
    run = read(place / "runs/tiny-evolve-kl/run.json")
    assert run["identity"]["strategy"] == "surrogate-kl"
    assert run["held_out"]["split"] == "report"


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(np.float64))
    return powers / powers.sum(axis=-1, keepdims=True)


def test_a_search_out_of_time_takes_the_best_so_far_and_the_same_command_goes_on(
    ldsearch: Ldsearch, wild_place: Path
) -> None:
    search = ("evolve", "--evaluations", 30, "--seed", 4, "--name", "timed")
    short = ldsearch(*search, "--minutes", "0")
    assert short.code == 0, short.err
    assert "stopped: time" in " ".join(short.out.split())
    first = rows_of(wild_place / "runs/timed")
    assert 2 <= len(first) < 30
    assert ldsearch(*search).code == 0
    whole = rows_of(wild_place / "runs/timed")
    assert [row["subnet"] for row in whole[: len(first)]] == [row["subnet"] for row in first]
    assert len(whole) == 30


def test_a_stopped_halving_goes_on_to_the_same_end_and_scores_on_few_rows_stay_apart(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsettle(place / "runs/tiny")
    shutil.copytree(place, place.parent / "other")
    search = ("evolve", "--strategy", "halving", "--evaluations", 9, "--option", "eta=2", "--most-accurate")
    assert (outcome := ldsearch(*search)).code == 0, outcome.err
    whole, bench = rows_of(place / "runs/tiny-halving"), Bench.open("runs/tiny")
    every = bench.evaluator.examples
    assert {int(row["examples"]) for row in whole} == {every}  # none on few rows is in the tables
    assert {trial.examples for trial in bench.evaluator.cache.trials()} == {
        every
    }  # nor passes for one on all
    rungs = [bench.share_of(bench.evaluator, share).cache.trials() for share in (1 / 4, 1 / 2)]
    assert [len(rung) for rung in rungs] == [8, 4]
    assert [{trial.examples for trial in rung} for rung in rungs] == [{round(every / 4)}, {round(every / 2)}]
    monkeypatch.chdir(place.parent / "other")
    step, steps = Progress.step, []

    def stops(progress: Progress) -> None:
        steps.append(step(progress))
        ask_to_stop()

    with monkeypatch.context() as patch:
        patch.setattr(Counted, "step", stops)  # in the first rung
        assert ldsearch(*search).code in (130, 143)
    assert steps
    assert not Path("runs/tiny-halving/best.json").exists()
    assert (again := ldsearch(*search)).code == 0, again.err
    kept = [{key: value for key, value in row.items() if key != "seconds"} for row in whole]
    assert [
        {key: value for key, value in row.items() if key != "seconds"}
        for row in rows_of(Path("runs/tiny-halving"))
    ] == kept


def test_the_reference_codes_search_and_genes_that_were_not_trained(ldsearch: Ldsearch, place: Path) -> None:
    assert (outcome := ldsearch("evolve", "--strategy", "lat", "--evaluations", 12)).code == 0, outcome.err
    run = read(place / "runs/tiny-lat/run.json")
    assert (run["identity"]["strategy"], run["trials"]) == ("lat", 12)
    (place / "mine.yaml").write_text(SPACE)
    outcome = ldsearch("evolve", "--space", "mine.yaml", "--evaluations", 15, "--budget", "0.7")
    assert outcome.code == 0, outcome.err
    assert "note: feed-forward halves were not trained" in outcome.err
    assert re.search(r"over regular, \d+ trials: [^;]* by its choice", " ".join(outcome.out.split()))


@pytest.mark.parametrize(
    ("strategy", "measured"),
    [("every-other", [(0, 1, 2), (0,)]), ("chunk-last", [(0, 1, 2), (0,)])],
)
def test_a_rule_measures_what_it_names(
    ldsearch: Ldsearch, wild_place: Path, strategy: str, measured: list
) -> None:
    outcome = ldsearch("evolve", "--strategy", strategy, "--keep", 1, "--name", f"rule-{strategy}")
    assert outcome.code == 0, outcome.err
    assert blocks_of(wild_place / f"runs/rule-{strategy}") == measured


def test_searches_of_few_depths_end_at_the_best_of_all(ldsearch: Ldsearch, wild_place: Path) -> None:
    for strategy in ("validation", "swaps", "surrogate"):
        outcome = ldsearch("evolve", "--strategy", strategy, "--keep", 2, "--name", f"two-{strategy}")
        assert outcome.code == 0, outcome.err
    assert blocks_of(wild_place / "runs/two-validation") == [(0, 1, 2), (0, 1), (0, 2), (1, 2)]
    truth, *others = (
        read(wild_place / f"runs/two-{name}/best.json") for name in ("validation", "swaps", "surrogate")
    )
    for best in others:
        assert (best["score"], best["costs"]["macs"]) == (truth["score"], truth["costs"]["macs"])
    # By the divergence only its best is measured by the score.
    assert ldsearch("evolve", "--strategy", "validation", "--keep", 2, "--objective", "kl").code == 0
    assert [len(blocks) for blocks in blocks_of(wild_place / "runs/tiny-validation-kl")] == [3, 2]


def test_what_cannot_be_searched_or_chosen_is_refused_in_one_line(ldsearch: Ldsearch, place: Path) -> None:
    for arguments, words in {
        "--genes width": "unknown genes 'width'",
        "--genes depth+depth": "unknown genes 'depth+depth'",
        "--genes depth --space demo": "name it or --genes, not both",
        "--genes depth --parity": "--parity is the length-adaptive paper's search",
        "--genes lengths+sublayer": "attention scores the tokens",
        "--genes depth --strategy lat": "it chooses lengths only",
        "--space joint-6x128": "6} blocks, the supernet has",
        "--strategy every-other --keep 1,1": "--keep names 2 numbers of blocks; this model has 1",
        "--strategy every-other --keep decoder=1": "one number of blocks for encoder each",
        "--strategy every-other --keep none": "cannot read --keep 'none'",
        "--strategy beam --objective luck": "unknown objective 'luck'",
        "--strategy every-other-literal --keep 2": "rate",
    }.items():
        outcome = ldsearch("evolve", *arguments.split())
        assert outcome.code == 2, arguments
        assert words in outcome.err
        assert outcome.err.strip().splitlines()[-1].startswith("error: ")


def test_json_is_all_that_is_printed_and_quiet_prints_nothing_but_errors(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["ldsearch", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        return exit_.value.code, *capfd.readouterr()

    code, out, err = run("--json", "evolve", "--evaluations", "5", "--budget", "0.9")
    assert code == 0, err
    best = read(place / "runs/tiny-evolve/best.json")
    assert json.loads(out) == {"run": "runs/tiny-evolve", **best}
    _, out, _ = run("--json", "evaluate", "runs/tiny-evolve")
    scored = json.loads(out)
    assert (scored["score"], scored["subnet"]) == (best["held_out"]["score"], best["subnet"])
    assert run("--quiet", "info", "runs/tiny")[:2] == (0, "")
    assert run("--version") == (0, f"ldsearch {version('ldsearch')}\n", "")
    code, out, err = run("--json", "info", "runs/nothing")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")


def test_a_margin_to_the_full_model_is_chosen_by_and_refused_where_examples_are_unknown(
    ldsearch: Ldsearch, place: Path
) -> None:
    assert ldsearch("evolve", "--at-least", "full-0.9", "--evaluations", 5).code == 0
    best = read(place / "runs/tiny-evolve/best.json")
    assert best["selector"] == "at least full-0.9"
    refused = ldsearch("info", "runs/tiny-evolve", "--at-least", "full-0.9")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "ldsearch evolve" in refused.err


class Order(Progress):
    """What was measured in each phase, in order."""

    def __init__(self) -> None:
        self.phases: dict[str, list[Subnet]] = {}

    def phase(self, name: str, total: int | None) -> None:
        self.phases[name] = []

    def trial(self, trial: Trial) -> None:
        [*self.phases.values()][-1].append(trial.subnet)


@pytest.mark.parametrize("options", [{"strategy": "lat"}, {}, {"objective": "kl"}])
def test_a_constant_ratio_is_measured_before_any_search_of_lengths_which_proposes_what_it_did(
    wild_place: Path, options: dict[str, str]
) -> None:
    asked = Evolve(**options, evaluations=12, budget="0.9")
    order = Order()
    outcome = evolve(Bench.open("runs/tiny"), "runs/ordered", asked, progress=order)
    phases = [*order.phases]
    assert (phases[0], phases[-2]) == ("constant-ratio", "random")
    first = order.phases["constant-ratio"]
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
    assert order.phases[phases[1]] == [trial.subnet for trial in alone.trials]


def test_where_nothing_beats_a_constant_ratio_its_command_is_offered(ldsearch: Ldsearch, place: Path) -> None:
    lengths = ("--genes", "lengths", "--name", "tiny-evolve")
    outcome = ldsearch("evolve", "--budget", "0.9", "--evaluations", 5, *lengths)
    gains = read(place / "runs/tiny-evolve/run.json")["held_out"]["gains"]
    offered = outcome.out.partition("not significantly better")[2].splitlines()
    assert gains["constant-ratio"]["low"] <= 0  # of a model that has learned nothing
    words = shlex.split(offered[1])
    assert words[:2] == ["ldsearch", "evolve"]
    assert ldsearch(*words[1:]).code == 0
    best = read(place / "runs/tiny-constant-ratio/best.json")
    assert best["selector"] == "budget 0.9"
