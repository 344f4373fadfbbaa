"""Outputs of a Graph Mamba Network for every node of one graph, the same whichever nodes are asked for.

A pass over the whole graph, layer by layer, within a memory budget; kept until the weights change, so that several
splits are read from one pass.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.io.scratch import Scratch
from hopstate.layers.message import Adjacency
from hopstate.methods.gmn.layerwise import Cut, NodeGraph, all_outputs
from hopstate.methods.gmn.model import GMN, GMNInputs
from hopstate.methods.gmn.nodes import PreparedGraph, token_inputs
from hopstate.methods.gmn.ordering import node_order
from hopstate.methods.gmn.walk_tokens import TokenKind, drawing_seed, token_order, walk_tokens
from hopstate.training.precision import bare
from hopstate.training.tasks.node import averaged


class NodeOutputs:
    """model → (N, C) logits of all nodes on the CPU, with the first round's walks and ties broken by node id.

    Args:
        prepared: the graph.
        kind: what the model's local encoder reads.
        seed: of the run; fixes the walks.
        cut: how much is worked on at once.
        folder: where arrays of a row a node lie; None keeps them in memory.
        draws: of walks, whose outputs are averaged.
    """

    def __init__(
        self, prepared: PreparedGraph, kind: TokenKind, *, seed: int, cut: Cut, folder: Path | None = None,
        draws: int = 1,
    ) -> None:  # fmt: skip
        self.prepared, self.kind, self.seed, self.cut, self.draws = prepared, kind, seed, cut, draws
        self.store = Scratch(folder)
        self._known: tuple[bytes, Tensor] | None = None

    def __call__(self, model: nn.Module) -> Tensor:
        inner = bare(model)
        assert isinstance(inner, GMN)
        key = fingerprint(inner)
        if self._known is None or self._known[0] != key:
            m = self.prepared
            graph = NodeGraph(indptr=m.indptr, indices=m.indices, x=m.x, edge_attr=m.edge_attr, order=node_order(m.key))
            rounds = (partial(self._tokens, number) for number in range(self.draws))
            self._known = key, averaged(all_outputs(inner, graph, own, self.cut, self.store) for own in rounds)
        return self._known[1]

    def _tokens(self, number: int, rows: np.ndarray) -> GMNInputs:
        m = self.prepared
        extra: dict[str, Any] = {"targets": torch.arange(len(rows))}
        near, edge_attr = rows, None
        if m.settings.tokens > 1:
            seed, edges = drawing_seed(self.seed, -number), m.edge_attr is not None
            tokens = walk_tokens(m.table, rows, m.settings, kind=self.kind, seed=seed, edges=edges)
            near, place = np.unique(np.concatenate([rows, tokens["nodes"].numpy()]), return_inverse=True)
            tokens["nodes"] = torch.from_numpy(place[len(rows) :])
            if m.edge_attr is not None:
                taken = tokens["edges"].numpy()
                ids = np.unique(taken[taken >= 0])
                tokens["edges"] = torch.from_numpy(np.where(taken >= 0, np.searchsorted(ids, taken), -1))
                edge_attr = torch.from_numpy(m.edge_attr[ids])
            extra = {
                "targets": torch.from_numpy(place[: len(rows)]), **token_inputs(tokens),
                "token_order": token_order(len(rows), m.settings, None),
            }  # fmt: skip
        nothing = np.zeros(0, np.int64)
        return GMNInputs(
            x=m.features(None, near), graph=Adjacency.of(np.zeros(1, np.int64), nothing), edge_attr=edge_attr,
            order=torch.from_numpy(nothing), sequences=torch.zeros(1, dtype=torch.int64), **extra,
        )  # fmt: skip


def fingerprint(model: nn.Module) -> bytes:
    """Return a name of a model's weights and of the arithmetic it would compute with."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    device = next(model.parameters()).device.type
    digest.update(f"{device} {torch.is_autocast_enabled(device)} {torch.get_autocast_dtype(device)}".encode())
    digest.update(f"{model.training} {torch.get_float32_matmul_precision()}".encode())
    return digest.digest()


__all__ = ["NodeOutputs", "fingerprint"]
