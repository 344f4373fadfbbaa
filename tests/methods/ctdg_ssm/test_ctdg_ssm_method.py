"""CTDG-SSM as a method: continued streams, deletions, new nodes and files, unchanged states, other tasks."""

import gc
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hopstate.cli.main import main
from hopstate.data.events import EventStream
from hopstate.data.stream_checkpoint import load_stream_state
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
from hopstate.io.files import locked
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.method import Context
from hopstate.runs.run import Run, evaluate, fit, load, predict, score_stream
from hopstate.testing.conformance import F32, F32_TIGHT
from made_events import SMALL, small_run, table

QUIET: dict[str, Any] = {"loop.epochs": 1, "loop.progress": False, "loop.logger": "none", "loop.device": "cpu"}
MEMORY: dict[str, Any] = {**SMALL["ctdg-ssm"], "batch_size": 20}
LINKS: dict[str, Any] = {"evaluation.strategies": ["random"], "evaluation.batch_size": 20}
OWN, NEXT = 160, 107  # events of the run, and the first time after them


@pytest.mark.parametrize("method", ["ctdg-ssm", "ctdg-ssm-nodes"])
def test_random_embeddings_follow_the_seed_of_the_run(method: str, tmp_path: Path) -> None:
    vectors = []
    for seed in (0, 1):
        config = config_from(get_method(method), {"data": "x", "model.static": "random", "loop.seed": seed})
        stream = EventStream(src=np.arange(20), dst=np.arange(1, 21), t=np.arange(20), labels=np.arange(20) % 2)
        task = get_method(method).build(stream, config, Context(run=tmp_path / str(seed), cache=tmp_path))
        vectors.append(task.model.static(torch.arange(5)))
    assert not torch.equal(*vectors)


def test_training_and_evaluation_update_the_memory_by_one_batch_size() -> None:
    def sizes(**given: int) -> tuple[int, int]:
        config = config_from(get_method("ctdg-ssm"), {"data": "x"} | given)
        return config.batch_size, config.evaluation.batch_size

    assert sizes() == (128, 128)
    assert sizes(batch_size=32) == (32, 32)
    assert sizes(**{"batch_size": 32, "evaluation.batch_size": 50}) == (32, 50)  # on request
    chosen = get_method("ctdg-ssm").auto_config(
        EventStream(src=np.arange(20), dst=np.arange(1, 21), t=np.arange(20)),
        config_from(get_method("ctdg-ssm"), {"data": "x"}),
        (),
    )
    assert len(set(sizes(**{k: v for k, v in chosen.items() if k.endswith("batch_size")}))) == 1


@pytest.fixture
def run(trained: Callable[[str], Run], tmp_path: Path) -> Run:
    """Return a copy of a trained run on 160 events at the times 0 to 106."""
    shutil.copytree(trained("ctdg-ssm").path, tmp_path / "run")
    return load(tmp_path / "run")


def later(first: int, count: int, **changed: Any) -> pd.DataFrame:
    """Return events with an amount from a time on."""
    return table(first, count, amount=True).assign(**changed)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_stream_cut_anywhere_gives_the_same_scores(run: Run, tmp_path: Path) -> None:
    """Saved after each call and continued from there; calls may separate equal timestamps."""
    data = later(NEXT, 40)
    whole = score_stream(run.path, data, save=tmp_path / "whole")
    for size in (13, 25):
        parts = [run.stream(data[i : i + size], ignore_state=i == 0) for i in range(0, 40, size)]
        pd.testing.assert_frame_equal(whole, pd.concat(parts, ignore_index=True), rtol=F32)
        states = [load_stream_state(p) for p in (tmp_path / "whole", run.path / "state")]
        memories = [past.memories(np.arange(past.num_nodes)) for past in states]
        for name in ("nodes", "memory", "output", "last_time"):
            assert np.array_equal(getattr(memories[0], name), getattr(memories[1], name)), name
        assert len(states[0]) == OWN + 40
        assert states[0].settled == states[1].settled
        assert states[0].events().content_hash == states[1].events().content_hash


def test_scores_of_a_continued_stream_equal_those_of_one_file(run: Run, tmp_path: Path) -> None:
    data = later(NEXT, 40)
    pd.concat([table(0, OWN, seed=7, amount=True), data]).to_csv(tmp_path / "both.csv", index=False)
    known = predict(run.path, data=tmp_path / "both.csv", cold_start=True)["score"].to_numpy()[OWN:]
    np.testing.assert_allclose(score_stream(run.path, data)["score"], known, rtol=F32, atol=F32_TIGHT)


