"""select's rules end to end: each keeps what it should, with one number of blocks for each stack."""

import csv
from pathlib import Path

import pytest

from ldsearch.subnet import Subnet
from tests.cli.conftest import Ldsearch, read


def blocks_of(run: Path) -> list[tuple[int, ...]]:
    with (run / "trials.csv").open() as file:
        subnets = [Subnet.from_json(row["subnet"]) for row in csv.DictReader(file)]
    return [subnet.encoder.blocks for subnet in subnets]


@pytest.mark.parametrize(
    ("strategy", "measured"),
    [
        ("every-other", [(0, 1, 2), (0,)]),
        ("chunk-first", [(0, 1, 2), (2,)]),
        ("chunk-middle", [(0, 1, 2), (2,)]),
        ("chunk-last", [(0, 1, 2), (0,)]),
        ("validation", [(0, 1, 2), (0,), (1,), (2,)]),
    ],
)
def test_a_rule_measures_what_it_names(
    ldsearch: Ldsearch, wild: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, measured: list
) -> None:
    monkeypatch.chdir(wild)
    outcome = ldsearch("evolve", "--strategy", strategy, "--keep", 1, "--name", f"rule-{strategy}")
    assert outcome.code == 0, outcome.err
    assert blocks_of(wild / f"runs/rule-{strategy}") == measured


def test_the_printed_rule_keeps_two_of_three(
    ldsearch: Ldsearch, wild: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(wild)
    outcome = ldsearch("evolve", "--strategy", "every-other-literal", "--name", "literal")
    assert outcome.code == 0, outcome.err
    assert blocks_of(wild / "runs/literal") == [(0, 1, 2), (0, 1)]  # of three, every third may go


@pytest.mark.parametrize("strategy", ["swaps", "beam", "surrogate", "random"])
def test_searches_of_few_depths_end_at_the_best(
    ldsearch: Ldsearch, wild: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    monkeypatch.chdir(wild)
    every = ldsearch("evolve", "--strategy", "validation", "--keep", 2, "--name", "every-2")
    assert every.code == 0, every.err
    outcome = ldsearch("evolve", "--strategy", strategy, "--keep", 2, "--name", f"two-{strategy}")
    assert outcome.code == 0, outcome.err
    best, truth = (read(wild / f"runs/{name}/best.json") for name in (f"two-{strategy}", "every-2"))
    assert best["score"] == truth["score"]
    assert best["costs"]["macs"] == truth["costs"]["macs"]


def test_by_the_divergence_only_its_best_is_measured_by_the_score(
    ldsearch: Ldsearch, wild: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(wild)
    arguments = ("--strategy", "validation", "--keep", 2, "--objective", "kl")
    outcome = ldsearch("evolve", *arguments)
    assert outcome.code == 0, outcome.err
    kept = blocks_of(wild / "runs/tiny-validation-kl")
    assert len(kept) == 2
    assert len(kept[1]) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--strategy", "every-other", "--keep", "1,1"),
            "--keep names 2 numbers of blocks; this model has 1",
        ),
        (("--strategy", "every-other", "--keep", "none"), "names no numbers of blocks"),
        (("--strategy", "every-other", "--keep", "9"), "must name depths in 1..2"),
        (("--strategy", "chunk-last", "--space", "demo"), "takes no --space"),
        (("--strategy", "magic"), "unknown strategy 'magic'"),
        (("--strategy", "beam", "--objective", "luck"), "unknown objective 'luck'"),
        (("--strategy", "every-other-literal", "--keep", "2"), "rate"),
    ],
)
def test_what_cannot_be_chosen_is_refused_in_one_line(
    ldsearch: Ldsearch, place: Path, arguments: tuple[str, ...], words: str
) -> None:
    outcome = ldsearch("evolve", *arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert outcome.err.strip().splitlines()[-1].startswith("error: ")
