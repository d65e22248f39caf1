"""Sub-networks as frozen records: which blocks run, how many tokens leave each, which groups are off."""

import json
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ldsearch.errors import SubnetError

SCHEMA_VERSION = 1
SUBNET_FILE = "ldsearch_subnet.json"  # in an export's folder
# No stack and no input of a transformer comes near: what claims to is refused before it is built.
MOST_BLOCKS, MOST_TOKENS = 2_048, 2**20
LengthMode = Literal["ratio", "absolute"]
Tokens = TypeVar("Tokens", int, NDArray[np.int64])
Sublayer = Literal["attention", "feed_forward"]
# Fields of a stack with what is off inside its blocks.
_GROUPS = ("heads_off", "ffn_share", "sublayers_off")


@dataclass(frozen=True)
class Lengths:
    """A length configuration: how many tokens leave each executed block.

    Args:
        tokens: One entry per executed block, never rising, each in 1..reference.
        reference: The input length that ``tokens`` refers to (l₀ of the length-adaptive paper).
        mode: ``"ratio"`` keeps ``ceil(n * l / reference)`` of a sequence's own n tokens; ``"absolute"``
            keeps ``min(l, n)``, as the paper's code does on inputs padded to the reference.

    Raises:
        SubnetError: If the tokens rise, leave 1..reference, or the mode is unknown.
    """

    tokens: tuple[int, ...]
    reference: int
    mode: LengthMode = "ratio"

    def __post_init__(self) -> None:
        if self.mode not in ("ratio", "absolute"):
            raise SubnetError(f"unknown length mode {self.mode!r}: use 'ratio' or 'absolute'")
        if not 1 <= self.reference <= MOST_TOKENS:
            raise SubnetError(f"a reference length lies in 1..{MOST_TOKENS:,}, not {self.reference}")
        previous = self.reference
        for tokens in self.tokens:
            if not 1 <= tokens <= previous:
                raise SubnetError(
                    f"lengths {list(self.tokens)} must never rise and stay in 1..{self.reference}"
                )
            previous = tokens

    def kept(self, position: int, n: Tokens) -> Tokens:
        """Tokens that leave the executed block at ``position`` of a sequence of ``n`` >= 1 real tokens.

        Also of many lengths at once, in an array.
        """
        tokens = self.tokens[position]
        if self.mode == "absolute":
            return n - (n - tokens) * (n > tokens)
        return -(-n * tokens // self.reference)

    @property
    def drops(self) -> tuple[int, ...]:
        """Positions of the blocks that some length leaves with fewer tokens than entered.

        In ratio what is kept of every length alike drops nothing; any length may exceed an absolute one.
        """
        entering = [self.reference if self.mode == "ratio" else None, *self.tokens]
        return tuple(place for place, (before, now) in enumerate(pairwise(entering)) if now != before)


@dataclass(frozen=True)
class Groups:
    """Parts of one block that are off (the structured groups of Fan, Grave & Joulin 2019, Fig. 4).

    Args:
        heads_off: Attention heads that are off.
        ffn_share: Kept share of the feed-forward width; 1 for all of it.
        sublayers_off: Sub-layers that are skipped.

    Raises:
        SubnetError: If there is no such share, head or sub-layer.
    """

    heads_off: tuple[int, ...] = ()
    ffn_share: float = 1.0
    sublayers_off: tuple[Sublayer, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.ffn_share <= 1:
            raise SubnetError(f"a kept share of the feed-forward width lies in (0, 1], not {self.ffn_share}")
        if list(self.heads_off) != sorted({*self.heads_off}) or (self.heads_off and self.heads_off[0] < 0):
            raise SubnetError(f"heads {list(self.heads_off)} must be distinct 0-based ids in ascending order")
        if unknown := {*self.sublayers_off} - {"attention", "feed_forward"}:
            raise SubnetError(f"unknown sub-layers {sorted(map(str, unknown))}: attention or feed_forward")

    def width(self, feed_forward: int) -> int:
        """Kept feed-forward units of a layer of that width: the first ones, at least one."""
        return max(1, round(self.ffn_share * feed_forward))

    def runs(self, sublayer: Sublayer) -> bool:
        """Whether a sub-layer runs."""
        return sublayer not in self.sublayers_off


WHOLE = Groups()


@dataclass(frozen=True)
class Stack:
    """The part of a stack (an encoder or a decoder) that runs. Block ids are 0-based and ascending.

    Args:
        blocks: The blocks that run.
        lengths: Tokens that leave each of them; None when every token does.
        heads_off: (block, head) pairs whose attention head is off.
        ffn_share: (block, share) pairs: the kept share of the feed-forward width, below 1.
        sublayers_off: (block, ``"attention"`` or ``"feed_forward"``) pairs that are skipped.

    Raises:
        SubnetError: If ids repeat or are negative, or the lengths do not match the blocks.
    """

    blocks: tuple[int, ...]
    lengths: Lengths | None = None
    heads_off: tuple[tuple[int, int], ...] = ()
    ffn_share: tuple[tuple[int, float], ...] = ()
    sublayers_off: tuple[tuple[int, Sublayer], ...] = ()

    def __post_init__(self) -> None:
        self._check_blocks()
        if self.lengths is not None:
            tokens = self.lengths.tokens
            if len(tokens) != len(self.blocks):
                raise SubnetError(f"{len(tokens)} lengths for {len(self.blocks)} executed blocks")
            if all(count == self.lengths.reference for count in tokens):
                # One sub-network, one form: keeping everything is the same as having no lengths.
                object.__setattr__(self, "lengths", None)
        for name in _GROUPS:
            entries = tuple(sorted(set(getattr(self, name))))
            if strangers := sorted({block for block, _ in entries} - set(self.blocks)):
                raise SubnetError(f"{name} names blocks {strangers} that do not run")
            object.__setattr__(self, name, entries)
        if any(not 0 < share < 1 for _, share in self.ffn_share):
            raise SubnetError("ffn_share takes shares between 0 and 1; leave full blocks out")
        if len({block for block, _ in self.ffn_share}) < len(self.ffn_share):
            raise SubnetError(f"ffn_share names a block twice: {list(self.ffn_share)}")
        for _, name in self.sublayers_off:
            Groups(sublayers_off=(name,))
        self._check_lengths_without_attention()

    @property
    def structured(self) -> bool:
        """Whether anything finer than blocks and lengths is off."""
        return bool(self.heads_off or self.ffn_share or self.sublayers_off)

    def groups(self, block: int) -> Groups:
        """Parts of a block that are off."""
        return self._off.get(block, WHOLE)

    @cached_property
    def _off(self) -> Mapping[int, Groups]:
        """By block, of those with anything off."""
        shares = dict(self.ffn_share)
        return {
            block: Groups(
                heads_off=tuple(head for b, head in self.heads_off if b == block),
                ffn_share=shares.get(block, 1.0),
                sublayers_off=tuple(name for b, name in self.sublayers_off if b == block),
            )
            for block, _ in (*self.heads_off, *self.ffn_share, *self.sublayers_off)
        }

    def renumbered(self) -> "Stack":
        """The same over blocks 0..n-1: the stack as its own depth-pruned model sees it."""
        index = {block: position for position, block in enumerate(self.blocks)}
        return Stack(
            blocks=tuple(range(len(self.blocks))),
            lengths=self.lengths,
            heads_off=tuple((index[block], head) for block, head in self.heads_off),
            ffn_share=tuple((index[block], share) for block, share in self.ffn_share),
            sublayers_off=tuple((index[block], name) for block, name in self.sublayers_off),
        )

    def _check_blocks(self) -> None:
        if list(self.blocks) != sorted(set(self.blocks)) or (self.blocks and self.blocks[0] < 0):
            raise SubnetError(f"blocks {list(self.blocks)} must be distinct 0-based ids in ascending order")
        if self.blocks and self.blocks[-1] >= MOST_BLOCKS:
            raise SubnetError(f"a stack has at most {MOST_BLOCKS:,} blocks, not a block {self.blocks[-1]}")

    def _check_lengths_without_attention(self) -> None:
        """Attention scores the tokens: where it is off, none can be dropped."""
        ends = pairwise((self.lengths.reference, *self.lengths.tokens)) if self.lengths else ()
        for block, (entering, left) in zip(self.blocks, ends, strict=False):
            if (block, "attention") in self.sublayers_off and entering != left:
                raise SubnetError(f"block {block} drops tokens, but its attention, which scores them, is off")


@dataclass(frozen=True)
class Subnet:
    """A sub-network of a supernet: one ``Stack`` per stack of the model; hashable, JSON round trip."""

    encoder: Stack | None = None
    decoder: Stack | None = None

    @classmethod
    def full(cls, encoder: int = 0, decoder: int = 0) -> "Subnet":
        """All blocks of an encoder, a decoder or both; a stack of 0 blocks is none.

        Raises:
            SubnetError: If a number is negative or absurd.
        """
        if not all(0 <= depth <= MOST_BLOCKS for depth in (encoder, decoder)):
            raise SubnetError(f"a stack has 1..{MOST_BLOCKS:,} blocks, not {max(encoder, decoder)}")
        whole = (Stack(tuple(range(depth))) if depth else None for depth in (encoder, decoder))
        return cls(*whole)

    @classmethod
    def of_blocks(cls, blocks: Mapping[str, Iterable[int]]) -> "Subnet":
        """Some blocks, whole and at full length, of each stack by its name."""
        return cls(**{name: Stack(tuple(int(block) for block in ids)) for name, ids in blocks.items()})

    @classmethod
    def of_encoder(
        cls,
        blocks: Iterable[int],
        tokens: Sequence[int] | None = None,
        reference: int | None = None,
        mode: LengthMode = "ratio",
    ) -> "Subnet":
        """An encoder sub-network from block ids and, optionally, lengths for a reference length."""
        lengths = None
        if tokens is not None:
            if reference is None:
                raise SubnetError("lengths need the reference length they refer to")
            lengths = Lengths(tuple(int(t) for t in tokens), int(reference), mode)
        return cls(encoder=Stack(tuple(int(b) for b in blocks), lengths))

    @property
    def shortens(self) -> bool:
        """Whether it drops tokens."""
        return any(stack.lengths is not None for stack in self.stacks().values())

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces, defaults left out, a schema version."""
        stacks = {name: _stack_to_dict(stack) for name, stack in self.stacks().items()}
        return json.dumps({"version": SCHEMA_VERSION, **stacks}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Subnet":
        """Read what ``to_json`` wrote.

        Raises:
            SubnetError: If the text is no JSON, has another version, or an unknown field.
        """
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SubnetError(f"not a sub-network (no JSON): {text[:80]!r}") from error
        return cls.from_fields(fields)

    @classmethod
    def from_fields(cls, fields: Any) -> "Subnet":
        """Read the JSON object that ``to_json`` wrote.

        Raises:
            SubnetError: If it is none, has another version, or an unknown field.
        """
        version = fields.get("version") if isinstance(fields, dict) else None
        if type(version) is not int or version != SCHEMA_VERSION:
            raise SubnetError(f"not a sub-network of schema version {SCHEMA_VERSION}: {reprlib.repr(fields)}")
        fields = {name: value for name, value in fields.items() if name != "version"}
        if strangers := sorted(set(fields) - {"encoder", "decoder"}):
            raise SubnetError(f"unknown fields in a sub-network: {', '.join(strangers)}")
        return cls(**{name: _stack_from_dict(stack) for name, stack in fields.items()})

    def describe(self) -> str:
        """A short text for tables: blocks, then lengths."""
        parts = []
        for name, stack in self.stacks().items():
            text = f"{name} blocks {_ranges(stack.blocks) or 'none'}"
            if stack.lengths is not None:
                text += f", lengths {' '.join(map(str, stack.lengths.tokens))} of {stack.lengths.reference}"
            parts.append(text + _groups_in_words(stack))
        return "; ".join(parts)

    def stacks(self) -> dict[str, Stack]:
        """The stacks that are there, by name; the encoder first."""
        named = {"encoder": self.encoder, "decoder": self.decoder}
        return {name: stack for name, stack in named.items() if stack is not None}


def _ranges(ids: Sequence[int]) -> str:
    """``(0, 1, 2, 5)`` as ``"0-2 5"``."""
    starts = [i for i in ids if i - 1 not in ids]
    ends = [i for i in ids if i + 1 not in ids]
    pairs = zip(starts, ends, strict=True)
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)


def _groups_in_words(stack: Stack) -> str:
    kinds = {
        "heads off": [f"{block}:{head}" for block, head in stack.heads_off],
        "feed-forward shares": [f"{block}:{share:g}" for block, share in stack.ffn_share],
        "sub-layers off": [f"{block}:{name.replace('_', '-')}" for block, name in stack.sublayers_off],
    }
    return "".join(f", {kind} {' '.join(entries)}" for kind, entries in kinds.items() if entries)


def _stack_to_dict(stack: Stack) -> dict[str, Any]:
    fields: dict[str, Any] = {"blocks": stack.blocks}
    if stack.lengths is not None:
        fields["lengths"] = asdict(stack.lengths)
    return {**fields, **{name: value for name in _GROUPS if (value := getattr(stack, name))}}


def _stack_from_dict(fields: Mapping[str, Any]) -> Stack:
    known = ("blocks", "lengths", *_GROUPS)
    if not isinstance(fields, Mapping) or "blocks" not in fields or set(fields) - {*known}:
        raise SubnetError(f"a stack needs 'blocks' and knows only {', '.join(sorted(known))}")
    try:
        given = fields.get("lengths")
        lengths = None if given is None else Lengths(**{**given, "tokens": tuple(given["tokens"])})
        groups: dict[str, Any] = {
            name: tuple((block, what) for block, what in fields.get(name, ())) for name in _GROUPS
        }
        counts = [*fields["blocks"], *((*lengths.tokens, lengths.reference) if lengths else ())]
        counts += [n for own in groups.values() for n, _ in own] + [n for _, n in groups["heads_off"]]
        if any(type(count) is not int for count in counts):
            raise TypeError("block ids, head ids and lengths are whole numbers")
        return Stack(tuple(fields["blocks"]), lengths, **groups)
    except (KeyError, ValueError, TypeError) as error:
        raise SubnetError(f"malformed stack in a sub-network: {reprlib.repr(fields)}") from error


def keep_of(subnet: Subnet, reference: int, places: Sequence[int] | None = None) -> tuple[int, ...]:
    """Tokens of the reference that leave the blocks at some places: what an elastic graph is fed.

    Args:
        subnet: An encoder's, with lengths in ratio or none.
        reference: What the lengths refer to, in tokens.
        places: Among the blocks that run; None: all of them.

    Raises:
        SubnetError: If it is no encoder's, or its lengths are not in ratio.
    """
    stack = _fed(subnet)
    tokens = stack.lengths.tokens if stack.lengths else (reference,) * len(stack.blocks)
    return tokens if places is None else tuple(tokens[place] for place in places)


def drop_places(subnets: Sequence[Subnet]) -> tuple[int, ...]:
    """Places among the blocks that run where one of the sub-networks drops tokens; every place if none does.

    Args:
        subnets: As of ``keep_of``, of the same blocks.

    Raises:
        SubnetError: As ``keep_of``.
    """
    stacks = [_fed(subnet) for subnet in subnets]
    places = {place for stack in stacks if stack.lengths for place in stack.lengths.drops}
    return tuple(sorted(places)) or tuple(range(len(stacks[0].blocks)))


def _fed(subnet: Subnet) -> Stack:
    """The stack of a sub-network whose lengths can be fed."""
    stack = subnet.encoder
    if stack is None or subnet.decoder is not None or (stack.lengths and stack.lengths.mode != "ratio"):
        raise SubnetError("lengths that can be fed are an encoder's, in ratio")
    return stack
