"""Features given as arrays or objects are scaled on training rows like columns of a table."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

import hopstate
from hopstate.data.graph import Graph
from hopstate.methods.message_passing.method import FullBatchRun
from hopstate.runs.data import fit_scalers

N = 120
draw = np.random.default_rng(3)
KIND = draw.integers(0, 2, N)
LINKS = pd.DataFrame({"source": draw.integers(0, N, 360), "target": draw.integers(0, N, 360)})
X = np.stack([2.0 * KIND + draw.normal(0, 0.5, N), draw.normal(size=N), draw.integers(0, 2, N)], 1).round(3)
CONFIG = {"loop": {"epochs": 15, "progress": False, "logger": "none", "device": "cpu"}}


def _pyg(x: np.ndarray) -> Data:
    ends = torch.from_numpy(LINKS.to_numpy().T.copy())
    return Data(x=torch.from_numpy(x), edge_index=ends, y=torch.from_numpy(KIND))


def _table(x: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(x, columns=["a", "b", "c"]).assign(id=np.arange(N))


def _accuracy(data: Any, folder: Path, **more: Any) -> float:
    found: float = hopstate.fit("mlp", data, out=folder, config=CONFIG, **more).metrics["test"]["accuracy"]
    return found


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_arrays_and_tables_give_the_same_accuracy(scale: float, tmp_path: Path) -> None:
    x = X * np.array([1, scale, 1])
    expected = _accuracy(LINKS, tmp_path / "table", features=_table(x), labels=KIND)
    assert expected > 0.8
    assert _accuracy(LINKS, tmp_path / "array", features=x, labels=KIND) == expected
    assert _accuracy(LINKS, tmp_path / "tensor", features=torch.from_numpy(x), labels=KIND) == expected
    edges = LINKS.to_numpy()
    graph = Graph.from_edges(edges, N, x=x, y=KIND)
    assert _accuracy(graph, tmp_path / "record") == pytest.approx(expected, abs=0.05)
    assert _accuracy(_pyg(x), tmp_path / "pyg") == pytest.approx(expected, abs=0.05)


def test_missing_values_in_arrays_are_imputed_as_in_tables(tmp_path: Path) -> None:
    x = X.copy()
    x[::7, 1] = np.nan
    expected = _accuracy(LINKS, tmp_path / "table", features=_table(x), labels=KIND)
    assert _accuracy(LINKS, tmp_path / "array", features=x, labels=KIND) == expected
    assert _accuracy(_pyg(x), tmp_path / "pyg") == pytest.approx(expected, abs=0.05)
    x[3, 2] = np.inf
    with pytest.raises(hopstate.errors.DataError, match=r"\b3\b"):
        hopstate.fit("mlp", _pyg(x), out=tmp_path / "inf", config=CONFIG)
    for features in (x, _table(x)):
        with pytest.raises(hopstate.errors.DataError, match=r"\b3\b"):
            hopstate.fit("mlp", LINKS, features=features, labels=KIND, out=tmp_path / "inf", config=CONFIG)


def test_published_features_are_not_scaled(tmp_path: Path) -> None:
    own = Graph.from_edges(LINKS.to_numpy(), N, x=X, y=KIND)
    config = FullBatchRun(data="x")
    assert set(fit_scalers(own, config, edges=False)) == {"x"}
    published = own.with_(published=True)
    assert fit_scalers(published, config, edges=False) == {}
    published.save(str(tmp_path / "graph"))
    assert Graph.load(str(tmp_path / "graph")).published
    assert not Graph.from_pyg(published.to_pyg()).published


def test_edge_features_of_events_are_scaled(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 8, 120), rng.integers(8, 16, 120)
    made = hopstate.EventStream.from_arrays(src, dst, np.arange(120), edge_attr=rng.normal(5e6, 1e6, (120, 2)))
    model = {"channel_dim": 6, "time_dim": 6, "out_dim": 6}
    config = {"loop": CONFIG["loop"] | {"epochs": 1}, "model": model, "batch_size": 30}
    run = hopstate.fit("dyg-mamba", made, out=tmp_path / "run", config=config)
    kept = json.loads((Path(run.path) / "data.json").read_text())["features"]
    assert kept["edge_attr"]["kind"] == "standard"
