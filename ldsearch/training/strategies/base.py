"""Parts of a training strategy: setting, draws and passes; and the plan that trains one sub-network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, cast, get_args

import numpy as np

from ldsearch.errors import TrainingError, unknown
from ldsearch.space import DepthGenes, LengthGenes, Space
from ldsearch.space.lengths import as_rate, default_bound
from ldsearch.subnet import LengthMode, Subnet
from ldsearch.training.drop_rates import DropRates, checked, layer_rates

if TYPE_CHECKING:
    from ldsearch.supernet import Supernet

T = TypeVar("T")
Make = TypeVar("Make", bound=Callable[..., object])
# The generator of one pass of this batch; a function of (seed, optimizer step, micro-step, pass).
Draws = Callable[[int], np.random.Generator]


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass of a sub-network over the batch, or over every few rows of it.

    Args:
        subnet: What runs.
        loss: ``"label"`` for the task's loss; ``"distill"`` for the divergence from the logits of the
            trainer's separate teacher, or without one of the first pass, which then sees all rows.
        weight: Factor on the loss, which is a mean over the rows.
        rows: (offset, stride): the rows offset, offset + stride, …. Batches are sorted by length, so that
            strided rows are alike in length where halves are not.
    """

    subnet: Subnet
    loss: Literal["label", "distill"]
    weight: float
    rows: tuple[int, int] = (0, 1)


@dataclass(frozen=True)
class StackSetting:
    """One stack of the model, and how its blocks are dropped.

    Args:
        blocks: Number of blocks.
        layer_rates: LayerDrop probability of each block (``ldsearch.training.drop_rates``).
        pinned: Blocks that are never skipped.
        min_layers: The fewest blocks that run.
        heads: Attention heads of each block; 0 where they cannot be dropped.

    Raises:
        TrainingError: If a number makes no sense.
    """

    blocks: int
    layer_rates: tuple[float, ...]
    pinned: tuple[int, ...] = ()
    min_layers: int = 0
    heads: int = 0

    def __post_init__(self) -> None:
        checked(self.layer_rates, self.blocks)
        if not 0 <= self.min_layers <= self.blocks:
            raise TrainingError(f"--min-layers must lie in 0..{self.blocks}, not {self.min_layers}")


def _of_stack(value: T | Mapping[str, T] | None, stack: str) -> T | None:
    """A stack's value: its own of a mapping, else that of all."""
    return cast(T | None, value.get(stack) if isinstance(value, Mapping) else value)


