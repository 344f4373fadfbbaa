"""`explain`: what a score loses without an event, for every kind of model."""

import dataclasses
import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import hopstate
from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.stream_state import Event, StreamState
from hopstate.errors import DataError, HopstateWarning
from hopstate.runs.explain import _replay, leave_one_out
from hopstate.runs.queries import open_session
from hopstate.runs.run import Run
from hopstate.streaming.live import PairQueries
from hopstate.streaming.slices import run_to_completion
from hopstate.testing.conformance import F32, F32_TIGHT, F64
from hopstate.tokens.pair_features import PairFeatures
from made_events import named, repeating, small_run, table

EVENTS = named(repeating(200))
METHODS = ["recency", "pair-trees", "graphmixer", "dygformer", "ctdg-ssm", "dyg-mamba"]
QUICK = ["recency", "graphmixer"]  # a method of each kind of attribution; memories: see below
each = pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in METHODS])
MORE = {
    "dygformer": {"model.channel_dim": 4, "model.time_dim": 8, "model.num_layers": 1, "model.max_length": 20},
    "ctdg-ssm": {"model.node_time_deltas": True, "evaluation.batch_size": 16},
}
PAIRS = [("u1", "v12"), ("u3", "v13"), ("u1", "v17"), ("u9", "v15")]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Return a run of a method in its own folder, trained on first use."""
    home = tmp_path_factory.mktemp("influences")

    @cache
    def found(name: str) -> Run:
        (home / f"{name}-data").mkdir()
        return small_run(name, home / f"{name}-data", EVENTS, **MORE.get(name, {}), **{"loop.epochs": 2})

    return found


def _logit(p: float) -> float:
    return float(np.log(p / (1 - p)))


def _without(run: Run, events: pd.DataFrame, number: int, pair: tuple[str, str], when: int) -> float:
    """Return a run's score of a pair if one event is missing in its file."""
    file = run.path.parent / "own.csv"
    whole = file.read_text()
    events.drop(index=number).to_csv(file, index=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HopstateWarning)  # the file has changed since
            return float(run.score([pair], when)["score"][0])
    finally:
        file.write_text(whole)


def _weights(run: Run, pair: tuple[str, str], when: int) -> list[tuple[Event, float]]:
    """Return the contributions of events to a pair's log-odds."""
    with open_session(run.path) as session:
        assert session.past.node_ids is not None
        u, v = session.past.node_ids.rows(np.array([pair])).T
        return run_to_completion(leave_one_out(session.queries, u, v, np.array([when])))[0]


def _now(run: Run) -> int:
    with open_session(run.path) as session:
        return int(session.now())


@each
def test_the_event_with_the_largest_contribution_changes_the_score_most(
    name: str, run_of: Callable[[str], Run]
) -> None:
    """By exactly its contribution if histories are read; those of a memory come from its latest updates."""
    run, plainly = run_of(name), (lambda p: p) if name == "recency" else _logit
    when = _now(run)
    for pair in PAIRS[:1]:
        weights = _weights(run, pair, when)
        assert len(weights) > 8
        ordered = sorted(weights, key=lambda one: abs(one[1]))
        whole = plainly(run.score([pair], when)["score"][0])
        moved = [whole - plainly(_without(run, EVENTS, event.id, pair, when)) for event, _ in (ordered[0], ordered[-1])]
        least, most = ordered[0][1], ordered[-1][1]
        assert abs(moved[1]) > abs(moved[0]) or most == 0
        if name == "ctdg-ssm":  # of nodes with longer histories than are replayed, and with neighbors
            assert abs(most - moved[1]) < max(0.2 * abs(moved[1]), 0.01)
        else:
            np.testing.assert_allclose([least, most], moved, atol=2 * F32_TIGHT)


def test_contributions_of_a_memory_equal_the_loss_of_score(tmp_path: Path) -> None:
    """Without a graph, with one event per batch and at most eight events per node, all events are replayed."""
    rng = np.random.default_rng(3)
    src, dst = (np.repeat(np.arange(6), 8) for _ in range(2))  # eight events of each
    made = pd.DataFrame(
        {"src": [f"u{i}" for i in rng.permutation(src)], "dst": [f"v{i}" for i in rng.permutation(dst)]}
    )
    made["t"] = 10 * np.arange(len(made)) + rng.integers(0, 9, len(made))
    settings = {
        "model.order": 0,
        "model.num_layers": 2,
        "batch_size": 1,
        "evaluation.batch_size": 1,
        "model.node_time_deltas": True,
    }
    run = small_run("ctdg-ssm", tmp_path, made, **settings)
    pair = (made.src.iloc[-3], made.dst.iloc[-3])
    when = _now(run) + 5
    some, whole = _weights(run, pair, when)[1::6], run.score([pair], when)["score"][0]
    moved = [_logit(whole) - _logit(_without(run, made, event.id, pair, when)) for event, _ in some]
    assert len(some) >= 2
    assert np.ptp(moved) > 100 * F32_TIGHT
    np.testing.assert_allclose([weight for _, weight in some], moved, atol=2 * F32_TIGHT)


