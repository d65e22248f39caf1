"""Training strategies: which sub-networks see this batch, and with which loss. One paper per file."""

from collections.abc import Callable

from ldsearch.errors import TrainingError, unknown
from ldsearch.registry import Registry
from ldsearch.training.strategies.base import Draws, Pass, Setting, StackSetting, TrainingStrategy
from ldsearch.training.strategies.flexible_depth import FlexibleDepth
from ldsearch.training.strategies.layerdrop import LayerDrop
from ldsearch.training.strategies.lengthdrop import LengthDrop
from ldsearch.training.strategies.plain import Plain

STRATEGIES: Registry[Callable[[Setting], TrainingStrategy]] = Registry(
    "training_strategies",
    {"plain": Plain, "layerdrop": LayerDrop, "lengthdrop": LengthDrop, "flexible-depth": FlexibleDepth},
)


def make_strategy(name: str, setting: Setting) -> TrainingStrategy:
    """A registered strategy for a model and its options.

    Raises:
        TrainingError: If there is none of that name.
    """
    if name not in STRATEGIES:
        raise TrainingError(unknown("training strategy", name, STRATEGIES))
    return STRATEGIES[name](setting)


__all__ = ["STRATEGIES", "Draws", "Pass", "Setting", "StackSetting", "TrainingStrategy", "make_strategy"]
