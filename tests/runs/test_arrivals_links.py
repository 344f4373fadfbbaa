"""A run of links on a graph that has grown: new links are evaluated and are no messages; pair files are rejected."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.cli.main import main
from hopstate.errors import CheckpointError, DataError, HopstateWarning
from hopstate.testing.conformance import F32

OWN, ALL = 30, 34  # nodes of the run, and of the grown graph
NAMES = np.array([f"n{i:02d}" for i in range(ALL)])
SMALL = {"link.dim": 8, "link.num_negatives": 3, "link.num_candidates": 20, "loop.epochs": 1, "loop.progress": False}
QUICK = ("gcn",)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {"model.dim": 8}) for name in ("mlp", "gcn", "sage", "gin", "gat", "pna", "gcnii", "nagphormer")},
    "gmn": ("gmn", {"model.dim": 8, "model.state_dim": 4}),
    "sage, sampled": ("sage", {"model.dim": 8, "batching.kind": "neighbor", "batching.batch_size": 10}),
    "gcn, TOP": ("gcn", {"model.dim": 8, "batching.kind": "top", "batching.batch_size": 15}),
}


def links(first: int, count: int, nodes: int) -> pd.DataFrame:
    """Return links between nodes, each once."""
    ends = np.sort(np.random.default_rng(first).integers(0, nodes, (3 * count, 2)), 1)
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
    kept = np.random.default_rng(first).permutation(len(ends))[:count]
    return pd.DataFrame({"source": NAMES[ends[kept, 0]], "target": NAMES[ends[kept, 1]]})


def features(count: int = ALL) -> pd.DataFrame:
    values = np.random.default_rng(5).random((ALL, 2))
    return pd.DataFrame({"id": NAMES, "a": values[:, 0], "b": values[:, 1]})[:count]


def keys(table: pd.DataFrame) -> set[tuple[str, ...]]:
    return {tuple(sorted(pair)) for pair in table[["source", "target"]].to_numpy().tolist()}


def grown(rows: slice = slice(None)) -> pd.DataFrame:
    old, more = links(0, 120, OWN), links(1, 60, ALL)
    fresh = more[[pair not in keys(old) for pair in map(tuple, more[["source", "target"]].to_numpy().tolist())]]
    return pd.concat([old, fresh[rows]], ignore_index=True)


def fitted(name: str, out: Path, **more: Any) -> hopstate.Run:
    method, settings = METHODS[name]
    given = links(0, 120, OWN), features(OWN)
    return hopstate.fit(method, given[0], features=given[1], out=out, task="link", **SMALL, **settings, **more)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in METHODS])
def test_every_method_is_evaluated_on_new_links(name: str, tmp_path: Path) -> None:
    run, data = fitted(name, tmp_path / "run"), grown()
    new, own = keys(data) - keys(links(0, 120, OWN)), run.predict()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        table = run.predict(data, read={"features": features()})
        found = run.evaluate(data, read={"features": features()})
    words = " ".join(str(warning.message) for warning in given)
    assert str(len(new)) in words
    assert keys(table) == keys(data)
    assert keys(table[table.split == "test"]) == new
    assert keys(table[table.split == "val"]) == keys(own[own.split == "val"])
    assert 0 < found["mrr"] <= 1
    assert np.isfinite(table["score"]).all()


def test_new_links_are_not_messages_and_training_links_are(tmp_path: Path) -> None:
    run = fitted("gcn", tmp_path / "run", **{"link.structural_features": True})

    def predict_rows(rows: slice) -> pd.DataFrame:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = run.predict(grown(rows), read={"features": features()})
        ends = np.sort(table[["source", "target"]].to_numpy(str), 1)
        return table.set_index(pd.MultiIndex.from_arrays(ends.T)).sort_index()

    few, many = predict_rows(slice(0, 10)), predict_rows(slice(None))
    kept = few.index[few["split"] == "test"]
    assert len(kept) == 10
    np.testing.assert_allclose(few.loc[kept, "score"], many.loc[kept, "score"], rtol=F32, atol=F32)
    own = run.predict()
    assert set(few["split"][few["split"] != "test"]) == {"train", "val"}
    assert (few["split"] == "train").sum() == (own["split"] != "val").sum()


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> hopstate.Run:
    """A read-only run."""
    return fitted("gcn", tmp_path_factory.mktemp("linked") / "run", **{"split.number": 3})


def test_the_runs_own_links_keep_their_split(linked: hopstate.Run) -> None:
    run = linked
    with warnings.catch_warnings():
        warnings.simplefilter("error", HopstateWarning)
        found = run.evaluate(links(0, 120, OWN), read={"features": features(OWN)})
        assert found == pytest.approx(run.metrics["test"], abs=F32)
        fewer = run.predict(links(0, 120, OWN)[:-8], read={"features": features(OWN)})
    own = {tuple(sorted(row[:2])): row[2] for row in run.predict().to_numpy().tolist()}
    assert all(own[tuple(sorted(row[:2]))] == row[2] for row in fewer.to_numpy().tolist())


def test_pairs_are_rejected_and_another_graph_is_split_again(
    linked: hopstate.Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = linked
    links(0, 9, OWN).to_csv(tmp_path / "pairs.csv", index=False)
    for command in (["evaluate"], ["predict", "--out", str(tmp_path / "out.csv")]):
        assert main([*command, str(run.path), "--data", str(tmp_path / "pairs.csv")]) == 1
        assert "--pairs" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()
    with pytest.raises(DataError, match="table"):
        run.predict(links(2, 40, OWN), read={"features": features(OWN)})
    edges, values = links(0, 100, OWN).map(lambda name: f"other {name}"), features(OWN)
    with pytest.warns(HopstateWarning):
        found = run.evaluate(edges, read={"features": values.assign(id="other " + values["id"])})
    assert 0 < found["mrr"] <= 1


@pytest.mark.parametrize("damage", ["cut", "beyond"])
def test_a_damaged_split_is_named_with_other_data_too(linked: hopstate.Run, tmp_path: Path, damage: str) -> None:
    shutil.copytree(linked.path, tmp_path / "run")
    run = hopstate.load(tmp_path / "run")
    split = run.path / "split.npz"
    if damage == "cut":
        split.write_bytes(split.read_bytes()[:300])
    else:
        with np.load(split) as file:
            kept = dict(file)
        wrong = {"beyond": kept["val"] + 10_000, "shape": np.zeros((2, 3), np.int64), "empty": None}[damage]
        kept = {name: pairs for name, pairs in (kept | {"val": wrong}).items() if pairs is not None}
        np.savez(split, **kept)
    for options in ({}, {"data": grown(), "read": {"features": features()}}):
        with pytest.raises(CheckpointError, match=r"split\.npz"):
            run.evaluate(**options)
