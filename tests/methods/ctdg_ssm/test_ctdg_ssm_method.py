"""CTDG-SSM from a file to a run folder and on: fit, evaluate, predict, check-leak, and streams that are continued."""

import gc
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hopstate.cli.main import main
from hopstate.data.events import EventStream
from hopstate.data.past_store import load_past
from hopstate.errors import (
    BusyError,
    CheckpointError,
    ConfigError,
    DataError,
    HopstateError,
    MissingFileError,
    ShapeError,
    StorageError,
    TimeOrderError,
)
from hopstate.evaluation.metrics import roc_auc
from hopstate.io.lock import locked
from hopstate.runs.api import evaluate, fit, predict, score_stream
from hopstate.testing.asserts import F32_TIGHT

SMALL = {
    "model__dim": 8,
    "model__time_dim": 4,
    "model__static": "random",
    "model__static_dim": 4,
    "batch_size": 20,
    "evaluation__batch_size": 20,
    "loop__epochs": 2,
    "loop__progress": False,
    "loop__tensorboard": "no",
    "loop__device": "cpu",
}


def table(count: int = 240, start: int = 0, seed: int = 0, extra: str = "") -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    names = [f"u{i}" for i in range(12)], [*(f"v{i}" for i in range(9)), *([extra] if extra else [])]
    return pd.DataFrame(
        {
            "source": rng.choice(names[0], count),
            "target": rng.choice(names[1], count),
            "time": start + np.arange(count),
        }
    )


@pytest.fixture
def events(tmp_path: Path) -> Path:
    table().to_csv(tmp_path / "events.csv", index=False)
    return tmp_path / "events.csv"


def run_of(events: Path, out: Path, **settings: Any) -> Any:
    return fit("ctdg-ssm", events, out=out, **{**SMALL, **settings})


def test_fit_evaluate_predict_and_the_same_again(events: Path, tmp_path: Path) -> None:
    run = run_of(events, tmp_path / "run")
    assert {"average_precision", "roc_auc", "historical_roc_auc", "inductive_average_precision"} <= run.metrics[
        "test"
    ].keys()
    assert evaluate(run.path) == run.metrics["test"]
    scores = predict(run.path, split="test")
    assert list(scores) == ["src", "dst", "t", "score"]
    assert scores["src"].str.startswith("u").all()
    assert scores["score"].between(0, 1).all()
    assert run_of(events, tmp_path / "again").metrics == run.metrics


