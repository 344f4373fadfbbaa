"""The conformance suite over the four models with pair features, from query times to logits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from configured import configured
from torch import Tensor, nn

from hopstate.data.events import EventStream
from hopstate.layers.decoders import PairHistory
from hopstate.methods import get_method
from hopstate.methods.method import Context
from hopstate.streaming.protocols import MemoryModel
from hopstate.testing.conformance import Inputs, ModelCase, check_model

WIDTHS = {"model.channel_dim": 4, "model.time_dim": 6, "model.out_dim": 6}
SMALL: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {
        "model.dim": 6,
        "model.time_dim": 6,
        "model.node_time_deltas": True,
        "model.pair_dim": 4,
        "model.hidden": 6,
    },
    "dyg-mamba": {**WIDTHS, "history.max_length": 6, "model.block.dropout": 0.0},
    "dygformer": {**WIDTHS, "model.max_length": 6, "model.dropout": 0.0},
    "graphmixer": {"model.num_links": 4, "model.dim": 6, "model.time_dim": 6, "model.out_dim": 4, "model.dropout": 0.0},
}
LATE = 260.0


def events(count: int = 120) -> EventStream:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 6, count), 6 + rng.integers(0, 6, count)
    attr = rng.standard_normal((count, 3)).astype(np.float32)
    return EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, 200, count)), num_nodes=12, edge_attr=attr)


class PairQuery(nn.Module):
    """Logits (Q, 1) of pairs (Q,), (Q,) at times (Q,) after the full stream, which first updates a memory."""

    def __init__(self, task: Any) -> None:
        super().__init__()
        self.model, self.source, self.stream = task.model, task.source, task.stream

    def forward(self, u: Tensor, v: Tensor, t: Tensor) -> Tensor:
        pairs, inputs = (u.numpy(), v.numpy(), t.numpy()), self.source.inputs
        if isinstance(self.model, MemoryModel):
            state = self.model.initial_state(self.stream.num_nodes)
            for start in range(0, len(self.stream), 40):
                events = self.stream.take(np.arange(start, min(start + 40, len(self.stream))))
                state = self.model.update(state, inputs.batch(events))
            return self.model.link_logits(state, u, v, inputs.query_time_deltas(*pairs))[:, None]
        return self.model(inputs.pairs(*pairs))[:, None]


def take(inputs: Inputs, rows: Tensor) -> Inputs:
    return tuple(column[rows] for column in inputs)


@pytest.mark.parametrize("method", SMALL)
def test_conformance(method: str, tmp_path: Path) -> None:
    chosen, stream = get_method(method), events()
    given = {"evaluation.strategies": ("random",), "loop.device": "cpu", "model.pair_features": True}
    config = configured(chosen.config(data="x"), given | SMALL[method])

    def make() -> nn.Module:
        module = PairQuery(chosen.build(stream, config, Context(run=tmp_path, cache=tmp_path)))
        (head,) = (part for part in module.modules() if isinstance(part, PairHistory))
        assert head.scale.std() > 0  # as training pairs have it
        return module

    rng = np.random.default_rng(1)
    u, v = rng.permutation(6).repeat(2), 6 + rng.integers(0, 6, 12)
    t = LATE + np.arange(12.0)
    check_model(ModelCase(make=make, inputs=tuple(map(torch.from_numpy, (u, v, t))), permute=take, take=take))
