"""Memory transition of a changed graph: G = P^-1 (P - P_before), P = p(L), as a dense or a sparse operator.

Both forms provide `hopstate.ops.filters.quadrature.evolve` with solves by a factor of P and with sums of
exp(-s_q G) C_q over many s, differentiable in the filter's coefficients. Small dense exponentials are computed once for
all layers. Otherwise one Taylor series covers every s, by Horner's rule

    Z_0 - G (Z_1 - G/2 (Z_2 - G/3 (...))),    Z_k = sum_q s_q^k C_q,

in K products, where K follows from a bound on G and the dtype. The factors 1/k! between the products prevent overflow.
G is similar to the symmetric P^-1/2 (P - P_before) P^-1/2, and -G > -1, so the series hardly cancels.

Source: CTDG-SSM, arXiv:2606.04672, theorem 4.2 and algorithm 3.
Deviation: no exponential of a matrix of more than `EXPONENTIAL_LIMIT` rows is formed, and the inverse of P for dense
matrices alone, from its factor: P is well conditioned on [0, 2], and a product is a third of two triangular solves.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hopstate.errors import HopstateError
from hopstate.ops.filters.laplacian import matrix_polynomial
from hopstate.ops.threads import numpy_on_one_thread

if TYPE_CHECKING:
    import scipy.sparse

EXPONENTIAL_LIMIT = 16  # maximum active nodes of a block for dense exponentials
NORM_STEPS = 10  # of the power iteration for G's spectral radius on the sparse path
NORM_MARGIN = 1.25  # what that estimate is multiplied by: it comes from below


class Transition(Protocol):
    """What `evolve` needs of a batch's change: P^-1 X, and sums of exp(-sG) C; the number of blocks."""

    blocks: int

    def solve(self, X: Tensor) -> Tensor:
        """Return P^-1 X of X (S, n, d)."""
        ...

    def act(self, C: Tensor, s: np.ndarray) -> Tensor:
        """Return sum_q exp(-s_q G) C_q (S, n, d) of C (Q, S, n, d) and s (Q,) in [0, 1]."""
        ...


def num_terms(radius: float, tolerance: float) -> int:
    """Return the K for which the Taylor series of exp(x), |x| <= radius, is cut after x^K/K! with error <= tolerance.

    Raises:
        HopstateError: radius is not finite or above 500: exp(-G) would overflow.
    """
    if not radius <= 500:
        raise HopstateError(
            f"one batch would multiply the memory by up to exp({radius:.3g}); lower the filter's coefficients "
            "(filter_init), or check them for NaN"
        )
    term, k = 1.0, 0
    while True:
        following = term * radius / (k + 1)
        if following <= tolerance * (1 - min(radius / (k + 2), 0.99)):
            return k
        term, k = following, k + 1


def _series_terms(C: Tensor, s: np.ndarray, radius: float) -> Tensor:
    """Return Z (K+1, S, n, d), Z_k = sum_q s_q^k C_q, with K for C's dtype."""
    K = num_terms(radius, torch.finfo(C.dtype).eps / 2)
    table = torch.as_tensor(s ** np.arange(K + 1)[:, None], dtype=C.dtype, device=C.device)
    return (table @ C.flatten(1)).view(K + 1, *C.shape[1:])


