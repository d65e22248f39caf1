"""The happy path of every command, and what a second call finds."""

import csv
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ldsearch.cli import FORMER
from ldsearch.evaluation import Evaluator
from ldsearch.options import VERBS
from ldsearch.search import run as searches
from ldsearch.subnet import Subnet
from tests.cli.conftest import Ldsearch, read, weights

REPORTS = {
    "trials.csv",
    "controls.csv",
    "frontier.csv",
    "frontier.png",
    "frontier.svg",
    "best.json",
    "run.json",
}
PRUNED = '{"version":1,"encoder":{"blocks":[1]}}'


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_search_writes_its_reports_and_obeys_its_budget(
    ldsearch: Ldsearch, place: Path, drawn: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "draw_frontier", drawn)
    outcome = ldsearch("evolve", "--budget", "0.8")
    assert outcome.code == 0
    assert outcome.err == ""
    folder = place / "runs/tiny-evolve"
    assert set(os.listdir(folder)) == REPORTS
    figure = (folder / "frontier.png").read_bytes()
    assert figure.startswith(b"\x89PNG")
    assert len(figure) > 10_000
    trials, frontier, best = (
        rows(folder / "trials.csv"),
        rows(folder / "frontier.csv"),
        read(folder / "best.json"),
    )
    # Two blocks, the last length pinned to its floor of 2; the first leaves 5..16 of 16 tokens: 12. Either
    # block alone, its length pinned: 2. And the full model.
    assert len(trials) == 15
    found = {(row["blocks"], row["lengths"]) for row in trials[1:]}
    assert found == {("0 1", f"{first} 2") for first in range(5, 17)} | {("0", "2"), ("1", "2")}
    assert trials[0]["lengths"] == ""
    for one in trials:
        beaten = any(
            float(other["macs"]) <= float(one["macs"])
            and float(other["score"]) >= float(one["score"])
            and (other["macs"], other["score"]) != (one["macs"], one["score"])
            for other in trials
        )
        assert (one["on_frontier"] == "False") or not beaten
    affordable = [float(row["score"]) for row in trials if float(row["macs_share"]) <= 0.8]
    assert best["score"] == pytest.approx(max(affordable))
    assert best["costs"]["macs"] <= 0.8 * best["full_costs"]["macs"]
    assert [row for row in trials if row["on_frontier"] == "True"] != []
    assert len(frontier) == sum(row["on_frontier"] == "True" for row in trials)


def test_a_second_search_measures_nothing_new_and_writes_the_same(ldsearch: Ldsearch, place: Path) -> None:
    folder = place / "runs/tiny-evolve"
    assert ldsearch("evolve", "--budget", "0.8").code == 0
    calls = read(folder / "run.json")["this_call"]
    assert calls["search"]["measured"] == 15  # the controls are in the same space of 14
    assert calls["report"]["measured"] == len(rows(folder / "frontier.csv")) + 1
    first = [{k: v for k, v in row.items() if k != "seconds"} for row in rows(folder / "frontier.csv")]
    assert ldsearch("evolve", "--budget", "0.8").code == 0
    run = read(folder / "run.json")
    assert [calls["measured"] for calls in run["this_call"].values()] == [0, 0]
    assert run["this_call"]["search"]["cached"] == 15 + sum(run["controls"].values())
    second = rows(folder / "frontier.csv")
    assert {row["seconds"] for row in second} == {"0"}
    assert [{k: v for k, v in row.items() if k != "seconds"} for row in second] == first


def test_another_budget_is_answered_from_what_is_known(ldsearch: Ldsearch, place: Path) -> None:
    assert ldsearch("evolve", "--budget", "0.6").code == 0
    assert ldsearch("evolve", "--budget", "0.9").code == 0
    folder = place / "runs/tiny-evolve"
    assert read(folder / "run.json")["this_call"]["search"]["measured"] == 0
    assert read(folder / "best.json")["selector"] == "budget 0.9"


