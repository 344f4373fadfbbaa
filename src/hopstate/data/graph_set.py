"""Many graphs as one immutable record: their block-diagonal union, bounds, and labels of graphs, nodes or edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.graph import Graph, StoredSplits, edges_of
from hopstate.data.validate import SPLITS, as_float32, as_regression_targets, dense_array
from hopstate.errors import DataError
from hopstate.io.scratch import digest_of
from hopstate.ops.rows import bounds_of, ranges
from hopstate.random import named_rng

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphSet(StoredSplits):
    """G graphs, packed.

    Args:
        union: all nodes and edges, graph after graph; union.y holds node labels where nodes are the task.
        offsets: (G+1,) int64, graph g is nodes offsets[g]..offsets[g + 1] - 1.
        y: (G,) int64 classes (-1: unknown), or (G,) or (G, T) float32 targets (NaN: unknown), or None; 0/1 are labels.
        edge_y: the same of the union's stored edges, or None.
        masks: name ("train", "val", "test") to boolean (G,), or (R, G) where R splits are stored.
        class_names: names of the classes 0..C-1, or None.

    Raises:
        DataError: an empty graph, an edge between two graphs, or labels of the wrong length.
    """

    union: Graph
    offsets: np.ndarray
    y: np.ndarray | None = None
    edge_y: np.ndarray | None = None
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "masks", dict(self.masks))
        where, sizes = self.union.source or self.union.name, np.diff(self.offsets)
        if not len(sizes) or self.offsets[0] != 0 or self.offsets[-1] != self.union.num_nodes:
            raise DataError(f"{where}: offsets must run from 0 to the number of nodes, {self.union.num_nodes}")
        if (sizes < 1).any():
            empty = np.flatnonzero(sizes < 1)
            raise DataError(f"{where}: {len(empty)} graphs have no node, the first is graph {empty[0]}; leave them out")
        sources, targets = self.graph_of[self.union.edge_index()]
        if (sources != targets).any():
            raise DataError(f"{where}: an edge joins graphs {sources[sources != targets][0]} and another")
        for name, array, rows in (("y", self.y, self.num_graphs), ("edge_y", self.edge_y, self.union.num_edges)):
            if array is not None and len(array) != rows:
                raise DataError(f"{where}: {name} holds {len(array)} labels for {rows}")
        for name, mask in self.masks.items():
            if mask.dtype != bool or mask.shape[-1] != self.num_graphs:
                raise DataError(
                    f"{where}: the {name} mask must be boolean of {self.num_graphs} graphs; got {mask.shape}"
                )

    def as_published(self) -> GraphSet:
        """Return the set with its features marked as those of a published dataset; see `Graph`."""
        return replace(self, union=self.union.with_(published=True))

    @property
    def num_graphs(self) -> int:
        """G."""
        return len(self.offsets) - 1

    @property
    def num_nodes(self) -> int:
        """Nodes of all graphs."""
        return self.union.num_nodes

    @property
    def num_features(self) -> int:
        """F; 0 without features."""
        return self.union.num_features

    @property
    def name(self) -> str:
        """For messages and run folders."""
        return self.union.name

    @property
    def source(self) -> str:
        """Where the graphs came from."""
        return self.union.source

    @cached_property
    def content_hash(self) -> str:
        """Hex digest of graphs, features and labels."""
        return digest_of(self.union.content_hash, self.offsets, self.y, self.edge_y)

    @cached_property
    def graph_of(self) -> np.ndarray:
        """(N,) int64 graph of each node."""
        return np.repeat(np.arange(self.num_graphs), np.diff(self.offsets))

    def rows(self, graphs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes of some graphs, graph after graph, and their bounds."""
        sizes = self.offsets[graphs + 1] - self.offsets[graphs]
        return ranges(self.offsets[graphs], sizes), bounds_of(sizes)

    def edges(self, graphs: np.ndarray) -> np.ndarray:
        """Return the rows of the union's edges that lie in some graphs, graph after graph."""
        indptr = self.union.indptr
        starts = indptr[self.offsets[graphs]]
        return ranges(starts, indptr[self.offsets[graphs + 1]] - starts)

    @classmethod
    def from_pyg(cls, graphs: Iterable[Data], *, level: str = "graph", name: str = "graphs", **fields: Any) -> GraphSet:
        """Build a set from torch-geometric graphs.

        Args:
            graphs: each with edge_index, and x, edge_attr, edge_weight, y as they have them.
            level: what y labels: "graph", "node" or "edge".
            name: for messages.
            fields: masks, class_names.
        """
        listed = list(graphs)
        if not listed:
            raise DataError(f"{name} holds no graph")
        edges = [edges_of(graph) for graph in listed]
        sizes = np.array([int(g.num_nodes or 0) for g in listed])
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        joined = np.concatenate([edge_index + first for edge_index, first in zip(edges, offsets)])
        order = np.lexsort((joined[:, 1], joined[:, 0]))
        attr, y = _joined(listed, "edge_attr"), _joined(listed, "y")
        labels = _labels(y, name)
        union = Graph.from_edges(
            joined, int(offsets[-1]), undirected=False, duplicates="keep", name=name, source=fields.pop("source", ""),
            x=_columns(_joined(listed, "x")), edge_attr=_columns(attr), edge_weight=_joined(listed, "edge_weight"),
            y=labels if level == "node" else None,
        )  # fmt: skip
        if level == "edge" and labels is not None:
            fields["edge_y"] = labels[order]
        if level == "graph":
            fields["y"] = labels
        return cls(union=union, offsets=offsets, **fields)

    def __repr__(self) -> str:
        return (
            f"GraphSet({self.name!r}: {self.num_graphs:,} graphs, {self.union.num_nodes:,} nodes, "
            f"{self.union.num_edges:,} stored edges, {self.union.num_features} features)"
        )


