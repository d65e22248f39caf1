"""Families, scores, tasks and training strategies from outside the package, in about twenty lines each."""

import importlib
import importlib.util
import inspect
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import ldsearch.registry
from ldsearch.errors import LdsearchError
from ldsearch.options import TrainSupernet
from ldsearch.registry import Registry
from ldsearch.search.strategies import SEARCHES, Search
from ldsearch.space.lengths import default_bound
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.families import FAMILIES
from ldsearch.supernet.supernet import inference
from ldsearch.supernet.tokens import TOKEN_SCORES
from ldsearch.tasks import TASKS
from ldsearch.training.applicable import check_training
from ldsearch.training.strategies import STRATEGIES, Setting, StackSetting, make_strategy, reads
from tests.test_readme import fenced
from tests.tiny import padded_batch, tiny_model

SCORE = '''
"""Attention received, times the size of what is handed on for it."""

from ldsearch.supernet.tokens import TOKEN_SCORES, column
from ldsearch.testing import TokenScoreContract


def thing(attention):
    return column(attention) * attention.values.norm(dim=-1).mean(dim=1)


TOKEN_SCORES.register("received-values", thing)


class TestReceivedValues(TokenScoreContract):
    def score(self, attention):
        return thing(attention)
'''
STRATEGY = '''
"""The full model, and a random half of its blocks that learns from it."""

from dataclasses import replace

from ldsearch.space import DepthGenes
from ldsearch.subnet import Stack
from ldsearch.testing import StrategyContract
from ldsearch.training.strategies import STRATEGIES, Pass


class thing:
    def __init__(self, setting):
        self.setting = setting

    @property
    def space(self):
        own, whole = self.setting.stacks["encoder"], self.setting.whole
        least = max(1, len(own.pinned))
        depth = DepthGenes("encoder", own.blocks, tuple(range(least, own.blocks + 1)), own.pinned)
        return replace(whole, depths=(depth, *whole.depths[1:]))

    def passes(self, draws, progress):
        own = self.setting.stacks["encoder"]
        order = draws(1).permutation(own.blocks).tolist()
        blocks = sorted({*own.pinned, *order[: max(own.min_layers, own.blocks // 2)]})
        full = Pass(self.setting.full, "label", 0.5)
        half = replace(self.setting.full, encoder=Stack(tuple(blocks)))
        return [full, Pass(half, "distill", 0.5, rows=(0, 2))]


STRATEGIES.register("halves", thing)


class TestHalves(StrategyContract):
    strategy = staticmethod(thing)
'''


def shown(test: str) -> str:
    """The example of docs/extending.md that has this test class."""
    (block,) = [block for block in fenced("python") if f"class {test}(" in block]
    return block


# Source, registry, the name it registers.
PLUGINS = {
    "family": (shown("TestRoCBert"), FAMILIES, "roc_bert"),
    "score": (SCORE, TOKEN_SCORES, "received-values"),
    "strategy": (STRATEGY, STRATEGIES, "halves"),
    "search": (shown("TestDownhill"), SEARCHES, "downhill"),
    "task": (shown("TestTalk"), TASKS, "talk"),
}

# One mistake in an example, and the law that finds it.
MISTAKES = [
    (
        "family",
        "BertLike()",
        "type('Wrong', (BertLike,), {'finish': lambda self, model, hidden: -hidden})()",
        "test_the_full_subnetwork_is_the_stock_model_bit_for_bit",
    ),
    ("score", "column(attention)", "attention.probabilities.sum((1, 2))", "test_padding_changes_nothing"),
    ("score", ".mean(dim=1)", ".mean(dim=(0, 1))", "test_a_row_is_scored_on_its_own"),
    ("score", ".mean(dim=1)", "[:, 0].cumsum(1)", "test_the_order_of_tokens_does_not_matter"),
    ("score", "(dim=-1)", "(dim=-1).log().log()", "test_there_is_one_finite_score_per_token"),
    ("score", "return column", "return 0 * column", "test_scores_tell_tokens_apart"),
    ("score", "values.norm", "values.mul_(2).norm", "test_the_attention_is_left_as_it_was"),
    ("strategy", "*own.pinned, ", "", "test_pinned_blocks_always_run"),
    ("strategy", "max(own.min_layers, own.blocks // 2)", "1", "test_pinned_blocks_always_run"),
    ("strategy", "draws(1)", "import_module('numpy.random')", "test_passes_are_a_function_of_the_draws"),
    ("strategy", "sorted({", "sorted({9, ", "test_subnetworks_fit_the_model"),
    ("strategy", '"label", 0.5', '"label", 0.0', "test_every_batch_has_passes_of_positive_weight"),
    ("strategy", '"label"', '"distill"', "test_the_first_pass_can_teach_and_each_sees_rows"),
    ("strategy", "rows=(0, 2)", "rows=(2, 2)", "test_the_first_pass_can_teach_and_each_sees_rows"),
    ("task", "else own", "else 'nothing'", "test_columns_that_are_missing_or_named_twice_are_refused"),
    (
        "task",
        'kind = "talk"',
        'kind = "talk"; statistics = lambda self, *how: (own := super().statistics(*how)) - own.mean()',
        "test_padding_and_other_rows_change_no_statistic",
    ),
    (
        "search",
        "below = self.space.lowered",
        "below = self.space.widened().lowered",
        "test_it_stays_in_its_space_and_repeats_nothing",
    ),
    ("search", " if fits", "", "test_it_stays_in_its_space_and_repeats_nothing"),
    (
        "search",
        "return [",
        "self.calls = getattr(self, 'calls', 0) + 1; return self.calls * [",
        "test_proposals_depend_on_generation_and_ledger_only",
    ),
]


