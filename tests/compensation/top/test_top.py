"""TOP's exact cases (outputs and gradients), bad input, and side effects."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hopstate.compensation.top.basis import best_ridge, range_mixing, ridge_inverse, times
from hopstate.compensation.top.batch import GeneralTop, LinearTop
from hopstate.compensation.top.probes import LayerInputs, basic_embeddings, current_embeddings
from hopstate.compensation.top.top import Top, TopConfig
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.methods.message_passing.backbones import BACKBONES
from hopstate.methods.message_passing.model import Backbone
from hopstate.sampling.subgraph import features, full_graph
from hopstate.testing.conformance import relative_rmse

KINDS = ["gcn", "sage", "gin", "gcnii", "gat", "pna"]
FORMS = [(kind, ("auto", "general")[number % 2]) for number, kind in enumerate(KINDS)]


def random_graph(n: int = 40, edges: int = 90, width: int = 5, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, width)).astype(np.float32)
    return Graph.from_edges(rng.integers(0, n, (edges, 2)), n, x=x)


def backbone(kind: str, width: int = 5, layers: int = 3, **settings) -> Backbone:
    config = Backbone.Config(dim=8, num_layers=layers, dropout=0.0, **settings)
    return Backbone(config, kind=kind, in_dim=width, num_classes=3, degrees=torch.arange(6)).eval()


def prepared(graph: Graph, model: Backbone, **settings) -> Top:
    top = Top(
        graph,
        TopConfig(**{"rank": 200, "ridge": 0.0, "refresh": 0, **settings}),
        BACKBONES[model.kind].normalization,
        seed=0,
    )
    x, adjacency = full_graph(graph)
    top.prepare(model, top.full_graph_pass(lambda other: other(x, adjacency)))
    return top


def gradients(model: nn.Module, out: Tensor, weight: Tensor) -> list[Tensor]:
    model.zero_grad()
    (out * weight).sum().backward()
    return [p.grad.clone() if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]


def compare(graph: Graph, model: Backbone, top: Top, nodes: np.ndarray, tolerance: float) -> None:
    """Outputs at nodes equal full batch; so does the gradient of a loss on them, where missing nodes are twins."""
    x, adjacency = full_graph(graph)
    rows = torch.from_numpy(nodes)
    weight = torch.randn(len(nodes), 3, generator=torch.Generator().manual_seed(1))
    full = model(x, adjacency)[rows]
    expected = gradients(model, full, weight)
    small = model(features(graph, nodes), top.batch(nodes))
    actual = gradients(model, small, weight)
    assert relative_rmse(small, full) < tolerance
    joined = [torch.cat([g.flatten() for g in grads]) for grads in (actual, expected)]
    assert relative_rmse(*joined) < tolerance


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_all_nodes_in_the_batch_is_full_batch(kind: str, form: str) -> None:
    graph, model = random_graph(), backbone(kind)
    nodes = np.random.default_rng(3).permutation(40)
    compare(graph, model, prepared(graph, model, form=form), nodes, 1e-5)


def linear_model(kind: str, width: int, layers: int) -> Backbone:
    """A backbone of linear maps only: no activation, no norm."""
    model = backbone(kind, width, layers, norm="none", block="conv")
    for block in model.blocks:
        block.ffn = nn.Identity()
    return model


@pytest.mark.parametrize(
    ("kind", "form", "basis"),
    [
        ("gcn", "linear", "global"),
        ("gcn", "general", "batch"),
        ("sage", "linear", "batch"),
        ("gin", "general", "global"),
    ],
)
def test_linear_networks_are_exact(kind: str, form: str, basis: str) -> None:
    """Embeddings of any weights lie in the span of a random initialisation's; |B| exceeds the span's dimension."""
    graph, model = random_graph(120, 240, width=3), linear_model(kind, 3, 2)
    top = prepared(
        graph, model, form=form, basis=basis, num_initializations=2, samples=60 if basis == "batch" else None
    )
    nodes = np.sort(np.random.default_rng(3).permutation(120)[:60])
    x, adjacency = full_graph(graph)
    full = model(x, adjacency)[torch.from_numpy(nodes)]
    assert relative_rmse(model(features(graph, nodes), top.batch(nodes)), full) < 2e-3  # float32 basis
    inside = top.cutter.induced(nodes)
    assert len(inside.indices) < graph.degree[nodes].sum() / 1.5  # otherwise no neighbor is missing


def mirrored() -> tuple[Graph, np.ndarray]:
    """The six nodes of Figure 1 of the paper: two equal triangles joined at equal nodes, one triangle missing."""
    ends = np.array([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5], [2, 3]])
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    return Graph.from_edges(ends, 6, x=np.concatenate([x, x[[2, 1, 0]]])), np.array([0, 1, 2])


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_six_symmetric_nodes_are_exact(kind: str, form: str) -> None:
    graph, nodes = mirrored()
    model = backbone(kind, 4)
    compare_outputs_and_total_gradient(graph, model, prepared(graph, model, form=form), nodes)


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_split_twins_are_exact(kind: str, form: str) -> None:
    """Every node has a twin of equal neighbourhood and features outside the batch."""
    half = random_graph(15, 30, seed=4)
    sources, targets = half.edge_index()
    rng = np.random.default_rng(5)
    swap = rng.random(len(sources)) < 0.5  # v - u becomes v - u' and v' - u: the copy is no separate component
    lower = sources < targets
    a, b = sources[lower], targets[lower] + 15 * swap[lower]
    ends = np.concatenate([np.stack([a, b], 1), np.stack([a + 15, (b + 15) % 30], 1)])
    graph = Graph.from_edges(ends, 30, x=np.concatenate([half.x, half.x]))
    model = backbone(kind)
    compare_outputs_and_total_gradient(graph, model, prepared(graph, model, form=form), np.arange(15))


def compare_outputs_and_total_gradient(graph: Graph, model: Backbone, top: Top, nodes: np.ndarray) -> None:
    """With twins, the batch's loss has half the gradient of the same loss on nodes and twins."""
    x, adjacency = full_graph(graph)
    small = model(features(graph, nodes), top.batch(nodes))
    full = model(x, adjacency)
    assert relative_rmse(small, full[torch.from_numpy(nodes)]) < 1e-4
    square = torch.cat([g.flatten() for g in gradients(model, small.square(), torch.ones_like(small))])
    whole = torch.cat([g.flatten() for g in gradients(model, full.square(), torch.ones_like(full))])
    assert relative_rmse(2 * square, whole) < 2e-3


