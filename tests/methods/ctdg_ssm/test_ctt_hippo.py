"""The memory's step against HiPPO itself: a full matrix A, a normalization M(s), and projections on polynomials.

HiPPO-LegS has M(s) = s. Its coefficients of x over [0, s] are projections on scaled Legendre polynomials; CTT-HiPPO's
are p(L_s)^-1 times those (CTDG-SSM, arXiv:2606.04672, equation 4), and theorems 4.1, 4.2 and 6.1 are about them.
"""

import itertools

import numpy as np
import pytest
import scipy.integrate
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm

from hopstate.ops.filters.laplacian import dense_laplacian, matrix_polynomial
from hopstate.ops.filters.quadrature import evolve
from hopstate.ops.filters.transition import DenseTransition
from hopstate.testing.conformance import F64_SOLVED

D, NODES = 4, 5
C = torch.tensor([1.0, 1.3], dtype=torch.float64)  # p(y) = 1 + 1.3 y
START, END = 1.0, 2.0


def legs() -> tuple[np.ndarray, np.ndarray]:
    """Return A (d, d), lower triangular, and B (d,) of HiPPO-LegS."""
    n = np.arange(D)
    A = np.sqrt(np.outer(2 * n + 1, 2 * n + 1)) * (n[:, None] > n) + np.diag(n + 1.0)
    return A, np.sqrt(2 * n + 1.0)


def signal(t: np.ndarray) -> np.ndarray:
    """Return (NODES, len(t)) a signal of each node."""
    return np.sin(np.outer(1 + np.arange(NODES), np.atleast_1d(t)) + np.arange(NODES)[:, None])


def projected(s: float) -> np.ndarray:
    """Return (NODES, d) HiPPO-LegS coefficients of the signal over [0, s], by quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    basis = np.stack([np.polynomial.legendre.Legendre.basis(n)(nodes) * np.sqrt(2 * n + 1) for n in range(D)])
    return signal(s * (nodes + 1) / 2) @ (weights / 2 * basis).T


def laplacians() -> tuple[torch.Tensor, torch.Tensor]:
    """Return L after and before an event that adds an edge."""
    pairs = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    ones = torch.ones(4, dtype=torch.float64)
    return dense_laplacian(pairs, ones, NODES)[0], dense_laplacian(pairs[:, :-1], ones[:-1], NODES)[0]


def filters() -> tuple[np.ndarray, np.ndarray]:
    after, before = (matrix_polynomial(C, L).numpy() for L in laplacians())
    return after, before


def test_theorem_4_1_its_equation_carries_projections_over_a_changing_graph() -> None:
    A, B = legs()
    after, before = filters()
    change = (after - before) / (END - START)

    def equation(s: float, h: np.ndarray) -> np.ndarray:
        H, p = h.reshape(NODES, D), before + (s - START) * change
        inputs = np.outer(signal(s)[:, 0], B) / s
        return (-H @ A.T / s + np.linalg.solve(p, inputs - change @ H)).ravel()

    start = np.linalg.solve(before, projected(START))
    found = scipy.integrate.solve_ivp(equation, (START, END), start.ravel(), rtol=1e-10, atol=1e-12).y[:, -1]
    np.testing.assert_allclose(found.reshape(NODES, D), np.linalg.solve(after, projected(END)), atol=1e-8)


def stepped(H: np.ndarray, L: tuple[torch.Tensor, torch.Tensor], x: np.ndarray, step: float, s: float) -> np.ndarray:
    """Return the memory after one step of `evolve`, with HiPPO's A / M(s) in its own basis of eigenvectors."""
    A, B = legs()
    values, V = np.linalg.eig(A)
    inverse = np.linalg.inv(V)
    rate = np.broadcast_to(-step / s * values, H.shape)
    inputs = step / s * np.outer(x, inverse @ B)
    transition = DenseTransition(C, L[0][None], L[1][None])
    parts = (torch.from_numpy(np.ascontiguousarray(part))[None] for part in (H @ inverse.T, inputs, rate))
    return evolve(transition, *parts)[0].numpy() @ V.T


def test_theorem_4_2_a_step_equals_that_of_the_full_matrix() -> None:
    A, B = legs()
    after, before = filters()
    rng, step, s = np.random.default_rng(0), 0.3, 1.7
    H, x = rng.normal(size=(NODES, D)), rng.normal(size=NODES)
    G, inputs = np.linalg.solve(after, after - before), np.linalg.solve(after, np.outer(x, B)) / s
    points, weights = np.polynomial.legendre.leggauss(20)
    expected = expm(-G) @ H @ expm(-step * A.T / s)
    for q, w in zip((points + 1) / 2, weights / 2, strict=True):
        expected += w * step * expm(-q * G) @ inputs @ expm(-q * step * A.T / s)
    np.testing.assert_allclose(stepped(H, laplacians(), x, step, s), expected, rtol=F64_SOLVED, atol=F64_SOLVED)


def test_steps_converge_to_the_projection_with_their_number() -> None:
    """A zero-order hold is of first order: twice as many steps, half the error."""
    after, before = laplacians()
    exact = np.linalg.solve(filters()[0], projected(END))

    def error(count: int) -> float:
        H, step = np.linalg.solve(filters()[1], projected(START)), (END - START) / count
        for k in range(count):
            L = tuple(before + (after - before) * j / count for j in (k + 1, k))
            s = START + (k + 0.5) * step
            H = stepped(H, L, signal(s)[:, 0], step, s)  # type: ignore[arg-type]
        return float(np.abs(H - exact).max())

    errors = [error(count) for count in (20, 40, 80)]
    assert errors[-1] < 0.01
    assert [a / b for a, b in itertools.pairwise(errors)] == pytest.approx([2, 2], rel=0.15)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.floats(1e-3, 1.5))
def test_theorem_6_1_a_perturbed_laplacian_moves_the_memory_no_more_than_its_bound(
    seed: int, order: int, size: float
) -> None:
    """|H' - H| / |H| <= epsilon lambda_2 lambda_c / lambda_1^2 for filters that rise, H = p(L)^-1 H_HiPPO."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    pairs = torch.from_numpy(rng.integers(0, n, (2, 2 * n)))
    L = dense_laplacian(pairs, torch.ones(2 * n, dtype=torch.float64), n)[0]
    noise = torch.from_numpy(rng.normal(size=(n, n)))
    values, vectors = torch.linalg.eigh(L + size * (noise + noise.T) / torch.linalg.matrix_norm(noise + noise.T, 2))
    perturbed = (vectors * values.clamp(0, 2)) @ vectors.T
    epsilon = float(torch.linalg.matrix_norm(perturbed - L, 2))
    c = np.concatenate([[1.0], rng.uniform(0, 5, order)])
    p, grid = np.polynomial.Polynomial(c), np.linspace(0, 2, 201)
    bound = epsilon * p(grid).max() * p.deriv()(grid).max() / p(grid).min() ** 2
    hippo = torch.from_numpy(rng.normal(size=(n, D)))
    H, moved = (torch.linalg.solve(matrix_polynomial(torch.from_numpy(c), x), hippo) for x in (L, perturbed))
    ratio = torch.linalg.matrix_norm(moved - H, 2) / torch.linalg.matrix_norm(H, 2)
    assert float(ratio) <= bound + F64_SOLVED
