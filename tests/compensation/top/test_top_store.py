"""What is prepared for each batch is kept in files: continued after an interruption, refused for anything else."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn

from hopstate.compensation.top import top as compensation_store
from hopstate.compensation.top import wrapper
from hopstate.compensation.top.top import Top, TopConfig
from hopstate.compensation.top.wrapper import ToppedModel
from hopstate.data.graph import Graph
from hopstate.errors import CheckpointError, StorageError
from hopstate.methods.message_passing.backbones import BACKBONES
from hopstate.methods.message_passing.model import Backbone
from hopstate.sampling.subgraph import features, whole_graph

EVEN, ODD = np.arange(0, 40, 2), np.arange(1, 40, 2)


def graph_of(seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((40, 5)).astype(np.float32)
    return Graph.from_edges(rng.integers(0, 40, (90, 2)), 40, x=x)


def prepared(
    folder: Path, graph: Graph | None = None, kind: str = "gcn", dim: int = 8, seed: int = 0, **settings
) -> tuple[Top, Backbone]:
    graph = graph or graph_of()
    config = Backbone.Config(dim=dim, num_layers=2, dropout=0.0)
    torch.manual_seed(3)
    model = Backbone(config, kind=kind, in_dim=5, num_classes=3).eval()
    top = Top(graph, TopConfig(refresh=0, folder=str(folder), **settings), BACKBONES[kind].normalization, seed=seed)
    x, adjacency = whole_graph(graph)
    top.prepare(model, top.whole_pass(lambda other: other(x, adjacency)))
    return top, model


def output(top: Top, model: Backbone, nodes: np.ndarray = EVEN) -> torch.Tensor:
    return model(features(top.graph, nodes), top.batch(nodes))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("gcn", {}), ("gat", {"samples": 9}), ("gcn", {"layers": "shared"}), ("gat", {"basis": "batch"})],
)
def test_kept_batches_give_what_they_gave(kind: str, settings: dict, tmp_path: Path) -> None:
    first = output(*prepared(tmp_path, kind=kind, **settings))
    top, model = prepared(tmp_path, kind=kind, **settings)
    top.bases = []  # nothing but the files can answer
    torch.testing.assert_close(output(top, model), first)


def test_interrupted_preparation_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output(*prepared(tmp_path / "a"))
    output(*prepared(tmp_path / "whole"), EVEN)
    expected = output(*prepared(tmp_path / "whole"), ODD)

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full_disk)
        top, model = prepared(tmp_path / "a")
        with pytest.raises(StorageError, match="No space left"):
            output(top, model, ODD)
        with pytest.raises(StorageError, match="No space left"):
            prepared(tmp_path / "b")
    assert len(list((tmp_path / "a").iterdir())) == 2  # the basis, one batch, and nothing half written
    assert not any((tmp_path / "b").iterdir())
    calls = []
    monkeypatch.setattr("hopstate.compensation.top.top.basic_embeddings", lambda *a, **k: calls.append(a))
    top, model = prepared(tmp_path / "a")
    torch.testing.assert_close(output(top, model, ODD), expected)
    assert not calls
    assert len(list((tmp_path / "a").iterdir())) == 3


@pytest.mark.parametrize(
    "change", [{"graph": graph_of(1)}, {"dim": 16}, {"kind": "gin"}, {"seed": 1}, {"initialisations": 2}]
)
def test_what_was_made_for_something_else_is_refused(change: dict, tmp_path: Path) -> None:
    output(*prepared(tmp_path))
    with pytest.raises(CheckpointError):
        prepared(tmp_path, **change)


def prepared_module(folder: Path, model: nn.Module) -> ToppedModel:
    return wrapper.top(model, graph_of(), TopConfig(refresh=0, folder=str(folder)))


class Scaled(nn.Module):
    """A layer between things that neither its repr nor its weights show."""

    def __init__(self, scale: float = 1.0, act: Callable = torch.tanh, table: float = 1.0) -> None:
        super().__init__()
        self.conv = gnn.GCNConv(5, 3)
        self._scale, self.act = scale, act
        self.register_buffer("table", torch.full((5,), table))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.conv(self.act(x * self._scale * self.table), edges)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda: gnn.GCN(5, 8, 2, 3), lambda: gnn.GCN(5, 8, 2, 3, add_self_loops=False)),
        (lambda: gnn.GCN(5, 8, 2, 3), lambda: gnn.GCN(5, 8, 2, 3, act="tanh")),
        (Scaled, lambda: Scaled(scale=2.0)),
        (Scaled, lambda: Scaled(act=torch.relu)),
        (Scaled, lambda: Scaled(table=2.0)),
    ],
)
def test_models_that_print_alike_have_other_keys(first: Callable, second: Callable, tmp_path: Path) -> None:
    keys = [compensation_store.fingerprint(graph_of(), make(), TopConfig(), 0, None) for make in (first, second)]
    assert keys[0]["model"] != keys[1]["model"]
    prepared_module(tmp_path, first())
    prepared_module(tmp_path, first().train())
    with pytest.raises(CheckpointError):
        prepared_module(tmp_path, second())


def test_types_of_weights_are_part_of_the_key() -> None:
    models = gnn.GCN(5, 8, 2, 3), gnn.GCN(5, 8, 2, 3).double()
    keys = [compensation_store.fingerprint(graph_of(), model, TopConfig(), 0, None)["model"] for model in models]
    assert keys[0] != keys[1]


def test_use_does_not_change_the_key() -> None:
    """What layers keep of a call, and the mode they are in, are no part of a model."""
    graph, model = graph_of(), gnn.GCN(5, 8, 2, 3, cached=True)
    keys = [compensation_store.fingerprint(graph, model, TopConfig(), 0, None)]
    model.eval()(torch.tensor(graph.x), torch.from_numpy(graph.edge_index()))
    keys.append(compensation_store.fingerprint(graph, model, TopConfig(), 0, None))
    assert keys[0] == keys[1]


@pytest.mark.slow
def test_keys_are_the_same_in_every_process() -> None:
    code = (
        "import numpy as np, torch; from torch_geometric import nn as gnn;"
        "from hopstate.compensation.top.top import fingerprint;"
        "from hopstate.compensation.top.top import TopConfig;"
        "from hopstate.data.graph import Graph; g = Graph.from_edges(np.array([[0, 1]]), 2);"
        "m = gnn.Sequential('x, e', [(gnn.GAT(5, 8, 2, 3, act=torch.tanh, norm='batch'), 'x, e -> x')]);"
        "print(fingerprint(g, m, TopConfig(), 0, None)['model'])"
    )
    run = [sys.executable, "-W", "ignore", "-c", code]
    keys = {
        subprocess.run(
            run, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(keys) == 1


def test_keys_are_the_same_for_each_of_equal_models() -> None:
    """Torch-geometric compiles the second Sequential of a process in another way than the first."""
    graph, keys = Graph.from_edges(np.array([[0, 1]]), 2), set()
    for _ in range(3):
        model = gnn.Sequential("x, e", [(gnn.GCNConv(5, 3), "x, e -> x")])
        keys.add(compensation_store.fingerprint(graph, model, TopConfig(), 0, None)["model"])
    assert len(keys) == 1


def test_damaged_files_are_named(tmp_path: Path) -> None:
    top, model = prepared(tmp_path)
    output(top, model)
    path = next(tmp_path.glob("batch-*"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=path.name):
        output(top, model)


def test_limited_rows_are_part_of_the_key() -> None:
    graph = graph_of()
    model = Backbone(Backbone.Config(dim=8, num_layers=2), kind="gcn", in_dim=5, num_classes=3)
    keys = [compensation_store.fingerprint(graph, model, TopConfig(), 0, rows) for rows in (None, EVEN, ODD, EVEN)]
    assert keys[1] == keys[3]
    assert len({key["nodes"] for key in keys}) == 3
