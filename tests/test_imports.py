"""Who may know whom: the arrows between the rooms, read from the imports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ldsearch"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Rooms that know neither torch nor transformers, and the only rooms of ours that they know.
RECORDS = {"errors", "subnet", "workload"}
PURE = {
    "errors": set(),
    "subnet": {"errors"},
    "workload": {"errors"},
    "trial": RECORDS | {"pareto"},
    "pareto": set(),
    "intervals": set(),
    "files": {"errors"},
    "records": {"errors"},
    "secrets": set(),
    "staging": {"errors", "files"},
    "interruption": set(),
    "progress": {"interruption", "trial"},
    "goal": RECORDS | {"trial", "costs"},
    "space": RECORDS | {"registry", "files", "records"},
    "costs": RECORDS | {"registry"},
    "search": RECORDS | {"space", "trial", "pareto", "registry"},
    "reports": RECORDS | {"trial", "pareto", "intervals", "files"},
    "storage": RECORDS | {"trial", "files", "records", "intervals", "secrets", "staging"},
    "run_folder": {"errors", "files", "runs", "staging"},
    "runs": RECORDS | {"files", "records", "goal", "intervals", "reports"},
}
# Rooms that run models, and the rooms they must not know.
RIM = {"commands", "cli", "bench", "runs", "run_folder", "target"}
FORBIDDEN = {
    "supernet": RIM | {"training", "tasks", "search", "evaluation", "export", "reports", "latency"},
    "tasks": RIM | {"training", "search", "evaluation", "export", "supernet", "latency"},
    "training": RIM | {"search", "evaluation", "export", "reports", "latency"},
    "evaluation": RIM | {"training", "search", "export", "reports"},
    "export": RIM | {"training", "search", "evaluation", "reports", "tasks"},
    "latency": RIM | {"training", "tasks", "search", "evaluation", "reports", "export"},
    "commands": {"cli"},
}
# Readable in an afternoon: what the core of the library is, model families not counted, and its lines.
CORE = ("subnet", "workload", "errors", "registry", "trial", "goal", "space", "evaluation", "costs.macs")
CORE += ("supernet", "training.trainer", "training.strategies", "search.loop", "search.evolve")
CORE_LINES = 8_750
# Longer than 450 lines, and why.
LONG = {"ldsearch.commands.options": "the table of all options"}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_rooms_know_only_whom_they_may_know():
    wrong = {}
    for path in MODULES:
        own, imported = room(module_name(path)), imports_of(path)
        ours = {room(name) for name in imported if name.startswith("ldsearch.")} - {own, ""}
        if own in PURE:
            heavy = {name.split(".")[0] for name in imported} & {"torch", "transformers", "datasets"}
            wrong[module_name(path)] = heavy | (ours - PURE[own])
        else:
            wrong[module_name(path)] = ours & FORBIDDEN.get(own, set())
    assert {name: rooms for name, rooms in wrong.items() if rooms} == {}


def test_files_hold_one_idea_and_the_core_is_small():
    lines = {module_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name for name, count in lines.items() if count > 450} == set(LONG)
    core = [name for name in lines if name.removeprefix("ldsearch.").startswith(CORE)]
    assert sum(lines[name] for name in core if ".families" not in name) <= CORE_LINES


def test_every_rule_speaks_of_a_room_that_is_there():
    rooms = {room(module_name(path)) for path in MODULES}
    assert {*PURE, *FORBIDDEN, *RIM} <= rooms


def test_help_and_the_bare_package_import_no_torch():
    code = (
        "import sys, ldsearch, ldsearch.cli; "
        "heavy = {'torch', 'transformers', 'pandas', 'optuna', 'pymoo', 'matplotlib', 'datasets'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves():
    import ldsearch

    for name in ldsearch.__all__:
        assert getattr(ldsearch, name) is not None
    with pytest.raises(AttributeError):
        _ = ldsearch.nothing
