"""The laws of a training strategy."""

import json
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from ldsearch.space import Space
from ldsearch.subnet import Stack
from ldsearch.training.strategies.base import Draws, Pass, Setting, StackSetting, TrainingStrategy

BATCHES = 20
PROGRESS = (0.0, 0.5, 0.999999)


class StrategyContract:
    """Laws of a training strategy under every setting; a test class inherits it."""

    def strategy(self, setting: Setting) -> TrainingStrategy:
        """A new strategy: what is registered, called with the setting."""
        raise NotImplementedError

    def settings(self) -> Sequence[Setting]:
        """The settings that the laws are tried on."""
        bound = Fraction(9, 25)
        return (
            Setting({"encoder": StackSetting(4, (0.2,) * 4, heads=2)}, 32, bound),
            Setting(
                {"encoder": StackSetting(6, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5), pinned=(0, 3), heads=4)},
                reference=64,
                drop_bound=Fraction(1, 5),
                length_mode="absolute",
                sandwich="paper",
                plain_share=0.3,
            ),
            Setting(
                {"encoder": StackSetting(4, (1.0,) * 4, heads=2)}, 32, bound, teacher_drops=True, distil=False
            ),
            Setting({"encoder": StackSetting(4, (1.0,) * 4, (0,), min_layers=2, heads=2)}, 32, bound),
            Setting(
                {
                    "encoder": StackSetting(4, (0.5,) * 4, heads=2),
                    "decoder": StackSetting(6, (0.3,) * 6, heads=2),
                },
                32,
                bound,
            ),
        )

    def test_passes_are_a_function_of_the_draws(self) -> None:
        """Not of earlier calls: an interrupted training resumes."""
        for setting in self.settings():
            first, second = self.strategy(setting), self.strategy(setting)
            calls = [(batch, progress) for batch in range(BATCHES) for progress in PROGRESS]
            once = [list(first.passes(_draws(batch), progress)) for batch, progress in calls]
            again = [list(second.passes(_draws(batch), progress)) for batch, progress in reversed(calls)]
            assert once == again[::-1]
            assert once == [list(first.passes(_draws(batch), progress)) for batch, progress in calls]

    def test_subnetworks_fit_the_model(self) -> None:
        """The stacks, blocks, heads and lengths that the setting's model has."""
        for setting, passes in self._batches():
            assert all(set(one.subnet.stacks()) == set(setting.stacks) for one in passes)
            for own, stack in _stacks(setting, passes):
                assert set(stack.blocks) <= set(range(own.blocks)), stack
                assert all(0 <= head < own.heads for _, head in stack.heads_off), stack
                if stack.lengths is not None:
                    assert stack.lengths.reference == setting.reference
                    assert stack.lengths.mode == setting.length_mode
                    assert len(stack.lengths.tokens) == len(stack.blocks)

    def test_pinned_blocks_always_run(self) -> None:
        """And no fewer blocks than the setting's least."""
        for setting, passes in self._batches():
            for own, stack in _stacks(setting, passes):
                assert set(own.pinned) <= set(stack.blocks), stack
                assert len(stack.blocks) >= own.min_layers, stack

    def test_passes_lie_in_the_space_of_the_strategy(self) -> None:
        """But for those without any block: what is trained is what a search may propose."""
        for setting, passes in self._batches():
            space = self.strategy(setting).space
            assert Space.from_dict(json.loads(json.dumps(space.to_dict()))) == space
            for one in passes:
                if all(stack.blocks for stack in one.subnet.stacks().values()):
                    assert space.contains(one.subnet), one.subnet.describe()

    def test_every_batch_has_passes_of_positive_weight(self) -> None:
        """At the start, in the middle and at the end of training."""
        for _, passes in self._batches():
            assert passes
            assert all(0 < one.weight < math.inf for one in passes)

    def test_the_first_pass_can_teach_and_each_sees_rows(self) -> None:
        """The first learns from the labels of all rows: there may be no other teacher."""
        for _, passes in self._batches():
            assert passes[0].rows == (0, 1)
            assert passes[0].loss == "label"
            assert all(0 <= offset < stride for offset, stride in (one.rows for one in passes))

    def _batches(self) -> Iterator[tuple[Setting, list[Pass]]]:
        for setting in self.settings():
            strategy = self.strategy(setting)
            for batch in range(BATCHES):
                for progress in PROGRESS:
                    yield setting, list(strategy.passes(_draws(batch), progress))


def _draws(batch: int) -> Draws:
    return lambda index: np.random.default_rng([batch, index])


def _stacks(setting: Setting, passes: Sequence[Pass]) -> Iterator[tuple[StackSetting, Stack]]:
    for one in passes:
        for name, stack in one.subnet.stacks().items():
            yield setting.stacks[name], stack
