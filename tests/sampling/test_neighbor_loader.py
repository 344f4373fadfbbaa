"""Compared with the documentation of torch-geometric's NeighborLoader, which needs compiled extras."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader, TemporalDataLoader
from torch_geometric.nn import GCNConv, GraphSAGE
from torch_geometric.utils import trim_to_layer

import hopstate
from hopstate.errors import ConfigError, DataError
from hopstate.sampling.neighbor_loader import NeighborLoader
from hopstate.testing.conformance import F32, F32_TIGHT


def made(num_nodes=80, edges=400, seed=0):
    """Return a directed multigraph with loops, features of nodes and edges, labels; node 0 receives nothing."""
    rng = np.random.default_rng(seed)
    edge_index = torch.from_numpy(np.stack([rng.integers(0, num_nodes, edges), rng.integers(1, num_nodes, edges)]))
    return Data(
        x=torch.from_numpy(rng.normal(size=(num_nodes, 5)).astype(np.float32)),
        y=torch.from_numpy(rng.integers(0, 3, num_nodes)),
        edge_index=edge_index,
        edge_attr=torch.arange(edges, dtype=torch.float32)[:, None],
        train_mask=torch.from_numpy(rng.random(num_nodes) < 0.5),
        name="made",
    )


def check(data, batch, fanouts):
    """Compare a directional batch with the documentation."""
    n_id, (row, col) = batch.n_id, batch.edge_index
    assert len(n_id) == batch.num_nodes == len(n_id.unique())
    assert torch.equal(batch.x, data.x[n_id])
    assert torch.equal(batch.y, data.y[n_id])
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    assert torch.equal(n_id[batch.edge_index], data.edge_index[:, batch.e_id])  # its edges are edges of the graph
    assert batch.name == "made"
    assert len(batch.num_sampled_nodes) == len(fanouts) + 1
    assert sum(batch.num_sampled_nodes) == len(n_id)
    assert sum(batch.num_sampled_edges) == len(row)
    assert batch.num_sampled_nodes[0] == batch.batch_size
    degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    node_at = np.cumsum([0, *batch.num_sampled_nodes])
    edge_at = np.cumsum([0, *batch.num_sampled_edges])
    for hop, fanout in enumerate(fanouts):
        own = slice(edge_at[hop], edge_at[hop + 1])
        rim = torch.arange(node_at[hop], node_at[hop + 1])
        assert torch.isin(col[own], rim).all()  # drawn once, in the hop after the one that reached it
        assert (row[own] < node_at[hop + 2]).all()
        counts = torch.bincount(col[own], minlength=len(n_id))[rim]
        whole = degree[n_id[rim]]
        assert len(batch.e_id[own].unique()) == len(batch.e_id[own])
        assert torch.equal(counts, whole if fanout < 0 else whole.clamp(max=fanout))


@pytest.mark.parametrize("fanouts", [[3], [2, 2], [-1, 2], [4, -1, 1], [3, 0, 2], []])
def test_a_batch_equals_the_documentation(fanouts):
    data, seen = made(), []
    seeds = data.train_mask.nonzero().view(-1)
    loader = NeighborLoader(data, fanouts, seeds, batch_size=7, shuffle=True, generator=torch.Generator())
    assert isinstance(loader, NodeLoader)
    for batch in loader:
        check(data, batch, fanouts)
        assert torch.equal(batch.n_id[: batch.batch_size], seeds[batch.input_id])  # the first ones are the seeds
        seen.append(batch.n_id[: batch.batch_size])
    assert torch.equal(torch.cat(seen).sort().values, seeds)
    found = torch.cat([batch.n_id[: batch.batch_size] for batch in NeighborLoader(data, fanouts, data.train_mask)])
    assert torch.equal(found, seeds)  # a mask selects its nodes


def test_all_neighbors_give_the_logits_of_the_full_graph():
    data = made()
    torch.manual_seed(0)
    model = GraphSAGE(5, 8, num_layers=2, out_channels=3).eval()
    with torch.no_grad():
        whole = model(data.x, data.edge_index)
        for kind in ("directional", "induced"):
            for batch in NeighborLoader(data, [-1, -1], batch_size=9, subgraph_type=kind):
                own = model(batch.x, batch.edge_index)[: batch.batch_size]
                torch.testing.assert_close(own, whole[batch.n_id[: batch.batch_size]], rtol=F32, atol=F32_TIGHT)
        for batch in NeighborLoader(data, [-1, -1], batch_size=9):
            x, edges = batch.x, batch.edge_index
            for layer, conv in enumerate(model.convs):  # the purpose of num_sampled_nodes and num_sampled_edges
                x, edges, _ = trim_to_layer(layer, batch.num_sampled_nodes, batch.num_sampled_edges, x, edges)
                x = conv(x, edges)
                x = x.relu() if layer == 0 else x
            own = whole[batch.n_id[: batch.batch_size]]
            torch.testing.assert_close(x[: batch.batch_size], own, rtol=F32, atol=F32_TIGHT)


def test_induced_holds_every_edge_among_its_nodes_and_bidirectional_each_with_its_reverse():
    data = made()
    for batch in NeighborLoader(data, [2, 2], batch_size=6, subgraph_type="induced"):
        inside = torch.isin(data.edge_index, batch.n_id).all(0).nonzero().view(-1)
        assert torch.equal(batch.e_id.sort().values, inside)
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert "num_sampled_nodes" not in batch
    for batch in NeighborLoader(data, [2, 2], batch_size=6, subgraph_type="bidirectional"):
        pairs = set(map(tuple, batch.edge_index.T.tolist()))
        assert pairs == {(b, a) for a, b in pairs}
    graph = hopstate.Graph.from_edges(np.array([[0, 1], [1, 2], [2, 3]]), 4, x=np.eye(4, dtype=np.float32))
    batch = next(iter(NeighborLoader(graph, [-1], torch.tensor([1]), batch_size=1)))
    assert sorted(batch.n_id.tolist()) == [0, 1, 2]


def test_draws_are_uniform_and_repeat_with_the_seed():
    edges = torch.stack([torch.arange(1, 11), torch.zeros(10, dtype=torch.long)])
    data = Data(x=torch.zeros(11, 1), edge_index=edges)
    torch.manual_seed(1)
    loader = NeighborLoader(data, [3], torch.tensor([0]), batch_size=1)
    counts, found = torch.zeros(10), []
    for _ in range(600):
        batch = next(iter(loader))
        counts += torch.bincount(batch.e_id, minlength=10)
        found.append(batch.e_id.tolist())
    assert ((counts - 180).abs() < 5 * (1800 * 0.1) ** 0.5).all()
    torch.manual_seed(1)
    assert [next(iter(loader)).e_id.tolist() for _ in range(5)] == found[:5]


def test_labor_reaches_fewer_nodes_on_average():
    data = made(200, 8000)
    sizes = {}
    for labor in (False, True):
        torch.manual_seed(0)
        loader = NeighborLoader(data, [5, 5], batch_size=20, labor=labor)
        batches = list(loader)
        sizes[labor] = sum(batch.num_sampled_nodes[1] for batch in batches)
        for batch in batches:
            assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert sizes[True] < 0.8 * sizes[False]


def test_dataloader_options_are_supported():
    data = made()
    loader = NeighborLoader(
        data, [3, 2], batch_size=16, num_workers=2, drop_last=True, transform=lambda batch: batch.update({"seen": True})
    )
    batches = list(loader)
    assert len(batches) == 80 // 16
    assert all(batch.seen for batch in batches)
    for batch in batches:
        check(data, batch, [3, 2])


def test_a_model_of_torch_geometric_learns_on_its_batches():
    graph = hopstate.load_dataset("sbm", num_nodes=300)
    data = graph.to_pyg()
    torch.manual_seed(0)
    model = GraphSAGE(data.num_features, 16, num_layers=2, out_channels=int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(8):
        for batch in NeighborLoader(data, [10, 10], batch_size=64, shuffle=True):
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"time_attr": "t"}, ConfigError, "time_attr"),
        ({"input_time": torch.zeros(3)}, ConfigError, "input_time"),
        ({"weight_attr": "w"}, ConfigError, "weight_attr"),
        ({"disjoint": True}, ConfigError, "disjoint"),
        ({"temporal_strategy": "last"}, ConfigError, "temporal_strategy"),
        ({"subgraph_type": "indused"}, ConfigError, "indused"),
        ({"directed": False}, ConfigError, "directed"),
        ({"num_neighbors": {("a", "to", "b"): [2]}}, ConfigError, "num_neighbors"),
        ({"num_neighbors": [2, -2]}, ConfigError, "num_neighbors"),
        ({"replace": True}, ConfigError, "replace"),
        ({"data": HeteroData()}, DataError, "HeteroData"),
        ({"data": Data(x=torch.zeros(3, 1))}, DataError, "edge_index"),
        ({"data": Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0], [3]]))}, DataError, "edge_index"),
    ],
)
def test_invalid_loader_arguments_are_rejected_by_name(more, error, message):
    with pytest.raises(error, match=message):
        NeighborLoader(**{"data": made(), "num_neighbors": [2], **more})
    assert NeighborLoader(made(), [2], temporal_strategy="uniform", disjoint=False, time_attr=None, is_sorted=True)


def test_a_seed_twice_in_a_batch_has_two_rows():
    batch = next(iter(NeighborLoader(made(), [2], torch.tensor([3, 3]), batch_size=2)))
    assert batch.n_id[:2].tolist() == [3, 3]
    with pytest.raises(DataError):
        next(iter(NeighborLoader(made(), [2], torch.tensor([3, 10**6]), batch_size=2)))


def test_events_round_trip_through_temporal_data_and_its_loader():
    rng = np.random.default_rng(0)
    events = hopstate.EventStream(
        src=rng.integers(0, 9, 50),
        dst=rng.integers(9, 20, 50),
        t=np.sort(rng.integers(0, 90, 50)),
        edge_attr=rng.normal(size=(50, 3)).astype(np.float32),
        labels=rng.integers(0, 2, 50),
    )
    data = events.to_pyg()
    batches = list(TemporalDataLoader(data, batch_size=8, neg_sampling_ratio=1.0))
    assert torch.equal(torch.cat([batch.msg for batch in batches]), torch.from_numpy(np.array(events.edge_attr)))
    back = hopstate.EventStream.from_pyg(data)
    assert back.content_hash == events.content_hash
    gone = events.with_(kind=np.array([0] * 49 + [1], np.int8))
    with pytest.raises(DataError):
        gone.to_pyg()


def test_gcn_uses_the_weights_of_sampled_edges():
    data = made()
    data.edge_weight = torch.rand(data.num_edges)
    conv = GCNConv(5, 2, normalize=False)
    whole = conv(data.x, data.edge_index, data.edge_weight)
    batch = next(iter(NeighborLoader(data, [-1], batch_size=10)))
    own = conv(batch.x, batch.edge_index, batch.edge_weight)[:10]
    torch.testing.assert_close(own, whole[:10], rtol=F32, atol=F32_TIGHT)
