"""Small streams and tokens of some pairs, for tests of models that read histories."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.tokens.history import HistoryTokens

NODE_DIM, EDGE_DIM = 3, 2


class Column(torch.nn.Module):
    """Logits as an (n, 1) column, for the conformance suite."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: object) -> torch.Tensor:
        return self.model(inputs).unsqueeze(-1)


def make_stream(num_events: int = 80, num_nodes: int = 9, *, features: bool = True, seed: int = 1) -> EventStream:
    """Return events with many ties; the last node has no event."""
    rng = np.random.default_rng(seed)
    extra = {}
    if features:
        extra = {
            "x": rng.normal(size=(num_nodes, NODE_DIM)).astype(np.float32),
            "edge_attr": rng.normal(size=(num_events, EDGE_DIM)).astype(np.float32),
        }
    src, dst = rng.integers(0, num_nodes - 1, (2, num_events))
    t = np.sort(rng.integers(0, 50, num_events)).astype(np.float64)
    return EventStream(src=src, dst=dst, t=t, num_nodes=num_nodes, **extra)


def make_queries(stream: EventStream, count: int = 12, seed: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs at times before, within and after the stream; both nodes of the first pair have no history."""
    rng = np.random.default_rng(seed)
    u, v = rng.integers(0, stream.num_nodes, (2, count))
    t = rng.uniform(-5, 60, count)
    u[0] = v[0] = stream.num_nodes - 1
    return u, v, t


def make_store(stream: EventStream) -> NeighborStore:
    return NeighborStore.from_stream(stream)


def take_sequences(tokens: HistoryTokens, index: Tensor) -> HistoryTokens:
    """Return the sequences at index, in that order."""
    lengths = tokens.lengths[index]
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    parts = [torch.arange(int(tokens.offsets[s]), int(tokens.offsets[s + 1])) for s in index.tolist()]
    rows = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)
    picked = {
        name: None if getattr(tokens, name) is None else getattr(tokens, name)[rows]
        for name in ("nodes", "event_ids", "gaps", "spans", "counts", "x", "edge_attr")
    }
    return HistoryTokens(offsets=offsets, longest=int(lengths.max()) if len(lengths) else 0, **picked)
