"""Importance of blocks: two stacks, three blocks by hand, going on after a kill, the divergence."""

from pathlib import Path

import pytest

from ldsearch.bench import Bench
from ldsearch.commands.importance import block_importance
from ldsearch.errors import RunError
from ldsearch.options import Report
from ldsearch.runs.run import CACHE_FILE
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.trials.trial import Trial
from ldsearch.work.progress import Progress
from tests.cli.conftest import Ldsearch, ldsearch, place, read, rows, trained, wild, wild_place

__all__ = ["ldsearch", "place", "trained", "wild", "wild_place"]  # fixtures of the command line's tests
FILES = {"importance.csv", "importance.png", "importance.svg", "importance.json"}


def test_of_two_stacks_the_named_one_is_looked_at_beside_all_of_the_other_and_pinned_blocks_stay(
    translator: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supernet, "pinned_of", lambda _, stack: (0,) if stack == "decoder" else ())

    def perplexity(*decoder: int) -> float:
        (trial,) = translator.evaluator([Subnet.of_blocks({"encoder": (0, 1), "decoder": decoder})])
        return trial.score.value

    study = block_importance(translator, tmp_path / "i", Report(stack="decoder"))
    assert study.table["block"].tolist() == [1]
    assert study.table["loss"].tolist() == pytest.approx([perplexity(0) - perplexity(0, 1)])
    assert (study.fields["metric"], study.fields["split"]) == ("perplexity", "search")
    with pytest.raises(RunError, match=r"more than one stack: choose --stack encoder or --stack decoder"):
        block_importance(translator, tmp_path / "e", Report())


class Killer(Progress):
    """Kills the measurement at its third trial."""

    def __init__(self) -> None:
        self.left = 3

    def phase(self, name: str, total: int | None) -> None:
        assert (name, total) == ("sub-networks", 3 * 2 * 2)

    def trial(self, trial: Trial) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_three_blocks_by_hand_after_a_kill_and_the_same_command_again_measures_nothing(
    ldsearch: Ldsearch, wild_place: Path
) -> None:
    Path("runs", CACHE_FILE).unlink()  # what the place's searches measured
    bench = Bench.open("runs/tiny", runs=Path("runs"))
    folder = wild_place / "runs/tiny-importance"
    with pytest.raises(KeyboardInterrupt):
        block_importance(bench, folder, Report(keep=1), progress=Killer())
    assert {path.name for path in folder.iterdir()} == {"importance.json"}
    assert 0 < len(bench.evaluator.cache.trials()) < 6  # of three blocks one by one and in pairs

    outcome = ldsearch.done("report", "runs/tiny", "--importance", "--keep", 1)
    assert {path.name for path in folder.iterdir()} == FILES
    table = rows(folder / "importance.csv")

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
    assert [float(row["loss"]) for row in table] == pytest.approx(by_hand)
    assert all(f"{loss:+.4f}" in outcome.out for loss in by_hand)
    fields = read(folder / "importance.json")
    # A run stands for its supernet.
    again = ldsearch.done("report", "runs/tiny-evolve", "--importance", "--keep", 1)
    assert "nothing was run" in again.out
    assert read(folder / "importance.json")["blocks"] == fields["blocks"]


def test_by_the_divergence_a_blocks_loss_is_that_of_the_others_alone(ldsearch: Ldsearch, place: Path) -> None:
    ldsearch.done("report", "--importance", "--objective", "kl", "--name", "kl")
    blocks = read(place / "runs/kl/importance.json")["blocks"]
    # The full model's divergence from itself is 0.
    assert [block["restored"] for block in blocks] == pytest.approx([0, 0], abs=1e-6)
    assert all(b["loss"] == pytest.approx(b["without"], abs=1e-6) and b["loss"] > 0 for b in blocks)
    assert "holds another run, which differs in seed" in ldsearch.refused(
        "report", "--importance", "--seed", 1, "--objective", "kl", "--name", "kl"
    )