class DenseTransition:
    """G of every block as a dense matrix; differentiable through autograd.

    Args:
        coefficients: (m+1,) c_0..c_m, p >= epsilon on [0, 2].
        after, before: (S, n, n) Laplacians with and without what the batch changed.
        exponential_limit: form exponentials for up to so many rows.
    """

    def __init__(
        self, coefficients: Tensor, after: Tensor, before: Tensor, *, exponential_limit: int = EXPONENTIAL_LIMIT
    ) -> None:
        P = matrix_polynomial(coefficients, after)
        self.blocks, self.exponential_limit = len(after), exponential_limit
        self.factor = torch.linalg.cholesky(P)
        self.inverse = torch.cholesky_inverse(self.factor)
        self.G = self.inverse @ (P - matrix_polynomial(coefficients, before))
        self._exponentials: dict[bytes, Tensor] = {}

    @cached_property
    def radius(self) -> float:
        """Upper bound of the blocks' spectral radius: G's eigenvalues are real, so their squares sum to tr(G G)."""
        G = self.G.detach()
        return float((G * G.mT).sum((-2, -1)).clamp(min=0).max().sqrt()) if G.numel() else 0.0

    def solve(self, X: Tensor) -> Tensor:
        """Return P^-1 X of X (S, n, d)."""
        return self.inverse @ X

    def act(self, C: Tensor, s: np.ndarray) -> Tensor:
        """Return sum_q exp(-s_q G) C_q (S, n, d) of C (Q, S, n, d) and s (Q,) in [0, 1]."""
        n = C.shape[2]
        if n <= self.exponential_limit:
            key = s.tobytes()
            if key not in self._exponentials:  # formed once for all layers, side by side: (S, n, Q n)
                steps = torch.as_tensor(-s, dtype=C.dtype, device=C.device).view(-1, 1, 1, 1)
                self._exponentials[key] = torch.linalg.matrix_exp(steps * self.G).permute(1, 2, 0, 3).flatten(2)
            return self._exponentials[key] @ C.transpose(0, 1).flatten(1, 2)
        terms = _series_terms(C, s, self.radius).unbind(0)
        R = terms[-1]
        for k in range(len(terms) - 2, -1, -1):
            R = torch.baddbmm(terms[k], self.G, R, alpha=-1 / (k + 1))
        return R


class SparseTransition:
    """G by products with sparse matrices and solves with a sparse factor of P; the cost grows with the edges.

    Args:
        coefficients: (m+1,) c_0..c_m, p >= epsilon on [0, 2]; on the CPU.
        after, before: Laplacians with and without what the batch changed, scipy CSR, (n, n).
    """

    @numpy_on_one_thread()
    def __init__(self, coefficients: Tensor, after: scipy.sparse.csr_array, before: scipy.sparse.csr_array) -> None:
        self.coefficients, self.blocks = coefficients, 1
        self.system = _System(coefficients.detach().cpu().double().numpy(), after, before)
        self.radius = self.system.radius()

    def solve(self, X: Tensor) -> Tensor:
        """Return P^-1 X of X (1, n, d)."""
        return _Solve.apply(self.coefficients, X[0], self.system)[None]

    @numpy_on_one_thread()
    def act(self, C: Tensor, s: np.ndarray) -> Tensor:
        """Return sum_q exp(-s_q G) C_q (1, n, d) of C (Q, 1, n, d) and s (Q,) in [0, 1]."""
        return _Series.apply(self.coefficients, _series_terms(C, s, self.radius)[:, 0], self.system)[None]