@contextmanager
def registered(kind: str, folder: Path, right: str = "", wrong: str = "") -> Iterator[ModuleType]:
    """The example, imported from a file, with a mistake; what it registers is taken out again."""
    source, registry, name = PLUGINS[kind]
    assert right in source
    path = folder / f"outside_{kind}.py"
    path.write_text("from importlib import import_module\n" + source.replace(right, wrong, 1))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        yield module
    finally:
        registry.remove(name)


def contract_of(module: ModuleType) -> type:
    (contract,) = (thing for name, thing in vars(module).items() if name.startswith("Test"))
    return contract


def run_laws(contract: type) -> list[str]:
    """Every law of a test class, as pytest would run it; pytest itself is not needed."""
    laws = [name for name, _ in inspect.getmembers(contract, inspect.isfunction) if name.startswith("test_")]
    for law in laws:
        getattr(contract(), law)()
    return laws


@pytest.mark.parametrize("kind", PLUGINS)
def test_an_example_takes_about_twenty_lines_and_inherits_its_laws(kind, tmp_path):
    assert sum(bool(line.strip()) for line in PLUGINS[kind][0].splitlines()) <= 25
    with registered(kind, tmp_path) as module:
        assert len(run_laws(contract_of(module))) >= 3


@pytest.mark.parametrize(("kind", "right", "wrong", "law"), MISTAKES)
def test_a_law_finds_the_mistake_that_it_is_there_for(kind, right, wrong, law, tmp_path):
    with registered(kind, tmp_path, right, wrong) as module:
        contract = contract_of(module)
        with pytest.raises((AssertionError, IndexError, RuntimeError)):
            getattr(contract(), law)()


def test_without_its_registration_a_family_is_depth_only(tmp_path):
    with registered("family", tmp_path) as module:
        (model,) = contract_of(module)().models()
        assert not Supernet(model).why_depth_only
    assert "depth-only" in Supernet(model).why_depth_only


def test_a_registered_score_chooses_the_tokens(tmp_path):
    model, batch = tiny_model("bert"), padded_batch([24])
    subnet = Subnet.of_encoder(range(4), [9, 6, 3, 2], 24)
    with registered("score", tmp_path):
        ours = inference(Supernet(model, "received-values"), batch, subnet)
    assert not torch.allclose(ours, inference(Supernet(model), batch, subnet), atol=1e-3)
    with pytest.raises(LdsearchError, match="unknown token score 'received-values'"):
        Supernet(model, "received-values")


def test_a_registered_strategy_is_made_by_its_name(tmp_path):
    setting = Setting({"encoder": StackSetting(4, (0.2,) * 4)}, 24, default_bound(4))
    with registered("strategy", tmp_path):
        passes = make_strategy("halves", setting).passes(lambda index: np.random.default_rng(index), 0.0)
    assert [len(one.subnet.encoder.blocks) for one in passes] == [4, 2]
    with pytest.raises(LdsearchError, match="unknown training strategy 'halves'"):
        make_strategy("halves", setting)


def test_a_registered_strategy_may_read_any_option_but_where_it_declares_which(tmp_path):
    options = TrainSupernet(strategy="halves", assignment="seq", sandwich="shares", drop_bound=0.3)
    with registered("strategy", tmp_path) as module:
        check_training(options)
        needing = {"drop_bound": ["sandwich"], "genes": {"depth": ["min_layers"]}}
        reads("assignment", "drop_bound", "genes", **needing)(module.thing)
        check_training(options)
        check_training(replace(options, min_layers=2))
        for words, changes in (
            ("--sandwich is for --strategy lengthdrop or halves with --drop", {"drop_bound": None}),
            ("--min-layers has no effect with --genes lengths", {"genes": "lengths", "min_layers": 2}),
        ):
            with pytest.raises(LdsearchError, match=words):
                check_training(replace(options, **changes))
        reads("sandwich")(module.thing)
        with pytest.raises(LdsearchError, match="--assignment is for --strategy flexible-depth, not halves"):
            check_training(replace(options, drop_bound=None))


