"""Scores do not depend on the unit of time of a file, and a run keeps its training clock."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hopstate
from hopstate.data.events import EventStream
from hopstate.errors import ConfigError
from hopstate.runs.explain import explain
from hopstate.runs.run import fit, predict, score_stream
from hopstate.testing.conformance import F32, F32_SUM

LOOP = {"loop__epochs": 1, "loop__progress": False, "loop__logger": "none", "loop__device": "cpu"}
LOOP |= {"loop__optim__lr": 1e-2, "evaluation__strategies": ["random"]}
WIDTHS = {"model__channel_dim": 4, "model__time_dim": 6, "model__out_dim": 6}
SMALL: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {
        "model__dim": 6,
        "model__time_dim": 6,
        "model__node_time_deltas": True,
        "model__order": 2,
        "batch_size": 40,
    },
    "dyg-mamba": {**WIDTHS, "history__max_length": 6, "model__block__step_function": "unnormalized", "batch_size": 40},
    "dygformer": {**WIDTHS, "model__max_length": 6, "batch_size": 40},
    "graphmixer": {"model__num_links": 4, "model__dim": 6, "model__time_dim": 6, "model__out_dim": 4, "window": 50.0},
    "recency": {},
    "pair-trees": {"model__num_trees": 20, "model__min_leaf": 5},
}
UNITS = {"s": 1, "ns": 10**9}
QUICK = ("ctdg-ssm",)
each = pytest.mark.parametrize("method", [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in SMALL])


def events(count: int = 160, start: int = 0, *, factor: int = 1, time_unit: str = "s", seed: int = 0) -> EventStream:
    """Return the same events in any unit, seconds since 1970 at the least."""
    rng = np.random.default_rng(seed)
    t = (1_700_000_000 + start + np.sort(rng.integers(0, 700, count))) * factor
    src, dst = rng.integers(0, 12, count), rng.integers(12, 20, count)
    x = np.random.default_rng(9).normal(size=(20, 3)).astype(np.float32)
    return EventStream(src=src, dst=dst, t=t, x=x, num_nodes=20, time_unit=time_unit)


def run_of(method: str, data: EventStream, out: Path, **settings: Any) -> hopstate.Run:
    return fit(method, data, out=out, **{**LOOP, **SMALL[method], **settings})


@each
def test_scores_do_not_depend_on_the_unit_of_the_file(method: str, tmp_path: Path) -> None:
    """Training and scoring in any unit agree; longer time deltas in one unit change scores."""
    fine = events(factor=10**9, time_unit="ns")
    run = run_of(method, events(), tmp_path / "run")
    scores = predict(run.path, data=events())["score"].to_numpy()
    window = {"window": 50.0 * 10**9} if method == "graphmixer" else {}
    twin = run_of(method, fine, tmp_path / "twin", **window)
    np.testing.assert_allclose(predict(twin.path, data=fine)["score"], scores, rtol=F32, atol=F32)
    assert twin.metrics["test"] == pytest.approx(run.metrics["test"], abs=F32_SUM)
    np.testing.assert_allclose(predict(run.path, data=fine, cold_start=True)["score"], scores, rtol=F32, atol=F32)
    slow = predict(run.path, data=events(factor=50), cold_start=True)["score"].to_numpy()
    assert np.abs(slow - scores).max() > 1e-4  # its time deltas are 50 times longer for the clock of the run


def test_the_clock_unit_is_the_training_time_delta(tmp_path: Path) -> None:
    """Numbers without a unit: 60 times longer time deltas and a 60 times larger unit give the same scores."""
    runs = [run_of("pair-trees", events(factor=f, time_unit=""), tmp_path / str(f)) for f in (1, 60)]
    units = [json.loads((run.path / "data.json").read_text())["clock"]["unit"] for run in runs]
    assert units[1] == 60 * units[0] > 0
    assert runs[1].metrics["test"] == pytest.approx(runs[0].metrics["test"], abs=F32_SUM)


def test_streams_and_explanations_keep_the_clock(tmp_path: Path) -> None:
    live = run_of("ctdg-ssm", events(), tmp_path / "live")
    later = events(60, 1000, seed=1)
    first = score_stream(live.path, later.with_(x=None), ignore_state=True)["score"].to_numpy()
    fine = events(60, 1000, seed=1, factor=10**9, time_unit="ns").with_(x=None)
    again = score_stream(live.path, fine, ignore_state=True)["score"].to_numpy()
    np.testing.assert_allclose(again, first, rtol=F32, atol=F32)

    run = run_of("dyg-mamba", events(), tmp_path / "run")
    explanations = [
        explain(run.path, 3, 14, 1_700_000_650 * f, data=events(factor=f, time_unit=u)) for u, f in UNITS.items()
    ]
    assert [a.logit for a in explanations[1:]] == pytest.approx([explanations[0].logit], abs=F32)


def test_an_unknown_unit_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="time_scale"):
        run_of("recency", events(), tmp_path / "run", time_scale="hours")
