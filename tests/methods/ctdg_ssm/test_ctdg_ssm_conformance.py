"""CTDG-SSM under the conformance suite: a small stream, then every node's class."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.testing.conformance import Inputs, ModelCase, check_model

N, BATCHES, SIZE = 9, 3, 6


class Streamed(nn.Module):
    """Class logits of all nodes after a stream of a few batches, each with earlier events as context."""

    def __init__(self, order: int, **options: object) -> None:
        super().__init__()
        config = CTDGSSM.Config(dim=8, order=order, time_dim=4, hidden=6, **options)  # type: ignore[arg-type]
        self.model = CTDGSSM(config, node_dim=3, edge_dim=2, decoder="node", num_outputs=3)

    def forward(self, x: Tensor, pairs: Tensor, attr: Tensor) -> Tensor:
        state = self.model.initial_state(len(x))
        for k in range(0, pairs.shape[1], SIZE):
            new = pairs[:, k : k + SIZE].numpy()
            batch = ActiveBatch.build(
                *new,
                np.full(new.shape[1], float(k)),
                context=pairs[:, max(0, k - 2 * SIZE) : k].numpy(),
                gap=np.arange(new.shape[1]) / 3,
                x=x,
                edge_attr=attr[k : k + SIZE].numpy(),
            )
            state = self.model.update(state, batch)
        return self.model.node_logits(state, torch.arange(len(x)), torch.full((len(x), 1), 1.5))


def permute(inputs: Inputs, order: Tensor) -> Inputs:
    x, pairs, attr = inputs
    return x[order], torch.argsort(order)[pairs], attr


@pytest.mark.parametrize(("order", "options"), [(0, {}), (1, {"embedding_norm": True}), (2, {"max_norm": 0.5})])
def test_conformance(order: int, options: dict[str, object]) -> None:
    g = torch.Generator().manual_seed(0)
    pairs = torch.randint(0, N, (2, BATCHES * SIZE), generator=g)
    inputs = torch.randn(N, 3, generator=g), pairs, torch.randn(BATCHES * SIZE, 2, generator=g)
    one = torch.randn(1, 3, generator=g), pairs[:, :0], inputs[2][:0]
    check_model(ModelCase(make=lambda: Streamed(order, **options), inputs=inputs, permute=permute, one=one))