def test_a_continued_stream_does_not_need_the_training_data(tmp_path: Path) -> None:
    run = small_run("ctdg-ssm", tmp_path)
    first = score_stream(run.path, table(NEXT, 30))
    own = tmp_path / "own.csv"
    own.rename(tmp_path / "away.csv")
    assert score_stream(run.path, table(NEXT + 30, 30))["score"].between(0, 1).all()
    with pytest.raises(HopstateError, match=r"own\.csv"):
        score_stream(run.path, table(NEXT, 30), ignore_state=True)
    (tmp_path / "away.csv").rename(own)
    assert score_stream(run.path, table(NEXT, 30), ignore_state=True).equals(first)


def test_two_writers_of_one_state_are_rejected(run: Run, tmp_path: Path) -> None:
    """The second writer is rejected, the first loses nothing, and another state may be written meanwhile."""
    data = later(NEXT, 30)
    with locked(run.path):
        with pytest.raises(BusyError, match="run"):
            score_stream(run.path, data, out=tmp_path / "scores.csv")
        assert not (tmp_path / "scores.csv").exists()
        score_stream(run.path, data, save=tmp_path / "other")
    assert len(score_stream(run.path, data)) == 30


def test_new_nodes_in_mid_stream(run: Run) -> None:
    first = score_stream(run.path, later(NEXT, 30, dst="stranger"))
    assert (first["dst"] == "stranger").all()
    state = load_stream_state(run.path / "state")
    assert state.node_ids is not None
    assert state.node_ids.ids[-1] == "stranger"
    assert state.num_nodes == 19
    assert score_stream(run.path, later(NEXT + 20, 30, dst="stranger"))["score"].between(0, 1).all()


def test_learned_embeddings_reject_new_nodes(tmp_path: Path) -> None:
    run = small_run("ctdg-ssm", tmp_path, **{"model.static": "learnable"})
    with pytest.raises(DataError, match="18"):
        score_stream(run.path, table(NEXT, 30).assign(dst="stranger"))
    assert not (run.path / "state" / "live.json").exists()


def test_bad_input_does_not_change_the_saved_state(run: Run, tmp_path: Path) -> None:
    settings = {"read.edge_columns": ["amount"], "loop.seed": 1}
    other = small_run("ctdg-ssm", tmp_path, table(0, OWN, seed=7, amount=True), **settings)
    data = later(NEXT, 40)
    score_stream(run.path, data)
    saved = files_of(run.path / "state")
    more = later(NEXT + 40, 40)
    with pytest.raises(TimeOrderError):
        score_stream(run.path, data)
    with pytest.raises(CheckpointError, match="state"):
        score_stream(other.path, more, state=run.path / "state")
    broken = tmp_path / "broken"
    shutil.copytree(run.path / "state", broken)
    (broken / "live.json").write_bytes(saved["live.json"][:40])
    with pytest.raises(CheckpointError, match=r"live\.json"):
        score_stream(run.path, more, state=broken)
    with pytest.raises(MissingFileError, match="none"):
        score_stream(run.path, more, state=tmp_path / "none")
    with pytest.raises(ShapeError, match="edge_attr"):
        score_stream(run.path, more, read={"edge_columns": []})
    dated = more.assign(t=pd.to_datetime(more["t"], unit="D").dt.strftime("%Y-%m-%d"))
    with pytest.raises(DataError):  # dates do not follow numbers
        score_stream(run.path, dated)
    assert files_of(run.path / "state") == saved


def test_one_batch_is_counted_once(run: Run) -> None:
    data = later(NEXT - 1, 3, t=NEXT - 1, dst="stranger")
    score_stream(run.path, data)
    saved = files_of(run.path / "state")
    with pytest.raises(DataError):
        score_stream(run.path, data)
    assert files_of(run.path / "state") == saved
    score_stream(run.path, data, ignore_state=True)
    score_stream(run.path, later(NEXT - 1, 4, t=NEXT - 1))  # others at the same time may follow
    assert len(load_stream_state(run.path / "state")) == OWN + 7


