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
    "files": set(),
    "interruption": set(),
    "space": RECORDS | {"registry"},
    "costs": RECORDS | {"registry"},
    "search": RECORDS | {"space", "trial", "pareto", "registry"},
    "reports": RECORDS | {"trial", "pareto", "intervals", "files"},
    "storage": RECORDS | {"trial", "files", "intervals"},
    "selector": RECORDS | {"trial", "costs"},
    "runs": {"errors", "files"},
}
# Rooms that run models, and the rooms they must not know.
FORBIDDEN = {
    "supernet": {
        "training",
        "tasks",
        "search",
        "evaluation",
        "export",
        "reports",
        "workflows",
        "commands",
        "cli",
    },
    "tasks": {"training", "search", "evaluation", "export", "workflows", "commands", "cli", "supernet"},
    "training": {"search", "evaluation", "export", "reports", "workflows", "commands", "cli"},
    "evaluation": {"training", "search", "export", "reports", "workflows", "commands", "cli"},
    "export": {"training", "search", "evaluation", "reports", "workflows", "commands", "cli", "tasks"},
    "latency": {"training", "tasks", "search", "evaluation", "reports", "workflows", "commands", "cli"},
    "workflows": {"cli"},
    "commands": {"cli"},
}


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


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_rooms_know_only_whom_they_may_know(path):
    own = room(module_name(path))
    imported = imports_of(path)
    ours = {room(name) for name in imported if name.startswith("ldsearch.")} - {own, ""}
    if own in PURE:
        assert not {name.split(".")[0] for name in imported} & {"torch", "transformers", "datasets"}
        assert ours <= PURE[own]
    assert not ours & FORBIDDEN.get(own, set())


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_file_is_longer_than_450_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 450


def test_every_rule_speaks_of_a_room_that_is_there():
    rooms = {room(module_name(path)) for path in MODULES}
    assert {*PURE, *FORBIDDEN} <= rooms


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
