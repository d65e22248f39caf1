"""Options that would have no effect, or contradict each other, refused before anything is loaded."""

from pathlib import Path

from ldsearch.errors import LdsearchError
from ldsearch.options import PARITY, TrainSupernet, flag_of
from ldsearch.options.binding import changed
from ldsearch.tasks import who_reads
from ldsearch.training.strategies import STRATEGIES


def in_force(options: TrainSupernet, name: str) -> bool:
    """Whether the strategy says that it reads an option, and what that needs is given.

    ``drop_bound``: lengths are trained; ``layer_drop``: blocks are dropped; ``plain_share``: the full model
    teaches; ``assignment``: listed depths are trained.
    """
    declared = getattr(STRATEGIES.get(options.strategy), "reads", {})
    return name in declared and (declared[name] is None or declared[name].holds(options))


def check_training(options: TrainSupernet) -> None:
    """Refuse options that the strategy, the task or the data do not read.

    Raises:
        LdsearchError: Naming the first, and what reads it.
    """
    declared = {name: make.reads for name, make in STRATEGIES.items() if hasattr(make, "reads")}
    for name in changed(options):
        by = {strategy: reads[name] for strategy, reads in declared.items() if name in reads}
        # Where a preset has no effect --parity is refused.
        if not by or (options.parity and name in PARITY) or in_force(options, name):
            continue
        own = by.get(options.strategy)
        if own is not None and own.word is not None:
            flag, given = flag_of(own.option), getattr(options, own.option)
            raise LdsearchError(
                f"{flag_of(name)} has no effect with {flag} {given}: give {flag} {own.word}, or more"
            )
        if options.strategy in declared:
            told = [
                f"{who} with {flag_of(needed.option)}"
                if needed and needed.word is None and needed.option != name
                else who
                for who, needed in by.items()
            ]
            raise LdsearchError(
                f"{flag_of(name)} is for --strategy {' or '.join(told)}, not {options.strategy}"
            )
    for name in changed(options):
        if (kinds := who_reads(name)) and options.task not in kinds:
            raise LdsearchError(f"{flag_of(name)} is for --task {', '.join(kinds)}, not {options.task}")
    check_data(options.data, options.config)


def check_data(data: str, config: str | None) -> None:
    """Refuse a configuration of what has none.

    Raises:
        LdsearchError: If the data are a file.
    """
    if config is not None and Path(data).is_file():
        raise LdsearchError(f"--config names a configuration of a hub dataset; {data} is a file")
