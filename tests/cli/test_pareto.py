"""ldsearch info RUN --budget: another budget from what is measured, with no model and no forward pass."""

import json
import re
from pathlib import Path

import pytest

from ldsearch.storage import MeasurementCache
from ldsearch.subnet import Subnet
from ldsearch.supernet.supernet import Supernet
from ldsearch.trials.trial import Score, Trial
from tests.cli.conftest import WILD_SEARCH, Ldsearch, rows, run_in

RUN = "runs/tiny-evolve"


def measured(*runs: Path) -> list[dict[str, str]]:
    """Every measurement of the runs' tables, each sub-network once."""
    tables = [table for run in runs for table in sorted(run.glob("[tc]*s.csv"))]
    found = {row["subnet"]: row for table in tables for row in rows(table)}
    assert len(found) > 30
    return list(found.values())


def best_within(rows: list[dict[str, str]], share: float) -> dict[str, str]:
    paid = [row for row in rows if float(row["macs_share"]) <= share]
    return max(paid, key=lambda row: (float(row["score"]), -float(row["macs"])))


def chosen(out: str) -> tuple[str, str, str]:
    """Score, share of the MACs and description of the choice."""
    found = re.search(r"^chosen: accuracy (\S+) at (\S+) of the MACs \(.*\); (.*)$", out, flags=re.MULTILINE)
    assert found, out
    return found.group(1), found.group(2), found.group(3)


def told(row: dict[str, str]) -> tuple[str, str, str]:
    description = Subnet.from_json(row["subnet"]).describe()
    return f"{float(row['score']):.4f}", f"{float(row['macs_share']):.3f}", description


