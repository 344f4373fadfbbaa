"""Every method gives the stored losses, metrics and scores, resumes bit-identically, and can be moved.

The values in `values/` were recorded by `make golden`. An intended change records them again, and its commit
says which and why.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import cases
import commands
import pytest

import hopstate

FIRST = {method: next(iter(cases.KINDS[kind].sets)) for method, (kind, _) in cases.METHODS.items()}
ALL = [(method, name) for method, (kind, _) in cases.METHODS.items() for name in cases.KINDS[kind].sets]
RESUMED = ("gcn", "gmn-graphs", "dyg-mamba", "ctdg-ssm", "pair-trees", "ctdg-ssm-sequences")  # one of each kind of task


def slow_unless(quick: bool, *values: str) -> Any:
    """Return values of a parametrized test, for the full suite only unless `quick`."""
    return pytest.param(*values, id="-".join(values), marks=() if quick else pytest.mark.slow)


TOLERANCE = {"64": 1e-6, "32": 1e-4}
# A bias before a normalization, or of links under a softmax, has only rounding errors as gradient. Adam scales them to
# full steps. Rounding differs between processors, so in float32 only the first losses of training are compared.
NORMALIZED = ("gmn", "gmn-graphs", "gin-graphs")
FREE_BIAS_TOLERANCE = 1e-3
TREES = ("pair-trees", "event-trees")


def stored(name: str) -> dict[str, Any]:
    """Return golden values from their file."""
    return json.loads((cases.HERE / "values" / f"{name}.json").read_text())


def check_numbers(found: list[float], expected: list[float], tolerance: float) -> None:
    """Compare losses or scores, relative to the largest."""
    scale = max(map(abs, expected), default=1.0)
    assert found == pytest.approx(expected, rel=tolerance, abs=tolerance * scale, nan_ok=True)


def check(found: dict[str, Any], expected: dict[str, Any], precision: str) -> None:
    """Compare losses, metrics and scores."""
    tolerance = TOLERANCE[precision]
    for part in ("losses", "scores"):
        check_numbers(found[part], expected[part], tolerance)
    assert found["metrics"] == pytest.approx(expected["metrics"], rel=tolerance, abs=tolerance, nan_ok=True)


@pytest.mark.parametrize(
    ("method", "name"),
    [slow_unless(name == FIRST[method] or method in cases.REPRESENTATIVES, method, name) for method, name in ALL],
)
def test_training_and_answers_are_the_stored_ones(method: str, name: str, tmp_path: Path) -> None:
    if method in TREES:
        pytest.importorskip("sklearn", minversion="1.9", reason="older versions of scikit-learn grow other trees")
    check(cases.fit(method, name, tmp_path / "run", "64").values(), stored(method)[name]["64"], "64")


@pytest.mark.slow
@pytest.mark.parametrize(("method", "name"), ALL)
def test_single_precision_gives_the_stored_values(method: str, name: str, tmp_path: Path) -> None:
    found, expected = cases.fit(method, name, tmp_path / "run", "32").values(), stored(method)[name]["32"]
    if method in NORMALIZED or name.endswith("-links"):
        check_numbers(found["losses"], expected["losses"], FREE_BIAS_TOLERANCE)
    else:
        check(found, expected, "32")


@pytest.mark.parametrize("method", [slow_unless(method in RESUMED, method) for method in FIRST])
def test_an_interrupted_run_resumes_to_the_same_bits_and_answers_elsewhere(method: str, tmp_path: Path) -> None:
    name, settings = FIRST[method], cases.METHODS[method][1]
    whole, last = cases.fit(method, name, tmp_path / "whole", "32"), tmp_path / "whole"
    if "loop.epochs" in settings:
        steps, last = cases.stop_and_resume(method, name, tmp_path / "cut", "32"), tmp_path / "cut"
        assert steps == whole.losses
        assert hopstate.load(last).metrics == whole.run.metrics
        assert cases.scores(hopstate.load(last), method, name) == whole.scores
    shutil.move(last, tmp_path / "moved")
    assert cases.scores(hopstate.load(tmp_path / "moved"), method, name) == whole.scores


@pytest.mark.parametrize(
    ("methods", "replays"),
    [
        pytest.param(("recency", "dyg-mamba"), ("recency",), id="two methods"),
        pytest.param(commands.METHODS, commands.METHODS, id="all", marks=pytest.mark.slow),
    ],
)
def test_commands_and_readers_give_the_stored_outputs(
    methods: tuple[str, ...], replays: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("uvicorn", reason="needs a service: pip install 'hopstate[serve]'")
    expected, found = stored("commands"), commands.outputs(tmp_path, methods, replays)
    left = {f"{command} {method}" for command in ("score", "rank", "stream") for method in commands.METHODS}
    left -= {name for name in left if name.split(" ")[1] in methods}
    left |= {f"replay {method}" for method in commands.METHODS if method not in replays}
    assert found.keys() == expected.keys() - left
    for name, output in found.items():
        commands.check(output, expected[name], name)
