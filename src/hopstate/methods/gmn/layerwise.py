"""A Graph Mamba Network's outputs for all nodes of one graph, layer by layer, a part of the graph in memory at a time.

Tokens are encoded by blocks of nodes; each block over the nodes then reads all of them as one sequence, in parts that
hand their state on; message passing goes by blocks of receivers with all their edges. The result is the forward pass
over the whole graph, to rounding, whatever the cut.

Source: as `hopstate.methods.gmn.model`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import MessageBlock
from hopstate.layers.ssm import BidirectionalMamba, Carried
from hopstate.methods.gmn.gps import GPSLayer
from hopstate.methods.gmn.model import GMN, GMNInputs

Store = Callable[[int, int, torch.dtype], Tensor]  # (rows, columns, kind) → an array on the CPU, in memory or on disk


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How much of a graph is worked on at once.

    Args:
        tokens: nodes whose tokens are encoded together.
        nodes: nodes of a part of the sequence, and receivers of a block of message passing.
        edges: edges of a block of message passing; a receiver of more is a block by itself.
    """

    tokens: int
    nodes: int
    edges: int


@dataclass(frozen=True, kw_only=True)
class NodeGraph:
    """One graph as it is stored.

    Args:
        indptr, indices: CSR adjacency.
        x: (N, F) features and encodings.
        edge_attr: (E, D), or None.
        order: (N,) nodes in the order of the sequence.
    """

    indptr: np.ndarray
    indices: np.ndarray
    x: np.ndarray
    edge_attr: np.ndarray | None
    order: np.ndarray


def all_outputs(
    model: GMN, graph: NodeGraph, tokens: Callable[[np.ndarray], GMNInputs], cut: Cut, store: Store
) -> Tensor:
    """Return (N, out_dim) outputs of all nodes, on the CPU.

    Args:
        model: of level "node", in evaluation mode.
        graph: the graph.
        tokens: rows (n,) → inputs of those nodes with their tokens, as `GMN.encode` takes them.
        cut: blocks and parts.
        store: makes the arrays of a row a node, or of a row an edge, three or four at a time.
    """
    return _Pass(model, graph, cut, store).run(tokens)


class _Pass:
    """One pass; y, h, z are arrays of a row a node, e of a row an edge."""

    def __init__(self, model: GMN, graph: NodeGraph, cut: Cut, store: Store) -> None:
        self.model, self.graph, self.cut, self.store = model, graph, cut, store
        weight = model.embed.weight
        self.device, self.dtype, self.dim = weight.device, weight.dtype, model.config.dim
        self.count = len(graph.indptr) - 1
        self.order = torch.from_numpy(np.ascontiguousarray(graph.order))

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
            self._scan(layer.block, y, spare)  # type: ignore[arg-type]
        out = []
        for start in range(0, max(1, self.count), self.cut.nodes):
            both = y[start : start + self.cut.nodes].to(self.device)
            if psi is not None:
                both = both + psi[start : start + self.cut.nodes].to(self.device)
            out.append(self.model.outputs(both).to(self.dtype).cpu())
        return torch.cat(out)

    # ---- over the nodes --------------------------------------------------------------------------------
    def _scan(self, block: BidirectionalMamba, y: Tensor, sums: Tensor) -> None:
        """Put the rows of y after a block over all nodes in their place; sums is written over."""
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
        degree = np.diff(indptr)
        for start, stop in self._cuts():
            first, last = int(indptr[start]), int(indptr[stop])
            senders = np.asarray(indices[first:last])
            outside = (senders < start) | (senders >= stop)
            halo = np.unique(senders[outside])
            place = senders - start
            place[outside] = (stop - start) + np.searchsorted(halo, senders[outside])
            near = np.concatenate([np.arange(start, stop), halo])
            own = np.append(indptr[start : stop + 1] - first, np.full(len(halo), last - first))
            local = Adjacency.of(own, place, degree=degree[near]).to(self.device)
            before = None if e is None else e[first:last].to(self.device)
            rows, after = block(h[torch.from_numpy(near)].to(self.device), local, before)
            if e is not None and after is not before:
                e[first:last] = after.to(e)
            yield start, rows[: stop - start]

    def _cuts(self) -> Iterable[tuple[int, int]]:
        """Yield (start, stop) of consecutive receivers: at most cut.nodes of them, with at most cut.edges edges."""
        start = 0
        while start < self.count:
            most = int(self.graph.indptr[start]) + self.cut.edges
            fits = int(np.searchsorted(self.graph.indptr, most, "right")) - 1
            stop = min(max(start + 1, fits), start + self.cut.nodes, self.count)
            yield start, stop
            start = stop

    def _rows(self) -> Tensor:
        return self.store(self.count, self.dim, self.dtype)


def _as(values: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if values is None else values.to(dtype)


__all__ = ["Cut", "NodeGraph", "Store", "all_outputs"]
