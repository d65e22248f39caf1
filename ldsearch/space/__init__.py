"""Search spaces: which sub-networks may be chosen. Knows no models and no costs."""

from ldsearch.space.blocks import BlockGenes, DepthGenes, ListedDepths
from ldsearch.space.lengths import LengthGenes
from ldsearch.space.space import GENES, Gene, Space, grouped
from ldsearch.space.yaml import load_space, space_folder

__all__ = [
    "GENES",
    "BlockGenes",
    "DepthGenes",
    "Gene",
    "LengthGenes",
    "ListedDepths",
    "Space",
    "grouped",
    "load_space",
    "space_folder",
]
