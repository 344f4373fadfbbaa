"""Sets of directed graphs: messages as in torch-geometric; edge features are used, or ignored with a note."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import ResGatedGraphConv

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.errors import DataError
from hopstate.methods.gmn.graph_method import GINRun, GMNGraphsRun, build, build_gin, prepared_set
from hopstate.methods.gmn.model import GMN
from hopstate.methods.gmn.node_method import EncodingConfig, GMNRun, WalksConfig, prepared_graph
from hopstate.methods.method import Context
from hopstate.testing.conformance import COARSE, F32, F32_SUM
from hopstate.training.config import LoopConfig

QUIET = LoopConfig(progress=False)
NONE = EncodingConfig(kind="none")


def listed(carry: str = "", count: int = 12) -> list[Data]:
    """Return directed graphs of 2 to 9 nodes with unsorted edges; one has no edge."""
    rng, found = np.random.default_rng(0), []
    for number in range(count):
        n = int(rng.integers(2, 10))
        edges = torch.from_numpy(rng.permutation(np.unique(rng.integers(0, n, (2 * n, 2)), axis=0)).T.copy())
        edges = edges[:, :0] if number == 5 else edges
        data = Data(x=torch.from_numpy(rng.standard_normal((n, 3))).float(), edge_index=edges, num_nodes=n)
        data.y = torch.tensor([number % 2])
        if "features" in carry:
            data.edge_attr = torch.from_numpy(rng.standard_normal((edges.shape[1], 2))).float()
        if "weights" in carry:
            data.edge_weight = torch.from_numpy(rng.random(edges.shape[1]) + 0.5).float()
        if carry == "labels":
            data.y = torch.from_numpy(rng.integers(0, 2, edges.shape[1]))
        found.append(data)
    return found


def set_of(graphs: list[Data], level: str = "graph") -> GraphSet:
    masks = {name: np.arange(len(graphs)) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    return GraphSet.from_pyg(graphs, level=level, name="toy", masks=masks)


def task_of(graphs: list[Data], tmp_path: Path, level: str = "graph", **settings: object):
    settings = {"walks": WalksConfig(max_length=0), "encoding": NONE, "loop": QUIET} | settings
    config = GMNGraphsRun(data="toy", level=level, **settings)  # type: ignore[arg-type]
    return build(set_of(graphs, level), config, Context(run=tmp_path, cache=tmp_path))


def reference(model: nn.Module, data: Data) -> Tensor:
    """Return a GIN's output on one graph, with torch-geometric's edges."""
    h, out = data.x, model.heads[0](data.x.sum(0))
    for conv, norm, head in zip(model.convs, model.norms, model.heads[1:], strict=True):
        h = norm(conv(h, data.edge_index)).relu()
        out = out + head(h.sum(0))
    return out


def test_gin_on_directed_graphs_equals_torch_geometric(tmp_path: Path) -> None:
    graphs = listed()
    made = build_gin(set_of(graphs), GINRun(data="toy", loop=QUIET), Context(run=tmp_path, cache=tmp_path))
    made.model.eval()
    with torch.no_grad():
        own = made.model(made.collate(np.array([7, 2, 5, 0]), 0, None))
        expected = torch.stack([reference(made.model, graphs[i]) for i in (7, 2, 5, 0)])
        torch.testing.assert_close(own, expected, rtol=F32, atol=F32)
        turned = [Data(x=g.x, edge_index=g.edge_index.flip(0)) for g in graphs]
        assert not torch.allclose(
            own, torch.stack([reference(made.model, turned[i]) for i in (7, 2, 5, 0)]), atol=COARSE
        )


@pytest.mark.parametrize("carry", ["", "features"])
def test_gated_messages_on_directed_graphs_equal_torch_geometric(carry: str, tmp_path: Path) -> None:
    """Messages are the sum over in-edges of gate * value, ResGatedGraphConv's, divided by the sum of the gates."""
    graphs = listed(carry)
    made = task_of(graphs, tmp_path, model=GMN.Config(dim=8, mpnn_layers=1))
    conv = made.model.mpnn.mpnn.blocks[0].conv
    inputs = made.collate(np.array([3, 9, 1]), 0, None)
    h, e = torch.randn(len(inputs.x), 8), None if not carry else torch.randn(len(inputs.edge_attr), 8)
    own, value, receiver, sender = (part.clone() for part in conv.node.weight.chunk(4))
    biases = [part.clone() for part in conv.node.bias.chunk(4)]

    def gated(weight: Tensor, bias: Tensor, edges: Tensor) -> Tensor:
        layer = ResGatedGraphConv(8, 8, root_weight=False, bias=False, edge_dim=8 if carry else None)
        wide = [nn.functional.pad(part, (0, 8 if carry else 0)) for part in (receiver, sender, weight)]
        if carry:  # the layer adds edge features to both endpoints and to the value: the gate uses them once
            wide[0] = torch.cat([receiver, conv.edge.weight], 1)
        with torch.no_grad():
            for lin, w, b in zip((layer.lin_key, layer.lin_query, layer.lin_value), wide, (*biases[2:], bias)):
                lin.weight.copy_(w)
                lin.bias.copy_(b)
            if carry:
                layer.lin_key.bias.add_(conv.edge.bias)
            return layer(h, edges, e)

    with torch.no_grad():
        found = conv(h, inputs.graph, e)[0]
        bounds = inputs.sequences[:-1]
        parts = [graphs[i].edge_index + first for i, first in zip((3, 9, 1), bounds)]
        edges = torch.cat(parts, 1)
        if carry:
            edges = inputs.graph.edge_index()  # e is in that order; the test below compares it with the graphs
        above = gated(value, biases[1], edges)
        below = gated(torch.zeros(8, 8), torch.ones(8), edges)
        expected = h @ own.T + biases[0] + torch.where(below > 0, above / below.clamp(min=1e-9), 0)
    torch.testing.assert_close(found, expected, rtol=F32_SUM, atol=F32_SUM)
    assert sorted(zip(*inputs.graph.edge_index().tolist())) == sorted(zip(*torch.cat(parts, 1).tolist()))


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_edge_features_and_edge_labels_follow_their_edges(flow: str, tmp_path: Path) -> None:
    graphs = listed("labels")
    for data in graphs:
        data.edge_attr = data.edge_index.T.float() * 100 + data.y[:, None].float()
    made = task_of(graphs, tmp_path, "edge", flow=flow, model=GMN.Config(dim=8, mpnn_layers=1))
    ids = np.array([4, 8])
    inputs = made.collate(ids, 0, None)
    shift = torch.repeat_interleave(inputs.sequences[:-1], inputs.sequences.diff())
    ends = inputs.graph.edge_index() - shift[inputs.graph.indices]
    ends = ends if flow == "source_to_target" else ends.flip(0)
    torch.testing.assert_close((inputs.edge_attr / 100).floor(), ends.T.float())
    with torch.no_grad():
        table = made.predict("all")
    at = [np.lexsort(g.edge_index.numpy()[::-1]) for g in graphs]
    for column, row in (("source", 0), ("target", 1)):
        stored = np.concatenate([g.edge_index[row].numpy()[order] for g, order in zip(graphs, at)])
        np.testing.assert_array_equal(table[column], stored)
    pairs = torch.cat([graphs[i].edge_index.T[torch.from_numpy(at[i])] for i in ids])
    torch.testing.assert_close(inputs.pairs - shift[inputs.pairs[:, 0]][:, None], pairs)
    labels = np.concatenate([g.y.numpy()[order] for g, order in zip(graphs, at)])
    np.testing.assert_array_equal(made.y, labels)