class _System:
    """The sparse matrices of one batch: P's factor, P - P_before, and their derivatives by each coefficient.

    The factor's products are small: one thread of scipy's BLAS has them, however many torch has.
    """

    @numpy_on_one_thread()
    def __init__(self, c: np.ndarray, after: Any, before: Any) -> None:
        import scipy.sparse as sp
        from scipy.sparse.linalg import splu

        eye = sp.eye_array(after.shape[0], format="csr", dtype=after.dtype)
        c = c.astype(after.dtype)
        self.powers, self.changes = [eye], [sp.csr_array(after.shape, dtype=after.dtype)]
        self.P, self.change, power, power_before = c[0] * eye, self.changes[0], after, before
        for k in range(1, len(c)):
            if k > 1:
                power, power_before = power @ after, power_before @ before
            change = power - power_before
            self.powers.append(power)
            self.changes.append(change)
            self.P, self.change = self.P + c[k] * power, self.change + c[k] * change
        self.change.eliminate_zeros()
        self.lu = splu(
            self.P.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )

    @numpy_on_one_thread()
    def radius(self) -> float:
        """Return an estimate from above of G's spectral radius: power iteration in P's inner product."""
        if not self.change.nnz:
            return 0.0
        v = (1 + np.cos(np.arange(self.P.shape[0]) ** 2.0)).astype(self.P.dtype)  # orthogonal to no graph's symmetry
        v = self.lu.solve(self.change @ v)
        for step in range(NORM_STEPS):
            last = step == NORM_STEPS - 1
            size = math.sqrt(max(float(v @ (self.P @ v)), 0.0)) if last else float(np.linalg.norm(v))
            if size == 0:
                return 0.0
            v = self.lu.solve(self.change @ (v / size))
        return math.sqrt(max(float(v @ (self.P @ v)), 0.0)) * NORM_MARGIN

    @numpy_on_one_thread()
    def solve(self, X: np.ndarray) -> np.ndarray:
        """Return P^-1 X."""
        return self.lu.solve(np.asfortranarray(X)) if X.size else X

    @numpy_on_one_thread()
    def coefficient_gradients(self, V: np.ndarray, Y: np.ndarray, X: np.ndarray | None) -> list[float]:
        """Return -<V, L^j Y> + <V, (L^j - L_before^j) X> for every coefficient j; X None leaves out the second."""
        sums = []
        for power, change in zip(self.powers, self.changes, strict=True):
            total = -float(np.vdot(V, power @ Y))
            sums.append(total if X is None else total + float(np.vdot(V, change @ X)))
        return sums


class _Solve(torch.autograd.Function):
    """Y = P^-1 X; dX = P^-1 dY; dc_j = -<dX, L^j Y>."""

    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, X: Tensor, system: _System) -> Tensor:
        Y = torch.from_numpy(np.ascontiguousarray(system.solve(X.detach().numpy())))
        ctx.system = system
        ctx.save_for_backward(coefficients, Y)
        return Y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        coefficients, Y = ctx.saved_tensors
        V = ctx.system.solve(gradient.numpy())
        dc = ctx.system.coefficient_gradients(V, Y.numpy(), None) if ctx.needs_input_grad[0] else None
        return (None if dc is None else coefficients.new_tensor(dc)), torch.from_numpy(np.ascontiguousarray(V)), None


class _Series(torch.autograd.Function):
    """R_K = Z_K, R_k = Z_k - G R_{k+1} / (k+1); the adjoint runs up, A_{k+1} = -(P - P_before) P^-1 A_k / (k+1)."""

    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, Z: Tensor, system: _System) -> Tensor:
        z = Z.detach().numpy()
        R = [np.ascontiguousarray(z[-1])]
        for k in range(len(z) - 2, -1, -1):
            R.append(z[k] - system.solve(system.change @ R[-1]) / (k + 1))
        ctx.system = system
        ctx.R = R[::-1]  # R_0..R_K
        ctx.save_for_backward(coefficients, Z)
        return torch.from_numpy(np.ascontiguousarray(R[-1]))

    @staticmethod
    @once_differentiable
    @numpy_on_one_thread()  # once for all of its solves
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        coefficients, Z = ctx.saved_tensors
        system, R, z = ctx.system, ctx.R, Z.detach().numpy()
        A, V = [gradient.numpy()], []
        for k in range(len(R) - 1):
            V.append(system.solve(A[-1]) / (k + 1))
            A.append(-(system.change @ V[-1]))
        dc = None
        if ctx.needs_input_grad[0]:
            if V:  # all terms side by side, so that every sparse matrix is read once
                applied = [(z[k] - R[k]) * (k + 1) for k in range(len(V))]  # G R_{k+1}
                wide = [np.concatenate(part, axis=1) for part in (V, applied, R[1:])]
                dc = coefficients.new_tensor(system.coefficient_gradients(*wide)).neg()
            else:
                dc = torch.zeros_like(coefficients)
        return dc, torch.from_numpy(np.stack(A)), None
