"""Boosted trees as arrays: read from scikit-learn once, kept as tensors, and walked by compiled code.

Scores are scikit-learn's own, bit for bit: the same comparisons, the same sums in the same order. Contributions follow
each row's paths (Saabas): a split on a feature gives it the difference between what is expected below and above; with
the expectation at the roots they add up to the score.

Source: Friedman 2001, doi:10.1214/aos/1013203451 (boosting); Ke et al. 2017 (LightGBM, histograms), as in
scikit-learn's HistGradientBoostingClassifier; Saabas 2014 (contributions); Platt 1999 (calibration).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import CheckpointError, check_range
from hopstate.methods.pair_trees.bins import Bins
from hopstate.methods.pair_trees.masks import MaskedTrees

FEW = 4  # rows for which walks are quicker
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

    def add(self, x: np.ndarray, out: np.ndarray, begin: int = 0, end: int | None = None) -> None:
        """Add what trees begin .. end-1 say of rows x (Q, F) to out (Q,)."""
        end = len(self.deepest) if end is None else end
        if len(x) > FEW and x.dtype == np.float32 and self.masked is not None:
            self.masked.add(x, out, begin, end)
        else:
            self.walk(x, out, begin, end)

    def walk(self, x: np.ndarray, out: np.ndarray, begin: int, end: int) -> None:
        """Do what `add` does by walks from the roots to the leaves, of which there may be any number."""
        from hopstate.methods.pair_trees.tree_kernels import add_trees

        some, first = slice(begin, end), self.first[begin : end + 1]
        add_trees(x, first, self.deepest[some], self.nodes, self.threshold, self.value, out)

    @cached_property
    def masked(self) -> MaskedTrees | None:
        """The trees as masks of leaves, None where they have too many."""
        return MaskedTrees.of(self.first, self.nodes, self.threshold, self.value)

    def scores(self, x: np.ndarray) -> np.ndarray:
        """Return (Q,) float64 log-odds of rows x (Q, F)."""
        out = np.full(len(x), self.baseline)
        self.add(x, out)
        return out

    def contributions(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """Return (Q, F) float64 contributions of rows x (Q, F), and the score that no feature adds."""
        from hopstate.methods.pair_trees.tree_kernels import add_paths

        out = np.zeros(x.shape)
        add_paths(x, self.first, self.deepest, self.nodes, self.threshold, self.value, out)
        return out, self.baseline + float(self.value[self.first[:-1]].sum())


class WrittenOut(nn.Module):
    """Trees in torch's own operations, all of them a step at a time: the scores of a `Forest`, to rounding.

    Args:
        forest: the trees; later changes are not seen.
    """

    nodes: Tensor
    threshold: Tensor
    value: Tensor
    first: Tensor

    def __init__(self, forest: Forest) -> None:
        super().__init__()
        self.deepest, self.baseline = int(forest.deepest.max(initial=0)), forest.baseline
        self.register_buffer("nodes", torch.from_numpy(forest.nodes.astype(np.int64)))
        self.register_buffer("threshold", torch.from_numpy(forest.threshold.astype(np.float64)))
        self.register_buffer("value", torch.from_numpy(forest.value.astype(np.float64)))
        self.register_buffer("first", torch.from_numpy(forest.first[:-1].astype(np.int64)))

    def forward(self, features: Tensor) -> Tensor:
        """Return (Q,) float64 log-odds of features (Q, F)."""
        at = self.first.expand(features.shape[0], -1)
        for _ in range(self.deepest):
            node = self.nodes[at]
            x = features.gather(1, node[..., 0])
            known = torch.where(x.double() <= self.threshold[at], node[..., 1], node[..., 2])
            at = torch.where(x.isnan(), node[..., 3], known)
        return self.baseline + self.value[at].sum(1)


class PairTrees(nn.Module):
    """The trees of a run: tensors of a fixed size, of which validation keeps a part; nothing has a gradient.

    Args:
        config: how many trees at most, and how large.
        num_features: F.
        columns: (C,) int64 event features that are looked at, kept with the trees.
        edge_dim: event features that the stream has, 0 where none are looked at.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `PairTrees`.

        Args:
            max_trees: trees at most; validation chooses how many are kept.
            learning_rate: by how much each tree is shrunk.
            max_leaves: leaves of a tree at most.
            min_leaf: training pairs in a leaf at least; a twentieth of them where they are few.
            l2: penalty on the values of leaves.
        """

        max_trees: int = 200
        learning_rate: float = 0.12
        max_leaves: int = 31
        min_leaf: int = 100
        l2: float = 10.0

        def __post_init__(self) -> None:
            check_range("model.", least=1, max_trees=self.max_trees, min_leaf=self.min_leaf)
            check_range("model.", least=2, max_leaves=self.max_leaves)
            check_range("model.", least=0, l2=self.l2)
            check_range("model.", above=0, most=1, learning_rate=self.learning_rate)

    child: Tensor
    threshold: Tensor
    value: Tensor
    cover: Tensor
    gain: Tensor
    size: Tensor
    baseline: Tensor
    platt: Tensor
    columns: Tensor

    def __init__(self, config: Config, num_features: int, columns: np.ndarray, edge_dim: int = 0) -> None:
        super().__init__()
        self.config, self.num_features, self.edge_dim = config, num_features, edge_dim
        shape = (config.max_trees, 2 * config.max_leaves - 1)
        kinds = {"threshold": torch.float64, "value": torch.float64, "cover": torch.float64, "gain": torch.float64}
        for name, kind in kinds.items():
            self.register_buffer(name, torch.zeros(shape, dtype=kind))
        self.register_buffer("child", torch.zeros((*shape, 4), dtype=torch.int32))
        self.register_buffer("size", torch.zeros(config.max_trees, dtype=torch.int64))  # nodes; 0 of a tree left out
        self.register_buffer("baseline", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("platt", torch.tensor([1.0, 0.0], dtype=torch.float64))
        self.register_buffer("columns", torch.from_numpy(np.array(columns, np.int64)))
        self._walked: tuple[tuple[tuple[int, int], ...], Forest] | None = None  # of the tensors as they were

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> PairTrees:
        return self  # trees are walked on the CPU, in float64, wherever and however else is computed

    def load_state_dict(self, *given: Any, **options: Any) -> Any:
        """Take trees from a file.

        Raises:
            CheckpointError: they lead out of themselves, look at absent event features, or turn scores round.
        """
        found = super().load_state_dict(*given, **options)
        columns = self.columns
        if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < self.edge_dim:
            raise CheckpointError("the trees look at event features that are not there: they are damaged; train again")
        if not float(self.platt[0]) > 0:
            raise CheckpointError("the trees' calibration turns scores round: it is damaged; train again")
        for trees in (part for part in self.modules() if isinstance(part, PairTrees)):
            trees.forest()
        return found

    def forward(self, features: Tensor) -> Tensor:
        """Return (Q,) float64 log-odds of features (Q, F), on the CPU."""
        x = features.detach().to("cpu", torch.float32).numpy()
        return torch.from_numpy(self.forest().scores(np.ascontiguousarray(x)))

    def as_program(self) -> WrittenOut:
        """Return the same in torch's own operations, as a program is traced."""
        return WrittenOut(self.forest())

    def feature_shares(self, features: np.ndarray) -> np.ndarray:
        """Return (Q, F) float64: what each of the features (Q, F) adds to the log-odds."""
        return self.forest().contributions(np.ascontiguousarray(features, np.float32))[0]

    @property
    def kept(self) -> int:
        """How many trees there are."""
        return int((self.size > 0).sum())

    def put(self, predictors: list[Any], baseline: float, bins: Bins | None = None) -> None:
        """Take the trees of a fitted HistGradientBoostingClassifier.

        Args:
            predictors: its trees, in order, at most max_trees.
            baseline: its log-odds before the first tree.
            bins: whose numbers it was fitted to; None where it saw the features themselves.
        """
        for buffer in (self.child, self.threshold, self.value, self.cover, self.gain, self.size):
            buffer.zero_()
        self.baseline[0] = baseline
        for tree, (one,) in enumerate(predictors):
            nodes = one.nodes
            n, own = len(nodes), np.arange(len(nodes), dtype=np.int32)
            leaf = nodes["is_leaf"].astype(bool)
            left, right = (np.where(leaf, own, nodes[side].astype(np.int32)) for side in ("left", "right"))
            missing = np.where(nodes["missing_go_to_left"].astype(bool), left, right)
            feature = np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32)
            # a split between known and missing has an infinite threshold
            threshold = np.where(leaf, 0.0, nodes["num_threshold"])
            if bins is not None:
                for i in np.flatnonzero(~leaf):
                    threshold[i] = bins.threshold(int(feature[i]), float(threshold[i]))
                feature = np.where(leaf, 0, bins.features[feature]).astype(np.int32)
            self.child[tree, :n] = torch.from_numpy(np.stack([feature, left, right, missing], 1))
            threshold = np.minimum(threshold, _LARGEST)
            count = nodes["count"].astype(np.float64)
            value = nodes["value"].astype(np.float64).copy()
            for i in np.flatnonzero(~leaf)[::-1]:  # children come after their parent
                a, b = left[i], right[i]
                value[i] = (count[a] * value[a] + count[b] * value[b]) / max(count[a] + count[b], 1.0)
            gain = np.where(leaf, 0.0, np.maximum(nodes["gain"], 0.0))
            for buffer, array in zip(
                (self.threshold, self.value, self.cover, self.gain), (threshold, value, count, gain), strict=True
            ):
                buffer[tree, :n] = torch.from_numpy(array)
            self.size[tree] = n

    def keep(self, count: int) -> None:
        """Leave out all trees from number count on."""
        for buffer in (self.child, self.threshold, self.value, self.cover, self.gain, self.size):
            buffer[count:] = 0

    def forest(self) -> Forest:
        """Return the trees as they are walked; the same again while the tensors are as they were.

        Raises:
            CheckpointError: they lead out of themselves.
        """
        now = tuple((tensor.data_ptr(), tensor._version) for tensor in self._own_tensors())
        if self._walked is None or self._walked[0] != now:
            self._walked = now, self._forest()
        return self._walked[1]

    def _own_tensors(self) -> tuple[Tensor, ...]:
        return self.child, self.threshold, self.value, self.size, self.baseline

    def _forest(self) -> Forest:
        from hopstate.methods.pair_trees.tree_kernels import depths

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
        deepest = np.empty(count, np.int64)
        depths(first, nodes, deepest)
        threshold, value = self.threshold[:count].numpy()[here], self.value[:count].numpy()[here]
        return Forest(first, deepest, nodes, threshold, value, float(self.baseline[0]))

    def calibrated(self, scores: np.ndarray) -> np.ndarray:
        """Return (Q,) probabilities of log-odds scores (Q,)."""
        slope, shift = self.platt.tolist()
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(-(slope * scores + shift)))

    def importances(self) -> np.ndarray:
        """Return (F,) each feature's share of all that splits gained; zeros where nothing was split."""
        found = np.zeros(self.num_features)
        np.add.at(found, self.child[..., 0].numpy().reshape(-1), self.gain.numpy().reshape(-1))
        return found / max(found.sum(), np.finfo(float).tiny)


def platt(scores: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Return slope and shift for which sigmoid(slope * score + shift) fits outcomes y (Q,) best, by Newton's method.

    Args:
        scores: (Q,) log-odds.
        y: (Q,) 0 or 1.
        weight: (Q,) of each.

    Returns:
        A slope above 0, so that the order of scores stays; (1, 0) where there is no such fit.
    """
    a, b = 1.0, 0.0
    x = np.stack([scores, np.ones(len(scores))], 1)
    for _ in range(50):
        with np.errstate(over="ignore"):
            p = 1 / (1 + np.exp(-(x @ np.array([a, b]))))
        gradient = x.T @ (weight * (p - y))
        curve = (x * (weight * np.maximum(p * (1 - p), 1e-12))[:, None]).T @ x + 1e-9 * np.eye(2)
        step = np.linalg.solve(curve, gradient)
        a, b = a - float(np.clip(step[0], -1, 1)), b - float(np.clip(step[1], -1, 1))
        if np.abs(step).max() < 1e-10:
            break
    return (a, b) if np.isfinite([a, b]).all() and a > 1e-3 else (1.0, 0.0)
