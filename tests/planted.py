"""Planted residual networks: which blocks carry the task is known, and the supernet's call is the same."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput

from ldsearch.subnet import Subnet
from ldsearch.supernet.tokens import State

WIDTH = 16
ANSWER = WIDTH - 1  # the coordinate that the head reads


class Carrier(nn.Module):
    """Adds what it reads at one coordinate to another."""

    def __init__(self, source: int, target: int = ANSWER, gain: float = 0.7) -> None:
        super().__init__()
        self.source, self.target = source, target
        self.gain = nn.Parameter(torch.tensor(gain))

    def forward(self, hidden: Tensor) -> Tensor:
        added = torch.zeros_like(hidden)
        added[..., self.target] = self.gain * hidden[..., self.source]
        return hidden + added


class Identity(nn.Module):
    """Changes nothing."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden.clone()


class Noise(nn.Module):
    """Adds to the answer what looks random and has nothing to do with the label."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.key = torch.randn(8, generator=torch.Generator().manual_seed(seed))

    def forward(self, hidden: Tensor) -> Tensor:
        added = torch.zeros_like(hidden)
        added[..., ANSWER] = torch.sin(1000 * (hidden[..., :8] @ self.key))
        return hidden + added


class Planted(nn.Module):
    """Called as a supernet is. Answers yes where the mean of the real tokens' last coordinate is positive.

    Args:
        blocks: Each from hidden states (B, n, 16) to hidden states.
    """

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(blocks)
        self.model = SimpleNamespace(config=SimpleNamespace(hidden_size=WIDTH))
        self.modes: list[bool] = []

    @property
    def blocks(self) -> int:
        return len(self.layers)

    @property
    def full(self) -> Subnet:
        return Subnet.full(self.blocks)

    def inputs(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in batch.items() if name != "labels"}

    @property
    def useless(self) -> set[int]:
        return {i for i, layer in enumerate(self.layers) if not isinstance(layer, Carrier)}

    def forward(
        self,
        batch: dict[str, Tensor],
        subnet: Subnet,
        between: Callable[[int, State, State], Tensor] = lambda block, before, after: after.hidden,
    ) -> SequenceClassifierOutput:
        self.modes.append(self.training)
        state = State(batch["hidden"], batch["attention_mask"].bool())
        for block in subnet.encoder.blocks:
            after = State(self.layers[block](state.hidden), state.real)
            state = State(between(block, state, after), state.real)
        answers = (state.hidden[..., ANSWER] * state.real).sum(dim=1) / state.real.sum(dim=1)
        return SequenceClassifierOutput(logits=torch.stack([-1.5 * answers, 1.5 * answers], dim=-1))


def carriers_and_identities() -> Planted:
    """Identity blocks side by side: their activations are the ones of the carrier before them."""
    return Planted([Carrier(0), Identity(), Identity(), Carrier(1), Carrier(2), Identity()])


def carriers_and_noise() -> Planted:
    return Planted([Noise(1), Carrier(0), Carrier(1), Noise(2), Carrier(2)])


def carriers_and_both() -> Planted:
    return Planted([Noise(1), Carrier(0), Identity(), Carrier(1), Noise(2), Carrier(2), Identity()])


def batches(count: int, seed: int, sources: int = 3) -> list[dict[str, Tensor]]:
    """Random tokens, half of the rows padded; the label is the sign of the first coordinates' mean."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        rows = torch.randn(16, 1, WIDTH, generator=generator)
        hidden = rows + 0.3 * torch.randn(16, 6, WIDTH, generator=generator)
        hidden[..., ANSWER] = 0
        mask = torch.ones(16, 6, dtype=torch.long)
        mask[::2, 3:] = 0
        means = (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        labels = (means[:, :sources].sum(dim=-1) > 0).long()
        found.append({"hidden": hidden, "attention_mask": mask, "labels": labels})
    return found


def loss_of(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(logits, batch["labels"])
