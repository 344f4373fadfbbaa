"""Smallest non-trivial eigenvectors of the symmetric normalized Laplacian.

L = I - D^-1/2 A D^-1/2, where D holds the row sums of A; a directed A is replaced by (A + A^T) / 2. L is block-diagonal
over connected components. Each component has one trivial eigenvalue 0, and each vector is zero outside its component.
Isolated nodes are zero everywhere. The s vectors are distributed over the components by size (`shares`), so
that small components do not use up the vectors of the giant one.

Each component is solved separately, with its trivial vector D^1/2 1 projected out. Small ones use a dense solver.
Meshes, road networks and trees, whose factor of L stays sparse, use Lanczos on (L + sigma I)^-1. Others use Lanczos on
3 I - L. A Krylov space from one start vector contains one vector of a repeated eigenvalue. Therefore Lanczos is
repeated in the orthogonal complement until no smaller eigenvalue is left. Residuals are checked.

The basis of an eigenspace, signs included, depends only on the eigenspace (`canonical_basis`). Therefore the result
does not depend on the solver, unless the s-th eigenvalue is repeated beyond s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hopstate.errors import HopstateError
from hopstate.ops.threads import one_thread
from hopstate.random import named_rng

DENSE = 600  # maximum nodes for the dense solver
MESH = 5  # mean width of a graph's level sets, in multiples of sqrt(N), up to which its factor stays sparse
TREE = 1.2  # maximum edges per node of a tree-like graph
SIGMA = 1e-4  # shift that makes L + sigma I definite; well below the eigenvalues that matter at such sizes
EQUAL = 1e-8  # eigenvalues closer than this are one eigenvalue
RESIDUAL = 1e-7  # maximum |L v - lambda v|


def shares(sizes: np.ndarray, count: int) -> np.ndarray:
    """Return (components,) int64 the number of vectors per component, distributed by size.

    Vectors are assigned one by one by the D'Hondt method, at most nodes - 1 per component. Ties go to the first one.

    Args:
        sizes: (components,) numbers of nodes.
        count: s.

    >>> shares(np.array([100, 30, 2, 1]), 5).tolist()
    [4, 1, 0, 0]
    """
    assigned, limit = np.zeros(len(sizes), np.int64), np.maximum(sizes - 1, 0)
    for _ in range(min(count, int(limit.sum()))):
        assigned[np.argmax(np.where(assigned < limit, sizes / (assigned + 1), 0))] += 1
    return assigned


def components(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return (N,) the weakly connected component of each node."""
    import scipy.sparse as sp
    from scipy.sparse.csgraph import connected_components

    n = len(indptr) - 1
    small = max(n, len(indices)) < 2**31
    kind = np.int32 if small else np.int64
    parts = (np.ones(len(indices), np.int8), np.asarray(indices, kind), np.asarray(indptr, kind))
    return np.asarray(connected_components(sp.csr_array(parts, shape=(n, n)), directed=True, connection="weak")[1])


