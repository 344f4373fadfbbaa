"""A live run equals a replay of its log, whatever happened in between."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import made_events
from made_events import SMALL, small_run

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

from hopstate.errors import (
    BusyError,
    CheckpointError,
    ConfigError,
    DataError,
    HopstateWarning,
    StorageError,
    TimeOrderError,
)
from hopstate.runs.run import Run, score_stream
from hopstate.serving.live import LiveRun
from hopstate.serving.log import SqliteLog
from hopstate.serving.replay import replayed
from hopstate.testing.conformance import F32

Runs = Callable[[str], Run]
CONFIG = {"evaluation.batch_size": 16, "read.edge_columns": ["amount"]}
table = partial(made_events.table, amount=True)


def later(count: int = 60, first: int = 200) -> list[dict[str, Any]]:
    return [row | {"event_id": f"e{first}-{i}"} for i, row in enumerate(table(first, count).to_dict("records"))]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return a run of a method by name, trained on first use."""
    home = tmp_path_factory.mktemp("runs")
    return functools.cache(lambda name: small_run(name, home, table(0, 160), **CONFIG))


def again(run: Run, folder: Path) -> list[float]:
    return [s for part in replayed(run.path, folder) for s in part["score"].tolist()]


PATHS = ("recency", "pair-trees", "dyg-mamba", "ctdg-ssm")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in PATHS else pytest.mark.slow) for name in SMALL]
)
def test_live_scores_are_bit_identical_to_a_replay_and_equal_stream(name: str, runs: Runs, tmp_path: Path) -> None:
    """Single events and groups, with a snapshot, a restart and a duplicate among them."""
    run, events = runs(name), later()
    live = LiveRun(run.path, folder=tmp_path)
    found = [receipt for event in events[:5] for receipt in live.take([event])]
    found += live.take(events[5:30])
    live.close()
    with LiveRun(run.path, folder=tmp_path, snapshot_every=7) as live:
        assert live.position == 30
        twice = live.take([*events[28:45], events[44]])
        assert [r.duplicate for r in twice] == [True] * 2 + [False] * 15 + [True]
        assert [r.position for r in twice] == [*range(28, 45), 44]
        found += twice[2:-1] + live.take(events[45:])
    scores = [receipt.score for receipt in found]
    assert [receipt.position for receipt in found] == list(range(60))
    assert again(run, tmp_path) == scores
    offline = score_stream(run.path, table(200, 60), ignore_state=True, save=tmp_path / "state-of-stream")
    assert offline["score"].tolist() == pytest.approx(scores, rel=F32)


@pytest.mark.slow
def test_every_kind_of_log_gives_the_same_scores(runs: Runs, tmp_path: Path, postgres: str) -> None:
    """With snapshots present or lost, and a replay from the location only."""
    run, events, log = runs("recency"), later(), f"{postgres}&log=live_run"
    with LiveRun(run.path, folder=tmp_path / "a") as live:
        expected = [r.score for event in events for r in live.take([event])]
    with LiveRun(run.path, folder=tmp_path / "b", log=log) as live:
        found = live.take(events[:20])
        with pytest.raises(BusyError):
            LiveRun(run.path, folder=tmp_path / "c", log=log)
    with LiveRun(run.path, folder=tmp_path / "c", log=log) as live:
        assert live.position == 20
        found += live.take(events[15:])
    assert [r.score for r in found if not r.duplicate] == expected
    parts = list(replayed(run.path, log=log))
    assert [s for part in parts for s in part["score"].tolist()] == expected
    with pytest.raises(ConfigError):
        LiveRun(runs("ctdg-ssm").path, folder=tmp_path / "d", log=log)


