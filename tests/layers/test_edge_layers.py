"""Layers on sparse products and compiled sums equal torch-geometric's in outputs and every gradient."""

import pytest
import torch

from hopstate.layers.edge_layers import GAT, PNA, SAGE, SparseProduct
from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import MessageBlock
from hopstate.testing.conformance import assert_close_rmse


def graph_of(n: int, some: torch.Tensor | None = None) -> Adjacency:
    """A multigraph with loops, double edges and nodes that receive nothing."""
    degree = torch.randint(0, 6, (n if some is None else len(some),))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    return Adjacency(indptr, torch.randint(0, n, (int(indptr[-1]),)), num_nodes=n, receivers=some)


def layers(dim: int) -> dict[str, torch.nn.Module]:
    made = {"gat": GAT(dim, dim, 4), "pna": PNA(dim, dim, torch.tensor([3, 5, 2, 7, 1, 4]))}
    for layer in made.values():
        layer.double()
        for parameter in layer.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    return made


@pytest.mark.parametrize("kind", ["gat", "pna"])
@pytest.mark.parametrize("some", [None, torch.tensor([4, 11, 0])])
def test_a_sparse_layer_equals_the_edge_list_layer(kind, some):
    layer, graph = layers(8)[kind], graph_of(20, some)
    h = torch.randn(20, 8, dtype=torch.float64, requires_grad=True)
    got, expected = graph.propagate(layer, "edges", 0, h), graph.receiver_rows(layer(h, graph.edge_index()))
    assert_close_rmse(got, expected)
    weight, inputs = torch.randn_like(expected), [h, *layer.parameters()]
    mine = torch.autograd.grad((got * weight).sum(), inputs)
    for name, a, b in zip(
        ["h", *dict(layer.named_parameters())], mine, torch.autograd.grad((expected * weight).sum(), inputs)
    ):
        assert_close_rmse(a, b, name=name)


@pytest.mark.parametrize("name", ["symmetric", "mean", "sum"])
def test_sparse_products_have_the_gradient_of_the_transposed_matrix(name):
    matrix = graph_of(9).normalized_adjacency(name, torch.float64)
    x = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    assert_close_rmse(SparseProduct.apply(matrix, x), matrix.to_dense() @ x)
    assert torch.autograd.gradcheck(lambda x: SparseProduct.apply(matrix, x), x, check_forward_ad=True)


def test_the_matrix_of_a_graph_is_transposed_once(monkeypatch):
    layer, graph, made = SAGE(8, 8, aggr="sum"), graph_of(9), []
    transpose = torch.Tensor.t
    monkeypatch.setattr(torch.Tensor, "t", lambda self: made.append(self.layout) or transpose(self))
    for _ in range(3):
        h = torch.randn(9, 8, requires_grad=True)
        graph.propagate(layer, "mean", 0, h).sum().backward()
    assert made.count(torch.sparse_csr) == 1


@pytest.mark.parametrize("kind", ["gat", "pna"])
def test_graphs_without_edges_or_nodes(kind):
    layer = layers(8)[kind]
    for n in (0, 3):
        graph = Adjacency(torch.zeros(n + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
        h = torch.randn(n, 8, dtype=torch.float64)
        assert_close_rmse(graph.propagate(layer, "edges", 0, h), layer(h, graph.edge_index()))


def test_pna_of_a_training_graph_without_edges_is_finite():
    for graph in (graph_of(12), Adjacency(torch.zeros(13, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))):
        h = torch.randn(12, 8, requires_grad=True)
        out = graph.propagate(PNA(8, 8, torch.tensor([12])), "edges", 0, h)
        out.sum().backward()
        assert out.isfinite().all()
        assert h.grad.isfinite().all()


def test_edge_features_use_the_edge_list():
    graph = graph_of(10)
    graph.edge_attr = torch.randn(len(graph.indices), 3)
    for layer in (GAT(8, 8, 2, edge_dim=3), PNA(8, 8, torch.tensor([1, 2, 3]), edge_dim=3)):
        h = torch.randn(10, 8)
        assert_close_rmse(
            graph.propagate(layer, "edges", 0, h), layer(h, graph.edge_index(), edge_attr=graph.edge_attr)
        )


def test_a_pna_block_stores_no_edge_list():
    block, graph = MessageBlock("pna", 8, edges=False, dropout=0.0, degrees=torch.tensor([2, 1, 3])), graph_of(12)
    h = torch.randn(12, 8)
    z = block.conv(h, graph.edge_index())
    assert_close_rmse(block.eval()(h, graph)[0], h + torch.relu(block.norm(z)))
