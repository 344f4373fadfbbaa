"""One step of a memory over a changing graph: decay in time, mixing by the graph's change, input over the step.

    H <- exp(-G) (H * exp(r)) + sum_q w_q exp(-s_q G) (P^-1 U * exp(s_q r)),    r = step * A, U = step * B x

with nodes s_q and weights w_q of Gauss-Legendre quadrature on [0, 1]; `hopstate.ops.filters.transition`
computes the exponentials of G.

Source: CTDG-SSM, arXiv:2606.04672, theorem 4.2 and algorithm 3 (lines 26-30).
Deviation: with a step per node, each row first decays by its own step. With one step for all nodes, the result equals
the exact solution of theorem 4.1 up to quadrature error (below 1e-12 for |G| <= 4 with 8 nodes).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from hopstate.errors import ConfigError, ShapeError
from hopstate.ops.filters.transition import Transition

NUM_QUADRATURE_NODES = 8


@lru_cache(maxsize=16)
def gauss_legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights (count,) of Gauss-Legendre quadrature on [0, 1], float64.

    Raises:
        ConfigError: count is below 1.
    """
    if count < 1:
        raise ConfigError(f"quadrature needs at least 1 node; got {count}")
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def evolve(transition: Transition, H: Tensor, U: Tensor, rate: Tensor, *, count: int = NUM_QUADRATURE_NODES) -> Tensor:
    """Return exp(-G) (H * exp(rate)) + int_0^1 exp(-sG) (P^-1 U * exp(s rate)) ds.

    Lines 3-6 and 26-30 of algorithm 3.

    Args:
        transition: P and G of the batch, shared by every layer; of S blocks, or of one for all blocks.
        H: (S, n, d) memory of the active nodes of S blocks.
        U: (S, n, d) input times its step.
        rate: (S, n, d) step * A, <= 0.
        count: quadrature nodes.

    Raises:
        ShapeError: H, U and rate differ in shape.
    """
    if not H.shape == U.shape == rate.shape:
        raise ShapeError(f"memory, input and rate must agree; got {H.shape}, {U.shape}, {rate.shape}")
    S, n, d = H.shape
    if transition.blocks < S:  # one change for all: blocks side by side, as columns
        H, U, rate = (x.transpose(0, 1).reshape(1, n, S * d) for x in (H, U, rate))
        return _evolve(transition, H, U, rate, count).view(n, S, d).transpose(0, 1)
    return _evolve(transition, H, U, rate, count)


def _evolve(transition: Transition, H: Tensor, U: Tensor, rate: Tensor, count: int) -> Tensor:
    nodes, weights = gauss_legendre(count)
    s, w = (torch.as_tensor(v, dtype=H.dtype, device=H.device).view(-1, 1, 1, 1) for v in (nodes, weights))
    inputs = transition.solve(U) * (w * (s * rate).exp())
    return transition.act(torch.cat([(H * rate.exp())[None], inputs]), np.concatenate([[1.0], nodes]))


def kronecker_reference(
    P: np.ndarray, change: np.ndarray, A: np.ndarray, step: float, H: np.ndarray, BX: np.ndarray
) -> np.ndarray:
    """Return H(1) of dH/ds = -P^-1 change H + step H A + step P^-1 BX, solved exactly as one Kronecker system.

    This is theorem 4.1 over one step with one step size for all nodes, in float64: the definition that `evolve` is
    held to. The cost is that of the exponential of a dense (n d + 1)^2 matrix.

    Args:
        P: (n, n) p(L) with the batch's edges.
        change: (n, n) P minus p(L) without them.
        A: (d, d) state matrix, acting from the right.
        step: step size.
        H: (n, d) memory before.
        BX: (n, d) input B x.
    """
    import scipy.linalg

    n, d = H.shape
    G = np.linalg.solve(P, change)
    M = np.kron(np.eye(d), -G) + np.kron(step * A.T, np.eye(n))  # columns of H stacked
    constant = (step * np.linalg.solve(P, BX)).T.reshape(-1)
    augmented = np.zeros((n * d + 1, n * d + 1))
    augmented[:-1, :-1], augmented[:-1, -1] = M, constant
    start = np.concatenate([H.T.reshape(-1), [1.0]])
    return (scipy.linalg.expm(augmented) @ start)[:-1].reshape(d, n).T
