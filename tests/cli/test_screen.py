"""The terminal: a search ends on one screen, and says how far it is; with a clock of our own."""

import math
import re
import time
from pathlib import Path

import pytest
from rich.progress import Progress as Bars

from ldsearch.commands import console
from ldsearch.commands.console import best_so_far, print_columns, progress_bars
from ldsearch.subnet import Subnet
from ldsearch.trials.goal import Goal
from ldsearch.trials.trial import Score, Trial
from ldsearch.work.progress import Counted, Lines, in_minutes
from tests.cli.conftest import TRAIN, Ldsearch, read


def trial(macs: float, score: float, split: str = "search", seconds: float = 1.0) -> Trial:
    own = Subnet.full(int(macs))
    return Trial(own, "accuracy", Score(score, True), {"macs": macs}, 9, split, seconds, "f")


class Clock:
    """Goes on when told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_a_terminal_a_line_a_minute_says_phase_count_time_left_and_best() -> None:
    clock, lines = Clock(), list[str]()
    progress = Lines(lines.append, best_so_far(Goal.parse(budget="0.5")), clock)
    progress.phase("surrogate", 30)
    trials = [trial(100, 0.9), trial(60, 0.85), trial(50, 0.7), trial(40, 0.8), trial(45, 0.75)]
    for one in trials:
        clock.now += 25.0  # 125 seconds in all
        progress.trial(one)
    # 75 s after it began: three of thirty, the best that the budget allows; then nothing before 135.
    assert lines == ["surrogate: 3 of 30, about 11 min left, best 0.7000 at 0.500"]
    clock.now = 175.0 + 60.0
    progress.waiting(2)
    # As fast as the five until 225: while nothing comes the estimate does not grow.
    assert lines[1:] == ["surrogate: 5 of 30, about 10 min left, waiting for another worker"]
    clock.now += 59.9
    progress.step()
    assert len(lines) == 2
    clock.now += 0.1
    progress.phase("report split", None)
    assert lines[2:] == ["report split"]


def test_what_was_measured_before_says_nothing_of_the_time_left() -> None:
    clock = Clock()
    progress = Counted(clock=clock)
    progress.phase("search", 30)
    for _ in range(20):
        clock.now += 0.1
        progress.trial(trial(100, 0.9, seconds=0.0))
    assert math.isnan(progress.seconds_left)
    clock.now += 8.0
    progress.trial(trial(60, 0.8))
    assert progress.seconds_left == pytest.approx(9 * 8.0)
    # What another worker measured meanwhile is found too, and shortens what is left.
    progress.trial(trial(50, 0.8, seconds=0.0))
    assert progress.seconds_left == pytest.approx(8 * 4.0)


def test_a_line_a_minute_comes_also_while_one_step_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines, "EVERY", 0.01)  # seconds
    lines = list[str]()
    with Lines(lines.append).ticking() as progress:
        progress.phase("search", 5)
        progress.step()
        lines.clear()
        deadline = time.monotonic() + 30
        while len(lines) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    ended = len(lines)
    assert ended >= 3
    assert all(re.fullmatch(r"search: 1 of 5, about \d+ s left", line) for line in lines)
    time.sleep(0.05)
    assert len(lines) == ended


def test_training_without_a_terminal_says_count_and_time_left(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lines, "EVERY", 0.001)  # seconds
    outcome = ldsearch.done(*TRAIN, "--name", "told", "--max_steps", 4, "--logging_steps", 2)
    lines = outcome.out.splitlines()
    assert [line for line in lines if line.startswith("training: 3 of 4, about ")]
    assert [line for line in lines if "'loss'" in line]  # what the Trainer logs stays
    assert lines.index("saving the model") < lines.index("scoring the trained model")
    assert "\r" not in outcome.err


def test_rows_that_choose_nothing_have_no_best_and_no_goal_the_last_score() -> None:
    progress = Counted(best_so_far(Goal.parse(budget="0.5")))
    progress.phase("search", 2)
    progress.trial(trial(100, 0.9))
    assert progress.state == ""  # nothing within the budget yet
    progress.trial(trial(40, 0.8))
    assert progress.state == "best 0.8000 at 0.400"
    progress.phase("report split", 1)
    progress.trial(trial(100, 0.9, "report"))
    assert progress.state == ""
    without = Counted()
    without.trial(trial(100, 0.9))
    assert without.state == "accuracy 0.9000"


def test_a_margin_shows_the_best_score_on_the_way() -> None:
    best = best_so_far(Goal.parse(at_least="full-0.01"))
    assert best([trial(100, 0.9), trial(40, 0.8), trial(50, 0.85)]) == trial(50, 0.85)
    assert best([trial(100, 0.9)]) is None


def test_durations_are_short() -> None:
    told = {4.4: "4 s", 99: "99 s", 100: "2 min", 5_000: "83 min", 7_500: "2 h 5 min"}
    assert {seconds: in_minutes(seconds) for seconds in told} == told


@pytest.mark.parametrize(
    "environment", [{"FORCE_COLOR": "1", "TERM": "xterm"}, {}, {"FORCE_COLOR": "1", "TERM": "dumb"}]
)
def test_bars_are_for_terminals_and_have_80_columns(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("FORCE_COLOR", "TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**environment, "COLUMNS": "80", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    with progress_bars(best=best_so_far(Goal.parse(budget="0.5"))) as bars:
        bars.phase("constant-ratio", 1000)
        bars.trial(trial(100, 0.9))
        bars.trial(trial(40, 0.8))
        if environment.get("TERM") == "xterm":
            assert isinstance(bars, console.ProgressBars)
            assert isinstance(bars.progress, Bars)
            with bars.progress.console.capture() as capture:
                bars.progress.console.print(bars.progress.get_renderable())
            shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capture.get()).replace("\r", "").splitlines()
            assert max(map(len, shown)) <= 80
            (line,) = (line.rstrip() for line in shown if "2/1000" in line)
            assert line.startswith("constant-ratio ")
            assert line.endswith("best 0.8000 at 0.400")
        else:
            assert isinstance(bars, Lines)
    out = capsys.readouterr().out
    assert not re.search(r"\x1b\[(3[0-7]|9[0-7]|38)", out)  # no colour under NO_COLOR


def test_columns_are_aligned_and_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    free = "blocks " + " ".join(map(str, range(60)))
    print_columns(["cost", "sub-network"], [["0.5", free], ["0.25", "x [bold]y"]], bold=1)
    assert capsys.readouterr().out.splitlines() == ["cost  sub-network", f" 0.5  {free}", "0.25  x [bold]y"]


def test_a_search_ends_on_one_screen(ldsearch: Ldsearch, wild_place: Path) -> None:
    lines = (wild_place / "said.txt").read_text().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    best = read(wild_place / "runs/tiny-evolve/best.json")
    (chosen,) = [line for line in lines if line.startswith("*")]
    share = best["costs"]["macs"] / best["full_costs"]["macs"]
    held = best["held_out"]
    scores = f"{share:.3f} {best['score']:.4f} {held['score']:.4f} {held['difference']['low']:+.4f}"
    assert chosen[1:].split()[:4] == scores.split()
    assert any(line.startswith(" 1.000") and "full model" in line for line in lines)
    assert "next: ldsearch export runs/tiny-evolve exported/tiny-evolve" in lines
    # The rest: every point of the frontier, and what held-out rows say of it.
    run = read(wild_place / "runs/tiny-evolve/run.json")
    told = ldsearch.done("info", "runs/tiny-evolve")
    assert len(re.findall(r"^\d\.\d{3} .* encoder blocks", told.out, re.MULTILINE)) == run["frontier"]
    for sentence in run["held_out"]["in_words"]:
        assert sentence in " ".join(told.out.split())
