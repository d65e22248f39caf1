"""Recovery: a short distillation of the chosen sub-network, reported beside the score it inherits."""

from dataclasses import dataclass, replace
from pathlib import Path

from ldsearch.bench import Workbench
from ldsearch.commands.fixed import FixedOptions, train_fixed
from ldsearch.errors import RunError
from ldsearch.interruption import interruptible
from ldsearch.intervals import Interval
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import read_record
from ldsearch.target import Target


@dataclass(frozen=True)
class Recovery:
    """A sub-network before and after a training of its own, on the same examples.

    Args:
        folder: The recovered model.
        subnet: The sub-network.
        metric: Name of the score.
        split: Where the examples come from; not the rows that chose the sub-network, where there are others.
        inherited: Its score with the supernet's weights.
        recovered: Its score after the training.
        full: The supernet's full model.
        gain: Recovered minus inherited, paired bootstrap.
        against_full: Recovered minus full, paired bootstrap.
    """

    folder: Path
    subnet: Subnet
    metric: str
    split: str
    inherited: float
    recovered: float
    full: float
    gain: Interval
    against_full: Interval


def recover(
    folder: str | Path,
    output: str | Path,
    *,
    subnet: str | None = None,
    options: FixedOptions | None = None,
    data: str | None = None,
) -> Recovery:
    """Distil the full model into a chosen sub-network; the same call goes on after an interruption.

    Args:
        folder: A search run, or a supernet together with ``subnet``.
        output: Where the recovered model goes; ``evaluate`` and ``export_model`` take it like a run.
        subnet: JSON or a file that holds it; None takes the run's choice.
        options: Steps, loss, seed and the Trainer's arguments.
        data: Where the supernet's data lie now, if they were moved.

    Raises:
        LdsearchError: One line for a bad folder, sub-network or option.
        Interrupted: On SIGINT or SIGTERM.
    """
    target = Target.resolve(folder, subnet)
    if Path(output).resolve() == target.supernet.resolve():
        raise RunError(f"{output} is the supernet itself: choose another --name")
    split = target.unbiased_split(read_record(target.supernet).splits)
    bench = Workbench.open(target.supernet, split, data, target.runs)
    bench.require_supernet()
    with interruptible() as stop:
        trained = train_fixed(bench, Path(output), target.subnet, options or FixedOptions(), target.chosen_on)
        stop.check()
    after = Workbench.open(trained, split, None, bench.runs, bench.task).evaluator.statistics(target.subnet)
    before, full = (bench.evaluator.statistics(one) for one in (target.subnet, bench.full))
    metrics = {
        f"{split}_{bench.task.metric.name}": bench.score(after).value,
        f"{split}_{bench.task.metric.name}_inherited": bench.score(before).value,
    }
    replace(read_record(trained), metrics=metrics).save(trained)
    return Recovery(
        folder=trained,
        subnet=target.subnet,
        metric=bench.task.metric.name,
        split=split,
        inherited=bench.score(before).value,
        recovered=bench.score(after).value,
        full=bench.score(full).value,
        gain=bench.difference(after, before),
        against_full=bench.difference(after, full),
    )
