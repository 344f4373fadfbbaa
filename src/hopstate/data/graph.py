"""The static graph record: CSR adjacency plus features, labels and named split masks, immutable.

Row v of the adjacency lists the targets of v's out-edges (A[source, target]); an undirected graph stores both
directions. Over an edge (u, v) node v receives from u: `incoming` has the edges by their targets. Arrays are numpy and
may be memory-mapped; nothing here copies them without need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from hopstate.data.preprocessing import FeatureTable
from hopstate.data.readers.notes import edge_notes
from hopstate.data.validate import (
    SPLITS,
    as_float32,
    as_regression_targets,
    check_graph,
    check_ids,
    check_labels,
    check_num_nodes,
    check_rows,
    dense_array,
    features_of_array,
    finite_features,
    set_type_names,
)
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError
from hopstate.io.scratch import digest_of

if TYPE_CHECKING:
    import scipy.sparse
    from torch_geometric.data import Data, HeteroData


SIGNS = 64
MOST = 1 << 22  # nodes with codes: 1 GiB of them; more nodes have one constant input
Keep = Literal["keep", "drop"]


@dataclass(frozen=True, eq=False)
class Incoming:
    """In-edges: row v holds the nodes that v receives from.

    Args:
        indptr: (N+1,) int64.
        indices: (E,) int64 sources, sorted within each row.
        rows: (E,) int64 positions of these edges in the graph's own order; None where edges carry nothing.
        weight: (E,) float32 in this order, or None.
        relation: (E,) int32 in this order, or None.
        attr: (E, D) float32 edge features in the graph's own order, or None.
    """

    indptr: np.ndarray
    indices: np.ndarray
    rows: np.ndarray | None = None
    weight: np.ndarray | None = None
    relation: np.ndarray | None = None
    attr: np.ndarray | None = None

    @classmethod
    def of(cls, graph: Graph, *, undirected: bool) -> Incoming:
        """Return a graph's in-edges; those of an undirected graph are its own arrays."""
        bare = graph.edge_weight is None and graph.edge_attr is None and graph.relation is None
        if bare and undirected:
            return cls(graph.indptr, graph.indices)
        indptr, indices, rows = _transposed(graph, rows=not bare)
        for array in (indptr, indices):
            array.flags.writeable = False
        weight, relation = (None if a is None else a[rows] for a in (graph.edge_weight, graph.relation))
        return cls(indptr, indices, None if bare else rows, weight, relation, graph.edge_attr)

    @cached_property
    def count(self) -> np.ndarray:
        """(N,) int64 number of in-edges."""
        return np.diff(self.indptr)

    @cached_property
    def degree(self) -> np.ndarray:
        """(N,) float32 number of in-edges, or the sum of their weights."""
        if self.weight is None:
            return self.count.astype(np.float32)
        receivers = np.repeat(np.arange(len(self.count)), self.count)
        return np.bincount(receivers, self.weight, len(self.count)).astype(np.float32)

    @cached_property
    def added_loops(self) -> np.ndarray:
        """(N,) float32: 1 for nodes without a self-loop, which GCN adds, otherwise 0."""
        receivers = np.repeat(np.arange(len(self.count)), self.count)
        added = np.ones(len(self.count), np.float32)
        added[receivers[receivers == self.indices]] = 0
        return added

    def attr_of(self, edges: np.ndarray | slice) -> np.ndarray | None:
        """Return (e, D) features of in-edges (positions in this order), or None where there are none."""
        return None if self.attr is None or self.rows is None else np.asarray(self.attr[self.rows[edges]])

    def weight_of(self, edges: np.ndarray | slice) -> np.ndarray | None:
        """Return (e,) weights of in-edges (positions in this order), or None where there are none."""
        return None if self.weight is None else self.weight[edges]


