"""Who may know whom: the arrows between the rooms, read from the imports."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ldsearch"
MODULES = sorted(PACKAGE.rglob("*.py"))

# The rooms from the ground up: each knows only those before it.
ORDER = ["errors", "registry", "subnet", "disk", "costs", "trials", "work", "space", "options", "storage"]
ORDER += ["reports", "tasks", "supernet", "latency", "evaluation", "runs", "bench", "training", "export"]
ORDER += ["search", "compression", "commands", "cli", "__main__", "testing"]
# Rooms, and modules of others, that know neither torch nor transformers.
PURE = {"errors", "registry", "subnet", "costs", "trials", "work", "options", "space", "storage", "reports"}
PURE |= {"cli", "runs.run", "runs.folder"}
PURE |= {f"search.{name}" for name in ("climbing", "controls", "evolve", "halving", "importance", "loop")}
PURE |= {"search.reference", "search.rules", "search.strategies"}
HEAVY = {"torch", "transformers", "datasets"}
# Readable in an afternoon: what the core of the library is, model families not counted, and its lines.
CORE = ("subnet", "errors", "registry", "trials.trial", "trials.goal", "space", "evaluation", "costs.macs")
CORE += ("costs.workload", "supernet", "training.trainer", "training.strategies", "search.loop")
CORE += ("search.evolve",)
CORE_LINES = 9_650


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in NAMES else node.module for name in names}
    return found


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path) for path in MODULES}


def test_rooms_know_only_those_below_them():
    wrong = {}
    for path in MODULES:
        own, name = room(module_name(path)), module_name(path)
        ours = {room(other) for other in imports_of(path) if other.startswith("ldsearch.")} - {own, ""}
        wrong[name] = {other for other in ours if own and ORDER.index(other) > ORDER.index(own)}
    assert {name: rooms for name, rooms in wrong.items() if rooms} == {}


def test_what_is_pure_knows_no_torch():
    wrong = {}
    for path in MODULES:
        name = module_name(path).removeprefix("ldsearch.")
        if {name, name.partition(".")[0]} & PURE:
            wrong[name] = {other.partition(".")[0] for other in imports_of(path)} & HEAVY
    assert {name: heavy for name, heavy in wrong.items() if heavy} == {}


def test_no_module_imports_itself_through_others():
    graph = {module_name(path): imports_of(path) & NAMES - {module_name(path)} for path in MODULES}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_files_hold_one_idea_and_the_core_is_small():
    lines = {module_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name for name, count in lines.items() if count > 450} == set()
    core = [name for name in lines if name.removeprefix("ldsearch.").startswith(CORE)]
    counted = [name for name in core if ".families" not in name and not name.endswith(".decoding")]
    assert sum(lines[name] for name in counted) <= CORE_LINES


def test_every_rule_speaks_of_a_room_that_is_there():
    names = {module_name(path).removeprefix("ldsearch.") for path in MODULES}
    rooms = {room(module_name(path)) for path in MODULES} - {""}
    assert rooms == {*ORDER}
    assert names | rooms >= PURE


def test_every_public_name_resolves():
    import ldsearch

    for name in ldsearch.__all__:
        assert getattr(ldsearch, name) is not None
    with pytest.raises(AttributeError):
        _ = ldsearch.nothing
