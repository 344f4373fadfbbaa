"""The forward pass of a Graph Mamba Network in operations that every program format has.

The same sums as `methods.gmn.model` makes, messages over lists of edges, scans step by step.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.layers.edge_list import EdgeList
from hopstate.layers.mpnn import FORMS, GatedGCN, MessageBlock
from hopstate.layers.plain import EqualSequences, Sequences
from hopstate.layers.ssm import BidirectionalMamba, SelectiveSSM
from hopstate.methods.gmn.gps import GPSLayer
from hopstate.methods.gmn.local import TokenPool, WalkTokens
from hopstate.methods.gmn.model import GMN


class GMNProgram(nn.Module):
    """What `methods.gmn.export.ports_of` names → (N, out_dim) of nodes, (B, out_dim) of edges, (G, out_dim) of graphs.

    Args:
        model: the trained network.
        names: of the inputs, in order.
    """

    def __init__(self, model: GMN, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the outputs."""
        m, told = self.model, dict(zip(self.names, inputs, strict=True))
        x, y = told["x"], self._over_nodes(told)
        if m.mpnn is not None:
            e = None if m.mpnn.embed_edge is None else m.mpnn.embed_edge(told["edge_attr"])
            y = y + _messages(m.mpnn.mpnn.blocks, m.mpnn.embed(x), e, EdgeList(told["edge_index"], x.shape[0]))
        if m.level == "node":
            return m.outputs(y)
        y = m.norm(y)
        if m.level == "edge":
            return m.head(torch.cat([y[told["pairs"][:, 0]], y[told["pairs"][:, 1]]], 1))
        own, order = _graphs(told), told["order"]
        return m.of_graphs(y, x, lambda rows: own.pooled(rows[order], m.config.reading))

    def _over_nodes(self, told: dict[str, Tensor]) -> Tensor:
        m, h = self.model, encoded(self.model, told)
        if not len(m.gps):
            blocks = [layer.block for layer in m.node_blocks]
            return _in_order(blocks, h, told) if blocks else h  # type: ignore[arg-type]
        e = None if m.embed_edge is None else m.embed_edge(told["edge_attr"])
        graph = EdgeList(told["edge_index"], h.shape[0])
        for layer in m.gps:
            assert isinstance(layer, GPSLayer)
            local, e = _message(layer.message, h, e, graph)
            h = layer.joined(local, _in_order(list(layer.blocks), h, told))  # type: ignore[arg-type]
        return h


def encoded(m: GMN, told: dict[str, Tensor]) -> Tensor:
    """Return (N, dim): each node's row after the blocks over its tokens."""
    phi, count = m.embed(told["x"]), 1
    if m.local is not None:
        phi, count = _tokens(m, phi, told), m.tokens
        if not m.config.own_token:
            count -= 1
            phi = phi.view(-1, m.tokens, phi.shape[1])[:, :-1].reshape(-1, phi.shape[1])
    own = EqualSequences(count, phi.shape[0])
    for block in m.token_blocks:
        phi = _block(block, phi, own)  # type: ignore[arg-type]
    rows = phi.view(-1, count, phi.shape[1])
    return rows[:, -1] if m.config.readout == "last" else rows.mean(1)


