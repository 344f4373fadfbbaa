"""A replica is bit-identical to its writer at the same position, and rejects events."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from made_events import table

pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("apsw", reason="needs the extra serve: pip install 'hopstate[serve]'")

from fastapi.testclient import TestClient

from hopstate.errors import ConfigError, MissingFileError, StorageError
from hopstate.runs.queries import score_session
from hopstate.runs.run import Run
from hopstate.serving.engine import Limits, ServiceEngine
from hopstate.serving.live import LiveRun, Replica, ReplicaError
from hopstate.serving.service import service

PAIRS = [("u1", "v2"), ("u3", "v3")]


@pytest.mark.parametrize("kind", ["file", pytest.param("postgres", marks=pytest.mark.slow)])
def test_replicas_are_bit_identical_to_their_writer(
    kind: str, run: Run, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any way to its position: event by event, in bulk, from a snapshot."""
    monkeypatch.setattr("hopstate.serving.live.BULK", 7)
    server = None if kind == "file" else request.getfixturevalue(kind)
    log = str(tmp_path / "a") if kind == "file" else f"{server}&log=replica"
    events = table(200, 50).to_dict("records")

    def same(one: LiveRun, other: LiveRun) -> bool:
        assert one.position == other.position
        mine, theirs = score_session(one.session(), PAIRS, [300] * 2), score_session(other.session(), PAIRS, [300] * 2)
        return bool(mine["score"].tolist() == theirs["score"].tolist())

    with pytest.raises(MissingFileError):
        Replica(run.path, folder=tmp_path / "early", log=log)
    with LiveRun(run.path, folder=tmp_path / "a", log=log) as writer:
        writer.take(events[:20])
        with Replica(run.path, folder=tmp_path / "b", log=log, snapshot_every=10) as replica:
            assert (replica.lag, same(replica, writer)) == (0, True)
            for event in events[20:40]:
                writer.take([event], score=False)
            assert (replica.lag, replica.position) == (20, 20)
            assert [replica.follow() for _ in range(4)] == [13, 6, 0, 0]
            assert same(replica, writer)
            with pytest.raises(ReplicaError):
                replica.take(events[40:])
        writer.take(events[40:])
        with Replica(run.path, folder=tmp_path / "b", log=log) as again:
            assert again.snapshot_position == 40  # of its own snapshot
            assert same(again, writer)


def test_a_log_of_another_model_is_rejected(run: Run, tmp_path: Path) -> None:
    with LiveRun(run.path, folder=tmp_path / "a") as writer:
        writer.log.set_facts({"model": "another"})
        with pytest.raises(ConfigError, match=str(tmp_path)):
            Replica(run.path, folder=tmp_path / "b", log=str(tmp_path / "a"))


def test_a_replica_behind_http(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It follows the log; if the log cannot be read, it reports the error and answers from its state."""
    events, limits = table(200, 50).to_dict("records"), Limits(look=0.01)
    with LiveRun(run.path, folder=tmp_path / "a") as writer:
        writer.take(events[:20])
        opened = partial(Replica, run.path, folder=tmp_path / "b", log=str(tmp_path / "a"))
        app = service(ServiceEngine(opened, limits=limits), name="run")
        with TestClient(app) as client:

            def state_with(key: str, value: Any) -> dict[str, Any]:
                return until(lambda: dict(client.get("/state").json()), lambda state: state[key] == value)

            refused = client.post("/events", json={"events": events[20:21]})
            assert (refused.status_code, "replica" in refused.json()["error"]) == (403, True)
            writer.take(events[20:30])
            assert (state_with("position", 30)["is_replica"], state_with("lag", 0)["position"]) == (True, 30)
            assert "hopstate_lag 0.0" in client.get("/metrics").text
            live = app.state.engine.live

            def broken(first: int) -> None:
                raise StorageError("the log is away")

            with monkeypatch.context() as patch:
                patch.setattr(live.log, "commits", broken)
                assert state_with("trouble", "the log is away")["position"] == 30
                assert client.post("/rank", json={"source": "u1", "top": 2}).status_code == 200
            writer.take(events[30:])
            state_with("position", 50)
            state_with("trouble", "")  # cleared after the read that ended it, so a moment after the position
