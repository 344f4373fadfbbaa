"""No module imports itself by way of others: not within functions either, nor for types."""

import ast
from collections.abc import Iterator
from pathlib import Path

import hopstate

ROOT = Path(hopstate.__file__).parents[1]
PATHS = {path.relative_to(ROOT).with_suffix(""): path for path in (ROOT / "hopstate").rglob("*.py")}
MODULES = {".".join(name.parts).removesuffix(".__init__"): path for name, path in PATHS.items()}


def imported(text: str) -> Iterator[str]:
    """Yield the modules of the library that a module's text imports anywhere."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def circle(edges: dict[str, set[str]]) -> list[str]:
    """Return the modules that lie on circles or between them: those that no removal of leaves and roots reaches."""
    left = {name: set(targets) for name, targets in edges.items()}
    while True:
        asked = set().union(*left.values()) if left else set()
        loose = {name for name, targets in left.items() if not targets & left.keys() or name not in asked}
        if not loose:
            return sorted(left)
        left = {name: targets - loose for name, targets in left.items() if name not in loose}


def test_there_is_no_import_circle():
    edges = {name: set(imported(path.read_text(encoding="utf-8"))) - {name} for name, path in MODULES.items()}
    assert circle({name: targets & MODULES.keys() for name, targets in edges.items()}) == []


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == ["b", "c"]
