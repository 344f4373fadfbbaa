"""What CTDG-SSM is made of, and what of it goes together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

from hopstate.errors import ConfigError, check_range, refuse_idle
from hopstate.methods.ctdg_ssm.heads import StaticKind
from hopstate.methods.ctdg_ssm.hippo import FilterShape, FilterStart, filter_coefficients


@dataclass(frozen=True, kw_only=True)
class CTDGSSMConfig:
    """What CTDG-SSM is made of.

    Args:
        dim: d, channels of memory and representation.
        num_layers: memories on top of each other.
        order: highest power of the Laplacian in the filter; 0 sees no graph. Give it order-hop active nodes.
        filter_start: "critical", one number, or one per power.
        learn_filter: train the coefficients; otherwise they stay as started.
        filter_shape: "rising" keeps trained coefficients above 0; "any" keeps p alone above 0 on [0, 2], so that
            filters may fall too and let high frequencies pass.
        laplacian_noise: epsilon; the Laplacian after a batch gets a random symmetric matrix of spectral norm epsilon,
            drawn from the batch's own content (the paper's E.3). On dense matrices, whatever dense_limit is.
        update_all: every node that has been met moves with every batch, those without an event by an input of
            zeros (E.4), so that no memory is carried forward; a batch costs what all nodes cost.
        norm: scale a layer's input to unit root mean square (E.6).
        residual: a layer adds to its input; otherwise its output alone goes on (E.6).
        time_dim: columns of the encodings of gaps in time, 0 for none.
        fastest, slowest: frequencies of those encodings, of ln(1 + gap), even in their logarithm in between.
        static: static node embedding: none, onehot, random, learnable.
        static_dim: its columns, where the kind leaves a choice.
        read_norm: the decoder sees a node's output scaled to unit root mean square.
        node_gaps: the link decoder also sees how long each end has been without an event.
        pair_dim: columns of (W_1 h_u) * (W_2 h_v) that the link decoder also sees, 0 for none.
        pair_history: the link decoder also sees what the pair's own history tells.
        step_bias: sets the first step size, softplus(step_bias); lower remembers longer.
        quadrature_nodes: Gauss-Legendre nodes of the input's integral.
        max_norm: bound on the norm of a node's memory, null for none.
        dense_limit: most active nodes (of a block) for which matrices are dense.
        hidden: hidden units of the decoder, 0 for the paper's linear one.
        never: what stands for ln(1 + gap) of a pair, or of a node, that has not met yet; above every gap that can
            occur: 45 is above 2^64 units, and gaps are held below it.
    """

    dim: int = 32
    num_layers: int = 2
    order: int = 1
    filter_start: FilterStart = "critical"
    learn_filter: bool = True
    filter_shape: FilterShape = "rising"
    laplacian_noise: float = 0.0
    update_all: bool = False
    norm: bool = True
    residual: bool = True
    time_dim: int = 16
    fastest: float = 1.0
    slowest: float = 1e-3
    static: StaticKind = "none"
    static_dim: int = 32
    read_norm: bool = False
    node_gaps: bool = False
    pair_dim: int = 0
    pair_history: bool = False
    step_bias: float = -3.0
    quadrature_nodes: int = 8
    max_norm: float | None = None
    dense_limit: int = 256
    hidden: int = 0
    never: float = 45.0

    def __post_init__(self) -> None:
        check_range(least=1, dim=self.dim, num_layers=self.num_layers, static_dim=self.static_dim)
        check_range(least=1, quadrature_nodes=self.quadrature_nodes)
        check_range(least=0, time_dim=self.time_dim, pair_dim=self.pair_dim, hidden=self.hidden)
        check_range(least=0, dense_limit=self.dense_limit)
        check_range(above=0, max_norm=self.max_norm)
        check_range(above=0, below=math.inf, never=self.never)
        check_range(above=-math.inf, below=math.inf, step_bias=self.step_bias)
        graphless = not self.order and "order=0 has no filter"
        timeless = not self.time_dim and "time_dim=0 leaves times out"
        unsized = self.static in ("none", "onehot") and f"static={self.static} leaves no choice"
        unlearned = graphless or (not self.learn_filter and "learn_filter=false keeps the start")
        refuse_idle(
            self,
            filter_start=graphless,
            learn_filter=graphless,
            filter_shape=unlearned,
            laplacian_noise=graphless,
            node_gaps=timeless,
            fastest=timeless,
            slowest=timeless,
            static_dim=unsized,
        )
        if not 0 < self.slowest <= self.fastest < math.inf:
            raise ConfigError(f"0 < slowest <= fastest must hold; got {self.slowest} and {self.fastest}")
        check_range(least=0, below=math.inf, laplacian_noise=self.laplacian_noise)
        if self.filter_shape not in get_args(FilterShape):
            raise ConfigError(f"filter_shape is 'rising' or 'any'; got {self.filter_shape!r}")
        filter_coefficients(self.order, self.filter_start)