class StoredSplits:
    """The splits that a record of graphs has as masks of its rows (nodes or graphs)."""

    masks: Mapping[str, np.ndarray]

    @cached_property
    def num_splits(self) -> int:
        """Number of stored splits; 0 where no masks are stored."""
        mask = self.masks.get("train")
        return 0 if mask is None else (1 if mask.ndim == 1 else len(mask))

    def split(self, number: int = 0) -> dict[str, np.ndarray]:
        """Return the row numbers of train, val and test of one stored split.

        Raises:
            DataError: no masks are stored, or fewer splits than number + 1.
        """
        if not self.num_splits:
            raise DataError(f"{self} stores no split; ask for a random one (split.kind=random)")
        if not 0 <= number < self.num_splits:
            raise DataError(f"{self} stores splits 0..{self.num_splits - 1}; split {number} was asked for")
        return {key: np.flatnonzero(m if m.ndim == 1 else m[number]) for key, m in self.masks.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class Graph(StoredSplits):
    """N nodes, E stored (directed) edges.

    Args:
        indptr: (N+1,) int64, indptr[v]:indptr[v+1] are v's entries in indices.
        indices: (E,) int64 targets, sorted within each row.
        x: (N, F) float32 node features, or None.
        y: (N,) int64 class labels (-1: unknown), (N,) or (N, T) float targets, or None. Targets are float32, or float64
            if float32 would lose digits.
        edge_attr: (E, D) float32 features of edges in the order of indices, or None.
        edge_weight: (E,) float32 weights of edges, at least 0, in the order of indices, or None if all are 1.
        masks: name ("train", "val", "test") to boolean (N,), or (R, N) for R splits.
        node_ids: the user's own ids, or None if ids are 0..N-1.
        relation: (E,) int32 relations 0..R-1 of edges in the order of indices, or None if edges have no relations.
        relation_names: the R names. Default: their numbers.
        node_type: (N,) int16 types of nodes, -1 if unknown; or None if nodes have no types. Without node_type_names,
            the graph is bipartite: 0 for sources, such as users, 1 for targets, such as items, -1 for isolated nodes.
        node_type_names: the names of types; empty for a bipartite graph.
        class_names: names of the classes 0..C-1, or None.
        name: for messages and file names.
        source: where the arrays came from (path or generator), for messages.
        table: the features as they are in the user's table, if they come from one, with missing values and in float64.
            `fit` scales and fills them by the training nodes. x has 0 for missing values.
        edge_table: the same for edge_attr, rows in the order of indices.
        published: the features come from a published dataset, and `read.scale=auto` does not scale them.
        notes: sentences on how the data were read, and on what was ignored.

    Raises:
        DataError: an array does not meet the description above. The message names the row.

    Example:
        >>> graph = hopstate.Graph.from_edges(np.array([[0, 1], [1, 2]]), 3)
        >>> graph.num_nodes, graph.num_edges
        (3, 4)
    """

    indptr: np.ndarray
    indices: np.ndarray
    x: np.ndarray | None = None
    y: np.ndarray | None = None
    edge_attr: np.ndarray | None = None
    edge_weight: np.ndarray | None = None
    relation: np.ndarray | None = None
    relation_names: tuple[str, ...] = ()
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    node_ids: Vocabulary | None = None
    node_type: np.ndarray | None = None
    node_type_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None
    name: str = "graph"
    source: str = ""
    table: FeatureTable | None = None
    edge_table: FeatureTable | None = None
    published: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = {"indptr": np.int64, "indices": np.int64, "x": np.float32, "node_type": np.int16}
        kinds |= {"edge_attr": np.float32, "edge_weight": np.float32, "relation": np.int32}
        for name, kind in kinds.items():
            object.__setattr__(self, name, _frozen(getattr(self, name), kind, name))
        object.__setattr__(self, "y", _frozen_labels(self.y))
        object.__setattr__(
            self, "masks", {name: _frozen(mask, np.bool_, f"mask {name}") for name, mask in self.masks.items()}
        )
        if self.class_names is not None:
            object.__setattr__(self, "class_names", tuple(str(name) for name in self.class_names))
        object.__setattr__(self, "notes", tuple(self.notes))
        set_type_names(self)
        check_graph(self)

    # ---- sizes -----------------------------------------------------------------------------------------
    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Stored entries: an undirected edge counts twice, a self-loop once."""
        return len(self.indices)

    @property
    def two_sets(self) -> bool:
        """Whether links join nodes of two sets, such as users and items."""
        return self.node_type is not None and not self.node_type_names

    @property
    def sides(self) -> np.ndarray | None:
        """(N,) int16 the set of each node, if links join nodes of two sets; else None."""
        return self.node_type if self.two_sets else None

    @cached_property
    def degree(self) -> np.ndarray:
        """(N,) int64 out-degrees; `incoming.count` has the in-degrees."""
        return np.diff(self.indptr)

    def edge_index(self) -> np.ndarray:
        """Return (2, E) int64: sources above targets, in stored order."""
        return np.stack([np.repeat(np.arange(self.num_nodes), self.degree), self.indices])

    @property
    def num_features(self) -> int:
        """F; 0 without features."""
        return 0 if self.x is None else self.x.shape[1]

    @cached_property
    def num_classes(self) -> int:
        """Number of classes; 0 where y is missing or not integer."""
        if self.y is None or self.y.dtype.kind != "i":
            return 0
        return max(int(self.y.max(initial=-1)) + 1, len(self.class_names or ()))

    @cached_property
    def incoming(self) -> Incoming:
        """The edges by the node that receives over them."""
        return Incoming.of(self, undirected=self.is_undirected)

    # ---- edges -----------------------------------------------------------------------------------------
    def to_scipy(self, dtype: type = np.float32) -> scipy.sparse.csr_array:
        """Return the adjacency as a scipy CSR array of ones; int32 indices where they fit."""
        import scipy.sparse

        small = max(self.num_nodes, self.num_edges) < 2**31
        kind = np.int32 if small else np.int64
        parts: tuple[np.ndarray, ...] = (
            np.ones(self.num_edges, dtype),
            self.indices.astype(kind),
            self.indptr.astype(kind),
        )
        return scipy.sparse.csr_array(parts, shape=(self.num_nodes, self.num_nodes))

    @cached_property
    def is_undirected(self) -> bool:
        """Whether every stored edge has its reverse stored as often."""
        from hopstate.data.kernels import is_symmetric

        return bool(is_symmetric(*(np.asarray(array).view(np.ndarray) for array in (self.indptr, self.indices))))

    @cached_property
    def num_self_loops(self) -> int:
        """Edges from a node to itself."""
        sources, targets = self.edge_index()
        return int((sources == targets).sum())

    # ---- construction ----------------------------------------------------------------------------------
    @classmethod
    def from_edges(
        cls,
        edges: np.ndarray,
        num_nodes: int | None = None,
        *,
        undirected: bool = True,
        duplicates: Keep = "drop",
        self_loops: Keep = "keep",
        edge_attr: np.ndarray | None = None,
        edge_weight: np.ndarray | None = None,
        relation: np.ndarray | None = None,
        edge_table: FeatureTable | None = None,
        two_sets: bool | None = False,
        noted: bool = False,
        **fields: Any,
    ) -> Graph:
        """Build a graph from a list of edges.

        Args:
            edges: (E, 2) or (2, E) integers, (source, target); (2, 2) is read as (E, 2).
            num_nodes: N; by default one more than the largest id, or the rows of x or y.
            undirected: store the reverse of every edge too.
            duplicates: "drop" keeps the first of equal edges (and its edge_attr and edge_weight).
            self_loops: "drop" removes edges from a node to itself.
            edge_attr: (E, D) in the order of edges.
            edge_weight: (E,) in the order of edges.
            relation: (E,) in the order of edges; edges of different relations are not equal.
            edge_table: in the order of edges; edge_attr, where it is not given, is what it holds.
            two_sets: sources and targets are two sets of nodes; None goes by whether a node is both.
            noted: add notes on what becomes of edges that are listed twice, or in one direction, and of self-loops.
            fields: x, y, masks, node_ids, relation_names, node_type, node_type_names, class_names, name, source, table,
                published, notes of `Graph`.

        Raises:
            DataError: ids negative or out of range, wrong shapes; the first bad row is named.

        >>> graph = Graph.from_edges(np.array([[0, 1], [1, 2], [1, 2]]))
        >>> graph.num_nodes, graph.num_edges, graph.indices.tolist()
        (3, 4, [1, 0, 2, 1])
        """
        if edge_attr is None and edge_table is not None:
            edge_attr = edge_table.plain()
        known = (fields[key] for key in ("x", "y", "node_ids") if fields.get(key) is not None)
        rows = next((value.shape[0] if hasattr(value, "shape") else len(value) for value in known), None)
        carried = _carried(edge_attr, edge_weight)
        source = fields.get("source", "")
        ends = _columns(edges, f"{source}: " if source else "")
        if relation is not None:
            carried["relation"] = np.asarray(relation, np.int32)
            check_rows(carried["relation"], len(ends[0]), f"{source or 'edges'}: relation", 1, "edges")
        indptr, indices, taken = _csr(
            *ends,
            num_nodes if num_nodes is not None else rows,
            source,
            undirected=undirected,
            drop_duplicates=duplicates == "drop" and relation is None,
            drop_self_loops=self_loops == "drop",
            carried=len(next(iter(carried.values()))) if carried else None,
        )
        if relation is not None and duplicates == "drop":
            indptr, indices, taken = _distinct(indptr, indices, taken, carried["relation"])
        of_edges: dict[str, Any] = {key: array[taken] for key, array in carried.items()}
        of_edges["edge_table"] = None if edge_table is None else edge_table.take(taken)
        if two_sets is not False and fields.get("node_type") is None:
            where = source or fields.get("name") or "edges"
            fields["node_type"] = sides_of(*ends, len(indptr) - 1, where, needed=two_sets is True)
        if noted:
            rules: dict[str, Any] = {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops}
            notes = edge_notes(*ends, len(indptr) - 1, **rules | carried)
            fields["notes"] = (*fields.get("notes", ()), *notes)
        return cls(indptr=indptr, indices=indices, **of_edges, **fields)

    @classmethod
    def from_scipy(cls, adjacency: Any, **fields: Any) -> Graph:
        """Build a graph from any scipy sparse matrix; stored zeros are dropped, values other than 1 are edge weights.

        Args:
            adjacency: (N, N) sparse, A[source, target].
            fields: options of `from_edges` and fields of `Graph`; edge_weight=None leaves the values out.
        """
        coo = adjacency.tocoo()
        if coo.shape[0] != coo.shape[1]:
            raise DataError(f"an adjacency matrix is square; got shape {coo.shape}")
        check_num_nodes(coo.shape[0], coo.nnz, "the matrix", coo.shape[0] if "num_nodes" in fields else None)
        stored = coo.data != 0
        edges = np.stack([coo.row[stored], coo.col[stored]], 1)
        defaults: dict[str, Any] = {
            "undirected": False,
            "edge_weight": None if (coo.data[stored] == 1).all() else coo.data[stored],
            "two_sets": None,
        }
        defaults |= fields
        return cls.from_edges(edges, coo.shape[0], noted=defaults["undirected"], **defaults)

    @classmethod
    def from_pyg(cls, data: Data | HeteroData, *, missing: str = "error", **fields: Any) -> Graph:
        """Build a graph from a torch-geometric `Data` or `HeteroData`.

        It reads x, y, edge_index, edge_attr, edge_weight, masks, node_ids, class_names, and node_type of two sets.
        Edges stay as they are stored (no reverse added, nothing dropped), unless fields differ. The types of a
        `HeteroData`, or edge_type of a `Data`, become relations. Nodes of a type without labels have none. If types
        have features of different widths, each has its own columns. Other attributes of only some types are ignored.

        Args:
            data: x and edge_attr may be sparse; adj_t is read if there is no edge_index.
            missing: "error" names NaN in x; others keep them in the graph's table, to be filled by training nodes.
            fields: options of `from_edges` and fields of `Graph`, over what data holds.
        """
        types: dict[str, Any] = {}
        table, what = None, f"{fields.get('source', 'Data')}: node features x"
        if hasattr(data, "edge_types"):
            types["relation_names"] = tuple("-".join(name) for name in data.edge_types)
            types["node_type_names"] = tuple(data.node_types)
            table = _features_by_type(data, missing, what)
            names = ["y", *(f"{name}_mask" for name in SPLITS)]
            names = [name for name in names if any(name in store for store in data.node_stores)]
            labels = data.to_homogeneous(node_attrs=names, edge_attrs=[])  # -1 and False for types without
            data = data.to_homogeneous(dummy_values=False)
            data.update({name: labels[name] for name in names})
            types["node_type"] = dense_array(data["node_type"], "node_type")
        if data.get("edge_type") is not None:
            types["relation"] = dense_array(data["edge_type"], "edge_type")
        edges = edges_of(data)
        content: dict[str, Any] = {
            "x": dense_array(data.get("x"), "x"),
            "y": dense_array(data.get("y"), "y"),
            "source": "torch-geometric",
        }
        attr = dense_array(data.get("edge_attr"), "edge_attr")
        if content["x"] is not None and missing == "error":
            content["x"] = finite_features(content["x"], what)
        elif content["x"] is not None:
            table = features_of_array(content["x"], missing, what)
        if table is not None:
            content |= {"x": table.plain(), "table": table}
        masks = {name: _mask(dense_array(data.get(f"{name}_mask"), f"{name}_mask"), data.num_nodes) for name in SPLITS}
        content["masks"] = {name: mask for name, mask in masks.items() if mask is not None}
        if data.get("node_ids") is not None:
            content["node_ids"] = Vocabulary(np.asarray(data["node_ids"]))
        if data.get("node_type") is not None and not types.get("node_type_names"):
            content["node_type"] = _two_sets(dense_array(data["node_type"], "node_type"), edges)
        if data.get("class_names") is not None:
            content["class_names"] = tuple(data["class_names"])
        options: dict[str, Any] = {"undirected": False, "duplicates": "keep", "self_loops": "keep", "edge_attr": attr}
        options["edge_weight"] = _weights(data)
        options |= content | types | fields
        return cls.from_edges(edges, data.num_nodes, noted=options["undirected"], **{"two_sets": None, **options})

    def to_pyg(self) -> Data:
        """Return a torch-geometric `Data` that owns copies of the arrays; (R, N) masks become (N, R)."""
        import torch
        from torch_geometric.data import Data

        def tensor(array: np.ndarray | None) -> torch.Tensor | None:
            return None if array is None else torch.from_numpy(np.array(array))

        data = Data(
            x=tensor(self.x),
            y=tensor(self.y),
            edge_index=tensor(self.edge_index()),
            edge_attr=tensor(self.edge_attr),
            num_nodes=self.num_nodes,
        )
        if self.edge_weight is not None:
            data.edge_weight = tensor(self.edge_weight)
        for name, mask in self.masks.items():
            data[f"{name}_mask"] = tensor(mask.T)
        if self.node_ids is not None:
            data["node_ids"] = self.node_ids.ids.tolist()
        if self.node_type is not None:
            data["node_type"] = tensor(self.node_type.astype(np.int64))
        if self.class_names is not None:
            data["class_names"] = list(self.class_names)
        if self.relation is not None:
            data["edge_type"] = tensor(self.relation.astype(np.int64))
        return data

    def reversed(self) -> Graph:
        """Return the graph with every edge turned round, each with what it carries."""
        indptr, indices, rows = _transposed(self, rows=True)
        return self.with_(indptr=indptr, indices=indices, **self.carried(rows))

    def carried(self, rows: np.ndarray) -> dict[str, Any]:
        """Return the fields that edges carry, of the stored edges at some rows."""
        arrays = {key: getattr(self, key) for key in ("edge_attr", "edge_weight", "relation")}
        found: dict[str, Any] = {key: None if array is None else array[rows] for key, array in arrays.items()}
        return found | {"edge_table": None if self.edge_table is None else self.edge_table.take(rows)}

    def with_(self, **changes: Any) -> Graph:
        """Return a copy with some fields replaced (checked again); other features take the place of their table too."""
        tables = {"x": "table", "edge_attr": "edge_table"}
        return replace(self, **{tables[key]: None for key in changes if key in tables} | changes)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the record as a folder of .npy arrays and one JSON, atomically; see `hopstate.data.store`."""
        from hopstate.data.store import save_record

        save_record(self, folder)

    @classmethod
    def load(cls, folder: str, *, mmap: bool = True) -> Graph:
        """Read a folder written by `save`; with mmap, arrays stay on disk until touched."""
        from hopstate.data.store import load_graph

        return load_graph(folder, mmap=mmap)

    # ---- splits and identity ---------------------------------------------------------------------------
    @cached_property
    def structure_hash(self) -> str:
        """Hex digest of the adjacency alone: the key of caches of positional encodings."""
        return digest_of(self.indptr, self.indices)

    @cached_property
    def content_hash(self) -> str:
        """Hex digest of adjacency, features and gaps in them, labels, edge features, edge weights and split masks."""
        masks = [self.masks[name] for name in sorted(self.masks)]
        for table in (self.table, self.edge_table):
            masks += [] if table is None or not table.has_missing else [~np.isfinite(table.values)]
            masks += [] if table is None else table.text_arrays()
        return digest_of(
            self.indptr, self.indices, self.x, self.y, self.edge_attr, self.edge_weight, *masks, *self._types()
        )

    def _types(self) -> list[Any]:
        """Return relations and named node types, for the identity of the graph."""
        typed = [] if self.node_type is None or self.two_sets else [self.node_type, "\n".join(self.node_type_names)]
        return typed if self.relation is None else [*typed, self.relation, "\n".join(self.relation_names)]

    def __repr__(self) -> str:
        loops = f", {self.num_self_loops} self-loops" if self.num_edges < 10**7 and self.num_self_loops else ""
        return (
            f"Graph({self.name!r}: {self.num_nodes:,} nodes, {self.num_edges:,} stored edges{loops}, "
            f"{self.num_features} features, {self.num_classes} classes, {self.num_splits} splits)"
        )


def with_codes(graph: Graph) -> Graph:
    """Return a graph without features with a code for each node, or with one constant if there are too many nodes."""
    if graph.num_nodes > MOST:
        note = f"no node features: all of the {graph.num_nodes:,} nodes have one constant input"
        return graph.with_(x=np.ones((graph.num_nodes, 1), np.float32), notes=(*graph.notes, note))
    note = (
        f"no node features: the input of a node is a code of {SIGNS} random signs made from its id, from which the "
        "first layer learns; a node that is new in prediction gets its own code"
    )
    return graph.with_(x=_codes(graph), notes=(*graph.notes, note))


def _codes(graph: Graph) -> np.ndarray:
    """Return (N, SIGNS) float32 signs, each a bit of a hash of the node's id."""
    from pandas.util import hash_array

    ids = np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids.ids
    bits = hash_array(ids if ids.dtype.kind in "iu" else ids.astype(object)).astype("<u8").view(np.uint8)
    return np.unpackbits(bits).reshape(graph.num_nodes, SIGNS).astype(np.float32) * 2 - 1


def _csr(
    sources: np.ndarray, targets: np.ndarray, num_nodes: int | None, where: str, *, undirected: bool,
    drop_duplicates: bool, drop_self_loops: bool, carried: int | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return CSR arrays of edges and, for each entry, the row of edges that it comes from.

    Args:
        drop_duplicates: keep only the first of equal stored edges; if undirected, (v, u) equals (u, v).
        drop_self_loops: leave out edges from a node to itself.
        carried: rows of what edges carry, None where they carry nothing; then no rows are returned.
    """
    from hopstate.data.kernels import sorted_rows

    prefix = f"{where}: " if where else ""
    if carried is not None and carried != len(sources):
        raise DataError(f"{prefix}edge features have {carried} rows, but there are {len(sources)} edges")
    if num_nodes is None:
        num_nodes = 1 + int(max(sources.max(initial=-1), targets.max(initial=-1)))
        check_num_nodes(num_nodes, len(sources), where or "edges")
    if num_nodes < 1:
        raise DataError(f"{prefix}no edges and no number of nodes; give num_nodes, x or y")
    for name, column in (("source", sources), ("target", targets)):
        check_ids(column, num_nodes, f"{prefix}edge {name}")
    return sorted_rows(  # type: ignore[no-any-return]
        sources, targets, num_nodes, undirected, drop_duplicates, drop_self_loops, carried is not None
    )


def _features_by_type(data: HeteroData, missing: str, what: str) -> FeatureTable | None:
    """Return the features of nodes with columns for each type; None if all types have features of one width."""
    features = {name: dense_array(data[name].get("x"), "x") for name in data.node_types}
    if len({None if x is None else x.shape[1:] for x in features.values()}) < 2:
        return None
    parts = []
    for name, x in features.items():
        part = features_of_array(np.empty((data[name].num_nodes, 0)) if x is None else x, missing, f"{what} of {name}")
        parts.append(replace(part, columns=tuple(f"{name}.{i}" for i in range(part.values.shape[1]))))
    return FeatureTable.stacked(parts)


def event_fields(data: HeteroData) -> dict[str, Any]:
    """Return the fields of an `EventStream` of the edges of a `HeteroData`, all of which have the attribute time."""
    untimed = [name for name in data.edge_types if data[name].get("time") is None]
    if untimed:
        raise DataError(f"HeteroData: edges {untimed[0]} have no attribute time. Add it, or use a method for graphs")
    table = _features_by_type(data, "mean", "HeteroData: node features x")
    nodes = ["x"] if table is None and all("x" in store for store in data.node_stores) else []
    edges = [name for name in ("time", "edge_attr") if all(name in store for store in data.edge_stores)]
    whole = data.to_homogeneous(node_attrs=nodes, edge_attrs=edges)
    src, dst = edges_of(whole).T
    arrays = {name: dense_array(whole.get(name), name) for name in ("x", "edge_attr", "time", "node_type", "edge_type")}
    return {
        "src": src, "dst": dst, "t": arrays["time"], "edge_attr": arrays["edge_attr"], "num_nodes": whole.num_nodes,
        "x": arrays["x"] if table is None else table.plain(), "table": table,
        "relation": arrays["edge_type"], "relation_names": tuple("-".join(name) for name in data.edge_types),
        "node_type": arrays["node_type"], "node_type_names": tuple(data.node_types), "name": "hetero-data",
    }  # fmt: skip


def _distinct(
    indptr: np.ndarray, indices: np.ndarray, rows: np.ndarray, relation: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keep the first of equal entries of a CSR: of one source, target and relation."""
    sources = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((rows, relation[rows], indices, sources))
    entries = np.stack([sources, indices, relation[rows]])[:, order]
    kept = order[np.append(True, (entries[:, 1:] != entries[:, :-1]).any(0))] if len(order) else order
    kept.sort()
    counts = np.bincount(sources[kept], minlength=len(indptr) - 1)
    return np.append(0, np.cumsum(counts)), indices[kept], rows[kept]


def _columns(edges: Any, prefix: str) -> tuple[np.ndarray, np.ndarray]:
    edges = np.asarray(edges)
    if edges.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if edges.ndim != 2 or 2 not in edges.shape:
        raise DataError(f"{prefix}edges have shape {edges.shape}; expected (edges, 2) or (2, edges)")
    if edges.dtype.kind not in "iu":
        raise DataError(f"{prefix}edges hold {edges.dtype}; node ids are integers (read_graph also takes strings)")
    if edges.dtype == np.uint64 and int(edges.max()) > np.iinfo(np.int64).max:
        raise DataError(f"{prefix}an edge names node {edges.max()}, beyond 2^63 - 1")
    pairs = edges.T if edges.shape[1] == 2 else edges
    return tuple(np.ascontiguousarray(column, np.int64) for column in pairs)  # type: ignore[return-value]


def _transposed(graph: Graph, *, rows: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return CSR arrays of the reversed edges and, if rows, the position of each in the graph's order."""
    from hopstate.data.kernels import transposed

    plain = (np.asarray(array).view(np.ndarray) for array in (graph.indptr, graph.indices))  # a memory map is one too
    return transposed(*plain, rows)  # type: ignore[no-any-return]


def sides_of(source: np.ndarray, target: np.ndarray, num_nodes: int, where: str, *, needed: bool) -> np.ndarray | None:
    """Return (N,) the `node_type` by the ends that nodes are, None where one is a source and a target.

    Raises:
        DataError: a node is both, and two sets are needed.
    """
    sides = np.full(num_nodes, -1, np.int8)
    sides[source] = 0
    both = np.flatnonzero(sides[target] == 0)
    if needed and len(both):
        raise DataError(f"{where}: node {target[both[0]]} is a source and a target, so nodes are not of two sets")
    sides[target] = 1
    return None if len(both) or not len(source) else sides


def _frozen(array: Any, kind: DTypeLike, what: str) -> np.ndarray | None:
    """Return array as a read-only view of the given type; the caller's own array stays writeable."""
    array = dense_array(array, what)
    if array is None:
        return None
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} is an array of {array.dtype}; expected numbers")
    view: np.ndarray = array.astype(kind, copy=False).view()
    view.flags.writeable = False
    return view


def _frozen_labels(y: Any) -> np.ndarray | None:
    """Return integer labels as int64, others as `as_regression_targets` does; a column (N, 1) as (N,)."""
    if y is None:
        return None
    if hasattr(y, "fillna") and getattr(y.dtype, "kind", "") in ("i", "u"):  # pandas' integers, which may have gaps
        y = y.fillna(-1)
    y = dense_array(y, "y")
    check_labels(y, "y")
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    y = as_regression_targets(y) if y.dtype.kind == "f" else y
    return _frozen(y, y.dtype if y.dtype.kind == "f" else np.int64, "y")


def _carried(attr: Any, weight: Any) -> dict[str, np.ndarray]:
    """Return what edges carry by the name of its field, float32."""
    found = {"edge_attr": attr, "edge_weight": weight}
    found = {key: as_float32(value, key) for key, value in found.items() if value is not None}
    if "edge_attr" in found and found["edge_attr"].ndim == 1:
        found["edge_attr"] = found["edge_attr"][:, None]
    if "edge_weight" in found and found["edge_weight"].ndim == 2 and found["edge_weight"].shape[1] == 1:
        found["edge_weight"] = found["edge_weight"][:, 0]
    wrong = {key: a.shape for key, a in found.items() if a.ndim != (2 if key == "edge_attr" else 1)}
    if wrong:
        raise DataError(f"{next(iter(wrong))} has shape {next(iter(wrong.values()))}, not one row an edge")
    if len({len(array) for array in found.values()}) > 1:
        raise DataError(f"there are {len(attr)} rows of edge features, but {len(weight)} edge weights")
    return found


def _two_sets(types: np.ndarray, edges: np.ndarray) -> np.ndarray | None:
    """Return types of nodes where edges join type 0 and type 1, None where they say something else."""
    first, second = types[edges].T
    known = np.isin(types, (-1, 0, 1)).all() and (first != second).all() and (np.minimum(first, second) == 0).all()
    return types.astype(np.int8) if known and len(edges) else None


def edges_of(data: Data) -> np.ndarray:
    """Return (E, 2) sources and targets of a torch-geometric `Data`."""
    if getattr(data, "edge_index", None) is None and getattr(data, "adj_t", None) is None:
        what = sorted(data.keys()) if hasattr(data, "keys") else f"{type(data).__name__}"
        raise DataError(f"a torch-geometric Data with edge_index is needed; this one holds {what}")
    if data.get("edge_index") is not None:
        edges = dense_array(data.edge_index, "edge_index")
        if edges.size and (edges.ndim != 2 or len(edges) != 2):
            raise DataError(f"edge_index is (2, E), sources above targets; got shape {edges.shape}")
        return edges.reshape(2, -1).T
    targets, sources, _ = data.adj_t.coo()
    return np.stack([np.asarray(sources.cpu()), np.asarray(targets.cpu())], 1)


def _weights(data: Data) -> np.ndarray | None:
    if data.get("edge_index") is not None:
        return dense_array(data.get("edge_weight"), "edge_weight")
    values = data.adj_t.coo()[2]
    return None if values is None or values.ndim != 1 or bool((values == 1).all()) else np.asarray(values.cpu())


def _mask(mask: np.ndarray | None, num_nodes: int) -> np.ndarray | None:
    """Return (N,) or (R, N) from torch-geometric's (N,) or (N, R)."""
    if mask is None or mask.ndim == 1:
        return mask
    mask = mask.T if len(mask) == num_nodes else mask
    return mask[0] if len(mask) == 1 else mask