def test_queries_reflect_accepted_events(runs: Runs, tmp_path: Path) -> None:
    from hopstate.runs.queries import score_session

    run, events = runs("ctdg-ssm"), later()
    with LiveRun(run.path, folder=tmp_path) as live:
        before = score_session(live.session(), [("u1", "v2")])["score"][0]
        live.take(events)
        after = score_session(live.session(), [("u1", "v2")])
    expected = run.score([("u1", "v2")], events=table(200, 60), ignore_state=True)
    assert after["score"][0] == expected["score"][0] != before
    assert after["t"][0] == expected["t"][0]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no target": ({"src": "u1", "t": 999, "amount": 1.0}, "event 1"),
    "two sources": ({"src": "u1", "source": "u2", "dst": "v1", "t": 999, "amount": 1.0}, "source"),
    "an id that is a list": ({"src": ["u1"], "dst": "v1", "t": 999, "amount": 1.0}, "src"),
    "a time that is none": ({"src": "u1", "dst": "v1", "t": "soon", "amount": 1.0}, "soon"),
    "no time": ({"src": "u1", "dst": "v1", "t": None, "amount": 1.0}, "t "),
    "a time beyond clocks": ({"src": "u1", "dst": "v1", "t": 10**30, "amount": 1.0}, "event 1"),
    "a feature that is missing": ({"src": "u1", "dst": "v1", "t": 999}, "amount"),
    "a feature that is text": ({"src": "u1", "dst": "v1", "t": 999, "amount": "much"}, "amount"),
    "an infinite feature": ({"src": "u1", "dst": "v1", "t": 999, "amount": float("inf")}, "amount"),
    "an earlier one": ({"src": "u1", "dst": "v1", "t": 3, "amount": 1.0}, "event 1"),
    "a feature that is true": ({"src": "u1", "dst": "v1", "t": 999, "amount": True}, "amount"),
    "a kind that is none": ({"src": "u1", "dst": "v1", "t": 999, "amount": 1.0, "kind": "delete-node"}, "kind"),
    "two kinds": ({"src": "u1", "dst": "v1", "t": 999, "amount": 1.0, "kind": "add", "op": "add"}, "kind"),
    "a long id": ({"src": "u" * 1001, "dst": "v1", "t": 999, "amount": 1.0}, "event 1"),
    "an id that ends in NUL": ({"src": "u1\0", "dst": "v1", "t": 999, "amount": 1.0}, "event 1"),
    "half a character": ({"src": "\ud800", "dst": "v1", "t": 999, "amount": 1.0}, "event 1"),
    "an id of another kind": ({"src": "u1", "dst": "v1", "t": 999, "amount": 1.0, "event_id": [1]}, "event_id"),
}


def test_a_rejected_event_leaves_no_trace(runs: Runs, tmp_path: Path) -> None:
    good = {"src": "u1", "dst": "v1", "t": 900, "amount": 0.0}
    with LiveRun(runs("recency").path, folder=tmp_path) as live:
        live.take(later(10))
        for at, (kind, (bad, words)) in enumerate(BAD.items(), 10):
            past = live.past
            with pytest.raises(DataError) as raised:
                live.take([good, bad])
            assert words in str(raised.value), kind
            assert kind != "an earlier one" or raised.type is TimeOrderError
            assert (live.past, len(live.log), live.position) == (past, at, at), kind
            assert live.take([good])[0].position == at


def test_the_meaning_of_an_event_does_not_depend_on_its_request(runs: Runs, tmp_path: Path) -> None:
    """A replay reads several requests together: kinds, unused fields, texts that look like numbers."""
    usual = {"dst": "v1", "amount": 1}
    events = [
        usual | {"src": "u1", "t": 900, "kind": "add"},
        usual | {"src": "u1", "t": 901},
        usual | {"src": "u1", "t": 902, "op": "delete"},
        {"src": "7.0", "to": "v1", "t": 903, "amount": 0.25, "amount ": "much", "note": True},
        usual | {"src": "7", "t": 904},
        usual | {"src": 7, "t": 905},
        usual | {"src": "+7", "t": 906},
        usual | {"src": "007", "t": 907},
    ]
    with LiveRun(runs("graphmixer").path, folder=tmp_path, unknown_fields="ignore") as live:
        found = [live.take([event])[0].score for event in events]
        assert found[2] is None  # a deletion is not scored
        assert live.past.num_nodes == 18 + 4
        assert {"7.0", "7", "+7", "007"} <= set(live.past.node_ids.ids.tolist())  # type: ignore[union-attr]
    shown = [None if np.isnan(score) else score for score in again(runs("graphmixer"), tmp_path)]
    assert shown == found
    (tmp_path / "state" / "live.json").unlink()
    LiveRun(runs("graphmixer").path, folder=tmp_path).close()


