"""One sub-network, trained on its own: fine-tuning after pruning, or recovery by distillation."""

from collections.abc import Sequence
from typing import Literal

from ldsearch.subnet import Subnet
from ldsearch.training.strategies.base import Draws, Pass


class Fixed:
    """The same sub-network in every batch (Fan, Grave & Joulin 2019, A.1.5: pruned, then without LayerDrop).

    Args:
        subnet: What is trained; weights that it does not use stay as they are.
        loss: ``"label"``, or ``"distill"`` from the trainer's separate teacher.
    """

    def __init__(self, subnet: Subnet, loss: Literal["label", "distill"]) -> None:
        self.subnet = subnet
        self.loss = loss

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """One pass of weight 1."""
        return [Pass(self.subnet, self.loss, 1.0)]
