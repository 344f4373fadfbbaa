"""Layer-wise inference of a Graph Mamba Network on one graph, with only a part of the graph in memory.

Tokens are encoded in blocks of nodes. Each block over nodes then scans all nodes as one sequence, in parts that pass on
their state. Message passing runs over blocks of receivers with all their edges. The result equals the full forward pass
up to rounding, whatever the block sizes.

Source: as `hopstate.methods.gmn.model`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.graph import Incoming
from hopstate.io.scratch import Scratch
from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import READS_EDGES, MessageBlock
from hopstate.layers.ssm import BidirectionalMamba, Carried
from hopstate.methods.gmn.batches import (
    PreparedGraph,
    block_floats,
    edge_floats,
    step_bytes,
    to_batch_rows,
    token_inputs,
)
from hopstate.methods.gmn.model import GMN, GMNInputs, GPSLayer
from hopstate.methods.gmn.orders import node_order
from hopstate.methods.gmn.tokens import TokenKind, WalkSettings, drawing_seed, token_order
from hopstate.training.devices import bare
from hopstate.training.tasks.node import averaged

__all__ = ["Cut", "NodeOutputs", "cut_of", "fingerprint"]

SMALLEST_PART = 64  # nodes


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Block sizes of layer-wise inference.

    Args:
        tokens: nodes whose tokens are encoded together.
        nodes: nodes per part of the sequence, and receivers per message-passing block.
        edges: edges per message-passing block. A receiver with more edges is a block by itself.
    """

    tokens: int
    nodes: int
    edges: int


