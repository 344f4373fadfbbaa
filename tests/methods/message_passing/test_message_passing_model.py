from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.layers.message import Adjacency
from hopstate.methods.message_passing.model import Backbone, ResidualBlock
from hopstate.testing.conformance import ModelCase, assert_close_rmse, check_model

NODES = 8


def ring_with_chords() -> np.ndarray:
    dense = np.roll(np.eye(NODES), 1, 1)
    dense[0, 3] = dense[2, 6] = 1
    return np.minimum(dense + dense.T, 1)


def adjacency_of(dense: np.ndarray) -> Adjacency:
    rows, cols = np.nonzero(dense)
    return Adjacency.of(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))]), cols)


def permute(inputs: tuple[Tensor, Adjacency], order: Tensor) -> tuple[Tensor, Adjacency]:
    dense = inputs[1].normalized_adjacency("sum").to_dense().numpy()
    return inputs[0][order], adjacency_of(dense[order][:, order])


@pytest.mark.parametrize(
    ("kind", "jumping_knowledge"),
    [
        ("mlp", "none"),
        ("gcn", "none"),
        ("gcn", "cat"),
        ("gcn", "max"),
        ("sage", "mean"),
        ("gin", "max"),
        ("gat", "cat"),
        ("pna", "none"),
        ("gcnii", "mean"),
    ],
)
def test_conforms(kind: str, jumping_knowledge: str) -> None:
    config = Backbone.Config(
        dim=16, num_layers=3, jumping_knowledge=jumping_knowledge, block="conv" if jumping_knowledge == "cat" else "ffn"
    )
    check_model(
        ModelCase(
            make=lambda: Backbone(config, kind=kind, in_dim=5, num_classes=3),
            inputs=(torch.randn(NODES, 5), adjacency_of(ring_with_chords())),
            permute=permute,
            one=(torch.randn(1, 5), adjacency_of(np.zeros((1, 1)))),
        )
    )


@pytest.mark.parametrize("kind", ["mlp", "gcn", "sage"])
def test_block_equals_dense_formula(kind: str) -> None:
    block = ResidualBlock(kind, Backbone.Config(dim=6, dropout=0.3)).eval()
    x, dense = torch.randn(NODES, 6), torch.from_numpy(ring_with_chords()).float()
    z = block.norm(x)
    degree = dense.sum(1)
    if kind == "mlp":
        mixed = block.conv(z)
    elif kind == "gcn":
        a_hat = (dense + torch.eye(NODES)) * torch.outer((degree + 1).rsqrt(), (degree + 1).rsqrt())
        mixed = a_hat @ z @ block.conv.lin.weight.T + block.conv.bias
    else:
        mean = dense @ z / degree[:, None]
        mixed = mean @ block.conv.lin_l.weight.T + block.conv.lin_l.bias + z @ block.conv.lin_r.weight.T
    expected = x + torch.nn.functional.gelu(mixed) @ block.ffn[2].weight.T + block.ffn[2].bias
    assert_close_rmse(block(x, adjacency_of(ring_with_chords())), expected)


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_sparse_matrices_equal_torch_geometric_edge_lists(kind: str) -> None:
    """The weighted CSR form equals torch-geometric's layer on an edge list."""
    from torch_geometric.nn import GCNConv, SAGEConv

    block = ResidualBlock(kind, Backbone.Config(dim=6, dropout=0.0))
    own = GCNConv(6, 6) if kind == "gcn" else SAGEConv(6, 6)
    own.load_state_dict(block.conv.state_dict())
    adjacency = adjacency_of(ring_with_chords())
    x = torch.randn(NODES, 6)
    actual = block.conv(x, adjacency.normalized_adjacency(block.normalization))
    assert_close_rmse(actual, own(x, adjacency.edge_index()))