@pytest.fixture
def ruined(wild_place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A searched place whose weights are no weights any more; a forward pass would fail too."""
    monkeypatch.setattr(Supernet, "forward", lambda *_, **__: pytest.fail("a forward pass"))
    (wild_place / "runs/tiny/model.safetensors").write_bytes(b"no weights")
    return wild_place


def test_a_new_budget_is_answered_without_weights_with_the_nearest_that_are_measured(
    ldsearch: Ldsearch, ruined: Path
) -> None:
    assert ldsearch("evolve", *WILD_SEARCH, "--name", "new").code == 2  # so it is with anything that runs
    table = measured(ruined / RUN)
    shares = sorted(float(row["macs_share"]) for row in table)
    answers = set()
    for budget in (0.5, 0.55, 0.66, 0.7, 0.9):
        outcome = ldsearch.done("info", RUN, "--budget", budget)
        assert outcome.err == ""
        # Two sub-networks may have one score and one cost.
        assert chosen(outcome.out)[:2] == told(best_within(table, budget))[:2]
        answers.add(chosen(outcome.out))
        below = max(share for share in shares if share <= budget)
        above = min(share for share in shares if share > budget)
        assert (
            f"nearest measured within the budget {below:.3f} of the macs ({budget - below:.3f} away); "
            f"the next above it {above:.3f} of the macs ({above - budget:.3f} away)\n"
        ) in outcome.out
    assert len(answers) > 1
    everything = ldsearch("info", RUN, "--budget", "1.0").out
    assert "1.000 of the macs (0.000 away); nothing above it is measured" in everything
    refused = ldsearch.refused("info", RUN, "--budget", "0.1")
    assert f"measured sub-networks meets the budget 0.1: the cheapest costs {shares[0]:.3f}" in refused


def test_at_least_and_most_accurate_choose_among_the_same_and_show_its_frontier(
    ldsearch: Ldsearch, ruined: Path
) -> None:
    table = measured(ruined / RUN)
    full = next(row for row in table if not row["lengths"])
    enough = [row for row in table if float(row["score"]) >= float(full["score"])]
    cheapest = min(enough, key=lambda row: (float(row["macs"]), -float(row["score"])))
    assert chosen(ldsearch("info", RUN, "--at-least", "full").out) == told(cheapest)
    out = ldsearch("info", RUN, "--most-accurate").out
    assert chosen(out) == told(best_within(table, 1.0))
    assert "nearest" not in out
    points = {(float(row["macs"]), float(row["score"])) for row in table}
    unbeaten = [p for p in points if not any(q != p and q[0] <= p[0] and q[1] >= p[1] for q in points)]
    assert f"frontier: {len(unbeaten)} of {len(table)} measured sub-networks" in out
    most = max(macs for macs, _ in points)
    shown = re.findall(r"^│ (\d\.\d{3}) +│ (\d\.\d{4})", out, flags=re.MULTILINE)
    assert shown == [(f"{macs / most:.3f}", f"{score:.4f}") for macs, score in sorted(unbeaten)]


def test_measurements_of_every_search_count_and_a_supernet_stands_for_its_newest(
    ldsearch: Ldsearch, wild_place: Path
) -> None:
    ldsearch.done("evolve", "--strategy", "every-other", "--supernet", "runs/tiny")
    table = measured(wild_place / RUN, wild_place / "runs/tiny-every-other")
    (wild_place / "runs/tiny/model.safetensors").unlink()
    # Cheaper than any with all three blocks.
    assert min(float(row["macs_share"]) for row in table) < 0.4
    for name in ("tiny-evolve", "tiny"):
        out = ldsearch("info", f"runs/{name}", "--budget", 0.4).out
        assert chosen(out) == told(best_within(table, 0.4))
        assert f"of {len(table)} measured sub-networks" in out


def test_measurements_of_the_other_rows_do_not_mix_in(wild: Path, swapped: Path) -> None:
    before = run_in(wild, "info", RUN, "--budget", "0.7")
    for asked in (RUN, "runs/tiny"):  # nor does its newest run, which chose by the report rows
        assert run_in(swapped, "info", asked, "--budget", "0.7") == before
    # What the first run's search rows chose was scored on these rows; it is no candidate for that.
    out = run_in(swapped, "info", f"{RUN}-swap", "--budget", "0.7")
    assert "accuracy, report" in out
    tables = [*rows(swapped / RUN / "trials.csv"), *rows(swapped / RUN / "controls.csv")]
    held_out = {row["subnet"] for row in tables if row["on_frontier"] == "True"}
    rest = [row for row in measured(swapped / f"{RUN}-swap") if row["subnet"] not in held_out]
    assert chosen(out) == told(best_within(rest, 0.7))


def test_what_is_saved_is_what_evaluate_takes(ldsearch: Ldsearch, wild_place: Path) -> None:
    answer = ldsearch("info", RUN, "--budget", 0.7, "--save", "kept/half.json")
    refused = ldsearch.refused("info", RUN, "--save", "kept/half.json")
    assert refused == "kept/half.json exists already: choose another --save\n"
    score, share, description = chosen(answer.out)
    assert f"next: ldsearch evaluate {RUN} --subnet kept/half.json" in answer.out
    kept = json.loads((wild_place / "kept/half.json").read_text())
    assert kept["split"] == "search"
    assert Subnet.from_json(json.dumps(kept["subnet"])).describe() == description
    # The rows that chose it do not report on it, unless asked to, and then it is said.
    assert " report examples" in ldsearch("evaluate", "runs/tiny", "--subnet", "kept/half.json").out
    outcome = ldsearch.done("evaluate", RUN, "--subnet", "kept/half.json", "--split", "search")
    assert "chose by these very examples" in outcome.err
    assert description in outcome.out
    assert re.search(rf"^accuracy +{score} on 40 search examples$", outcome.out, flags=re.MULTILINE)
    assert f"{share} of the full model's" in outcome.out


def planted(place: Path, *stored: tuple[Subnet, float, float]) -> None:
    """The run of a supernet of two blocks, by hand: sub-network, score, MACs, in stored order."""
    for folder, name, fields in (
        ("net", "supernet.json", {"blocks": 2}),
        ("run", "run.json", {"identity": {"fingerprint": "f"}, "supernet": "../net", "measurements": ".."}),
    ):
        (place / folder).mkdir(parents=True)
        (place / folder / name).write_text(json.dumps(fields))
    cache = MeasurementCache(place / "measurements.db", "f")
    for subnet, score, macs in stored:
        cache.put(Trial(subnet, "accuracy", Score(score), {"macs": macs}, 10, "search", 1.0, "f"))


def test_the_full_model_is_found_wherever_it_is_stored_and_refused_where_it_is_not(
    ldsearch: Ldsearch, tmp_path: Path
) -> None:
    others = (Subnet.of_encoder([1]), 0.7, 5.0), (Subnet.of_encoder([0, 1], (8, 2), 16), 0.8, 6.0)
    planted(tmp_path / "with", *others, (Subnet.full(2), 0.75, 10.0))
    run, net = tmp_path / "with/run", tmp_path / "with/net"
    assert chosen(ldsearch("info", run, "--at-least", "full").out)[:2] == ("0.8000", "0.600")
    for asked in (run, net):
        assert chosen(ldsearch("info", asked, "--budget", "0.5").out)[:2] == ("0.7000", "0.500")
    planted(tmp_path / "without", *others)
    said = ldsearch.refused("info", tmp_path / "without/run", "--most-accurate")
    assert "no measurement of the full model" in said
