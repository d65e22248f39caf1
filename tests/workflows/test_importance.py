"""Importance of blocks: planted additive scores, three blocks by hand, going on after a kill, refusals."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ldsearch.bench import Bench
from ldsearch.commands.importance import block_importance
from ldsearch.errors import RunError, SpaceError
from ldsearch.evaluation.counts import Counts
from ldsearch.options import Report
from ldsearch.runs.run import CACHE_FILE
from ldsearch.subnet import Subnet
from ldsearch.trials.trial import Score, Trial
from ldsearch.work.progress import Progress
from tests.cli.conftest import Ldsearch, ldsearch, place, read, rows, trained, wild, wild_place

__all__ = ["ldsearch", "place", "trained", "wild", "wild_place"]  # fixtures of the command line's tests
WEIGHTS = (4.0, -1.0, 0.5, 0.0, 2.0, 8.0)
FILES = {"importance.csv", "importance.png", "importance.svg", "importance.json"}


class PlantedEvaluator:
    """Scores a sub-network by the sum of its blocks' weights, of every stack."""

    def __init__(self, higher: bool) -> None:
        self.higher = higher
        self.fingerprint = "planted"
        self.counts = Counts()
        self.measured: list[Subnet] = []

    def __call__(
        self,
        subnets: Sequence[Subnet],
        generation: int,
        on_trial: Callable[[Trial], None],
        on_wait: Callable[[int], None],
    ) -> list[Trial]:
        trials = []
        for subnet in subnets:
            kept = [block for stack in subnet.stacks().values() for block in stack.blocks]
            value = sum(WEIGHTS[block] for block in kept) * (1 if self.higher else -1)
            trials.append(Trial(subnet, "planted", Score(value, self.higher), {}, 7, "search", 0.0, "f"))
            on_trial(trials[-1])
        self.measured += subnets
        return trials


@pytest.mark.parametrize(("higher", "keep"), [(True, None), (False, 2)])
def test_planted_contributions_of_one_stack_come_back_exactly(
    tmp_path: Path, higher: bool, keep: int | None
) -> None:
    pinned = {"encoder": (), "decoder": (0,)}
    supernet = SimpleNamespace(depths={"encoder": 3, "decoder": 6}, pinned_of=pinned.__getitem__)
    evaluator = PlantedEvaluator(higher)
    # As much of a bench as importance looks at.
    bench: Any = SimpleNamespace(
        folder=tmp_path / "net", supernet=supernet, evaluator=evaluator, require_supernet=lambda: None
    )
    study = block_importance(bench, tmp_path / "i", Report(stack="decoder", keep=keep, subsets=4))
    assert study.table["block"].tolist() == [1, 2, 3, 4, 5]
    assert study.table["loss"].tolist() == list(WEIGHTS[1:])
    assert study.table["standard_error"].tolist() == [0.0] * 5
    assert [study.fields[name] for name in ("metric", "examples", "split")] == ["planted", 7, "search"]
    kept = keep or 3
    assert {len(subnet.decoder.blocks) for subnet in evaluator.measured} == {kept, kept + 1}
    assert all(0 in subnet.decoder.blocks for subnet in evaluator.measured)
    assert {subnet.encoder.blocks for subnet in evaluator.measured} == {(0, 1, 2)}
    with pytest.raises(RunError, match=r"more than one stack: choose --stack encoder or --stack decoder"):
        block_importance(bench, tmp_path / "e", Report())
    with pytest.raises(SpaceError, match="cannot keep 6 of 6"):
        block_importance(bench, tmp_path / "no", Report(stack="decoder", keep=6))


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
    assert [float(row["without"]) for row in table] == pytest.approx(
        [(one[1] + one[2]) / 2, (one[0] + one[2]) / 2, (one[0] + one[1]) / 2]
    )
    assert all(f"{loss:+.4f}" in outcome.out for loss in by_hand)
    fields = read(folder / "importance.json")
    assert (fields["identity"]["seed"], fields["identity"]["keep"], fields["metric"]) == (0, 1, "accuracy")
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