@pytest.mark.parametrize("settings", [{}, {"model__static": "learnable", "model__node_gaps": True, "model__order": 2}])
def test_a_stream_cut_anywhere_gives_the_same_scores(events: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Kept after each call and gone on from there: bit for bit what one pass gives, state included."""
    run = run_of(events, tmp_path / "run", **settings)
    later = table(50, start=240, seed=1).assign(time=240 + np.arange(50) // 3)  # calls end amid one time too
    whole = score_stream(run.path, later, save=tmp_path / "whole")
    for size in (13, 20):
        parts = [run.score_stream(later[i : i + size], fresh=i == 0) for i in range(0, 50, size)]
        assert whole.equals(pd.concat(parts, ignore_index=True))
        states = [load_past(p) for p in (tmp_path / "whole", run.path / "state")]
        held = [past.memories(np.arange(past.num_nodes)) for past in states]
        for name in ("nodes", "memory", "output", "last_time"):
            assert np.array_equal(getattr(held[0], name), getattr(held[1], name)), name
        assert len(states[0]) == 290
        assert states[0].settled == states[1].settled
        assert states[0].events().content_hash == states[1].events().content_hash


def test_a_call_needs_no_more_of_the_runs_own_data(events: Path, tmp_path: Path) -> None:
    run = run_of(events, tmp_path / "run")
    first = score_stream(run.path, table(30, start=240, seed=1))
    events.unlink()
    assert score_stream(run.path, table(30, start=270, seed=2))["score"].between(0, 1).all()
    with pytest.raises(HopstateError, match=r"events\.csv"):
        score_stream(run.path, table(30, start=240, seed=1), fresh=True)
    table().to_csv(events, index=False)
    assert score_stream(run.path, table(30, start=240, seed=1), fresh=True).equals(first)


def test_two_writers_of_one_state(events: Path, tmp_path: Path) -> None:
    """The second is refused by name, nothing of the first is lost, and another state may be written meanwhile."""
    run, later = run_of(events, tmp_path / "run"), table(30, start=240, seed=1)
    with locked(run.path):
        with pytest.raises(BusyError, match=r"run \(the state of a live run\) is being written by"):
            score_stream(run.path, later, out=tmp_path / "scores.csv")
        assert not (tmp_path / "scores.csv").exists()
        score_stream(run.path, later, save=tmp_path / "other")
    assert len(score_stream(run.path, later)) == 30


def test_scores_of_a_continued_stream_are_those_of_one_file(events: Path, tmp_path: Path) -> None:
    """A run whose own data are the first part equals prediction over all of it."""
    run = run_of(events, tmp_path / "run")
    later = table(60, start=240, seed=1)
    both = pd.concat([table(), later])
    both.to_csv(tmp_path / "both.csv", index=False)
    known = predict(run.path, data=tmp_path / "both.csv", fresh=True)["score"].to_numpy()[240:]
    assert np.allclose(score_stream(run.path, later)["score"].to_numpy(), known, atol=F32_TIGHT)


def test_new_nodes_in_mid_stream(events: Path, tmp_path: Path) -> None:
    run = run_of(events, tmp_path / "run")
    first = score_stream(run.path, table(60, start=240, seed=1, extra="stranger"))
    assert (first["dst"] == "stranger").any()
    state = load_past(run.path / "state")
    assert state.node_ids is not None
    assert state.node_ids.ids[-1] == "stranger"
    assert state.num_nodes == 22
    assert score_stream(run.path, table(60, start=300, seed=2, extra="stranger"))["score"].between(0, 1).all()
    fixed = run_of(events, tmp_path / "fixed", model__static="learnable")
    with pytest.raises(DataError, match="beyond the 21 nodes"):
        score_stream(fixed.path, table(60, start=240, seed=1, extra="stranger"))
    assert not (fixed.path / "state" / "live.json").exists()


def kept_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_bad_input_leaves_the_kept_state_as_it_was(events: Path, tmp_path: Path) -> None:
    run, other = run_of(events, tmp_path / "run"), run_of(events, tmp_path / "other", loop__seed=1)
    later = table(40, start=240, seed=1)
    score_stream(run.path, later)
    kept = kept_in(run.path / "state")
    with pytest.raises(TimeOrderError, match="streamed already"):
        score_stream(run.path, later)
    with pytest.raises(CheckpointError, match="another model"):
        score_stream(other.path, table(40, start=280), state=run.path / "state")
    broken = tmp_path / "broken"
    shutil.copytree(run.path / "state", broken)
    (broken / "live.json").write_bytes(kept["live.json"][:40])
    with pytest.raises(CheckpointError, match="damaged"):
        score_stream(run.path, table(40, start=280), state=broken)
    with pytest.raises(MissingFileError, match="no live state"):
        score_stream(run.path, table(40, start=280), state=tmp_path / "none")
    assert kept_in(run.path / "state") == kept


def test_methods_without_a_past_are_named(tmp_path: Path) -> None:
    command = ["fit", "ctdg-ssm-sequences", "--data=path-sequences", "--read.length=4", "--read.count=40"]
    assert main([*command, "--loop.epochs=0", "--loop.progress=false", "--out", str(tmp_path / "run")]) == 0
    with pytest.raises(ConfigError, match="ctdg-ssm-sequences, which works on sequences and has no past"):
        score_stream(tmp_path / "run", table(3))


def test_deletions_of_earlier_edges_are_taken_and_of_none_refused(tmp_path: Path) -> None:
    data = table()
    data["kind"] = "add"
    data.to_csv(tmp_path / "events.csv", index=False)
    run = run_of(tmp_path / "events.csv", tmp_path / "run")
    gone = data.iloc[[3, 4]].assign(kind="delete", time=[240, 241])
    both = pd.concat([gone, table(3, 242).assign(kind="add")])
    assert score_stream(run.path, both)["t"].tolist() == [242, 243, 244]  # a deletion is not scored
    assert load_past(run.path / "state").has_deletes
    with pytest.raises(DataError, match="does not stand"):
        score_stream(run.path, pd.DataFrame({"source": ["u0"], "target": ["u1"], "time": [300], "kind": ["delete"]}))


def test_integer_ids_and_edge_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def part(start: int, nodes: int) -> EventStream:
        src, dst = rng.integers(0, nodes, (2, 100))
        attr = rng.normal(size=(100, 3)).astype(np.float32)
        return EventStream(src=src, dst=dst, t=start + np.arange(100), edge_attr=attr, num_nodes=nodes)

    first = part(0, 10)
    x = rng.normal(size=(10, 2)).astype(np.float32)
    run = fit("ctdg-ssm", first.with_(x=x), out=tmp_path / "run", keep_data=False, **SMALL)
    run = replace(run, record=None)
    gc.collect()  # what a cycle still holds of the record is found in memory
    with pytest.raises(ConfigError, match="record in memory"):
        run.score_stream(part(100, 14))
    later = part(100, 14)
    scores = run.score_stream(later, own=first.with_(x=x))
    assert scores["dst"].tolist() == later.dst.tolist()
    assert scores["score"].between(0, 1).all()
    assert load_past(run.path / "state").num_nodes == 14
    with pytest.raises(ShapeError, match=r"edge_attr of 3 columns; .* has 0: give .*--read\.edge_columns"):
        run.score_stream(part(200, 14).with_(edge_attr=None), own=first.with_(x=x))


def test_new_files_are_read_as_the_runs_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Time and feature columns named at training need no naming again, and may be named otherwise."""

    def written(name: str, count: int, start: int, when: str = "when", what: str = "amount") -> str:
        part = table(count, start, seed=start).assign(amount=np.arange(count) / 7)
        part.rename(columns={"time": when, "amount": what}).to_csv(tmp_path / name, index=False)
        return str(tmp_path / name)

    flags = [f"--{k.replace('__', '.')}={v}" for k, v in SMALL.items()]
    own = ["--read.time_column=when", "--read.edge_columns=[amount]", "--read.num_nodes=null"]
    run, out = str(tmp_path / "run"), ["--out", str(tmp_path / "scores.csv")]
    assert main(["fit", "ctdg-ssm", "--data", written("events.csv", 240, 0), *own, "--out", run, *flags]) == 0
    later = ["stream", run, "--data", written("later.csv", 20, 240), *out]
    assert main([*later, "--save", str(tmp_path / "own")]) == 0
    first = (tmp_path / "scores.csv").read_text()
    renamed = ["stream", run, "--data", written("renamed.csv", 20, 240, "at", "sum"), *out]
    assert main([*renamed, "--read.time_column", "at", "--read.edge_columns", "[sum]"]) == 0
    assert (tmp_path / "scores.csv").read_text() == first
    kept = kept_in(Path(run) / "state")
    capsys.readouterr()
    more = ["stream", run, "--data", written("more.csv", 20, 260), *out]
    for wrong, message in (
        (["--read.time_colum", "x"], "did you mean '--read.time_column'"),
        (["--read.num_nodes", "many"], "read.num_nodes"),
        (["--read.x", "x.npy"], "leave read.x out"),
    ):
        assert main([*more, *wrong]) == 2
        assert message in capsys.readouterr().err
    assert main([*more, "--read.edge_columns", "[]"]) == 1
    assert "more has 0: give the event features that it was trained with" in capsys.readouterr().err
    assert main([*more, "--read.edge_columns", "[sum]"]) == 1
    assert "no column 'sum'" in capsys.readouterr().err
    assert kept_in(Path(run) / "state") == kept


def test_the_number_of_nodes_is_read_as_a_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def written(name: str, start: int, largest: int) -> str:
        src, dst = rng.integers(0, 10, (2, 100))
        dst[0] = largest
        pd.DataFrame({"src": src, "dst": dst, "t": start + np.arange(100)}).to_csv(tmp_path / name, index=False)
        return str(tmp_path / name)

    run = fit("ctdg-ssm", written("events.csv", 0, 9), out=tmp_path / "run", read__num_nodes=12, **SMALL)
    command = ["stream", str(run.path), "--out", str(tmp_path / "s.csv"), "--data"]
    assert main([*command, written("later.csv", 100, 30), "--read.num_nodes", "50"]) == 0
    assert load_past(run.path / "state").num_nodes == 31
    assert main([*command, written("new.csv", 200, 60)]) == 0  # the run's own number does not bind later files
    assert load_past(run.path / "state").num_nodes == 61


def test_a_file_at_one_time_is_counted_once(events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(events, tmp_path / "run")
    table(3).assign(time=239, target="stranger").to_csv(tmp_path / "one.csv", index=False)
    command = ["stream", str(run.path), "--data", str(tmp_path / "one.csv"), "--out", str(tmp_path / "one-scores.csv")]
    assert main(command) == 0
    kept = kept_in(run.path / "state")
    assert main(command) == 1
    error = capsys.readouterr().err
    assert "streamed already" in error
    assert "--fresh" in error
    assert kept_in(run.path / "state") == kept
    assert main([*command, "--fresh"]) == 0
    score_stream(run.path, table(4).assign(time=239))  # others at the same time may follow
    assert len(load_past(run.path / "state")) == 247


def test_dates_do_not_follow_numbers(events: Path, tmp_path: Path) -> None:
    run = run_of(events, tmp_path / "run")
    later = table(20, start=240)
    dated = later.assign(time=pd.to_datetime(later["time"], unit="D").dt.strftime("%Y-%m-%d"))
    with pytest.raises(DataError, match="counts time in s, earlier events in a unit that nobody named"):
        score_stream(run.path, dated)
    assert not (run.path / "state" / "live.json").exists()
    both = table().assign(time=pd.date_range("2026-01-01", periods=240, freq="h").strftime("%Y-%m-%dT%H:%M:%S.5"))
    both.to_csv(tmp_path / "dated.csv", index=False)
    run = run_of(tmp_path / "dated.csv", tmp_path / "dated")
    whole = table(1).assign(time="2026-02-01")  # counted in ms, as the run's own, and not in s
    assert score_stream(run.path, whole)["t"].tolist() == ["2026-02-01T00:00:00.000"]


def test_where_state_or_scores_cannot_be_written_the_state_stays(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, later = run_of(events, tmp_path / "run"), table(20, start=240)
    scores, state = tmp_path / "scores.csv", run.path / "state"
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(StorageError, match="it is a folder"):
        score_stream(run.path, later, out=tmp_path / "folder.csv")
    with pytest.raises(StorageError, match="holds other things"):
        score_stream(run.path, later, save=tmp_path, out=scores)
    with pytest.raises(StorageError, match="is a file"):
        score_stream(run.path, later, save=events, out=scores)
    with pytest.raises(StorageError):
        score_stream(run.path, later, save=events / "state", out=scores)  # a file is no folder

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    for name in ("safetensors.torch.save_file", "pandas.DataFrame.to_csv", "pathlib.Path.write_bytes"):
        with monkeypatch.context() as here:
            here.setattr(name, full)
            with pytest.raises(StorageError, match="no space left"):
                score_stream(run.path, later, out=scores if "Path" not in name else None)
    assert not scores.exists()
    assert not (state / "live.json").exists()
    assert not [p.name for p in (*state.iterdir(), *tmp_path.iterdir()) if p.name.endswith(".part")]
    score_stream(run.path, later, out=tmp_path / "new" / "scores.csv", save=tmp_path / "kept" / "state")
    assert (tmp_path / "new" / "scores.csv").is_file()
    assert (tmp_path / "kept" / "state" / "live.json").is_file()


def test_command_line(events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [f"--{k.replace('__', '.')}={v}" for k, v in SMALL.items()]
    run = str(tmp_path / "run")
    assert main(["fit", "ctdg-ssm", "--data", str(events), "--out", run, *flags, "--model.filter_start=1.5"]) == 0
    assert main(["check-leak", run, "--moments", "2", "--queries", "16"]) == 0
    assert "no leak" in capsys.readouterr().out
    table(40, start=240, seed=1).to_csv(tmp_path / "later.csv", index=False)
    command = ["stream", run, "--data", str(tmp_path / "later.csv"), "--out", str(tmp_path / "scores.csv")]
    assert main(command) == 0
    assert "40 events scored" in capsys.readouterr().out
    assert len(pd.read_csv(tmp_path / "scores.csv")) == 40
    assert main(command) == 1
    assert "streamed already" in capsys.readouterr().err
    assert main(["stream", run, "--out", str(tmp_path / "scores.csv")]) == 2
    assert main(["fit", "ctdg-ssm", "--data", str(events), "--model.filter_start=-0.6"]) == 2
    assert "use non-negative coefficients" in capsys.readouterr().err


def test_sequences_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fit", "ctdg-ssm-sequences", "--read.length=5", "--read.count=120", "--model.dim=8", "--model.order=1"]
    loop = ["--loop.epochs=8", "--loop.progress=false", "--loop.tensorboard=no", "--loop.optim.lr=1e-2"]
    assert main([*command, *loop, "--batch_size=16", "--data=path-sequences", "--out", str(tmp_path / "run")]) == 0
    assert evaluate(tmp_path / "run", device="cpu")["accuracy"] > 0.9
    assert list(predict(tmp_path / "run", split="test"))[:2] == ["sequence", "prediction"]
    assert main([*command, "--data", "paths.csv"]) == 2
    assert "give path-sequences" in capsys.readouterr().err


def test_classes_of_nodes_at_their_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A source's label is the sign of a feature of its event before: only a memory of it can tell."""
    rng = np.random.default_rng(0)
    data = table(400)
    data["weight"] = rng.choice([-1.0, 1.0], 400)
    last = data.groupby("source")["weight"].shift(1).fillna(-1)
    data["label"] = (last > 0).astype(int)
    data.to_csv(tmp_path / "labels.csv", index=False)
    flags = [f"--{k.replace('__', '.')}={v}" for k, v in SMALL.items() if not k.startswith("evaluation")]
    train = ["--batch_size=8", "--loop.epochs=5", "--loop.optim.lr=2e-2", "--model.order=0", "--model.hidden=16"]
    columns = ["--read.label_column=label", "--read.edge_columns=[weight]"]
    command = ["fit", "ctdg-ssm-nodes", "--data", str(tmp_path / "labels.csv"), *flags, *train, *columns]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    assert evaluate(tmp_path / "run")["roc_auc"] > 0.9
    scores = predict(tmp_path / "run", split="test")
    assert list(scores) == ["node", "t", "score", "label"]
    assert roc_auc(scores["label"].to_numpy(), scores["score"].to_numpy()) == evaluate(tmp_path / "run")["roc_auc"]
    assert main(["check-leak", str(tmp_path / "run"), "--moments", "2", "--queries", "16"]) == 0
    assert "no leak" in capsys.readouterr().out
    table().to_csv(tmp_path / "bare.csv", index=False)
    assert main(["fit", "ctdg-ssm-nodes", "--data", str(tmp_path / "bare.csv")]) == 1
    assert "needs classes as labels of events" in capsys.readouterr().err
