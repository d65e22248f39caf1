"""What scripts/bench_search.py searches: supernets, rows, spaces and evaluators that know nothing yet."""

import argparse
from dataclasses import dataclass, replace

import numpy as np
from bench_search_naive import NaivePipeline
from bench_search_train import TRAININGS

from ldsearch import Bench
from ldsearch.costs.macs import Cost
from ldsearch.costs.workload import Workload
from ldsearch.evaluation import Evaluator
from ldsearch.space import LengthGenes, Space
from ldsearch.supernet import Supernet
from ldsearch.tasks.base import Encoded
from ldsearch.tasks.questions import EncodedQuestions


@dataclass(frozen=True)
class Part:
    """What is searched: drop bounds of the spaces, kind of lengths, and how many of the search rows."""

    bounds: tuple[str, ...]
    mode: str = "ratio"
    rows: int | None = None
    training: str = ""


PARTS = {
    "sst2": Part(("0.36", "0.2", "0.5"), training="sst2"),
    "sst2-absolute": Part(("0.36",), "absolute", training="sst2"),
    "squad": Part(("0.36",), rows=50, training="squad"),
    "deep": Part(("0.2",), rows=128, training="deep"),
}


class Subject:
    """A supernet, the rows it is searched on, and what everything there costs."""

    def __init__(self, options: argparse.Namespace, part: Part) -> None:
        self.bench = Bench.open(TRAININGS[part.training](options))
        encoded = self.bench.evaluator.encoded
        self.encoded = encoded = encoded if part.rows is None else some(encoded, part.rows)
        self.macs: Cost = self.bench.supernet.macs(encoded.workload)
        reference = self.bench.record.reference
        self.padded: Cost = self.bench.supernet.macs(Workload.padded(reference), name="padded_macs")
        self.full = float(self.macs([self.bench.full])[0])
        self.mode = part.mode

    def space(self, bound: str) -> Space:
        """16 levels; the last length pinned where the head reads the first token only."""
        supernet, record = self.bench.supernet, self.bench.record
        lengths = LengthGenes.build(
            supernet.blocks,
            record.reference,
            bound,
            mode="absolute" if self.mode == "absolute" else "ratio",
            pin_last=supernet.reads_first,
        )
        return Space.of_lengths(lengths).widened()

    def evaluator(self, options: argparse.Namespace, naive: bool = False) -> Evaluator:
        """One that knows nothing yet, and keeps nothing on disk."""
        supernet = self.bench.supernet
        if naive:
            supernet = Supernet(supernet.model)
            assert self.bench.supernet.pipeline is not None
            supernet.pipeline = NaivePipeline.of(self.bench.supernet.pipeline)
        return Evaluator(
            supernet,
            self.bench.task,
            self.encoded,
            split=self.bench.evaluator.split,
            tokenizer=self.bench.tokenizer,
            costs=(self.macs, self.padded),
            fingerprint="bench",
            cache_budget=int(options.cache * 2**30),
            pad_to=self.bench.record.reference if naive else None,
        )


def some(encoded: Encoded, count: int) -> Encoded:
    """So many examples, drawn once and for all; of questions with all their windows."""
    chosen = np.sort(np.random.default_rng(0).permutation(encoded.examples)[:count]).tolist()
    if not isinstance(encoded, EncodedQuestions):
        return replace(encoded, features=tuple(encoded[row] for row in chosen))
    assert encoded.origins is not None
    windows = [window for window, example in enumerate(encoded.origins) if example in chosen]
    return replace(
        encoded,
        features=tuple(encoded[window] for window in windows),
        origins=tuple(chosen.index(encoded.origins[window]) for window in windows),
        rows=encoded.rows.take(chosen),
        characters=tuple(encoded.characters[window] for window in windows),
    )
