"""The contracts that a family, a token score or a training strategy must keep, wherever it is defined.

Plain classes: a test class inherits one, names its thing, and pytest collects the laws.
"""

from ldsearch.testing.families import FamilyContract
from ldsearch.testing.inputs import padded_batch, randomised
from ldsearch.testing.strategies import StrategyContract
from ldsearch.testing.token_scores import TokenScoreContract

__all__ = ["FamilyContract", "StrategyContract", "TokenScoreContract", "padded_batch", "randomised"]
