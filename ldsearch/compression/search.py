"""A short search of lengths in the runtime that will serve, its export, and both as points of a table."""

import dataclasses
import math
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from ldsearch.bench import Bench
from ldsearch.disk.files import read_fields, write_json
from ldsearch.errors import BudgetError, ExportError
from ldsearch.export.agreement import share_of_full
from ldsearch.export.elastic import rows_beside
from ldsearch.export.export import BATCHES, export
from ldsearch.export.names import BUDGETS_FILE, RUNTIMES_FILE
from ldsearch.export.rows import split_rows
from ldsearch.latency.clock import clock_of_models
from ldsearch.latency.fastest import FullModel, time_full_model
from ldsearch.latency.measure import forward_run, random_cell
from ldsearch.latency.runtimes import RUNTIMES
from ldsearch.options import Evolve
from ldsearch.runs.run import Run
from ldsearch.search.controls import dearest, regular_line
from ldsearch.search.loop import StrategyContext
from ldsearch.search.run import plan_search, run_search
from ldsearch.space.lengths import Shape
from ldsearch.subnet import SUBNET_FILE, Subnet, drop_places
from ldsearch.trials.budget import Budget
from ldsearch.trials.goal import Goal, NoWorse
from ldsearch.trials.intervals import Statistics
from ldsearch.trials.pareto import BESIDE, beside
from ldsearch.trials.trial import LossBound, Trial
from ldsearch.work.progress import Progress

# Regular lengths over the whole range of costs, of which those are measured that may be chosen, or told with
# the choice; and what a search adds to them.
RATIOS, SEARCHED = 12, 3
# What is chosen where nothing is asked for: surely no more than so much below the full model; without labels
# the score is agreement, of which a model loses more than it loses of its accuracy.
MARGIN, MARGIN_OF_AGREEMENT = 0.01, 0.04
# Of the full model's MACs: what has more gains next to no time.
MOST_SHARE = 0.8
# As ``export --least-agreement``; only a broken file has less. What rounding costs is in the scores already,
# which are of the runtime that rounds.
LEAST_AGREEMENT, COMPARED_ROWS = 0.9, 100
_TIMED = 8  # constant ratios whose times tell what a budget in ms is in MACs


@dataclass(frozen=True)
class SureInTurn(NoWorse):
    """Tests configurations from the dearest down, and takes the last before one fails; else the surest.

    The surest is not taken where it loses more than the margin even by its mean, and nothing need be dropped.

    Tested in an order that no score chose, up to the first failure, all that passed are within the margin
    with the confidence of one test (fixed-sequence testing: Westfall & Krishen 2001). The cheapest of all
    that pass each by itself passes by luck more often (results/compress).

    Args:
        sequence: The configurations.
        refuses: Whether it refuses where the first fails.
        whole: What drops nothing, which is taken instead of one that loses too much; None: that is taken.
    """

    sequence: Collection[Subnet] = ()
    refuses: bool = False
    whole: Subnet | None = None

    def sure(self, candidates: Sequence[Trial], full: Trial, bound: LossBound) -> list[Trial]:
        """The trials that passed, dearest first."""
        margin = self.allowed(full)
        return [*takewhile(lambda trial: bound(trial.subnet) < margin, self._in_turn(candidates))]

    def choose(self, candidates: Sequence[Trial], full: Trial, bound: LossBound | None = None) -> Trial:
        """The trial to take.

        Raises:
            BudgetError: If it refuses and none passed.
        """
        assert bound is not None
        if sure := self.sure(candidates, full, bound):
            return sure[-1]
        in_turn = self._in_turn(candidates)
        if self.refuses:
            raise BudgetError(
                f"not even the dearest constant ratio loses less than {self.allowed(full):.4f} to the full "
                f"model with 95% confidence: it may lose {bound(in_turn[0].subnet):.4f}; more rows tell "
                "more, or ask for a --budget"
            )
        surest = self.surest(candidates, bound)
        fits = surest.score.loss - full.score.loss < self.allowed(full)
        return next((trial for trial in candidates if trial.subnet == self.whole and not fits), surest)

    def surest(self, candidates: Sequence[Trial], bound: LossBound) -> Trial:
        """The one that may lose least."""
        return min(self._in_turn(candidates), key=lambda trial: bound(trial.subnet))

    def _in_turn(self, candidates: Sequence[Trial]) -> list[Trial]:
        own = [trial for trial in candidates if trial.subnet in self.sequence]
        return sorted(own, key=lambda trial: trial.costs["macs"], reverse=True)


