"""Runs sub-networks that differ in lengths through the graph that will serve them, in its runtime."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldsearch.costs.macs import Cost
from ldsearch.errors import SubnetError
from ldsearch.evaluation.executor import Executor, OnLogits
from ldsearch.evaluation.memory import WORK
from ldsearch.evaluation.prefixes import PrefixCache
from ldsearch.latency.runtimes import graph_runtime
from ldsearch.latency.sessions import Session
from ldsearch.subnet import Subnet, keep_of
from ldsearch.supernet import Supernet
from ldsearch.supernet.graph import KEEP
from ldsearch.supernet.supernet import inference

# Inputs are padded to multiples of this: a runtime prepares itself for every shape that it meets.
STEP = 16


class ServedExecutor(Executor):
    """Runs sub-networks through one elastic graph: what is scored is what will be served, at its speed.

    The full model alone runs in torch, in fp32: it is what the others are compared with.

    Args:
        supernet: An encoder of a registered family.
        runtime: One of those that serve files.
        reference: Tokens that lengths refer to.
        macs: MACs per example at true lengths, by which what is executed is counted.
        budget: Bytes that a batch may take; it sets ``rows``.
    """

    def __init__(
        self, supernet: Supernet, runtime: str, reference: int, macs: Cost, budget: int = WORK
    ) -> None:
        super().__init__(supernet, budget)
        self.runtime = runtime
        self.reference = reference
        self.macs = macs

    def state_bytes(self, length: int) -> int:
        """Nothing is kept for later generations."""
        return 0

    @cached_property
    def session(self) -> Session:
        """The graph, opened.

        Raises:
            ExportError: If the runtime is not installed, or no graph can be made of the model.
        """
        runtime, blocks = graph_runtime(self.runtime), self.supernet.blocks
        some = Subnet.of_encoder(range(blocks), [self.reference - 1] * blocks, self.reference)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            runtime.write(self.supernet, some, path, fed=range(blocks))
            return runtime.open(path, torch.get_num_threads())

    def run(
        self,
        batch: Mapping[str, Tensor],
        subnets: Sequence[Subnet],
        on_logits: OnLogits,
        cache: PrefixCache | None = None,
    ) -> None:
        """As ``Executor.run``; nothing is kept for later runs.

        Raises:
            SubnetError: If a sub-network does not fit the model, or is more than lengths.
        """
        ends: dict[Subnet, list[int]] = {}
        for index, subnet in enumerate(subnets):
            stack = self.supernet.check(subnet)["encoder"]
            if stack.structured or len(stack.blocks) < self.supernet.blocks:
                raise SubnetError(f"one graph runs sub-networks of lengths alone, not {subnet.describe()}")
            ends.setdefault(subnet, []).append(index)
        for subnet, macs in zip(ends, self.macs(list(ends)), strict=True):
            if subnet == self.supernet.full:
                logits = inference(self.supernet, batch, subnet).cpu()
            else:
                logits = self._logits(batch, keep_of(subnet, self.reference))
            self.work.heads += 1
            self.work.macs += round(len(logits) * float(macs))
            on_logits(ends[subnet], logits)

    def timed(self, batch: Mapping[str, Tensor], subnet: Subnet) -> Callable[[], object]:
        """A run of a sub-network on a batch as it is, for a clock; inputs are made once."""
        given = {**self._read(batch), KEEP: np.array([keep_of(subnet, self.reference)])}
        return lambda: self.session.run(given)

    def _read(self, batch: Mapping[str, Tensor]) -> dict[str, NDArray[np.int64]]:
        """The graph's inputs from a batch; token type ids that it lacks become one segment."""
        blank = torch.zeros_like(batch["input_ids"])
        return {name: batch.get(name, blank).cpu().numpy() for name in self.session.inputs}

    def _logits(self, batch: Mapping[str, Tensor], keep: Sequence[int]) -> Tensor:
        length = batch["input_ids"].shape[1]
        more = -length % STEP if length + STEP <= self.supernet.longest else 0
        given = {name: np.pad(array, ((0, 0), (0, more))) for name, array in self._read(batch).items()}
        found = self.session.run({**given, KEEP: np.array([keep])})
        # A span head has an output for each end.
        arrays = [torch.from_numpy(np.array(array)) for array in found]
        logits = torch.stack(arrays, dim=-1) if len(arrays) > 1 else arrays[0]
        return logits if self.supernet.head.pools else logits[:, :length]
