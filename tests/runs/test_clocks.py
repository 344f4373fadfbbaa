"""One answer whatever unit a file counts in, and one clock from training to everything that follows it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hopstate
from hopstate.data.events import EventStream
from hopstate.errors import ConfigError
from hopstate.runs.analysis.questions import explain, robustness
from hopstate.runs.api import evaluate, fit, predict, score_stream
from hopstate.testing.asserts import F32_TIGHT, F64_SOLVED

LOOP = {"loop__epochs": 1, "loop__progress": False, "loop__tensorboard": "no", "loop__device": "cpu"}
LOOP |= {"loop__optim__lr": 1e-2, "evaluation__strategies": ["random"]}
WIDTHS = {"model__channel_dim": 4, "model__time_dim": 6, "model__out_dim": 6}
SMALL: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {"model__dim": 6, "model__time_dim": 6, "model__node_gaps": True, "model__order": 2, "batch_size": 40},
    "dyg-mamba": {**WIDTHS, "history__max_length": 6, "model__block__step_function": "unnormalized", "batch_size": 40},
    "dygformer": {**WIDTHS, "model__max_length": 6, "batch_size": 40},
    "graphmixer": {"model__num_links": 4, "model__dim": 6, "model__time_dim": 6, "model__out_dim": 4, "window": 50.0},
    "recency": {},
    "pair-trees": {"model__max_trees": 20, "model__min_leaf": 5},
}
UNITS = {"s": 1, "ms": 10**3, "ns": 10**9}
OLD = {"ctdg-ssm": "raw", "recency": "raw", "dyg-mamba": "seconds", "dygformer": "seconds", "graphmixer": "seconds"}


def events(count: int = 240, start: int = 0, *, factor: int = 1, time_unit: str = "s", seed: int = 0) -> EventStream:
    """Return the same events in any unit, seconds since 1970 at the least."""
    rng = np.random.default_rng(seed)
    t = (1_700_000_000 + start + np.sort(rng.integers(0, 700, count))) * factor
    src, dst = rng.integers(0, 12, count), rng.integers(12, 20, count)
    x = np.random.default_rng(9).normal(size=(20, 3)).astype(np.float32)
    return EventStream(src=src, dst=dst, t=t, x=x, num_nodes=20, time_unit=time_unit)


def run_of(method: str, data: EventStream, out: Path, **settings: Any) -> hopstate.Run:
    return fit(method, data, out=out, **{**LOOP, **SMALL[method], **settings})


@pytest.mark.parametrize("method", SMALL)
def test_scores_do_not_depend_on_the_unit_of_the_file(method: str, tmp_path: Path) -> None:
    """Trained and asked in s, in ms, in ns, and where nobody said in what: one table of scores."""
    found, metrics = [], []
    for unit, factor in (*UNITS.items(), ("", 60)):
        data = events(factor=factor, time_unit=unit)
        window = {"window": 50.0 * factor} if method == "graphmixer" else {}
        run = run_of(method, data, tmp_path / f"{unit}{factor}", **window)
        found.append(predict(run.path, data=data)["score"].to_numpy())
        metrics.append(run.metrics)
    for scores, reached in zip(found[1:], metrics[1:]):
        np.testing.assert_array_equal(scores, found[0])
        assert reached == metrics[0]
    assert len(np.unique(found[0])) > 10


@pytest.mark.parametrize("method", SMALL)
def test_a_run_scores_other_files_by_the_clock_that_it_was_trained_with(method: str, tmp_path: Path) -> None:
    """Also where they are much slower, and where they count in another unit that is known."""
    run = run_of(method, events(), tmp_path / "run")
    kept = json.loads((run.path / "data.json").read_text())["clock"]
    assert kept["unit"] > 0
    again = predict(run.path, data=events(factor=10**9, time_unit="ns"), fresh=True)["score"].to_numpy()
    np.testing.assert_allclose(again, predict(run.path, data=events())["score"].to_numpy(), rtol=0, atol=F32_TIGHT)
    slow = predict(run.path, data=events(factor=50), fresh=True)["score"].to_numpy()
    own = run_of(method, events(factor=50), tmp_path / "slow", loop__seed=0)
    assert np.abs(slow - again).max() > 1e-4  # its gaps are 50 times longer by the run's clock
    assert json.loads((own.path / "data.json").read_text())["clock"]["unit"] == 50 * kept["unit"]
    if method != "recency":
        assert evaluate(run.path, data=events()) == run.metrics["test"]


def test_streams_explanations_and_noise_keep_the_clock(tmp_path: Path) -> None:
    live = run_of("ctdg-ssm", events(), tmp_path / "live")
    later = events(60, 1000, seed=1)
    first = score_stream(live.path, later.with_(x=None), own=events(), fresh=True)["score"].to_numpy()
    fine = events(60, 1000, seed=1, factor=10**9, time_unit="ns").with_(x=None)
    again = score_stream(live.path, fine, own=events(), fresh=True)["score"].to_numpy()
    np.testing.assert_array_equal(again, first)

    run = run_of("dyg-mamba", events(), tmp_path / "run")
    asked = [explain(run.path, 3, 14, 1_700_000_650 * f, data=events(factor=f, time_unit=u)) for u, f in UNITS.items()]
    assert [a.logit for a in asked[1:]] == pytest.approx([asked[0].logit] * 2, abs=F32_TIGHT)
    options: dict[str, Any] = {"noise": ["sequences"], "levels": [0.0]}
    tables = [
        robustness(run.path, data=events(factor=f, time_unit=u), **options).average_precision[0]
        for u, f in UNITS.items()
    ]
    assert tables[1:] == pytest.approx([tables[0]] * 2, abs=F64_SOLVED)


@pytest.mark.parametrize("method", OLD)
def test_a_run_folder_from_before_the_setting_gives_what_it_gave(method: str, tmp_path: Path) -> None:
    run = run_of(method, events(), tmp_path / "run", gap_unit=OLD[method])
    before = predict(run.path, data=events())
    config = json.loads((run.path / "config.json").read_text())
    del config["gap_unit"]
    config.get("model", {}).pop("never", None)
    facts = json.loads((run.path / "data.json").read_text())
    del facts["clock"]
    (run.path / "config.json").write_text(json.dumps(config))
    (run.path / "data.json").write_text(json.dumps(facts))
    assert predict(run.path, data=events()).equals(before)
    resumed = fit(method, events(), out=run.path, resume=True, **{**LOOP, **SMALL[method]})
    assert resumed.metrics == run.metrics
    assert json.loads((run.path / "config.json").read_text())["gap_unit"] == OLD[method]
    assert predict(run.path, data=events()).equals(before)


def test_an_unknown_unit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gap_unit"):
        run_of("recency", events(), tmp_path / "run", gap_unit="hours")
