"""Declared, imported and explained: a dependency is all three or none."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def distribution(requirement: str) -> str:
    """The normalised name in a requirement or of an imported package."""
    return re.split(r"[\[<>=!~; ]", requirement)[0].lower().replace("_", "-")


DEFAULT = {distribution(r) for r in PROJECT["dependencies"]}
# An extra may name another one of ours.
EXTRAS = {distribution(r) for extra, rs in PROJECT["optional-dependencies"].items() if extra != "dev" for r in rs}
EXTRAS -= {"cabochon"}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and distribution(node.value) in EXTRAS:
            yield node.value  # a package imported by its name


def third_party() -> dict[str, list[str]]:
    """Distribution -> the source files that import it."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for module in imports(ast.parse(path.read_text())):
            top = module.split(".")[0]
            if top != "cabochon" and top not in sys.stdlib_module_names:
                found.setdefault(distribution(top), []).append(str(path.relative_to(ROOT)))
    return found


def test_every_import_is_declared() -> None:
    undeclared = {name: files for name, files in third_party().items() if name not in DEFAULT | EXTRAS}
    assert undeclared == {}


@pytest.mark.parametrize("name", sorted(DEFAULT | EXTRAS))
def test_every_declared_dependency_is_imported(name: str) -> None:
    assert name in third_party()


def test_every_declared_dependency_is_explained() -> None:
    explained = (ROOT / "docs" / "dependencies.md").read_text()
    names = DEFAULT | EXTRAS | {distribution(r) for r in PROJECT["optional-dependencies"]["dev"]} - {"cabochon"}
    assert {name for name in names if not re.search(rf"\b{re.escape(name)}\b", explained)} == set()
