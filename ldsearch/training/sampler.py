"""Length-grouped batches whose order is a function of (seed, epoch), so that training can resume."""

from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler

_BATCHES_PER_GROUP = 50  # enough to sort by, few enough that epochs still differ


class LengthGroupedSampler(Sampler[int]):
    """Indices in an order that puts examples of like length into one batch.

    Shuffled, cut into groups of 50 batches, sorted by length within each group; then the batches are
    shuffled. The longest batch comes first, so that memory runs out at once or never.

    Args:
        lengths: True length of each example in tokens.
        batch_size: Examples per batch, all processes together.
        seed: Of the order.
        together: A number for each example: those of one number stand together, by the longest of them, in
            one batch or at the border of two. None: each stands alone.
    """

    def __init__(
        self, lengths: Sequence[int], batch_size: int, seed: int, together: Sequence[int] | None = None
    ) -> None:
        self.lengths = np.asarray(lengths)
        apart = range(len(self.lengths)) if together is None else together
        self._group = np.unique(apart, return_inverse=True)[1]
        self._longest = np.zeros(self._group.max(initial=-1) + 1, dtype=np.int64)
        np.maximum.at(self._longest, self._group, self.lengths)
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the data loader before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self.seed, self.epoch])
        places = np.argsort(rng.permutation(len(self._longest)))
        order = np.argsort(places[self._group], kind="stable")
        group = _BATCHES_PER_GROUP * self.batch_size
        batches = []
        for start in range(0, len(order), group):
            chunk = order[start : start + group]
            ranked = chunk[np.argsort(-self._longest[self._group[chunk]], kind="stable")]
            batches += [ranked[i : i + self.batch_size] for i in range(0, len(ranked), self.batch_size)]
        # A short last batch stays last, or every later one would straddle two length groups.
        tail = [batches.pop()] if len(batches[-1]) < self.batch_size and len(batches) > 1 else []
        longest = max(range(len(batches)), key=lambda i: int(self.lengths[batches[i]].max()))
        first = batches.pop(longest)
        shuffled = [batches[i] for i in rng.permutation(len(batches))]
        yield from np.concatenate([first, *shuffled, *tail]).tolist()
