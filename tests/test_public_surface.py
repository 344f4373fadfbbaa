"""The public names of `import hopstate`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hopstate


def test_every_public_name_imports() -> None:
    assert {"fit", "evaluate", "export", "inspect", "report", "errors", "GMN", "top"} <= set(hopstate.__all__)
    for name in hopstate.__all__:
        assert name in dir(hopstate)
        assert getattr(hopstate, name) is not None


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchModel"):
        _ = hopstate.NoSuchModel


def test_importing_hopstate_loads_no_other_library() -> None:
    """With -S, because site files of an environment load modules at the start."""
    root = str(Path(hopstate.__file__).parents[1])
    code = f"""
import sys; sys.path[:0] = [{root!r}]
import os, warnings
before = set(sys.modules)
import hopstate; dir(hopstate)
print(*(set(sys.modules) - before))"""
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "hopstate" in loaded
    assert loaded <= {"hopstate", "importlib", "__future__"}
