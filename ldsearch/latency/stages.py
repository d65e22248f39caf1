"""Times the stages of an encoder into a latency table, resuming where an earlier call stopped."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import torch

from ldsearch.errors import SupernetError
from ldsearch.latency.clock import Clock, Noise, Run
from ldsearch.latency.inputs import random_tokens
from ldsearch.latency.table import VERSION, LatencyTable, block_stage
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import run_head
from ldsearch.supernet.stages import State, put_back


class Stages(Protocol):
    """What a table times."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """``model``, ``blocks`` and ``restores`` of the table's header."""

    def run(self, stage: str, batch: int, enter: int, leave: int) -> Run:
        """One stage on random unpadded inputs, ``leave`` of ``enter`` tokens leaving it."""


@dataclass(frozen=True)
class SupernetStages:
    """The stages of a supernet's own path.

    Args:
        supernet: Of a registered family of encoders.

    Raises:
        SupernetError: If it cannot be timed block by block.
    """

    supernet: Supernet
    _entered: dict[tuple[int, int], State] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.supernet.pipeline is None or len(self.supernet.stacks) > 1:
            why = self.supernet.depth_only or "it has two stacks"
            raise SupernetError(f"only registered encoders are tabled block by block: {why}")

    @property
    def facts(self) -> Mapping[str, Any]:
        """The dimensions that time depends on; not the weights."""
        supernet = self.supernet
        assert supernet.pipeline is not None
        named = {"type": supernet.model.config.model_type, "head": supernet.head.name}
        return {
            "model": {**named, "score": supernet.score, **asdict(supernet.shape)},
            "blocks": supernet.blocks,
            "restores": supernet.pipeline.restores,
        }

    def run(self, stage: str, batch: int, enter: int, leave: int) -> Run:
        """On the supernet's device, without gradients."""
        build = {"embed": self._embed, "head": self._head, "restore": self._restore}
        timed = build.get(stage, self._block)(stage, batch, enter, leave)

        def run() -> object:
            with torch.inference_mode():
                return timed()

        return run

    def _state(self, batch: int, length: int) -> State:
        """One for all stages of a group: as many as there are cells would not fit in memory."""
        if (batch, length) not in self._entered:
            state = self._embedded(batch, length)
            self._entered.clear()
            self._entered[batch, length] = state
        return self._entered[batch, length]

    def _embedded(self, batch: int, length: int) -> State:
        pipeline = self.supernet.pipeline
        assert pipeline is not None
        ids = random_tokens(self.supernet, batch, length)
        with torch.inference_mode():
            state = pipeline.family.embed(self.supernet.model, {"input_ids": ids})
        # As the pipeline hands it on behind a block that dropped tokens.
        positions = torch.arange(length, device=ids.device).expand(batch, -1)
        return replace(state, positions=positions, padded=False)

    def _embed(self, stage: str, batch: int, enter: int, leave: int) -> Run:
        pipeline = self.supernet.pipeline
        assert pipeline is not None
        embed = pipeline.family.embed
        ids = random_tokens(self.supernet, batch, enter)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        return lambda: embed(self.supernet.model, inputs)

    def _block(self, stage: str, batch: int, enter: int, leave: int) -> Run:
        pipeline = self.supernet.pipeline
        assert pipeline is not None
        named = {block_stage(index): block for index, block in enumerate(pipeline.blocks)}
        block, state = named[stage].eval(), self._state(batch, enter)
        keep = None if leave == enter else (leave,) * batch
        return lambda: block(state, keep)

    def _head(self, stage: str, batch: int, enter: int, leave: int) -> Run:
        pipeline, model = self.supernet.pipeline, self.supernet.model
        assert pipeline is not None
        finish, state = pipeline.family.finish, self._state(batch, enter)
        mask = {"attention_mask": state.real}
        return lambda: run_head(model, finish(model, state.hidden), mask)

    def _restore(self, stage: str, batch: int, enter: int, leave: int) -> Run:
        whole, part = self._state(batch, enter), self._embedded(batch, leave)
        return lambda: put_back(whole.hidden, part)


def build_table(
    stages: Stages,
    device: Mapping[str, Any],
    lengths: Sequence[int],
    batches: Sequence[int],
    path: Path,
    clock: Clock,
    on_call: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[LatencyTable, tuple[Noise, ...]]:
    """Measure what a table lacks of these batch sizes; every group of cells is written when it is known.

    Args:
        stages: What is timed.
        device: ``device_facts``.
        lengths: The grid (``length_grid``).
        batches: Batch sizes; others that the file has stay.
        path: The table's file, maybe of an earlier call.
        clock: How.
        on_call: Called with timed calls done and all.

    Returns:
        The table, and the noise of each group that was measured now.

    Raises:
        RunError: If the file is of another device, model or grid.
    """
    facts = {"version": VERSION, **device, **stages.facts, "lengths": list(lengths)}
    table = LatencyTable(facts)
    if path.exists():
        table = LatencyTable.load(path)
        table.require(facts)
    groups = [group for batch in batches for group in table.wanted(batch)]
    missing = [group for group in groups if not all(key in table.cells for key in group)]
    done, total = count(1), sum(clock.calls(len(group)) for group in missing)
    noises = []
    for group in missing:
        rounds = clock([stages.run(*key) for key in group], lambda: on_call(next(done), total))
        noises.append(rounds.noise)
        measured = {
            key: (1e3 * timing.median, 1e3 * timing.low, 1e3 * timing.high, timing.repeats)
            for key, timing in zip(group, rounds.timings, strict=True)
        }
        table = replace(table, cells={**table.cells, **measured})
        table.save(path)
    return table, tuple(noises)
