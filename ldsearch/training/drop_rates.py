"""LayerDrop rates: written by a user, or learned with their mean fixed, during training or afterwards."""

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import binom
from torch import Tensor, nn

from ldsearch.errors import TrainingError
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.stages import Between
from ldsearch.supernet.tokens import State
from ldsearch.tasks.base import Batch

LossOf = Callable[[Tensor, Batch], Tensor]
# Of a checkpoint; not safetensors, which are weights of the model.
RATES_FILE = "drop_rates.pt"

# Fan, Grave & Joulin 2019 use it everywhere but in their deepest and their smallest models.
DEFAULT_RATE = 0.2
# With 200 to 600 steps it found every useless block of planted networks. At three times the rate a few
# unlucky batches can decide where blocks need one another: of two that are always dropped, neither alone
# would help, so nothing calls them back.
LEARNING_RATE = 0.003
_FEATURES = 32  # width of the scores' hidden layer
_MEMORY = 0.9  # share of the running mean that a new batch leaves in place


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
    # Rates that training learns (``DropRates``) start equal.
    {"constant": constant, "linear": linear, "learned": constant}
)


def mean_rate(rates: Sequence[float]) -> float:
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


def target_rate(blocks: int, target: int, pinned: int = 0, min_layers: int = 0) -> float:
    """The one rate at which ``target`` blocks run on average.

    Without pinned blocks and a least number that is p* = 1 - r / N of Fan, Grave & Joulin 2019, Sec. 3.2;
    pinned blocks run whatever is drawn, and draws of fewer than ``min_layers`` blocks are filled up.

    Args:
        blocks: Number of blocks.
        target: How many run on average.
        pinned: Blocks that are never skipped.
        min_layers: The fewest blocks that run.

    Raises:
        TrainingError: If no rate gives so many.
    """
    least = max(1, pinned, min_layers)
    if not least <= target <= blocks:
        raise TrainingError(f"--target-layers must lie in {least}..{blocks} for this model, not {target}")
    free = blocks - pinned
    if min_layers <= pinned:
        return float(1 - Fraction(target - pinned, free)) if free else 0.0
    drawn = np.arange(free + 1)

    def excess(rate: float) -> float:
        return float(np.maximum(pinned + drawn, min_layers) @ binom.pmf(drawn, free, 1 - rate)) - target

    return float(brentq(excess, 0.0, 1.0))


