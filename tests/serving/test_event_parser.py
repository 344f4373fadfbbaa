"""Events that come in mean what a file of them would, however they are read."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from made_events import small_run, table

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

import hopstate.io.files as files
import hopstate.serving.event_columns as known_rows
from hopstate.data.events import EventStream
from hopstate.data.stream_state import StreamState
from hopstate.errors import ConfigError, DataError, HopstateError
from hopstate.runs.run import Run
from hopstate.serving.event_columns import Columns
from hopstate.serving.event_parser import EventParser, id_of
from hopstate.serving.live import LiveRun
from hopstate.serving.log import BETWEEN

RUNS: dict[str, dict[str, Any]] = {
    "texts": {},
    "numbers": {},
    "rows": {},
    "features": {"read.edge_columns": ["amount", "weight"]},
    "gaps": {"read.edge_columns": ["amount", "weight"], "read.missing": "mean"},
}


def own(name: str) -> pd.DataFrame:
    found = table(0, 160, seed=5, amount=True)
    found["weight"] = np.arange(160) % 7
    if name in ("numbers", "rows"):
        step = 1 if name == "rows" else 13
        for column, first in (("src", 0), ("dst", 10)):
            found[column] = (found[column].str[1:].astype(int) + first) * step
    if name == "gaps":
        found.loc[::5, "amount"] = np.nan
    return found if name in ("features", "gaps") else found[["src", "dst", "t"]]


QUICK = ("rows", "gaps")  # numbers for ids, or names with features that may be missing


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in RUNS]
)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Run]:
    home = tmp_path_factory.mktemp("run")
    return request.param, small_run("recency", home, own(request.param), **RUNS[request.param])


@pytest.fixture(scope="module")
def live(made: tuple[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, LiveRun]]:
    with LiveRun(made[1].path, folder=tmp_path_factory.mktemp("live")) as live:
        yield made[0], live


def drawn(name: str, past: Any, count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Events of nodes that are known and new, with deletions, features of any size, and gaps where there may be."""
    rows = own(name).sample(count, replace=True, random_state=rng.integers(1 << 31)).to_dict("records")
    for k, row in enumerate(rows):
        row["t"] = int(past.last_time) + k // 2
        if rng.random() < 0.2:
            row["dst"] = f"new {k}" if isinstance(row["dst"], str) else 10_000 + k
        if "weight" in row:
            row |= {"amount": float(rng.lognormal(0, 9)), "weight": int(rng.integers(1 << 40))}
            row |= {"amount": None} if name == "gaps" and rng.random() < 0.5 else {}
        if rng.random() < 0.3:
            row |= {"kind": "delete"} | ({"amount": None, "weight": None} if "weight" in row else {})
    return rows


def told(incoming: EventParser, bodies: list[dict[str, Any]], past: Any) -> list[dict[str, Any]]:
    return incoming.in_order(bodies, past, range(len(bodies)))[0]


@pytest.mark.parametrize("count", [1, 2, 40])
def test_numbers_are_what_a_file_of_them_gives(count: int, live: tuple[str, LiveRun]) -> None:
    name, run = live
    rng = np.random.default_rng(count)
    for _ in range(5):
        bodies = told(run._parser, drawn(name, run.past, count, rng), run.past)
        quick, slow = run._parser._of_numbers(bodies, run.past), run._parser._as_read(bodies, run.past)
        assert quick is not None
        assert quick.content_hash == slow.content_hash
        assert (quick.time_unit, quick.num_nodes, quick.t.dtype) == (slow.time_unit, slow.num_nodes, slow.t.dtype)
        for column in ("src", "dst", "t", "kind", "edge_attr"):
            np.testing.assert_array_equal(getattr(quick, column), getattr(slow, column), strict=True)


def test_events_of_numbers_touch_no_file(live: tuple[str, LiveRun], monkeypatch: pytest.MonkeyPatch) -> None:
    name, run = live
    bodies = told(run._parser, drawn(name, run.past, 20, np.random.default_rng(0)), run.past)
    monkeypatch.setattr(files, "temporary_name", lambda path: pytest.fail(f"{path} is written"))
    run._parser.stream(bodies, run.past)


