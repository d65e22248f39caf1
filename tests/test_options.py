"""Options: what a run stores prints as a command line that gives the same options again."""

import shlex
import sys
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest

from ldsearch import cli
from ldsearch.errors import LdsearchError, TrainingError
from ldsearch.options import PARITY, VERBS, TrainSupernet, flags
from ldsearch.options.binding import changed, pairs, read_trainer
from ldsearch.training.applicable import in_force

# A value of each type of option that is nobody's default; of those that read their text, by name.
VALUES = {str: "text of two", int: 7, float: 0.375, bool: True, Path: Path("a b/c")}
READ = {
    "search_rows": 12,
    "layer_drop": {"encoder": (0.0, 0.25), "decoder": (0.5,)},
    "target_layers": {"encoder": 3, "decoder": 2},
    "batch_share": 0.25,
    "keep": (4, 2),
    "budget": (0.3, 0.5),
    "batch": (2, 4),
    "length": (64, "data"),
    "labels": ("negative", "positive"),
    "option": {"steps": "3", "share": "0.5"},
}


BOTH, BOTH_READ = "encoder=0.2,decoder=0,1/2", {"encoder": (0.2,), "decoder": (0, 0.5)}


def test_numbers_may_also_be_given_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr("ldsearch.commands.compare.main", taken.append)
    for words in (["--budget", "0.4", "--budget", "0.5,0.55"], ["--budget", "0.4,0.5,0.55"], []):
        cli.app(["compare", "runs/a", *words], standalone_mode=False)
    assert [options.budget for options in taken] == [(0.4, 0.5, 0.55)] * 2 + [(0.4, 0.55, 0.7)]
    with pytest.raises(LdsearchError, match="--budget"):
        cli.app(["compare", "--budget", ""], standalone_mode=False)


def value_of(verb: str, field: Field) -> object:
    if field.name == "trainer":
        return {"bf16": "True", "max_steps": "9"}
    if field.metadata["read"]:
        return READ[field.name]
    kind = str(get_type_hints(VERBS[verb])[field.name])
    if "tuple" in kind:
        return tuple(2 * [VALUES[Path if "Path" in kind else str]])
    return next(value for type_, value in VALUES.items() if type_.__name__ in kind)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch):
    """The options that a command line gives."""

    def parse(line: str) -> Any:
        given: list[Any] = []
        monkeypatch.setattr(cli, "import_module", lambda name: SimpleNamespace(main=given.append))
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        assert exit_.value.code == 0
        return given[0]

    return parse


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_alone_and_all_together_come_back(parsed, verb: str) -> None:
    needed = [field for field in fields(VERBS[verb]) if field.default is field.default_factory is MISSING]
    required = {field.name: value_of(verb, field) for field in needed}
    least, everything = VERBS[verb](**required), dict(required)
    for field in fields(VERBS[verb]):
        if field.name in ("parity", *required):  # parity sets other options
            continue
        everything[field.name] = value_of(verb, field)
        options = replace(least, **{field.name: everything[field.name]})
        assert options != least, field.name
        assert parsed(flags(verb, changed(options))) == options, field.name
    assert parsed(flags(verb, changed(VERBS[verb](**everything)))) == VERBS[verb](**everything)


@pytest.mark.parametrize(
    ("verb", "name", "texts"),
    [
        ("train-supernet", "search_rows", {"auto": "auto", "half": "half", "12": 12}),
        ("train-supernet", "layer_drop", {"0.2": (0.2,), "0, 1/4": (0.0, 0.25), BOTH: BOTH_READ}),
        ("train-supernet", "target_layers", {"6": 6, "decoder=3": {"decoder": 3}}),
        ("train-supernet", "batch_share", {"1/4": 0.25, "0.5": 0.5}),
        ("evolve", "keep", {"4,4": (4, 4), "encoder=4, decoder=2": {"encoder": (4,), "decoder": (2,)}}),
        ("profile", "batch", {"8,2,8": (8, 2)}),
        ("profile", "length", {"64,data": (64, "data")}),
    ],
)
def test_numbers_are_read_and_anything_else_is_refused_with_the_flag(verb, name, texts) -> None:
    (option,) = (field for field in fields(VERBS[verb]) if field.name == name)
    read = option.metadata["read"]
    assert {text: read("--it", text) for text in texts} == texts
    for text in ("", "some", "0" if "int" in str(option.type) else "nan", "1.5x", "1,", "1/0"):
        with pytest.raises(LdsearchError, match="--it"):
            read("--it", text)
    if any("=" in text for text in texts):
        for text in ("heads=2", "encoder=2,encoder=2", "encoder=", "2,encoder=2", "encoder=x"):
            with pytest.raises(LdsearchError, match="--it"):
                read("--it", text)


def test_names_with_values_are_read_and_anything_else_is_refused() -> None:
    assert pairs("--option", "steps=3, share = 0.5") == {"steps": "3", "share": "0.5"}
    for text in ("", "steps", "steps=", "=3", "steps=3,steps=4"):
        with pytest.raises(LdsearchError, match="--option"):
            pairs("--option", text)


def test_parity_is_the_options_it_stands_for() -> None:
    assert replace(TrainSupernet(parity=True), parity=False) == TrainSupernet(**PARITY)
    own = TrainSupernet(parity=True, length_mode="ratio")
    assert (own.length_mode, own.token_score) == ("ratio", "column-with-pads")
    own = TrainSupernet(parity=True, drop_bound=0.3)
    assert (own.drop_bound, own.length_mode) == (0.3, "absolute")


def test_what_a_strategy_reads_says_what_it_trains() -> None:
    flexible, depth = TrainSupernet(strategy="flexible-depth"), TrainSupernet(genes="depth")
    lengths = [TrainSupernet(), replace(flexible, drop_bound=0.3), TrainSupernet(genes="lengths")]
    others = [flexible, depth, *(TrainSupernet(strategy=name) for name in ("plain", "layerdrop", "mine"))]
    for option in ("drop_bound", "token_score"):
        assert [in_force(each, option) for each in (*lengths, *others)] == [True] * 3 + [False] * 5
    blocks = [each for each in (*lengths, *others) if in_force(each, "layer_drop")]
    assert blocks == [lengths[0], depth, TrainSupernet(strategy="layerdrop")]
    assert [in_force(each, "plain_share") for each in (flexible, depth)] == [False, True]


def test_flags_for_the_trainer_have_values_or_stand_alone() -> None:
    words = ["--bf16", "--max_steps", "9", "--learning_rate=-1e-3", "--disable_tqdm"]
    expected = {"bf16": True, "max_steps": "9", "learning_rate": "-1e-3", "disable_tqdm": True}
    assert read_trainer(words) == expected
    with pytest.raises(TrainingError, match="stray"):
        read_trainer(["--bf16", "True", "stray"])
