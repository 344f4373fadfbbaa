"""A loaded run gives the results of the saved run, for every kind of data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import hopstate
from hopstate.errors import ConfigError, MissingFileError
from hopstate.methods import MODULES, get_method
from hopstate.methods.shared.event_nodes import EventNodeRun
from hopstate.testing.conformance import F32, F32_TIGHT
from made_events import table
from made_graphs import rings
from made_tables import tables

LOOP = {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}
OF_EVENTS = sorted(name for name in MODULES if get_method(name).data == "events")
OF_NODES = [name for name in OF_EVENTS if issubclass(get_method(name).config, EventNodeRun)]
ON_GRAPHS = sorted(name for name in MODULES if get_method(name).data == "graph")
OF_SETS = sorted(name for name in MODULES if get_method(name).data == "graphs")
near = partial(pd.testing.assert_frame_equal, rtol=F32, atol=F32_TIGHT)
TOP = {"batching": {"kind": "top", "num_clusters": 4, "clusters_per_batch": 2}}


def quick(names: Iterable[str], *few: str) -> list[Any]:
    return [name if name in few else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("method", quick(OF_NODES, "event-trees"))
def test_event_labels_are_predicted_like_the_saved_run(method: str, tmp_path: Path) -> None:
    events = table(0, 160)
    events["label"] = (events["src"] < "u5").astype(int)
    events.to_csv(tmp_path / "own.csv", index=False)
    small = {
        "ctdg-ssm-nodes": {"dim": 6},
        "dyg-mamba-nodes": {"channel_dim": 4, "out_dim": 6},
        "event-trees": {"num_trees": 5},
    }[method]
    run = hopstate.fit(method, tmp_path / "own.csv", out=tmp_path / "run", config={"loop": LOOP, "model": small})
    folder = run.save_pretrained(tmp_path / "saved")
    again = hopstate.from_pretrained(folder, out=tmp_path / "again", data=tmp_path / "own.csv")
    near(again.predict(), run.predict())


@pytest.mark.parametrize("method", quick(OF_SETS, "gin-graphs"))
def test_graph_sets_are_predicted_like_the_saved_run(method: str, tmp_path: Path) -> None:
    small = {"model": {"dim": 8}, "loop": LOOP}
    run = hopstate.fit(method, rings(), out=tmp_path / "run", config=small)
    again = hopstate.from_pretrained(run.save_pretrained(tmp_path / "saved"), out=tmp_path / "again")
    near(again.predict(rings()), run.predict(rings()))


@pytest.mark.slow
def test_sequences_are_evaluated_like_the_saved_run(tmp_path: Path) -> None:
    small = {"model": {"dim": 6}, "read": {"length": 5, "count": 40}, "batch_size": 20, "loop": LOOP}
    run = hopstate.fit("ctdg-ssm-sequences", "path-sequences", out=tmp_path / "run", config=small)
    again = hopstate.from_pretrained(run.save_pretrained(tmp_path / "saved"), out=tmp_path / "again")
    assert again.evaluate() == pytest.approx(run.evaluate())


@pytest.mark.parametrize("method", quick(sorted({*OF_EVENTS} - {*OF_NODES}), "pair-trees"))
def test_scores_and_metrics_equal_those_of_the_saved_run(
    method: str, trained: Callable[[str], hopstate.Run], tmp_path: Path
) -> None:
    run = trained(method)
    own = run.path.with_suffix(".csv")
    again = hopstate.from_pretrained(run.save_pretrained(tmp_path / "saved"), out=tmp_path / "again", data=own)
    pairs = list(zip(*(pd.read_csv(own)[end][:4] for end in ("src", "dst")), strict=True))
    assert again.metrics == run.metrics
    near(again.score(pairs), run.score(pairs))
    assert again.evaluate() == pytest.approx(run.metrics["test"])


@pytest.mark.parametrize(
    ("method", "task", "more"),
    [
        ("gcn", "node", {}),
        pytest.param("gcn", "link", {}, marks=pytest.mark.slow),
        *(pytest.param(name, "node", {}, marks=pytest.mark.slow) for name in ON_GRAPHS if name != "gcn"),
        *(pytest.param(name, "node", TOP, marks=pytest.mark.slow) for name in ("gcn", "sage")),
    ],
    ids=str,
)
def test_predictions_on_a_graph_equal_those_of_the_saved_run(
    method: str, task: str, more: dict[str, Any], tmp_path: Path
) -> None:
    edges, features, labels = tables()
    if method == "rgcn":
        edges["relation"] = ["likes", "buys"] * (len(edges) // 2)
    for name, own in (("edges", edges), ("features", features), ("labels", labels)):
        own.to_csv(tmp_path / f"{name}.csv", index=False)
    read = {"features": str(tmp_path / "features.csv")} | (
        {"labels": str(tmp_path / "labels.csv")} if task == "node" else {}
    )
    read |= {"relation_column": "relation"} if method == "rgcn" else {}
    run = hopstate.fit(
        method,
        tmp_path / "edges.csv",
        out=tmp_path / "run",
        config={"loop": LOOP, "task": task, "read": read, "model": {"dim": 8}, **more},
    )
    folder = run.save_pretrained(tmp_path / "saved")
    assert str(tmp_path) not in "".join(file.read_text("utf-8") for file in folder.glob("*.json"))
    again = hopstate.from_pretrained(folder, out=tmp_path / "again", data=tmp_path / "edges.csv", read=read)
    near(again.predict(), run.predict())
    grown = pd.concat([edges, edges.iloc[:3].assign(**{edges.columns[1]: "newcomer"})])
    if task == "node":
        features = pd.concat([features, features.iloc[:1].assign(**{features.columns[0]: "newcomer"})])
        near(
            again.predict(grown, read=read | {"features": features}),
            run.predict(grown, read=read | {"features": features}),
        )


def test_without_its_data_a_run_names_them_and_works_on_others(
    trained: Callable[[str], hopstate.Run], tmp_path: Path
) -> None:
    run = trained("ctdg-ssm")
    again = hopstate.from_pretrained(run.save_pretrained(tmp_path / "saved"), out=tmp_path / "again")
    with pytest.raises(MissingFileError, match=r"ctdg-ssm\.csv"):
        again.score([("a", "b")])
    later = table(500, 20, amount=True)
    ours = run.stream(later, save=tmp_path / "x", ignore_state=True)
    opened = hopstate.load(again.path, data=run.path.with_suffix(".csv"))
    near(opened.stream(later, save=tmp_path / "y", ignore_state=True), ours)
    assert again.evaluate(later, cold_start=True) == pytest.approx(run.evaluate(later, cold_start=True))


def test_wrong_options_and_folders_are_rejected(trained: Callable[[str], hopstate.Run], tmp_path: Path) -> None:
    folder = trained("recency").save_pretrained(tmp_path / "saved")
    with pytest.raises(ConfigError, match="colums"):
        hopstate.from_pretrained(folder, out=tmp_path / "again", read={"colums": "a"})
    assert not (tmp_path / "again" / "config.json").exists()
    (tmp_path / "again").mkdir(exist_ok=True)
    (tmp_path / "again" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="again"):
        hopstate.from_pretrained(folder, out=tmp_path / "again")
    assert (tmp_path / "again" / "thesis.txt").read_text() == "mine"
    with pytest.raises(MissingFileError, match="nowhere"):
        hopstate.from_pretrained(tmp_path / "nowhere")
