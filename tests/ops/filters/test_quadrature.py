"""The memory's step against the Kronecker system's exponential, adaptive integration, and its invariants."""

import itertools

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import torch
from torch import Tensor

from hopstate.errors import ConfigError, HopstateError, ShapeError
from hopstate.ops.filters.laplacian import (
    check_filter,
    critical_alpha,
    dense_laplacian,
    matrix_polynomial,
    sparse_laplacian,
)
from hopstate.ops.filters.quadrature import evolve, gauss_legendre, kronecker_reference
from hopstate.ops.filters.transition import DenseTransition, SparseTransition, Transition, num_terms
from hopstate.testing.conformance import F64, F64_SUM, F64_TIGHT

D = 3
KINDS = ("exponential", "dense", "sparse")


class Change:
    """A random graph of n nodes, and the same graph without its last `new` edges."""

    def __init__(self, n: int, seed: int, num_edges: int | None = None, new: int = 3) -> None:
        rng = np.random.default_rng(seed)
        count = 2 * n if num_edges is None else num_edges
        self.n, self.new = n, new
        self.pairs = torch.from_numpy(rng.integers(0, n, (2, count)))
        self.weight = torch.ones(count, dtype=torch.float64)

    def laplacians(self, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
        keep = self.pairs.shape[1] - self.new
        after = dense_laplacian(self.pairs, self.weight.to(dtype), self.n)
        return after, dense_laplacian(self.pairs[:, :keep], self.weight[:keep].to(dtype), self.n)

    def transition(self, kind: str, c: Tensor) -> Transition:
        if kind != "sparse":
            limit = 10**6 if kind == "exponential" else 0
            return DenseTransition(c, *self.laplacians(c.dtype), exponential_limit=limit)
        pairs, weight, keep = self.pairs.numpy(), self.weight.numpy(), self.pairs.shape[1] - self.new
        dtype = np.float64 if c.dtype == torch.float64 else np.float32
        parts = [sparse_laplacian(pairs[:, :e], weight[:e], self.n, dtype) for e in (pairs.shape[1], keep)]
        return SparseTransition(c, *parts)


def inputs(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(1, n, D, dtype=torch.float64, generator=generator) for _ in range(2))  # type: ignore


def random_filter(order: int, seed: int) -> Tensor:
    values = np.random.default_rng(seed).uniform(0.2, 1.5, order + 1) / (1 + np.arange(order + 1))
    return torch.tensor(np.concatenate([[1.0], values[1:]]))


RATES = torch.tensor([-0.2, -1.0, -3.0], dtype=torch.float64)


@pytest.mark.parametrize(("kind", "order", "n"), list(itertools.product(KINDS, [0, 1, 2, 3], [1, 2, 7, 12]))[::5])
def test_equals_theorem_4_1_solved_by_a_matrix_exponential(kind: str, order: int, n: int) -> None:
    change, c, (H, BX) = Change(n, seed=order), random_filter(order, n), inputs(n)
    step = 0.7
    found = evolve(change.transition(kind, c), H, step * BX, (step * RATES).expand(1, n, D))
    after, before = (matrix_polynomial(c, L)[0].numpy() for L in change.laplacians())
    expected = kronecker_reference(after, after - before, np.diag(RATES), step, H[0].numpy(), BX[0].numpy())
    assert np.abs(found[0].numpy() - expected).max() < 1e-8 * max(1, np.abs(expected).max())


@pytest.mark.parametrize("order", [1, 2, 3])
def test_equals_the_kronecker_system_at_the_critical_start(order: int) -> None:
    change, (H, BX) = Change(9, seed=5), inputs(9)
    c = torch.tensor([1.0] + [critical_alpha(order)] * order, dtype=torch.float64)
    found = evolve(change.transition("dense", c), H, 0.1 * BX, (0.1 * RATES).expand(1, 9, D))
    after, before = (matrix_polynomial(c, L)[0].numpy() for L in change.laplacians())
    expected = kronecker_reference(after, after - before, np.diag(RATES), 0.1, H[0].numpy(), BX[0].numpy())
    assert np.abs(found[0].numpy() - expected).max() < 1e-8 * np.abs(expected).max()


def test_without_a_filter_it_is_the_plain_diagonal_state_space_model() -> None:
    """Order 0, a step per node: h exp(r) + x (exp(r) - 1) / A, row by row."""
    H, BX = inputs(6)
    step = torch.rand(1, 6, 1, dtype=torch.float64)
    change = Change(6, seed=0)
    found = evolve(change.transition("dense", torch.ones(1, dtype=torch.float64)), H, step * BX, step * RATES)
    expected = H * (step * RATES).exp() + BX * torch.expm1(step * RATES) / RATES
    assert torch.allclose(found, expected, atol=F64_TIGHT)


@pytest.mark.parametrize("kind", KINDS)
def test_fixed_graph_is_the_plain_model_on_the_filtered_input(kind: str) -> None:
    change, (H, BX), c = Change(8, 1, new=0), inputs(8), random_filter(2, 1)
    found = evolve(change.transition(kind, c), H, BX, RATES.expand(1, 8, D))
    filtered = torch.linalg.solve(matrix_polynomial(c, change.laplacians()[0]), BX)
    expected = H * RATES.exp() + filtered * torch.expm1(RATES) / RATES
    assert torch.allclose(found, expected, atol=F64)


@pytest.mark.parametrize("kind", KINDS)
def test_step_per_node_equals_adaptive_integration(kind: str) -> None:
    """The integral of exp(-sG) (P^-1 U * exp(s r)) by scipy, tolerance 1e-12, r differing between rows."""
    change, (H, U), c = Change(6, 3), inputs(6), random_filter(2, 3)
    rate = -torch.rand(1, 6, D, dtype=torch.float64) * 3
    after, before = (matrix_polynomial(c, L)[0].numpy() for L in change.laplacians())
    G, C = np.linalg.solve(after, after - before), np.linalg.solve(after, U[0].numpy())
    r = rate[0].numpy()
    integral, _ = scipy.integrate.quad_vec(
        lambda s: scipy.linalg.expm(-s * G) @ (C * np.exp(s * r)), 0, 1, epsabs=1e-13, epsrel=1e-12
    )
    expected = scipy.linalg.expm(-G) @ (H[0].numpy() * np.exp(r)) + integral
    found = evolve(change.transition(kind, c), H, U, rate)[0].numpy()
    assert np.abs(found - expected).max() < 1e-11
    coarse = evolve(change.transition(kind, c), H, U, rate, count=1)[0].numpy()
    assert np.abs(coarse - expected).max() > 1e-5  # one node is not enough, so that the test can fail


def test_quadrature_is_exact_for_polynomials_of_degree_15() -> None:
    nodes, weights = gauss_legendre(8)
    for degree in range(16):
        assert weights @ nodes**degree == pytest.approx(1 / (degree + 1), rel=F64_TIGHT)
    with pytest.raises(ConfigError):
        gauss_legendre(0)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_all_paths_agree_in_value_and_every_gradient(order: int) -> None:
    change = Change(25, seed=order, num_edges=30, new=7)
    results = []
    for kind in KINDS:
        H, U = (x.requires_grad_() for x in inputs(25))
        c = random_filter(order, 2).requires_grad_()
        rate = (RATES.expand(1, 25, D) * 0.5).clone().requires_grad_()
        out = evolve(change.transition(kind, c), H, U, rate)
        results.append([out, *torch.autograd.grad((out * out.detach().cos()).sum(), (H, U, rate, c))])
    for exponential, dense, sparse in zip(*results, strict=True):
        assert torch.allclose(exponential, dense, atol=F64, rtol=F64_SUM)
        assert torch.allclose(exponential, sparse, atol=F64, rtol=F64_SUM)


@pytest.mark.parametrize(("kind", "order"), [("exponential", 2), ("dense", 1), ("sparse", 2)])
def test_gradcheck_through_solve_and_exponential(kind: str, order: int) -> None:
    change = Change(5, seed=2)
    H, U = (x.requires_grad_() for x in inputs(5))
    rate = (RATES.expand(1, 5, D) * 0.5).clone().requires_grad_()

    def run(c: Tensor, H: Tensor, U: Tensor, rate: Tensor) -> Tensor:
        return evolve(change.transition(kind, c), H, U, rate)

    assert torch.autograd.gradcheck(run, (random_filter(order, 0).requires_grad_(), H, U, rate))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_stay_finite_in_float32_for_strong_changes(kind: str) -> None:
    """A change of norm about 15, dozens of terms: powers overflow unless they are scaled by 1/k! in every step."""
    change, (H, U) = Change(60, seed=3, num_edges=70, new=60), inputs(60)
    c = torch.tensor([1.0, 30.0], requires_grad=True)
    H, U = H.float().requires_grad_(), U.float().requires_grad_()
    out = evolve(change.transition(kind, c), H, U, (0.1 * RATES).float().expand(1, 60, D))
    for gradient in torch.autograd.grad((out / out.detach().norm()).square().sum(), (c, H, U)):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("kind", KINDS)
def test_float32_stays_near_float64(kind: str) -> None:
    change, (H, U) = Change(40, seed=1, num_edges=60, new=10), inputs(40)
    c = torch.tensor([1.0, critical_alpha(1)], dtype=torch.float64)
    rate = (0.1 * RATES).expand(1, 40, D)
    exact = evolve(change.transition(kind, c), H, U, rate)
    fast = evolve(change.transition(kind, c.float()), H.float(), U.float(), rate.float())
    assert fast.dtype == torch.float32
    assert (fast - exact).norm() < 3e-6 * exact.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_bipartite_graph_with_eigenvalue_two(kind: str) -> None:
    """A complete bipartite graph reaches eigenvalue 2; every allowed filter keeps P definite and the step finite."""
    left, right = torch.meshgrid(torch.arange(4), torch.arange(4, 9), indexing="ij")
    change = Change(9, 0)
    change.pairs, change.weight = torch.stack([left.reshape(-1), right.reshape(-1)]), torch.ones(20).double()
    assert torch.linalg.eigvalsh(change.laplacians()[0]).max() == pytest.approx(2)
    H, U = inputs(9)
    for c in ([1.0], [1, 100.0], [1, 0, 5], [1, -0.45], [1, 2, 3, 4, 5], [1, -2, 1.2]):
        check_filter(c)
        filter_ = torch.tensor(c, dtype=torch.float64)
        found = evolve(change.transition(kind, filter_), H, U, RATES.expand(1, 9, D), count=32)
        after, before = (matrix_polynomial(filter_, L)[0].numpy() for L in change.laplacians())
        expected = kronecker_reference(after, after - before, np.diag(RATES), 1.0, H[0].numpy(), U[0].numpy())
        assert np.abs(found[0].numpy() - expected).max() < 1e-8 * np.abs(expected).max()


def test_permuted_nodes_permute_the_memory() -> None:
    """Theorem 6.2."""
    change, (H, U), c = Change(10, 4), inputs(10), random_filter(2, 4)
    rate = -torch.rand(1, 10, D, dtype=torch.float64)
    found = evolve(change.transition("dense", c), H, U, rate)
    order = torch.randperm(10)
    place = torch.argsort(order)
    change.pairs = place[change.pairs]
    permuted = evolve(change.transition("dense", c), H[:, order], U[:, order], rate[:, order])
    assert torch.allclose(permuted, found[:, order], atol=F64)


@pytest.mark.parametrize(("kind", "order"), [("dense", 1), ("sparse", 2), ("dense", 3)])
def test_perturbed_laplacian_moves_the_coefficients_within_the_bound(order: int, kind: str) -> None:
    """Theorem 6.1: |p(L')^-1 X - p(L)^-1 X| <= eps Gamma |p(L)^-1 X|, Gamma = max p max |p'| / (min p)^2."""
    c = random_filter(order, 6)
    p = np.polynomial.Polynomial(c.numpy())
    grid = np.linspace(0, 2, 4001)
    gamma = p(grid).max() * abs(p.deriv()(grid)).max() / p(grid).min() ** 2
    X = inputs(12)[0]
    for seed in range(5):
        whole, fewer = Change(12, seed, new=2), Change(12, seed, new=0)
        fewer.pairs, fewer.weight = fewer.pairs[:, :-2], fewer.weight[:-2]
        L, other = whole.laplacians()
        eps = float(torch.linalg.matrix_norm(L - other, 2))
        true, perturbed = (change.transition(kind, c).solve(X) for change in (whole, fewer))
        assert torch.allclose(matrix_polynomial(c, L) @ true, X, atol=F64)
        error = torch.linalg.matrix_norm((perturbed - true)[0], 2) / torch.linalg.matrix_norm(true[0], 2)
        assert 0 < error <= eps * gamma


def test_adding_then_deleting_an_edge_returns_the_state_up_to_the_commutator() -> None:
    """No input, no decay: to second order in the change, and exactly where the two generators commute."""

    def there_and_back(alpha: float, with_: Tensor, without: Tensor) -> float:
        """|H after both - H| / |H|, the change of P being alpha (L - L_before)."""
        H = inputs(with_.shape[-1])[0]
        c, zero = torch.tensor([1.0, alpha], dtype=torch.float64), torch.zeros_like(H)
        there = evolve(DenseTransition(c, with_, without), H, zero, zero)
        back = evolve(DenseTransition(c, without, with_), there, zero, zero)
        return float((back - H).norm() / H.norm())

    change = Change(8, 7)
    small, smaller = (there_and_back(a, *change.laplacians()) for a in (1e-3, 1e-4))
    assert small < 1e-5
    assert smaller < 1.1e-2 * small  # of second order in the change, whose first order cancels
    both = change.transition("dense", torch.tensor([1.0, 0.5], dtype=torch.float64))
    H = inputs(8)[0]
    zero = torch.zeros_like(H)
    inverse = DenseTransition(torch.ones(1, dtype=torch.float64), *change.laplacians())
    inverse.G = -both.G  # commuting generators: exactly the identity
    assert torch.allclose(evolve(inverse, evolve(both, H, zero, zero), zero, zero), H, atol=F64)


def test_blocks_evolve_independently() -> None:
    one, two = Change(5, 1), Change(5, 2)
    c = random_filter(1, 0)
    (H, U), rate = inputs(10), RATES.expand(1, 5, D)
    pairs = [torch.stack(parts) for parts in zip(one.laplacians(), two.laplacians(), strict=True)]
    both = DenseTransition(c, *(p[:, 0] for p in pairs))
    found = evolve(both, H.view(2, 5, D), U.view(2, 5, D), rate.expand(2, 5, D))
    for block, change in enumerate((one, two)):
        rows = slice(5 * block, 5 * block + 5)
        separate = evolve(change.transition("dense", c), H[:, rows], U[:, rows], rate)
        assert torch.allclose(found[block], separate[0], atol=F64_TIGHT)


def test_number_of_terms_bounds_the_series_error() -> None:
    for radius in (0.0, 1e-9, 0.5, 3.0, 12.0):
        for tolerance in (1e-7, 1e-15):
            K = num_terms(radius, tolerance)
            series = sum(radius**k / float(np.prod(np.arange(1.0, k + 1))) for k in range(K + 1))
            assert abs(series - np.exp(radius)) <= tolerance + 4e-16 * K * np.exp(radius)
    assert num_terms(0.0, 1e-7) == 0
    with pytest.raises(HopstateError, match="filter_init"):
        num_terms(float("nan"), 1e-7)
    with pytest.raises(HopstateError, match="filter_init"):
        num_terms(1e4, 1e-7)


@pytest.mark.parametrize(("kind", "factor"), [("dense", 3.0), ("sparse", 1.3)])
def test_radius_is_an_upper_bound_and_not_a_loose_one(kind: str, factor: float) -> None:
    for seed in range(12):
        change = Change(30, seed, num_edges=40, new=6)
        for c in (random_filter(2, seed), torch.tensor([1.0, -0.45]).double(), torch.tensor([1.0, 6.5]).double()):
            after, before = (matrix_polynomial(c, L)[0] for L in change.laplacians())
            true = float(torch.linalg.eigvals(torch.linalg.solve(after, after - before)).abs().max())
            assert true <= change.transition(kind, c).radius <= factor * true


def test_shapes_that_disagree_are_named() -> None:
    H, U = inputs(4)
    with pytest.raises(ShapeError):
        evolve(Change(4, 0).transition("dense", random_filter(1, 0)), H, U[..., :2], H)