@dataclass(frozen=True)
class Setting:
    """Model and options of a training strategy.

    Args:
        stacks: The model's stacks by name, the encoder first (``Supernet.stacks``).
        reference: Reference input length l₀ in tokens.
        drop_bound: LengthDrop probability p.
        length_mode: How lengths apply to shorter inputs.
        genes: What LengthDrop draws of a sub-network: ``"depth"``, ``"lengths"`` or both, joined by ``+``.
        sandwich: How LengthDrop's sub-networks share a batch (``lengthdrop.SANDWICHES``).
        plain_share: Share of the training that LengthDrop leaves to the full model alone, at its start:
            a sandwich distils from the full model, which has to know something first.
        distil: Whether sub-networks learn from logits rather than from the labels.
        teacher_drops: Whether LayerDrop is applied to the full pass too, as in the reference code.
        drop_groups: What LayerDrop drops (``layerdrop.parts_of``).
        assignment: Which blocks make up each depth of flexible depth (``space.assignments.ASSIGNMENTS``).
        encoder_tasks: Encoder depths that flexible depth draws at each step; None: all divisors.
        decoder_tasks: The same of the decoder; 1 with ``always_full`` is the paper's "MT (only encoder)".
        batch_share: 1/k: flexible depth's tasks of a step share every k-th row of its batch.
        always_full: Whether the full depth of each stack is among those drawn; the paper does not say.
        reduction: ``"sum"`` adds the tasks' gradients, as Algorithm 1 does; ``"mean"`` divides by their
            number, which matters for plain SGD; the clipping bound counts the tasks of a sum.
        depth_lengths: Whether flexible depth trains dropped lengths too.
        learned: LayerDrop rates of the one stack that training learns; None: the stacks' stay as they are.

    Raises:
        TrainingError: If a number makes no sense.
    """

    stacks: Mapping[str, StackSetting]
    reference: int
    drop_bound: Fraction
    length_mode: LengthMode = "ratio"
    genes: str = "depth+lengths"
    sandwich: str = "paper"
    plain_share: float = 0.0
    distil: bool = True
    teacher_drops: bool = False
    drop_groups: str = "layer"
    assignment: str = "optimal"
    encoder_tasks: int | None = None
    decoder_tasks: int | None = None
    batch_share: float = 1.0
    always_full: bool = False
    reduction: str = "sum"
    depth_lengths: bool = False
    learned: DropRates | None = None

    @classmethod
    def of(
        cls,
        supernet: "Supernet",
        reference: int,
        drop_bound: float | None = None,
        layer_drop: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
        schedule: str = "constant",
        target_layers: int | Mapping[str, int] | None = None,
        min_layers: int = 0,
        seed: int = 0,
    ) -> "Setting":
        """The setting of a model, with the defaults of every other option.

        Args:
            supernet: Its stacks, and what in them can be dropped.
            reference: Tokens that inputs are cut to.
            drop_bound: None: by depth (``space.lengths.default_bound``).
            layer_drop: LayerDrop rate, or one per block (``drop_rates.layer_rates``); a mapping from stacks
                to theirs leaves the others whole.
            schedule: How a single rate is spread over the blocks; ``"learned"`` trains them (``DropRates``).
            target_layers: Blocks that run on average, instead of ``layer_drop``; a mapping as there.
            min_layers: The fewest blocks that run.
            seed: Of the weights that learned rates start from.

        Raises:
            TrainingError: If a number makes no sense.
        """
        if schedule == "learned" and len(supernet.depths) > 1:
            raise TrainingError("--layer-drop-schedule learned is for models with one stack of blocks")
        for values in (layer_drop, target_layers):
            if isinstance(values, Mapping) and (strange := set(values) - set(supernet.depths)):
                raise TrainingError(
                    f"this model has no {strange.pop()}: it has {' and '.join(supernet.depths)}"
                )
        settings = {}
        for name, depth in supernet.depths.items():
            pinned = supernet.pinned_of(name)
            rate, target = _of_stack(layer_drop, name), _of_stack(target_layers, name)
            if rate is None and target is None and (layer_drop is not None or target_layers is not None):
                rate = (0.0,)
            rates = layer_rates(depth, rate, schedule, target, len(pinned), min_layers)
            heads = supernet.shape.heads if name == "encoder" and supernet.supports_lengths else 0
            settings[name] = StackSetting(depth, rates, pinned, min_layers, heads)
        bound = default_bound(supernet.blocks) if drop_bound is None else as_rate(drop_bound)
        learned = None
        if schedule == "learned":
            (stack,) = settings.values()
            hidden, rng = supernet.model.config.hidden_size, np.random.default_rng([seed, 0])
            learned = DropRates(stack.blocks, hidden, stack.layer_rates[0], rng, stack.pinned)
        return cls(settings, reference, bound, learned=learned)

    def __post_init__(self) -> None:
        if not 0 <= self.plain_share < 1:
            raise TrainingError(f"the plain share must lie in [0, 1), not {self.plain_share}")
        if self.length_mode not in get_args(LengthMode):
            raise TrainingError(unknown("length mode", self.length_mode, get_args(LengthMode)))

    @property
    def now(self) -> "Setting":
        """With the rates that training has learned so far; itself where it learns none."""
        if self.learned is None:
            return self
        ((name, stack),) = self.stacks.items()
        return replace(self, stacks={name: replace(stack, layer_rates=self.learned.current())})

    @property
    def full(self) -> Subnet:
        """All blocks, all tokens."""
        return Subnet.full(**{name: stack.blocks for name, stack in self.stacks.items()})

    @property
    def whole(self) -> Space:
        """The space of the full model alone."""
        depths = (DepthGenes.whole(name, stack.blocks) for name, stack in self.stacks.items())
        return Space("trained", "what training drew sub-networks from", tuple(depths))

    @property
    def lengths(self) -> LengthGenes:
        """The length configurations that LengthDrop draws: every length, p bounding each block."""
        return LengthGenes.build(
            self.stacks["encoder"].blocks,
            self.reference,
            self.drop_bound,
            levels=None,
            mode=self.length_mode,
            pin_last=False,
            per_block=True,
        )


class Plan(Protocol):
    """The sub-networks that train on a batch."""

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """The passes of one batch, in order; the first is the teacher of every ``"distill"`` pass.

        Args:
            draws: Generator of pass i of this batch.
            progress: Share of the optimizer steps that are done, in [0, 1).
        """


class TrainingStrategy(Plan, Protocol):
    """A space of sub-networks, and a plan which of them see a batch."""

    @property
    def space(self) -> Space:
        """The space that the passes draw from; a search stays in it. Heads are chosen by halves in it."""


@dataclass(frozen=True)
class Beside:
    """An option that must be given for another one to be read.

    Args:
        option: Which; it is given where it is not None.
        word: What it has to hold (``"lengths"`` of ``genes``); None: whatever it is.
    """

    option: str
    word: str | None = None

    def holds(self, options: object) -> bool:
        """Whether it is given."""
        value = getattr(options, self.option)
        return value is not None if self.word is None else self.word in value


def reads(*options: str, **beside: Sequence[str] | Mapping[str, Sequence[str]]) -> Callable[[Make], Make]:
    """Declare the options that a strategy reads, of those that some do: others are refused at once.

    A strategy that declares none may read any. ``drop_bound=["teacher"]``: the teacher, beside a bound;
    ``genes={"lengths": ["memory"]}``: the memory, where lengths are among the genes.
    """
    found: dict[str, Beside | None] = dict.fromkeys(options)
    for other, needing in beside.items():
        by_word = needing if isinstance(needing, Mapping) else {None: needing}
        found |= {name: Beside(other, word) for word, names in by_word.items() for name in names}

    def declare(make: Make) -> Make:
        make.reads = found  # type: ignore[attr-defined]
        return make

    return declare


class Fixed:
    """The same sub-network in every batch (Fan, Grave & Joulin 2019, A.1.5: pruned, then without LayerDrop).

    Args:
        subnet: What is trained; weights that it does not use stay as they are.
        loss: ``"label"``, or ``"distill"`` from the trainer's separate teacher.
        space: What the model is searched in afterwards, if it is: where lengths are, a score is learned.
    """

    def __init__(self, subnet: Subnet, loss: Literal["label", "distill"], space: Space | None = None) -> None:
        self.subnet = subnet
        self.loss = loss
        self.space = space

    def passes(self, draws: Draws, progress: float) -> Sequence[Pass]:
        """One pass of weight 1."""
        return [Pass(self.subnet, self.loss, 1.0)]
