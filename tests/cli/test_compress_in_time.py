"""compress with a budget in time: in milliseconds, and as a speed-up."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ldsearch.bench import Bench
from ldsearch.compression import search as short_search
from ldsearch.latency.runtimes import RUNTIMES
from ldsearch.options import Evolve
from ldsearch.runs.run import Run
from ldsearch.search.controls import regular_line
from ldsearch.search.run import plan_search
from ldsearch.subnet import SUBNET_FILE
from ldsearch.work.progress import Progress
from tests.cli.conftest import Ldsearch, read
from tests.cli.test_compress import RUN


def test_a_budget_in_milliseconds_is_met_as_far_as_it_can_be_measured(
    ldsearch: Ldsearch, tuned: Path
) -> None:
    ldsearch.done(*RUN, "--budget", "900s@batch=2,length=16")
    chosen = read(tuned / "runs/small/compress.json")["points"][1]
    assert [*chosen["ms"]] == ["1x9", "8x9", "2x16"]
    # In the same folder for another batch: the file is timed there too.
    ldsearch.done(*RUN, "--budget", "900s@batch=4,length=16")
    chosen = read(tuned / "runs/small/compress.json")["points"][1]
    assert [*chosen["ms"]] == ["1x9", "8x9", "4x16"]
    assert Run.open(tuned / "runs/small").goal.budget is not None


class PlantedTimes:
    """A clock by which the whole model takes 10 ms, and of its ratios the cheapest first so many, evenly."""

    def __init__(self, *cheapest_and_dearest: tuple[float, float]) -> None:
        self.ends = [*cheapest_and_dearest]

    def calls(self, runs: int) -> int:
        return runs

    def __call__(self, runs: Sequence[object], progress: Progress) -> SimpleNamespace:
        times = [10, *np.linspace(*self.ends.pop(0), len(runs) - 1)]
        return SimpleNamespace(timings=[SimpleNamespace(median=ms / 1e3) for ms in times])


def test_a_speed_up_is_over_the_whole_models_own_file_at_batch_8_and_the_mean_length(
    ldsearch: Ldsearch, tuned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of eight ratios the fourth takes half of the ten milliseconds.
    clock = PlantedTimes((2, 9))
    monkeypatch.setattr(short_search, "clock_of_models", lambda device: clock)
    outcome = ldsearch.done(*RUN, "--budget", "2x")
    assert not clock.ends
    folder = tuned / "runs/small"
    assert "chosen (budget 2x@batch=8,length=9, by the times of some ratios" in " ".join(outcome.out.split())
    run, bench = Run.open(folder), Bench.open(folder / "supernet", runs=folder)
    context = plan_search(bench, Evolve(genes="lengths", widen=True, evaluations=99)).context
    fourth, whole = bench.macs([regular_line(context, 8)[3], bench.whole])
    assert run.goal.budget is not None
    assert run.goal.budget.limit == pytest.approx(fourth / whole, abs=0.0011)
    assert run.best.costs["macs"] <= run.goal.budget.limit * whole


def test_a_speed_up_is_over_the_fastest_runtime_whichever_serves(
    ldsearch: Ldsearch, tuned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openvino")
    timed = []

    class Watched:
        def __getitem__(self, name: str) -> object:
            timed.append(name)
            return RUNTIMES[name]

    monkeypatch.setattr(short_search, "clock_of_models", lambda device: PlantedTimes((2, 9)))
    monkeypatch.setattr(short_search, "RUNTIMES", Watched())
    ldsearch.done(*RUN, "--budget", "2x", "--runtime", "openvino-f32")
    assert timed == ["onnx"]
    done = read(tuned / "runs/small/compress.json")
    assert (done["runtime"], done["points"][0]["name"]) == ("openvino-f32", "full model, onnx")
    assert read(tuned / "runs/small/model" / SUBNET_FILE)["runtime"] == "openvino-f32"
    assert "holds another run, which differs in runtime" in ldsearch.refused(*RUN, "--budget", "2x")


@pytest.mark.parametrize(("plain", "trained", "taken"), [((20, 30), (2, 9), True), ((2, 9), (20, 30), False)])
def test_what_meets_a_budget_in_time_is_taken_and_where_nothing_does_that_is_said(
    ldsearch: Ldsearch,
    tuned: Path,
    monkeypatch: pytest.MonkeyPatch,
    plain: tuple[float, float],
    trained: tuple[float, float],
    taken: bool,
) -> None:
    ends = [plain, trained]
    monkeypatch.setattr(short_search, "clock_of_models", lambda device: PlantedTimes(ends.pop(0)))
    asked = (*RUN, "--train", 0.02, "--blocks", 2, "--budget", "2x")
    ldsearch.done(*asked)
    folder = tuned / "runs/small"
    assert read(folder / "compress.json")["search"] == ("search-trained" if taken else "search")
    if taken:
        ends = [(20, 30), (20, 30)]
        assert "no sub-network meets the budget 3x@batch=8,length=9" in ldsearch.refused(*asked[:-1], "3x")
