"""Splits share no text: checked against string containment and a union-find over tuples of words."""

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from ldsearch.errors import DataError
from ldsearch.tasks.classification import TextExamples
from ldsearch.tasks.splits import Overlap, SearchRows, Splits, _Words, draw_rows, fix_splits, portion_rows

Texts = dict[str, list[str]]
ROLES = ("train", "search", "report")
# Rows of each role that are given, and that there are if every row is used; 0: the source has no such rows.
LAYOUTS: dict[str, tuple[tuple[int, int, int], tuple[int, int, int]]] = {
    "halved": ((60, 40, 0), (60, 20, 20)),
    "given": ((60, 20, 20), (60, 20, 20)),
    "search cut": ((80, 0, 20), (72, 8, 20)),
    "both cut": ((100, 0, 0), (80, 10, 10)),
}


def random_texts(draw: random.Random, rows: int, vocabulary: int = 4, longest: int = 9) -> list[str]:
    """So few words that rows repeat, lie in one another and share spans; case and spaces vary."""
    texts = []
    for _ in range(rows):
        letters = draw.choices("abcdefghijklmnopqrstuvwxyz"[:vocabulary], k=draw.randint(0, longest))
        words = [draw.choice((str.lower, str.upper))(letter) for letter in letters]
        texts.append(draw.choice(("", " ")) + draw.choice((" ", "  ", "\t", "\n", "\u00a0")).join(words))
    return texts


def random_layout(layout: str, seed: int) -> Texts:
    draw = random.Random(seed)
    # Twelve words make a few groups of a few rows, and never more rows than a group may have.
    texts = {
        role: random_texts(draw, rows, vocabulary=5 if seed % 2 else 12)
        for role, rows in zip(ROLES, LAYOUTS[layout][0], strict=True)
        if rows
    }
    # Spans of five of these words are rare, so some rows quote others.
    for part in texts.values():
        for row in range(0, len(part), 4):
            quoted = draw.choice(draw.choice(list(texts.values())))
            part[row] = f"{draw.choice('xyz')} {quoted} {draw.choice('xyz')}"
    return texts


def unique_words(draw: random.Random, count: int) -> str:
    return " ".join(f"w{draw.randrange(10**12)}" for _ in range(count))


def plain(text: str) -> str:
    return " ".join(text.casefold().split())


def lies_in_any(text: str, others: Sequence[str]) -> bool:
    return plain(text) != "" and any(f" {plain(text)} " in f" {plain(other)} " for other in others)


def roots(texts: Sequence[str], span: int) -> list[int]:
    """Per row, the first row of its group."""
    parent = list(range(len(texts)))

    def root(row: int) -> int:
        return row if parent[row] == row else root(parent[row])

    owner: dict[tuple[str, ...], int] = {}
    for row, text in enumerate(texts):
        words = plain(text).split()
        spans = [tuple(words[i : i + span]) for i in range(len(words) - span + 1)]
        for shared in (*spans, ("the whole row", *words)):
            one, other = sorted((root(row), root(owner.setdefault(shared, row))))
            parent[other] = one
    return [root(row) for row in range(len(texts))]


def chosen(texts: Texts, splits: Splits) -> dict[str, list[int]]:
    """Row numbers by role, counted through all tables one after the other."""
    begin = dict(zip(texts, np.cumsum([0, *map(len, texts.values())]), strict=False))
    return {role: (begin[table] + rows).tolist() for role, (table, rows) in splits.rows.items()}


def flat(texts: Texts) -> list[str]:
    return [text for part in texts.values() for text in part]


def test_linked_rows_are_those_of_a_union_find_over_word_tuples() -> None:
    for seed, span in itertools.product(range(6), (1, 2, 3, 5, 10)):
        texts = random_texts(random.Random(seed), 60, vocabulary=(3, 5, 26)[seed % 3], longest=14)
        groups = _Words(texts).linked(span).tolist()
        assert [groups.index(group) for group in groups] == roots(texts, span), (seed, span)


