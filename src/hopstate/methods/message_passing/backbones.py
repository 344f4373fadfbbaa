"""The backbones: one class per message-passing layer, with what networks, batches and automatic settings need to know.

To add a backbone, write a class here and add it to `BACKBONES`; `hopstate fit NAME` then trains it. No module of torch
is imported before a layer is made, so that the command line lists the names quickly.

Source: Kipf & Welling 2017, arXiv:1609.02907 (GCN); Hamilton et al. 2017, arXiv:1706.02216 (GraphSAGE, mean); Xu et al.
2019, arXiv:1810.00826 (GIN); Hu et al. 2020, arXiv:1905.12265 (GIN-E); Velickovic et al. 2018, arXiv:1710.10903 (GAT);
Corso et al. 2020, arXiv:2004.05718 (PNA); Chen et al. 2020, arXiv:2007.02133 (GCNII); Schlichtkrull et al. 2018,
arXiv:1703.06103 (RGCN).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopstate.errors import ConfigError, nearest

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hopstate.layers.message import Normalization
    from hopstate.methods.message_passing.model import BackboneConfig
    from hopstate.methods.shared.node import EdgeRole


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """What a layer is made from.

    Args:
        config: of the network.
        in_dim: width of the input; the output has config.dim.
        number: of the layer, from 0.
        edge_dim: columns of the edge features, 0 without.
        degrees: (N,) in-degrees of the training graph, or None.
        num_relations: relations of edges, 0 without.
    """

    config: BackboneConfig
    in_dim: int
    number: int = 0
    edge_dim: int = 0
    degrees: Tensor | None = None
    num_relations: int = 0


class Convolution:
    """Base class of backbones. Subclasses set attributes and build the layer.

    Attributes:
        name: of the method.
        summary, source: one line for help, and the paper.
        normalization: how the adjacency weighs neighbors; "edges" for layers that take a list of edges; None for a
            layer that passes no messages.
        edges: what of the edges the layer reads: "weights", "features", "relations", "none", or "unused" without any
            edge.
        initial_residual: whether the layer takes the first representation too and has a residual of its own (GCNII).
        deep: whether ten layers train without layer norm: sums over neighbors grow with every layer, means do not.
        needs_degrees: whether it is made from the in-degrees of the training graph.
        num_layers: automatic number of layers for node tasks; None: that of the preset.
        link_layers: automatic number of layers for link prediction.
        dense_cost: products with square matrices a layer and node, of the width.
        edge_cost: time of a layer for each edge and unit of width, in multiply-adds.
    """

    name: str
    summary: str
    source: str
    normalization: Normalization | None = "sum"
    edges: EdgeRole = "none"
    initial_residual = False
    deep = True
    needs_degrees = False
    num_layers: int | None = None
    link_layers = 2
    dense_cost = 3
    edge_cost = 8

    def normalization_of(self, edge_dim: int) -> Normalization | None:
        """Return the normalization of a layer over edges with edge_dim features."""
        return self.normalization

    def layer(self, spec: LayerSpec) -> nn.Module:
        """Return an untrained layer of torch-geometric; its adjacency holds the normalization, the layer only sums."""
        raise NotImplementedError


class MLP(Convolution):
    """A linear map of each node: no messages."""

    name = "mlp"
    summary = "a perceptron on the features alone"
    source = "Platonov et al. 2023"
    normalization = None
    edges = "unused"
    edge_cost = 0

    def layer(self, spec: LayerSpec) -> nn.Module:
        from torch import nn

        return nn.Linear(spec.in_dim, spec.config.dim)


class GCN(Convolution):
    """Graph convolution."""

    name = "gcn"
    summary = "graph convolutions, residual"
    source = "arXiv:1609.02907"
    normalization = "symmetric"
    edges = "weights"

    def layer(self, spec: LayerSpec) -> nn.Module:
        from hopstate.layers import edge_layers

        return edge_layers.GCN(spec.in_dim, spec.config.dim, normalize=False)


class SAGE(Convolution):
    """GraphSAGE with mean aggregation."""

    name = "sage"
    summary = "GraphSAGE, mean aggregation, residual"
    source = "arXiv:1706.02216"
    normalization = "mean"
    dense_cost = 4

    def layer(self, spec: LayerSpec) -> nn.Module:
        from hopstate.layers import edge_layers

        return edge_layers.SAGE(spec.in_dim, spec.config.dim, aggr="sum")


class GIN(Convolution):
    """GIN, or GIN-E if edges have features."""

    name = "gin"
    summary = "graph isomorphism network, residual"
    source = "arXiv:1810.00826"
    normalization = "sum"
    deep = False
    edges = "features"

    def normalization_of(self, edge_dim: int) -> Normalization | None:
        return "edges" if edge_dim else "sum"

    def layer(self, spec: LayerSpec) -> nn.Module:
        from torch import nn
        from torch_geometric.nn import GINEConv

        from hopstate.layers import edge_layers

        if spec.edge_dim:
            return GINEConv(nn.Linear(spec.in_dim, spec.config.dim), train_eps=True, edge_dim=spec.edge_dim)
        return edge_layers.GIN(nn.Linear(spec.in_dim, spec.config.dim), train_eps=True)


class GAT(Convolution):
    """Graph attention."""

    name = "gat"
    summary = "graph attention, residual"
    source = "arXiv:1710.10903"
    normalization = "edges"
    edges = "features"

    def layer(self, spec: LayerSpec) -> nn.Module:
        from hopstate.layers import edge_layers

        check_heads(spec.config)
        return edge_layers.GAT(spec.in_dim, spec.config.dim, spec.config.heads, edge_dim=spec.edge_dim or None)


class PNA(Convolution):
    """Principal neighborhood aggregation."""

    name = "pna"
    summary = "principal neighborhood aggregation, residual"
    source = "arXiv:2004.05718"
    deep = False
    normalization = "edges"
    edges = "features"
    needs_degrees = True
    dense_cost = 17
    edge_cost = 24

    def layer(self, spec: LayerSpec) -> nn.Module:
        import torch

        from hopstate.layers import edge_layers

        counts = torch.zeros(1) if spec.degrees is None else torch.bincount(spec.degrees.long())
        return edge_layers.PNA(spec.in_dim, spec.config.dim, counts, edge_dim=spec.edge_dim or None)


class GCNII(Convolution):
    """Graph convolution with initial residual and identity map."""

    name = "gcnii"
    summary = "deep graph convolutions with initial residual"
    source = "arXiv:2007.02133"
    normalization = "symmetric"
    edges = "weights"
    initial_residual = True
    num_layers = 8
    link_layers = 8

    def layer(self, spec: LayerSpec) -> nn.Module:
        from hopstate.layers import edge_layers

        return edge_layers.GCNII(
            spec.config.dim, spec.config.alpha, spec.config.theta, spec.number + 1, normalize=False
        )


class RGCN(Convolution):
    """Graph convolution with a matrix per relation."""

    name = "rgcn"
    summary = "graph convolutions with a matrix per relation of edges, residual"
    source = "arXiv:1703.06103"
    normalization = "edges"
    edges = "relations"
    dense_cost = 8

    def layer(self, spec: LayerSpec) -> nn.Module:
        from hopstate.layers import edge_layers

        return edge_layers.RGCN(spec.in_dim, spec.config.dim, spec.num_relations, num_bases=spec.config.num_bases)


class HeteroSAGE(Convolution):
    """The sum of a GraphSAGE layer per relation."""

    name = "hetero-sage"
    summary = "a GraphSAGE layer per relation of edges, residual"
    source = "arXiv:1706.02216"
    normalization = "edges"
    edges = "relations"
    dense_cost = 16

    def layer(self, spec: LayerSpec) -> nn.Module:
        from torch_geometric.nn import SAGEConv

        from hopstate.layers import edge_layers

        return edge_layers.Hetero(SAGEConv(spec.in_dim, spec.config.dim) for _ in range(spec.num_relations))


class HeteroGAT(Convolution):
    """The sum of a GAT layer per relation."""

    name = "hetero-gat"
    summary = "a graph attention layer per relation of edges, residual"
    source = "arXiv:1710.10903"
    normalization = "edges"
    edges = "relations"
    dense_cost = 8

    def layer(self, spec: LayerSpec) -> nn.Module:
        from torch_geometric.nn import GATConv

        from hopstate.layers import edge_layers

        check_heads(spec.config)
        width, heads = spec.config.dim // spec.config.heads, spec.config.heads
        return edge_layers.Hetero(
            GATConv(spec.in_dim, width, heads, add_self_loops=False) for _ in range(spec.num_relations)
        )


def check_heads(config: BackboneConfig) -> None:
    if config.dim % config.heads:
        raise ConfigError(f"model.dim={config.dim} is not a multiple of model.heads={config.heads}")


BACKBONES: dict[str, Convolution] = {
    kind.name: kind for kind in (MLP(), GCN(), SAGE(), GIN(), GAT(), PNA(), GCNII(), RGCN(), HeteroSAGE(), HeteroGAT())
}


def get_backbone(name: str) -> Convolution:
    """Return a backbone by name."""
    if name not in BACKBONES:
        raise ConfigError(f"unknown backbone {name!r}{nearest(name, BACKBONES)}; known: {', '.join(BACKBONES)}")
    return BACKBONES[name]