@dataclass(frozen=True)
class _RegularUnlessBetter(Budget):
    """Within a budget the best of some regular ones, unless another is surely better on the rows that choose.

    Of many that are tried on few rows the best is the best by luck.

    Args:
        regular: Few: of each shape the dearest within the budget, where that is a share of the MACs.
        surely: By how much the first is better at least (95%) than the second.
    """

    regular: Collection[Subnet] = ()
    surely: Callable[[Subnet, Subnet], float] = lambda first, second: 0.0

    def choose(self, candidates: Sequence[Trial], full: Trial, bound: LossBound | None = None) -> Trial:
        """The trial to take."""
        best = super().choose(candidates, full, bound)
        limit = self.absolute(full.costs)
        own = [trial for trial in candidates if trial.subnet in self.regular]
        within = [trial for trial in own if trial.costs[self.cost] <= limit]
        regular = super().choose(within, full, bound) if within else best
        return best if self.surely(best.subnet, regular.subnet) > 0 else regular


@dataclass(frozen=True)
class Found:
    """The choice of a short search.

    Args:
        run: The search run.
        words: Shape of its lengths, or that a search found them.
        sure: Whether it surely loses less than the margin that was asked for; None: none was. False also
            where a budget in time is missed.
        drops: Whether it drops any tokens.
    """

    run: Run
    words: str
    sure: bool | None
    drops: bool = True


def _beside(best: Trial, frontier: Sequence[Trial]) -> list[Trial]:
    """Points of a frontier that are told with the choice."""
    return [frontier[at] for at in beside([trial.costs["macs"] for trial in frontier], best.costs["macs"])]


def full_model_times(
    folder: Path, bench: Bench, goal: Goal, progress: Progress, *, runtime: str
) -> FullModel:
    """Times of the full model in every runtime; measured once.

    Raises:
        ExportError: If the runtime that has to serve changes its answers; of ``auto`` never.
    """
    path = folder / RUNTIMES_FILE
    length = max(1, round(bench.record.lengths_seen.mean_length))
    cells = [(batch, length) for batch in BATCHES]
    if goal.in_time is not None:
        cells = list(dict.fromkeys([*cells, goal.in_time.cell]))
    if path.is_file():
        known = FullModel.from_dict(read_fields(path))
        if {*cells} <= {*known.cells} and (runtime in known.agreement or runtime not in known.milliseconds):
            return known
    supernet = bench.supernet.eval()
    how = bench.record, bench.tokenizer, bench.task, bench.split, (), COMPARED_ROWS
    rows = split_rows(supernet, *how)
    share = share_of_full(supernet, rows.batches, rows.likeness)
    full = time_full_model(supernet, cells, share, LEAST_AGREEMENT, progress, runtime)
    kept = full.agreement.get(runtime, 1.0)
    if kept < LEAST_AGREEMENT:
        raise ExportError(
            f"in {runtime} the full model gives {kept:.1%} of its predictions, fewer than "
            f"{LEAST_AGREEMENT:.0%}: choose another --runtime"
        )
    write_json(path, full.to_dict())
    return full