def test_a_row_lies_in_others_exactly_where_its_words_are_a_substring_whatever_their_case() -> None:
    rows, others = np.arange(60), np.arange(60, 80)
    for seed in range(6):
        texts = random_texts(random.Random(seed), 80, vocabulary=(2, 4, 8)[seed % 3])
        texts[:5] = "Fine  FILM", "ne film", "film fine", "straße", "fine film in the strasse b"
        texts[60] = "a fine film in the STRASSE"
        expected = [lies_in_any(text, texts[60:]) for text in texts[:60]]
        assert _Words(texts).lie_in(rows, others).tolist() == expected, seed
        assert expected[:5] == [True, False, False, True, False]


def test_a_span_that_a_row_repeats_hundreds_of_times_still_links_it() -> None:
    # 256 repetitions are 0 in 8 bits.
    assert len(set(_Words(["a " * 260, "b a a a a a", "c c c c c"]).linked(5).tolist())) == 2


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(8))
def test_rows_that_share_text_are_on_one_side_and_all_others_are_kept(layout: str, seed: int) -> None:
    texts = random_layout(layout, seed)
    every, groups = flat(texts), roots(flat(texts), 5)
    assert max(Counter(groups).values()) <= 50  # so that 5 words it is
    splits = fix_splits(texts)
    sides = chosen(texts, splits)
    kept = [*itertools.chain(*sides.values())]
    assert len(kept) == len(set(kept))
    assert all(rows == sorted(rows) for rows in sides.values())

    report, search = sides["report"], sides["search"]
    held_texts = [every[row] for row in (*search, *report)]
    held_groups = {groups[row] for row in (*search, *report)}
    assert not {groups[row] for row in search} & {groups[row] for row in report}
    assert not {groups[row] for row in sides["train"]} & held_groups
    assert not any(lies_in_any(every[row], held_texts) for row in sides["train"])

    dropped = [row for row in range(len(every)) if row not in kept]
    searched = [row for row in dropped if row >= len(texts["train"])]
    assert all(groups[row] in {groups[other] for other in report} for row in searched)
    from_train = [row for row in dropped if row not in searched]
    contained = [row for row in from_train if lies_in_any(every[row], held_texts)]
    grouped = [row for row in from_train if row not in contained]
    assert all(groups[row] in held_groups for row in grouped)
    overlap = splits.overlap
    assert overlap.span == 5
    assert overlap.contained + overlap.grouped + overlap.search_dropped == len(dropped)
    if layout != "search cut":  # there, rows that were cut and then dropped come from the training table
        assert overlap == Overlap(5, len(contained), len(grouped), len(searched))


def test_random_layouts_have_rows_of_every_kind_to_drop() -> None:
    found = [fix_splits(random_layout(layout, seed)).overlap for layout in LAYOUTS for seed in range(8)]
    for kind in ("contained", "grouped", "search_dropped"):
        assert sum(getattr(overlap, kind) > 0 for overlap in found) >= 4, kind


@pytest.mark.parametrize("layout", LAYOUTS)
def test_keep_overlap_uses_every_row(layout: str) -> None:
    texts = random_layout(layout, 5)
    assert fix_splits(texts).overlap.describe() != ""
    splits = fix_splits(texts, keep_overlap=True)
    assert splits.overlap == Overlap()
    assert splits.overlap.describe() == ""
    sides = chosen(texts, splits)
    assert sorted(itertools.chain(*sides.values())) == list(range(100))
    assert tuple(len(sides[role]) for role in ROLES) == LAYOUTS[layout][1]


@pytest.mark.parametrize(("rows", "cut"), [(20_100, 2_000), (64, 6), (6, 1)])
def test_two_tenths_are_cut_at_most_2000_rows_each_and_nothing_is_lost(rows: int, cut: int) -> None:
    sides = chosen(texts := {"train": [f"row {row}" for row in range(rows)]}, fix_splits(texts))
    assert [len(sides[role]) for role in ROLES] == [rows - 2 * cut, cut, cut]
    assert sorted(itertools.chain(*sides.values())) == list(range(rows))


def test_a_group_that_is_too_large_for_a_side_stays_in_training() -> None:
    texts = {"train": ["same"] * 12 + [f"row {row}" for row in range(48)]}
    found = [chosen(texts, fix_splits(texts, seed=seed)) for seed in range(8)]
    assert len({tuple(sides["search"]) for sides in found}) > 1
    for sides in found:
        assert [len(sides[role]) for role in ROLES] == [48, 6, 6]
        assert set(range(12)) < set(sides["train"])


