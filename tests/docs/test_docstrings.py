"""Everything public says what it does, and what the API pages list says what it takes.

The second rule holds for the modules on the API pages, whose functions a user calls. An argument counts as described
where the docstring names it, or a word of it ("num_nodes": nodes; "val_ratio": ratio), or where it is one of the names
that mean the same everywhere and are explained once, on the API's first page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
MODULES = sorted(path for path in SOURCE.rglob("*.py"))
API = ROOT / "docs" / "api"


def listed() -> list[Path]:
    """Return the modules of the API pages."""
    names = [name for page in API.glob("*.md") for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M)]
    paths = [SOURCE / Path(*name.split(".")) for name in names]
    return [p.with_suffix(".py") if p.with_suffix(".py").is_file() else p / "__init__.py" for p in paths]


def standing_names() -> set[str]:
    """Return the argument names that the API's first page explains."""
    text = (API / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \|", text, re.M)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Yield the public classes and functions of a module and the public methods of its classes."""
    for node in body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
            continue
        marks = {getattr(mark, "id", getattr(mark, "attr", "")) for mark in node.decorator_list}
        if marks & {"overload", "setter"}:
            continue
        yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from public(node.body, f"{prefix}{node.name}.")


def undocumented(text: str) -> list[str]:
    tree = ast.parse(text)
    missing = [] if ast.get_docstring(tree) else ["the module"]
    return missing + [name for name, node in public(tree.body) if not ast.get_docstring(node)]


def undescribed(text: str, standing: set[str]) -> list[str]:
    """Return "function: argument" for what a function of several arguments leaves unsaid."""
    found = []
    for name, node in public(ast.parse(text).body):
        if not isinstance(node, ast.FunctionDef) or name.endswith("_naive"):  # takes what its fast twin takes
            continue
        arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        arguments = [a for a in arguments if a not in ("self", "cls") and not a.startswith("_")]
        said = {word.lower() for word in re.findall(r"[A-Za-z]\w*", ast.get_docstring(node) or "")}
        said |= {word.rstrip("s") for word in said}
        for argument in arguments if len(arguments) > 1 else []:
            words = {argument.lower(), *argument.lower().split("_")}
            if argument not in standing and not said & (words | {word.rstrip("s") for word in words}):
                found.append(f"{name}: {argument}")
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_everything_public_says_what_it_does(path: Path) -> None:
    assert not undocumented(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", listed(), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_what_the_api_pages_list_says_what_it_takes(path: Path) -> None:
    assert not undescribed(path.read_text(encoding="utf-8"), standing_names())


def test_the_standing_names_are_used() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in listed())
    assert all(re.search(rf"\b{name}: ", code) for name in standing_names())


def test_what_is_left_out_is_found() -> None:
    text = '"""M."""\ndef f(a, num_b):\n    """Return the b."""\nclass C:\n    """C."""\n    def g(self): ...\n'
    assert undocumented(text) == ["C.g"]
    assert undescribed(text, set()) == ["f: a"]
    assert undescribed(text, {"a"}) == []