@pytest.mark.parametrize("kind", KINDS)
def test_forms_agree_and_outperform_dropping_neighbors(kind: str) -> None:
    graph, model = random_graph(200, 500), backbone(kind, norm="none", block="conv")
    nodes = np.arange(0, 200, 2)
    x, adjacency = full_graph(graph)
    full, small = model(x, adjacency)[torch.from_numpy(nodes)], features(graph, nodes)
    out = {}
    for form in ("auto", "general"):
        top = prepared(graph, model, form=form, ridge=1e-6, rank=40)
        batch = top.batch(nodes)
        assert isinstance(batch, LinearTop if top.linear else GeneralTop)
        out[form] = model(small, batch)
    for missing in batch.missing:
        missing.left.zero_()
    assert relative_rmse(out["auto"], out["general"]) < 1e-3
    assert relative_rmse(out["auto"], full) < 0.6 * relative_rmse(model(small, batch), full)


@pytest.mark.parametrize("kind", ["gcn", "gat"])
@pytest.mark.parametrize("nodes", [[0], [0, 1], list(range(10))])
def test_batches_with_nothing_missing_and_tiny_batches(kind: str, nodes: list[int]) -> None:
    """Two components: a whole one, part of one, and k larger than |B|."""
    ends = np.concatenate([np.stack([np.arange(9), np.arange(1, 10)], 1), [[10, 11]]])
    graph = Graph.from_edges(ends, 12, x=np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32))
    model = backbone(kind)
    top = prepared(graph, model)
    out = model(features(graph, np.array(nodes)), top.batch(np.array(nodes)))
    assert torch.isfinite(out).all()
    if len(nodes) == 10:
        full = model(*full_graph(graph))
        assert relative_rmse(out, full[:10]) < 1e-5


def test_rank_deficient_embeddings_give_a_smaller_basis() -> None:
    thin = torch.randn(50, 4) @ torch.randn(4, 30)
    columns = [thin[:, :10], thin[:, 10:]]
    basis = times(columns, range_mixing(columns, 20, seed=0))
    assert basis.shape == (50, 4)
    again = basis @ torch.linalg.lstsq(basis, thin).solution
    assert relative_rmse(again, thin) < 1e-4


