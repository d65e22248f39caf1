"""ldsearch profile: what it prints and writes, and what it refuses in one line."""

import json
import os
from pathlib import Path

import pytest

from ldsearch.latency.table import LatencyTable
from ldsearch.subnet import Subnet
from tests.cli.conftest import Ldsearch, read, rows

PRUNED = '{"version":1,"encoder":{"blocks":[1]}}'
QUICK = ("--batch", "2", "--length", "8", "--repeats", "2")


def test_a_subnetwork_of_a_supernet_beside_the_full_model(ldsearch: Ldsearch, place: Path) -> None:
    asked = ("profile", "runs/tiny", "--subnet", PRUNED, "--batch", "1,2", "--length", "8,data")
    outcome = ldsearch.done(*asked, "--repeats", "2", "--threads", "1")
    found = rows(place / "runs/tiny-profile/latency.csv")
    cells = [(batch, length) for length in ("8", "data") for batch in ("1", "2")]
    assert [(row["batch"], row["length"]) for row in found[::3]] == cells
    assert [row["runtime"] for row in found] == ["eager", "own", "eager"] * 4
    # One block of two; pooler and classifier are 16 x 16 + 16 x 2, once.
    assert all(0.5 < float(pruned["macs_ratio"]) < 0.53 for pruned in found[2::3])
    assert all(row["peak_activation_bytes"] == row["cache_bytes_per_token"] == "" for row in found)
    facts = read(place / "runs/tiny-profile/latency.json")
    assert (facts["threads"], facts["dtype"]) == (1, "float32")
    assert set(facts["noise"]) == {f"batch {b}, length {n}" for b in (1, 2) for n in (8, "data")}
    assert "#1: encoder blocks 1; weights" in outcome.out
    assert "activations not measured" in outcome.out
    # Noise is said in words on stderr, once for each noisy cell.
    assert outcome.err.count("noisy machine") == sum(own["noisy"] for own in facts["noise"].values())


def test_a_runs_frontier_is_drawn_and_its_folder_holds_the_reports(
    ldsearch: Ldsearch, wild_place: Path
) -> None:
    folder = wild_place / "runs/tiny-evolve"
    frontier = [row["subnet"] for row in rows(folder / "frontier.csv")]
    assert len(frontier) >= 3
    before = {*os.listdir(folder)}
    ldsearch.done("profile", folder, "--frontier", *QUICK)
    assert {*os.listdir(folder)} - before == {f"latency.{kind}" for kind in ("csv", "json", "png", "svg")}
    assert (folder / "latency.png").read_bytes().startswith(b"\x89PNG")
    timed = {row["subnet"]: row for row in rows(folder / "latency.csv")}
    assert {*timed} == {Subnet.full(3).to_json(), *frontier}
    # What was timed is in the table that info and the report open with, as is the time of the full model.
    own = read(folder / "best.json")
    best, held = Subnet.from_json(json.dumps(own["subnet"])).to_json(), own["held_out"]
    line = timed[best]
    said = ldsearch("info", folder).out
    heading, full, first, *_ = said.splitlines()
    assert heading.endswith("ms, 2x8")
    assert f"full model, {line['full_runtime']}" in full
    assert float(full.split()[-1]) == pytest.approx(float(line["full_ms"]), rel=1e-2)
    assert first.split()[2] == f"{held['score']:.4f}"
    assert "{low:+.4f} to {high:+.4f}".format(**held["difference"]) in first
    assert f"{float(line['ratio']):.2f} at 2x8" in " ".join(said.split())
    ldsearch.done("report", folder)
    page = Path("report.html").read_text()
    assert page.index(f"<td>{held['score']:.4f}</td>") < page.index("search space")
    # The run's best, elsewhere, and no figure of a single point.
    ldsearch.done("profile", folder, *QUICK, "--name", "alone")
    assert {*os.listdir("runs/alone")} == {"latency.csv", "latency.json"}
    assert best in {row["subnet"] for row in rows(wild_place / "runs/alone/latency.csv")}
    # Another question does not overwrite that answer.
    assert "holds another run, which differs in batch" in ldsearch.refused(
        "profile", folder, "--batch", "1", *QUICK[2:], "--name", "alone"
    )


def test_predictions_of_the_table_beside_the_supernet_are_judged(
    ldsearch: Ldsearch, wild_place: Path
) -> None:
    folder, path = wild_place / "runs/tiny-evolve", wild_place / "runs/tiny-latency.csv"
    full = Subnet.full(3).to_json()
    asked = ("profile", folder, "--frontier", *QUICK)
    outcome = ldsearch(*asked, "--name", "without")
    assert "predict" not in outcome.out + outcome.err
    ldsearch.done("profile", "runs/tiny", "--table", path, *QUICK)
    before = path.read_bytes()
    assert "measured now: 0" in ldsearch.done("profile", "runs/tiny", "--table", path, *QUICK).out
    assert path.read_bytes() == before
    outcome = ldsearch.done(*asked, "--name", "with")
    found = rows(wild_place / "runs/with/latency.csv")
    table = LatencyTable.load(path)
    own = [row for row in found if row["runtime"] == "eager"]
    assert all(row["predicted_ms"] for row in found)
    assert {row["subnet"] for row in own} > {full}
    predicted = table.predict([Subnet.from_json(row["subnet"]) for row in own], 2, 8)
    off = predicted / [float(row["median_ms"]) for row in own] - 1
    said = f"of {len(own)} sub-networks are off by {abs(off).mean():.1%} in the mean"
    assert f"eager, 2 x 8: the latency table's predictions {said} ({off.mean():+.1%})" in outcome.out
    assert outcome.out.count("MACs and latency correlate, r = ") == 1
    # Another device's says nothing, which is said.
    path.write_text(path.read_text().replace('"device": "cpu: ', '"device": "cuda: '))
    outcome = ldsearch(*asked, "--name", "other")
    assert "note: nothing is predicted: the latency table is of another device" in outcome.err
    assert not any(row["predicted_ms"] for row in rows(wild_place / "runs/other/latency.csv"))
