"""Gradient-boosted trees as arrays, converted from scikit-learn and evaluated by compiled code.

Scores equal scikit-learn's, with the same comparisons and order of sums. Contributions follow the decision path
(Saabas): a split adds the change of the expected value to its feature. Together with the expectation at the roots they
sum to the score.

Source: Friedman 2001, doi:10.1214/aos/1013203451 (boosting); Ke et al. 2017 (LightGBM, histograms), as in
scikit-learn's HistGradientBoostingClassifier; Saabas 2014 (contributions).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import CheckpointError, check_range

_LARGEST = np.finfo(np.float64).max


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees in the layout of `tree_kernels`.

    Args:
        first: (T+1,) int64 index of each root, and the end of the last tree.
        deepest: (T,) int64 depth of the deepest leaf.
        nodes: (n, 4) int32 feature, and child for values up to the threshold, above it, and missing.
        threshold: (n,) float64.
        value: (n,) float64 value of a leaf, or expected value of an inner node.
        baseline: score before the first tree.
    """

    first: np.ndarray
    deepest: np.ndarray
    nodes: np.ndarray
    threshold: np.ndarray
    value: np.ndarray
    baseline: float

    def scores(self, x: np.ndarray) -> np.ndarray:
        """Return (Q,) float64 log-odds of rows x (Q, F)."""
        from hopstate.methods.pair_trees.tree_kernels import add_trees

        out = np.full(len(x), self.baseline)
        add_trees(x, self.first, self.deepest, self.nodes, self.threshold, self.value, out)
        return out

    def contributions(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """Return (Q, F) float64 contributions of rows x (Q, F), and the bias."""
        from hopstate.methods.pair_trees.tree_kernels import add_paths

        out = np.zeros(x.shape)
        add_paths(x, self.first, self.deepest, self.nodes, self.threshold, self.value, out)
        return out, self.baseline + float(self.value[self.first[:-1]].sum())


class PairTrees(nn.Module):
    """Trees as buffers of fixed size, without gradients.

    Args:
        config: number and size of trees.
        num_features: F.
        columns: (C,) int64 event features in use.
        edge_dim: number of event features of the stream, 0 if unused.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `PairTrees`.

        Args:
            num_trees: number of trees.
            learning_rate: shrinkage of each tree.
            max_leaves: maximum leaves of a tree.
            min_leaf: minimum training pairs in a leaf, at most a twentieth of all pairs.
            l2: L2 penalty on leaf values.
        """

        num_trees: int = 200
        learning_rate: float = 0.1
        max_leaves: int = 31
        min_leaf: int = 100
        l2: float = 10.0

        def __post_init__(self) -> None:
            check_range("model.", minimum=1, num_trees=self.num_trees, min_leaf=self.min_leaf)
            check_range("model.", minimum=2, max_leaves=self.max_leaves)
            check_range("model.", minimum=0, l2=self.l2)
            check_range("model.", above=0, maximum=1, learning_rate=self.learning_rate)

    child: Tensor
    threshold: Tensor
    value: Tensor
    gain: Tensor
    size: Tensor
    baseline: Tensor
    columns: Tensor
    relations: Tensor | None

    def __init__(
        self,
        config: Config,
        num_features: int,
        columns: np.ndarray,
        edge_dim: int = 0,
        relations: np.ndarray | None = None,
    ) -> None:
        super().__init__()
        self.config, self.num_features, self.edge_dim = config, num_features, edge_dim
        shape = (config.num_trees, 2 * config.max_leaves - 1)
        for name in ("threshold", "value", "gain"):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("child", torch.zeros((*shape, 4), dtype=torch.int32))
        self.register_buffer("size", torch.zeros(config.num_trees, dtype=torch.int64))  # nodes; 0 before training
        self.register_buffer("baseline", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("columns", torch.from_numpy(np.array(columns, np.int64)))
        self.register_buffer("relations", None if relations is None else torch.from_numpy(relations))
        self._forest: Forest | None = None  # built from the buffers on first use

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> PairTrees:
        return self  # trees stay on the CPU in float64

    def _load_from_state_dict(self, *given: Any) -> None:
        # also called if the trees are a part of another module, as in an ensemble
        super()._load_from_state_dict(*given)
        self._forest = None
        columns = self.columns
        if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < self.edge_dim:
            raise CheckpointError("corrupt trees: event feature index out of range; train again")
        self.forest  # noqa: B018  validates them

    @property
    def num_fitted(self) -> int:
        """Number of trained trees."""
        return int((self.size > 0).sum())

    def load_estimator(self, estimator: Any, columns: np.ndarray, prior: float = 0.0, output: int = 0) -> None:
        """Load the trees of a fitted HistGradientBoostingClassifier or its regressor.

        columns (C,) map its columns to features; none if it was fitted to a constant. prior is added to its log-odds.
        output is the number of the class, of more than two.
        """
        columns = columns if len(columns) else np.zeros(1, np.int64)
        self._forest = None
        for buffer in (self.child, self.threshold, self.value, self.gain, self.size):
            buffer.zero_()
        self.baseline[0] = float(np.asarray(estimator._baseline_prediction).reshape(-1)[output]) + prior
        for tree, of_outputs in enumerate(estimator._predictors):
            nodes = of_outputs[output].nodes
            n, index_of = len(nodes), np.arange(len(nodes), dtype=np.int32)
            leaf = nodes["is_leaf"].astype(bool)
            left, right = (np.where(leaf, index_of, nodes[side].astype(np.int32)) for side in ("left", "right"))
            missing = np.where(nodes["missing_go_to_left"].astype(bool), left, right)
            feature = np.where(leaf, 0, columns[np.where(leaf, 0, nodes["feature_idx"])]).astype(np.int32)
            # a split between known and missing has an infinite threshold
            threshold = np.minimum(np.where(leaf, 0.0, nodes["num_threshold"]), _LARGEST)
            self.child[tree, :n] = torch.from_numpy(np.stack([feature, left, right, missing], 1))
            count = nodes["count"].astype(np.float64)
            value = nodes["value"].astype(np.float64).copy()
            for i in np.flatnonzero(~leaf)[::-1]:  # children come after their parent
                a, b = left[i], right[i]
                value[i] = (count[a] * value[a] + count[b] * value[b]) / max(count[a] + count[b], 1.0)
            gain = np.where(leaf, 0.0, np.maximum(nodes["gain"], 0.0))
            for buffer, array in ((self.threshold, threshold), (self.value, value), (self.gain, gain)):
                buffer[tree, :n] = torch.from_numpy(array)
            self.size[tree] = n

    @property
    def forest(self) -> Forest:
        """The trees as arrays for evaluation."""
        if self._forest is None:
            self._forest = self._checked()
        return self._forest

    def _checked(self) -> Forest:
        size = self.size.numpy()
        count, max_nodes = self.num_fitted, self.child.shape[1]
        in_tree = np.arange(max_nodes) < size[:count, None]
        child, positions = self.child[:count].numpy(), np.arange(max_nodes)
        inner = child[..., 1] != positions
        children_later = (child[..., 1:] > positions[:, None]).all(-1) & (
            child[..., 1:] < size[:count, None, None]
        ).all(-1)
        leaf = (child[..., 1:] == positions[:, None]).all(-1)
        feature = (child[..., 0] >= 0) & (child[..., 0] < max(self.num_features, 1))
        sizes_valid = (size[:count] > 0).all() and not size[count:].any() and (size <= max_nodes).all()
        if not sizes_valid or not (feature & np.where(inner, children_later, leaf))[in_tree].all():
            raise CheckpointError("corrupt trees: child index out of range; train again")
        first = np.concatenate([np.zeros(1, np.int64), np.cumsum(size[:count])])
        nodes = child[in_tree].copy()
        nodes[:, 1:] += np.repeat(first[:-1], size[:count]).astype(np.int32)[:, None]
        level, below = np.zeros(len(nodes), np.int64), nodes[inner[in_tree], 1:3]
        for _ in range(max_nodes):  # a level at a time; children come after their parents
            level[below] = level[inner[in_tree]][:, None] + 1
        deepest = np.array([level[a:b].max() for a, b in pairwise(first)], np.int64)
        threshold, value = self.threshold[:count].numpy()[in_tree], self.value[:count].numpy()[in_tree]
        return Forest(first, deepest, nodes, threshold, value, float(self.baseline[0]))

    def importances(self) -> np.ndarray:
        """Return (F,) each feature's share of the total split gain, zeros without splits."""
        gains = np.zeros(self.num_features)
        np.add.at(gains, self.child[..., 0].numpy().reshape(-1), self.gain.numpy().reshape(-1))
        return gains / max(gains.sum(), np.finfo(float).tiny)
