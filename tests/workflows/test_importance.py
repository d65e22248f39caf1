"""Importance of blocks: planted additive scores, three blocks by hand, going on after a kill, refusals."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

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
from tests.cli.conftest import Ldsearch, ldsearch, place, read, trained, wild, wild_place

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


def planted_bench(place: Path, higher: bool, pinned: tuple[int, ...] = (), **depths: int) -> SimpleNamespace:
    """As much of a bench as importance looks at."""
    stack = next(iter(depths))
    supernet = SimpleNamespace(
        depths=depths, stack=stack, pinned_of=lambda name: pinned if name == stack else ()
    )
    evaluator = PlantedEvaluator(higher)
    folder = place / "runs" / "planted"
    return SimpleNamespace(
        folder=folder, supernet=supernet, evaluator=evaluator, require_supernet=lambda: None
    )


@pytest.mark.parametrize(("higher", "keep"), [(True, None), (False, 2), (True, 5)])
def test_planted_contributions_come_back_exactly(tmp_path: Path, higher: bool, keep: int | None) -> None:
    bench = planted_bench(tmp_path, higher, decoder=6)
    study = block_importance(bench, tmp_path / "i", Report(keep=keep, subsets=4))
    assert study.table["block"].tolist() == list(range(6))
    assert study.table["loss"].tolist() == list(WEIGHTS)
    assert study.table["standard_error"].tolist() == [0.0] * 6
    kept = keep or 3
    assert {len(subnet.decoder.blocks) for subnet in bench.evaluator.measured} == {kept, kept + 1}
    assert [study.fields[name] for name in ("metric", "examples", "split")] == ["planted", 7, "search"]


def test_a_stack_of_two_is_named_and_the_other_one_stays_whole(tmp_path: Path) -> None:
    bench = planted_bench(tmp_path, True, encoder=3, decoder=6)
    study = block_importance(bench, tmp_path / "d", Report(stack="decoder", subsets=3))
    assert study.table["loss"].tolist() == list(WEIGHTS)
    assert {subnet.encoder.blocks for subnet in bench.evaluator.measured} == {(0, 1, 2)}
    with pytest.raises(RunError, match=r"more than one stack: choose --stack encoder or --stack decoder"):
        block_importance(bench, tmp_path / "e", Report())


def test_pinned_blocks_run_in_all_and_have_no_importance(tmp_path: Path) -> None:
    bench = planted_bench(tmp_path, True, pinned=(0,), encoder=6)
    study = block_importance(bench, tmp_path / "i", Report(keep=2))
    assert study.table["block"].tolist() == [1, 2, 3, 4, 5]
    assert all(0 in subnet.encoder.blocks for subnet in bench.evaluator.measured)
    with pytest.raises(SpaceError, match="cannot keep 6 of 6"):
        block_importance(bench, tmp_path / "no", Report(keep=6))


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
    with (folder / "importance.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

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
