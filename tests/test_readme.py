"""The README says what the code says: tree, columns, commands, shipped files."""

import ast
import re
import shlex
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer.main
from hatchling.builders.wheel import WheelBuilder

from ldsearch.cli import app
from ldsearch.commands.options import TrainSupernet
from ldsearch.costs.named import COSTS, added_costs
from ldsearch.reports.held_out import HELD_OUT_COLUMNS
from ldsearch.reports.tables import COLUMNS, COST_COLUMNS
from ldsearch.search.searches import SEARCHES
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet.families import FAMILIES
from ldsearch.workload import Workload

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODULES = sorted(path.relative_to(ROOT) for path in (ROOT / "ldsearch").rglob("*.py"))


def tree() -> dict[str, str]:
    """Path to comment, from the indented tree."""
    block = README.split("## The tree")[1].split("```")[1]
    found, folders = {}, []
    for line in block.strip("\n").splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name, _, comment = line.strip().partition(" ")
        folders = folders[:depth]
        if name.endswith("/"):
            folders.append(name.rstrip("/"))
        else:
            found["/".join([*folders, name])] = comment.strip()
    return found


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_the_tree_carries_the_first_line_of_every_docstring(path):
    docstring = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    assert tree()[path.as_posix()] == docstring.splitlines()[0]


def test_the_tree_names_nothing_that_is_not_there():
    assert set(tree()) == {path.as_posix() for path in MODULES}


def test_the_column_table_is_the_codes():
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", README, flags=re.MULTILINE)
    assert dict(rows) == {**COLUMNS, **COST_COLUMNS, **HELD_OUT_COLUMNS}


def commands() -> list[list[str]]:
    # Fences in pairs, those of other languages too: one that ends a block begins none.
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    blocks = [block for language, block in fenced if not language]
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    inline = re.findall(r"`(ldsearch [\w-]+ [^`]+)`", README)  # with an argument: more than a name
    wanted = [text for text in [*lines, *inline] if text.startswith("ldsearch ")]
    return [shlex.split(text) for text in dict.fromkeys(wanted)]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_of_the_readme_parses(words):
    group = typer.main.get_command(app)
    command = group.commands[words[1]]
    context = command.make_context(words[1], words[2:], resilient_parsing=False)
    # What trains passes flags on; they are checked against TrainingArguments.
    if context.args:
        assert words[1] in ("train-supernet", "recover", "health")
        from transformers import TrainingArguments

        flags = [word.lstrip("-") for word in context.args if word.startswith("--")]
        assert all(flag in TrainingArguments.__dataclass_fields__ for flag in flags)


def test_the_readme_speaks_of_every_command():
    group = typer.main.get_command(app)
    assert {words[1] for words in commands()} >= set(group.commands) - {"info"}


@pytest.mark.parametrize(
    ("test", "lines", "registry", "name"),
    [("TestCamembert", 20, FAMILIES, "camembert"), ("TestDownhill", 26, SEARCHES, "downhill")],
)
def test_the_examples_keep_their_contracts(test, lines, registry, name):
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL) if test in b]
    assert len(block.splitlines()) <= lines
    names: dict[str, object] = {}
    try:
        exec(block, names)
        inherited = names[test]()
        laws = [law for law in dir(inherited) if law.startswith("test_")]
        assert len(laws) >= 4
        for law in laws:
            getattr(inherited, law)()
    finally:
        registry.remove(name)


def test_the_cost_of_ones_own_counts_what_it_says():
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL) if "COSTS" in b]
    try:
        exec(block, {})
        supernet, workload = SimpleNamespace(blocks=3), Workload.from_lengths([5, 9], 16)
        (cost,) = added_costs(supernet, workload)
        cut = Subnet(Stack((0, 1, 2), Lengths((8, 4, 2), 16)))
        assert cost([Subnet.full(3), cut]).tolist() == [48.0, 14.0]
    finally:
        COSTS.remove("tokens")


def test_the_options_of_the_python_example_are_the_data():
    assert TrainSupernet(data="reviews.csv").source.data == "reviews.csv"


def test_files_the_readme_links_to_are_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).is_file(), target


def test_the_wheel_ships_the_search_spaces(tmp_path):
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        inside = set(wheel.namelist())
    shipped = {f"ldsearch/search_spaces/{path.name}" for path in (ROOT / "search_spaces").glob("*.yaml")}
    assert len(shipped) >= 5
    assert shipped <= inside
    assert {path.as_posix() for path in MODULES} | {"ldsearch/reports/report.html.j2"} <= inside
