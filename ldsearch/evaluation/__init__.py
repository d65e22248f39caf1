"""Scores sub-networks: the only place that runs, counts and caches measurements."""

from ldsearch.evaluation.counts import Counts
from ldsearch.evaluation.evaluator import Evaluator
from ldsearch.evaluation.memory import peak_memory

__all__ = ["Counts", "Evaluator", "peak_memory"]