@pytest.mark.parametrize(
    ("rows", "common", "span"),
    # At most 50 rows are one group, or at most a hundredth.
    [(100, 50, 5), (100, 51, 10), (5_500, 55, 5), (5_500, 56, 10)],
)
def test_an_idiom_of_long_texts_makes_no_giant_group(rows: int, common: int, span: int) -> None:
    draw = random.Random(0)
    idiom = "once upon a time there"
    texts = [
        f"{unique_words(draw, 6)} {idiom if row < common else ''} {unique_words(draw, 6)}"
        for row in range(rows)
    ]
    splits = fix_splits({"train": texts[1:-1], "search": texts[:1], "report": texts[-1:]})
    assert splits.overlap.span == span
    assert splits.overlap.grouped == (common - 1 if span == 5 else 0)


def test_near_duplicates_are_found_under_an_idiom_too() -> None:
    draw = random.Random(0)
    long_idiom = unique_words(draw, 25)
    texts = [f"{unique_words(draw, 50)} {long_idiom} {unique_words(draw, 50)}" for _ in range(200)]
    copied = f"{' '.join(texts[0].split()[:45])} {unique_words(draw, 80)}"
    splits = fix_splits({"train": [*texts[2:], copied], "search": texts[:1], "report": texts[1:2]})
    assert splits.overlap == Overlap(span=40, grouped=1)
    assert splits.rows["train"][1].tolist() == list(range(198))


def test_the_span_has_an_end_where_no_length_helps() -> None:
    draw = random.Random(0)
    boilerplate = unique_words(draw, 200)
    train = [f"{boilerplate} {unique_words(draw, 5)}" for _ in range(100)] + ["something else"]
    splits = fix_splits({"train": train, "search": [boilerplate], "report": ["more"]})
    assert splits.overlap == Overlap(span=80, grouped=100)


def many_rows(train: int) -> Texts:
    """Distinct rows; every tenth training row shares five words with one of 60 search rows."""
    search = [" ".join(f"{letter}{row}" for letter in "abcde") for row in range(60)]
    return {
        "train": [f"{'' if row % 10 else search[row // 10 % 60]} {row}" for row in range(train)],
        "search": search,
    }


@pytest.mark.parametrize(
    ("texts", "search_rows", "says"),
    [
        ({"train": []}, "auto", "0 training rows are too few"),
        ({"train": list("abcde")}, "auto", "5 training rows are too few"),
        ({"train": ["a"], "search": ["b"]}, "auto", "1 validation rows are too few"),
        ({"train": ["a"], "search": ["b", "B"]}, "auto", "2 validation rows .* share too much text"),
        ({"train": ["a b", "b c"], "search": ["a b c"], "report": ["d"]}, "auto", "no train rows are left"),
        ({"train": ["a"], "search": ["b"], "report": ["B"]}, "auto", "no search rows .*--keep-overlap"),
        # As many search rows as there are leave none to report.
        (many_rows(100), 60, "60 validation rows"),
        (many_rows(100), 100, "60 validation rows"),
    ],
)
def test_too_few_rows_for_a_side_are_refused(texts: Texts, search_rows: SearchRows, says: str) -> None:
    with pytest.raises(DataError, match=says):
        fix_splits(texts, search_rows=search_rows)


@pytest.mark.parametrize(
    ("rule", "rows", "searching"),
    [
        ("auto", 19_999, 30),
        ("half", 9_000, 30),
        (20, 9_000, 20),
        ("auto", 20_000, 4_000),
        ("train", 9_000, 4_000),
    ],
)
def test_a_rule_says_which_rows_search_and_groups_stay_whole(
    rule: SearchRows, rows: int, searching: int
) -> None:
    """Validation rows, or many training rows, of which there are 20,000 where nothing else is said."""
    texts = many_rows(rows)
    sides, groups = chosen(texts, fix_splits(texts, search_rows=rule)), _Words(flat(texts)).linked(5)
    for one, other in itertools.combinations(ROLES, 2):
        assert not np.isin(groups[sides[one]], groups[sides[other]]).any()
    assert len(sides["search"]) == searching
    validation = [row for role in ROLES for row in sides[role] if row >= rows]
    assert sorted(validation) == list(range(rows, rows + 60))
    assert set(sides["report"]) <= set(validation)
    assert set(sides["search"]).isdisjoint(validation) == (searching == 4_000)


