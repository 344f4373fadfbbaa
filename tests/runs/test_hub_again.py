"""A run that travelled answers with the bits of the one that was saved, whatever it is of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import hopstate
from hopstate.errors import ConfigError, MissingFileError
from hopstate.methods import MODULES, get_method
from hopstate.methods.shared.event_nodes import EventNodeRun
from made_events import small_run, table
from made_graphs import rings
from made_tables import tables

LOOP = {"epochs": 1, "progress": False, "tensorboard": "no", "device": "cpu"}
OF_EVENTS = sorted(name for name in MODULES if get_method(name).data == "events")
OF_NODES = [name for name in OF_EVENTS if issubclass(get_method(name).config, EventNodeRun)]
ON_GRAPHS = sorted(name for name in MODULES if get_method(name).data == "graph")
OF_SETS = sorted(name for name in MODULES if get_method(name).data == "graphs")
TOP = {"batching": {"kind": "top", "num_clusters": 4, "clusters_per_batch": 2}}


def test_every_method_goes_there_and_back_below() -> None:
    assert {*OF_EVENTS, *ON_GRAPHS, *OF_SETS, "ctdg-ssm-sequences"} == {*MODULES}
    assert {"dyg-mamba-nodes", "ctdg-ssm-nodes"} == {*OF_NODES}


@pytest.mark.parametrize("method", OF_NODES)
def test_labels_of_events_are_told_as_by_the_run_that_was_saved(method: str, tmp_path: Path) -> None:
    events = table(0, 160)
    events["label"] = (events["src"] < "u5").astype(int)
    events.to_csv(tmp_path / "own.csv", index=False)
    small = {"model": {"dim": 6}} if method.startswith("ctdg") else {"model": {"channel_dim": 4, "out_dim": 6}}
    run = hopstate.fit(method, tmp_path / "own.csv", out=tmp_path / "run", config={"loop": LOOP, **small})
    folder = run.save_pretrained(tmp_path / "saved")
    again = hopstate.from_pretrained(folder, out=tmp_path / "again", data=tmp_path / "own.csv")
    assert again.evaluate() == run.evaluate()
    assert again.predict().equals(run.predict())


@pytest.mark.parametrize("method", OF_SETS)
def test_sets_of_graphs_are_told_as_by_the_run_that_was_saved(method: str, tmp_path: Path) -> None:
    small = {"model": {"dim": 8}, "loop": LOOP}
    run = hopstate.fit(method, rings(), out=tmp_path / "run", config=small)
    again = hopstate.from_pretrained(run.save_pretrained(tmp_path / "saved"), out=tmp_path / "again")
    assert again.predict(rings()).equals(run.predict(rings()))


def test_sequences_are_told_as_by_the_run_that_was_saved(tmp_path: Path) -> None:
    small = {"model": {"dim": 6}, "read": {"length": 5, "count": 40}, "batch_size": 20, "loop": LOOP}
    run = hopstate.fit("ctdg-ssm-sequences", "path-sequences", out=tmp_path / "run", config=small)
    again = hopstate.from_pretrained(run.save_pretrained(tmp_path / "saved"), out=tmp_path / "again")
    assert again.evaluate() == run.evaluate()


@pytest.mark.parametrize("method", sorted({*OF_EVENTS} - {*OF_NODES}))
def test_scores_and_metrics_are_those_of_the_run_that_was_saved(method: str, tmp_path: Path) -> None:
    events = table(0, 150)
    events.to_csv(tmp_path / "own.csv", index=False)
    run = small_run(method, tmp_path, tmp_path / "own.csv")
    folder = run.save_pretrained(tmp_path / "saved")
    again = hopstate.from_pretrained(folder, out=tmp_path / "again", data=tmp_path / "own.csv")
    pairs = list(zip(events["src"][:4], events["dst"][3:7], strict=True))
    assert again.metrics == run.metrics
    assert again.score(pairs).equals(run.score(pairs))
    assert again.evaluate() == run.evaluate()


@pytest.mark.parametrize(
    ("method", "task", "more"),
    [*((name, "node", {}) for name in ON_GRAPHS), ("gcn", "link", {}), ("gcn", "node", TOP), ("sage", "node", TOP)],
    ids=str,
)
def test_predictions_on_a_graph_are_those_of_the_run_that_was_saved(
    method: str, task: str, more: dict[str, Any], tmp_path: Path
) -> None:
    edges, features, labels = tables()
    for name, own in (("edges", edges), ("features", features), ("labels", labels)):
        own.to_csv(tmp_path / f"{name}.csv", index=False)
    beside = {"features": str(tmp_path / "features.csv")} | (
        {"labels": str(tmp_path / "labels.csv")} if task == "node" else {}
    )
    run = hopstate.fit(
        method,
        tmp_path / "edges.csv",
        out=tmp_path / "run",
        config={"loop": LOOP, "task": task, "read": beside, "model": {"dim": 8}, **more},
    )
    folder = run.save_pretrained(tmp_path / "saved")
    assert str(tmp_path) not in "".join(file.read_text("utf-8") for file in folder.glob("*.json"))
    again = hopstate.from_pretrained(folder, out=tmp_path / "again", data=tmp_path / "edges.csv", read=beside)
    assert again.predict().equals(run.predict())
    grown = pd.concat([edges, edges.iloc[:3].assign(**{edges.columns[1]: "newcomer"})])
    if task == "node":
        features = pd.concat([features, features.iloc[:1].assign(**{features.columns[0]: "newcomer"})])
        with pytest.warns(hopstate.errors.HopstateWarning, match="newcomer"):
            here = run.predict(grown, read={"features": features})
        with pytest.warns(hopstate.errors.HopstateWarning, match="newcomer"):
            there = again.predict(grown, read={"features": features})
        assert there.equals(here)


def test_without_its_data_a_run_says_which_it_wants_and_goes_on_over_others(tmp_path: Path) -> None:
    events = table(0, 120)
    events.to_csv(tmp_path / "own.csv", index=False)
    run = small_run("ctdg-ssm", tmp_path, tmp_path / "own.csv")
    again = hopstate.from_pretrained(run.save_pretrained(tmp_path / "saved"), out=tmp_path / "again")
    with pytest.raises(MissingFileError, match=r"own\.csv"):
        again.score([("a", "b")])
    later = table(500, 20)
    ours = run.score_stream(later, save=tmp_path / "x")
    assert again.score_stream(later, own=tmp_path / "own.csv", save=tmp_path / "y").equals(ours)
    assert again.evaluate(later, fresh=True) == run.evaluate(later, fresh=True)


def test_what_is_asked_wrongly_is_told(tmp_path: Path) -> None:
    run = small_run("recency", tmp_path, table(0, 60))
    folder = run.save_pretrained(tmp_path / "saved")
    with pytest.raises(ConfigError, match="read has no 'colums'"):
        hopstate.from_pretrained(folder, out=tmp_path / "again", read={"colums": "a"})
    assert not (tmp_path / "again" / "config.json").exists()
    (tmp_path / "again").mkdir(exist_ok=True)
    (tmp_path / "again" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        hopstate.from_pretrained(folder, out=tmp_path / "again")
    assert (tmp_path / "again" / "thesis.txt").read_text() == "mine"
    with pytest.raises(MissingFileError, match="OWNER/NAME"):
        hopstate.from_pretrained(tmp_path / "nowhere")
