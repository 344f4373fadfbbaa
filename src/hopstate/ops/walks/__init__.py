"""Random walks and the subgraphs that they induce, as packed tokens (GMN, algorithm 1, lines 1 to 7).

`kernels` draws walks, `subgraph_kernels` makes tokens of them, several entries at a time where `wide_kernels` can.
"""

from hopstate.ops.walks.walks import (
    Subgraphs,
    WalkTable,
    random_walks,
    random_walks_naive,
    walk_features,
    walk_subgraphs,
)

__all__ = ["Subgraphs", "WalkTable", "random_walks", "random_walks_naive", "walk_features", "walk_subgraphs"]