def _tokens(m: GMN, h: Tensor, told: dict[str, Tensor]) -> Tensor:
    """Return (N * K, dim) encoded tokens of nodes h (N, dim)."""
    local, nodes, e = m.local, told["token_nodes"], None
    own = Sequences(told["token_sizes"].flatten(), nodes.shape[0])
    rows = h[nodes]
    if m.mark is not None:
        rows = rows + torch.where((nodes == own.rows // m.tokens)[:, None], m.mark.vector, 0.0)
    if m.embed_edge is not None:
        e, places = m.embed_edge(told["edge_attr"]), told["token_edges"]
        e = torch.cat([e, e.new_zeros(1, e.shape[1])])[torch.where(places < 0, e.shape[0], places)]
    if not isinstance(local, WalkTokens):
        blocks: Any = local.mpnn.blocks  # type: ignore[union-attr]
        if len(blocks):
            rows = _messages(blocks, rows, e, EdgeList(told["token_edge_index"], rows.shape[0]))
        return _pooled(local.pool, rows, h, own)  # type: ignore[union-attr,arg-type]
    encoder = local.encoder
    z = rows + encoder.bits(told["bits"].to(rows.dtype))
    if encoder.edge is not None:
        z = z + encoder.edge(e)
    walks = Sequences(told["walk_sizes"], rows.shape[0])
    z = walks.convolved(F.relu(z), encoder.conv.weight.squeeze(1), encoder.conv.bias, reverse=False)
    return encoder.out(_pooled(local.pool, F.silu(encoder.norm(z)), h, own))


def _pooled(pool: TokenPool, rows: Tensor, h: Tensor, own: Sequences) -> Tensor:
    """Return (token, dim) of rows that come token after token; h (N, dim) holds the nodes' own."""
    pooled = own.pooled(rows, pool.pooling)
    if pool.attention is None:
        return pooled
    return pooled + pool.attention(rows, torch.repeat_interleave(h, pool.tokens, 0), own.rows, own.sum)


def _messages(blocks: Any, h: Tensor, e: Tensor | None, graph: EdgeList) -> Tensor:
    for block in blocks:
        h, e = _message(block, h, e, graph)
    return h


def _message(block: MessageBlock, h: Tensor, e: Tensor | None, graph: EdgeList) -> tuple[Tensor, Tensor | None]:
    """Return what `MessageBlock` does."""
    conv = block.conv
    if isinstance(conv, GatedGCN):
        own, value, receiver, sender = conv.node(h).chunk(4, 1)
        c = None if conv.edge is None or e is None else conv.edge(e)
        z = own + graph.gated_mean(receiver, sender, value, c)
        if block.edge_norm is not None and e is not None and c is not None:
            gate = c + receiver[graph.edge_index[1]] + sender[graph.edge_index[0]]
            e = e + F.relu(block.edge_norm(gate))
    elif block.kind in ("gine", "pna"):
        z = conv(h, graph.edge_index, e if block.edges else None)
    else:
        z = graph.propagate(conv, FORMS.get(block.kind, "sum"), 0, h)
    return h + F.relu(block.norm(z)), e


def _graphs(told: dict[str, Tensor]) -> Sequences:
    order = told["order"]
    sizes = told.get("sizes")
    return Sequences(order.new_full((1,), order.shape[0]) if sizes is None else sizes, order.shape[0])


def _in_order(blocks: list[BidirectionalMamba], y: Tensor, told: dict[str, Tensor]) -> Tensor:
    """Return (N, dim): the rows of y after blocks that read them in the order of the sequence."""
    own, order = _graphs(told), told["order"]
    for block in blocks:
        out = _block(block, y[order], own)
        y = torch.zeros_like(out).index_add(0, order, out)
    return y


def _block(block: BidirectionalMamba, x: Tensor, own: Sequences) -> Tensor:
    z, y = block.norm(x), torch.zeros(())
    for branch in block.branches:
        y = y + _branch(branch, z, own)  # type: ignore[arg-type]
    return x + block.out(y)


def _branch(ssm: SelectiveSSM, z: Tensor, own: Sequences) -> Tensor:
    u, gate = ssm.input(z).chunk(2, -1)
    if ssm.conv is not None:
        u = own.convolved(u, ssm.conv.weight.squeeze(1), ssm.conv.bias, reverse=ssm.reverse)
    u = F.silu(u)
    assert ssm.step is not None
    y = own.scanned(u, ssm.step(u), -ssm.A_log.exp(), ssm.to_B(u), ssm.to_C(u), reverse=ssm.reverse)
    y = y if ssm.D is None else y + ssm.D * u
    return ssm.output(y * F.silu(gate))


__all__ = ["GMNProgram", "encoded"]
