"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def test_examples_give_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    attempted, failed = 0, []
    for path in sorted(SOURCE.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            module = import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"))
            found = doctest.testmod(module, optionflags=OPTIONS)
            attempted += found.attempted
            failed += [module.__name__] * bool(found.failed)
    assert attempted > 20
    assert not failed, capsys.readouterr().out
