"""README and docs agree with code and results: commands, links, numbers, columns, modules, examples."""

import ast
import inspect
import re
import runpy
import shlex
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import typer.main
from hatchling.builders.wheel import WheelBuilder
from transformers import BertConfig, BertForSequenceClassification

import ldsearch
from ldsearch.cli import app
from ldsearch.costs.named import COSTS, added_costs
from ldsearch.costs.workload import Workload
from ldsearch.reports.held_out import HELD_OUT_COLUMNS
from ldsearch.reports.tables import COLUMNS, COST_COLUMNS
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet.supernet import inference
from ldsearch.tasks.tokenizer import train_wordpiece
from tests.cli.conftest import CONFIG, reviews
from tests.test_imports import ORDER

ROOT = Path(__file__).parent.parent
PAGES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))}
README = PAGES[ROOT / "README.md"]
GROUP = typer.main.get_command(app)


def fenced(language: str) -> list[str]:
    # Fences in pairs, those of other languages too: one that ends a block begins none.
    blocks = [re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE) for page in PAGES.values()]
    return [block for page in blocks for name, block in page if name == language]


def commands() -> list[list[str]]:
    lines = [line.split("#")[0].strip() for block in fenced("") for line in block.splitlines()]
    inline = re.findall(r"`(ldsearch [\w-]+ [^`]+)`", "".join(PAGES.values()))  # with an argument
    return [shlex.split(text) for text in dict.fromkeys([*lines, *inline]) if text.startswith("ldsearch ")]


def test_every_command_parses_and_none_is_left_out():
    from transformers import TrainingArguments

    assert {words[1] for words in commands()} == set(GROUP.commands)
    wrong = []
    for words in commands():
        try:
            arguments = GROUP.commands[words[1]].make_context(words[1], words[2:]).args
        except Exception as error:
            wrong.append((" ".join(words), str(error)))
            continue
        # What trains passes flags on; others would have refused them.
        flags = [word.lstrip("-") for word in arguments if word.startswith("--")]
        wrong += [(" ".join(words), f) for f in flags if f not in TrainingArguments.__dataclass_fields__]
    assert not wrong


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_links_resolve_and_the_readme_is_short():
    assert len(README.splitlines()) <= 160
    broken = []
    for path, text in PAGES.items():
        for target in re.findall(r"\]\((?!https://)([^)]+)\)", text):
            file, _, anchor = target.partition("#")
            place = path.parent / file if file else path
            headings = re.findall(r"^#+ (.*)$", place.read_text(), re.MULTILINE) if anchor else []
            if not place.exists() or (anchor and anchor not in map(slug, headings)):
                broken.append(f"{path.name}: {target}")
    assert not broken


RESULTS_PAGE = re.compile(r"\((?:\.\./)*(results/[\w/-]+/README\.md)(?:#[\w-]+)?\)")
QUOTING = ("benchmarks.md", "questions.md", "howto/classifier.md", "howto/long-texts.md", "howto/by-depth.md")


def cited() -> list[tuple[set[str], str]]:
    """Texts with decimal numbers, and the pages of results that they cite: table rows, list items, sections.

    A row of the README and an item of the results page cite one page; a section of the others may cite
    several, and every number stands on one of them.
    """
    results = PAGES[ROOT / "docs" / "results.md"].split("\n## What has been tested")[0]
    texts = [line for line in README.splitlines() if line.startswith("|")]
    texts += [item for section in results.split("\n## ") for item in re.split(r"\n(?=- \[`results)", section)]
    for name in QUOTING:
        for section in re.split(r"\n##+ ", PAGES[ROOT / "docs" / name]):
            texts.append(re.sub(r"^```.*?^```$|`[^`\n]*`", "", section, flags=re.DOTALL | re.MULTILINE))
    return [(pages, text) for text in texts if (pages := set(RESULTS_PAGE.findall(text)))]


