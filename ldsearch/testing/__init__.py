"""The contracts that a family, a token score, a training or a search strategy must keep, wherever defined.

Plain classes: a test class inherits one, names its thing, and pytest collects the laws.
"""

from ldsearch.testing.families import FamilyContract
from ldsearch.testing.inputs import padded_batch, randomised
from ldsearch.testing.search import SearchContract
from ldsearch.testing.strategies import StrategyContract
from ldsearch.testing.token_scores import TokenScoreContract

__all__ = [
    "FamilyContract",
    "SearchContract",
    "StrategyContract",
    "TokenScoreContract",
    "padded_batch",
    "randomised",
]
