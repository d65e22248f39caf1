"""Search spaces: what each must offer, and how they are read from YAML. Knows no models and no costs."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import yaml
from numpy.typing import NDArray

from ldsearch.errors import SpaceError, SubnetError, one_line
from ldsearch.space.blocks import DepthSpace
from ldsearch.space.grid import DepthGrid
from ldsearch.space.lengths import Gene, LengthSpace
from ldsearch.space.space import JointSpace
from ldsearch.subnet import WHOLE, Groups, Subnet

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
Loaded = LengthSpace | DepthSpace | DepthGrid | JointSpace
# What a file may hold beside name and source.
_KINDS = (
    {"blocks", "depth"},
    {"blocks", "lengths"},
    {"blocks", "depth", "lengths"},
    {"blocks", "depth", "options"},
    {"blocks", "depth", "lengths", "options"},
    {"depths", "assignment"},
)


class SearchSpace(Protocol):
    """A finite set of sub-networks and its integer genes."""

    @property
    def name(self) -> str:
        """For reports."""

    @property
    def blocks(self) -> int:
        """Number of blocks of the model, of all stacks together."""

    def full(self) -> Subnet:
        """The full model: the denominator of every share, whether or not it is in the space."""

    def smallest(self) -> Subnet:
        """A sub-network no other one of the space is cheaper than."""

    def largest(self) -> Subnet:
        """A sub-network no other one of the space is dearer than."""

    def contains(self, subnet: Subnet) -> bool:
        """Whether the sub-network is allowed."""

    def size(self) -> int:
        """How many sub-networks there are."""

    def enumerate(self) -> Iterator[Subnet]:
        """Every sub-network once."""

    def sample(self, rng: np.random.Generator) -> Subnet:
        """One sub-network, uniformly."""

    def encode(self, subnet: Subnet) -> Gene:
        """The gene of a sub-network of the space."""

    def decode(self, gene: Sequence[int]) -> Subnet:
        """The sub-network of a gene; ``decode(encode(s)) == s``."""

    def repair(self, gene: Sequence[int]) -> Gene:
        """The nearest allowed gene, by the space's own rule; allowed genes stay as they are."""


class EvolvingSpace(SearchSpace, Protocol):
    """A search space that evolution and descent can walk."""

    def regular(self) -> list[Subnet]:
        """Configurations that a rule without any search would name, of many costs."""

    def mutate(self, gene: Sequence[int], probability: float, rng: np.random.Generator) -> Gene:
        """An allowed gene near this one; ``probability`` is that of a length to change."""

    def cross(self, first: Sequence[int], second: Sequence[int], rng: np.random.Generator) -> Gene:
        """An allowed gene between two."""

    def lowered(self, subnet: Subnet) -> list[Subnet]:
        """Its neighbours with a little less, each in one place."""

    def features(self, subnet: Subnet) -> NDArray[np.float64]:
        """What a model of the score may see of it: numbers in 0..1, always as many."""


def space_folder() -> Path:
    """Where the shipped search spaces lie: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).parent.parent
    packaged = package / "search_spaces"
    return packaged if packaged.is_dir() else package.parent / "search_spaces"


def load_space(
    name_or_path: str | Path, *, blocks: int | None = None, reference: int | None = None
) -> Loaded:
    """Read a search space from YAML: a shipped one by name, or any file.

    Args:
        name_or_path: ``"demo"`` or ``"my_space.yaml"``.
        blocks: Use this depth instead of the file's (to scale a space to a smaller model), in each stack.
        reference: Use this reference length instead of the file's.

    Raises:
        SpaceError: If there is no such space, or a field is missing, unknown or senseless.
    """
    path = Path(name_or_path)
    if not path.suffix:
        path = space_folder() / f"{name_or_path}.yaml"
    if not path.is_file():
        shipped = ", ".join(sorted(found.stem for found in space_folder().glob("*.yaml")))
        raise SpaceError(f"no search space {str(name_or_path)!r}; shipped: {shipped}; or give a YAML file")
    try:
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise SpaceError(f"{path} is no YAML: {one_line(error)}") from error
    try:
        return _from_fields(fields, blocks, reference)
    except (KeyError, TypeError, ValueError, AttributeError, SubnetError) as error:
        raise SpaceError(f"{path} does not describe a search space: {one_line(error)}") from error


def _from_fields(fields: Mapping[str, Any], blocks: int | None, reference: int | None) -> Loaded:
    common: dict[str, Any] = {"name": str(fields["name"]), "source": str(fields["source"])}
    kind = set(fields) - {"name", "source"}
    if kind not in _KINDS:
        raise SpaceError(
            "a space has name, source, and either blocks with depth, lengths or both, options beside depth "
            f"if wanted, or depths and assignment, not {sorted(fields)}"
        )
    if "depths" in kind:
        depths = tuple((name, blocks or operator.index(depth)) for name, depth in fields["depths"].items())
        return DepthGrid(depths=depths, assignment=str(fields["assignment"]), **common)
    if kind == {"blocks", "lengths"}:
        return _lengths(fields, common, blocks, reference)
    depth = _depth(fields, common, blocks)
    if kind == {"blocks", "depth"}:
        return depth
    lengths = _lengths(fields, common, blocks, reference).widened() if "lengths" in kind else None
    options = (WHOLE, *(_option(own) for own in fields.get("options", ())))
    return JointSpace(depths=(depth,), lengths=lengths, options=options, **common)


def _depth(fields: Mapping[str, Any], common: Mapping[str, Any], blocks: int | None) -> DepthSpace:
    keep = [int(count) for count in fields["depth"]["keep"]]
    if blocks is not None:
        # A scaled space keeps the same shares of the blocks.
        keep = [max(1, round(count * blocks / int(fields["blocks"]))) for count in keep]
    stack = str(fields["depth"].get("stack", "encoder"))
    return DepthSpace(
        blocks=blocks or int(fields["blocks"]), keep=tuple(sorted(set(keep))), stack=stack, **common
    )


def _lengths(
    fields: Mapping[str, Any], common: Mapping[str, Any], blocks: int | None, reference: int | None
) -> LengthSpace:
    lengths = dict(fields["lengths"])
    levels = lengths.pop("levels")
    stated = int(lengths.pop("reference"))
    return LengthSpace.build(
        blocks or int(fields["blocks"]),
        reference or stated,
        levels=None if levels == "all" else int(levels),
        **lengths,
        **common,
    )


def _option(fields: Mapping[str, Any]) -> Groups:
    return Groups(
        heads_off=tuple(operator.index(head) for head in fields.get("heads_off", ())),
        ffn_share=float(fields.get("ffn_share", 1.0)),
        sublayers_off=tuple(fields.get("sublayers_off", ())),
    )
