"""The supernet: stages, families, tokens. Knows nothing of training, tasks or search."""

from ldsearch.supernet.supernet import FixedSubnet, Supernet

__all__ = ["FixedSubnet", "Supernet"]