def cut_of(
    nodes: int, edges: int, walks: WalkSettings, model: GMN.Config, features: int, edge_dim: int, budget: int
) -> tuple[Cut, bool]:
    """Return block sizes that fit a memory budget, and whether the arrays must be stored on disk."""
    d = model.dim
    states = d if edge_dim and model.mpnn in READS_EDGES else 0
    arrays = 4 * (nodes * d * (4 if model.variant == "gps-mamba" else 3) + edges * states)
    million = 1 << 20  # a pass over tokens grows evenly: from a million nodes to one
    encoder = replace(model, variant="gmn", mpnn="none", node_layers=1)
    tokens = budget // 2 * million // max(1, step_bytes(million, 0, walks, encoder, features))
    row, edge = 4 * (block_floats(model) + 16 * d + features), 4 * (16 * d + edge_floats(model, edge_dim))
    rows = budget // 4 // int(row)
    whole = nodes <= rows and nodes * row + edges * 4 * edge_floats(model, edge_dim) <= budget // 2
    cut = Cut(
        tokens=max(SMALLEST_PART, min(nodes, tokens)), nodes=max(SMALLEST_PART, min(nodes, rows)),
        edges=max(1024, edges if whole else budget // 4 // edge),
    )  # fmt: skip
    return cut, arrays > budget // 2


class NodeOutputs:
    """A function model → (N, C) logits of all nodes on the CPU. Ties of the order are broken by node id.

    Logits are cached until the weights change, so that several splits share one pass.

    Args:
        prepared: the graph.
        kind: input of the model's token encoder.
        seed: seed of the walks.
        cut: block sizes.
        folder: folder of arrays with one row per node, None for memory.
        eval_samples: samples of walks, over which outputs are averaged.
    """

    def __init__(
        self, prepared: PreparedGraph, kind: TokenKind, *, seed: int, cut: Cut, folder: Path | None = None,
        eval_samples: int = 1,
    ) -> None:  # fmt: skip
        self.prepared, self.kind, self.seed, self.cut, self.eval_samples = prepared, kind, seed, cut, eval_samples
        self.store = Scratch(folder)
        self._known: tuple[bytes, Tensor] | None = None

    def __call__(self, model: nn.Module) -> Tensor:
        inner = bare(model)
        assert isinstance(inner, GMN)
        key = fingerprint(inner)
        if self._known is None or self._known[0] != key:
            rounds = (partial(self._tokens, number) for number in range(self.eval_samples))
            self._known = key, averaged(_Pass(inner, self.prepared, self.cut, self.store).run(own) for own in rounds)
        return self._known[1]

    def _tokens(self, number: int, rows: np.ndarray) -> GMNInputs:
        """Return nodes rows with their tokens of a round, as `GMN.encode` takes them."""
        m, none = self.prepared, np.zeros(0, np.int64)
        extra: dict[str, Any] = {"x": m.features(None, rows), "targets": torch.arange(len(rows))}
        if m.settings.tokens > 1:
            tokens = m.tokens(rows, self.kind, drawing_seed(self.seed, -number))
            near, place = np.unique(np.concatenate([rows, tokens["nodes"].numpy()]), return_inverse=True)
            edges = none if m.edge_attr is None else np.unique(tokens["edges"].numpy())
            edges = edges[edges >= 0]
            extra = {
                "x": m.features(None, near), "targets": torch.from_numpy(place[: len(rows)]),
                "edge_attr": None if m.edge_attr is None else torch.from_numpy(m.edge_attr[edges]),
                "token_order": token_order(len(rows), m.settings, None),
                **token_inputs(to_batch_rows(tokens, place[len(rows) :], edges)),
            }  # fmt: skip
        graph = Adjacency.of(np.zeros(1, np.int64), none)
        order, sequences = torch.from_numpy(none), torch.zeros(1, dtype=torch.int64)
        return GMNInputs(graph=graph, order=order, sequences=sequences, **extra)


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


class _Pass:
    """One pass; y, h, z are arrays of a row a node, e of a row an edge."""

    def __init__(self, model: GMN, graph: PreparedGraph, cut: Cut, store: Scratch) -> None:
        self.model, self.graph, self.cut, self.store = model, graph, cut, store
        weight = model.embed.weight
        self.device, self.dtype, self.dim = weight.device, weight.dtype, model.config.dim
        self.count = len(graph.indptr) - 1
        self.order = torch.from_numpy(node_order(graph.key))

    def run(self, tokens: Callable[[np.ndarray], GMNInputs]) -> Tensor:
        """Return (N, out_dim)."""
        y, psi = self._rows(), None
        spare = self._rows()
        if self.model.mpnn is not None:
            psi, spare = self._augmentation(spare)
        for start in range(0, self.count, self.cut.tokens):
            rows = np.arange(start, min(start + self.cut.tokens, self.count))
            inputs = tokens(rows)
            inputs = replace(inputs, x=inputs.x.to(self.dtype), edge_attr=_as(inputs.edge_attr, self.dtype))
            y[start : start + len(rows)] = self.model.encode(inputs.to(self.device)).to(y)
        if len(self.model.gps):
            y = self._gps(y, spare)
        for layer in self.model.node_blocks:
            self._scan(layer, y, spare)  # type: ignore[arg-type]
        out = []
        for start in range(0, max(1, self.count), self.cut.nodes):
            both = y[start : start + self.cut.nodes].to(self.device)
            if psi is not None:
                both = both + psi[start : start + self.cut.nodes].to(self.device)
            out.append(self.model.outputs(both).to(self.dtype).cpu())
        return torch.cat(out)

    # ---- over the nodes --------------------------------------------------------------------------------
    def _scan(self, block: BidirectionalMamba, y: Tensor, sums: Tensor) -> None:
        """Apply a block over the sequence of all nodes to y in place, in parts. sums is scratch memory."""
        parts = [self.order[a : a + self.cut.nodes] for a in range(0, self.count, self.cut.nodes)]
        for number, branch in enumerate(block.branches):
            carried: Carried | None = None
            last = number == len(block.branches) - 1
            for rows in reversed(parts) if branch.reverse else parts:
                own = y[rows].to(self.device)  # parts to come are still unchanged, and those gone by are carried
                z, carried = branch.part(block.norm(own), carried)  # type: ignore[operator]
                z = z if number == 0 else sums[rows].to(self.device) + z
                if last:
                    y[rows] = (own + block.out(z)).to(y)
                else:
                    sums[rows] = z.to(sums)

    def _gps(self, h: Tensor, sums: Tensor) -> Tensor:
        e, z = self._embedded_edges(self.model.embed_edge), self._rows()
        for layer in self.model.gps:
            assert isinstance(layer, GPSLayer)
            for start in range(0, self.count, self.cut.nodes):
                z[start : start + self.cut.nodes] = h[start : start + self.cut.nodes]
            for block in layer.blocks:
                self._scan(block, z, sums)  # type: ignore[arg-type]
            for start, local in self._messages(layer.message, h, e):
                stop = start + len(local)
                z[start:stop] = layer.joined(local, z[start:stop].to(self.device)).to(z)
            h, z = z, h
        return h

    # ---- over the edges --------------------------------------------------------------------------------
    def _augmentation(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return Psi of all nodes and an array to spare; h is written over."""
        psi = self.model.mpnn
        assert psi is not None
        for start in range(0, self.count, self.cut.nodes):
            x = torch.from_numpy(np.array(self.graph.x[start : start + self.cut.nodes]))
            h[start : start + len(x)] = psi.embed(x.to(self.device, self.dtype)).to(h)
        e, new = self._embedded_edges(psi.embed_edge), self._rows()
        for block in psi.mpnn.blocks:
            for start, rows in self._messages(block, h, e):  # type: ignore[arg-type]
                new[start : start + len(rows)] = rows.to(new)
            h, new = new, h
        return h, new

    def _embedded_edges(self, embed: nn.Linear | None) -> Tensor | None:
        attr = self.graph.edge_attr
        if embed is None or attr is None:
            return None
        e = self.store(len(attr), self.dim, self.dtype)
        step = max(1, self.cut.edges)
        for start in range(0, len(attr), step):
            part = torch.from_numpy(np.array(attr[start : start + step]))
            e[start : start + step] = embed(part.to(self.device, self.dtype)).to(e)
        return e

    def _messages(self, block: MessageBlock, h: Tensor, e: Tensor | None) -> Iterator[tuple[int, Tensor]]:
        """Yield the first receiver of each block of message passing and the new rows of all its receivers.

        States of edges that the block changes are put in their place in e.
        """
        indptr, indices = self.graph.indptr, self.graph.indices
        degree, added = np.diff(indptr), Incoming(indptr, indices).added_loops
        for start, stop in self._cuts():
            first, last = int(indptr[start]), int(indptr[stop])
            senders = np.asarray(indices[first:last])
            outside = (senders < start) | (senders >= stop)
            halo = np.unique(senders[outside])
            place = senders - start
            place[outside] = (stop - start) + np.searchsorted(halo, senders[outside])
            near = np.concatenate([np.arange(start, stop), halo])
            own = np.append(indptr[start : stop + 1] - first, np.full(len(halo), last - first))
            local = Adjacency.of(own, place, degree=degree[near], added_loops=added[near]).to(self.device)
            before = None if e is None else e[first:last].to(self.device)
            rows, after = block(h[torch.from_numpy(near)].to(self.device), local, before)
            if e is not None and after is not before:
                e[first:last] = after.to(e)
            yield start, rows[: stop - start]

    def _cuts(self) -> Iterable[tuple[int, int]]:
        """Yield (start, stop) of consecutive receivers: at most cut.nodes of them, with at most cut.edges edges."""
        start = 0
        while start < self.count:
            last_edge = int(self.graph.indptr[start]) + self.cut.edges
            fits = int(np.searchsorted(self.graph.indptr, last_edge, "right")) - 1
            stop = min(max(start + 1, fits), start + self.cut.nodes, self.count)
            yield start, stop
            start = stop

    def _rows(self) -> Tensor:
        return self.store(self.count, self.dim, self.dtype)


def _as(values: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if values is None else values.to(dtype)
