"""ldsearch info RUN --budget: another budget from what is measured, with no model and no forward pass."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ldsearch.storage import MeasurementCache
from ldsearch.subnet import Subnet
from ldsearch.supernet.supernet import Supernet
from ldsearch.trials.trial import Score, Trial
from tests.cli.conftest import WILD_SEARCH, Ldsearch, rows

RUN = "runs/tiny-evolve"


def measured(*runs: Path) -> list[dict[str, str]]:
    """Every measurement of the runs' tables, each sub-network once."""
    found = {}
    for run in runs:
        for path in sorted(run.glob("[tc]*s.csv")):
            found.update({row["subnet"]: row for row in rows(path)})
    assert len(found) > 30
    return list(found.values())


def held_out_of(run: Path) -> list[dict[str, str]]:
    """What a run scored on rows that chose nothing: its frontier and those of its controls."""
    tables = [*rows(run / "trials.csv"), *rows(run / "controls.csv")]
    return [row for row in tables if row["on_frontier"] == "True"]


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

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a forward pass")

    monkeypatch.setattr(Supernet, "forward", refuse)
    (wild_place / "runs/tiny/model.safetensors").write_bytes(b"no weights")
    return wild_place


def test_a_new_budget_is_answered_without_weights(ldsearch: Ldsearch, ruined: Path) -> None:
    assert ldsearch("evolve", *WILD_SEARCH, "--name", "new").code == 2  # so it is with anything that runs
    table = measured(ruined / RUN)
    answers = set()
    for share in (0.5, 0.55, 0.7, 0.9, 1.0):
        outcome = ldsearch.done("info", RUN, "--budget", share)
        assert outcome.err == ""
        # Two sub-networks may have one score and one cost.
        assert chosen(outcome.out)[:2] == told(best_within(table, share))[:2]
        answers.add(chosen(outcome.out))
    assert len(answers) > 1


def test_it_says_how_far_the_nearest_measured_are_from_the_budget(ldsearch: Ldsearch, ruined: Path) -> None:
    shares = sorted(float(row["macs_share"]) for row in measured(ruined / RUN))
    for budget in (0.5, 0.66, 0.7):
        below = max(share for share in shares if share <= budget)
        above = min(share for share in shares if share > budget)
        assert (
            f"nearest measured within the budget {below:.3f} of the macs ({budget - below:.3f} away); "
            f"the next above it {above:.3f} of the macs ({above - budget:.3f} away)\n"
        ) in ldsearch("info", RUN, "--budget", budget).out
    everything = ldsearch("info", RUN, "--budget", "1.0").out
    assert "1.000 of the macs (0.000 away); nothing above it is measured" in everything
    refused = ldsearch("info", RUN, "--budget", "0.1")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert f"measured sub-networks meets the budget 0.1: the cheapest costs {shares[0]:.3f}" in refused.err


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
    one_block = min(float(row["macs_share"]) for row in table)
    assert one_block < 0.4  # cheaper than any with all three blocks
    answers = [ldsearch("info", f"runs/{name}", "--budget", 0.4) for name in ("tiny-evolve", "tiny")]
    for outcome in answers:
        assert chosen(outcome.out) == told(best_within(table, 0.4))
        assert f"of {len(table)} measured sub-networks" in outcome.out


def test_measurements_of_the_other_rows_do_not_mix_in(ldsearch: Ldsearch, wild_place: Path) -> None:
    before = ldsearch("info", RUN, "--budget", 0.7).out
    ldsearch.done("evolve", *WILD_SEARCH, "--swap")
    assert ldsearch("info", RUN, "--budget", 0.7).out == before
    # Not the newest run, which chose by the report rows.
    assert ldsearch("info", "runs/tiny", "--budget", 0.7).out == before
    # What the first run's search rows chose was scored on these rows; it is no candidate for that.
    swapped = ldsearch("info", f"{RUN}-swap", "--budget", 0.7).out
    assert "accuracy, report" in swapped
    first = {row["subnet"] for row in held_out_of(wild_place / RUN)}
    rest = [row for row in measured(wild_place / f"{RUN}-swap") if row["subnet"] not in first]
    assert chosen(swapped) == told(best_within(rest, 0.7))


def test_what_is_saved_is_what_evaluate_takes(ldsearch: Ldsearch, wild_place: Path) -> None:
    answer = ldsearch("info", RUN, "--budget", 0.7, "--save", "kept/half.json")
    refused = ldsearch("info", RUN, "--save", "kept/half.json")
    assert refused.err == "error: kept/half.json exists already: choose another --save\n"
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


SHORT, ONE = Subnet.of_encoder([0, 1], (8, 2), 16), Subnet.of_encoder([1])


def test_the_full_model_is_found_wherever_it_is_stored_and_refused_where_it_is_not(
    ldsearch: Ldsearch, tmp_path: Path
) -> None:
    planted(tmp_path / "with", (ONE, 0.7, 5.0), (SHORT, 0.8, 6.0), (Subnet.full(2), 0.75, 10.0))
    run, net = tmp_path / "with/run", tmp_path / "with/net"
    assert chosen(ldsearch("info", run, "--at-least", "full").out)[:2] == ("0.8000", "0.600")
    assert chosen(ldsearch("info", run, "--budget", "0.5").out)[:2] == ("0.7000", "0.500")
    assert chosen(ldsearch("info", net, "--budget", "0.5").out)[:2] == ("0.7000", "0.500")
    planted(tmp_path / "without", (ONE, 0.7, 5.0), (SHORT, 0.8, 6.0))
    assert "no measurement of the full model" in ldsearch.refused(
        "info", tmp_path / "without/run", "--most-accurate"
    )


def test_it_does_not_even_load_torch(wild_place: Path) -> None:
    program = (
        "import sys\n"
        f"sys.argv = ['ldsearch', 'info', '{RUN}', '--budget', '0.7']\n"
        "from ldsearch.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as exit_: print('CODE', exit_.code)\n"
        "print('HEAVY', sorted({'torch', 'transformers', 'datasets'} & set(sys.modules)))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.endswith("CODE 0\nHEAVY []\n"), found.stdout[-200:]
