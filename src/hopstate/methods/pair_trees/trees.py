"""Boosted trees as arrays: read from scikit-learn once, kept as tensors, and walked by compiled code.

Scores are scikit-learn's: the same comparisons, the same sums in the same order. Contributions follow
each row's paths (Saabas): a split on a feature gives it the difference between what is expected below and above; with
the expectation at the roots they add up to the score.

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
        first: (T+1,) int64 roots, and where the last tree ends.
        deepest: (T,) int64 steps to the deepest leaf.
        nodes: (n, 4) int32 feature, and nodes for values up to the threshold, above it, and missing.
        threshold: (n,) float64.
        value: (n,) float64 of leaves, and what is expected at inner nodes.
        baseline: what is scored before the first tree.
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
        """Return (Q, F) float64 contributions of rows x (Q, F), and the score that no feature adds."""
        from hopstate.methods.pair_trees.tree_kernels import add_paths

        out = np.zeros(x.shape)
        add_paths(x, self.first, self.deepest, self.nodes, self.threshold, self.value, out)
        return out, self.baseline + float(self.value[self.first[:-1]].sum())


class PairTrees(nn.Module):
    """The trees of a run, as tensors of a fixed size; nothing has a gradient.

    Args:
        config: how many trees, and how large.
        num_features: F.
        columns: (C,) int64 event features that are looked at, kept with the trees.
        edge_dim: event features that the stream has, 0 where none are looked at.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `PairTrees`.

        Args:
            num_trees: trees.
            learning_rate: by how much each tree is shrunk.
            max_leaves: leaves of a tree at most.
            min_leaf: training pairs in a leaf at least; a twentieth of them where they are few.
            l2: penalty on the values of leaves.
        """

        num_trees: int = 200
        learning_rate: float = 0.1
        max_leaves: int = 31
        min_leaf: int = 100
        l2: float = 10.0

        def __post_init__(self) -> None:
            check_range("model.", least=1, num_trees=self.num_trees, min_leaf=self.min_leaf)
            check_range("model.", least=2, max_leaves=self.max_leaves)
            check_range("model.", least=0, l2=self.l2)
            check_range("model.", above=0, most=1, learning_rate=self.learning_rate)

    child: Tensor
    threshold: Tensor
    value: Tensor
    gain: Tensor
    size: Tensor
    baseline: Tensor
    columns: Tensor

    def __init__(self, config: Config, num_features: int, columns: np.ndarray, edge_dim: int = 0) -> None:
        super().__init__()
        self.config, self.num_features, self.edge_dim = config, num_features, edge_dim
        shape = (config.num_trees, 2 * config.max_leaves - 1)
        for name in ("threshold", "value", "gain"):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("child", torch.zeros((*shape, 4), dtype=torch.int32))
        self.register_buffer("size", torch.zeros(config.num_trees, dtype=torch.int64))  # nodes; 0 before training
        self.register_buffer("baseline", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("columns", torch.from_numpy(np.array(columns, np.int64)))
        self._forest: Forest | None = None  # made of the tensors when it is first asked for

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> PairTrees:
        return self  # trees are walked on the CPU, in float64, wherever and however else is computed

    def _load_from_state_dict(self, *given: Any) -> None:
        # also called if the trees are a part of another module, as in an ensemble
        super()._load_from_state_dict(*given)
        self._forest = None
        columns = self.columns
        if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < self.edge_dim:
            raise CheckpointError("the trees look at event features that are not there: they are damaged; train again")
        self.forest  # noqa: B018  checks them

    @property
    def kept(self) -> int:
        """How many trees there are."""
        return int((self.size > 0).sum())

    def put(self, classifier: Any, columns: np.ndarray, prior: float = 0.0) -> None:
        """Take the at most num_trees trees of a fitted estimator, HistGradientBoostingClassifier or the regressor.

        columns (C,) say which features its columns are; prior is added to its log-odds.
        """
        self._forest = None
        for buffer in (self.child, self.threshold, self.value, self.gain, self.size):
            buffer.zero_()
        self.baseline[0] = float(np.asarray(classifier._baseline_prediction).reshape(-1)[0]) + prior
        for tree, (one,) in enumerate(classifier._predictors):
            nodes = one.nodes
            n, own = len(nodes), np.arange(len(nodes), dtype=np.int32)
            leaf = nodes["is_leaf"].astype(bool)
            left, right = (np.where(leaf, own, nodes[side].astype(np.int32)) for side in ("left", "right"))
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
        """The trees as they are walked."""
        if self._forest is None:
            self._forest = self._checked()
        return self._forest

    def _checked(self) -> Forest:
        size = self.size.numpy()
        count, most = self.kept, self.child.shape[1]
        here = np.arange(most) < size[:count, None]
        child, own = self.child[:count].numpy(), np.arange(most)
        inner = child[..., 1] != own
        later = (child[..., 1:] > own[:, None]).all(-1) & (child[..., 1:] < size[:count, None, None]).all(-1)
        leaf = (child[..., 1:] == own[:, None]).all(-1)
        feature = (child[..., 0] >= 0) & (child[..., 0] < max(self.num_features, 1))
        ended = (size[:count] > 0).all() and not size[count:].any() and (size <= most).all()
        if not ended or not (feature & np.where(inner, later, leaf))[here].all():
            raise CheckpointError("the trees lead out of themselves: they are damaged; train again")
        first = np.concatenate([np.zeros(1, np.int64), np.cumsum(size[:count])])
        nodes = child[here].copy()
        nodes[:, 1:] += np.repeat(first[:-1], size[:count]).astype(np.int32)[:, None]
        level, below = np.zeros(len(nodes), np.int64), nodes[inner[here], 1:3]
        for _ in range(most):  # a level at a time; children come after their parents
            level[below] = level[inner[here]][:, None] + 1
        deepest = np.array([level[a:b].max() for a, b in pairwise(first)], np.int64)
        threshold, value = self.threshold[:count].numpy()[here], self.value[:count].numpy()[here]
        return Forest(first, deepest, nodes, threshold, value, float(self.baseline[0]))

    def importances(self) -> np.ndarray:
        """Return (F,) each feature's share of all that splits gained; zeros where nothing was split."""
        found = np.zeros(self.num_features)
        np.add.at(found, self.child[..., 0].numpy().reshape(-1), self.gain.numpy().reshape(-1))
        return found / max(found.sum(), np.finfo(float).tiny)
