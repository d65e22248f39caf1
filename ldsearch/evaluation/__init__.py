"""Scores sub-networks: the only place that runs, counts and caches measurements."""

from ldsearch.evaluation.evaluator import Evaluator

__all__ = ["Evaluator"]
