"""Tables of nodes beside a table of edges of any size: which ids are nodes, in which order, and what stands at them.

Tables of nodes are read in memory, but for features in a .npy file, which stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.features import FeatureTable
from hopstate.data.labels import LabelOptions, LabelTable, read_labels
from hopstate.data.readers.edge_list import node_features, rows_in_order
from hopstate.data.validate import check_ids
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError


@dataclass(frozen=True)
class NodeTables:
    """What is known of nodes beside the edges.

    Args:
        features: or None.
        ids: (n,) of the rows of features, where these say which nodes there are.
        labels: or None.
        count: nodes are rows 0..count-1; None where ids are names.
        where: files, for messages.
        notes: on features and labels.
    """

    features: FeatureTable | None
    ids: np.ndarray | None
    labels: LabelTable | None
    count: int | None
    where: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def alone(self) -> bool:
        """Whether the edges alone say which nodes there are."""
        return self.features is None and self.labels is None and self.count is None


def read_nodes(read: Mapping[str, Any]) -> NodeTables:
    """Return the tables of nodes that options name, as `read_edge_list` reads them."""
    features, labels, key = read.get("features"), read.get("labels"), read.get("id_column")
    asked = LabelOptions(
        id_column=key, label_column=read.get("label_column"), split_column=read.get("split_column"),
        unlabelled=read.get("unlabelled"), task=read.get("task", "auto"), cells=read.get("label_cells", "ask"),
    )  # fmt: skip
    named = read_labels(labels, asked)
    one = named is not None and features is not None and Path(features).resolve() == Path(str(labels)).resolve()
    without = named.columns if named is not None and one else ()
    x, ids, notes = node_features(features, key, "error", read.get("missing", "error"), without, {}, ())
    count = read.get("num_nodes")
    if count is None and x is not None and ids is None:
        count = len(x)
    elif count is not None and x is not None and ids is not None:
        x, ids = x.take(rows_in_order(ids, count, str(features))), None
    if count is None and ids is None and named is not None and named.ids is None:
        count = len(named.y)
    where = {"features": str(features), "labels": str(labels)}
    return NodeTables(x, ids, named, count, where, (*notes, *(() if named is None else named.notes)))


def placed(nodes: NodeTables, met: np.ndarray, source: str) -> tuple[np.ndarray, Vocabulary | None, int, np.ndarray]:
    """Return the rows of ids, the ids of all nodes (None where they are the rows), their number, and labels' rows.

    Args:
        nodes: tables of nodes.
        met: (n,) distinct ids of the edges, in order.
        source: of the edges, for messages.

    Raises:
        DataError: an id that no node has.
    """
    labels = None if nodes.labels is None else nodes.labels.ids
    own = np.arange(0 if nodes.labels is None or labels is not None else len(nodes.labels.y))
    if nodes.count is not None:
        for ids, what in ((met, source), (own if labels is None else labels, nodes.where["labels"])):
            if ids.dtype.kind != "i" and len(ids):
                raise DataError(f"{what} holds strings such as {ids[0]!s}, but nodes are the rows 0..{nodes.count - 1}")
            check_ids(ids, nodes.count, f"{what}: ids")
        return met, None, nodes.count, own if labels is None else labels
    if any(ids is not None and ids.dtype.kind == "U" for ids in (met, nodes.ids, labels)):
        met, labels = met.astype(str), None if labels is None else labels.astype(str)
        known = None if nodes.ids is None else nodes.ids.astype(str)
    else:
        known = nodes.ids
    if met.dtype.kind == "i" and met.min(initial=0) < 0:
        raise DataError(f"{source}: negative id {met.min()}; ids are at least 0, or texts")
    vocabulary = Vocabulary(known) if known is not None else Vocabulary.of(met, *([] if labels is None else [labels]))
    rows = vocabulary.rows(met)
    _check_known(met, rows, source, nodes.where["features"])
    if labels is not None:
        own = vocabulary.rows(labels)
        _check_known(labels, own, nodes.where["labels"], nodes.where["features"])
    plain = vocabulary.ids.dtype.kind == "i" and np.array_equal(vocabulary.ids, np.arange(len(vocabulary)))
    return rows, None if plain else vocabulary, len(vocabulary), own


def _check_known(ids: np.ndarray, rows: np.ndarray, what: str, features: str) -> None:
    bad = np.flatnonzero(rows < 0)
    if len(bad):
        raise DataError(
            f"{what}: id {ids[bad[0]].item()!r} is not in {features} ({len(bad):,} such ids); add it there, or remove "
            "the rows"
        )
