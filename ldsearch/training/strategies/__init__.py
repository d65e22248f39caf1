"""Training strategies: which sub-networks see this batch, and with which loss. One paper a file.

| strategy | space | measure | plan of a batch: learns from labels | from the teacher |
|---|---|---|---|---|
| plain | the full model | | full | |
| layerdrop | depth, groups | Bernoulli(rate of each block) | one sample | |
| lengthdrop | depth, lengths | LayerDrop's, then uniform block after block | full | smallest, 2 samples |
| flexible-depth | listed depths | all, or so many of each stack | every task | |
| ... with lengths | and lengths | uniform, block after block | full, tasks | tasks sampled, one smallest |

The trained supernet carries the strategy's ``space``, and searches stay in it.
"""

from collections.abc import Callable

from ldsearch.errors import TrainingError, unknown
from ldsearch.registry import Registry
from ldsearch.training.strategies.base import (
    Draws,
    Pass,
    Plan,
    Setting,
    StackSetting,
    TrainingStrategy,
    reads,
)
from ldsearch.training.strategies.flexible_depth import FlexibleDepth
from ldsearch.training.strategies.lengthdrop import layerdrop, lengthdrop, plain

STRATEGIES: Registry[Callable[[Setting], TrainingStrategy]] = Registry(
    "training_strategies",
    {"plain": plain, "layerdrop": layerdrop, "lengthdrop": lengthdrop, "flexible-depth": FlexibleDepth},
)


def make_strategy(name: str, setting: Setting) -> TrainingStrategy:
    """A registered strategy for a model and its options.

    Raises:
        TrainingError: If there is none of that name.
    """
    if name not in STRATEGIES:
        raise TrainingError(unknown("training strategy", name, STRATEGIES))
    return STRATEGIES[name](setting)


__all__ = [
    "STRATEGIES",
    "Draws",
    "Pass",
    "Plan",
    "Setting",
    "StackSetting",
    "TrainingStrategy",
    "make_strategy",
    "reads",
]