def test_embeddings_that_are_not_finite_or_all_zero_are_rejected() -> None:
    bad = torch.ones(5, 3)
    bad[2, 1] = torch.nan
    with pytest.raises(DataError):
        range_mixing([torch.ones(5, 2), bad], 2, seed=0)
    graph, (zeros, some) = random_graph(), [LayerInputs(x, x) for x in (torch.zeros(40, 3), torch.randn(40, 3))]
    with pytest.raises(DataError):
        Top(graph, TopConfig(), "symmetric", seed=0).take([[zeros]])
    half = Top(graph, TopConfig(), "symmetric", seed=0)
    half.take([[zeros], [some]])  # a layer of zeros sends zeros
    batch = half.batch(np.arange(0, 40, 2))
    assert isinstance(batch, LinearTop)
    assert not (batch.missing[0].left @ batch.missing[0].weights(torch.randn(20, 3))).any()
    half = torch.cat([torch.zeros(5, 2), torch.randn(5, 2)], 1)
    assert torch.isfinite(times([half], range_mixing([half], 4, seed=0))).all()


@pytest.mark.parametrize(("s", "r"), [(30, 6), (6, 30), (1, 5), (5, 1)])
def test_ridge_inverse_is_the_pseudo_inverse_without_ridge(s: int, r: int) -> None:
    known = torch.randn(s, r, dtype=torch.float64)
    assert relative_rmse(ridge_inverse(known, 0.0), torch.linalg.pinv(known)) < 1e-6
    shrunk = ridge_inverse(known, 0.1)
    gram = known.T @ known if s >= r else known @ known.T
    eye = 0.1 * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
    expected = torch.linalg.solve(gram + eye, known.T) if s >= r else known.T @ torch.linalg.inv(gram + eye)
    assert relative_rmse(shrunk, expected) < 1e-8


def test_the_ridge_is_chosen_on_held_out_rows() -> None:
    """Little noise in few directions selects a small ridge; noise in as many directions as nodes a large one."""
    rng = torch.Generator().manual_seed(0)
    basis, weights = torch.randn(200, 6, generator=rng), torch.randn(6, 20, generator=rng)
    clean = basis @ weights
    assert best_ridge(basis[:100], basis[100:], clean[:100], clean[100:]) <= 1e-6
    basis = torch.randn(200, 90, generator=rng)
    noisy = basis[:, :6] @ weights + 3 * torch.randn(200, 20, generator=rng)
    assert best_ridge(basis[:100], basis[100:], noisy[:100], noisy[100:]) >= 1e-2


@pytest.mark.parametrize("form", ["linear", "general"])
def test_the_chosen_ridge_never_hurts_if_k_is_close_to_the_batch_size(form: str) -> None:
    """With wide random features a fixed small ridge is worse than dropping neighbors; the selected one is not."""
    graph, model = random_graph(200, 500, width=300), backbone("gcn", 300, norm="none", block="conv")
    nodes = np.arange(0, 200, 4)
    full = model(*full_graph(graph))[torch.from_numpy(nodes)]
    error = {}
    for ridge in (None, 1e-6):
        batch = prepared(graph, model, ridge=ridge, rank=48, form=form).batch(nodes)
        error[ridge] = relative_rmse(model(features(graph, nodes), batch), full)
    for missing in batch.missing:
        missing.left.zero_()
    out = relative_rmse(model(features(graph, nodes), batch), full)
    assert error[None] < error[1e-6]
    assert error[None] < 1.05 * out


def test_initialisations_are_seeded_and_change_neither_model_nor_generator() -> None:
    graph, model = random_graph(), backbone("gcn", norm="batch").train()
    x, adjacency = full_graph(graph)
    before, state = [p.clone() for p in model.state_dict().values()], torch.get_rng_state()
    embed = Top(graph, TopConfig(), "symmetric", seed=0).full_graph_pass(lambda m: m(x, adjacency))
    received = [basic_embeddings(model, embed, num_initializations=2, seed=s) for s in (0, 0, 1)]
    made = [[[e.values for e in layer] for layer in layers] for layers in received]
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values()))
    assert torch.equal(state, torch.get_rng_state())
    assert model.training
    assert [len(layer) for layer in made[0]] == [2, 2, 2]
    assert all(torch.equal(a, b) for x, y in zip(made[0], made[1]) for a, b in zip(x, y))
    assert not torch.equal(made[0][1][0], made[2][1][0])
    assert not torch.equal(made[0][1][0], made[0][1][1])
    assert abs(made[0][1][0].mean()) < 1e-5  # batch statistics, not the untrained running averages