def test_an_error_names_the_position_in_the_request(runs: Runs, tmp_path: Path) -> None:
    """Positions count every event of the request, duplicates included."""
    events = later(4)
    with LiveRun(runs("recency").path, folder=tmp_path) as live:
        live.take(events[:2])
        for bad in ({"t": 3}, {"t": None}, {"src": 0.5}, {"kind": "delete-node"}):
            with pytest.raises(DataError, match="event 3"):
                live.take([*events[:3], events[3] | bad])


@pytest.mark.parametrize("late", ["clamp", "dead-letter"])
def test_late_events_follow_the_policy(late: Any, runs: Runs, tmp_path: Path) -> None:
    run, events = runs("recency"), later(10)
    with LiveRun(run.path, folder=tmp_path, late=late) as live:
        live.take(events)
        receipts = live.take([events[0] | {"event_id": "late"}, {"src": "u1", "dst": "v1", "t": 900, "amount": 0.0}])
        if late == "dead-letter":
            assert [r.position for r in receipts] == [None, 10]
            assert live.log.num_dead_letters() == 1
            live.take([events[0] | {"event_id": "late"}])
            assert live.log.num_dead_letters() == 1  # stored once, however often it is sent
            with pytest.raises(DataError):  # a rejected event is not dead-lettered
                live.take([events[0] | {"event_id": "later"}, {"src": "u1", "dst": "v1", "t": 901}])
            assert live.log.num_dead_letters() == 1
        else:
            assert [r.position for r in receipts] == [10, 11]
            last = json.loads(next(live.log.commits(10)).bodies[0])
            assert last["t"] == max(event["t"] for event in events)
        scores = [r.score for r in receipts if r.position is not None]
    assert again(run, tmp_path)[10:] == scores