def ring(weights: bool = False, n: int = 12) -> Data:
    """Return a ring with every edge in both directions, each with its own feature: 100 * source + target."""
    nodes = torch.arange(n)
    there = torch.stack([nodes, (nodes + 1) % n])
    edges = torch.cat([there, there.flip(0)], 1)
    carried = (100 * edges[0] + edges[1]).float()
    carried = {"edge_weight": carried + 1} if weights else {"edge_attr": carried[:, None]}
    return Data(x=torch.ones(n, 1), edge_index=edges, y=torch.tensor([0]), num_nodes=n, **carried)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_edges_in_both_directions_keep_their_own_features(flow: str, weights: bool, tmp_path: Path) -> None:
    """Node 0 receives over 1 -> 0 and 11 -> 0, in one graph and packed with others."""
    data, walks = ring(weights), WalksConfig(max_length=2)
    shared = {"flow": flow, "walks": walks, "encoding": NONE, "model": GMN.Config(dim=8, mpnn_layers=1), "loop": QUIET}
    context = Context(run=tmp_path, cache=tmp_path)
    carried = {"edge_weight": data.edge_weight.numpy()} if weights else {"edge_attr": data.edge_attr.numpy()}
    one = Graph.from_edges(data.edge_index.numpy(), undirected=False, x=data.x.numpy(), **carried)
    single, _ = prepared_graph(one, GMNRun(data="toy", **shared), context)
    packed, _ = prepared_set(set_of([data] * 3), GMNGraphsRun(data="toy", **shared), context)
    expected = np.array([[100.0], [1100.0]] if flow == "source_to_target" else [[1.0], [11.0]]) + weights
    for ready in (single, packed):
        assert ready.indices[:2].tolist() == [1, 11]
        np.testing.assert_array_equal(ready.edge_attr[:2], expected)
    np.testing.assert_array_equal(packed.edge_attr, np.tile(single.edge_attr, (3, 1)))