def test_deletions_of_active_edges_are_accepted_and_others_rejected(tmp_path: Path) -> None:
    data = table(0, OWN).assign(kind="add")
    run = small_run("ctdg-ssm", tmp_path, data)
    gone = data.iloc[[3, 4]].assign(kind="delete", t=[107, 108])
    added = table(NEXT + 2, 3).assign(kind="add")
    scores = score_stream(run.path, pd.concat([gone, added]))["score"]
    assert scores.isna().tolist() == [True, True, False, False, False]  # deletions have no score
    assert load_stream_state(run.path / "state").has_deletes
    with pytest.raises(DataError, match="u0"):
        score_stream(run.path, pd.DataFrame({"src": ["u0"], "dst": ["u1"], "t": [300], "kind": ["delete"]}))


def test_integer_ids_and_features_of_nodes_and_edges(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def part(start: int, nodes: int) -> EventStream:
        src, dst = rng.integers(0, nodes, (2, 60))
        attr = rng.normal(size=(60, 3)).astype(np.float32)
        return EventStream(src=src, dst=dst, t=start + np.arange(60), edge_attr=attr, num_nodes=nodes)

    x = rng.normal(size=(10, 2)).astype(np.float32)
    own, more = part(0, 10), part(60, 14)
    run = fit("ctdg-ssm", own.with_(x=x), out=tmp_path / "run", keep_data=False, config={**QUIET, **MEMORY, **LINKS})
    run = replace(run, record=None)
    gc.collect()  # an object that a reference cycle keeps alive is found in memory
    with pytest.raises(ConfigError):
        run.stream(more)
    scores = load(run.path, data=own.with_(x=x)).stream(more)
    assert scores["dst"].tolist() == more.dst.tolist()
    assert scores["score"].between(0, 1).all()
    assert load_stream_state(run.path / "state").num_nodes == 14


def test_columns_of_new_files_may_have_other_names(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Feature columns given in training need not be given again."""
    data = later(NEXT, 20)
    data.to_csv(tmp_path / "later.csv", index=False)
    data.rename(columns={"t": "at", "amount": "sum"}).to_csv(tmp_path / "renamed.csv", index=False)
    command = ["stream", str(run.path), "--out", str(tmp_path / "scores.csv"), "--data"]
    assert main([*command, str(tmp_path / "later.csv"), "--save", str(tmp_path / "own")]) == 0
    first = (tmp_path / "scores.csv").read_text()
    renamed = [*command, str(tmp_path / "renamed.csv"), "--save", str(tmp_path / "other"), "--read.time_column", "at"]
    assert main([*renamed, "--read.edge_columns", "[sum]"]) == 0
    assert (tmp_path / "scores.csv").read_text() == first
    capsys.readouterr()
    for status, wrong, name in (
        (2, ["--read.time_colum", "x"], "--read.time_column"),
        (2, ["--read.num_nodes", "many"], "read.num_nodes"),
        (2, ["--read.features", "x.npy"], "read.features"),
        (1, ["--read.edge_columns", "[sum]"], "sum"),
    ):
        assert main([*command, str(tmp_path / "later.csv"), *wrong]) == status
        assert name in capsys.readouterr().err
    assert not (run.path / "state" / "live.json").exists()


def test_later_files_may_have_more_nodes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def part(start: int, largest: int) -> pd.DataFrame:
        src, dst = rng.integers(0, 10, (2, 60))
        dst[0] = largest
        return pd.DataFrame({"src": src, "dst": dst, "t": start + np.arange(60)})

    run = small_run("ctdg-ssm", tmp_path, part(0, 9), **{"read.num_nodes": 12})
    score_stream(run.path, part(60, 30), read={"num_nodes": 50})
    assert load_stream_state(run.path / "state").num_nodes == 31
    score_stream(run.path, part(120, 60))
    assert load_stream_state(run.path / "state").num_nodes == 61


def test_later_dates_are_counted_in_the_unit_of_the_run(tmp_path: Path) -> None:
    when = pd.date_range("2026-01-01", periods=OWN, freq="h").strftime("%Y-%m-%dT%H:%M:%S.5")
    run = small_run("recency", tmp_path, table(0, OWN).assign(t=when))
    whole = table(0, 1).assign(t="2026-02-01")  # in milliseconds, like the run, not in seconds
    assert score_stream(run.path, whole)["t"].tolist() == ["2026-02-01T00:00:00.000"]


def test_a_failed_write_does_not_change_the_state(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, scores, state = later(NEXT, 20), tmp_path / "scores.csv", run.path / "state"
    file = tmp_path / "file"
    file.write_text("")
    (tmp_path / "folder.csv").mkdir()
    for wrong in (
        {"out": tmp_path / "folder.csv"},
        {"save": tmp_path, "out": scores},  # has other files
        {"save": file, "out": scores},
        {"save": file / "state", "out": scores},
    ):
        with pytest.raises(StorageError):
            score_stream(run.path, data, **wrong)

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    for name in ("safetensors.torch.save_file", "pandas.DataFrame.to_csv", "pathlib.Path.write_bytes"):
        with monkeypatch.context() as here:
            here.setattr(name, full)
            with pytest.raises(StorageError, match="no space left"):
                score_stream(run.path, data, out=scores if "Path" not in name else None)
    assert not scores.exists()
    assert not (state / "live.json").exists()
    assert not [p.name for p in (*state.iterdir(), *tmp_path.iterdir()) if p.name.endswith(".part")]
    score_stream(run.path, data, out=tmp_path / "new" / "scores.csv", save=tmp_path / "saved" / "state")
    assert (tmp_path / "new" / "scores.csv").is_file()
    assert (tmp_path / "saved" / "state" / "live.json").is_file()


def test_stream_by_command(run: Run, tmp_path: Path) -> None:
    later(NEXT, 30).to_csv(tmp_path / "later.csv", index=False)
    command = ["stream", str(run.path), "--data", str(tmp_path / "later.csv"), "--out", str(tmp_path / "scores.csv")]
    assert main(["check-leak", str(run.path), "--times", "2", "--queries", "16"]) == 0
    assert main(command) == 0
    assert len(pd.read_csv(tmp_path / "scores.csv")) == 30
    assert main(command) == 1  # they are in the state already
    assert main([*command, "--ignore-state"]) == 0
    assert main(["stream", str(run.path), "--out", str(tmp_path / "scores.csv")]) == 2
    assert main(["fit", "ctdg-ssm", "--data", str(tmp_path / "later.csv"), "--model.filter_init=-0.6"]) == 2


def test_sequence_classification(tmp_path: Path) -> None:
    """The class of a path is that of its first node, so that only a memory can predict it."""
    command = ["fit", "ctdg-ssm-sequences", "--read.length=5", "--read.count=120", "--model.dim=8", "--model.order=1"]
    loop = ["--loop.epochs=8", "--loop.progress=false", "--loop.logger=none", "--loop.optim.lr=1e-2"]
    assert main([*command, *loop, "--batch_size=16", "--data=path-sequences", "--out", str(tmp_path / "run")]) == 0
    assert evaluate(tmp_path / "run", device="cpu")["accuracy"] > 0.9
    assert list(predict(tmp_path / "run", split="test"))[:2] == ["sequence", "prediction"]
    assert main([*command, "--data", "paths.csv"]) == 2
    with pytest.raises(ConfigError, match="ctdg-ssm-sequences"):
        score_stream(tmp_path / "run", table(0, 3))


def test_node_classification_at_events(tmp_path: Path) -> None:
    """A source's label is the sign of a feature of its event before: only a memory of it can predict the label."""
    rng = np.random.default_rng(0)
    data = table(0, 400).assign(weight=rng.choice([-1.0, 1.0], 400), t=np.arange(400))
    data["label"] = (data.groupby("src")["weight"].shift(1).fillna(-1) > 0).astype(int)
    data.to_csv(tmp_path / "labels.csv", index=False)
    settings = {**QUIET, "model.dim": 8, "model.time_dim": 4, "model.order": 0, "model.hidden": 16, "batch_size": 8}
    settings |= {"model.static": "random", "model.static_dim": 4, "loop.epochs": 8, "loop.optim.lr": 2e-2}
    read = {"read.label_column": "label", "read.edge_columns": ["weight"]}
    run = fit("ctdg-ssm-nodes", tmp_path / "labels.csv", out=tmp_path / "run", config={**settings, **read})
    assert run.metrics["test"]["roc_auc"] > 0.8
    scores = predict(run.path, split="test")
    assert list(scores) == ["node", "t", "score", "label"]
    assert roc_auc(scores["label"].to_numpy(), scores["score"].to_numpy()) == pytest.approx(
        run.metrics["test"]["roc_auc"]
    )
    table(0, 100).to_csv(tmp_path / "bare.csv", index=False)
    with pytest.raises(DataError, match="labels"):
        fit("ctdg-ssm-nodes", tmp_path / "bare.csv", out=tmp_path / "none", config=settings)