def test_what_strategies_declare_are_options_of_the_command():
    options = {field.name for field in fields(TrainSupernet)}
    for name in ("plain", "layerdrop", "lengthdrop", "flexible-depth"):
        declared = STRATEGIES[name].reads
        assert {*declared, *(needed.option for needed in declared.values() if needed)} <= options


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_name_that_is_taken_is_refused_in_one_line(kind, tmp_path):
    _, registry, name = PLUGINS[kind]
    with registered(kind, tmp_path), pytest.raises(LdsearchError) as refused:
        registry.register(name, None)
    assert str(refused.value) == f"there already is a {name!r} among the {registry.kind}"
    for call in (lambda shipped: registry.register(shipped, None), registry.remove):
        with pytest.raises(LdsearchError, match=r"\A.*\Z"):
            call(next(iter(registry)))


def test_an_entry_point_whose_name_is_taken_is_refused_in_one_line(monkeypatch):
    points = [EntryPoint("square", "math:sqrt", "ldsearch.shapes")]
    monkeypatch.setattr(ldsearch.registry, "entry_points", lambda group: points)
    assert dict(Registry("shapes", {"round": abs})) == {"round": abs, "square": math.sqrt}
    with pytest.raises(LdsearchError, match=r"^math:sqrt registers 'square', which is already among the"):
        list(Registry("shapes", {"square": abs}))
    points *= 2  # of two packages
    with pytest.raises(LdsearchError, match="already among the shapes"):
        list(Registry("shapes", {"round": abs}))


def test_an_entry_point_may_register_by_itself_and_what_cannot_be_loaded_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    eager = "import shapes\nthing = abs\nshapes.SHAPES.register('square', thing)\n"
    (tmp_path / "eager.py").write_text(eager)
    (tmp_path / "broken.py").write_text("raise KeyError('x')\n")
    (tmp_path / "shapes.py").write_text("SHAPES = None\n")
    points = [EntryPoint("square", "eager:thing", "ldsearch.shapes")]
    monkeypatch.setattr(ldsearch.registry, "entry_points", lambda group: points)
    made = Registry("shapes", {"round": abs}, of=type(abs))
    monkeypatch.setattr(importlib.import_module("shapes"), "SHAPES", made)
    assert dict(made) == {"round": abs, "square": abs}
    for value, said in (
        ("broken:thing", "square = broken:thing of ldsearch.shapes cannot be loaded: it has no 'x'"),
        ("math:nothing", "math:nothing of ldsearch.shapes cannot be loaded"),
        ("string:Template", "'square' of the shapes is <class 'string.Template'>, which is no builtin"),
    ):
        points[:] = [EntryPoint("square", value, "ldsearch.shapes")]
        registry = Registry("shapes", {"round": abs}, of=type(abs))
        for _ in range(2):  # the second reader finds no part of them either
            with pytest.raises(LdsearchError, match=rf"\A.*{re.escape(said)}.*\Z"):
                list(registry)
    points.clear()
    with pytest.raises(LdsearchError, match="is no Search"):
        SEARCHES.register("mine", Search)  # the class, not one of it


ENTRY_POINTS = """
[ldsearch.families]
roc_bert = outside_family:thing
[ldsearch.token_scores]
received-values = outside_score:thing
[ldsearch.training_strategies]
halves = outside_strategy:thing
"""
LISTED = """
from ldsearch.supernet.families import FAMILIES
from ldsearch.supernet.tokens import TOKEN_SCORES
from ldsearch.training.strategies import STRATEGIES
print(*(list(registry)[-1] for registry in (FAMILIES, TOKEN_SCORES, STRATEGIES)))
print(type(FAMILIES["roc_bert"]).__module__)
print(TOKEN_SCORES["received-values"].__module__, STRATEGIES["halves"].__module__)
"""


@pytest.mark.slow
def test_an_installed_package_registers_by_entry_points(tmp_path):
    info = tmp_path / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    for kind, (source, _, _) in PLUGINS.items():
        named = re.sub(r"^[A-Z_]+\.register\(.*?, (.*)\)$", r"thing = \1", source, flags=re.MULTILINE)
        (tmp_path / f"outside_{kind}.py").write_text(named)
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parent.parent)])
    own = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-c", LISTED]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=own)
    names, modules = ("roc_bert", "received-values", "halves"), ("outside_score", "outside_strategy")
    assert done.stdout.split() == [*names, "ldsearch.supernet.families.bert", *modules]