def test_tokens_walk_against_the_direction_of_messages(tmp_path: Path) -> None:
    """On 0 -> 1 -> 2 -> 3 node 3's tokens hold nodes before it, those of node 0 only itself."""
    chain = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), y=torch.tensor([0]))
    walks = WalksConfig(max_length=2, repeats=1, walks=4)
    made = task_of([chain] * 6, tmp_path, model=GMN.Config(dim=8, mpnn_layers=1), walks=walks)
    inputs = made.collate(np.array([0]), 0, None)
    bounds, nodes = inputs.token_offsets.tolist(), inputs.token_nodes.tolist()
    token_nodes = [set(nodes[a:b]) for a, b in pairwise(bounds)]
    by_node = [set().union(*token_nodes[3 * v : 3 * v + 3]) for v in range(4)]
    assert by_node == [{0}, {0, 1}, {0, 1, 2}, {1, 2, 3}]


def outputs(graphs: list[Data], tmp_path: Path, seed: int = 0, **settings: object) -> Tensor:
    torch.manual_seed(seed)
    made = task_of(graphs, tmp_path, **settings)
    made.model.eval()
    with torch.no_grad():
        return made.model(made.collate(np.arange(4), 0, None))


@pytest.mark.parametrize("carry", ["weights", "features", "features and weights"])
def test_edge_features_are_used_or_ignored_with_a_note(
    carry: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graphs, loud = listed(carry), LoopConfig(progress=True)
    other = [Data(**g.to_dict()) for g in graphs]
    for data in other:
        key = "edge_weight" if "weights" in carry else "edge_attr"
        data[key] = data[key] * 2 + 1
    reading = {"model": GMN.Config(dim=8, mpnn_layers=1)}
    assert not torch.allclose(outputs(graphs, tmp_path, **reading), outputs(other, tmp_path, **reading))
    bare = {"edges": "drop", **reading}
    torch.testing.assert_close(outputs(graphs, tmp_path, **bare), outputs(other, tmp_path, **bare))
    capsys.readouterr()
    torch.testing.assert_close(
        *(outputs(g, tmp_path, model=GMN.Config(dim=8, mpnn="gin", mpnn_layers=1), loop=loud) for g in (graphs, other))
    )
    assert "toy" in capsys.readouterr().err
    build_gin(set_of(graphs), GINRun(data="toy", loop=loud), Context(run=tmp_path, cache=tmp_path))
    assert "toy" in capsys.readouterr().err


def test_a_changed_number_of_edge_features_is_rejected(tmp_path: Path) -> None:
    config = GMNGraphsRun(data="toy", model=GMN.Config(dim=8, mpnn="gatedgcn"), encoding=NONE, loop=QUIET)
    own = build(set_of(listed("features")), config, Context(run=tmp_path, cache=tmp_path))
    known = {"num_features": 3, "class_names": ["0", "1"], "walks": own.walks, "edge_columns": own.model.edge_dim}
    context = Context(run=tmp_path, cache=tmp_path, trained=known)
    assert build(set_of(listed("features")), config, context).model.edge_dim == 2
    with pytest.raises(DataError, match="toy"):
        build(set_of(listed()), config, context)
