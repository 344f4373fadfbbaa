"""Random initializations: all trainable weights are new, and statistics are those of all nodes."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn

from hopstate.compensation.top.probes import basic_embeddings
from hopstate.compensation.top.top import Top, TopConfig
from hopstate.compensation.top.wrapper import top
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.methods.message_passing.batching import embedder
from hopstate.methods.message_passing.model import Backbone
from hopstate.testing.conformance import relative_rmse

GRAPH = Graph.from_edges(
    np.random.default_rng(0).integers(0, 60, (150, 2)),
    60,
    x=np.random.default_rng(1).standard_normal((60, 5)).astype(np.float32) + 1,
)
ONCE = TopConfig(refresh=0, num_initializations=2)


class Mixed(nn.Module):
    """A layer behind a user's own parameter."""

    def __init__(self, *, train: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 8), requires_grad=train)
        self.conv = gnn.GCNConv(8, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.conv((x @ self.weight).relu(), edges)


class Drawn(Mixed):
    """... that is initialized again."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)


def test_parameters_without_reset_parameters_are_named() -> None:
    with pytest.raises(ConfigError, match="weight"):
        top(Mixed(), GRAPH, ONCE)
    top(Mixed(), GRAPH)  # current weights need no initialization
    top(Mixed(train=False), GRAPH, ONCE)  # nor do those that do not train
    topped = top(Drawn(), GRAPH, ONCE)
    first, second = (e.values for e in basic_embeddings(topped.model, topped.embed, num_initializations=2, seed=0)[0])
    assert relative_rmse(first, second) > 0.5


def test_drawing_changes_neither_the_model_nor_the_random_state() -> None:
    model, state = Drawn(), torch.get_rng_state()
    before = [p.clone() for p in model.parameters()]
    top(model, GRAPH, ONCE)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("block", ["conv", "ffn"])
@pytest.mark.parametrize("size", [7, 25, 59])
def test_batch_norm_has_the_statistics_of_all_nodes_in_blocks_too(
    block: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hopstate.methods.message_passing.model.STEP", 7)
    config = Backbone.Config(dim=8, num_layers=3, norm="batch", block=block, dropout=0.3)
    model = Backbone(config, kind="gcn", in_dim=5, num_classes=2)
    compensation = Top(GRAPH, ONCE, "symmetric", seed=0)
    whole, blocks = (
        basic_embeddings(model, embedder(GRAPH, compensation, count), num_initializations=2, seed=0)
        for count in (60, size)
    )
    for one, other in zip(whole, blocks):
        for a, b in zip(one, other):
            assert relative_rmse(b.values, a.values) < 1e-5
            assert relative_rmse(b.sums, a.sums) < 1e-5
