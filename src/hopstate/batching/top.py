"""TOP: mini-batches whose missing neighbours are expressed by the nodes that are there.

Before training, R with H_out ~ R H_in is fitted on basic embeddings (`basis`). In training, a batch B aggregates
A_BB H_B + dA (P H_S): dA (|B|, k) and P (k, |S|) stand for A_B,out R and are made once for a batch. That is the
linear form, for layers that sum with fixed weights. The general form gives any aggregator the missing rows themselves,
L (P H_S), one for each out-of-batch neighbour. Weights are those of the whole graph's degrees in both.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), section 5.1, algorithms
1 and 2, equations 12-13, appendix B.1 (general form) and B.5.
Deviation: `basis="global"` (default; the authors' own code does so) takes one basis Q of the whole graph, so that P is
Q_S's pseudo-inverse; `basis="batch"` is the paper's text. The pseudo-inverse has a ridge, and Q's columns are
weighted by their singular values; with a bare pseudo-inverse small directions amplify errors. With the global basis the
ridge is the one that best predicts, in each batch, an initialisation that the basis was not fitted on: between 1e-8 and
1 on the graphs tried, least where features are few, large where they are many or k is near |B|.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.batching.basis import basic_embeddings, combinations, current_embeddings, evaluating, range_basis
from hopstate.data.graph import Graph
from hopstate.errors import CheckpointError, ConfigError, DataError
from hopstate.layers.message import Adjacency, Convolver, Weighting
from hopstate.ops.sampling import LocalGraph, Neighborhoods

LINEAR = ("symmetric", "mean", "sum")
FIXED_RIDGE = 1e-6  # where there is nothing to choose by: present embeddings are in the span of their own basis
RIDGES = tuple(10.0**k for k in range(-8, 2))
PROBES = 64  # random combinations of the embeddings left out, to choose the ridge by


@dataclass(frozen=True, kw_only=True)
class TopConfig:
    """Settings of TOP.

    Args:
        form: "linear" adds a low-rank product, "general" makes missing rows; "auto" is linear where the model allows.
        basis: one basis of the whole graph ("global"), or one for each batch ("batch", as in the paper's text).
        rank: k, columns of a basis.
        initialisations: random initialisations whose embeddings are joined.
        samples: |S|, most in-batch nodes that missing ones are expressed by; null takes all (k with basis=batch).
        ridge: added to the mean diagonal of the normal equations, as a share of it; null chooses it for each batch.
        refresh: make the basis anew from current embeddings every so many epochs; 0 never does.
    """

    form: Literal["auto", "linear", "general"] = "auto"
    basis: Literal["global", "batch"] = "global"
    rank: int = 256
    initialisations: int = 3
    samples: int | None = None
    ridge: float | None = None
    refresh: int = 0

    def __post_init__(self) -> None:
        samples = 1 if self.samples is None else self.samples
        if min(self.rank, self.initialisations, samples) < 1 or self.refresh < 0:
            raise ConfigError(
                f"top.rank, top.initialisations and top.samples are at least 1, top.refresh at least 0; "
                f"got {self.rank}, {self.initialisations}, {self.samples}, {self.refresh}"
            )
        if self.ridge is not None and self.ridge < 0:
            raise ConfigError(f"top.ridge must not be negative; got {self.ridge}")


class _Substitute:
    """left (m, k) @ (right (k, s) @ h[rows]): what stands for m missing rows, or for their sums."""

    def __init__(self, left: Tensor, right: Tensor, rows: Tensor | None) -> None:
        self.left, self.right, self.rows = left, right, rows

    def weights(self, h: Tensor) -> Tensor:
        """Return right @ h[rows], (k, d)."""
        return self.right @ (h if self.rows is None else h[self.rows])

    def moved(self, device: torch.device | str) -> _Substitute:
        rows = None if self.rows is None else self.rows.to(device)
        return _Substitute(self.left.to(device), self.right.to(device), rows)


class LinearTop:
    """A batch in the linear form: what its layers sum is A_BB h + left (right h_S).

    Args:
        inside: adjacency among the batch's nodes, weighted by the whole graph's degrees.
        missing: what stands for the sums over out-of-batch neighbours.
        weighting: the one weighting that `missing` was made for.
    """

    def __init__(self, inside: Adjacency, missing: _Substitute, weighting: Weighting) -> None:
        self.inside, self.missing, self.weighting = inside, missing, weighting

    def to(self, device: torch.device | str) -> LinearTop:
        """Return the batch on a device."""
        return LinearTop(self.inside.to(device), self.missing.moved(device), self.weighting)

    def convolve(self, conv: nn.Module, weighting: Weighting, layer: int, *nodes: Tensor) -> Tensor:
        """Return (|B|, F'): the layer's output, the sum that it makes compensated.

        Raises:
            ConfigError: the layer does not sum with these fixed weights.
        """
        if weighting != self.weighting:
            raise ConfigError(_not_linear(type(conv).__name__, weighting))

        def add(_: nn.Module, inputs: tuple[object, dict[str, object]], out: Tensor) -> Tensor:
            sent = inputs[1]["x"]
            sent = sent[0] if isinstance(sent, (tuple, list)) else sent
            assert isinstance(sent, Tensor)
            return torch.addmm(out, self.missing.left, self.missing.weights(sent))

        handle = conv.register_message_and_aggregate_forward_hook(add)  # type: ignore[operator]
        try:
            return self.inside.convolve(conv, weighting, layer, *nodes)
        finally:
            handle.remove()


class GeneralTop:
    """A batch in the general form: every layer receives made-up rows for the out-of-batch neighbours.

    Args:
        around: adjacency of the batch's rows over its nodes and then their out-of-batch neighbours.
        missing: what stands for those neighbours' rows.
    """

    def __init__(self, around: Adjacency, missing: _Substitute) -> None:
        self.around, self.missing = around, missing

    def to(self, device: torch.device | str) -> GeneralTop:
        """Return the batch on a device."""
        return GeneralTop(self.around.to(device), self.missing.moved(device))

    def extended(self, h: Tensor) -> Tensor:
        """Return (|B| + m, d): h, and under it what stands for the missing rows."""
        return torch.cat([h, self.missing.left.to(h.dtype) @ self.missing.weights(h)])

    def convolve(self, conv: nn.Module, weighting: Weighting, layer: int, *nodes: Tensor) -> Tensor:
        """Return (|B|, F'): the layer's output where missing neighbours send made-up rows."""
        return self.around.convolve(conv, weighting, layer, *(self.extended(h) for h in nodes))


class Top:
    """Makes compensated batches of one graph for one model.

    Args:
        graph: the whole graph.
        config: settings.
        weighting: how the model's layers weigh neighbours; "edges" for any that weigh edges themselves.
        seed: fixes initialisations and draws.
        rows: the only nodes that batches will hold; the linear form then forgets the basis at all others.

    Raises:
        ConfigError: the linear form was asked for and the aggregator is not linear; the general form is offered.
    """

    def __init__(
        self, graph: Graph, config: TopConfig, weighting: Weighting, *, seed: int, rows: np.ndarray | None = None
    ) -> None:
        if config.form == "linear" and weighting not in LINEAR:
            raise ConfigError(_not_linear("the model's aggregator", weighting))
        self.graph, self.config, self.weighting, self.seed = graph, config, weighting, seed
        self.linear = config.form != "general" and weighting in LINEAR
        self.cutter = Neighborhoods(graph.indptr, graph.indices)
        self.rows = None if rows is None or not self.linear else np.sort(rows)
        self._place = np.full(graph.num_nodes, -1)
        self._place[slice(None) if self.rows is None else self.rows] = np.arange(
            graph.num_nodes if self.rows is None else len(self.rows)
        )
        self.basis = torch.empty(graph.num_nodes, 0)
        self.sums = torch.empty(0, 0)
        self.probe = self.probe_sums = torch.empty(graph.num_nodes, 0)

    def prepare(self, model: nn.Module, forward: Callable[[nn.Module], object]) -> None:
        """Fit the basis on random initialisations of model; forward runs a copy on the whole graph."""
        c = self.config
        self.take(basic_embeddings(model, forward, initialisations=c.initialisations, seed=self.seed))
        if c.ridge is None and c.basis == "global":
            left_out = basic_embeddings(model, forward, initialisations=1, seed=self.seed + c.initialisations)
            self.probe, self.probe_sums = self._kept(combinations(left_out, PROBES, seed=self.seed).cpu())

    def refresh(self, model: nn.Module, forward: Callable[[nn.Module], object]) -> None:
        """Fit the basis on model's present embeddings."""
        with evaluating(model):
            self.take(current_embeddings(model, forward))

    def take(self, embeddings: list[Tensor]) -> None:
        """Fit the basis on given embeddings, (N, d) each, and keep it on the CPU; basis="batch" keeps them whole."""
        if self.config.basis == "global":
            basis = range_basis(embeddings, self.config.rank, seed=self.seed)
        else:
            joined = torch.cat(embeddings, 1)
            basis = joined / joined.norm(dim=0).clamp_min(torch.finfo(joined.dtype).tiny)
        self.basis, self.sums = self._kept(basis.cpu())
        self.probe = self.probe_sums = self.basis[:, :0]

    def _kept(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return values (N, r) and their sums over all neighbours (for the linear form), at the rows of batches."""
        if not self.linear:
            return values, values[:, :0]
        whole = Adjacency.of(self.graph.indptr, self.graph.indices)
        sums = whole.form(self.weighting).to(values.dtype) @ values
        if self.rows is None:
            return values, sums
        kept = torch.from_numpy(self.rows)
        return values[kept], sums[kept]

    def _at(self, nodes: np.ndarray) -> Tensor:
        """Return where nodes stand in what is kept."""
        place = self._place[nodes]
        if (place < 0).any():
            raise DataError(f"node {nodes[place < 0][0]} is not among the rows that this compensation was made for")
        return torch.from_numpy(place)

    def batch(self, nodes: np.ndarray) -> LinearTop | GeneralTop:
        """Return the compensated batch of nodes (distinct rows of the graph)."""
        around = self.cutter.induced(nodes, halo=not self.linear)
        degree = self.graph.degree[around.nodes]
        if self.linear:
            rows = self._at(nodes)
            inside = Adjacency.of(around.indptr, around.indices, degree=degree)
            form = inside.form(self.weighting)
            missing, target = (
                total[rows] - form.to(values.dtype) @ values[rows]  # A_B,out times values
                for values, total in ((self.basis, self.sums), (self.probe, self.probe_sums))
            )
            return LinearTop(inside, self._fit(nodes, missing, target), self.weighting)
        adjacency = Adjacency.of(around.indptr, around.indices, num_nodes=len(around.nodes), degree=degree)
        far = torch.from_numpy(around.nodes[len(nodes) :])
        return GeneralTop(adjacency, self._fit(nodes, self.basis[far], self.probe[far]))

    def _fit(self, nodes: np.ndarray, missing: Tensor, target: Tensor) -> _Substitute:
        """Return what stands for missing (m, r), rows of which are functions of the basis at nodes.

        Args:
            nodes: the batch.
            missing: values of the basis that are to be expressed.
            target: (m, p) values of the probes there, by which the ridge is chosen.
        """
        c, count = self.config, len(nodes)
        wanted = c.samples if c.samples is not None or c.basis == "global" else c.rank
        rows = None
        if wanted is not None and wanted < count:
            draw = np.random.default_rng([0x70, self.seed, int(nodes[0]), count])
            rows = torch.from_numpy(np.sort(draw.choice(count, wanted, replace=False)))
        every = self._at(nodes)
        chosen = self.basis[every]
        if c.basis == "batch":
            return self._fit_in_range(chosen, rows, missing)
        known = chosen if rows is None else chosen[rows]
        ridge = FIXED_RIDGE if c.ridge is None else c.ridge
        if target.numel():
            probes = self.probe[every if rows is None else every[rows]]
            ridge = best_ridge(known, missing, probes, target)
        return _Substitute(missing.contiguous(), ridge_inverse(known, ridge), rows)

    def _fit_in_range(self, chosen: Tensor, rows: Tensor | None, missing: Tensor) -> _Substitute:
        """Equation 12: express missing by Q_S^T H_S, Q an orthonormal basis of range(H_B)."""
        c = self.config
        size = min(c.rank, *chosen.shape)
        q = torch.svd_lowrank(chosen, q=size, niter=2)[0]
        right = (q if rows is None else q[rows]).T.contiguous()
        known = right @ (chosen if rows is None else chosen[rows])  # (k, M)
        return _Substitute(missing @ ridge_inverse(known, FIXED_RIDGE if c.ridge is None else c.ridge), right, rows)

    # ---- keeping ---------------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        """Return what `load_state` needs to continue with the same compensation."""
        names = ("basis", "sums", "probe", "probe_sums")
        kept = {name: getattr(self, name).contiguous() for name in names}
        return kept | {"graph": torch.tensor(list(bytes.fromhex(self.graph.content_hash)), dtype=torch.uint8)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` returned.

        Raises:
            CheckpointError: it was made for another graph, or for other rows of it.
        """
        own = self.state()["graph"]
        if not torch.equal(state["graph"].cpu(), own):
            raise CheckpointError(f"this compensation was made for another graph than {self.graph.name}; make it anew")
        wanted = self.graph.num_nodes if self.rows is None else len(self.rows)
        if len(state["basis"]) != wanted:
            raise CheckpointError(
                f"this compensation was made for {len(state['basis'])} nodes of {self.graph.name}, the batches hold "
                f"{wanted}; make it anew"
            )
        for name in ("basis", "sums", "probe", "probe_sums"):
            setattr(self, name, state[name])


def ridge_inverse(known: Tensor, ridge: float) -> Tensor:
    """Return (r, s): argmin_W |known W' - h|^2 + ridge mean(diag) |W'|^2 as a matrix that W' = result @ h.

    Args:
        known: (s, r); may have more columns than rows, or dependent ones.
        ridge: relative to the mean diagonal of the smaller Gram matrix.
    """
    a = known.double()
    wide = a.shape[0] < a.shape[1]
    gram = a @ a.T if wide else a.T @ a
    size = len(gram)
    scale = gram.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    least = size * torch.finfo(torch.float32 if known.dtype == torch.float32 else torch.float64).eps ** 2
    gram = gram + max(ridge, least) * scale * torch.eye(size, dtype=a.dtype, device=a.device)
    factor = torch.linalg.cholesky(gram)
    solved = a.T @ torch.cholesky_inverse(factor) if wide else torch.cholesky_solve(a.T, factor)
    return solved.to(known.dtype).contiguous()


def best_ridge(known: Tensor, missing: Tensor, probes: Tensor, target: Tensor) -> float:
    """Return the ridge of RIDGES with the least error of missing @ (ridge_inverse(known, ridge) @ probes) from target.

    Args:
        known: (s, r) basis at the nodes that are there.
        missing: (m, r) basis where it is to be predicted.
        probes: (s, p) other embeddings at the nodes that are there.
        target: (m, p) those embeddings where they are to be predicted.
    """
    a, b = known.double(), probes.double()
    gram = a.T @ a
    scale = gram.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    values, vectors = torch.linalg.eigh(gram)
    coefficients, spread = vectors.T @ (a.T @ b), missing.double() @ vectors
    errors = [
        (spread @ (coefficients / (values.clamp_min(0) + ridge * scale)[:, None]) - target).square().sum()
        for ridge in RIDGES
    ]
    return RIDGES[int(torch.stack(errors).argmin())]


def _not_linear(name: str, weighting: str) -> str:
    return (
        f"{name} ({weighting}) does not sum its neighbours with fixed weights of the right kind, which TOP's linear "
        f"form needs; use the general form (top.form=general), which works with any aggregator"
    )


__all__ = ["Convolver", "GeneralTop", "LinearTop", "LocalGraph", "Top", "TopConfig", "ridge_inverse"]
