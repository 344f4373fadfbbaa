"""How much events add to a score: what it loses without them, alone and in company, for every kind of model."""

import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.stream_state import StreamState
from hopstate.errors import HopstateWarning
from hopstate.runs.queries.reasons import influences
from hopstate.runs.queries.session import session
from hopstate.runs.run import Run
from hopstate.streaming.slices import finished
from hopstate.testing.conformance import F32, F32_TIGHT
from hopstate.tokens.pair_features import PairFeatures
from made_events import named, repeating, small_run

EVENTS = named(repeating(200))
METHODS = ["recency", "pair-trees", "graphmixer", "dygformer", "ctdg-ssm", "dyg-mamba"]
QUICK = ["recency", "graphmixer"]  # a method of each way to weigh an event; memories: see below
each = pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in METHODS])
MORE = {
    "dygformer": {"model.channel_dim": 4, "model.time_dim": 8, "model.num_layers": 1, "model.max_length": 20},
    "ctdg-ssm": {"model.node_gaps": True, "evaluation.batch_size": 16},
}
PAIRS = [("u1", "v12"), ("u3", "v13"), ("u1", "v17"), ("u9", "v15")]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Return a run of a method, in a folder of its own, trained when a test first wants it."""
    home = tmp_path_factory.mktemp("influences")

    @cache
    def found(name: str) -> Run:
        (home / f"{name}-data").mkdir()
        return small_run(name, home / f"{name}-data", EVENTS, **MORE.get(name, {}), **{"loop.epochs": 2})

    return found


def _logit(p: float) -> float:
    return float(np.log(p / (1 - p)))


def _without(run: Run, events: pd.DataFrame, number: int, pair: tuple[str, str], when: int) -> float:
    """Return what a run scores a pair if one of its events is missing in its own file."""
    file = run.path.parent / "own.csv"
    whole = file.read_text()
    events.drop(index=number).to_csv(file, index=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HopstateWarning)  # the file has changed since
            return float(run.score([pair], when)["score"][0])
    finally:
        file.write_text(whole)


@each
def test_the_event_that_weighs_most_moves_the_score_most(name: str, run_of: Callable[[str], Run]) -> None:
    """And by just its weight if histories are read; those of a memory come from its latest updates."""
    run, plainly = run_of(name), (lambda p: p) if name == "recency" else _logit
    slope = 1.0
    with session(run.path) as asked:
        when = int(asked.now())
        assert asked.past.node_ids is not None
        u, v = (asked.past.node_ids.rows(np.array(ends)) for ends in zip(*PAIRS, strict=True))
        found = finished(influences(asked.queries, u, v, np.full(len(u), when)))
        if name == "pair-trees":
            slope = float(asked.queries.follower.model.platt[0])  # log-odds of trees are calibrated afterwards
    whole = run.score(PAIRS, when)["score"]
    for i, weights in enumerate(found[:1]):
        assert len(weights) > 8
        ordered = sorted(weights, key=lambda one: abs(one.weight))
        least, most = ordered[0], ordered[-1]
        moved = [
            plainly(whole[i]) - plainly(_without(run, EVENTS, one.event.id, PAIRS[i], when)) for one in (least, most)
        ]
        assert abs(moved[1]) > abs(moved[0]) or most.weight == 0
        if name == "ctdg-ssm":  # of nodes with longer lives than are replayed, and with nodes around them
            assert abs(most.weight - moved[1]) < max(0.2 * abs(moved[1]), 0.01)
        else:
            np.testing.assert_allclose([slope * least.weight, slope * most.weight], moved, atol=2 * F32_TIGHT)


def test_weights_of_a_memory_over_short_lives_are_just_what_the_score_loses(tmp_path: Path) -> None:
    """No graph, an event a batch and at most eight events a node: then all is replayed from where it began."""
    rng = np.random.default_rng(3)
    src, dst = (np.repeat(np.arange(6), 8) for _ in range(2))  # eight events of each
    made = pd.DataFrame(
        {"src": [f"u{i}" for i in rng.permutation(src)], "dst": [f"v{i}" for i in rng.permutation(dst)]}
    )
    made["t"] = 10 * np.arange(len(made)) + rng.integers(0, 9, len(made))
    alone = {
        "model.order": 0,
        "model.num_layers": 2,
        "batch_size": 1,
        "evaluation.batch_size": 1,
        "model.node_gaps": True,
    }
    run = small_run("ctdg-ssm", tmp_path, made, **alone)
    pair = (made.src.iloc[-3], made.dst.iloc[-3])
    with session(run.path) as asked:
        when = int(asked.now()) + 5
        assert asked.past.node_ids is not None
        u, v = asked.past.node_ids.rows(np.array(pair))[:, None]
        (weights,) = finished(influences(asked.queries, u, v, np.array([when])))
    some, whole = weights[1::6], run.score([pair], when)["score"][0]
    moved = [_logit(whole) - _logit(_without(run, made, one.event.id, pair, when)) for one in some]
    assert len(some) >= 3
    assert np.ptp(moved) > 100 * F32_TIGHT
    np.testing.assert_allclose([one.weight for one in some], moved, atol=2 * F32_TIGHT)


@pytest.mark.parametrize("name", ["ctdg-ssm", pytest.param("graphmixer", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_weights_are_the_same_alone_and_in_company(name: str, run_of: Callable[[str], Run]) -> None:
    with session(run_of(name).path) as asked:
        assert asked.past.node_ids is not None
        u, v = (asked.past.node_ids.rows(np.array(ends)) for ends in zip(*PAIRS, strict=True))
        t = np.array([asked.now(), asked.now(), asked.now() + 40, asked.now()])
        together = finished(influences(asked.queries, u, v, t))
        for i in (2, 3):
            (alone,) = finished(influences(asked.queries, u[[i]], v[[i]], t[[i]]))
            assert [one.event for one in alone] == [one.event for one in together[i]]
            np.testing.assert_allclose(
                [one.weight for one in alone], [one.weight for one in together[i]], rtol=F32, atol=F32_TIGHT
            )


@pytest.mark.slow
def test_questions_between_slices_change_nothing(run_of: Callable[[str], Run]) -> None:
    """Questions of another time, between the slices of one, change nothing of it: memories go back and on."""
    for name in ("ctdg-ssm",):
        with session(run_of(name).path) as asked:
            assert asked.past.node_ids is not None
            u, v = (asked.past.node_ids.rows(np.array(ends)) for ends in zip(*PAIRS, strict=True))
            now = np.full(len(u), asked.past.last_time)
            expected = finished(influences(asked.queries, u, v, now))
            steps, found = influences(asked.queries, u, v, now), None
            while found is None:
                try:
                    next(steps)
                except StopIteration as end:
                    found = end.value
                asked.queries.scores(u, v, now + 500)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose([w.weight for w in one], [w.weight for w in other], rtol=F32, atol=F32_TIGHT)


def test_reasons_for_nodes_without_events_name_no_event(run_of: Callable[[str], Run]) -> None:
    for name in ("recency", "graphmixer"):
        with pytest.warns(HopstateWarning, match="who"):
            why = run_of(name).score([("who", "whom")], explain=True)["why"][0]
        assert not re.search(r"\b[uv]\d+\b", why)


# ---- look-ups without an event -----------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(2))
def test_look_ups_without_an_event_are_those_of_a_store_that_never_had_it(seed: int) -> None:
    """With ties and meetings with oneself."""
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
