"""Polynomial filters of a graph's Laplacian, and memory updates when the graph changes.

| CTDG-SSM, arXiv:2606.04672 | function |
|---|---|
| p(L), its bound on [0, 2] | `laplacian.matrix_polynomial`, `filter_minimum`, `check_filter` |
| the critical start (ours) | `laplacian.critical_alpha`, `path_gain` |
| App. E.3: noise in the Laplacian | `laplacian.noisy_laplacian` |
| P^-1 dP and exp(-sG) | `transition.Transition`, `DenseTransition`, `SparseTransition` |
| the integral over a batch | `quadrature.gauss_legendre`, `evolve` |
| Theorem 4.1 as a dense system, for tests | `quadrature.kronecker_reference` |
"""
