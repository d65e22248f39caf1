"""evolve's other strategies, and the search without labels, end to end."""

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import entropy

from ldsearch.bench import Bench
from ldsearch.commands.imitation import imitator
from ldsearch.commands.spaces import search_space
from ldsearch.pareto import frontier
from tests.cli.conftest import Ldsearch, read, unsettle


@pytest.mark.parametrize("strategy", ["surrogate", "lat"])
def test_a_small_space_is_searched_by_every_strategy(ldsearch: Ldsearch, place: Path, strategy: str) -> None:
    outcome = ldsearch("evolve", "--strategy", strategy, "--evaluations", 12)
    assert outcome.code == 0, outcome.err
    run = read(place / f"runs/tiny-{strategy}/run.json")
    assert run["identity"]["strategy"] == strategy
    assert run["trials"] == 12


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
    with (place / "runs/tiny-evolve-kl/trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["metric"] for row in rows} == {"accuracy"}
    assert len(rows) == 1 + len(on_frontier)
    costs = [float(row["macs"]) for row in rows[1:]]
    assert costs == pytest.approx(bench.macs([subnets[i] for i in on_frontier]))
    run = read(place / "runs/tiny-evolve-kl/run.json")
    assert run["identity"]["strategy"] == "surrogate-kl"
    assert run["held_out"]["split"] == "report"


@pytest.mark.parametrize("option", ["--strategy", "--objective"])
def test_what_there_is_not_is_refused(ldsearch: Ldsearch, place: Path, option: str) -> None:
    outcome = ldsearch("evolve", option, "unheard-of")
    assert outcome.code != 0
    assert f"unknown {option[2:]} 'unheard-of'" in outcome.err


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(np.float64))
    return powers / powers.sum(axis=-1, keepdims=True)
