"""Writes docs/modules.md: every module of the package with the first line of its docstring."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "modules.md"


def module_map() -> str:
    """The page: a section for each folder, a line for each module."""
    lines = ["# Modules", "", "Written by `python scripts/module_map.py` from the modules' docstrings."]
    package = ROOT / "ldsearch"
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