def short_search(
    place: Path,
    bench: Bench,
    goal: Goal,
    default: NoWorse | None,
    seed: int,
    progress: Progress,
    *,
    rival: str,
    refuses: bool,
) -> Found:
    """Regular lengths, and a short search from there, scored in the runtime that will serve.

    Args:
        place: The run's folder.
        bench: Scores in that runtime.
        goal: What is taken; a budget in time becomes one in MACs.
        default: What is taken instead, of constant ratios that gain time: where none is sure the surest, or
            nothing is dropped where that loses more.
        seed: Of the search.
        progress: Of phases.
        rival: The full model's fastest runtime, which a speed-up is over.
        refuses: Whether it refuses where a margin is asked for and none is sure to keep it, or a budget in
            time that none meets; else it takes the nearest.

    Raises:
        BudgetError: If nothing meets what is asked for.
    """
    how = Evolve(genes="lengths", widen=True, evaluations=1 + RATIOS + len(Shape) + SEARCHED, seed=seed)
    spec = plan_search(bench, how)
    context = replace(spec.context, settings=replace(spec.context.settings, initial=RATIOS))
    goal, met = _in_macs(bench, context, goal, progress, rival=rival, refuses=refuses)
    regulars = _servable(bench, regular_line(context, RATIOS))
    whole = bench.evaluator.costs_of([bench.whole])[0]["macs"]
    searched, undropped = SEARCHED, []
    shapes, trained = dict.fromkeys(regulars, context.shape), [bench.record.at] if bench.record.at else []
    take = default or goal.take
    if isinstance(take, NoWorse):
        if default is not None:
            regulars = _costing(bench, regulars, 0, MOST_SHARE * whole)
            undropped = [nothing_dropped(bench)] if bench.beside is None else []
        refuses = refuses and default is None
        in_turn = SureInTurn(take.margin, take.is_share, regulars, refuses, next(iter(undropped), None))
        goal = replace(goal, take=in_turn)
        searched = 0  # what a search proposes depends on the scores
    elif goal.budget is not None:
        if goal.budget.cost == "macs":
            limit = goal.budget.absolute({"macs": whole})
            every = (*Shape, context.shape)  # what several have is told as of the one that suits the head
            largest = {shape: dearest(replace(context, shape=shape), limit) for shape in every}
            shapes = {one: shape for shape, own in largest.items() for one in _servable(bench, own)}
            regulars = _servable(
                bench, regular_line(_of_best_shape(bench, context, shapes, progress), RATIOS)
            )
            regulars = _costing(bench, regulars, BESIDE[0] * limit, BESIDE[1] * limit)
            regulars = list(dict.fromkeys([*regulars, *shapes, *trained]))
        fields = {field.name: getattr(goal.budget, field.name) for field in dataclasses.fields(Budget)}
        goal = replace(
            goal, take=_RegularUnlessBetter(**fields, regular={*shapes, *trained}, surely=_surely(bench))
        )
    start = (*regulars, *undropped)
    most = min(1 + len(start) + searched, context.evaluations)
    how = replace(how, **goal.take.options, evaluations=most)
    context = replace(context, start=start, evaluations=most)
    spec = replace(spec, context=context, evaluations=most, controlled=False, shown=_beside)
    outcome = run_search(bench, place, spec, goal, how, progress)
    take, best, found = goal.take, outcome.best, outcome.result
    words = shapes[best.subnet].value if best.subnet in shapes else "found by search"
    drops = best.subnet != nothing_dropped(bench)
    words = words if drops else "nothing is dropped"
    sure = None if met else False
    if isinstance(take, SureInTurn):
        sure = bool(take.sure(found.candidates, found.trials[0], bench.loss_bound))
        nearest = take.surest(found.candidates, bench.loss_bound)
        rows, bound = f"on the {best.examples} rows that chose", bench.loss_bound(nearest.subnet)
        if best.subnet in undropped:
            words = (
                f"nothing is dropped: every constant ratio loses more {rows}; the surest, at "
                f"{nearest.costs['macs'] / whole:.2f} of the MACs, has {nearest.score.value:.4f} there, the "
                f"full model {best.score.value:.4f}"
            )
        elif not sure:
            words += (
                f", the one that may lose least: {rows} none is {take.text} with 95% confidence; this one "
                f"may lose {bound:.4f}"
            )
    return Found(Run.open(outcome.folder), words, sure, drops=drops)


def nothing_dropped(bench: Bench) -> Subnet:
    """The full model with lengths, as an elastic graph runs it: all but one of the longest input's tokens.

    Of any input that is shorter these are all.
    """
    blocks, reference = bench.supernet.blocks, bench.record.reference
    return Subnet.of_encoder(range(blocks), [reference - 1] * blocks, reference)


def _servable(bench: Bench, subnets: Sequence[Subnet]) -> list[Subnet]:
    """Sub-networks as the runtime serves them: in the full model's place that with lengths."""
    return [nothing_dropped(bench) if subnet == bench.full else subnet for subnet in subnets]


def _of_best_shape(
    bench: Bench, context: StrategyContext, shapes: Mapping[Subnet, Shape], progress: Progress
) -> StrategyContext:
    """The context with the shape of the best of some sub-networks; its own if there are none."""
    progress.phase("shapes", len(shapes))
    trials = bench.evaluator(list(shapes), on_trial=lambda trial: progress.step())
    best = min(trials, key=lambda trial: trial.score.loss, default=None)
    return context if best is None else replace(context, shape=shapes[best.subnet])


def _costing(bench: Bench, subnets: Sequence[Subnet], least: float, most: float) -> list[Subnet]:
    """Sub-networks within a range of MACs; all of them if none is."""
    costs = bench.macs(subnets)
    return [one for one, macs in zip(subnets, costs, strict=True) if least <= macs <= most] or [*subnets]


def _surely(bench: Bench) -> Callable[[Subnet, Subnet], float]:
    """The least by which one sub-network is better than another: the end of a paired 95% interval."""

    def surely(first: Subnet, second: Subnet) -> float:
        pair = bench.evaluator.statistics(first), bench.evaluator.statistics(second)
        gap = bench.difference(*pair)
        return gap.low if bench.task.metric.higher_is_better else -gap.high

    return surely


