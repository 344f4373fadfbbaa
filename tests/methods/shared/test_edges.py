"""What runs make of a graph's edges: direction, weights, features; what they refuse; runs made before they did."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError, HopstateWarning
from hopstate.methods.gmn.method import EncodingConfig, GMNRun, WalksConfig
from hopstate.methods.gmn.method import build as build_gmn
from hopstate.methods.gmn.model import GMN
from hopstate.methods.method import Context
from hopstate.methods.nagphormer.hops import hop_tokens
from hopstate.methods.shared.edges import EdgeConfig
from hopstate.runs import api
from hopstate.testing.asserts import F32_TIGHT, relative_rmse
from hopstate.training.config import LoopConfig

QUICK = {"progress": False, "tensorboard": "no", "device": "cpu", "epochs": 1, "patience": None}
MODEL = {"dim": 8, "num_layers": 2, "dropout": 0.0}
N = 60


def graph(**carried: np.ndarray) -> Graph:
    """A directed graph without self-loops or repeated edges; carried arrays have a row an edge."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, N, (240, 2))
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
    x, y = rng.standard_normal((N, 4)).astype(np.float32), np.arange(N) % 2
    masks = {name: np.arange(N) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    made = {name: array[: len(ends)] for name, array in carried.items()}
    return Graph.from_edges(ends, N, undirected=False, x=x, y=y, masks=masks, name="edges", **made)


def numbers(columns: int = 1, low: float = 0.5) -> np.ndarray:
    return np.random.default_rng(3).uniform(low, 2, (240, columns)).astype(np.float32)


def fit(method: str, data: Graph, out: Path, *, resume: bool = False, **settings: object) -> api.Run:
    model = MODEL | ({"heads": 2} if method == "gat" else {})
    if method == "nagphormer":
        model = {"dim": 8, "num_heads": 2}
        settings |= {"tokens": {"num_hops": 2, "eigenvectors": 0}}
    return api.fit(method, data, out=out, resume=resume, config={"model": model, "loop": QUICK, **settings})


def probabilities(run: Path, data: Graph) -> np.ndarray:
    return api.predict(run, data=data)[["p_0", "p_1"]].to_numpy()


@pytest.mark.parametrize("weighted", [False, True])
def test_hop_averages_are_powers_of_torch_geometrics_normalisation(weighted: bool, tmp_path: Path) -> None:
    """On disk and in memory; of the reversed graph they are others."""
    data = graph(**({"edge_weight": numbers()} if weighted else {}))
    weight = torch.tensor(data.edge_weight) if weighted else None
    edges, norm = gcn_norm(torch.tensor(data.edge_index()), weight, N)
    dense = torch.zeros(N, N).index_put((edges[1], edges[0]), norm, accumulate=True)
    expected, x = [], torch.tensor(data.x)
    for _ in range(4):
        expected.append(x)
        x = dense @ x
    wanted = torch.stack(expected, 1)
    for budget in (1 << 30, 4 * 4 * N * 4 * 2):
        tokens = hop_tokens(data, 3, memory_budget=budget, folder=tmp_path)
        assert relative_rmse(tokens.rows(np.arange(N)), wanted) < 1e-6
    other = hop_tokens(data.reversed(), 3, memory_budget=1 << 30)
    assert relative_rmse(other.rows(np.arange(N)), wanted) > 1e-2


@pytest.mark.parametrize("method", ["gcn", "gcnii", "nagphormer", "gat", "gin", "pna"])
def test_what_edges_carry_is_used_and_kept(method: str, tmp_path: Path) -> None:
    """Other numbers on the edges, other predictions of the same run; the same ones from its folder."""
    data = graph(edge_attr=numbers())
    run = fit(method, data, tmp_path / "run")
    first = probabilities(run.path, data)
    assert np.array_equal(first, probabilities(run.path, data))
    other = data.with_(edge_attr=data.edge_attr * np.linspace(0.1, 3, data.num_edges, dtype=np.float32)[:, None])
    assert np.abs(first - probabilities(run.path, other)).max() > 1e-4
    plain = fit(method, data, tmp_path / "plain", edges={"use": "drop"})
    assert np.array_equal(probabilities(plain.path, data), probabilities(plain.path, other))


@pytest.mark.parametrize("kind", ["full", "top", "cluster", "gas", "neighbor", "labor", "shadow"])
@pytest.mark.parametrize("method", ["gcn", "gat"])
def test_every_batching_trains_with_them(method: str, kind: str, tmp_path: Path) -> None:
    batching = {"kind": kind, "num_clusters": 4, "clusters_per_batch": 2, "batch_size": 20, "top": {"refresh": 2}}
    run = fit(method, graph(edge_attr=numbers()), tmp_path / "run", batching=batching)
    assert np.isfinite(run.metrics["test"]["loss"])


def test_refusals_name_method_data_and_setting(tmp_path: Path) -> None:
    several, negative = graph(edge_attr=numbers(3)), graph(edge_attr=numbers(1, -1.0))
    with pytest.raises(ConfigError, match=r"sage has no place for 3 edge features.*--edges\.use drop.*gat"):
        fit("sage", several, tmp_path / "a")
    with pytest.raises(ConfigError, match=r"gcn has a place for one weight.*--edges\.weight COLUMN"):
        fit("gcn", several, tmp_path / "b")
    with pytest.raises(DataError, match=r"edge weights are negative.*the first -\S+ of edge \(\d+, \d+\)"):
        fit("gcn", negative, tmp_path / "c")
    with pytest.raises(DataError, match=r"edges\.weight=7 is a column of the edge features; edges has 3"):
        fit("nagphormer", several, tmp_path / "d", edges={"weight": 7})
    with pytest.raises(ConfigError, match=r"leave edges\.weight out"):
        fit("gat", several, tmp_path / "e", edges={"weight": 1})
    with pytest.raises(ConfigError, match=r"edges\.use=drop leaves out"):
        EdgeConfig(use="drop", weight=1)
    for settings in ({"weight": 1}, {"use": "drop"}):
        fit("gcn", several, tmp_path / next(iter(settings)), edges=settings)
    fit("mlp", several, tmp_path / "mlp")  # it reads no edges at all


def test_a_column_is_what_the_same_weights_are(tmp_path: Path) -> None:
    columns = numbers(3)
    for method in ("gcn", "nagphormer"):
        runs = [
            fit(method, graph(edge_attr=columns), tmp_path / f"{method}-column", edges={"weight": 1}),
            fit(method, graph(edge_weight=columns[:, 1]), tmp_path / f"{method}-weights"),
        ]
        assert runs[0].metrics == runs[1].metrics


def test_edge_features_of_far_apart_scales_are_said(tmp_path: Path) -> None:
    """A year among amounts is said, in training alone; weights and what is left out are not."""
    data = graph(edge_attr=np.concatenate([numbers(), 2000 + 10 * numbers()], 1) * [1e-3, 1.0])
    with pytest.warns(HopstateWarning, match=r"edge features of edges .*column 1 and column 0.*--read.scale standard"):
        run = fit("gat", data, tmp_path / "gat")
    probabilities(run.path, data)
    fit("gat", data, tmp_path / "dropped", edges={"use": "drop"})
    fit("gcn", data, tmp_path / "gcn", edges={"weight": 1})


def test_data_with_other_edge_features_than_the_trained_are_refused(tmp_path: Path) -> None:
    run = fit("gat", graph(edge_attr=numbers(3)), tmp_path / "run")
    with pytest.raises(DataError, match="edges has 2 features an edge, the model was trained with 3"):
        api.predict(run.path, data=graph(edge_attr=numbers(2)))
    with pytest.raises(DataError, match="edges has 0 features an edge"):
        api.predict(run.path, data=graph())


@pytest.mark.parametrize("method", ["gcn", "pna", "nagphormer"])
def test_flow_turns_messages_round(method: str, tmp_path: Path) -> None:
    data = graph(edge_attr=numbers())
    forward = fit(method, data, tmp_path / "forward")
    back = fit(method, data.reversed(), tmp_path / "back", edges={"flow": "target_to_source"})
    other = fit(method, data.reversed(), tmp_path / "other")
    assert forward.metrics == back.metrics
    assert forward.metrics != other.metrics


def as_made_by_0_1_0(run: Path) -> None:
    """Take out of a run folder the settings that did not exist then."""
    config = json.loads((run / "config.json").read_text())
    del config["edges"]
    (run / "config.json").write_text(json.dumps(config))
    known = json.loads((run / "data.json").read_text())
    known.pop("edge_columns")
    (run / "data.json").write_text(json.dumps(known))


@pytest.mark.parametrize("method", ["gcn", "nagphormer"])
def test_runs_made_before_keep_what_they_meant(method: str, tmp_path: Path) -> None:
    data = graph(edge_attr=numbers(3))
    meant = {"use": "drop", "flow": "target_to_source"}
    run = fit(method, data, tmp_path / "run", edges=meant)
    expected = probabilities(run.path, data)
    as_made_by_0_1_0(run.path)
    assert np.array_equal(probabilities(run.path, data), expected)
    for _ in range(2):  # the folder then says so itself
        assert fit(method, data, run.path, resume=True).metrics == run.metrics
        assert json.loads((run.path / "config.json").read_text())["edges"] == meant | {"weight": None}


def test_psi_of_a_gmn_receives_over_in_edges(tmp_path: Path) -> None:
    """Along 0 -> 1 -> ... a node's answer depends on the nodes before it; Psi alone, one layer, no walks."""
    x = np.random.default_rng(0).standard_normal((N, 4)).astype(np.float32)
    masks = {name: np.arange(N) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    chain = Graph.from_edges(
        np.stack([np.arange(N - 1), np.arange(1, N)], 1), N, undirected=False, x=x, y=np.arange(N) % 2, masks=masks,
        edge_attr=numbers()[: N - 1], name="chain",
    )  # fmt: skip
    context = Context(run=tmp_path, cache=tmp_path)
    for flow, other in (("source_to_target", chain), ("target_to_source", chain.reversed())):
        model = GMN.Config(dim=8, mpnn="gatedgcn", mpnn_layers=1)
        config = GMNRun(
            data="memory:chain", encoding=EncodingConfig(kind="none"), walks=WalksConfig(max_length=0), model=model,
            loop=LoopConfig(**QUICK), flow=flow,
        )  # fmt: skip
        task = build_gmn(chain, config, context)
        senders, receivers = task.source.graph.edge_index().tolist()
        assert sorted(zip(senders, receivers)) == sorted(zip(*other.edge_index().tolist()))
        features = {pair: float(e) for pair, e in zip(zip(senders, receivers), task.source.edge_attr[:, 0])}
        assert features == {pair: float(e) for pair, e in zip(zip(*other.edge_index().tolist()), other.edge_attr[:, 0])}
        assert task.source.prepared.table is not None


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_pna_of_a_gmn_scales_by_the_messages_that_nodes_receive(flow: str, tmp_path: Path) -> None:
    """Everyone tells node 0, who tells nobody: N - 1 messages to one node, or one to each of the others."""
    masks = {name: np.arange(N) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    x = np.random.default_rng(0).standard_normal((N, 4)).astype(np.float32)
    edges = np.stack([np.arange(1, N), np.zeros(N - 1, np.int64)], 1)
    star = Graph.from_edges(edges, N, undirected=False, x=x, y=np.arange(N) % 2, masks=masks, name="star")
    config = GMNRun(
        data="memory:star", encoding=EncodingConfig(kind="none"), walks=WalksConfig(max_length=0), flow=flow,
        model=GMN.Config(dim=8, mpnn="pna", mpnn_layers=1), loop=LoopConfig(**QUICK),
    )  # fmt: skip
    task = build_gmn(star, config, Context(run=tmp_path, cache=tmp_path))
    received = np.bincount(task.source.graph.edge_index()[1].numpy(), minlength=N)
    held = [float(value) for name, value in task.model.state_dict().items() if name.endswith("avg_deg_log")]
    assert len(held) == 1
    assert held[0] == pytest.approx(np.log(received + 1.0).mean(), rel=F32_TIGHT)
