"""Online metrics of a live run equal a loop over its events, and computing them has no side effects."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from crashes import digest

from made_events import small_run

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

from hopstate.methods.heuristics.method import NEVER
from hopstate.runs.queries import calibration_of, score_session
from hopstate.runs.run import Run
from hopstate.serving import quality as module
from hopstate.serving.live import LiveRun
from hopstate.serving.quality import NUM_NEGATIVES, Quality
from hopstate.streaming.slices import run_to_completion
from hopstate.testing.conformance import F32, F64_LAST


def table(first: int, many: int, *, seed: int = 11) -> pd.DataFrame:
    """Of repeat pairs."""
    rng = np.random.default_rng([seed, first])
    src = rng.integers(0, 10, many)
    dst = np.where(rng.random(many) < 0.7, src % 8, rng.integers(0, 8, many))
    return pd.DataFrame(
        {"src": [f"u{i}" for i in src], "dst": [f"v{i}" for i in dst], "t": first + np.arange(many) * 2 // 3}
    )


def later(many: int, first: int = 200, *, seed: int = 11) -> list[dict[str, Any]]:
    return table(first, many, seed=seed).to_dict("records")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    home = tmp_path_factory.mktemp("runs")
    return {name: small_run(name, home, table(0, 160)) for name in ("recency", "ctdg-ssm", "pair-trees")}


def fed(live: LiveRun, quality: Quality, events: list[dict[str, Any]], each: int = 3) -> None:
    for i in range(0, len(events), each):
        before = live.past
        live.take(events[i : i + each])
        quality.update(before)


@pytest.mark.slow
def test_recency_evaluates_like_recency_without_side_effects(runs: dict[str, Run], tmp_path: Path) -> None:
    events = later(90)
    with LiveRun(runs["recency"].path, folder=tmp_path / "one") as live:
        quality = Quality(live, share=1, clock=count().__next__, window=50)
        quality._next = -np.inf
        fed(live, quality, events)
        assert quality.num_evaluated > 40
        assert len(quality._window) <= 50
        for row in quality.compute_metrics().values():
            for name in ("average_precision", "mrr"):
                assert row[name] == pytest.approx(row[f"recency_{name}"], abs=F64_LAST)
                assert 0.5 < row[name] <= 1
        assert not quality.alarms
        seen = digest(live.past)
    with LiveRun(runs["recency"].path, folder=tmp_path / "two") as live:
        for i in range(0, 90, 3):
            live.take(events[i : i + 3])
        assert digest(live.past) == seen


@pytest.mark.parametrize("method", ["ctdg-ssm", pytest.param("pair-trees", marks=pytest.mark.slow)])
def test_scores_equal_those_of_a_query_before_the_commit(method: str, runs: dict[str, Run], tmp_path: Path) -> None:
    """For the events themselves, including unseen nodes, and for each negative."""
    run, events = runs[method], [*later(9), {"src": "new", "dst": "v1", "t": 300}]
    with LiveRun(run.path, folder=tmp_path) as live:
        live.take(events[:6])
        before, session = live.past, live.session()
        live.take(events[6:])
        quality = Quality(live)
        run_to_completion(quality._evaluate(before))
        found = np.stack(quality._window)
        assert found.shape == (4, 2, 1 + 2 * NUM_NEGATIVES)
        pairs, times = [(e["src"], e["dst"]) for e in events[6:9]], [e["t"] for e in events[6:9]]
        table, curve = score_session(session, pairs, times), calibration_of(session)
        assert table["score"].tolist() == pytest.approx(found[:3, 0, 0].tolist(), rel=F32)
        assert table["probability"].tolist() == pytest.approx(curve(found[:3, 0, 0]).tolist(), rel=F32)
        assert (found[:, 1, 1:] > NEVER).any()
        new = live.past.events(len(before)).take(np.arange(4))
        others = quality._partners(before, new, np.random.default_rng(0))
        assert (others[3] == -1).all()  # it has no partners
        for row, dst in zip(others[:3], new.dst, strict=False):
            assert dst not in row
        drawn = quality._random(before, new, np.random.default_rng(0))
        assert set(np.unique(drawn)) <= {-1, *before.events().dst.tolist()}


@pytest.mark.slow
def test_a_model_below_recency_raises_an_alarm(
    runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model below recency over a full window raises one alarm."""
    with LiveRun(runs["ctdg-ssm"].path, folder=tmp_path) as live:
        quality = Quality(live, share=1, clock=count().__next__, window=40)
        counted, rng = quality._count, np.random.default_rng(0)

        def worse(found: np.ndarray) -> None:
            found[0] += rng.normal(size=found[0].shape) - found[0]  # missing files stay missing
            found[1, 1:] += -1.0 - found[1, 1:]
            found[1, 0] = 1.0
            counted(found)

        monkeypatch.setattr(quality, "_count", worse)
        fed(live, quality, later(150))
        assert [alarm.text.split(" targets")[0] for alarm in quality.alarms] == [
            "below recency among random",
            "below recency among historical",
        ]


@pytest.mark.slow
def test_online_evaluation_uses_only_its_share_of_time(
    runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    with LiveRun(runs["recency"].path, folder=tmp_path) as live:
        quality = Quality(live, share=0.25, clock=lambda: now)
        evaluate, times = quality._evaluate, []

        def slow(before: Any) -> Iterator[None]:
            nonlocal now
            times.append(now)
            now += 1.0
            yield from evaluate(before)

        monkeypatch.setattr(quality, "_evaluate", slow)
        for event in later(30):
            before = live.past
            live.take([event])
            quality.update(before)
            now += 0.5
        assert np.diff(times).min() >= 4
    assert module.WINDOW >= 100


def test_a_slow_model_is_evaluated_in_slices(runs: dict[str, Run], tmp_path: Path) -> None:
    """Commits and queries continue between slices; the metrics are the same."""
    with LiveRun(runs["ctdg-ssm"].path, folder=tmp_path) as live:
        live.take(later(9)[:6])
        before = live.past
        live.take(later(9)[6:])
        whole, cut = Quality(live, share=1), Quality(live, share=1)
        whole._pace.size, cut._pace.size = 1_000, 4
        cut._pace.took = lambda rows, seconds: None  # type: ignore[method-assign]
        slices = [len(list(quality.update_sliced(before))) for quality in (whole, cut)]
        assert slices[1] > 2 * slices[0] == 6
        assert np.allclose(whole._window, cut._window, rtol=F32, atol=0, equal_nan=True)
