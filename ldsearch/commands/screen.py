"""The end of a search on one screen: significant gains, the choice, and what to run next."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ldsearch.bench import Bench
from ldsearch.commands.console import WIDTH, describe_choice, print_columns, print_paragraph
from ldsearch.errors import BudgetError
from ldsearch.reports.held_out import significant_gains
from ldsearch.runs.run import BEST_FILE, read_json
from ldsearch.search.run import RunOutcome
from ldsearch.subnet import Subnet
from ldsearch.trials.intervals import Interval, bootstrap
from ldsearch.trials.trial import Trial

_MOST_ROWS = 8  # with what is above and below them a terminal of 24 lines

Columns = dict[str, Callable[[Trial], str]]


def print_outcome(outcome: RunOutcome, bench: Bench) -> dict[str, Any]:
    """The frontier thinned to significant gains, the choice on held-out rows, the next command.

    Args:
        outcome: Of the search.
        bench: Knows the scores of single rows: the held-out ones', or where there are none those that chose.

    Returns:
        For ``--json``: the run's folder, and what ``best.json`` says.
    """
    result, best = outcome.result, outcome.best
    full, cost, rows = result.trials[0], result.costs[0], bench.held_out or bench.evaluator
    front = sorted(result.frontier, key=lambda trial: trial.costs[cost])
    clear = significant_gains(front, rows.statistics, bench.task.metric.of_means)
    print_paragraph(
        f"{len(result.trials)} sub-networks measured, {len(front)} on the frontier, {len(clear)} after "
        f"leaving out insignificant gains on {rows.examples} {rows.split} rows (95%, all pairs at once; "
        f"stopped: {result.stopped})"
    )
    # The choice need not be on the frontier, nor gain significantly.
    shown = {trial.subnet: trial for trial in (*_evenly(clear), best, full)}
    ordered = sorted(shown.values(), key=lambda trial: (trial.costs[cost], trial is full))
    columns = _columns(outcome)
    print_columns(
        [*columns],
        [[cell(trial) for cell in columns.values()] for trial in ordered],
        next(at for at, trial in enumerate(ordered) if trial.subnet == best.subnet),
    )
    print_paragraph(f"chosen ({outcome.goal.take.text}): {describe_choice(best, full)}")
    for sentence in outcome.latencies.describe(best.subnet)[:1] if outcome.latencies else ():
        print_paragraph(sentence)
    print_paragraph(_held_out(outcome))
    for sentence in _over_controls(outcome, bench):
        print_paragraph(sentence)
    print(f"next: {_command('export', outcome.folder, Path('exported', outcome.folder.name))}")
    print(f"more: {_command('info', outcome.folder)}; {_command('report', outcome.folder)}")
    return {"run": str(outcome.folder), **read_json(outcome.folder / BEST_FILE)}


def _evenly(trials: list[Trial]) -> list[Trial]:
    """At most as many as fit, both ends among them."""
    places = np.unique(np.linspace(0, len(trials) - 1, min(len(trials), _MOST_ROWS)).round().astype(int))
    return [trials[place] for place in places]


def _held_out(outcome: RunOutcome) -> str:
    held = outcome.held_out
    if held is None:
        return "the search chose by these scores, and there are no other rows: they are optimistic"
    chosen = next(row for row in held.rows if row.trial.subnet == outcome.best.subnet)
    gap = chosen.difference
    return (
        f"on {gap.examples} {held.split} examples, which chose nothing: {chosen.score:.4f}, {gap.mean:+.4f} "
        f"to the full model (95% interval {gap.low:+.4f} to {gap.high:+.4f})"
    )


def _over_controls(outcome: RunOutcome, bench: Bench) -> list[str]:
    """Gains over the controls on rows that chose nothing, at the choice and over all costs, as sentences."""
    if not outcome.controls:
        return ["a rule has no controls"]
    gains = outcome.held_out.gains if outcome.held_out else {}
    full, rows = outcome.result.trials[0], bench.held_out or bench.evaluator
    sign = 1 if full.score.higher_is_better else -1
    words = []
    for name, control in outcome.controls.items():
        said = f"over {name}, {len(control.trials)} trials:"
        try:
            taken = outcome.goal.take.choose(control.candidates, full, bench.loss_bound)
        except BudgetError:
            words.append(f"{said} it found nothing to choose")
            continue
        rows([taken.subnet])  # measured before if it is on its frontier
        terms = [(sign, rows.statistics(outcome.best.subnet)), (-sign, rows.statistics(taken.subnet))]
        gap, share = bootstrap(terms, bench.task.metric.of_means), taken.costs["macs"] / full.costs["macs"]
        said = f"{said} {_gain(gap)} by its choice, at {share:.3f}"
        if gain := gains.get(name):
            said += f"; {_gain(gain)} by area, the mean score over all costs"
        words.append(said)
    return words


def _gain(gain: Interval) -> str:
    return f"{gain.mean:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})"


def _columns(outcome: RunOutcome) -> Columns:
    """Columns of the table; the last ones are left out where the terminal's width is used up."""
    result, held, timed = outcome.result, outcome.held_out, outcome.latencies
    full, best = result.trials[0], outcome.best
    columns: Columns = {
        " MACs": lambda trial: (
            f"{'*' if trial.subnet == best.subnet else ' '}{trial.costs['macs'] / full.costs['macs']:.3f}"
        ),
        f"{full.metric}, {full.split}": lambda trial: f"{trial.score.value:.4f}",
    }
    if held:
        rows = {row.trial.subnet: row for row in held.rows}

        def difference(trial: Trial) -> str:
            if trial.subnet == full.subnet:
                return "full model"
            gap = rows[trial.subnet].difference
            return f"{gap.low:+.4f} to {gap.high:+.4f}"

        scores = {full.subnet: held.full_score, **{subnet: row.score for subnet, row in rows.items()}}
        columns[held.split] = lambda trial: f"{scores[trial.subnet]:.4f}"
        columns["minus full, 95%"] = difference
    if timed:
        columns["ms"] = lambda trial: f"{timed.measured(trial.subnet):.4g}"
    for name in result.costs:
        if name not in ("macs", "parameters", "latency"):
            columns[name] = lambda trial, name=name: f"{trial.costs[name]:.4g}"  # type: ignore[misc]
    columns["blocks"] = lambda trial: "+".join(str(len(s.blocks)) for s in trial.subnet.stacks().values())
    columns["tokens"] = lambda trial: _tokens(trial.subnet)
    if "parameters" in result.costs:
        columns["parameters"] = lambda trial: f"{trial.costs['parameters']:,.0f}"
    fitting: Columns = {}
    used = -2
    for name, cell in columns.items():
        used += 2 + max(len(name), len(cell(full)), len(cell(best)))
        if used <= WIDTH:
            fitting[name] = cell
    return fitting


def _tokens(subnet: Subnet) -> str:
    """Share of the tokens that leaves a block, in the mean over all of its blocks that run."""
    shares = [
        tokens / stack.lengths.reference if stack.lengths else 1.0
        for stack in subnet.stacks().values()
        for tokens in (stack.lengths.tokens if stack.lengths else stack.blocks)
    ]
    return f"{np.mean(shares):.0%}" if shares else "all"


def _command(verb: str, *words: Path) -> str:
    return shlex.join(["ldsearch", verb, *map(str, words)])
