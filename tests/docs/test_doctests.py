"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PATHS = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_examples_give_what_they_say(path: Path) -> None:
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    found = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert found.attempted
    assert not found.failed


def test_there_are_examples() -> None:
    assert len(PATHS) >= 8
