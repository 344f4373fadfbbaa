"""What `import hopstate` offers: every name is there, typed, and costs nothing before it is used."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

import hopstate

SOURCE = Path(hopstate.__file__)
MODELS = ("GMN", "NAGphormer", "DyGMamba", "CTDGSSM")


def test_type_checkers_see_the_names_that_are_there():
    seen = {}
    for node in ast.walk(ast.parse(SOURCE.read_text("utf-8"))):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                seen |= {alias.asname: (line.module, alias.name) for alias in line.names}
    assert seen == {name: (module, name) for name, module in hopstate._MODULES.items()}


@pytest.mark.parametrize("name", hopstate.__all__)
def test_every_name_is_there(name):
    assert name in dir(hopstate)
    assert getattr(hopstate, name).__name__ == name


LOOPS = {
    *MODELS, "top", "selective_scan", "Graph", "EventStream", "read_graph", "read_events", "NeighborStore",
    "ClusterSampler", "UniformSampler", "SaintSampler", "LayerSampler", "ShadowSampler", "fit", "evaluate", "predict",
}  # fmt: skip


def test_what_is_asked_for_is_public():
    assert {*LOOPS, "score_stream", "tune"} <= set(hopstate.__all__)
    with pytest.raises(AttributeError, match="no attribute 'NoSuchModel'"):
        _ = hopstate.NoSuchModel


def test_a_loop_with_each_stands_on_a_page_whose_blocks_are_run():
    page = (SOURCE.parents[2] / "docs" / "own-loop.md").read_text("utf-8")
    assert not {name for name in LOOPS if f"hopstate.{name}(" not in page and f"hopstate.{name}." not in page}


def test_a_former_name_is_still_there_with_a_warning():
    with pytest.warns(FutureWarning, match="hopstate.PartSampler is called ClusterSampler now"):
        former = hopstate.PartSampler
    assert former is hopstate.ClusterSampler
    assert "PartSampler" not in hopstate.__all__


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_a_module_with_a_typed_frozen_config(name):
    model = getattr(hopstate, name)
    assert issubclass(model, nn.Module)
    fields = dataclasses.fields(model.Config)
    assert model.Config.__dataclass_params__.frozen
    assert all(field.type for field in fields)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(model.Config(), fields[0].name, 1)


def test_importing_hopstate_imports_no_library():
    heavy = ["torch", "numpy", "scipy", "pandas", "numba", "jsonargparse"]
    command = f"import sys, hopstate; dir(hopstate); sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0


def test_import_loads_next_to_nothing() -> None:
    """Neither typing nor pathlib: `-S` leaves out what an environment's own files load at the start."""
    code = "import sys; sys.path[:0] = [{!r}]; import os, warnings; before = set(sys.modules); import hopstate; "
    code += "sys.exit(str(sorted(set(sys.modules) - before)))"
    root = str(SOURCE.parents[1])
    done = subprocess.run([sys.executable, "-S", "-c", code.format(root)], capture_output=True, text=True, check=False)
    loaded = ast.literal_eval(done.stderr)
    assert {name for name in loaded if not name.startswith(("hopstate", "importlib", "__future__"))} == set()


def test_the_former_name_of_score_stream_says_the_new_one(tmp_path):
    with (
        pytest.warns(FutureWarning, match="called score_stream now"),
        pytest.raises(hopstate.errors.MissingFileError),  # type: ignore[attr-defined]
    ):
        hopstate.stream(tmp_path / "none", "events.csv")
