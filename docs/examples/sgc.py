"""Simple graph convolution: a linear classifier on the features averaged over K hops.

    Z = softmax(A_hat^K X W + b)

Source: Wu et al., ICML 2019, arXiv:1902.07153, Equation 8. Deviation: the mean over hops 0..K (`average`) is an option.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.methods.method import Context, Method
from hopstate.methods.shared.node import NodeRun, check_width, node_labels
from hopstate.ops.propagate import hop_powers
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.tasks.node import NodeTask, RowBatches


# ---- the model: tensors only ------------------------------------------------------------------------------
class SGC(nn.Module):
    """Linear classifier over hop tokens.

    Args:
        config: what a user chooses.
        in_dim: F, features of a node.
        num_classes: C.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of SGC.

        Args:
            readout: "last", A_hat^K X as in the paper, or "average" over hops 0..K.
        """

        readout: Literal["last", "average"] = "last"

    def __init__(self, config: Config, *, in_dim: int, num_classes: int) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(in_dim, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return (b, C) logits of tokens (b, K+1, F)."""
        x = tokens[:, -1] if self.config.readout == "last" else tokens.mean(1)
        return self.linear(x)


# ---- the run's configuration: nested dataclasses become the command line's options ------------------------
@dataclass(frozen=True, kw_only=True)
class SGCRun(NodeRun):
    """Configuration of an SGC run.

    Args:
        num_hops: K.
        model: the classifier.
        batch_size: nodes a step.
    """

    num_hops: int = 2
    model: SGC.Config = field(default_factory=SGC.Config)
    batch_size: int = 2000
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(epochs=100, patience=None, optim=OptimConfig(lr=0.2, weight_decay=1e-5))
    )

    def __post_init__(self) -> None:
        if self.num_hops < 0:
            raise ConfigError(f"num_hops must not be negative; got {self.num_hops}")


# ---- from data to a task ----------------------------------------------------------------------------------
def hops(graph: Graph, num_hops: int) -> Tensor:
    """Return (N, K+1, F): the features of each node averaged over 0..K hops of those that it receives from."""
    assert graph.x is not None
    into = graph.incoming
    tokens = np.zeros((graph.num_nodes, num_hops + 1, graph.num_features), np.float32)
    tokens[:, 0] = graph.x
    hop_powers(into.indptr, into.indices, tokens, into.weight)
    return torch.from_numpy(tokens)


def build(graph: Graph, config: SGCRun, context: Context) -> NodeTask:
    """Return the task of training SGC on graph."""
    check_width(graph, context)
    labels = node_labels(graph, config, context)
    tokens = hops(graph, config.num_hops)
    model = SGC(config.model, in_dim=graph.num_features, num_classes=labels.target.width)
    return NodeTask(
        model, RowBatches(lambda rows: tokens[rows], labels, batch_size=config.batch_size, seed=config.loop.seed)
    )


METHOD = Method("sgc", SGCRun, build, "graph", "a linear classifier over averaged hops", "arXiv:1902.07153")
