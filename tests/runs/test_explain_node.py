"""Attribution of a node's prediction to features and edges, and torch-geometric's explainers on a run."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.nn import GATConv, GCN2Conv, GCNConv, PNAConv, SAGEConv

import hopstate
from hopstate.cli.main import main
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.runs.load import load_run

QUIET = {
    "loop.progress": False,
    "loop.logger": "none",
    "loop.device": "cpu",
    "loop.epochs": 3,
    "model.num_layers": 2,
}
SMALL = {"model.dim": 8, "model.num_layers": 2, **QUIET}
HEADS = {
    "gat": {"model.heads": 2},
    "nagphormer": {"model.num_heads": 2, "tokens.num_hops": 2, "tokens.eigenvectors": 0},
}


@pytest.fixture(autouse=True, scope="module")
def parents() -> None:
    """Use torch-geometric's own layers first, like a user with other networks."""
    for conv in (GCNConv, SAGEConv, GATConv):
        conv(2, 2)
    GCN2Conv(2, 0.1)
    PNAConv(2, 2, ["mean"], ["identity"], torch.tensor([0, 1]))


def path_graph(nodes: int = 30) -> Graph:
    """Return a path, so that nodes within some hops are known."""
    rng = np.random.default_rng(0)
    edges = np.stack([np.arange(nodes - 1), np.arange(1, nodes)], 1)
    x = rng.normal(size=(nodes, 3)).astype(np.float32)
    return Graph.from_edges(edges, nodes, undirected=True, x=x, y=(x[:, 0] > 0).astype(np.int64), name="path")


@pytest.mark.parametrize("method", ["gcn", "sage", "gin", "gat", "pna", "gcnii", "nagphormer"])
def test_only_features_and_edges_within_reach_contribute(method: str, tmp_path: Path) -> None:
    run = hopstate.fit(method, path_graph(), out=tmp_path / "run", config={**SMALL, **HEADS.get(method, {})})
    found = hopstate.explain(run.path, node=10)
    near = range(8, 13)
    assert set(found.nodes["node"]) <= ({10} if method == "nagphormer" else set(near))
    assert set(found.edges["source"]) | set(found.edges["target"]) <= set(near)
    assert len(found.edges) == (0 if method == "nagphormer" else 6)  # 9-10-11 both hops, 8-9 and 12-11 one
    with load_run(run.path) as (_, task), torch.no_grad():
        module, inputs = run.model.as_pyg()
        x, *rest = inputs.values()
        assert float(module(x, *rest)[10].max()) == pytest.approx(found.logit, abs=1e-5)
        assert torch.allclose(module(x, *rest), task.logits(np.arange(30)), atol=1e-5)
        eps = 1e-2  # the features' sum is the derivative along x itself
        up, down = (float(module(x * (1 + sign * eps), *rest)[10].max()) for sign in (1, -1))
    assert found.nodes["contribution"].sum() == pytest.approx((up - down) / (2 * eps), rel=0.05, abs=1e-3)


def test_networks_per_relation_name_those_that_explain(tmp_path: Path) -> None:
    graph = path_graph()
    graph = graph.with_(relation=np.arange(graph.num_edges, dtype=np.int32) % 2, relation_names=("a", "b"))
    config = {**SMALL, "model.heads": 2}
    typed = {name: hopstate.fit(name, graph, out=tmp_path / name, config=config) for name in ("rgcn", "gat")}
    with pytest.raises(ConfigError, match=r"--node .*rgcn .*gat"):
        hopstate.explain(typed["rgcn"].path, node=10)
    assert len(hopstate.explain(typed["gat"].path, node=10).edges) == 6


