"""Writes docs/modules.md: every module of the package with the first line of its docstring."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "modules.md"
# Where a reader looks for what: a file and a name that it defines.
WHERE = {
    "a token is dropped in a forward pass": ("supernet/tokens.py", "drop_tokens"),
    "a token is dropped in an exported graph": ("supernet/graph.py", "GraphBlock"),
    "passes of a search share blocks, and drop tokens between them": ("evaluation/executor.py", "_sibling"),
    "tokens get their scores": ("supernet/saliency.py", "score_weights"),
    "a training step's sub-networks are drawn": ("training/strategies/lengthdrop.py", "Sampled"),
    "a search decides that it has converged, or otherwise ends": ("search/loop.py", "search"),
    "a budget or `--at-least` is read, and chooses": ("trials/budget.py", "Budget"),
    "`compress` chooses": ("compression/search.py", "short_search"),
    "the runtimes are timed with the full model, and one is taken": ("latency/fastest.py", "FullModel"),
    "an export in int8 or bf16 is compared with fp32": ("export/check.py", "_verify_export"),
    "the labels of a csv become ids": ("tasks/labels.py", "class_ids"),
}


def module_map() -> str:
    """The page: a section for each folder, a line for each module."""
    lines = ["# Modules", "", "Written by `python scripts/module_map.py` from the modules' docstrings."]
    package = ROOT / "ldsearch"
    lines += ["", "## Where", ""]
    for what, (path, name) in WHERE.items():
        tree = ast.parse((package / path).read_text(encoding="utf-8"))
        if name not in {getattr(node, "name", "") for node in ast.walk(tree)}:
            raise SystemExit(f"{path} defines no {name}")
        lines.append(f"- {what}: `{path}`, `{name}`")
    for folder in [package, *sorted(path.parent for path in package.rglob("*/__init__.py"))]:
        lines += ["", f"## {folder.relative_to(ROOT)}/", "", _first_line(folder / "__init__.py"), ""]
        modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
        lines += [f"- `{path.name}`: {_first_line(path)}" for path in modules]
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not docstring:
        raise SystemExit(f"{path} has no docstring")
    return docstring.splitlines()[0]


if __name__ == "__main__":
    PAGE.write_text(module_map(), encoding="utf-8")