def test_refresh_makes_present_embeddings_exact() -> None:
    """With a basis of the model's own embeddings every layer's missing messages are in its span."""
    graph, model = random_graph(150, 300), backbone("gcn", layers=2)
    top = prepared(graph, model)
    x, adjacency = full_graph(graph)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
    top.refresh(model, top.full_graph_pass(lambda other: other(x, adjacency)))
    nodes = np.arange(0, 150, 2)
    full = model(x, adjacency)[torch.from_numpy(nodes)]
    assert relative_rmse(model(features(graph, nodes), top.batch(nodes)), full) < 1e-3


@pytest.mark.parametrize("form", ["linear", "general"])
def test_enough_directions_make_gradients_exact(form: str) -> None:
    """One layer's messages change with the weights in 8 x 6 ways; the batch has enough nodes to span them all."""
    graph, model = random_graph(300, 900), backbone("gcn", layers=1, norm="none")
    with torch.no_grad():
        model.embed[0].weight.mul_(10)  # far from linear
    before, nodes = [p.clone() for p in model.parameters()], np.arange(0, 300, 2)
    x, adjacency = full_graph(graph)
    weight = torch.randn(150, 3, generator=torch.Generator().manual_seed(1))
    full = model(x, adjacency)[torch.from_numpy(nodes)]
    expected = gradients(model, full, weight)[0]  # of the features' map, which layers see only through messages
    error = {}
    for directions in (0, 8):
        top = Top(graph, TopConfig(form=form, rank=72, directions=directions), "symmetric", seed=0)
        top.prepare(model, top.full_graph_pass(lambda other: other(x, adjacency)))
        small = model(features(graph, nodes), top.batch(nodes))
        assert relative_rmse(small, full) < 1e-3
        error[directions] = relative_rmse(gradients(model, small, weight)[0], expected)
    assert error[8] < 0.003 < 0.05 < error[0]
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))


def test_keeping_some_rows_changes_nothing_but_what_is_kept() -> None:
    graph, model = random_graph(80, 200), backbone("sage")
    x, adjacency = full_graph(graph)
    made = [Top(graph, TopConfig(ridge=0.0), "mean", seed=0, rows=rows) for rows in (None, np.arange(0, 80, 2))]
    for top in made:
        top.prepare(model, top.full_graph_pass(lambda other: other(x, adjacency)))
    nodes = np.arange(0, 60, 4)
    out = [model(features(graph, nodes), top.batch(nodes)) for top in made]
    assert relative_rmse(*out) < 1e-3
    assert len(made[1].bases[0].values) == 40
    with pytest.raises(DataError, match="3"):
        made[1].batch(np.array([2, 3]))


def test_invalid_input_of_top_is_rejected() -> None:
    graph = random_graph()
    with pytest.raises(ConfigError, match=r"top\.form"):
        Top(graph, TopConfig(form="linear"), "edges", seed=0)
    with pytest.raises(ConfigError, match="GAT"):
        backbone("gat")(features(graph, np.arange(9)), prepared(graph, backbone("gcn")).batch(np.arange(9)))
    with pytest.raises(ConfigError):
        current_embeddings(backbone("mlp"), lambda m: None, lambda x: LayerInputs(x, x))
    wrongs = [{"rank": 0}, {"ridge": -1.0}, {"refresh": -1}, {"samples": 0}]
    for wrong in [*wrongs, {"directions": -1}, {"directions": 1, "refresh": 0}]:
        with pytest.raises(ConfigError):
            TopConfig(**wrong)


def test_a_basis_per_batch_has_the_width_of_the_messages() -> None:
    """k = |S| = d, also where a layer receives fewer independent columns, or several sets of weights are joined."""
    graph = random_graph(200, 500, width=2)  # the first layer receives what two features make
    model, nodes = backbone("gcn", 2, norm="none"), np.arange(0, 200, 2)
    for settings, expected in (
        ({"num_initializations": 3}, (8, 8)),
        ({"refresh": 2}, (8, 8)),
        ({"refresh": 2, "directions": 4}, (8, 8)),
        ({"rank": 5}, (5, 5)),
        ({"rank": 5, "samples": 30}, (5, 30)),
        ({"samples": 30}, (8, 30)),
    ):
        top = prepared(graph, model, **{"rank": None, "basis": "batch", **settings})
        for missing in top.batch(nodes).missing:
            assert missing.rows is not None
            assert len(missing.rows) == expected[1]
            assert missing.left.shape[1] == len(missing.right) <= expected[0]
        assert len(missing.right) == expected[0]  # of the last layer, which receives enough
