"""LayerDrop rates: one for every block, from one number, a schedule, a target depth or a list."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

from ldsearch.errors import TrainingError

# Fan, Grave & Joulin 2019 use it everywhere but in their deepest and their smallest models.
DEFAULT_RATE = 0.2


def constant(rate: float, blocks: int) -> tuple[float, ...]:
    """The same rate for every block.

    Raises:
        TrainingError: If it does not lie in [0, 1].
    """
    return checked((rate,) * blocks, blocks)


def linear(highest: float, blocks: int) -> tuple[float, ...]:
    """p_l = p_max · l / N for l = 1..N, so that the last block has p_max (Huang et al. 2016).

    Their mean is p_max (N + 1) / (2 N), which is more than half of p_max.

    Raises:
        TrainingError: If the highest does not lie in [0, 1].
    """
    (exact,) = map(_as_written, checked((highest,), 1))
    return tuple(float(exact * depth / blocks) for depth in range(1, blocks + 1))


SCHEDULES: Mapping[str, Callable[[float, int], tuple[float, ...]]] = MappingProxyType(
    {"constant": constant, "linear": linear}
)


def target(keep: int, blocks: int) -> Fraction:
    """p* = 1 - r / N: the rate at which r of N blocks run on average (Fan, Grave & Joulin 2019, Sec. 3.2).

    Raises:
        TrainingError: If ``keep`` is not in 1..blocks.
    """
    if not 1 <= keep <= blocks:
        raise TrainingError(f"--target-layers must lie in 1..{blocks} for this model, not {keep}")
    return 1 - Fraction(keep, blocks)


def mean(rates: Sequence[float]) -> float:
    """The mean rate, of the decimal fractions a person wrote: that of 0.2, 0.2, 0.2 is 0.2."""
    return float(sum(map(_as_written, rates)) / len(rates))


def checked(rates: Sequence[float], blocks: int) -> tuple[float, ...]:
    """One rate per block.

    Raises:
        TrainingError: If there are more or fewer, or one does not lie in [0, 1].
    """
    if len(rates) != blocks:
        raise TrainingError(
            f"{len(rates)} LayerDrop rates for {blocks} blocks: give one for all, or one each"
        )
    if wrong := [rate for rate in rates if not 0 <= rate <= 1]:
        raise TrainingError(f"a LayerDrop rate must lie in [0, 1], not {wrong[0]}")
    return tuple(float(rate) for rate in rates)


def parse(text: str) -> tuple[float, ...]:
    """Rates as they are written on a command line: ``0.2`` or ``0,0.1,0.2``.

    Raises:
        TrainingError: If one of them is no number.
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise TrainingError(f"--layer-drop takes numbers from 0 to 1 with commas, not {text!r}") from None


def layer_rates(
    blocks: int, rates: Sequence[float] | None, schedule: str, target_layers: int | None
) -> tuple[float, ...]:
    """The rate of every block, from what was asked for.

    Args:
        blocks: Number of blocks of the model.
        rates: One rate for the schedule, or one per block; None: 0.2, or what the target asks for.
        schedule: A key of ``SCHEDULES``.
        target_layers: How many blocks shall run on average.

    Raises:
        TrainingError: If these contradict each other or do not fit the model.
    """
    if schedule not in SCHEDULES:
        raise TrainingError(f"unknown LayerDrop schedule {schedule!r}: use {' or '.join(SCHEDULES)}")
    if target_layers is not None:
        if rates is not None or schedule != "constant":
            raise TrainingError(
                "--target-layers sets one rate for all blocks: it takes neither --layer-drop nor "
                "another --layer-drop-schedule"
            )
        return constant(float(target(target_layers, blocks)), blocks)
    rates = (DEFAULT_RATE,) if rates is None else rates
    if len(rates) == 1:
        return SCHEDULES[schedule](rates[0], blocks)
    if schedule != "constant":
        raise TrainingError(f"--layer-drop-schedule {schedule} takes one rate, not one per block")
    return checked(rates, blocks)


def _as_written(rate: float) -> Fraction:
    """The decimal fraction a person wrote (0.2 is 1/5, not its binary neighbour)."""
    return Fraction(str(rate))
