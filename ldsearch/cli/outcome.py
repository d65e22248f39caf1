"""What a finished search says on the terminal: its frontier, the choice, and how far to trust them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ldsearch.commands.searching import RunOutcome
    from ldsearch.trial import Trial

Cell = Callable[["Trial"], str]


def print_outcome(outcome: "RunOutcome") -> dict[str, Any]:
    """The frontier, what held-out rows say of it, the choice, and where the reports lie.

    Returns:
        For ``--json``: the run's folder, and what ``best.json`` says.
    """
    from ldsearch.runs import BEST_FILE, read_json

    result, held = outcome.result, outcome.held_out
    _print_frontier(outcome)
    print(f"stopped: {result.stopped}")
    for name, control in outcome.controls.items():
        print(f"control {name}: {len(control.trials)} trials of the search's {len(result.trials)}")
    print(f"cost, controls included: {outcome.counts.describe()}")
    for sentence in held.describe() if held else ():
        print(sentence)
    _print_choice(outcome)
    files = ["trials.csv", *(["controls.csv"] if outcome.controls else []), "frontier.csv", "frontier.png"]
    files += ["latency.csv", "tradeoff.png"] if outcome.latencies else []
    print(f"written: {outcome.folder}/ ({', '.join(files)}, best.json)")
    return {"run": str(outcome.folder), **read_json(outcome.folder / BEST_FILE)}


def _print_frontier(outcome: "RunOutcome") -> None:
    from rich.console import Console
    from rich.table import Table

    front = outcome.result.frontier
    columns = _columns(outcome)
    table = Table(title=f"frontier: {len(front)} of {len(outcome.result.trials)} trials")
    for heading in columns:
        table.add_column(heading)
    table.add_column("sub-network", overflow="fold")
    for trial in front:
        cells = [cell(trial) for cell in columns.values()]
        table.add_row(*cells, trial.subnet.describe(), style="bold" if trial is outcome.best else "")
    Console().print(table)


def _columns(outcome: "RunOutcome") -> dict[str, Cell]:
    result, held, timed = outcome.result, outcome.held_out, outcome.latencies
    full = result.trials[0]
    columns: dict[str, Cell] = {
        "MACs share": lambda trial: f"{trial.costs['macs'] / full.costs['macs']:.3f}",
        f"{full.metric}, {full.split}": lambda trial: f"{trial.score.value:.4f}",
    }
    if held:
        rows = {row.trial.subnet: row for row in held.rows}
        differences = {subnet: row.difference for subnet, row in rows.items()}
        columns[held.split] = lambda trial: f"{rows[trial.subnet].score:.4f}"
        columns["minus full, 95%"] = lambda trial: (
            f"{differences[trial.subnet].low:+.4f} to {differences[trial.subnet].high:+.4f}"
        )
    for name in result.costs:
        if name not in ("macs", "parameters"):
            heading = "ms, predicted" if name == "latency" else name
            columns[heading] = lambda trial, name=name: f"{trial.costs[name]:.4g}"  # type: ignore[misc]
    if timed:
        columns["ms, measured"] = lambda trial: f"{timed.measured(trial.subnet):.4g}"
    # Lengths change no parameters: a column that says so in every row is noise.
    if len({trial.costs["parameters"] for trial in result.frontier}) > 1:
        columns["parameters"] = lambda trial: f"{trial.costs['parameters']:,.0f}"
    return columns


def _print_choice(outcome: "RunOutcome") -> None:
    best, held = outcome.best, outcome.held_out
    print(f"chosen ({outcome.selector.text}): {describe_choice(best, outcome.result.trials[0])}")
    for sentence in outcome.latencies.describe(best.subnet) if outcome.latencies else ():
        print(sentence)
    if held:
        chosen = next(row for row in held.rows if row.trial.subnet == best.subnet)
        print(
            f"on {chosen.difference.examples} {held.split} examples, which chose nothing: "
            f"{chosen.score:.4f}, {chosen.difference.mean:+.4f} to the full model (95% interval "
            f"{chosen.difference.low:+.4f} to {chosen.difference.high:+.4f})"
        )
    else:
        print("the search chose by these scores, and there are no other rows: they are optimistic")


def describe_choice(best: "Trial", full: "Trial") -> str:
    """Score, cost and sub-network in one line."""
    return (
        f"{best.metric} {best.score.value:.4f} at {best.costs['macs'] / full.costs['macs']:.3f} of the MACs "
        f"(full model {full.score.value:.4f}); {best.subnet.describe()}"
    )