def test_late_events_of_a_failed_request_are_dead_lettered_once(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an id, only their content identifies duplicates."""
    events = later(10)
    one = {name: value for name, value in events[0].items() if name != "event_id"}
    request = [one, {"src": "u1", "dst": "v1", "t": 900, "amount": 0.0}]
    with LiveRun(runs("recency").path, folder=tmp_path, late="dead-letter") as live:
        live.take(events)
        with monkeypatch.context() as patched:
            patched.setattr(live.log, "append", lambda *_: (_ for _ in ()).throw(StorageError("no space left")))
            for _ in range(3):
                with pytest.raises(StorageError):
                    live.take(request)
        assert live.log.num_dead_letters() == 0
        assert [receipt.position for receipt in live.take(request)] == [None, 10]
        assert live.log.num_dead_letters() == 1


def test_a_failing_disk_loses_no_event(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed commit leaves no trace; one that succeeded although an error was reported counts."""
    run, events = runs("recency"), later(30)
    with LiveRun(run.path, folder=tmp_path, snapshot_every=5) as live:
        append = live.log.append

        def fails(entries: Any, facts: Any = None) -> int:
            raise StorageError("no space left")

        def fails_late(entries: Any, facts: Any = None) -> int:
            append(entries, facts)
            raise StorageError("the disk went away")

        monkeypatch.setattr(live.log, "append", fails)
        with pytest.raises(StorageError):
            live.take(events[:4])
        assert (live.position, len(live.log)) == (0, 0)
        monkeypatch.setattr(live.log, "append", fails_late)
        with pytest.raises(StorageError):
            live.take(events[:4])
        monkeypatch.setattr(live.log, "append", append)
        assert all(receipt.duplicate for receipt in live.take(events[:4]))
        assert live.position == 4
        monkeypatch.setattr("hopstate.serving.live.save_snapshot", lambda *_: fails([]))
        with pytest.warns(HopstateWarning):
            receipts = live.take(events[4:])
        assert [receipt.position for receipt in receipts] == list(range(4, 30))
        monkeypatch.undo()
        assert again(run, tmp_path)[4:] == [receipt.score for receipt in receipts]


def test_invalid_options_are_rejected_at_the_start(runs: Runs, tmp_path: Path) -> None:
    run = runs("recency")
    with LiveRun(run.path, folder=tmp_path) as live, pytest.raises(BusyError):
        LiveRun(run.path, folder=tmp_path)
    live = LiveRun(run.path, folder=tmp_path)
    live.take(later(20))
    live.close()
    with pytest.raises(ConfigError):
        LiveRun(runs("ctdg-ssm").path, folder=tmp_path)
    other = small_run("recency", tmp_path, table(0, 160, seed=3))
    for another in (other, runs("edgebank")):  # without weights to identify them
        with pytest.raises(ConfigError):
            LiveRun(another.path, folder=tmp_path)
        with pytest.raises(ConfigError):
            list(replayed(another.path, tmp_path))
    with pytest.raises(ConfigError, match="late"):
        LiveRun(run.path, folder=tmp_path, late="never")  # type: ignore[arg-type]
    head = tmp_path / "state" / "live.json"
    head.write_text(head.read_text()[:-9])
    with (
        pytest.warns(HopstateWarning),
        LiveRun(run.path, folder=tmp_path) as live,
    ):
        assert live.position == 20
    SqliteLog(tmp_path)._file.execute("delete from events")
    with pytest.raises(CheckpointError, match=re.escape(str(tmp_path))):
        LiveRun(run.path, folder=tmp_path)


WRITER = """
import json, sys
from hopstate.serving.live import LiveRun
live = LiveRun(sys.argv[1], folder=sys.argv[2], snapshot_every=23)
for line in open(sys.argv[3]):
    print(json.dumps([r.position for r in live.take(json.loads(line))]), flush=True)
live.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kills"), [("recency", 1), *(pytest.param(name, 8, marks=pytest.mark.slow) for name in SMALL)]
)
def test_a_killed_run_resumes_and_equals_an_uninterrupted_one(
    name: str, kills: int, runs: Runs, tmp_path: Path
) -> None:
    run, events = runs(name), later(120)
    calls = [events[i : i + 4] for i in range(0, 120, 4)]
    (tmp_path / "calls").write_text("\n".join(map(json.dumps, calls)))
    with LiveRun(run.path, folder=tmp_path / "whole") as live:
        expected = [r.score for call in calls for r in live.take(call)]
    rng, words = np.random.default_rng(3), [sys.executable, "-W", "ignore", "-c", WRITER, str(run.path)]
    for kill in range(kills):
        process = subprocess.Popen(
            [*words, str(tmp_path / "live"), str(tmp_path / "calls")], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range((kill + 1) * 30 // (kills + 1) + int(rng.integers(3)))]
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.read().splitlines(keepends=True)
        process.wait()
        acknowledged = [json.loads(line) for line in lines if line.endswith("\n")]
        assert acknowledged == [list(range(4 * i, 4 * i + 4)) for i in range(len(acknowledged))]
        log = SqliteLog(tmp_path / "live")
        assert len(log) % 4 == 0
        assert len(log) >= 4 * len(acknowledged)
        log.close()
    with LiveRun(run.path, folder=tmp_path / "live") as live:
        for call in calls:
            live.take(call)
    assert again(run, tmp_path / "live") == expected


def test_a_killed_live_run_leaves_no_scratch_files(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs none, so it creates none."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    with LiveRun(runs("recency").path, folder=tmp_path / "live") as live:
        live.take(later(5))
        assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("method", ["recency", pytest.param("ctdg-ssm", marks=pytest.mark.slow)])
def test_fractional_times_may_follow_integers(method: str, tmp_path: Path) -> None:
    """Scores, a restart and a replay agree; integers that floats cannot represent are rejected."""
    run = small_run(method, tmp_path)
    events = made_events.table(200, 60)[["src", "dst", "t"]].to_dict("records")
    rows = [row | {"t": row["t"] + 0.5 if k >= 20 else int(row["t"])} for k, row in enumerate(events)]
    found = []
    for first in (0, 40):  # a restart in between
        with LiveRun(run.path, folder=tmp_path / "live", snapshot_every=25) as live:
            assert live.position == first
            for k in range(first, first + (40 if first == 0 else 20), 5):
                found += [receipt.score for receipt in live.take(rows[k : k + 5])]
    assert live.past.t[-1] == rows[-1]["t"]
    assert pd.concat(list(replayed(run.path, tmp_path / "live")))["score"].tolist() == found
    with LiveRun(run.path, folder=tmp_path / "other") as live, pytest.raises(DataError, match=str(2**53 + 1)):
        live.take([rows[-1], rows[-1] | {"t": 2**53 + 1}])
