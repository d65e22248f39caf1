"""Runs many sub-networks through a stock model's own forward, each block once for a common prefix.

For what has no pipeline of ours: decoders, encoder-decoders and unregistered encoders. A block that would
see what it saw for the sub-network before gives what it gave then.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any

from torch import Tensor, nn

from ldsearch.costs.macs import Cost
from ldsearch.evaluation.executor import OnLogits, Work
from ldsearch.evaluation.memory import WORK
from ldsearch.evaluation.prefixes import PrefixCache
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.cutting import shallow
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.stock import run_stock
from ldsearch.supernet.supernet import evaluating

Stacks = Mapping[str, Stack]
_NOTHING = Stack(())


class StockExecutor:
    """Runs many sub-networks on a batch, those with long prefixes in common one after the other.

    Logits are bit-equal to those of ``supernet(batch, subnet)``. The states of an encoder serve every
    choice of decoder blocks behind it. Alive at any time are the outputs of one path.

    Args:
        supernet: What the sub-networks belong to.
        macs: MACs per example at true lengths, by which what is executed is counted.
        budget: Bytes that the outputs of one path and the logits may take; it sets ``rows``.
    """

    def __init__(self, supernet: Supernet, macs: Cost, budget: int = WORK) -> None:
        self.supernet = supernet
        self.macs = macs
        self.budget = budget
        self.work = Work()

    def rows(self, length: int) -> int:
        """How many rows of ``length`` tokens fit the budget, at least one."""
        return max(1, self.budget // self.row_bytes(length))

    def row_bytes(self, length: int) -> int:
        """The most bytes that a row of ``length`` tokens takes while it runs."""
        config = self.supernet.model.config
        # Beside the path, one block's units and probabilities; of logits also what reads them.
        path = (sum(self.supernet.depths.values()) + 16) * config.hidden_size
        probabilities = 3 * getattr(config, "num_attention_heads", 1) * length
        logits = 3 * config.vocab_size if self.supernet.head.generates else 0
        return int(4 * length * (path + probabilities + logits))

    def state_bytes(self, length: int) -> int:
        """Nothing is kept for later generations."""
        return 0

    def run(
        self,
        batch: Mapping[str, Tensor],
        subnets: Sequence[Subnet],
        on_logits: OnLogits,
        cache: PrefixCache | None = None,
    ) -> None:
        """As ``Executor.run``; nothing is kept for later runs.

        Raises:
            SubnetError: If a sub-network does not fit the model.
            SupernetError: If an encoder-decoder's input is padded on the left.
        """
        checked = [self.supernet.check(subnet) for subnet in subnets]
        known = {name: _Known() for name in self.supernet.stacks}
        last: Stacks = {}
        read: Mapping[str, Any] = {}
        with evaluating(self.supernet, batch) as moved:
            for stacks, ends in _in_order(checked):
                shared = _in_common(stacks, last)
                self._count(stacks, shared, len(moved["input_ids"]))
                if not last or stacks.get("encoder") != last.get("encoder"):
                    read = self.supernet.stock_inputs(moved, stacks.get("encoder"))
                for name, memory in known.items():
                    memory.expect(len(stacks[name].blocks), len(shared[name].blocks))
                kept = {name: stack.blocks for name, stack in stacks.items()}
                output = run_stock(
                    self.supernet.model,
                    self.supernet.stacks,
                    kept,
                    read,
                    instead=lambda name, place, block: known[name].instead(place, block),
                )
                on_logits(ends, logits_of(output))
                last = stacks

    def _count(self, stacks: Stacks, shared: Stacks, rows: int) -> None:
        self.work.heads += 1
        self.work.evaluations += sum(len(stacks[name].blocks) - len(shared[name].blocks) for name in stacks)
        nothing = dict.fromkeys(stacks, _NOTHING)
        whole, known, outside = self.macs([Subnet(**stacks), Subnet(**shared), Subnet(**nothing)])
        self.work.macs += round(rows * (whole - known + outside))


class _Known:
    """Block outputs of a stack for the sub-network that ran last."""

    def __init__(self) -> None:
        self.outputs: list[Any] = []
        self.blocks = 0

    def expect(self, blocks: int, shared: int) -> None:
        """So many blocks run next, of which the first so many see what they saw before."""
        self.blocks = blocks
        del self.outputs[shared:]

    def instead(self, place: int, block: nn.Module) -> nn.Module:
        """The block, or what gives its output again."""
        if place >= self.blocks:
            return block  # stands in for a stack without blocks, and changes nothing
        remembering: nn.Module = shallow(block)
        run = remembering.forward

        def forward(*inputs: Any, **named: Any) -> Any:
            if place >= len(self.outputs):
                self.outputs.append(run(*inputs, **named))
            return self.outputs[place]

        remembering.forward = forward
        return remembering


def _in_order(stacks: Sequence[Stacks]) -> list[tuple[Stacks, list[int]]]:
    """Distinct sub-networks, common prefixes together, and the indices where they stand."""

    def path(index: int) -> list[tuple[tuple[int, ...], str]]:
        return [(stack.blocks, repr(stack)) for stack in stacks[index].values()]

    groups = groupby(sorted(range(len(stacks)), key=path), key=path)
    alike = [list(ends) for _, ends in groups]
    return [(stacks[ends[0]], ends) for ends in alike]


def _in_common(stacks: Stacks, last: Stacks) -> dict[str, Stack]:
    """Prefix that a sub-network shares with the last one; a decoder's only behind the same encoder."""
    shared: dict[str, Stack] = {}
    same = True
    for name, stack in stacks.items():
        before = last.get(name, _NOTHING)
        whole_blocks = Stack(stack.blocks) == stack and Stack(before.blocks) == before
        if same and stack == before:
            shared[name] = stack
            continue
        pairs = zip(stack.blocks, before.blocks, strict=False) if same and whole_blocks else ()
        shared[name] = Stack(tuple(block for block, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))
        same = False
    return shared
