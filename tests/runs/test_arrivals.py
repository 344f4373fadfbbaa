"""New nodes are predicted, and do not affect nodes with an unchanged neighborhood."""

import warnings

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.errors import DataError
from hopstate.testing.conformance import F32, F32_TIGHT

N = 40  # of a path a0 - a1 - ...; nodes far from its end do not depend on nodes attached there
LOOP = {"epochs": 1, "progress": False}
SPLIT = {"kind": "random"}
QUICK = ("full",)
BATCHING = [
    {"kind": "full"},
    {"kind": "top", "nodes": "random", "batch_size": 20},
    {"kind": "gas", "nodes": "random", "batch_size": 20},
    {"kind": "cluster", "nodes": "random", "batch_size": 20},
    {"kind": "saint", "batch_size": 10},
    {"kind": "shadow", "batch_size": 10},
    {"kind": "neighbor", "batch_size": 10},
    {"kind": "labor", "batch_size": 10},
]


def path(count: int, extra: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return edges and features of a path of nodes, with `extra` new ones attached to its end and to each other."""
    rng = np.random.default_rng(0)
    names = [f"a{i}" for i in range(count)] + [f"new{i}" for i in range(extra)]
    ends = [(i, i + 1) for i in range(count + extra - 1)] + [(count - 1, count + i) for i in range(1, extra)]
    edges = pd.DataFrame([(names[u], names[v]) for u, v in ends], columns=["source", "target"])
    values = rng.normal(size=(200, 2))[: len(names)]
    return edges, pd.DataFrame({"id": names, "wide": values[:, 0], "tall": values[:, 1]})


def labels(features: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"id": features["id"], "label": np.where(features["wide"] > 0, "up", "down")})


def grown(run: hopstate.Run, extra: int = 4) -> pd.DataFrame:
    edges, features = path(N, extra)
    mixed = features.sample(frac=1, random_state=0)[["id", "tall", "wide"]]  # rows and columns in another order
    return run.predict(edges, read={"features": mixed}).set_index("node")


def fitted(method: str, tmp_path, **settings) -> hopstate.Run:
    edges, features = path(N)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hopstate.fit(
            method, edges, features=features, labels=labels(features), loop=LOOP, split=SPLIT, out=tmp_path / "run",
            **settings,
        )  # fmt: skip


@pytest.mark.parametrize(
    "batching",
    [pytest.param(b, marks=() if b["kind"] in QUICK else pytest.mark.slow) for b in BATCHING],
    ids=lambda b: b["kind"],
)
def test_outputs_of_nodes_out_of_reach_of_new_nodes_do_not_change(tmp_path, batching):
    run = fitted("gcn", tmp_path, batching=batching, model={"num_layers": 2, "dim": 8})
    before, after = run.predict().set_index("node"), grown(run)
    assert len(after) == N + 4
    far = [f"a{i}" for i in range(N - 4)]  # two layers, and degrees one step further
    outputs = [name for name in before.columns if name.startswith("p_")]
    assert np.allclose(before.loc[far, outputs], after.loc[far, outputs], rtol=0, atol=F32_TIGHT)
    assert not np.allclose(before.loc[[f"a{N - 1}"], outputs], after.loc[[f"a{N - 1}"], outputs], atol=F32_TIGHT)
    assert after.loc[[f"new{i}" for i in range(4)], outputs].notna().all(axis=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings", "tolerance"),
    [
        *((method, {"model": {"num_layers": 2, "dim": 8}}, F32_TIGHT) for method in ("sage", "gat", "gin")),
        ("nagphormer", {"tokens": {"num_hops": 2, "eigenvectors": 0}}, F32),
    ],
)
def test_new_nodes_with_other_backbones(tmp_path, method, settings, tolerance):
    run = fitted(method, tmp_path, **settings)
    before, after = run.predict().set_index("node"), grown(run)
    outputs, far = [name for name in before.columns if name.startswith("p_")], [f"a{i}" for i in range(N - 4)]
    assert np.allclose(before.loc[far, outputs], after.loc[far, outputs], rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("nagphormer", {"tokens": {"num_hops": 2, "eigenvectors": 3}}),
        pytest.param("gmn", {"model": {"dim": 8}}, marks=pytest.mark.slow),
    ],
)
def test_full_graph_methods_predict_new_nodes(tmp_path, method, settings):
    run = fitted(method, tmp_path, **settings)
    edges, features = path(N, 2)
    assert len(run.predict(edges, read={"features": features})) == N + 2


def test_columns_are_matched_by_name_and_scaled_as_the_run_does(tmp_path):
    run = fitted("sage", tmp_path, model={"num_layers": 1, "dim": 8})
    edges, features = path(N)
    found = run.predict(edges, read={"features": features[["id", "tall", "wide"]]})
    own = run.predict()[found.columns]
    outputs = [name for name in own.columns if name.startswith("p_")]
    assert found["node"].equals(own["node"])
    assert np.allclose(found[outputs], own[outputs], rtol=0, atol=F32_TIGHT)
    with pytest.raises(DataError, match="tall"):
        run.predict(edges, read={"features": features[["id", "wide"]]})


def test_new_nodes_from_files_with_row_numbers_as_ids(tmp_path, monkeypatch):
    from hopstate.cli.main import main

    monkeypatch.chdir(tmp_path)
    for name, count in (("old", N), ("new", N + 3)):
        edges, features = path(count)
        for table in (edges, features):
            for column in table.columns.intersection(["source", "target", "id"]):
                table[column] = table[column].str[1:].astype(int)
        edges.to_csv(f"{name}.csv", index=False)
        features.to_csv(f"{name}-features.csv", index=False)
    labels(features.assign(id=features["id"]))[:N].to_csv("labels.csv", index=False)
    hopstate.fit("sage", "old.csv", features="old-features.csv", labels="labels.csv", loop=LOOP, split=SPLIT, out="run")
    assert main(["predict", "run", "--data", "new.csv", "--read.features", "new-features.csv", "--out", "p.csv"]) == 0
    assert len(pd.read_csv("p.csv")) == N + 3