def layer_rates(
    blocks: int,
    rates: Sequence[float] | None,
    schedule: str,
    target_layers: int | None,
    pinned: int = 0,
    min_layers: int = 0,
) -> tuple[float, ...]:
    """The rate of every block, from the options.

    Args:
        blocks: Number of blocks of the model.
        rates: One rate for the schedule, or one per block; None: 0.2, or the target's.
        schedule: A key of ``SCHEDULES``.
        target_layers: Number of blocks that run on average.
        pinned: How many blocks are never skipped.
        min_layers: The fewest blocks that run.

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
        return constant(target_rate(blocks, target_layers, pinned, min_layers), blocks)
    rates = (DEFAULT_RATE,) if rates is None else rates
    if len(rates) == 1:
        return SCHEDULES[schedule](rates[0], blocks)
    if schedule != "constant":
        raise TrainingError(f"--layer-drop-schedule {schedule} takes one rate, not one per block")
    return checked(rates, blocks)


def _as_written(rate: float) -> Fraction:
    """The decimal fraction a person wrote (0.2 is 1/5, not its binary neighbour)."""
    return Fraction(str(rate))


def rates_of(scores: Tensor, mean: float) -> Tensor:
    """Drop rates ``min(1, c * softmax(-scores))``, with the c that makes their mean exact.

    What a rate would exceed 1 by goes to the other blocks in proportion to theirs.

    Args:
        scores: Shape (blocks,), higher for blocks that matter more.
        mean: Mean rate p in (0, 1).

    Returns:
        Shape (blocks,), each in [0, 1]; differentiable but where a rate reaches 1.
    """
    blocks = len(scores)
    order = scores.detach().argsort(stable=True)
    for certain in range(blocks):
        # The least important blocks are dropped for certain; the others share what is left of the sum.
        rest = order[certain:]
        shares = (mean * blocks - certain) * (-scores[rest]).softmax(dim=0)
        if shares[0] <= 1:
            break
    return torch.ones_like(scores).index_put((rest,), shares)


class DropRates(nn.Module):
    """Rates of blocks from their activations: ``softmax(-s)``, ``s_d = v · tanh(W h_d + b_d)``.

    The paper's words are "a non-linear function of the activation of its layer" and a softmax; no code
    was released, so the form is ours. h_d is the block's output, averaged over real tokens and over the
    batches seen (a running mean), and normalised. The mean of activations, not of scores: scores follow
    the weights at once, and every rate of a batch is known, with its gradient, before the first block
    runs. b has a row for each block because a block that does nothing has the activation of the one
    before it, and a function of the activation alone could never tell the two apart. v starts at zero:
    all rates equal, as in LayerDrop.

    Args:
        blocks: Number of blocks.
        hidden: Width d of the residual stream.
        rate: Mean drop rate p of the blocks that are not pinned; 1 - r/N to keep r of N.
        rng: Draws the initial weights.
        pinned: Blocks that are never dropped: their rates are 0.

    Raises:
        TrainingError: If the rate is not in (0, 1).
    """

    activations: Tensor
    batches: Tensor

    def __init__(
        self, blocks: int, hidden: int, rate: float, rng: np.random.Generator, pinned: Collection[int] = ()
    ) -> None:
        super().__init__()
        if not 0 < rate < 1:
            raise TrainingError(f"a mean drop rate must lie in (0, 1), not {rate}")
        self.blocks = blocks
        self.rate = rate
        self.free = tuple(block for block in range(blocks) if block not in pinned)
        self.weight = nn.Parameter(_normal(rng, _FEATURES, hidden) / hidden**0.5)
        self.bias = nn.Parameter(_normal(rng, blocks, _FEATURES))
        self.direction = nn.Parameter(torch.zeros(_FEATURES))
        self.register_buffer("activations", torch.zeros(blocks, hidden))
        self.register_buffer("batches", torch.zeros(blocks, dtype=torch.long))
        self.over_ranks: Callable[[Tensor], Tensor] = lambda tensor: tensor

    def scores(self) -> Tensor:
        """The scores s of shape (blocks,), differentiable in W, b and v."""
        normalised = nn.functional.layer_norm(self.activations, self.activations.shape[1:])
        return torch.tanh(normalised @ self.weight.T + self.bias) @ self.direction

    def rates(self) -> Tensor:
        """The rates p of shape (blocks,), in [0, 1]; the mean of those not pinned is ``rate``."""
        scores = self.scores()
        free = torch.tensor(self.free, device=scores.device)
        return torch.zeros_like(scores).index_put((free,), rates_of(scores[free], self.rate))

    def current(self) -> tuple[float, ...]:
        """The rates as numbers."""
        values: NDArray[np.float64] = self.rates().detach().cpu().double().numpy()
        return tuple(values.tolist())

    def importance(self) -> NDArray[np.float64]:
        """softmax(s) of shape (blocks,); the same whatever the next input is."""
        values: NDArray[np.float64] = self.scores().detach().cpu().double().softmax(dim=0).numpy()
        return values

    def between(self, uniforms: NDArray[np.float64]) -> Between:
        """The gates of one pass (``gates``), drawn.

        Args:
            uniforms: Shape (blocks,), uniform on [0, 1): block d is dropped iff ``uniforms[d] < p_d``.

        Raises:
            TrainingError: If there is not one number per block.
        """
        if uniforms.shape != (self.blocks,):
            raise TrainingError(f"{uniforms.shape} random numbers for {self.blocks} blocks")
        return self.gates(np.flatnonzero(uniforms >= np.array(self.current())).tolist())

    def gates(self, runs: Collection[int]) -> Between:
        """The gates of one pass of the full model, as the supernet calls them after each block.

        A gate keeps the block's output or puts back its input, exactly: the pass is that of the sub-network,
        and so are the gradients of the weights. The gradient in p is that of
        ``before + (1 - p) * (after - before)`` (straight-through). Every block is computed, dropped or not:
        the gradient needs what it would have added. In eval mode the running mean stands still.

        Args:
            runs: Ids of the blocks that are not dropped.
        """
        rates, kept = self.rates(), frozenset(runs)

        def gate(block: int, before: State, after: State) -> Tensor:
            if before.hidden.shape != after.hidden.shape:
                raise TrainingError("drop rates are learned at full length: no block may drop tokens")
            if self.training:
                self._observe(block, after)
            chosen = after.hidden if block in kept else before.hidden
            change = (after.hidden - before.hidden).detach()
            return chosen + (rates[block].detach() - rates[block]).to(change.dtype) * change

        return gate

    @torch.no_grad()
    def _observe(self, block: int, after: State) -> None:
        real = after.real[..., None]
        total = torch.where(real, after.hidden.float(), 0).sum(dim=(0, 1))
        # Sum and count in one tensor, of all ranks, which so agree on the next rates.
        total = self.over_ranks(torch.cat([total, real.sum().float()[None]]))
        mean = total[:-1] / total[-1]
        # The plain mean while it covers fewer batches than the memory does.
        share = max(1 - _MEMORY, 1 / (int(self.batches[block]) + 1))
        self.activations[block].lerp_(mean, share)
        self.batches[block] += 1


class RateTraining:
    """Trains drop rates beside the weights, with an optimizer of their own.

    Adam takes no notice of the loss's scale, and neither the norm that the weights' gradients are cut to
    nor their learning rate has anything to do with the rates.

    Args:
        rates: What is trained; on its device already.
        learning_rate: Adam's, the same at every step.
        over_ranks: The mean of a tensor over the processes of the training; None: there is one.
    """

    def __init__(
        self,
        rates: DropRates,
        learning_rate: float = LEARNING_RATE,
        over_ranks: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.rates = rates
        if over_ranks is not None:
            rates.over_ranks = over_ranks
        self._optimizer = torch.optim.Adam(rates.parameters(), lr=learning_rate)

    def step(self) -> None:
        """Take the step of the gradients that were added up, the mean over ranks, and forget them."""
        gradients = [weight.grad for weight in self.rates.parameters() if weight.grad is not None]
        for gradient in gradients:
            gradient.copy_(self.rates.over_ranks(gradient))
        # Scaled fp16 losses can overflow; the weights do not move in such a step either.
        if all(bool(gradient.isfinite().all()) for gradient in gradients):
            self._optimizer.step()
        self._optimizer.zero_grad()

    def save(self, folder: Path) -> None:
        """Write the state to a checkpoint."""
        torch.save([self.rates.state_dict(), self._optimizer.state_dict()], folder / RATES_FILE)

    def load(self, folder: Path) -> None:
        """Go on from the state in a checkpoint."""
        device = self.rates.activations.device
        rates, optimizer = torch.load(folder / RATES_FILE, map_location=device, weights_only=True)
        self.rates.load_state_dict(rates)
        self._optimizer.load_state_dict(optimizer)


def learn_drop_rates(
    supernet: Supernet,
    batches: Iterable[Batch],
    loss_of: LossOf,
    *,
    rate: float,
    steps: int,
    seed: int,
    learning_rate: float = LEARNING_RATE,
) -> DropRates:
    """Learn which blocks a trained supernet can do without; its weights stay as they are.

    Args:
        supernet: Runs in eval mode, at full depth and length.
        batches: Read from the start again where ``steps`` needs more.
        loss_of: From logits and batch to the task's loss, a scalar.
        rate: Mean drop rate p.
        steps: Batches to learn from, one optimizer step each.
        seed: Of the initial weights and the draws, which are functions of (seed, step).
        learning_rate: Adam's, which takes no notice of the loss's scale.

    Returns:
        The learned rates, in eval mode: inputs no longer change them.

    Raises:
        TrainingError: If there are no steps or too few batches, or the rate is not in (0, 1).
    """
    if steps < 1:
        raise TrainingError(f"drop rates need at least one step to be learned, not {steps}")
    full = supernet.full
    device = next(supernet.parameters()).device
    hidden = supernet.model.config.hidden_size
    learned = DropRates(supernet.blocks, hidden, rate, np.random.default_rng([seed, 0])).to(device)
    training = RateTraining(learned, learning_rate)
    with _frozen(supernet):
        for step, batch in enumerate(itertools.islice(_endless(batches), steps), start=1):
            uniforms = np.random.default_rng([seed, step]).random(supernet.blocks)
            batch = {name: tensor.to(device) for name, tensor in batch.items()}
            logits = logits_of(supernet(supernet.inputs(batch), full, between=learned.between(uniforms)))
            torch.autograd.backward(loss_of(logits, batch))
            training.step()
    return learned.eval()


def _endless(batches: Iterable[Batch]) -> Iterator[Batch]:
    while True:
        ran_out = True
        for batch in batches:
            ran_out = False
            yield batch
        if ran_out:
            raise TrainingError("too few batches to learn drop rates from: none is left")


@contextlib.contextmanager
def _frozen(supernet: nn.Module) -> Iterator[None]:
    """In eval mode and without gradients of its own; both as they were afterwards."""
    learning = [parameter for parameter in supernet.parameters() if parameter.requires_grad]
    was_training = supernet.training
    supernet.eval()
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
        supernet.train(was_training)


def _normal(rng: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
