"""Dates in a live run and in `hopstate replay`, and events of `stream` that a live run does not have."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

from test_sinks import written_scores

from hopstate.cli.main import main
from hopstate.runs.run import Run, fit, score_stream
from hopstate.serving.live import LiveRun
from hopstate.serving.replay import replayed
from hopstate.serving.sinks import Sink, open_sink


def table(first: str, count: int) -> pd.DataFrame:
    """Return events one hour apart, in a zone two hours ahead of UTC."""
    t = pd.date_range(first, periods=count, freq="h", tz="UTC+02:00").map(lambda value: value.isoformat())
    rng = np.random.default_rng(count)
    ends = {"src": rng.integers(0, 6, count), "dst": rng.integers(6, 12, count)}
    return pd.DataFrame({name: [f"n{i}" for i in column] for name, column in ends.items()} | {"t": t})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    table("2021-03-01", 60).to_csv(tmp_path / "own.csv", index=False)
    return fit("recency", tmp_path / "own.csv", out=tmp_path / "run", loop={"progress": False})


def test_a_replay_shows_dates_in_the_zone_of_the_training_file(run: Run, tmp_path: Path) -> None:
    later = table("2021-04-01", 3)
    with LiveRun(run.path) as live:
        live.take(later.assign(event_id=["a", "b", "c"]).to_dict("records"))
    assert main(["replay", str(run.path), "--out", str(tmp_path / "again.csv")]) == 0
    again = pd.read_csv(tmp_path / "again.csv")
    assert again["t"].tolist() == later["t"].tolist()
    assert again["t"][0] == "2021-04-01T00:00:00+02:00"


@pytest.mark.parametrize("kind", ["folder", pytest.param("kafka", marks=pytest.mark.slow)])
def test_a_sink_has_the_dates_of_a_replay(kind: str, run: Run, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Also after a restart."""
    later = table("2021-04-01", 6)
    server = None if kind == "folder" else request.getfixturevalue(kind)

    def opened(name: str) -> Sink:
        return open_sink(str(tmp_path / name) if server is None else server(name))

    for part in (later[:2], later[2:4]):
        with LiveRun(run.path, sink=opened("dated")) as live:
            live.take(part.to_dict("records"))
    assert written_scores(opened("dated"))["t"].tolist() == later["t"][:4].tolist()
    assert written_scores(opened("dated"))["t"].tolist() == pd.concat(replayed(run.path))["t"].tolist()


@pytest.mark.slow
def test_a_live_run_warns_about_events_of_stream(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only before the first event."""
    uvicorn = pytest.importorskip("uvicorn", reason="needs uvicorn: pip install 'hopstate[serve]'")

    class Stopped(uvicorn.Server):
        def run(self, sockets: Any = None) -> None:
            self.started = True
            engine = self.config.app.state.engine
            engine.live.close()
            engine.closed = True
            sockets[0].close()

    monkeypatch.setattr(uvicorn, "Server", Stopped)

    def served() -> str:
        assert main(["serve", str(run.path), "--port", "0"]) == 0
        return capsys.readouterr().err

    assert "note" not in served()
    score_stream(run.path, table("2021-04-01", 3))
    assert f"`hopstate stream` added in {run.path / 'state'}" in served()
    with LiveRun(run.path) as live:
        live.take([{"event_id": "a", "src": "n1", "dst": "n7", "t": "2021-04-01"}])
    assert "note" not in served()
