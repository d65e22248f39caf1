"""Which rows search and which report: by the number of training rows; SST-2's under both rules."""

import gzip
import json
import os
from pathlib import Path

import pytest

from ldsearch.commands.binding import read_search_rows
from ldsearch.errors import DataError
from ldsearch.tasks.splits import Overlap, _Words, fix_splits
from tests.tasks.test_splits import Texts, chosen, flat, plain, roots


def many_rows(train: int, search: int = 60) -> Texts:
    """Distinct rows; every tenth training row shares five words with a search row."""

    def common(row: int) -> str:
        return " ".join(f"{letter}{row % search}" for letter in "abcde")

    return {
        "train": [f"{common(row // 10)} t{row}" if row % 10 == 0 else f"row {row}" for row in range(train)],
        "search": [f"{common(row)} s{row}" for row in range(search)],
    }


@pytest.mark.parametrize("count", [19_999, 20_000])
def test_with_many_training_rows_the_search_split_is_cut_from_them(count: int) -> None:
    texts = {"train": [f"row {row}" for row in range(count)], "search": [f"held {row}" for row in range(60)]}
    rows = fix_splits(texts).rows
    if count < 20_000:
        assert [rows[role][0] for role in ("search", "report")] == ["search", "search"]
        assert sorted([*rows["search"][1], *rows["report"][1]]) == list(range(60))
        return
    assert (rows["search"][0], rows["report"][0]) == ("train", "search")
    assert rows["report"][1].tolist() == list(range(60))
    assert len(rows["search"][1]) == 4_000
    assert sorted([*rows["train"][1], *rows["search"][1]]) == list(range(count))


@pytest.mark.parametrize("rule", ["train", "half", 20, "auto"])
def test_the_rule_can_be_chosen_and_keeps_groups_whole(rule) -> None:
    texts = many_rows(9_000)
    splits = fix_splits(texts, search_rows=rule)
    sides = chosen(texts, splits)
    groups = _Words(flat(texts)).linked(5).tolist()
    held = [{groups[row] for row in sides[role]} for role in ("train", "search", "report")]
    assert not held[0] & held[1]
    assert not held[0] & held[2]
    assert not held[1] & held[2]
    if rule == "train":
        assert sorted(sides["report"]) == list(range(9_000, 9_060))
        assert len(sides["search"]) == 4_000
    else:
        assert len(sides["search"]) == (20 if rule == 20 else 30)
        assert len(sides["search"]) + len(sides["report"]) == 60


@pytest.mark.parametrize("rows", [60, 100])
def test_as_many_search_rows_as_there_are_leave_none_to_report(rows: int) -> None:
    with pytest.raises(DataError, match="60 validation rows"):
        fix_splits(many_rows(100), search_rows=rows)


@pytest.mark.parametrize("text", ["0", "-3", "some", "", "1.5"])
def test_search_rows_are_read_from_the_command_line(text: str) -> None:
    assert [read_search_rows(one) for one in ("auto", "train", "half", "12")] == [
        "auto",
        "train",
        "half",
        12,
    ]
    with pytest.raises(DataError, match="--search-rows"):
        read_search_rows(text)


def test_search_rows_are_not_cut_from_rows_linked_to_the_report_rows() -> None:
    linked = [f"the same five words here {i}" for i in range(40)]
    free = [f"alone {i}" for i in range(60)]
    fixed = fix_splits({"train": [*linked, *free], "report": ["and the same five words here too"]})
    assert len(fixed.rows["search"][1]) == 10
    assert fixed.overlap.grouped == 40


SST2 = Path(os.environ.get("LDSEARCH_DATA", "")) / "sst2"


@pytest.mark.skipif(
    not (SST2 / "train.jsonl.gz").is_file(), reason="LDSEARCH_DATA names no folder with sst2/train.jsonl.gz"
)
@pytest.mark.parametrize(
    ("rule", "sizes", "contained"),
    [
        ("half", {"train": 63_064, "search": 436, "report": 436}, 1769),
        ("auto", {"train": 56_850, "search": 4_000, "report": 872}, 3983),
    ],
)
def test_sst2_loses_what_string_containment_and_a_union_find_say(rule, sizes, contained) -> None:
    def sentences(name: str) -> list[str]:
        with gzip.open(SST2 / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line)["sentence"] for line in lines]

    texts = {"train": sentences("train"), "search": sentences("validation")}
    splits = fix_splits(texts, search_rows=rule)
    assert splits.overlap == Overlap(span=5, contained=contained, grouped=2516, search_dropped=0)
    assert {role: len(rows) for role, (_, rows) in splits.rows.items()} == sizes

    every, sides = flat(texts), chosen(texts, splits)
    held_rows = [*sides["search"], *sides["report"]]
    held = " \n ".join(["", *(plain(every[row]) for row in held_rows), ""])
    groups = roots(every, 5)
    held_groups = {groups[row] for row in held_rows}
    searching = set(sides["search"])
    rest = [row for row in range(len(texts["train"])) if row not in searching]
    inside = {row for row in rest if f" {plain(every[row])} " in held}
    assert len(inside) == contained
    assert sides["train"] == [row for row in rest if row not in inside and groups[row] not in held_groups]