def folds(train: list[np.ndarray], test: list[np.ndarray], num_graphs: int, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Return masks of cross-validation folds, with a ninth of each training split for validation.

    Args:
        train, test: graph numbers of each fold.
        num_graphs: G.
        seed: draws the validation graphs.
    """
    masks = {name: np.zeros((len(train), num_graphs), bool) for name in SPLITS}
    for k, (own, test_rows) in enumerate(zip(train, test)):
        order = named_rng(seed, k).permutation(own)
        cut = len(own) // 9
        masks["val"][k, order[:cut]], masks["train"][k, order[cut:]], masks["test"][k, test_rows] = True, True, True
    return masks


def _labels(y: np.ndarray | None, name: str) -> np.ndarray | None:
    """Return int64 classes or float32 targets; whole numbers in several columns are 0/1 labels."""
    if y is None or y.dtype.kind == "f":
        return y if y is None else as_regression_targets(y)
    y = y.reshape(len(y), -1)
    if y.shape[1] == 1:
        return y[:, 0].astype(np.int64)
    if not np.isin(y, (0, 1)).all():
        raise DataError(f"{name}: y has {y.shape[1]} columns of whole numbers other than 0 and 1; give one of classes")
    return y.astype(np.float32)


def _joined(graphs: list[Data], key: str) -> np.ndarray | None:
    """Return the rows of all graphs; None if no graph has them."""
    parts = [dense_array(graph.get(key), key) for graph in graphs]
    absent = [number for number, part in enumerate(parts) if part is None]
    if len(absent) == len(parts):
        return None
    if absent:
        raise DataError(f"graph {absent[0]} has no {key}, and others have: give it to all graphs or to none")
    parts = [part if part.ndim else part[None] for part in parts]
    odd = next((number for number, part in enumerate(parts) if part.shape[1:] != parts[0].shape[1:]), None)
    if odd is not None:
        raise DataError(f"{key} has shape {parts[odd].shape} in graph {odd}, and {parts[0].shape} in graph 0")
    return np.concatenate(parts)


def _columns(array: np.ndarray | None) -> np.ndarray | None:
    if array is None:
        return None
    return np.ascontiguousarray(as_float32(array.reshape(len(array), -1), "features"))