def test_the_two_texts_of_a_pair_are_kept_apart() -> None:
    train = [
        ("the cat", "sat"),  # the same words as a validation row, cut elsewhere
        ("cat sat", ""),
        ("film", "bad"),  # inside another, mark and all
        ("one two three four five", "alone"),  # a premise shared, a hypothesis not
        ("a b c", "d e"),  # five words, not in a row
    ]
    search = [("the", "cat sat"), ("good film", "bad taste")]
    report = [("zero one two three four five", "else"), ("x a b", "c d e x")]
    sides = zip(ROLES, (train, search, report), strict=True)
    fixed = fix_splits({role: TextExamples(*zip(*own, strict=True), ()).compared for role, own in sides})
    assert fixed.rows["train"][1].tolist() == [0, 1, 4]
    assert fixed.overlap == Overlap(span=5, contained=1, grouped=1)


def test_repeated_rows_do_not_make_the_span_longer() -> None:
    shared = "one two three four five six seven eight nine ten eleven twelve"
    train = [f"before {shared}", *(f"nothing {i} of {i} the {i}" for i in range(20))]
    held = [f"{shared} after", "quite another thing"]
    for filler in ("n/a", ""):
        fixed = fix_splits({"train": [*train, *[filler] * 60], "search": held, "report": ["something else"]})
        assert (fixed.overlap.span, fixed.overlap.grouped) == (5, 1)


def test_search_rows_are_not_cut_from_rows_linked_to_the_report_rows() -> None:
    linked = [f"the same five words here {i}" for i in range(40)]
    free = [f"alone {i}" for i in range(60)]
    fixed = fix_splits({"train": [*linked, *free], "report": ["and the same five words here too"]})
    assert len(fixed.rows["search"][1]) == 10
    assert fixed.overlap.grouped == 40


def test_drawn_rows_are_whole_groups_by_a_union_find_and_leave_the_others_to_train() -> None:
    texts = [f"group {group} has these words {row}" for row in range(4) for group in range(60)]
    drawn = draw_rows(texts, 41, seed=3)
    groups = np.array(roots(texts, 5))
    assert len(drawn) == 40  # the next group would be one row too many
    assert set(groups[drawn]).isdisjoint(np.delete(groups, drawn))
    assert drawn.tolist() == sorted(set(drawn.tolist()))
    assert draw_rows(texts, 41, seed=4).tolist() != drawn.tolist()


def test_portions_share_no_text_and_have_the_shares() -> None:
    draw = random.Random(0)
    texts = [" ".join(draw.choice("abcdefghijklmnop") for _ in range(12)) for _ in range(400)]
    texts += texts[:100]  # some stand twice
    most = {"train": 1_000, "search": 1_000, "report": 1_000}
    found = portion_rows({"train": texts}, most)
    sizes = {role: len(index) for role, (_, index) in found.items()}
    assert sizes["report"] == pytest.approx(188, abs=5)
    assert sizes["search"] == pytest.approx(212, abs=5)
    assert sum(sizes.values()) == 500
    sets = [{texts[row] for row in index} for _, index in found.values()]
    assert sum(map(len, sets)) == len(set().union(*sets))
    few = portion_rows({"train": texts}, {"train": 10, "search": 20, "report": 30})
    assert [len(few[role][1]) for role in ROLES] == [10, 20, 30]
    with pytest.raises(DataError, match="too few"):
        portion_rows({"train": ["one text"] * 100}, most)


def test_splits_that_are_given_are_kept() -> None:
    texts = {role: [f"{role} {row}" for row in range(60)] for role in ROLES}
    found = portion_rows(texts, {"train": 10, "search": 20, "report": 100})
    assert {role: table for role, (table, _) in found.items()} == {role: role for role in texts}
    assert [len(found[role][1]) for role in texts] == [10, 20, 60]


def test_of_training_and_test_rows_enough_of_the_first_choose() -> None:
    texts = {"train": [f"a {row}" for row in range(100)], "report": [f"b {row}" for row in range(60)]}
    found = portion_rows(texts, {"train": 250, "search": 1_000, "report": 750})
    assert {role: (table, len(index)) for role, (table, index) in found.items()} == {
        "train": ("train", 58),
        "search": ("train", 42),
        "report": ("report", 60),
    }
    assert not {*found["train"][1]} & {*found["search"][1]}
