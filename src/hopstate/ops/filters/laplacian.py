"""Normalised Laplacians of small edge sets, polynomial filters of them, and the filter's critical coefficient.

L = I - D^-1/2 A D^-1/2, its eigenvalues in [0, 2]; a node without an edge has the row of the identity.
A filter is p(y) = sum_k c_k y^k; P = p(L).

Source: CTDG-SSM, arXiv:2606.04672, section 3 (operators), Remark 2 (p(y) != 0 on [0, 2]), appendix G (removals).
Deviation: a filter must be positive, not only nonzero: -p gives the same dynamics with the input's sign turned.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hopstate.errors import ConfigError, ShapeError
from hopstate.random import named_rng
from hopstate.types import Float, Int, shapecheck

if TYPE_CHECKING:
    import scipy.sparse

EPSILON = 1e-3  # the least value of a filter on [0, 2] that is accepted


@shapecheck
def dense_laplacian(
    pairs: Int[Tensor, "2 edge"],
    weight: Float[Tensor, "edge"],
    num_nodes: int,
    blocks: int = 1,
) -> Float[Tensor, "batch node node2"]:
    """Return L = I - D^-1/2 A D^-1/2 of every block of a block-diagonal undirected graph.

    Args:
        pairs: (2, E) end points, each edge once; repeated edges add up; a self-loop counts once in A and in D.
        weight: (E,) edge weights >= 0; the dtype of the result.
        num_nodes: N, a multiple of blocks; rows of block b are b*N/blocks and on, and no edge joins two blocks.
        blocks: number S of blocks.

    Returns:
        (S, N/S, N/S); an isolated node's row is that of the identity.

    Raises:
        ShapeError: num_nodes is not a multiple of blocks, or an edge joins two blocks.
    """
    n, rest = divmod(num_nodes, max(blocks, 1))
    if rest or blocks < 1:
        raise ShapeError(f"{num_nodes} nodes cannot be cut into {blocks} equal blocks")
    block, other = pairs // max(n, 1)
    if not torch.equal(block, other):
        raise ShapeError("an edge joins two blocks of a block-diagonal graph")
    u, v = pairs % max(n, 1)
    loop = (u == v).to(weight.dtype)
    A = weight.new_zeros(blocks * n * n)
    A.index_add_(0, (block * n + u) * n + v, weight)
    A.index_add_(0, (block * n + v) * n + u, weight * (1 - loop))
    A = A.view(blocks, n, n)
    scale = _inverse_root(A.sum(-1))
    return torch.eye(n, dtype=A.dtype, device=A.device) - scale[:, :, None] * A * scale[:, None, :]


def sparse_laplacian(
    pairs: np.ndarray, weight: np.ndarray, num_nodes: int, dtype: np.dtype | type = np.float64
) -> scipy.sparse.csr_array:
    """Return L = I - D^-1/2 A D^-1/2 as scipy CSR of a dtype; pairs, weight, num_nodes as in `dense_laplacian`."""
    import scipy.sparse as sp

    u, v = pairs
    w = np.asarray(weight, np.float64)
    once = np.where(u != v, w, 0)  # count a loop's weight once
    degree = np.bincount(u, w, num_nodes) + np.bincount(v, once, num_nodes)
    scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0)
    value, node = scale[u] * scale[v], np.arange(num_nodes)
    rows, columns = np.concatenate([node, u, v]), np.concatenate([node, v, u])
    values = np.concatenate([np.ones(num_nodes), -w * value, -once * value])
    return sp.csr_array(sp.coo_array((values.astype(dtype), (rows, columns)), shape=(num_nodes, num_nodes)))


def noisy_laplacian(
    L: Float[Tensor, "batch node node2"], epsilon: float, seed: Sequence[int]
) -> Float[Tensor, "batch node node2"]:
    """Return L + epsilon D / ||D||_2 of every block, D symmetric with normal entries drawn from seed, kept in [0, 2].

    Source: CTDG-SSM, arXiv:2606.04672, appendix E.3 and figure 6 (a).
    Deviation: D is symmetric, and eigenvalues beyond [0, 2] are put back, so that every filter stays invertible.

    Args:
        L: (S, n, n).
        epsilon: spectral norm of what is added.
        seed: whole numbers from 0 on.
    """
    drawn = named_rng(*seed).standard_normal(tuple(L.shape))
    D = torch.from_numpy(drawn + drawn.transpose(0, 2, 1)).to(L)
    size = torch.linalg.eigvalsh(D).abs().amax(-1) if L.shape[-1] else L.new_ones(len(L))
    values, vectors = torch.linalg.eigh(L + epsilon * D / size.clamp(min=torch.finfo(L.dtype).tiny)[:, None, None])
    return (vectors * values.clamp(0, 2)[:, None, :]) @ vectors.mT


def _inverse_root(degree: Tensor) -> Tensor:
    return torch.where(degree > 0, degree.clamp(min=torch.finfo(degree.dtype).tiny).rsqrt(), 0)


def matrix_polynomial(coefficients: Tensor, L: Tensor) -> Tensor:
    """Return sum_k c_k L^k by Horner's rule.

    Args:
        coefficients: (m+1,) c_0..c_m.
        L: (..., n, n).
    """
    eye, (last, *rest) = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device), coefficients.flip(0)
    if not rest:
        return (last * eye).expand(L.shape)
    result = last * L + rest[0] * eye  # the first product is that with the identity
    for c in rest[1:]:
        result = result @ L + c * eye
    return result


def filter_minimum(coefficients: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Return the minimum of p on [0, 2] and its location, from the roots of p'.

    Args:
        coefficients: c_0..c_m of p(y) = sum_k c_k y^k.
    """
    p = np.polynomial.Polynomial(np.asarray(coefficients, np.float64))
    roots = p.deriv().roots() if p.degree() > 0 else np.zeros(0)
    inside = roots.real[(abs(roots.imag) < 1e-9) & (roots.real > 0) & (roots.real < 2)]
    points = np.concatenate([[0.0, 2.0], inside])
    values = p(points)
    return float(values.min()), float(points[values.argmin()])