@one_thread(numpy=True)  # results are stored in files
def laplacian_eigenvectors(indptr: np.ndarray, indices: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return small non-trivial eigenvalues of L and their eigenvectors, distributed over components by `shares`.

    Args:
        indptr: (N+1,) CSR row pointers of A.
        indices: (E,) columns; duplicate entries add up.
        count: s, number of eigenvectors.

    Returns:
        values: (s,) float64 ascending, NaN if fewer exist (N minus the number of components).
        vectors: (N, s) float64 orthonormal columns, zero if fewer exist.

    Raises:
        HopstateError: a solver did not converge to residuals below `RESIDUAL`.
    """
    n = len(indptr) - 1
    values, vectors = np.full(count, np.nan), np.zeros((n, count))
    if n == 0 or count == 0 or len(indices) == 0:
        return values, vectors
    a = _symmetric(indptr, indices)
    parts = _components(a)
    pairs: list[tuple[float, np.ndarray, np.ndarray]] = []  # (eigenvalue, rows, entries)
    for rows, num_pairs in zip(parts, shares(np.array([len(rows) for rows in parts]), count)):
        if num_pairs:
            smallest, basis = _component_eigenpairs(a[rows][:, rows], int(num_pairs))
            pairs += [(float(v), rows, basis[:, i]) for i, v in enumerate(smallest)]
    for column, (value, rows, entries) in enumerate(sorted(pairs, key=lambda pair: pair[0])):
        values[column], vectors[rows, column] = value, entries
    return values, vectors


def _symmetric(indptr: np.ndarray, indices: np.ndarray) -> Any:
    import scipy.sparse as sp

    n = len(indptr) - 1
    a = sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(n, n), copy=True)  # summed in place below
    a.sum_duplicates()
    difference = a - a.T
    return ((a + a.T) / 2).tocsr() if difference.nnz and abs(difference).max() else a


def _components(a: Any) -> list[np.ndarray]:
    """Return the rows of each component of at least two nodes, the largest first."""
    from scipy.sparse.csgraph import connected_components

    labels = connected_components(a, directed=False)[1]
    sizes = np.bincount(labels)
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
    return [members[c] for c in np.argsort(-sizes, kind="stable") if sizes[c] > 1]


def _component_eigenpairs(a: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the min(count, n - 1) smallest non-trivial eigenpairs of a connected graph's Laplacian."""
    import scipy.sparse as sp

    n = a.shape[0]
    degree = np.asarray(a.sum(1)).ravel()
    scale = sp.diags_array(1 / np.sqrt(degree))
    laplacian = (sp.eye_array(n) - scale @ a @ scale).tocsr()
    trivial = np.sqrt(degree / degree.sum())
    num_pairs = min(count, n - 1)
    if n <= DENSE or num_pairs > n // 3:
        values, vectors = np.linalg.eigh(laplacian.toarray() + 3 * np.outer(trivial, trivial))
        return _canonical(values[:-1], vectors[:, :-1], num_pairs)  # the trivial vector was moved to eigenvalue 3
    values, vectors = _iterate(laplacian, trivial, num_pairs)
    return _canonical(values, vectors, num_pairs)


def _iterate(laplacian: Any, trivial: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    # both operators are positive, so the projected-out space, at eigenvalue 0, sorts last
    apply = _inverse(laplacian) if _factor_stays_sparse(laplacian) else lambda x: 3 * x - laplacian @ x
    generator = named_rng(0)
    values, vectors = _rayleigh_ritz(laplacian, _lanczos(apply, trivial[:, None], count, generator))
    while len(values) < len(trivial) - 1:
        basis = np.concatenate([trivial[:, None], vectors], 1)
        highest = values[count - 1] - EQUAL
        # a coarse solve usually shows that no smaller eigenvalue is left; otherwise solve accurately
        rough = _lanczos(apply, basis, 1, generator, tolerance=1e-3)
        (value,), vector = _rayleigh_ritz(laplacian, rough)
        if value - np.linalg.norm(laplacian @ vector[:, 0] - value * vector[:, 0]) > highest:
            break
        new = _lanczos(apply, basis, min(2, len(trivial) - basis.shape[1]), generator)
        smallest = _rayleigh_ritz(laplacian, new)[0][0]
        values, vectors = _rayleigh_ritz(laplacian, np.concatenate([vectors, new], 1))
        if smallest > highest:
            break
    worst = np.linalg.norm(laplacian @ vectors[:, :count] - vectors[:, :count] * values[:count], axis=0).max()
    if not worst <= RESIDUAL:
        raise HopstateError(
            f"Laplacian eigenvectors did not converge: residual {worst:.2g}; request fewer eigenvectors"
        )
    return values, vectors


def _factor_stays_sparse(laplacian: Any) -> bool:
    """Return whether L is similar to a mesh or tree, so that its factor stays sparse.

    Either an ordering places entries near the diagonal, or few edges close cycles. Trying a minimum-degree ordering
    would be slow for other graphs.
    """
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n = laplacian.shape[0]
    if (laplacian.nnz - n) / 2 <= TREE * n:
        return True
    place = np.empty(n, np.int64)
    place[reverse_cuthill_mckee(laplacian, symmetric_mode=True)] = np.arange(n)
    first = np.minimum.reduceat(place[laplacian.indices], laplacian.indptr[:-1])
    return float((place - first).mean()) <= MESH * np.sqrt(n)


def _inverse(laplacian: Any) -> Any:
    """Return x -> (L + sigma I)^-1 x."""
    import scipy.sparse as sp
    from scipy.sparse.linalg import splu

    shifted = (laplacian + SIGMA * sp.eye_array(laplacian.shape[0])).tocsc()
    options = {"SymmetricMode": True}
    return splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).solve


def _lanczos(
    apply: Any, basis: np.ndarray, count: int, generator: np.random.Generator, tolerance: float = 1e-12
) -> np.ndarray:
    """Return (n, count) eigenvectors of the largest eigenvalues of apply, orthogonal to basis.

    tolerance bounds the residual relative to the eigenvalue.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    n = len(basis)

    def project(x: np.ndarray) -> np.ndarray:
        return x - basis @ (basis.T @ x)

    operator = LinearOperator((n, n), lambda x: project(apply(project(x.ravel()))), dtype=np.float64)
    start = project(generator.standard_normal(n))
    ncv = min(n, max(3 * count + 1, 40))
    try:
        return eigsh(operator, count, which="LA", v0=start, ncv=ncv, tol=tolerance, maxiter=500)[1]
    except ArpackNoConvergence as error:
        raise HopstateError(
            f"Laplacian eigenvectors did not converge ({len(error.eigenvalues)} of {count}); request fewer eigenvectors"
        ) from error


def _rayleigh_ritz(laplacian: Any, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    q, _ = np.linalg.qr(basis)
    values, rotation = np.linalg.eigh(q.T @ (laplacian @ q))
    return values, q @ rotation


def _canonical(values: np.ndarray, vectors: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    cuts = np.flatnonzero(np.diff(values) > EQUAL) + 1
    groups = np.split(np.arange(len(values)), cuts)
    basis = [canonical_basis(vectors[:, g]) for g in groups if g[0] < count]
    return values[:count], np.concatenate(basis, 1)[:, :count]


def canonical_basis(space: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis that depends only on the space, not on the given basis.

    The first vector is the projection of the unit vector nearest to the space (the first of equals). The next ones
    repeat this in the remainder, as in a pivoted Cholesky factorization of the projector. Each vector is positive at
    its pivot.

    Args:
        space: (n, m) orthonormal columns.
    """
    rest, out = space.copy(), np.empty_like(space)
    for i in range(space.shape[1]):
        weight = np.einsum("nm,nm->n", rest, rest)
        pivot = int(np.argmax(weight >= weight.max() * (1 - 1e-6)))
        direction = rest[pivot] / np.linalg.norm(rest[pivot])
        out[:, i] = rest @ direction
        rest = rest - np.outer(out[:, i], direction)
    return out