def test_the_contribution_of_an_edge_is_that_of_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For one linear layer, the contribution is close to the change of the logit without the edge."""
    monkeypatch.setattr(torch.nn.ReLU, "forward", lambda self, x: x)
    config = {**SMALL, "model.num_layers": 1, "model.block": "conv", "model.norm": "none"}
    run = hopstate.fit("gin", path_graph(), out=tmp_path / "run", config=config)
    found = hopstate.explain(run.path, node=10)
    module, inputs = run.model.as_pyg()
    edges = inputs["edge_index"]
    for source, target, share in found.edges.itertuples(index=False):
        kept = ~((edges[0] == source) & (edges[1] == target))
        with torch.no_grad():
            less = float(module(inputs["x"], edges[:, kept])[10, int(found.output)])
        assert found.logit - less == pytest.approx(share, rel=0.3, abs=0.02)


def test_torch_geometrics_explainer_accepts_a_run(tmp_path: Path) -> None:
    from torch_geometric.explain import Explainer, GNNExplainer

    run = hopstate.fit("gcn", path_graph(), out=tmp_path / "run", config=SMALL)
    module, inputs = run.model.as_pyg()
    how = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    masks = {"node_mask_type": "attributes", "edge_mask_type": "object"}
    explainer = Explainer(module, GNNExplainer(epochs=5), explanation_type="model", model_config=how, **masks)
    found = explainer(inputs["x"], inputs["edge_index"], index=10)
    reached = inputs["edge_index"][:, found.edge_mask > 0]
    assert reached.shape[1] > 0
    assert set(reached.flatten().tolist()) <= set(range(8, 13))


def test_the_command_names_ids_features_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = path_graph()
    table = pd.DataFrame(graph.x, columns=["age", "income", "visits"]).assign(id=[f"n{i}" for i in range(30)])
    table.assign(label=np.where(graph.y, "yes", "no")).to_csv(tmp_path / "nodes.csv", index=False)
    pairs = [(f"n{i}", f"n{i + 1}") for i in range(29)]
    pd.DataFrame(pairs, columns=["source", "target"]).to_csv(tmp_path / "edges.csv", index=False)
    files = {"features": str(tmp_path / "nodes.csv"), "labels": str(tmp_path / "nodes.csv")}
    run = hopstate.fit("sage", tmp_path / "edges.csv", out=tmp_path / "run", config=SMALL, **files)
    capsys.readouterr()
    assert main(["explain", "--json", str(run.path), "--node", "n10", "--out", str(tmp_path / "why.csv")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["feature"] for row in found["features"]} >= {"age", "income", "visits"}
    assert {row["node"] for row in found["nodes"]} <= {f"n{i}" for i in range(8, 13)}
    assert [Path(path).name for path in found["written"]] == ["why.csv", "why-nodes.csv", "why-edges.csv"]
    assert len(pd.read_csv(tmp_path / "why-edges.csv")) == len(found["edges"])
    with pytest.raises(DataError, match="n99"):
        hopstate.explain(run.path, node="n99")
    with pytest.raises(ConfigError, match="plot"):
        hopstate.explain(run.path, node="n10", plot=tmp_path / "a.png")
    config = {**SMALL, **HEADS["nagphormer"], "tokens.eigenvectors": 2}
    run = hopstate.fit("nagphormer", tmp_path / "edges.csv", out=tmp_path / "hops", config=config, **files)
    names = [f"hop {k}: {name}" for k in range(3) for name in ("age", "income", "visits", "encoding 0", "encoding 1")]
    assert sorted(hopstate.explain(run.path, node="n10").features["feature"]) == sorted(names)


@pytest.mark.parametrize("local", ["gatedgcn", "sage"])
def test_messages_within_tokens_count_for_edges(local: str, tmp_path: Path) -> None:
    """For a GMN without node layers, the contribution of an edge is the derivative along its messages."""
    walks = {"walks.max_length": 2, "walks.repeats": 1, "encoding.kind": "none"}
    config = {**QUIET, "model.dim": 8, "model.node_layers": 0, "model.mpnn": "none", "model.local": local, **walks}
    del config["model.num_layers"]
    run = hopstate.fit("gmn", path_graph(), out=tmp_path / "run", config=config)
    found = hopstate.explain(run.path, node=10)
    assert set(found.edges["source"]) | set(found.edges["target"]) <= set(range(8, 13))
    assert len(found.edges) > 4
    if local == "gatedgcn":
        module, inputs = run.model.as_pyg()
        inside = inputs["token_edge_index"]
        ends = inputs["token_nodes"][inside]
        source, target, share = found.edges.iloc[0]
        along = ((ends[0] == source) & (ends[1] == target)).float()
        outputs = []
        for eps in (1e-2, -1e-2):
            inside.message_mask = 1 + eps * along
            with torch.no_grad():
                outputs.append(float(module(*inputs.values())[10].max()))
        assert share == pytest.approx((outputs[0] - outputs[1]) / 2e-2, rel=0.05)


def test_captum_accepts_a_run(tmp_path: Path) -> None:
    """As in docs/migrate.md; attributions add up to the difference of the logit from zero features."""
    attr = pytest.importorskip("captum.attr")
    run = hopstate.fit("gcn", path_graph(), out=tmp_path / "run", config=SMALL)
    module, inputs = run.model.as_pyg()
    x, *rest = inputs.values()
    gradients = attr.IntegratedGradients(lambda graphs: module(graphs[0], *rest)[[10]])
    found = gradients.attribute(x[None], target=1, internal_batch_size=1)[0]
    assert set(found.abs().sum(1).nonzero()[:, 0].tolist()) <= set(range(8, 13))
    with torch.no_grad():
        gained = module(x, *rest)[10, 1] - module(torch.zeros_like(x), *rest)[10, 1]
    assert float(found.sum()) == pytest.approx(float(gained), rel=0.05, abs=1e-3)
