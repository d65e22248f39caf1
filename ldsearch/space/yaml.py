"""Search spaces as YAML files: the shipped ones by name, and anybody's."""

import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

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


def space_folder() -> Path:
    """Where the shipped search spaces lie: inside the wheel, or beside the package in a checkout."""
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
        raise SpaceError(f"no search space {str(name_or_path)!r}; shipped: {shipped}; or give a YAML file")
    try:
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise SpaceError(f"{path} is no YAML: {one_line(error)}") from error
    try:
        return _from_fields(fields, blocks, reference)
    except (KeyError, TypeError, ValueError, AttributeError, SubnetError) as error:
        raise SpaceError(f"{path} does not describe a search space: {one_line(error)}") from error


def _from_fields(fields: Mapping[str, Any], blocks: int | None, reference: int | None) -> Space:
    name, source = str(fields["name"]), str(fields["source"])
    kind = set(fields) - {"name", "source"}
    if kind not in _KINDS:
        raise SpaceError(
            "a space has name, source, and either blocks with depth, lengths or both, options beside depth "
            f"if wanted, or depths and assignment, not {sorted(fields)}"
        )
    if "depths" in kind:
        given = {name: blocks or operator.index(depth) for name, depth in fields["depths"].items()}
        # An encoder comes first; a stack of another name is refused by the space.
        stacks = sorted(given.items(), key=lambda stack: stack[0] != "encoder")
        assignment = str(fields["assignment"])
        return Space(name, source, tuple(ListedDepths.assigned(*stack, assignment) for stack in stacks))
    stated = int(fields["blocks"])
    depth: BlockGenes = DepthGenes.whole("encoder", blocks or stated)
    if "depth" in kind:
        keep = [int(count) for count in fields["depth"]["keep"]]
        if blocks is not None:
            # A scaled space keeps the same shares of the blocks.
            keep = [max(1, round(count * blocks / stated)) for count in keep]
        stack = str(fields["depth"].get("stack", "encoder"))
        depth = DepthGenes(stack, blocks or stated, tuple(sorted(set(keep))))
    lengths = None
    if "lengths" in kind:
        given_lengths = dict(fields["lengths"])
        levels, stated_reference = given_lengths.pop("levels"), int(given_lengths.pop("reference"))
        lengths = LengthGenes.build(
            blocks or stated,
            reference or stated_reference,
            levels=None if levels == "all" else int(levels),
            **given_lengths,
        )
    options = (
        Groups(
            heads_off=tuple(operator.index(head) for head in option.get("heads_off", ())),
            ffn_share=float(option.get("ffn_share", 1.0)),
            sublayers_off=tuple(option.get("sublayers_off", ())),
        )
        for option in fields.get("options", ())
    )
    return Space(name, source, (depth,), lengths, (WHOLE, *options))
