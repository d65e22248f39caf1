"""The supernet: stages, families, tokens. Knows nothing of training, tasks or search."""

from ldsearch.supernet.fixed import FixedSubnet
from ldsearch.supernet.supernet import Supernet

__all__ = ["FixedSubnet", "Supernet"]
