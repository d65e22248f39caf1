"""The happy path of every command, and what a second call finds."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from ldsearch.cli import FORMER
from ldsearch.evaluation import Evaluator
from ldsearch.options import VERBS
from ldsearch.search import run as searches
from ldsearch.subnet import Subnet
from tests.cli.conftest import Ldsearch, read, rows, weights

REPORTS = {f"frontier.{kind}" for kind in ("csv", "png", "svg")}
REPORTS |= {"trials.csv", "controls.csv", "best.json", "run.json"}
HEAVY = {"torch", "transformers", "datasets"}


def test_a_search_writes_its_reports_and_again_measures_nothing_whatever_the_budget(
    ldsearch: Ldsearch, place: Path, drawn: object
) -> None:
    with mock.patch.object(searches, "draw_frontier", drawn):
        assert ldsearch.done("evolve", "--budget", "0.8").err == ""
    folder = place / "runs/tiny-evolve"
    assert set(os.listdir(folder)) == REPORTS
    figure = (folder / "frontier.png").read_bytes()
    assert figure.startswith(b"\x89PNG")
    assert len(figure) > 10_000
    trials, best = rows(folder / "trials.csv"), read(folder / "best.json")
    # Two blocks, the last length pinned to its floor of 2; the first leaves 5..16 of 16 tokens: 12. Either
    # block alone, its length pinned: 2. And the full model.
    found = {(row["blocks"], row["lengths"]) for row in trials[1:]}
    assert found == {("0 1", f"{first} 2") for first in range(5, 17)} | {("0", "2"), ("1", "2")}
    assert (len(trials), trials[0]["lengths"]) == (15, "")
    affordable = [float(row["score"]) for row in trials if float(row["macs_share"]) <= 0.8]
    assert best["score"] == pytest.approx(max(affordable))
    assert best["costs"]["macs"] <= 0.8 * best["full_costs"]["macs"]
    calls = read(folder / "run.json")["this_call"]
    assert calls["search"]["measured"] == 15  # the controls are in the same space of 14
    frontier = rows(folder / "frontier.csv")
    assert calls["report"]["measured"] == len(frontier) + 1
    told = ldsearch.done("info", "runs/tiny-evolve").out
    assert re.search(r"supernet +runs/tiny\n", told)
    assert re.search(r"asked for +budget 0\.8\n", told)
    assert re.search(r"trials +15, ", told)

    ldsearch.done("evolve", "--budget", "0.8")
    run = read(folder / "run.json")
    assert {calls["measured"] for calls in run["this_call"].values()} == {0}
    assert run["this_call"]["search"]["cached"] == 15 + sum(run["controls"].values())
    assert rows(folder / "frontier.csv") == [{**row, "seconds": "0"} for row in frontier]
    ldsearch.done("evolve", "--budget", "0.9")
    assert read(folder / "run.json")["this_call"]["search"]["measured"] == 0
    assert read(folder / "best.json")["selector"] == "budget 0.9"


def test_a_dry_run_counts_and_writes_nothing(ldsearch: Ldsearch, place: Path) -> None:
    before = sorted(place.rglob("*"))
    outcome = ldsearch.done("evolve", "--dry-run")
    # Of two blocks the first length has 5 to 16 tokens, the last is pinned; of one block its own is.
    assert "up to 14 sub-networks" in outcome.out
    assert "at most 15 evaluations" in outcome.out
    peak = float(outcome.out.split("peak memory: at most some ")[1].split(" GiB")[0])
    assert 0.3 < peak <= 4
    noted = ldsearch.done("evolve", "--genes", "ffn", "--dry-run").err
    assert noted.startswith("note: feed-forward halves were not trained")
    assert sorted(place.rglob("*")) == before


def test_a_rule_tries_every_depth_is_evaluated_and_exported_and_found_after_a_move(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = ldsearch.done("evolve", "--strategy", "every-other", "--budget", "0.6")
    assert "a rule has no controls" in outcome.out
    run = place / "runs/tiny-every-other"
    assert not (run / "controls.csv").exists()
    assert [row["blocks"] for row in rows(run / "trials.csv")] == ["0 1", "0"]
    best = read(run / "best.json")
    outcome = ldsearch.done("evaluate", run)
    assert "note" not in outcome.err
    assert "on 6 report examples" in outcome.out
    chosen_on = ldsearch("evaluate", run, "--split", "search")
    assert re.search(rf"accuracy +{best['score']:.4f} on 6 search examples", chosen_on.out)
    assert "note: the search chose by these very examples" in chosen_on.err
    assert re.search(rf"full model +{best['full_score']:.4f}", chosen_on.out)

    outcome = ldsearch.done("export", "runs/tiny-every-other", "out")
    assert 'AutoModelForSequenceClassification.from_pretrained("out")' in outcome.out
    full, pruned = weights(place / "runs/tiny"), weights(place / "out")
    assert {name for name in full if name not in pruned} == {name for name in full if ".layer.1." in name}
    assert all(torch.equal(full[name], pruned[name]) for name in pruned)
    assert "encoder blocks 0" in (place / "out/README.md").read_text()

    (place / "runs").rename(place / "moved")
    monkeypatch.chdir(place / "out")
    ldsearch.done("evaluate", "../moved/tiny-every-other")


def test_info_and_evaluate_take_a_supernet_and_a_sub_network_may_lie_in_a_file(
    ldsearch: Ldsearch, place: Path
) -> None:
    told = ldsearch.done("info", "runs/tiny").out
    assert re.search(r"labels +bad, good\n", told)
    assert re.search(r"splits +train 48, search 6, report 6\n", told)
    full = ldsearch.done("evaluate", "runs/tiny", "--subnet", "full", "--split", "train").out
    assert "on 48 train examples" in full
    assert "difference   +0.0000, 95% interval +0.0000 to +0.0000" in full
    assert "1.000 of the full model's" in full
    (place / "subnet.json").write_text('{"version":1,"encoder":{"blocks":[1]}}')
    assert "encoder blocks 1" in ldsearch.done("evaluate", "runs/tiny", "--subnet", "subnet.json").out


def test_a_folder_of_runs_is_listed_and_cleaned_after_asking(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = place / "runs/tiny/.best.abcdefgh"  # a folder that no process has locked
    left.mkdir()
    (left / "model").write_bytes(b"x" * 3 * 2**20)
    before = {path for path in place.rglob("*") if left not in (path, *path.parents)}
    told = ldsearch.done("info", "runs")
    assert "supernet" in told.out
    assert ".best.abcdefgh (3.0 MiB)" in told.out
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert ldsearch("info", "runs", "--clean").code == 130
    assert left.exists()
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    ldsearch.done("info", "runs", "--clean")
    assert set(place.rglob("*")) == before
    assert "nothing was left" in ldsearch("info", "runs", "--clean").out


@pytest.mark.parametrize("command", VERBS)
def test_the_help_of_every_command_has_an_example(ldsearch: Ldsearch, command: str) -> None:
    out = ldsearch.done(command, "--help").out
    assert "Examples" in out
    assert f"ldsearch {command}" in out


@pytest.mark.parametrize(
    ("command", "says", "heavy"),
    [
        ("--help", VERBS, HEAVY | {"pandas", "matplotlib", "optuna", "pymoo", "numpy"}),
        ("info runs/tiny-evolve --budget 0.7", ["chosen: accuracy"], HEAVY),
    ],
)
def test_what_needs_no_model_loads_no_heavy_library(
    wild_place: Path, command: str, says: Iterable[str], heavy: set[str]
) -> None:
    program = (
        "import sys\n"
        f"sys.argv = ['ldsearch', *{command.split()}]\n"
        "from ldsearch.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as exit_: print('CODE', exit_.code)\n"
        f"print('HEAVY', sorted({heavy} & set(sys.modules)))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.endswith("CODE 0\nHEAVY []\n"), found.stdout[-200:]
    assert all(words in found.stdout for words in says)


@pytest.mark.parametrize("verb", FORMER)
def test_a_former_verb_names_the_new_one(ldsearch: Ldsearch, verb: str) -> None:
    assert FORMER[verb] in ldsearch.refused(verb, "--anything", 1)


def test_blocks_that_were_asked_for_are_chosen_even_if_the_full_model_is_better(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A full model that is always right: nothing else can be better.
    def measure(evaluator: Evaluator, subnets: list[Subnet]) -> Iterator[tuple[Subnet, np.ndarray, float]]:
        for subnet in subnets:
            yield subnet, np.full(evaluator.examples, float(subnet == Subnet.full(2))), 0.0

    monkeypatch.setattr(Evaluator, "_measure", measure)
    outcome = ldsearch("evolve", "--strategy", "every-other", "--keep", "encoder=1")
    assert "chosen (most accurate): accuracy 0.0000" in outcome.out
    assert read(place / "runs/tiny-every-other/best.json")["subnet"]["encoder"]["blocks"] == [0]
    every = ldsearch("evolve", "--strategy", "every-other", "--name", "every")
    assert "chosen (most accurate): accuracy 1.0000" in every.out
