"""The examples in docstrings give their documented output."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

import hopstate

SOURCE = Path(__file__).parents[2] / "src"
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def test_examples_give_their_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Examples can use `hopstate`, a table `events` and a trained `run`."""
    monkeypatch.chdir(tmp_path)
    events = pd.DataFrame({"source": [1, 2, 3] * 40, "target": [4, 5, 6, 5, 4, 6] * 20, "time": range(120)})
    names = {"hopstate": hopstate, "events": events}
    names["run"] = hopstate.fit("recency", events, loop__progress=False)
    attempted, failed = 0, []
    for path in sorted(SOURCE.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            module = import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"))
            found = doctest.testmod(module, extraglobs=names, optionflags=OPTIONS)
            attempted += found.attempted
            failed += [module.__name__] * bool(found.failed)
    assert attempted > 20
    assert not failed, capsys.readouterr().out