def test_an_interrupted_search_says_how_to_go_on(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ldsearch.storage import MeasurementCache

    put = MeasurementCache.put
    left = iter(range(4))

    def dies_at_the_fifth(self: MeasurementCache, *measured: object) -> object:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return put(self, *measured)

    with monkeypatch.context() as patch:
        patch.setattr(MeasurementCache, "put", dies_at_the_fifth)
        outcome = ldsearch("evolve")
    assert outcome.code == 130
    assert "interrupted: run the same command again" in outcome.err
    assert "unfinished" in ldsearch("info", "runs/tiny-evolve").out
    assert ldsearch("evolve").code == 0
    run = read(place / "runs/tiny-evolve/run.json")
    # The fifth had its statistics, but no trial yet.
    assert run["this_call"]["search"]["measured"] == 15 - 5
    assert run["this_call"]["search"]["cached"] == 5 + sum(run["controls"].values())


def test_a_dry_run_counts_and_writes_nothing(ldsearch: Ldsearch, place: Path) -> None:
    before = sorted(place.rglob("*"))
    outcome = ldsearch("evolve", "--dry-run")
    assert outcome.code == 0
    # Of two blocks the first length has 5 to 16 tokens, the last is pinned; of one block its own is.
    assert "up to 14 sub-networks" in outcome.out
    assert "at most 15 evaluations" in outcome.out
    peak = float(outcome.out.split("peak memory: at most some ")[1].split(" GiB")[0])
    assert 0.3 < peak <= 4
    assert sorted(place.rglob("*")) == before


def test_every_other_tries_every_depth_and_exports_a_stock_model(ldsearch: Ldsearch, place: Path) -> None:
    assert ldsearch("evolve", "--strategy", "every-other", "--budget", "0.6").code == 0
    trials = rows(place / "runs/tiny-every-other/trials.csv")
    assert [row["blocks"] for row in trials] == ["0 1", "0"]
    outcome = ldsearch("export", "runs/tiny-every-other", "out")
    assert outcome.code == 0
    assert 'AutoModelForSequenceClassification.from_pretrained("out")' in outcome.out
    full = weights(place / "runs/tiny")
    pruned = weights(place / "out")
    assert {name for name in full if name not in pruned} == {name for name in full if ".layer.1." in name}
    assert all(torch.equal(full[name], pruned[name]) for name in pruned)
    card = (place / "out/README.md").read_text()
    assert "encoder blocks 0" in card
    assert str(place) not in card  # a model card travels


def test_constant_ratio_keeps_every_block(ldsearch: Ldsearch, place: Path) -> None:
    assert ldsearch("evolve", "--strategy", "constant-ratio", "--budget", "0.6").code == 0
    trials = rows(place / "runs/tiny-constant-ratio/trials.csv")
    assert {row["blocks"] for row in trials} == {"0 1"}
    assert {row["strategy"] for row in trials} == {"constant-ratio"}
    assert not (place / "runs/tiny-constant-ratio/controls.csv").exists()  # a rule has no controls


def test_evaluate_shows_both_scores_of_a_run(ldsearch: Ldsearch, place: Path) -> None:
    assert ldsearch("evolve", "--strategy", "every-other", "--budget", "0.6").code == 0
    best = read(place / "runs/tiny-every-other/best.json")
    outcome = ldsearch("evaluate", "runs/tiny-every-other")
    assert outcome.code == 0
    assert "note" not in outcome.err
    assert "on 6 report examples" in outcome.out
    chosen_on = ldsearch("evaluate", "runs/tiny-every-other", "--split", "search")
    assert re.search(rf"accuracy +{best['score']:.4f} on 6 search examples", chosen_on.out)
    assert "note: the search chose by these very examples" in chosen_on.err
    assert re.search(rf"full model +{best['full_score']:.4f}", chosen_on.out)


def test_evaluating_the_full_model_differs_by_nothing(ldsearch: Ldsearch, place: Path) -> None:
    outcome = ldsearch("evaluate", "runs/tiny", "--subnet", "full", "--split", "train")
    assert outcome.code == 0
    assert "on 48 train examples" in outcome.out
    assert "difference   +0.0000, 95% interval +0.0000 to +0.0000" in outcome.out
    assert "1.000 of the full model's" in outcome.out


def test_a_sub_network_may_lie_in_a_file(ldsearch: Ldsearch, place: Path) -> None:
    (place / "subnet.json").write_text(PRUNED)
    outcome = ldsearch("evaluate", "runs/tiny", "--subnet", "subnet.json")
    assert outcome.code == 0
    assert "encoder blocks 1" in outcome.out


def test_info_describes_a_supernet_and_a_run(ldsearch: Ldsearch, place: Path) -> None:
    supernet = ldsearch("info", "runs/tiny")
    assert supernet.code == 0
    assert re.search(r"labels +bad, good\n", supernet.out)
    assert re.search(r"splits +train 48, search 6, report 6\n", supernet.out)
    assert ldsearch("evolve", "--budget", "0.8").code == 0
    run = ldsearch("info", "runs/tiny-evolve")
    assert run.code == 0
    assert re.search(r"supernet +runs/tiny\n", run.out)
    assert re.search(r"asked for +budget 0\.8\n", run.out)
    assert re.search(r"trials +15, ", run.out)


def test_a_run_is_found_from_another_folder_and_after_both_moved(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ldsearch("evolve", "--strategy", "every-other", "--budget", "0.6").code == 0
    (place / "runs").rename(place / "moved")
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    assert ldsearch("evaluate", "../moved/tiny-every-other").code == 0


@pytest.mark.parametrize("command", VERBS)
def test_the_help_of_every_command_has_an_example(ldsearch: Ldsearch, command: str) -> None:
    outcome = ldsearch(command, "--help")
    assert outcome.code == 0
    assert "Examples" in outcome.out
    assert f"ldsearch {command}" in outcome.out


def test_help_names_every_command_and_imports_no_heavy_library() -> None:
    program = (
        "import sys\n"
        "sys.argv = ['ldsearch', '--help']\n"
        "from ldsearch.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'pandas', 'matplotlib', 'datasets', 'optuna', 'pymoo', 'numpy'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert all(command in found.stdout for command in VERBS)
    assert found.stdout.endswith("HEAVY []\n")


@pytest.mark.parametrize("verb", FORMER)
def test_a_former_verb_names_the_new_one(ldsearch: Ldsearch, verb: str) -> None:
    outcome = ldsearch(verb, "--anything", 1)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert FORMER[verb] in outcome.err


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
