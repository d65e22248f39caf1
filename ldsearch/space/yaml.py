"""Search spaces as YAML files: the shipped ones by name, and anybody's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from ldsearch.disk.files import read_text
from ldsearch.disk.records import typed
from ldsearch.errors import SpaceError, SubnetError, one_line
from ldsearch.space.blocks import BlockGenes, DepthGenes, ListedDepths
from ldsearch.space.lengths import LengthGenes
from ldsearch.space.space import Space
from ldsearch.subnet import WHOLE, Groups

# What a file may hold beside name and source.
_KINDS = (
    {"blocks", "depth"},
    {"blocks", "lengths"},
    {"blocks", "depth", "lengths"},
    {"blocks", "depth", "options"},
    {"blocks", "depth", "lengths", "options"},
    {"depths", "assignment"},
)


LARGEST = 2**16  # bytes


class _PlainLoader(yaml.SafeLoader):
    """Reads YAML without aliases: ten of them in a row stand for a billion copies."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read: write the value out")
        return super().compose_node(parent, index)


def space_folder() -> Path:
    """Folder of the shipped search spaces: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).parent.parent
    packaged = package / "search_spaces"
    return packaged if packaged.is_dir() else package.parent / "search_spaces"


def load_space(name_or_path: str | Path, *, blocks: int | None = None, reference: int | None = None) -> Space:
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
        shipped = ", ".join(sorted(path.stem for path in space_folder().glob("*.yaml")))
        raise SpaceError(
            f"no search space {str(name_or_path)[:80]!r}; shipped: {shipped}; or give a YAML file"
        )
    try:
        fields = yaml.load(read_text(path, SpaceError, LARGEST), Loader=_PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # A ValueError for a date that is none, and for a number of thousands of digits.
        raise SpaceError(f"{path} is no YAML: {one_line(error)}") from error
    try:
        return _from_fields(fields, blocks, reference)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, SubnetError) as error:
        raise SpaceError(f"{path} does not describe a search space: {one_line(error)}") from error


def _from_fields(fields: Mapping[str, Any], blocks: int | None, reference: int | None) -> Space:
    if not isinstance(fields, Mapping):
        raise TypeError("it holds no fields")
    name, source = typed(fields["name"], str, "name"), typed(fields["source"], str, "source")
    kind = set(fields) - {"name", "source"}
    if kind not in _KINDS:
        raise SpaceError(
            "a space has name, source, and either blocks with depth, lengths or both, options beside depth "
            f"if wanted, or depths and assignment, not {sorted(fields)}"
        )
    if "depths" in kind:
        stated_depths = typed(fields["depths"], dict[str, int], "depths")
        given = {name: blocks or depth for name, depth in stated_depths.items()}
        # An encoder comes first; a stack of another name is refused by the space.
        stacks = sorted(given.items(), key=lambda stack: stack[0] != "encoder")
        assignment = typed(fields["assignment"], str, "assignment")
        return Space(name, source, tuple(ListedDepths.assigned(*stack, assignment) for stack in stacks))
    stated = typed(fields["blocks"], int, "blocks")
    depth: BlockGenes = DepthGenes.whole("encoder", blocks or stated)
    if "depth" in kind:
        keep = typed(fields["depth"]["keep"], list[int], "keep")
        if blocks is not None:
            # A scaled space keeps the same shares of the blocks.
            keep = [max(1, round(count * blocks / stated)) for count in keep]
        stack = str(fields["depth"].get("stack", "encoder"))
        depth = DepthGenes(stack, blocks or stated, tuple(sorted(set(keep))))
    lengths = None
    if "lengths" in kind:
        given_lengths = dict(fields["lengths"])
        levels = typed(given_lengths.pop("levels"), int | Literal["all"], "levels")
        stated_reference = typed(given_lengths.pop("reference"), int, "reference")
        lengths = LengthGenes.build(
            blocks or stated,
            reference or stated_reference,
            levels=None if levels == "all" else levels,
            **given_lengths,
        )
    options = typed(fields.get("options", []), tuple[Groups, ...], "options")
    return Space(name, source, (depth,), lengths, (WHOLE, *options))