def _one_by_one(queries: PairQueries, u: int, v: int, when: int) -> list[float]:
    """Return the contributions of a memory's events by single replays, each from the memory of the state."""
    replay, task = _replay(queries, u, v, when, None), queries.task

    def log_odds(state: StreamState, number: int) -> float:
        follower = task.follow(state)
        follower.fetch(np.arange(state.num_nodes))
        memory = follower.memory
        emptied = torch.from_numpy(replay.emptied)
        memory.memory[:, emptied] = memory.output[emptied] = 0
        memory.last_time[:] = -np.inf
        follower.memory = dataclasses.replace(memory, clock=-np.inf)
        for batch in replay.batches:
            left = batch.take(batch.event_ids != number)
            if len(left):
                follower.observe(left)
        return _logit(float(follower.score(*replay.query())[0]))

    whole = log_odds(queries.past, -1)
    return [whole - log_odds(queries.past.without(event), event.id) for event in replay.left_out]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"model.order": 2, "model.static": "random", "evaluation.batch_size": 4, "num_neighbors": 3},
        {"model.order": 0, "model.pair_features": True},
        {"model.update_all": True, "model.norm": False},
        {"model.dense_limit": 1},
    ],
    ids=["defaults", "two-hops", "no-graph", "all-nodes", "sparse"],
)
def test_batched_replays_give_the_contributions_of_single_replays(settings: dict[str, Any], tmp_path: Path) -> None:
    """Repeat pairs, pairs with a shared endpoint, self pairs, and several pairs in one call."""
    dense = named(repeating(120))
    run = small_run("ctdg-ssm", tmp_path, dense, **{"evaluation.batch_size": 16, **settings, "loop.epochs": 1})
    with open_session(run.path) as opened:
        assert opened.past.node_ids is not None
        known = np.unique(np.concatenate([dense.src, dense.dst]))
        pairs = np.array([[known[0], known[-1]], [known[0], known[-2]], [known[1], known[-1]], [known[2], known[2]]])
        u, v = opened.past.node_ids.rows(pairs).T
        t = np.full(len(u), opened.now())
        found = run_to_completion(leave_one_out(opened.queries, u, v, t))
        for weights, *pair in zip(found, u.tolist(), v.tolist(), t.tolist(), strict=True):
            expected = _one_by_one(opened.queries, *pair)
            np.testing.assert_allclose([weight for _, weight in weights], expected, rtol=1e-3, atol=2 * F32_TIGHT)
    assert any(weight for weights in found for _, weight in weights)


def test_queries_between_slices_do_not_change_an_explanation(run_of: Callable[[str], Run]) -> None:
    """A query at another time in between advances the memory and restores it."""
    with open_session(run_of("ctdg-ssm").path) as session:
        assert session.past.node_ids is not None
        u, v = session.past.node_ids.rows(np.array(PAIRS[:1])).T
        now = np.array([session.past.last_time])
        (expected,) = run_to_completion(leave_one_out(session.queries, u, v, now))
        steps, found = leave_one_out(session.queries, u, v, now), None
        while found is None:
            try:
                next(steps)
            except StopIteration as end:
                (found,) = end.value
            session.queries.scores(u, v, now + 500)
        assert [event for event, _ in found] == [event for event, _ in expected]
        weights = ([weight for _, weight in one] for one in (found, expected))
        np.testing.assert_allclose(*weights, rtol=F32, atol=F32_TIGHT)


# ---- explain -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["recency", "graphmixer"])
def test_an_explanation_has_the_score_and_only_earlier_events(
    name: str, run_of: Callable[[str], Run], tmp_path: Path
) -> None:
    run, pair = run_of(name), PAIRS[0]
    found = hopstate.explain(run.path, *pair, out=tmp_path / "why.csv", plot=tmp_path / "why.png")
    row = run.score([pair]).iloc[0]
    assert (found.score, found.probability, found.t) == (
        pytest.approx(row["score"], rel=F32),
        pytest.approx(row["probability"], rel=F32),
        row["t"],
    )
    written = pd.read_csv(tmp_path / "why.csv")
    assert written.columns.tolist() == ["end", "neighbor", "t", "event_id", "contribution"]
    own = EVENTS.iloc[written["event_id"]]
    ends = np.where(written["end"] == "source", own["src"] == pair[0], own["dst"] == pair[1])
    assert ends.all()
    assert own["t"].tolist() == written["t"].tolist()
    assert (tmp_path / "why.png").stat().st_size > 1000