def check_filter(coefficients: Sequence[float] | np.ndarray, epsilon: float = EPSILON) -> None:
    """Check that p(y) = sum_k c_k y^k is at least epsilon on [0, 2], the range of a Laplacian's eigenvalues.

    Raises:
        ConfigError: a coefficient is not finite, or p is too small; the message gives the minimum and its location.
    """
    c = np.asarray(coefficients, np.float64)
    if c.ndim != 1 or not len(c) or not np.isfinite(c).all():
        raise ConfigError(f"a filter is a list of finite coefficients c_0, c_1, ...; got {coefficients!r}")
    least, where = filter_minimum(c)
    if least < epsilon:
        raise ConfigError(
            f"the filter p(y) = {' + '.join(f'{v:g} y^{k}' for k, v in enumerate(c))} falls to {least:.3g} at "
            f"y = {where:.3g}; p(L) is safely invertible only where p >= {epsilon:g} on [0, 2]: raise c_0, or use "
            "non-negative coefficients"
        )


def path_gain(coefficients: Sequence[float] | np.ndarray) -> float:
    """Return the gain per hop of a signal along a growing path.

    An event adds node v to the end u of a path. Nodes within m hops of u, the filter's order, are active:
    H <- exp(-G) H, G = P^-1 (P - P_before). A linear map T takes the active rows of one event to those of the next. The
    gain is T's spectral radius.

    Args:
        coefficients: c_0..c_m of a filter that `check_filter` accepts.
    """
    c = torch.as_tensor(np.asarray(coefficients, np.float64))
    n = len(c) + 1  # the new node, the path's end, and m nodes behind it
    pairs = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    ones = torch.ones(n - 1, dtype=torch.float64)
    P = matrix_polynomial(c, dense_laplacian(pairs, ones, n))[0]
    before = matrix_polynomial(c, dense_laplacian(pairs[:, :-1], ones[:-1], n))[0]
    T = torch.linalg.matrix_exp(torch.linalg.solve(P, before) - torch.eye(n, dtype=torch.float64))[1:, :-1]
    return float(torch.linalg.eigvals(T).abs().max())


@lru_cache(maxsize=64)
def critical_alpha(order: int) -> float:
    """Return the a for which p(y) = 1 + a (y + ... + y^order) preserves a signal along a growing path.

    Below it a signal decays exponentially with the number of hops. Above it the state explodes.

    Args:
        order: m >= 1, the highest power of L.

    Raises:
        ConfigError: order is below 1, so the filter does not reach neighbors.

    >>> print(*(round(critical_alpha(order), 2) for order in (1, 2, 3)))
    6.52 2.11 1.22
    """
    if order < 1:
        raise ConfigError(f"a filter of order {order} passes nothing to a neighbour and has no critical gain")

    def excess(alpha: float) -> float:
        return path_gain([1.0, *[alpha] * order]) - 1

    high = 1.0
    while excess(high) < 0:
        high *= 2
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return high