def layer_of(kind: str, in_dim: int, dim: int) -> nn.Module:
    """Return torch-geometric's layer."""
    from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

    if kind == "gin":
        return GINConv(nn.Linear(in_dim, dim), train_eps=True)
    if kind == "gat":
        return GATConv(in_dim, dim // 2, heads=2)
    return {"gcn": GCNConv, "sage": SAGEConv}[kind](in_dim, dim)


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat", "gin"])
@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "batch"},
        {"norm": "layer", "pre_linear": False},
        {"norm": "none", "residual": False, "pre_linear": False, "jumping_knowledge": "sum"},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_conv_blocks_equal_torch_geometrics_layers(kind: str, settings: dict[str, Any]) -> None:
    """Outputs and gradients of ReLU(N(conv(x) + W x)) written out on an edge list."""
    config = Backbone.Config(dim=6, num_layers=3, dropout=0.0, heads=2, block="conv", **settings)
    model = Backbone(config, kind=kind, in_dim=5, num_classes=3).double().eval()
    adjacency = adjacency_of(ring_with_chords())
    edges, x = adjacency.edge_index(), torch.randn(NODES, 5, dtype=torch.float64)
    layers = [layer_of(kind, 6, 6).double() for block in model.blocks]
    if not config.pre_linear:
        layers[0] = layer_of(kind, 5, 6).double()
    h, outputs = model.embed(x), []
    for layer, block in zip(layers, model.blocks, strict=True):
        layer.load_state_dict(block.conv.state_dict())
        z = layer(h, edges) + (block.residual(h) if config.residual else 0)
        h = torch.relu(block.norm(z))
        outputs.append(h)
    expected = model.head(sum(outputs) if config.jumping_knowledge == "sum" else h)
    actual = model(x, adjacency)
    assert_close_rmse(actual, expected)
    weights = [layer.get_parameter(name) for layer in layers for name, _ in layer.named_parameters()]
    ours = [block.conv.get_parameter(name) for block in model.blocks for name, _ in block.conv.named_parameters()]
    found, wanted = (
        torch.cat([grad.flatten() for grad in torch.autograd.grad(output.sin().sum(), of)])
        for output, of in ((actual, ours), (expected, weights))
    )
    assert_close_rmse(found, wanted)


def test_the_first_convolution_reads_the_features_if_possible() -> None:
    for wrong in ({"block": "ffn"}, {"num_layers": 0}, {"jumping_knowledge": "mean"}):
        with pytest.raises(ConfigError, match="pre_linear"):
            Backbone.Config(**{"block": "conv", "pre_linear": False, **wrong})
    with pytest.raises(ConfigError, match="gcnii"):
        Backbone(Backbone.Config(dim=8, block="conv", pre_linear=False), kind="gcnii", in_dim=2, num_classes=2)


@pytest.mark.parametrize("kind", ["gcn", "sage", "gin", "gat", "pna"])
def test_batch_norm_trains_on_a_single_row(kind: str) -> None:
    config = Backbone.Config(dim=8, num_layers=2, norm="batch", block="conv")
    model = Backbone(config, kind=kind, in_dim=3, num_classes=2).train()
    model(torch.randn(1, 3), adjacency_of(np.zeros((1, 1)))).sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


def test_wrong_backbone_settings_are_rejected() -> None:
    with pytest.raises(ConfigError, match="sagee"):
        Backbone(Backbone.Config(dim=8), kind="sagee", in_dim=2, num_classes=2)
    for wrong in ({"dim": 0}, {"num_layers": -1}, {"dropout": 1.0}):
        with pytest.raises(ConfigError):
            Backbone.Config(**wrong)


def test_mean_jump_equals_the_papers_formula() -> None:
    """MLP_out(1 / (L + 1) sum_l MLP_l(H_l)), l = 0 the embedding; in blocks too."""
    config = Backbone.Config(dim=8, num_layers=3, jumping_knowledge="mean", dropout=0.3)
    model = Backbone(config, kind="gcnii", in_dim=5, num_classes=3).eval()
    x, adjacency = torch.randn(NODES, 5), adjacency_of(ring_with_chords())
    layers = model.embeddings(x, adjacency)
    assert len(layers) == len(model.jumps) == 4
    mean = sum(jump(z) for jump, z in zip(model.jumps, layers)) / 4
    expected = model.head(model.norm(mean))
    assert_close_rmse(model(x, adjacency), expected)
    assert_close_rmse(model.layerwise(x, lambda: [(None, adjacency)]), expected)
    model.embed[0].weight.grad = None
    model(x, adjacency).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
