"""CSR from a list of edges: ours against scipy's COO to CSR with sorted indices, both undirected without duplicates.

python benchmarks/csr_build.py [nodes] [edges]
"""

from __future__ import annotations

import sys

import numpy as np
import scipy.sparse

from common import machine, median_time, require_green, rmat_edges
from hopstate.data.graph import Graph


def with_scipy(edges: np.ndarray, n: int) -> scipy.sparse.csr_array:
    """Return the symmetrised adjacency by scipy."""
    u, v = np.concatenate([edges, edges[:, ::-1]]).T
    matrix = scipy.sparse.coo_array((np.ones(len(u), np.float32), (u, v)), shape=(n, n)).tocsr()
    matrix.sum_duplicates()
    return matrix


def main() -> None:
    """Print seconds and the ratio."""
    require_green("tests/data/test_graph.py")
    n, count = (int(float(a)) for a in (sys.argv[1:] + ["1e6", "1e7"][len(sys.argv) - 1 :]))
    edges = rmat_edges(n, count)
    theirs = with_scipy(edges, n)
    graph = Graph.from_edges(edges, n)
    np.testing.assert_array_equal(graph.indptr, theirs.indptr)
    np.testing.assert_array_equal(graph.indices, theirs.indices)
    ours = median_time(lambda: Graph.from_edges(edges, n), repeats=3)
    scipys = median_time(lambda: with_scipy(edges, n), repeats=3, warmup=0)
    print(machine())
    print(f"{n:,} nodes, {count:,} R-MAT edges: ours {ours:.2f} s, scipy {scipys:.2f} s, ratio {ours / scipys:.2f}")


if __name__ == "__main__":
    main()
