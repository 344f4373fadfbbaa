"""Events of the far future, and notes on repeated events with other contents or unknown fields."""

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from made_events import small_run, table

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

from hopstate.errors import ConfigError, DataError, FutureTimeError, TimeOrderError
from hopstate.runs.run import Run
from hopstate.serving.event_parser import ClockSkewLimit
from hopstate.serving.kafka import IngestLoop, Message
from hopstate.serving.live import LiveRun
from hopstate.serving.log import SqliteLog

DAY = 86_400
NOW = 1_700_000_000


def own(first: int, step: int = 3_600) -> pd.DataFrame:
    found = table(0, 60)
    return found.assign(t=first + np.arange(60) * step)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    made = {
        "dates": (own(NOW - 400 * DAY).assign(t=lambda f: pd.to_datetime(f["t"], unit="s").astype(str)), {}),
        "since 1970": (own(NOW - 400 * DAY), {"read.time_unit": "s"}),
        "ms": (own(NOW - 400 * DAY).assign(t=lambda f: f["t"] * 1000), {"read.time_unit": "ms"}),
        "from 0": (own(0), {"read.time_unit": "s"}),
        "no unit": (own(NOW - 400 * DAY), {}),
        "to come": (own(4_000_000_000), {"read.time_unit": "s"}),
    }
    homes = {name: tmp_path_factory.mktemp("run") for name in made}
    return {name: small_run("recency", homes[name], events, **how) for name, (events, how) in made.items()}


def at(t: Any, **more: Any) -> dict[str, Any]:
    return {"src": "u1", "dst": "v1", "t": t, **more}


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LiveRun]:
    monkeypatch.setattr(time, "time", lambda: float(NOW))

    count = itertools.count()

    def made(run: Run, **options: Any) -> LiveRun:
        live = LiveRun(run.path, folder=tmp_path / str(next(count)), **options)
        if live._parser.skew_limit is not None:
            live._parser.skew_limit._clock = time.time
        return live

    return made


CLOCKS = {"dates": 1, "since 1970": 1, "ms": 1_000}


@pytest.mark.parametrize("name", CLOCKS)
def test_an_event_of_the_far_future_is_rejected(
    name: str, runs: dict[str, Run], opened: Callable[..., LiveRun]
) -> None:
    """Single or in a batch; old events and small clock errors are accepted."""
    unit = CLOCKS[name]
    with opened(runs[name]) as live:
        live._parser.skew_limit = ClockSkewLimit("auto", live.past, live.own_events, "", lambda: float(NOW))
        assert live._parser.skew_limit.by_clock
        good = [at((NOW - 300 * DAY) * unit), at((NOW - 3) * unit), at((NOW + DAY) * unit)]
        live.take(good)
        far = at(NOW * 1_000 * unit)
        for request in ([far], [at((NOW + DAY) * unit), far], [far, at((NOW + DAY) * unit, kind="add")]):
            with pytest.raises(FutureTimeError, match=r"event \d"):
                live.take(request)
        assert [r.position for r in live.take([at((NOW + DAY) * unit)])] == [3]


@pytest.mark.parametrize("name", ["from 0", "no unit", "to come"])
def test_times_without_dates_have_no_bound_by_default(
    name: str, runs: dict[str, Run], opened: Callable[..., LiveRun]
) -> None:
    with opened(runs[name]) as live:
        assert live._parser.skew_limit is not None
        assert not live._parser.skew_limit.by_clock
        assert [r.position for r in live.take([at(10**15), at(10**17)])] == [0, 1]


def test_a_bound_of_times_without_dates_is_relative_to_the_previous_event(
    runs: dict[str, Run], opened: Callable[..., LiveRun]
) -> None:
    """The treatment of an event does not depend on other events of its commit."""
    last = 59 * 3_600
    given = [at(last + k * DAY) for k in (1, 2, 3)]
    with opened(runs["from 0"], max_clock_skew="1d") as live:
        assert len(live.take(given)) == 3
        with pytest.raises(FutureTimeError, match="1d"):
            live.take([given[-1], at(last + 4 * DAY + 1)])
        with pytest.raises(FutureTimeError):
            live.take([given[-1], at(2**62)])
    with pytest.raises(ConfigError):
        opened(runs["no unit"], max_clock_skew="1d")
    with opened(runs["no unit"], max_clock_skew=100) as live, pytest.raises(FutureTimeError):
        live.take([at(NOW)])


@pytest.mark.parametrize("late", ["dead-letter", "clamp"])
def test_an_event_of_the_far_future_is_dead_lettered_with_late_ones(
    late: str, runs: dict[str, Run], opened: Callable[..., LiveRun]
) -> None:
    """It cannot be clamped; an event from a source, which gets no answer, is dead-lettered in any case."""
    far, near = at((NOW + 9 * DAY) * 1), at(NOW)
    with opened(runs["since 1970"], late=late) as live:
        live._parser.skew_limit._clock = lambda: float(NOW)  # type: ignore[union-attr]
        if late == "dead-letter":
            assert [(r.position, r.note) for r in live.take([far, near])] == [(None, "future"), (0, None)]
            why = live.log._file.execute("select why from dead_letters").fetchall()  # type: ignore[attr-defined]
            assert (why, [r.note for r in live.take([at(NOW - 9)])]) == ([("future",)], ["late"])
        else:
            with pytest.raises(FutureTimeError):
                live.take([far])
            live.take([near])
            read = [Message(json.dumps(far), "a", 1), Message(json.dumps(near), "b", 2)]
            source = type("S", (), {"key": "source x", "read": lambda self, most: read})()
            assert [(r.position, r.note) for r in IngestLoop(live, source).run_once()] == [
                (None, "unreadable"),
                (1, None),
            ]
        assert live.log.num_dead_letters() == (2 if late == "dead-letter" else 1)
        assert live.past.last_time == NOW