@pytest.mark.parametrize("name", ["graphmixer", "ctdg-ssm"])
def test_an_earlier_time_is_explained_by_the_history_at_that_time(
    name: str, run_of: Callable[[str], Run], tmp_path: Path
) -> None:
    run, when = run_of(name), int(EVENTS["t"].iloc[120])
    found = hopstate.explain(run.path, *PAIRS[0], when)
    assert (found.events["t"] < when).all()
    EVENTS[EVENTS["t"] < when].to_csv(tmp_path / "earlier.csv", index=False)
    again = hopstate.explain(run.path, *PAIRS[0], when, data=tmp_path / "earlier.csv")
    assert found.score == pytest.approx(again.score, rel=F32)
    np.testing.assert_allclose(found.events["contribution"], again.events["contribution"], rtol=F32, atol=F32_TIGHT)


def test_a_pair_without_earlier_events_has_an_empty_explanation(run_of: Callable[[str], Run], tmp_path: Path) -> None:
    first = EVENTS.drop_duplicates("src").iloc[-1]  # the last source
    pair, when = (first["src"], first["src"]), int(first["t"])
    found = hopstate.explain(run_of("recency").path, *pair, when, plot=tmp_path / "a.png")
    assert len(found.events) == 0
    assert (tmp_path / "a.png").exists()


def test_streamed_events_are_explained_as_they_are_scored(tmp_path: Path) -> None:
    run = small_run("pair-trees", tmp_path)
    more = table(int(table(0, 160).t.max()) + 1, 60)
    run.stream(more)
    found, known = hopstate.explain(run.path, "u1", "v2"), run.score([("u1", "v2")])
    assert (found.t, found.score) == (known["t"][0], pytest.approx(known["score"][0], abs=F64))


def test_an_unknown_id_is_an_error(run_of: Callable[[str], Run]) -> None:
    with pytest.raises(DataError, match="'absent'"):
        hopstate.explain(run_of("recency").path, "u1", "absent")


def test_explanations_of_nodes_without_events_name_no_event(run_of: Callable[[str], Run]) -> None:
    for name in ("recency", "graphmixer"):
        with pytest.warns(HopstateWarning, match="who"):
            why = run_of(name).score([("who", "whom")], explain=True)["why"][0]
        assert not re.search(r"\b[uv]\d+\b", why)


# ---- look-ups without an event -----------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(2))
def test_neighbor_queries_without_an_event_equal_a_store_without_it(seed: int) -> None:
    """With ties and self-events."""
    rng = np.random.default_rng(seed)
    src, dst, t = rng.integers(0, 5, 60), rng.integers(0, 5, 60), np.sort(rng.integers(0, 30, 60))
    stream = EventStream(src=src, dst=dst, t=t, num_nodes=5)
    state = StreamState()
    for some in (slice(0, 25), slice(25, 60)):
        state = state.joined(EventStream(src=src[some].copy(), dst=dst[some].copy(), t=t[some].copy(), num_nodes=5))[1]
    u, v, when = rng.integers(0, 5, 80), rng.integers(0, 5, 80), rng.integers(0, 34, 80)
    for number in rng.integers(0, 60, 6).tolist():
        found = state.without(state.event(number)).store()
        kept = np.delete(np.arange(60), number)
        expected = NeighborStore.from_stream(stream, kept)
        for k in (1, 3, 100):
            for name in ("offsets", "nodes", "event_ids", "times"):
                got, want = (getattr(store.last(u, when, k), name) for store in (found, expected))
                np.testing.assert_array_equal(got, want)
        for directed in (False, True):
            np.testing.assert_array_equal(
                found.count_meetings(u, v, when, directed), expected.count_meetings(u, v, when, directed)
            )
            for got, want in zip(
                found.last_meeting(u, v, when, directed), expected.last_meeting(u, v, when, directed), strict=True
            ):
                np.testing.assert_array_equal(got, want)
        pairs = [PairFeatures(store, stream, Clock(), np.empty(0, np.int64)) for store in (found, expected)]
        for got, want in zip(*(features.read(u, v, when) for features in pairs), strict=True):
            np.testing.assert_allclose(got, want, rtol=F32)
