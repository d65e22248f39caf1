"""ldsearch importance from end to end: the table, the same command again, what is refused."""

import csv
import re
from pathlib import Path

import pytest

from ldsearch.bench import Bench
from ldsearch.subnet import Subnet
from tests.cli.conftest import Ldsearch, read

FILES = {"importance.csv", "importance.png", "importance.json"}


def test_three_blocks_by_hand_and_the_same_command_again_measures_nothing(
    ldsearch: Ldsearch, wild_place: Path
) -> None:
    outcome = ldsearch("report", "runs/tiny", "--importance", "--keep", 1)
    assert outcome.code == 0, outcome.err
    folder = wild_place / "runs/tiny-importance"
    assert {path.name for path in folder.iterdir()} == FILES
    with (folder / "importance.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    bench = Bench.open(wild_place / "runs/tiny")

    def accuracy(*blocks: int) -> float:
        return float(bench.evaluator.statistics(Subnet.of_encoder(blocks)).mean())

    one = {block: accuracy(block) for block in range(3)}
    two = {pair: accuracy(*pair) for pair in ((0, 1), (0, 2), (1, 2))}
    assert len({*one.values(), *two.values()}) > 2
    by_hand = [
        (two[0, 1] - one[1] + two[0, 2] - one[2]) / 2,
        (two[0, 1] - one[0] + two[1, 2] - one[2]) / 2,
        (two[0, 2] - one[0] + two[1, 2] - one[1]) / 2,
    ]
    assert [float(row["loss"]) for row in rows] == pytest.approx(by_hand)
    assert [float(row["without"]) for row in rows] == pytest.approx(
        [(one[1] + one[2]) / 2, (one[0] + one[2]) / 2, (one[0] + one[1]) / 2]
    )
    assert "all sub-networks of 1 encoder blocks that lack the block" in " ".join(outcome.out.split())
    for loss in by_hand:
        assert f"{loss:+.4f}" in outcome.out
    fields = read(folder / "importance.json")
    assert (fields["identity"]["seed"], fields["identity"]["keep"], fields["metric"]) == (0, 1, "accuracy")
    assert [block["loss"] for block in fields["blocks"]] == pytest.approx(by_hand)
    again = ldsearch(
        "report", "runs/tiny-evolve", "--importance", "--keep", 1
    )  # a run stands for its supernet
    assert again.code == 0
    assert "nothing was run" in again.out
    assert read(folder / "importance.json")["blocks"] == fields["blocks"]


def test_two_blocks_and_the_newest_supernet_by_default(ldsearch: Ldsearch, place: Path) -> None:
    outcome = ldsearch("report", "--importance", "--objective", "kl", "--name", "kl")
    assert outcome.code == 0, outcome.err
    assert {path.name for path in (place / "runs/kl").iterdir()} == FILES
    fields = read(place / "runs/kl/importance.json")
    # The full model's divergence from itself is 0, so a block's loss is that of the other one alone.
    assert [b["restored"] for b in fields["blocks"]] == pytest.approx([0, 0], abs=1e-6)
    assert all(b["loss"] == pytest.approx(b["without"], abs=1e-6) and b["loss"] > 0 for b in fields["blocks"])
    other = ldsearch("report", "--importance", "--seed", 1, "--objective", "kl", "--name", "kl")
    assert other.code == 2
    assert "holds another run (its seed differ)" in other.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--keep", 2), "cannot keep 2 of 2 blocks and leave one out: possible is 1 to 1"),
        (("--stack", "decoder"), "the model has no decoder: its blocks are the encoder's"),
        (("--objective", "speed"), "unknown objective 'speed': use one of score, kl"),
        (("nowhere",), "nowhere is not a search run: it has no run.json"),
    ],
)
def test_bad_options_are_one_line_and_write_nothing(
    ldsearch: Ldsearch, place: Path, flags: tuple[object, ...], words: str
) -> None:
    outcome = ldsearch("report", "--importance", *flags)
    assert outcome.code == 2
    assert re.sub(r"\s+", " ", outcome.err).strip().removeprefix("error: ") == words
    assert not (place / "runs/tiny-importance").exists()
