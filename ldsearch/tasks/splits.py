"""Train, search and report rows: fixed before training, a function of the data alone.

Rows that share a span of words are one group, and no group is on two sides; training rows that lie, word for
word, within a search or report row are dropped. Shorter spans in common are no overlap. Kim & Cho 2020 search
and report on the same rows, which inflates both.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ldsearch.errors import DataError

Index = NDArray[np.int64]
SearchRows = Literal["auto", "train", "half"] | int

# Rows that share this many words in a row are one group. Where that makes a group larger than a hundredth of
# the different rows (and than 50), the span is an idiom of long texts, not a common origin, and is doubled.
SHORTEST_SPAN = 5
LONGEST_SPAN = 80
_GROUP_SHARE = 0.01
_GROUP_ROWS = 50
# Without validation rows, this share of the training rows becomes the search split, and as many the report
# split, up to a limit.
_CUT_SHARE = 0.1
_CUT_LIMIT = 2_000
# From so many training rows on, the search split is cut from them and all validation rows report: halves of
# a small validation set can tell no two sub-networks apart (436 rows have a standard error of 1.5 points).
MANY_ROWS = 20_000
SEARCH_ROWS = 4_000
_NONE = np.array([], dtype=np.int64)
_ANYWAY = " (--keep-overlap ignores shared text)"
# Of few rows that train nothing and have no splits: shares that report and choose; the others are fitted on.
_PORTIONS = {"report": 0.375, "search": 0.425}
# Any odd base and any fixed draw make a good hash of words; fixed, so that splits are the same everywhere.
_BASE = 0x9E3779B97F4A7C15
_WORD_SEED = 20_201_015
_BLOCK = 2**18  # words or spans that are hashed at a time
_PARTS = 8  # of the spans' hashes
_LOW = 2**12


@dataclass(frozen=True)
class Overlap:
    """Rows dropped because they share text.

    Args:
        span: Rows that share this many words in a row are one group; 0 where overlap was kept.
        contained: Training rows dropped because they lie, word for word, in a search or report row.
        grouped: Other training rows dropped because their group has a search or report row.
        search_dropped: Search rows dropped because their group has a report row.
    """

    span: int = 0
    contained: int = 0
    grouped: int = 0
    search_dropped: int = 0

    def describe(self) -> str:
        """Sentence for the console; empty where nothing was dropped."""
        parts = []
        if self.contained:
            parts.append(f"{self.contained:,} training rows that lie in a search or report row")
        shared = f"linked by {self.span} shared words in a row to"
        if self.grouped:
            parts.append(f"{self.grouped:,} training rows {shared} a search or report row")
        if self.search_dropped:
            parts.append(f"{self.search_dropped:,} search rows {shared} a report row")
        return f"dropped {', '.join(parts)}" if parts else ""


@dataclass(frozen=True)
class Splits:
    """Assignment of rows to train, search and report.

    Args:
        rows: Role to (the given table it comes from, its row numbers, ascending).
        overlap: What was dropped.
    """

    rows: Mapping[str, tuple[str, Index]]
    overlap: Overlap


def fix_splits(
    texts: Mapping[str, Sequence[str]],
    keep_overlap: bool = False,
    seed: int = 0,
    search_rows: SearchRows = "auto",
) -> Splits:
    """Assign rows to train, search and report.

    Where the source has validation rows and no report rows, ``search_rows`` says which of them report;
    whatever else is missing is cut from the training rows, a tenth each.

    Args:
        texts: ``train`` and, where the source has them, ``search`` and ``report``.
        keep_overlap: Use every row where it is, whatever text it shares.
        seed: Of the cut.
        search_rows: ``"train"``: 4,000 training rows search and all validation rows report; ``"half"``: half
            of the validation rows search, the other half reports; a number: so many validation rows search;
            ``"auto"``: ``"train"`` from 20,000 training rows on, else ``"half"``.

    Raises:
        DataError: If there are too few rows, or they share too much text, to fill every side.
    """
    words = _Words([text for part in texts.values() for text in part])
    groups, span = (np.arange(len(words.counts)), 0) if keep_overlap else _span_groups(words)
    ends = np.cumsum([len(part) for part in texts.values()])
    given = dict(zip(texts, np.split(np.arange(ends[-1]), ends[:-1]), strict=True))
    sides = _cut(given, groups, seed, search_rows)
    overlap = Overlap()
    if not keep_overlap:
        sides, overlap = _without_overlap(sides, words, groups, span)
    for role, index in sides.items():
        if len(index) == 0:
            raise DataError(f"no {role} rows are left: too many share text with the other splits{_ANYWAY}")
    origin = np.repeat(np.arange(len(texts)), np.diff(ends, prepend=0))
    names = list(texts)
    rows = {}
    for role, index in sides.items():
        table = int(origin[index[0]])
        rows[role] = (names[table], np.sort(index) - (ends[table - 1] if table else 0))
    return Splits(rows, overlap)


def draw_rows(texts: Sequence[str], count: int, seed: int = 0) -> Index:
    """Row numbers of about ``count`` of the texts, ascending: whole groups, in random order.

    Rows drawn one by one would hold out a part of nearly every group, whose other rows then train nothing.
    """
    groups, _ = _span_groups(_Words(texts))
    return _draw(np.arange(len(texts)), groups, count, np.random.default_rng(seed))


def portion_rows(texts: Mapping[str, Sequence[str]], most: Mapping[str, int]) -> dict[str, tuple[str, Index]]:
    """Rows for a model that is not trained any more: few to fit on (``train``), more to choose and report by.

    Args:
        texts: As of ``fix_splits``, whose splits are kept where the source has any; of training rows alone,
            three eighths at most report, a little more choose and the others fit; of training and report rows
            a little more of the first choose.
        most: The most rows of each role.

    Returns:
        Role to (the given table it comes from, its row numbers, ascending); no two share a span of words.

    Raises:
        DataError: If there are too few rows, or they share too much text, to fill every role.
    """
    rng = np.random.default_rng(0)
    if len(texts) > 1:
        given = fix_splits(texts).rows
        if "search" not in texts and "report" in texts:
            (table, train), (_, search) = given["train"], given["search"]
            pool = np.union1d(train, search)
            count = min(most["search"], round(_PORTIONS["search"] * len(pool)))
            search = _draw(pool, _span_groups(_Words(texts[table]))[0], count, rng)
            given = {**given, "search": (table, search), "train": (table, np.setdiff1d(pool, search))}
        return {
            role: (table, np.sort(rng.permutation(index)[: most[role]]))
            for role, (table, index) in given.items()
        }
    ((table, own),) = texts.items()
    groups, _ = _span_groups(_Words(own))
    rest, taken = np.arange(len(own)), {}
    for role in ("report", "search", "train"):
        count = round(_PORTIONS.get(role, 1.0) * len(own))
        taken[role] = _draw(rest, groups, min(most[role], count), rng)
        rest = np.setdiff1d(rest, taken[role], assume_unique=True)
        if len(taken[role]) == 0:
            raise DataError(
                f"{len(own)} rows are too few, or share too much text, to fit, choose and report by: give "
                "more, or a folder with train, dev and test files"
            )
    return {role: (table, index) for role, index in taken.items()}


def _cut(given: Mapping[str, Index], groups: Index, seed: int, search_rows: SearchRows) -> dict[str, Index]:
    """Fill the roles that the source does not have."""
    rng = np.random.default_rng(seed)
    sides, cut = dict(given), min(_CUT_LIMIT, round(_CUT_SHARE * len(given["train"])))

    def take(role: str, table: str, name: str, count: int) -> None:
        rows = sides[table]
        # What is linked to given report rows would be dropped again.
        free = rows[~np.isin(groups[rows], groups[sides.get("report", _NONE)])]
        sides[role] = _draw(free, groups, count, rng)
        sides[table] = np.setdiff1d(rows, sides[role], assume_unique=True)
        if min(len(sides[role]), len(sides[table])) == 0:
            raise DataError(
                f"{len(given[table])} {name} rows are too few, or share too much text, to cut {role} rows "
                f"from{_ANYWAY}"
            )

    if "search" in given and "report" not in given:
        if search_rows == "auto":
            search_rows = "train" if len(given["train"]) >= MANY_ROWS else "half"
        if search_rows == "train":
            sides["report"], cut = sides.pop("search"), SEARCH_ROWS
        else:
            count = len(given["search"])
            reporting = count // 2 if search_rows == "half" else max(0, count - search_rows)
            take("report", "search", "validation", reporting)
    for role in ("search", "report"):
        if role not in sides:
            take(role, "train", "training", cut)
    return sides


def _draw(rows: Index, groups: Index, count: int, rng: np.random.Generator) -> Index:
    """About ``count`` of the rows, by whole groups in random order."""
    _, member, sizes = np.unique(groups[rows], return_inverse=True, return_counts=True)
    taken = np.zeros(len(sizes), dtype=bool)
    for group in rng.permutation(len(sizes)):
        if count == 0:
            break
        if sizes[group] <= count:
            taken[group] = True
            count -= sizes[group]
    return rows[taken[member]]


def _without_overlap(
    sides: Mapping[str, Index], words: "_Words", groups: Index, span: int
) -> tuple[dict[str, Index], Overlap]:
    search = sides["search"][~np.isin(groups[sides["search"]], groups[sides["report"]])]
    held = np.concatenate([search, sides["report"]])
    train = sides["train"]
    linked = np.isin(groups[train], groups[held])
    # A row of at least a span that lies in another is linked to it.
    contained = np.zeros(len(train), dtype=bool)
    possible = linked | (words.counts[train] < span)
    contained[possible] = words.lie_in(train[possible], held)
    grouped = linked & ~contained
    kept = {"train": train[~(contained | grouped)], "search": search, "report": sides["report"]}
    dropped = len(sides["search"]) - len(search)
    return kept, Overlap(span, int(contained.sum()), int(grouped.sum()), dropped)


def _span_groups(words: "_Words") -> tuple[Index, int]:
    """Group ids, and the number of shared words in a row that makes a group.

    Equal rows are one group however short they are.
    """
    # Repeated rows are one group at any span and say nothing of it.
    distinct = words.distinct()
    limit = max(_GROUP_ROWS, _GROUP_SHARE * len(distinct))
    span = SHORTEST_SPAN
    while True:
        groups = words.linked(span)
        if span >= LONGEST_SPAN or np.bincount(groups[distinct]).max(initial=0) <= limit:
            return groups, span
        span *= 2


class _Words:
    """Texts as hashed words, so that equal spans of any length are found in linear time (Karp & Rabin 1987).

    Words are what whitespace separates, case folded.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        vocabulary: defaultdict[str, int] = defaultdict()
        vocabulary.default_factory = vocabulary.__len__
        counts = []

        def ids() -> Iterator[Iterator[int]]:
            for text in texts:
                row = text.casefold().split()
                counts.append(len(row))
                yield map(vocabulary.__getitem__, row)

        words = np.fromiter(chain.from_iterable(ids()), np.int32)
        self.counts = np.array(counts, dtype=np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.counts)])
        codes = np.random.default_rng(_WORD_SEED).integers(
            1, 2**64, size=max(1, len(vocabulary)), dtype=np.uint64
        )
        # Prefix sums modulo 2^64; the inverse powers make a span's hash independent of where it stands.
        self._inverse = _Powers(pow(_BASE, -1, 2**64), len(words))
        self._prefix = np.zeros(len(words) + 1, np.uint64)
        powers = _Powers(_BASE, len(words))
        for first in range(0, len(words), _BLOCK):
            at = np.arange(first, min(first + _BLOCK, len(words)))
            self._prefix[at + 1] = codes[words[at]] * powers[at]
        np.cumsum(self._prefix, out=self._prefix)

    def distinct(self) -> Index:
        """The first of each of the different rows."""
        return np.unique(self._whole(), return_index=True)[1].astype(np.int64)

    def linked(self, span: int) -> Index:
        """Group ids: rows with ``span`` words in a row, or all words, in common, if only through others."""
        spans = np.maximum(self.counts - span + 1, 0)
        ends = np.concatenate([[0], np.cumsum(spans)])
        hashes = np.empty(ends[-1], np.uint64)
        # Blocks of rows of about so many spans, since what their hashes are made of takes five times as much.
        cuts = np.unique(np.searchsorted(ends, np.arange(0, ends[-1] + _BLOCK, _BLOCK)).clip(0, len(spans)))
        for first, last in pairwise(cuts.tolist()):
            hashes[ends[first] : ends[last]] = self._spans(np.arange(first, last), span)[1]
        pairs = [_equal(self._whole())]
        parts = hashes.view(np.uint8)[::8] % _PARTS  # a byte of each
        for part in range(_PARTS):  # sorted apart, for the memory
            there = np.flatnonzero(parts == part)
            pairs.append(np.searchsorted(ends, there[_equal(hashes[there])], side="right") - 1)
        one, other = np.concatenate(pairs, axis=1)
        rows = len(self.counts)
        links = coo_matrix((np.ones(len(one), np.int8), (one, other)), shape=(rows, rows))
        return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)

    def lie_in(self, rows: Index, others: Index) -> NDArray[np.bool_]:
        """Mask of ``rows`` that occur word for word in one of ``others``, whole words only."""
        whole = self._whole()[rows]
        counts = self.counts[rows]
        found = np.zeros(len(rows), dtype=bool)
        for count in np.unique(counts[(counts > 0) & (counts <= self.counts[others].max(initial=0))]):
            same = counts == count
            # Hashes fill 64 bits: numpy 2.0's other kind overflows.
            found[same] = np.isin(whole[same], self._spans(others, int(count))[1], kind="sort")
        return found

    def _whole(self) -> NDArray[np.uint64]:
        return self._hashes(self.starts[:-1], self.counts)

    def _spans(self, rows: Index, span: int) -> tuple[Index, NDArray[np.uint64]]:
        """Every span of the rows: the row it is in, its hash."""
        per_row = np.maximum(self.counts[rows] - span + 1, 0)
        owners = np.repeat(rows, per_row)
        offsets = np.arange(per_row.sum()) - np.repeat(np.cumsum(per_row) - per_row, per_row)
        return owners, self._hashes(self.starts[owners] + offsets, span)

    def _hashes(self, starts: Index, counts: Index | int) -> NDArray[np.uint64]:
        hashes: NDArray[np.uint64] = self._prefix[starts + counts] - self._prefix[starts]
        return hashes * self._inverse[starts]


def _equal(hashes: NDArray[np.uint64]) -> Index:
    """Places of equal hashes, each beside the next of its like; shape (2, pairs)."""
    ordered = np.sort(hashes)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    # Finding the order takes far longer than sorting: only of what may be among the repeated ones.
    marked = np.zeros(2**20, dtype=bool)
    marked[repeated >> np.uint64(44)] = True
    there = np.flatnonzero(marked[hashes >> np.uint64(44)])
    order = there[np.argsort(hashes[there])]
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    return np.stack([order[same], order[same + 1]])


class _Powers:
    """The powers 0 to ``last`` of a base modulo 2^64, each the product of two of a short table's."""

    def __init__(self, base: int, last: int) -> None:
        self._low = _powers(base, _LOW)
        self._high = _powers(pow(base, _LOW, 2**64), last // _LOW + 1)

    def __getitem__(self, exponents: Index) -> NDArray[np.uint64]:
        product: NDArray[np.uint64] = self._low[exponents % _LOW] * self._high[exponents // _LOW]
        return product


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    """1, base, base², … modulo 2^64."""
    factors = np.full(count, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors)