def _in_macs(
    bench: Bench, context: StrategyContext, goal: Goal, progress: Progress, *, rival: str, refuses: bool
) -> tuple[Goal, bool]:
    """A goal with a budget in time as one with a share of the MACs, by the times of some constant ratios.

    Args:
        bench: Times in the runtime that serves.
        context: Of the search.
        goal: Any; with another it is given back.
        progress: Of phases.
        rival: The full model's fastest runtime, which a speed-up is over.
        refuses: Whether it refuses what not even the cheapest meets; else that is taken.

    Returns:
        The goal, and whether anything is so fast.

    Raises:
        BudgetError: If it refuses.
    """
    budget = goal.in_time
    if budget is None:
        return goal, True
    served, whole = bench.served, bench.beside or bench
    assert served is not None
    ratios = regular_line(context, _TIMED)
    (inputs,) = (cell := random_cell(bench.supernet, *budget.cell)).batches
    clock = clock_of_models(bench.supernet.model.device)
    progress.phase("lengths timed", clock.calls(1 + len(ratios)))
    full = RUNTIMES[rival](whole.supernet, whole.full)
    runs = [forward_run(full, cell), *(served.timed(inputs, subnet) for subnet in ratios)]
    of_full, *medians = [1e3 * timing.median for timing in clock(runs, progress).timings]
    shares = np.array(bench.macs(ratios)) / bench.evaluator.costs_of([bench.whole])[0]["macs"]
    # Noise aside, what costs more takes longer.
    times = np.maximum.accumulate(medians)
    limit = budget.absolute({"latency": of_full})
    if times[0] > limit and refuses:
        batch, length = budget.cell
        near = f"{1.1 * times[0]:.2g}ms@batch={batch},length={length}"
        raise BudgetError(
            f"no sub-network meets the budget {budget.source}: at {shares[0]:.2f} of the MACs a batch of "
            f"{batch} x {length} tokens takes {times[0]:.2f} ms here in {bench.runtime}, the full model "
            f"{of_full:.2f} in {rival}; ask for more, as by --budget {near}"
        )
    # Upwards: the cheapest has to be within it.
    share = min(1.0, math.ceil(1e3 * float(np.interp(limit, times, shares))) / 1e3)
    return Goal.parse(budget=f"{share:g}"), bool(times[0] <= limit)


def export_points(
    folder: Path, bench: Bench, run: Run, full: FullModel, progress: Progress
) -> list[dict[str, Any]]:
    """The rows of the export's budgets, cheapest first; made anew where another point is chosen.

    Points that drop tokens in more blocks than the chosen one are left out where others are left: every such
    block takes time in the file, whatever is fed.
    """
    place, best = folder / "model", run.best
    # The full model's score is fp32's, and what the file gives with nothing dropped is not.
    alike = [point.subnet for point in run.own_points() if point.subnet not in (best.subnet, bench.full)]
    alike = [alike[at] for at in rows_beside(best.subnet, alike)]
    dropping = {*drop_places([best.subnet])}
    alike = [one for one in alike if dropping >= {*drop_places([one])}] or alike
    if place.is_dir():
        rows = read_fields(place / BUDGETS_FILE)["rows"]
        made, own = [Subnet.from_fields(row["subnet"]) for row in rows], read_fields(place / SUBNET_FILE)
        cells = {(line["batch"], line["length"]) for line in rows[0]["latency"]}
        same = {*made} == {*alike, best.subnet} and Subnet.from_fields(own["subnet"]) == best.subnet
        if not same or not {*full.cells} <= cells:
            shutil.rmtree(place)
    if not place.is_dir():
        export(
            run.folder,
            place,
            format="onnx",
            runtime=str(bench.runtime),
            elastic=True,
            points=alike,
            full=full,
            least_agreement=LEAST_AGREEMENT,
            limit=COMPARED_ROWS,
            progress=progress,
        )
    return list(read_fields(place / BUDGETS_FILE)["rows"])


def points_of(
    given: Bench, bench: Bench, run: Run, full: FullModel, exported: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The model in the runtime that serves, and the export's rows, the chosen one first.

    All are compared with the model as it was given, which ``given`` serves too, in fp32.
    """
    whole = nothing_dropped(given)
    first, own = given.held_out, bench.held_out
    assert first is not None
    assert own is not None
    full_score = first.statistics(given.full)
    cells = [f"{line['batch']}x{line['length']}" for line in exported[0]["latency"]]

    def point(
        name: str, share: float, statistics: Statistics, row: Mapping[str, Any], ms: str
    ) -> dict[str, Any]:
        return {
            "name": name,
            "macs": share,
            "score": bench.score(statistics).value,
            "difference": asdict(bench.difference(statistics, full_score)),
            "ms": dict(zip(cells, (line[ms] for line in row["latency"]), strict=True)),
        }

    points: list[dict[str, Any]] = []
    for row in exported:
        subnet, share = Subnet.from_fields(row["subnet"]), row["costs"]["macs"] / row["full_costs"]["macs"]
        if subnet == run.best.subnet:
            full_name = f"full model, {full.fastest()}"
            points.insert(0, point("chosen", share, own.statistics(subnet), row, "median_ms"))
            points.insert(0, point(full_name, 1.0, first.statistics(whole), row, "full_ms"))
        else:
            points.append(point("in the same file", share, own.statistics(subnet), row, "median_ms"))
    return points
