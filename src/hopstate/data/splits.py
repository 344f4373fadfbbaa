"""Seeded random splits of labelled nodes, and splits as masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hopstate.data.validate import SPLITS
from hopstate.errors import ConfigError, DataError
from hopstate.ops.rows import ranges
from hopstate.random import named_rng


def random_split(
    y: np.ndarray,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    *,
    seed: int = 0,
    stratified: bool = False,
) -> dict[str, np.ndarray]:
    """Return sorted rows of train, val and test, drawn without replacement from the rows whose label is known.

    Args:
        y: (N,) classes, -1 unknown, or (N,) / (N, T) float targets, NaN unknown.
        fractions: shares of train, val, test; what is left over belongs to none of them.
        seed: fixes the split.
        stratified: every class has these shares too, to within two nodes.

    Raises:
        ConfigError: shares that are negative or sum to more than 1, or stratified without classes.
        DataError: no row is labelled.
    """
    shares = np.asarray(fractions, np.float64)
    if shares.shape != (3,) or (shares < 0).any() or shares.sum() > 1 + 1e-9:
        raise ConfigError(f"fractions are three shares that sum to at most 1; got {list(fractions)}")
    y = np.asarray(y)
    classes = y.dtype.kind in "iu"
    if stratified and not (classes and y.ndim == 1):
        raise ConfigError("a stratified split needs class labels; these are numbers")
    known = y >= 0 if classes else ~np.isnan(y)
    rows = np.flatnonzero(known if known.ndim == 1 else known.any(1))
    if not len(rows):
        raise DataError("no label is known, so that nothing can be drawn for training")
    order = named_rng(seed).permutation(rows)
    sizes = np.diff(np.rint(np.cumsum([0, *shares, max(0.0, 1 - shares.sum())]) * len(rows)).astype(np.int64))
    which = np.repeat(np.arange(4), sizes)  # train, val, test, left over
    if stratified:
        order = order[np.argsort(y[order], kind="stable")]
        # every split's nodes evenly spaced along the classes, so that each class gets its share to within two
        which = which[np.argsort(np.concatenate([(np.arange(n) + 0.5) / max(n, 1) for n in sizes]), kind="stable")]
    return {name: np.sort(order[which == i]) for i, name in enumerate(SPLITS)}


def per_class_split(y: np.ndarray, counts: tuple[int, int], *, seed: int = 0) -> dict[str, np.ndarray]:
    """Return sorted rows: so many of each class for train and for val, all other labelled rows for test.

    Args:
        y: (N,) classes, -1 unknown.
        counts: nodes of each class for train and for val.
        seed: fixes the split.

    Raises:
        ConfigError: y holds no classes.
        DataError: a class with fewer nodes than are asked for, and one for test.
    """
    y = np.asarray(y)
    if y.dtype.kind not in "iu" or y.ndim != 1:
        raise ConfigError("nodes of each class need class labels; these are numbers")
    order = named_rng(seed).permutation(np.flatnonzero(y >= 0))
    order = order[np.argsort(y[order], kind="stable")]
    sizes = np.bincount(y[order]) if len(order) else np.zeros(1, np.int64)
    few = np.flatnonzero((sizes > 0) & (sizes <= sum(counts)))
    if len(few) or not len(order):
        raise DataError(
            f"{counts[0]} training and {counts[1]} validation nodes of each class are asked for, but class "
            f"{few[0] if len(few) else 0} has {sizes[few[0]] if len(few) else 0}; ask for fewer"
        )
    place = ranges(np.zeros_like(sizes), sizes)
    which = np.searchsorted(np.cumsum(counts), place, side="right")
    return {name: np.sort(order[which == i]) for i, name in enumerate(SPLITS)}


def masks_from_rows(splits: Sequence[Mapping[str, np.ndarray]], num_nodes: int) -> dict[str, np.ndarray]:
    """Return masks (R, N) of R splits given as rows of num_nodes = N nodes; (N,) where R is 1."""
    masks = {name: np.zeros((len(splits), num_nodes), bool) for name in splits[0]}
    for number, split in enumerate(splits):
        for name, rows in split.items():
            masks[name][number, rows] = True
    return {name: mask[0] if len(splits) == 1 else mask for name, mask in masks.items()}
