"""Search spaces: which sub-networks may be chosen. Knows no models and no costs."""

from ldsearch.space.blocks import DepthSpace
from ldsearch.space.grid import DepthGrid
from ldsearch.space.lengths import LengthSpace
from ldsearch.space.space import JointSpace
from ldsearch.space.yaml import EvolvingSpace, SearchSpace, load_space, space_folder

__all__ = [
    "DepthGrid",
    "DepthSpace",
    "EvolvingSpace",
    "JointSpace",
    "LengthSpace",
    "SearchSpace",
    "load_space",
    "space_folder",
]
