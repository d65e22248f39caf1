"""Trains one sub-network of a supernet on its own, and prints it with the score that it inherits."""

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from ldsearch.bench import Bench
from ldsearch.commands.console import print_fields
from ldsearch.errors import RunError
from ldsearch.options import TrainSupernet
from ldsearch.runs.target import Target
from ldsearch.supernet.folder import read_record
from ldsearch.training.recover import train_fixed
from ldsearch.work.interruption import interruptible
from ldsearch.work.progress import NO_PROGRESS, Progress

# Options of train-supernet that one sub-network is trained by.
_APPLY = frozenset({"label_share", "state_weight", "seed", "trainer", "teacher"}) | {
    *("model", "subnet", "data", "name", "runs"),
}


def recover(options: TrainSupernet, progress: Progress = NO_PROGRESS) -> dict[str, Any]:
    """Distil the full model into a chosen sub-network and print both scores; the same call goes on.

    Args:
        options: ``model`` is a search run, what ``compress`` made, or a supernet together with ``subnet``;
            ``teacher="none"`` trains on the labels instead.
        progress: Receives phases and steps, instead of the Trainer's own bar.

    Returns:
        The folder (``run``), and scores on the ``split`` that did not choose the sub-network, where there is
        one: with the supernet's weights (``inherited``), after the training (``recovered``), of the ``full``
        model, and intervals of recovered minus inherited (``gain``) and minus full (``against_full``).

    Raises:
        LdsearchError: One line for a bad folder, sub-network or option.
        Interrupted: On SIGINT or SIGTERM.
    """
    default = TrainSupernet()
    others = [field.name for field in fields(options) if field.name not in _APPLY]
    if given := [name for name in others if getattr(options, name) != getattr(default, name)]:
        raise RunError(
            f"--{given[0].replace('_', '-')} is for training a supernet; {options.model} names one "
            "sub-network to train"
        )
    if options.teacher not in ("in-place", "none"):
        raise RunError("one sub-network learns from its own full model: --teacher takes in-place or none")
    source = Path(str(options.model))
    target = Target.resolve(source, options.subnet)
    folder = options.place(f"{source.resolve().name}-recovered")
    if folder.resolve() == target.supernet.resolve():
        raise RunError(f"{folder} is the supernet itself: choose another --name")
    split = target.unbiased_split(read_record(target.supernet).splits)
    data = None if options.data == default.data else options.data
    bench = Bench.open(target.supernet, split, data, target.runs)
    bench.require_supernet()
    whole = bench
    if target.run is not None and target.parent is not None:  # of fewer blocks, say, than the model had
        whole = Bench.open(target.parent, split, None, target.runs, bench.task)
        bench = replace(bench, beside=whole)
    with interruptible() as stop:
        train_fixed(
            bench,
            folder,
            target.subnet,
            options,
            target.chosen_on,
            keep_better=True,
            progress=progress,
        )
        stop.check()
    trained = Bench.open(folder, split, None, bench.runs, bench.task)
    after = trained.evaluator.statistics(target.subnet)
    before, full = bench.evaluator.statistics(target.subnet), whole.evaluator.statistics(whole.full)
    recovered, inherited, best = (bench.score(statistics).value for statistics in (after, before, full))
    metric = bench.task.metric.name
    metrics = {f"{split}_{metric}": recovered, f"{split}_{metric}_inherited": inherited}
    replace(trained.record, metrics=metrics).save(folder)
    lowered = trained.record.training.get("kept") == "inherited"
    kept = "kept as it was, since training lowered the score on the search rows: " if lowered else ""
    gain, gap = bench.difference(after, before), bench.difference(after, full)
    print_fields(
        {
            "sub-network": target.subnet.describe(),
            "inherited": f"{metric} {inherited:.4f} on {gain.examples} {split} examples",
            "recovered": f"{kept}{recovered:.4f}, {gain.mean:+.4f} (95% interval {gain.low:+.4f} to "
            f"{gain.high:+.4f}, paired bootstrap)",
            "full model": f"{best:.4f}; recovered minus full {gap.mean:+.4f} (95% interval "
            f"{gap.low:+.4f} to {gap.high:+.4f})",
            "written": f"{folder}; next: ldsearch export {folder} exported/{folder.name}",
        }
    )
    return {
        "run": str(folder),
        "split": split,
        "inherited": inherited,
        "recovered": recovered,
        "full": best,
        "gain": asdict(gain),
        "against_full": asdict(gap),
    }