def test_cited_numbers_stand_on_the_pages_that_they_cite():
    missing = []
    for pages, text in cited():
        read = "".join((ROOT / page).read_text() for page in pages)
        values = {float(number) for number in re.findall(r"\d+\.\d+", read.replace(",", ""))}
        # Shares as percent, fewer digits: 0.0153 is 1.53 points, 0.4730 is 0.473.
        values |= {round(100 * value, 4) for value in values} | {round(value / 100, 6) for value in values}
        found = re.findall(r"\d+\.\d+", text.replace(",", ""))
        missing += [f"{text[:60]}: {n}" for n in found if float(n) not in values]
    assert len(cited()) > 40
    assert not missing


def test_the_column_table_is_the_codes():
    (table,) = [page for page in PAGES.values() if "| column | meaning |" in page]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", table.split("| column | meaning |")[1], re.MULTILINE)
    assert dict(rows) == {**COLUMNS, **COST_COLUMNS, **HELD_OUT_COLUMNS}


def test_the_map_of_modules_is_current():
    written = runpy.run_path(str(ROOT / "scripts" / "module_map.py"))["module_map"]()
    assert PAGES[ROOT / "docs" / "modules.md"] == written, "run python scripts/module_map.py"


def test_the_tree_has_every_room_from_the_ground_up():
    package = ROOT / "ldsearch"
    told = re.findall(r"^  (\w+)/ ", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert {*told} == {path.relative_to(package).parts[0] for path in package.rglob("*/*.py")}
    assert sorted(told, key=ORDER.index) == told


def test_the_python_examples_name_what_there_is():
    for block in fenced("python"):
        for node in ast.walk(ast.parse(block)):
            call = node.func if isinstance(node, ast.Call) else None
            if isinstance(call, ast.Attribute) and ast.unparse(call.value) == "ldsearch":
                inspect.signature(getattr(ldsearch, call.attr)).bind(
                    *node.args, **{keyword.arg: keyword.value for keyword in node.keywords}
                )


def test_the_library_example_trains_searches_and_exports_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = [block for block in fenced("python") if "SupernetTrainer(" in block]
    assert sum(bool(line.strip()) for line in block.splitlines()) <= 25
    text = reviews()
    (tmp_path / "reviews.csv").write_text(text)
    tokenizer = train_wordpiece([line.split(",")[0] for line in text.splitlines()[1:]], 100)
    fields = {name: value for name, value in CONFIG.items() if name != "model_type"}
    labels = {0: "bad", 1: "good"}
    config = BertConfig(vocab_size=len(tokenizer), id2label=labels, label2id={"bad": 0, "good": 1}, **fields)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "my-bert")
    tokenizer.save_pretrained(tmp_path / "my-bert")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(block, names)
    macs, best, full = names["macs"], names["best"], names["full"]
    assert macs([best.subnet]) <= 0.7 * macs([full.subnet])
    report = names["report"]
    assert f"{report.rows[0].score} {report.rows[0].difference}" in capsys.readouterr().out
    exported = ldsearch.load(tmp_path / "exported/reviews-0.7")
    batch = tokenizer("a fine film", return_tensors="pt")
    torch.testing.assert_close(
        exported(**batch).logits, inference(names["net"], dict(batch), best.subnet), rtol=0, atol=1e-5
    )


def test_the_example_of_a_cost_counts_what_it_says():
    (block,) = [block for block in fenced("python") if "COSTS" in block]
    try:
        exec(block, {})
        supernet, workload = SimpleNamespace(blocks=3), Workload.from_lengths([5, 9], 16)
        (cost,) = added_costs(supernet, workload)
        cut = Subnet(Stack((0, 1, 2), Lengths((8, 4, 2), 16)))
        assert cost([Subnet.full(3), cut]).tolist() == [48.0, 14.0]
    finally:
        COSTS.remove("tokens")


def test_the_wheel_ships_modules_search_spaces_data_and_the_page_template(tmp_path):
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        inside = set(wheel.namelist())
    spaces = {f"ldsearch/search_spaces/{path.name}" for path in (ROOT / "search_spaces").glob("*.yaml")}
    assert len(spaces) >= 5
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ldsearch").rglob("*.py")}
    carried = {f"ldsearch/tasks/docstrings.{end}" for end in ("jsonl.gz", "LICENSES.txt")}
    assert spaces | modules | carried | {"ldsearch/reports/report.html.j2"} <= inside
