"""Contracts for families, stacks, tasks, token scores, training and search strategies, wherever they are.

Plain classes: a test class inherits one, names its thing, and pytest collects the laws.
"""

from ldsearch.testing.families import FamilyContract
from ldsearch.testing.inputs import padded_batch, randomised
from ldsearch.testing.search import SearchContract
from ldsearch.testing.stacks import StackContract
from ldsearch.testing.strategies import StrategyContract
from ldsearch.testing.tasks import TaskContract
from ldsearch.testing.token_scores import TokenScoreContract

__all__ = [
    "FamilyContract",
    "SearchContract",
    "StackContract",
    "StrategyContract",
    "TaskContract",
    "TokenScoreContract",
    "padded_batch",
    "randomised",
]
