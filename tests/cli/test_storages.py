"""A storage that workers share, from the command line: searched in, and read again."""

from pathlib import Path

import pandas as pd

from tests.cli.conftest import WILD_SEARCH, Ldsearch, read


def test_a_search_in_a_shared_storage_ends_as_one_without_and_info_reads_the_same_storage(
    ldsearch: Ldsearch, wild_place: Path
) -> None:
    storage, run = f"journal:{wild_place}/shared.log", "runs/shared"
    ldsearch.done("evolve", *WILD_SEARCH, "--name", "shared", "--storage", storage)
    assert read(wild_place / run / "run.json")["storage"] == f"{wild_place}/shared.log"
    frontier = (wild_place / run / "frontier.csv").read_text().splitlines()
    before = (wild_place / "runs/tiny-evolve/frontier.csv").read_text().splitlines()
    assert [line.split(",")[:11] for line in frontier] == [line.split(",")[:11] for line in before]

    lost = ldsearch.refused("info", run, "--most-accurate")
    assert lost == f"the workers of {run} shared {wild_place}/shared.log: say where it is with --storage\n"
    found = ldsearch.done("info", run, "--budget", 0.7, "--storage", storage)
    # Of what this storage has: the search's own measurements and its controls'.
    tables = [pd.read_csv(wild_place / run / name) for name in ("trials.csv", "controls.csv")]
    measured = pd.concat(tables).query("macs_share <= 0.7")
    best = measured.sort_values(["score", "macs"], ascending=[False, True]).iloc[0]
    assert f"chosen: accuracy {best['score']:.4f} at {best['macs_share']:.3f} of the MACs" in found.out
    other = ("info", run, "--most-accurate", "--storage", f"sqlite:///{wild_place}/none.db")
    assert ldsearch.refused(*other) == f"{wild_place}/none.db has no measurements of {run}\n"
