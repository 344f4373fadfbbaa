"""Settings of a Graph Mamba Network.

Source: Behrouz & Hashemi 2024, arXiv:2402.08678.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from hopstate.errors import ConfigError, check_range, nearest, refuse_idle
from hopstate.layers.mpnn import READS_EDGES, Pooling, Reading

Variant = Literal["gmn", "gmn-", "gps-mamba"]
Readout = Literal["last", "mean"]
Encoder = Literal["gatedgcn", "gcn", "gin", "gine", "sage", "rwf"]


@dataclass(frozen=True, kw_only=True)
class GMNConfig:
    """Settings of a Graph Mamba Network.

    Args:
        variant: "gmn" in full; "gmn-" without encodings and without message passing, in tokens too (local "auto" is
            "rwf" there); "gps-mamba": layers of a message-passing block beside blocks over the nodes (no walks).
        dim: width.
        local: encoder of a token: message passing on the induced subgraph, or "rwf", random-walk features; "auto"
            is "gatedgcn".
        local_layers: message-passing blocks of the local encoder.
        walk_norm: normalise random-walk features over all steps.
        mark: add a learned vector to a token's own node, so that its encoder tells it from the others.
        pooling: over the rows of a token, and of graphs in graph tasks.
        graph_pooling: over the rows of graphs; "all" reads mean, sum and maximum side by side; null takes pooling.
        features_out: add a linear map of a graph's pooled features and encodings to its output, as GIN's readout does.
        token_heads: heads of an attention that weighs a token's rows by their likeness to its own node's row; what it
            finds is added to the pooled row. 0 for none.
        own_token: end each node's tokens with the node by itself (section 4.1); False keeps those of walks alone
            (Equation 7).
        readout: what stands for a node after the blocks over its tokens: the "last" of them, or their "mean".
        token_layers: blocks over each node's tokens.
        node_layers: blocks over the nodes; in "gps-mamba", of each layer.
        mpnn: message passing whose output is added, or "none".
        mpnn_layers: its blocks; layers of "gps-mamba".
        bidirectional: False scans in one direction only.
        expand: inner width of a branch, in multiples of dim.
        state_dim: numbers of state a channel.
        conv_width: taps of the short convolution.
        dropout: in all blocks.
        input_dropout: of the features, before both embeddings.
    """

    variant: Variant = "gmn"
    dim: int = 64
    local: Literal["auto", "gatedgcn", "gcn", "gin", "gine", "sage", "rwf"] = "auto"
    local_layers: int = 1
    walk_norm: bool = True
    mark: bool = True
    pooling: Pooling = "mean"
    graph_pooling: Reading | None = None
    features_out: bool = False
    token_heads: int = 0
    own_token: bool = True
    readout: Readout = "last"
    token_layers: int = 1
    node_layers: int = 1
    mpnn: Literal["gatedgcn", "gcn", "gin", "gine", "pna", "sage", "none"] = "gatedgcn"
    mpnn_layers: int = 4
    bidirectional: bool = True
    expand: float = 2.0
    state_dim: int = 16
    conv_width: int = 4
    dropout: float = 0.1
    input_dropout: float = 0.0

    def __post_init__(self) -> None:
        kinds = {"variant": Variant, "pooling": Pooling, "readout": Readout}
        kinds |= {} if self.graph_pooling is None else {"graph_pooling": Reading}
        for name, kind in kinds.items():
            known = get_args(kind)
            if (value := getattr(self, name)) not in known:
                near = nearest(str(value), known)
                raise ConfigError(f"unknown model.{name} {value!r}{near}; known: {', '.join(known)}")
        check_range("model.", least=1, dim=self.dim, state_dim=self.state_dim)
        check_range("model.", above=0, expand=self.expand)
        check_range("model.", least=0, local_layers=self.local_layers, token_layers=self.token_layers)
        check_range("model.", least=0, node_layers=self.node_layers, mpnn_layers=self.mpnn_layers)
        check_range("model.", least=0, conv_width=self.conv_width, token_heads=self.token_heads)
        check_range("model.", least=0, below=1, dropout=self.dropout, input_dropout=self.input_dropout)
        if self.variant == "gps-mamba" and (self.mpnn == "none" or not self.mpnn_layers or not self.node_layers):
            raise ConfigError(
                "model.variant=gps-mamba needs model.mpnn, and at least 1 of model.mpnn_layers (its layers) and of "
                "model.node_layers (blocks over the nodes in each)"
            )
        if self.token_heads and self.dim % self.token_heads:
            raise ConfigError(f"model.token_heads={self.token_heads} does not divide model.dim={self.dim}")
        why = self.variant == "gps-mamba" and "model.variant=gps-mamba has no tokens of walks"
        refuse_idle(self, mark=why, own_token=why, readout=why, token_heads=why)

    @property
    def uses_mpnn(self) -> bool:
        """Whether Psi is added."""
        return self.variant == "gmn" and self.mpnn != "none" and self.mpnn_layers > 0

    @property
    def reading(self) -> Reading:
        """How a graph's rows are pooled."""
        return self.graph_pooling or self.pooling

    def reads_edges(self, *, walks: bool = True) -> bool:
        """Return whether something in the network has a place for edge features; walks: nodes have tokens."""
        local = self.encoder == "rwf" or (self.local_layers > 0 and self.encoder in READS_EDGES)
        psi = (self.uses_mpnn or self.variant == "gps-mamba") and self.mpnn in READS_EDGES
        return psi or (walks and self.variant != "gps-mamba" and local)

    @property
    def encoder(self) -> Encoder:
        """What encodes a token: local, "auto" resolved."""
        if self.local == "auto":
            return "rwf" if self.variant == "gmn-" else "gatedgcn"
        return self.local

    @property
    def token_kind(self) -> Literal["subgraph", "walk"]:
        """What the local encoder reads."""
        return "walk" if self.encoder == "rwf" else "subgraph"


__all__ = ["Encoder", "GMNConfig", "Variant"]