def test_what_a_file_refuses_is_refused(live: tuple[str, LiveRun]) -> None:
    name, run = live
    for row in [{"t": 2**63 - 1}] + [{"amount": 1e300}] * (name in ("features", "gaps")):
        given = {k: v for k, v in drawn(name, run.past, 1, np.random.default_rng(1))[0].items() if k != "kind"}
        bodies = told(run._parser, [given | {"weight": 1} | row], run.past)
        assert run._parser._of_numbers(bodies, run.past) is None
        with pytest.raises(DataError):
            run._parser.stream(bodies, run.past)


# ---- read together, and one by one -------------------------------------------------------------------------
def plain(name: str, past: Any, count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """What comes nearly always: events of one form, without deletions and gaps."""
    rows = [{k: v for k, v in row.items() if k != "kind"} for row in drawn(name, past, count, rng)]
    return [row | {k: 0.1 * i for k in ("amount", "weight") if row.get(k, 1) is None} for i, row in enumerate(rows)]


@pytest.mark.parametrize("ids", [False, True], ids=["", "own ids"])
@pytest.mark.parametrize("count", [1, 2, 40])
def test_events_read_together_are_those_read_one_by_one(count: int, ids: bool, live: tuple[str, LiveRun]) -> None:
    name, run = live
    given = plain(name, run.past, count, np.random.default_rng(count))
    given = [row | ({"event_id": k} if ids else {}) for k, row in enumerate(given)]
    bodies = told(run._parser, [{k: v for k, v in row.items() if k != "event_id"} for row in given], run.past)
    found = run._parser.together(given, run.past)
    assert found is not None
    columns, quick = found
    assert columns.bodies() == bodies
    assert columns.text().split(BETWEEN) == [json.dumps(body) for body in bodies]
    assert columns.ids == ([str(k) for k in range(count)] if ids else None)
    same_in(run.past, quick, run._parser.stream(bodies, run.past))


def same_in(past: StreamState, quick: EventStream, slow: EventStream) -> StreamState:
    """A past takes both as the same; return what it is after them."""
    (quick, after), (slow, other) = past.joined(quick, again=True), past.joined(slow, again=True)
    assert (quick.content_hash, quick.time_unit, quick.num_nodes) == (slow.content_hash, slow.time_unit, slow.num_nodes)
    for column in ("src", "dst", "t", "kind", "edge_attr"):
        np.testing.assert_array_equal(getattr(quick, column), getattr(slow, column), strict=True)
    names, others = ([] if known.node_ids is None else known.node_ids.ids.tolist() for known in (after, other))
    assert names == others
    assert after.last == other.last
    return after


@pytest.mark.parametrize("most", [10**6, 0, 9], ids=["all ids remembered", "none", "nine"])
def test_rows_are_the_pasts_own_whatever_was_read_and_not_taken(
    most: int, live: tuple[str, LiveRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that fails after it was read leaves no id behind, nor does one over another past."""
    monkeypatch.setattr(known_rows, "REMEMBERED_IDS", most)
    name, run = live
    incoming, rng = EventParser(run.run, run.method, "reject"), np.random.default_rng(most)
    past, kept = run.past, [run.past]
    for k in range(24):
        given = plain(name, past, 1 + k % 7, rng)
        if isinstance(given[0]["src"], int) and past.node_ids is None:  # an id is a row, so not too far from others
            given = [row | {"dst": row["dst"] % 60} for row in given]
        found = incoming.together(given, past)
        assert found is not None
        after = same_in(past, found[1], incoming.stream(told(incoming, given, past), past))
        if k % 3:
            past = after
            kept.append(past)
        if k % 8 == 7:  # as a run that goes on from another past would
            past = kept[rng.integers(len(kept))]


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_a_time_does_not_depend_on_those_beside_it(together: bool, made: tuple[str, Run], tmp_path: Path) -> None:
    """Whole numbers beside others, as two clients may send them, would be rounded as those are."""
    name, run = made
    with LiveRun(run.path, folder=tmp_path) as live:
        first, other = plain(name, live.past, 2, np.random.default_rng(0))
        times = [2**53 + 1, 2.0**53 + 4, 2**53 + 5]
        given = [first | {"t": times[0]}, other | {"t": times[1]}, first | {"t": times[2]}]
        for group in [given] if together else [[row] for row in given]:
            live.take(group)
        assert live.past.events(live.own_events).t.tolist() == times
        assert [json.loads(body)["t"] for commit in live.log.commits() for body in commit.bodies] == times


def test_columns_are_written_as_json_writes_events() -> None:
    table = np.array([[1e16, -0.0], [0.1, 5e-324]])
    for src, t in ((("\u00e9\n%d", '"'), [0.5, 1e22]), ((2**62, 0), [-1, 2**62])):
        found = Columns(src, src[::-1], np.array(t), ['50% "x" %s', "\u4e2d"], table, None, (np.arange(4), None))
        assert found.text().split(BETWEEN) == [json.dumps(body) for body in found.bodies()]


FIELDS = ("src", "dst", "t", "amount", "event_id", "kind", "source", "more")
VALUES = (
    *(0, 1, -1, 2**31, 2**53 + 1, 2**63 - 2, 2**63 - 1, 2**63, 2**64, 10**400, -(2**63), True, None, 0.5, -0.0, 3.0),
    *(float("nan"), float("inf"), 1e300, 1e-320, np.int64(3), np.float64(0.25), [1], {}, b"a", "add", "delete", ""),
    *("7", "07", "u1", "U1", "%d %s", '"\\\n', "\u00e9\u4e2d", "a\0", "\ud800", "x" * 1000, "x" * 1001, "2026-01-01"),
)


@pytest.mark.slow
def test_no_value_is_read_together_that_is_not_read_so_alone(live: tuple[str, LiveRun]) -> None:
    name, run = live
    last = run.past.last_time + 5
    for field in FIELDS:
        for value in VALUES:
            one, other = plain(name, run.past, 2, np.random.default_rng(0))
            given = [one | {field: one.get(field, 1)}, other | {"t": last, field: value}]
            found = run._parser.together(given, run.past)
            if found is not None:
                ids = [id_of(row) for row in given]
                assert found[0].ids == (ids if "event_id" in given[0] else None)
                bare = [{k: v for k, v in row.items() if k != "event_id"} for row in given]
                texts = [json.dumps(body) for body in told(run._parser, bare, run.past)]
                assert found[0].text().split(BETWEEN) == texts


def outcome(live: LiveRun, given: list[Any]) -> Any:
    """What a client and the log are told of events."""
    try:
        found: Any = [tuple(receipt) for receipt in live.take(given)]
    except (HopstateError, OverflowError, TypeError) as error:
        found = type(error), str(error)
    return found, live.past.last_time, live.log.parked()


LATE: dict[str, Any] = {"texts": "reject", "numbers": "clamp", "rows": "park", "features": "park", "gaps": "clamp"}


def test_whatever_comes_is_taken_or_refused_as_one_by_one(
    made: tuple[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, run = made
    rng, ways, taken = np.random.default_rng(len(name)), [set[bool](), set[bool]()], 0
    with (
        LiveRun(run.path, folder=tmp_path / "a", late=LATE[name]) as quick,
        LiveRun(run.path, folder=tmp_path / "b", late=LATE[name]) as slow,
    ):
        monkeypatch.setattr(slow._parser, "together", lambda events, past, **_: None)
        for k in range(60):
            given: list[Any] = plain(name, quick.past, 1 + k % 4, rng)
            if k % 3 == 0:
                given = [row | {"event_id": f"{rng.integers(50)}"} for row in given]
            if k % 5 == 0:
                given = [dict(reversed(row.items())) for row in given]
            if k % 2:
                at, field = rng.integers(len(given)), FIELDS[rng.integers(len(FIELDS))]
                if rng.random() < 0.2:
                    given[at].pop(field, None)
                else:
                    given[at] |= {field: VALUES[rng.integers(len(VALUES))]}
            ways[k % 2].add(quick._parser.together(given, quick.past) is None)
            expected = outcome(slow, given)
            assert outcome(quick, given) == expected, given
            taken += isinstance(expected[0], list)
        logs = [[commit.bodies for commit in live.log.commits()] for live in (quick, slow)]
    assert logs[0] == logs[1]
    assert False in ways[0]
    assert ways[1] == {False, True}
    assert taken > 20


def test_a_feature_with_the_name_of_an_end_or_of_the_time_is_refused(tmp_path: Path) -> None:
    """In the log it would take the place of what has that name there."""
    events = own("features").rename(columns={"t": "timestamp", "weight": "t"})
    run = small_run(
        "recency", tmp_path, events, **{"read.edge_columns": ["amount", "t"], "read.time_column": "timestamp"}
    )
    with pytest.raises(ConfigError, match=r"\bt\b"):
        LiveRun(run.path)