# ---- the same id, and more fields ---------------------------------------------------------------------------
@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    events = table(0, 160, amount=True)
    return small_run("recency", tmp_path_factory.mktemp("run"), events, **{"read.edge_columns": ["amount"]})


def event(**more: Any) -> dict[str, Any]:
    return {"src": "u1", "dst": "v1", "t": 300, "amount": 0.5, "event_id": "e1", **more}


OTHERS: dict[str, Any] = {
    "target": event(dst="v2"),
    "time": event(t=301),
    "earlier": event(t=299),
    "feature": event(amount=0.25),
    "kind": event(kind="delete"),
    "nothing else": {"event_id": "e1"},
    "no number": event(amount="much"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_repeated_id_with_other_contents_has_a_note(what: str, run: Run, tmp_path: Path) -> None:
    """It changes nothing, in the log or in the same request as the first."""
    with LiveRun(run.path, folder=tmp_path) as live:
        live.take([event()])
        same = {"target": "v1", "user": "u1", "time": 300.0, "amount": 0.5, "event_id": "e1", "kind": "add"}
        for again in (event(), same):
            assert [(r.position, r.duplicate, r.note) for r in live.take([again])] == [(0, True, None)]
        assert [(r.position, r.duplicate, r.note) for r in live.take([OTHERS[what]])] == [(0, True, "differs")]
        first, other = event(event_id="e2"), OTHERS[what] | {"event_id": "e2"}
        found = live.take([first, first, other, event()])
        assert [(r.position, r.duplicate, r.note) for r in found] == [
            (1, False, None),
            (1, True, None),
            (1, True, "differs"),
            (0, True, None),
        ]
        assert len(live.log) == 2


def test_deleted_events_give_no_note(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may know an id longer than its event; a damaged event differs."""
    with LiveRun(run.path, folder=tmp_path) as live:
        live.take([event()])
        for kept, note in (({}, None), ({0: "{"}, "differs"), ({0: "[]"}, "differs")):
            monkeypatch.setattr(live.log, "bodies", lambda _, kept=kept: kept)
            assert [(r.position, r.duplicate, r.note) for r in live.take([event(dst="v3")])] == [(0, True, note)]


def test_a_late_clamped_event_is_equal_when_repeated(run: Run, tmp_path: Path) -> None:
    with LiveRun(run.path, folder=tmp_path, late="clamp") as live:
        live.take([event(event_id="e0", t=400), event()])
        assert [r.note for r in live.take([event(), event(t=500), event(dst="v3")])] == [None, "differs", "differs"]


def test_unknown_fields_are_rejected_by_name(run: Run, tmp_path: Path) -> None:
    """An unknown field may be a misspelled one: an id, a deletion."""
    with LiveRun(run.path, folder=tmp_path) as live:
        for field in ("event-id", "knd", "weight"):
            given = [event(event_id=f"{field} {k}", **{field: 1}) for k in range(2)]
            with pytest.raises(DataError, match=field):
                live.take(given)
            assert len(live.log) == 0
            assert live.log.positions([f"{field} 0"]) == {}
        live.take([event()])
        with pytest.raises(DataError, match=r"'a'.*'e'"):
            live.take([event(event_id="x", **dict.fromkeys("abcdefg"))])
    with LiveRun(run.path, folder=tmp_path, unknown_fields="ignore") as live:
        assert live.take([event(event_id="y", weight=1)])[0].position == 1
        assert live.unread_fields([event(weight=1), {"src": 1, "dst": 2, "t": 3, "amount": 4, "a": 5}]) == [
            "a",
            "weight",
        ]
    with pytest.raises(ConfigError, match="unknown_fields"):
        LiveRun(run.path, folder=tmp_path, unknown_fields="keep")  # type: ignore[arg-type]


def test_unknown_fields_of_a_source_are_ignored_with_one_warning(run: Run, tmp_path: Path) -> None:
    with LiveRun(run.path, folder=tmp_path, late="clamp") as live:
        read = [Message(json.dumps(event(event_id=f"e{k}", colour="red")), "", k) for k in range(2)]
        pump = IngestLoop(live, type("S", (), {"key": "source x", "read": lambda self, most: [read.pop()]})())
        with pytest.warns(UserWarning, match="colour") as warned:
            assert [pump.run_once()[0].position for _ in range(2)] == [0, 1]
        assert len(warned) == 1
    assert SqliteLog(tmp_path).num_dead_letters() == 0
    assert issubclass(FutureTimeError, TimeOrderError)
