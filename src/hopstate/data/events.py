"""The event stream: timestamped edges with features, immutable and sorted by time.

An event's id is its position in the stream. Arrays are numpy and may be memory-mapped; slices are views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np

from hopstate.data.dates import validate_times
from hopstate.data.preprocessing import FeatureTable
from hopstate.data.validate import as_float32, check_events, check_num_nodes, dense_array, set_type_names
from hopstate.data.vocabulary import TEXT, Vocabulary
from hopstate.errors import DataError, listed, nearest
from hopstate.errors import warn as give_warning
from hopstate.io.scratch import digest_of, row_blocks

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import HeteroData, TemporalData

    from hopstate.data.graph import Graph


ADD, DELETE, GONE = 0, 1, 2
NEVER = np.iinfo(np.int64).max  # the end of an edge that nothing ends
TYPE_FIELDS = ("relation", "node_type")
TieOrder = Literal["file", "sorted"]
TIE_ORDERS: tuple[TieOrder, ...] = ("file", "sorted")


@dataclass(frozen=True, eq=False, kw_only=True)
class EventBatch:
    """Some events of a stream, in stream order.

    Args:
        event_ids: (B,) int64 positions in the stream.
        src, dst: (B,) int64 node rows.
        t: (B,) int64 or float64.
        kind: (B,) int8 as in `EventStream`, or None where every event adds.
        edge_attr: (B, D) float32 or None.
        labels: (B,) or (B, T), or None.
        relation: (B,) int32 as in `EventStream`, or None.
    """

    event_ids: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    t: np.ndarray
    kind: np.ndarray | None = None
    edge_attr: np.ndarray | None = None
    labels: np.ndarray | None = None
    relation: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.src)

    def additions(self) -> EventBatch:
        """Return those events that add an edge."""
        return self if self.kind is None or not self.kind.any() else self.take(self.kind == ADD)

    def take(self, rows: np.ndarray | slice) -> EventBatch:
        """Return the events at rows of the batch."""
        columns: dict[str, Any] = {k: v[rows] for k, v in vars(self).items() if v is not None}
        return EventBatch(**columns)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class EventStream:
    """E events between N nodes, sorted by time.

    Args:
        src, dst: (E,) int64 node rows in 0..N-1.
        t: (E,) int64 or float64, never decreasing; kept in the type given.
        kind: (E,) int8, or None if every event adds an edge: 0 (`ADD`), 1 (`DELETE`, the edge is deleted) or 2 (`GONE`,
            the node is deleted, which is source and destination). `from_arrays` and the readers replace the deletion
            of a node by deletions of its edges, unless earlier events are unknown (from_start=False).
        edge_attr: (E, D) float32 or None.
        labels: (E,) labels of the sources, integers or floats; or (E, T) floats of several targets; or None. -1 of
            integers and NaN of floats are unknown labels.
        relation: (E,) int32 relations 0..R-1 ("call", "transfer", ...), or None if events have no relations.
        relation_names: the R names. Default: their numbers.
        x: (N, F) float32 node features or None.
        table: node features as they are in the user's tables, if they come from some; see `Graph.table`.
        node_type: (N,) int16 types of nodes ("user", "item", ...), -1 if unknown; or None if nodes have no types.
        node_type_names: the names of types. Default: their numbers.
        num_nodes: N. Default: the length of x or node_ids, otherwise the largest row plus one.
        node_ids: the user's own ids, or None if ids are 0..N-1.
        time_unit: the unit of t ("s", "day", ...), for messages and cards; "" if unknown.
        name: for messages and file names.
        source: where the arrays came from, for messages.
        first_id: the id of the first event: not 0 in a slice.
        from_start: no event came before the first. False lets deletions end edges that earlier events added.
        class_names: names of the labels 0..C-1, or of the T columns of labels; or None.
        edge_table: the event features as they are in the user's table, if they come from one; see `Graph.table`.
        published: as in `Graph`.
        notes: sentences on how the data were read, and on what was left out.
        dates: time zone of the source's dates, "" if its times are numbers; see `hopstate.data.dates`.
        two_sets: sources and targets are two sets of nodes, and the reader renamed equal ids: 7 became u7 or i7.
        file_rows: (E,) int64 row of the user's table of each event, -1 for implied deletions. Tables of predictions
            have that order. None if the events have the order of the table.
        file_length: rows of that table, including ignored ones; -1 if no row was ignored.

    Raises:
        DataError: an array does not meet the description above, or an edge is deleted that does not exist. The
            message names the event.
        TimeOrderError: a time is smaller than the one before it (`from_arrays` sorts).

    Example:
        >>> stream = hopstate.EventStream(src=np.array([0, 1]), dst=np.array([2, 2]), t=np.array([10, 20]))
        >>> len(stream), stream.num_nodes
        (2, 3)
    """

    src: np.ndarray
    dst: np.ndarray
    t: np.ndarray
    kind: np.ndarray | None = None
    edge_attr: np.ndarray | None = None
    labels: np.ndarray | None = None
    relation: np.ndarray | None = None
    relation_names: tuple[str, ...] = ()
    x: np.ndarray | None = None
    table: FeatureTable | None = None
    node_type: np.ndarray | None = None
    node_type_names: tuple[str, ...] = ()
    num_nodes: int = -1
    node_ids: Vocabulary | None = None
    time_unit: str = ""
    name: str = "events"
    source: str = ""
    first_id: int = 0
    from_start: bool = True
    class_names: tuple[str, ...] | None = None
    edge_table: FeatureTable | None = None
    published: bool = False
    notes: tuple[str, ...] = ()
    dates: str = ""
    two_sets: bool = False
    file_rows: np.ndarray | None = None
    file_length: int = -1

    def __post_init__(self) -> None:
        if self.num_nodes < 0:
            seen = int(max(self.src.max(initial=-1), self.dst.max(initial=-1))) + 1
            known = next((rows for rows in (self.node_ids, self.x) if rows is not None), ())
            object.__setattr__(self, "num_nodes", len(known) if self.node_ids is not None else max(seen, len(known)))
        object.__setattr__(self, "notes", tuple(self.notes))
        if self.class_names is not None:
            object.__setattr__(self, "class_names", tuple(map(str, self.class_names)))
        set_type_names(self)
        check_events(self)
        for array in (*self._columns().values(), self.x, self.node_type):
            if array is not None:
                array.flags.writeable = False
        if self.from_start and not self.first_id:
            check_deletes(self)

    @classmethod
    def from_arrays(cls, src: Any, dst: Any, t: Any, *, warn: bool = True, **fields: Any) -> EventStream:
        """Build a stream from columns in any order and of any id type; sorted stably by time.

        Args:
            src, dst: (E,) integers, used as node rows; or strings, collected in a `Vocabulary`.
            t: (E,) integers or floats.
            warn: say (as a `HopstateWarning`) that unsorted events were sorted.
            fields: the other fields of `EventStream`, rows in the order of src.

        Raises:
            DataError: columns that disagree or cannot be read as ids and times.
        """
        where = fields.get("source") or fields.get("name", "events")
        src, dst, t = np.asarray(src), np.asarray(dst), validate_times(np.asarray(t), where)
        for name, column in (("dst", dst), ("t", t)):
            if column.shape != src.shape:
                raise DataError(f"{where}: src has shape {src.shape} but {name} has {column.shape}")
        src, dst, vocabulary = rows_from(src, dst, fields.pop("node_ids", None), where)
        columns = {"src": src, "dst": dst, "t": t}
        if fields.get("edge_attr") is not None:
            fields["edge_attr"] = as_float32(fields["edge_attr"], f"{where}: edge_attr")
        if fields.get("node_type") is not None:
            fields["node_type"] = np.asarray(fields["node_type"], np.int16)
        for name, dtype in (("kind", np.int8), ("edge_attr", None), ("labels", None), ("relation", np.int32)):
            if fields.get(name) is not None:
                columns[name] = np.asarray(fields.pop(name), dtype)
                if len(columns[name]) != len(src):
                    raise DataError(f"{where}: {name} has {len(columns[name])} rows, there are {len(src)} events")
        table = fields.get("edge_table")
        if fields.get("x") is not None:
            fields["x"] = as_float32(fields["x"], f"{where}: x")
        if np.any(t[1:] < t[:-1]):
            if warn:
                late = int(np.flatnonzero(t[1:] < t[:-1])[0]) + 1
                name = fields.get("name", where)  # not the path: a run knows its file by the whole of it
                message = f"{name}: events were not sorted by time (first at row {late}); they were sorted, ties kept"
                give_warning(message, stacklevel=2)
            order = np.argsort(t, kind="stable")
            rows = fields.get("file_rows")
            fields["file_rows"] = order if rows is None else rows[order]
            columns = {name: column[order] for name, column in columns.items()}
            if table is not None:
                fields["edge_table"] = table.take(order)
        fields["node_ids"] = vocabulary
        if not holds(columns.get("kind"), GONE) or not fields.get("from_start", True):
            return cls(**columns, **fields)
        return expand_node_deletions(cls(**columns, **fields | {"from_start": False})).with_(from_start=True)

    @classmethod
    def from_pyg(cls, data: TemporalData | HeteroData, **fields: Any) -> EventStream:
        """Build a stream from a torch-geometric `TemporalData`: src, dst, t, msg as edge features, y as labels.

        The attribute edge_type, rel or relation numbers the relations of events; node_type the types of nodes, x their
        features. All edges of a `HeteroData` have the attribute time. Its types become relations and node types.

        Args:
            data: events in any order.
            fields: the other fields of `EventStream`.
        """
        if hasattr(data, "edge_types"):
            from hopstate.data.graph import event_fields

            columns = event_fields(data) | fields
            return cls.from_arrays(columns.pop("src"), columns.pop("dst"), columns.pop("t"), **columns)
        arrays = {name: getattr(data, name, None) for name in ("src", "dst", "t", "msg", "y", "x")}
        columns = {name: dense_array(value, name) for name, value in arrays.items()}
        message = columns.pop("msg")
        if message is not None:
            message = message[:, None] if message.ndim == 1 else message if message.shape[1] else None
        ends = [column for column in (columns["src"], columns["dst"]) if column.dtype.kind in "iu"]
        if columns["x"] is None and fields.get("x") is None and fields.get("node_ids") is None:
            num_nodes = max((int(column.max(initial=-1)) for column in ends), default=-1) + 1
            check_num_nodes(num_nodes, len(columns["src"]), "TemporalData", fields.get("num_nodes"))
        columns |= {"edge_attr": message, "labels": columns.pop("y"), "name": "temporal-data"}
        typed = (getattr(data, name, None) for name in ("edge_type", "rel", "relation"))
        columns["relation"] = dense_array(next((column for column in typed if column is not None), None), "edge_type")
        columns["node_type"] = dense_array(getattr(data, "node_type", None), "node_type")
        columns |= fields
        return cls.from_arrays(columns.pop("src"), columns.pop("dst"), columns.pop("t"), **columns)

    def to_pyg(self) -> TemporalData:
        """Return a torch-geometric `TemporalData` that owns copies: src, dst, t, msg (edge features), y (labels).

        Raises:
            DataError: the stream deletes edges or nodes, for which `TemporalData` has no place.
        """
        import torch
        from torch_geometric.data import TemporalData

        if self.has_deletes:
            raise DataError(f"{self.name} has events that delete, for which TemporalData has no place")
        message = np.zeros((len(self), 0), np.float32) if self.edge_attr is None else self.edge_attr
        columns = {"src": self.src, "dst": self.dst, "t": self.t, "msg": message}
        columns |= {} if self.labels is None else {"y": self.labels}
        columns |= {} if self.relation is None else {"edge_type": self.relation.astype(np.int64)}
        return TemporalData(**{name: torch.from_numpy(np.array(column)) for name, column in columns.items()})

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the stream as a folder, which `read_events` maps into memory.

        Raises:
            FormatError: the folder has the name of a file.
            StorageError: it could not be written; an existing folder is untouched.
        """
        from hopstate.data.store import save_record

        save_record(self, folder)

    # ---- sizes -----------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self.src)

    @property
    def num_events(self) -> int:
        """E."""
        return len(self.src)

    @property
    def event_ids(self) -> np.ndarray:
        """(E,) int64 ids; they keep counting from the whole stream in a slice."""
        return np.arange(self.first_id, self.first_id + len(self))

    @cached_property
    def has_edge_features(self) -> bool:
        return _any_nonzero(self.edge_attr)

    @cached_property
    def has_node_features(self) -> bool:
        return _any_nonzero(self.x)

    @property
    def feature_dims(self) -> dict[str, int]:
        """How many features a node ("node_dim") and an event ("edge_dim") have, zeros or not; and `type_counts`."""
        widths = [0 if column is None else column.shape[1] for column in (self.x, self.edge_attr)]
        return {"node_dim": widths[0], "edge_dim": widths[1]} | self.type_counts

    @property
    def used_features(self) -> dict[str, int]:
        """The same as `feature_dims`, with 0 for features that are all zero."""
        node = self.x.shape[1] if self.x is not None and self.has_node_features else 0
        edge = self.edge_attr.shape[1] if self.edge_attr is not None and self.has_edge_features else 0
        return {"node_dim": node, "edge_dim": edge} | self.type_counts

    @property
    def type_counts(self) -> dict[str, int]:
        """How many types events ("num_relations") and nodes ("num_node_types") have; without those of one type."""
        counts = {"num_relations": len(self.relation_names), "num_node_types": len(self.node_type_names)}
        return {name: count for name, count in counts.items() if count > 1}

    @cached_property
    def has_deletes(self) -> bool:
        """Whether an event removes an edge or a node."""
        return _any_nonzero(self.kind)

    @cached_property
    def is_bipartite(self) -> bool:
        """Whether no node is both a source and a destination."""
        sources = np.zeros(self.num_nodes, bool)
        destinations = np.zeros(self.num_nodes, bool)
        for ends, seen in ((self.src, sources), (self.dst, destinations)):
            for start, block in row_blocks(ends):
                added = slice(None) if self.kind is None else self.kind[start : start + len(block)] == ADD
                seen[block[added]] = True
        return not bool((sources & destinations).any())

    def in_file(self, rows: np.ndarray) -> np.ndarray:
        """Return (Q,) the rows of the file that the events at rows (Q,) come from, -1 for implied deletions."""
        return rows if self.file_rows is None else self.file_rows[rows]

    # ---- parts -----------------------------------------------------------------------------------------
    def slice(self, start: int, stop: int) -> Self:
        """Return events start..stop-1 by position, as views; ids, nodes and node features stay those of the whole."""
        start, stop, _ = slice(start, stop).indices(len(self))
        columns = {name: column[start : max(start, stop)] for name, column in self._columns().items()}
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in columns}
        rest["first_id"] = self.first_id + start
        if self.edge_table is not None:
            rest["edge_table"] = self.edge_table.take(slice(start, max(start, stop)))
        if self.file_rows is not None:
            rest["file_rows"] = self.file_rows[start : max(start, stop)]
        view = object.__new__(type(self))  # a view of checked columns needs no second check
        for name, value in (rest | columns).items():
            object.__setattr__(view, name, value)
        return view

    def pairs(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return src, dst and t of the events at rows, and their relations if they are typed."""
        return tuple(column[rows] for column in not_none(self.src, self.dst, self.t, self.relation))

    def take(self, rows: np.ndarray) -> EventBatch:
        """Return the events at the given positions of this stream."""
        columns = {name: column[rows] for name, column in self._columns().items()}
        return EventBatch(event_ids=np.asarray(rows, np.int64) + self.first_id, **columns)

    def additions(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Return those of the positions rows (P,), by default all, at which an edge is added: deletions never count."""
        rows = np.arange(len(self)) if rows is None else rows
        return rows[self.kind[rows] == ADD] if self.kind is not None and self.has_deletes else rows

    def with_(self, **changes: Any) -> Self:
        """Return a copy with some fields replaced (checked again); other features take the place of the table too."""
        tables = {"x": "table", "edge_attr": "edge_table"}
        dropped: dict[str, Any] = {tables[name]: None for name in tables if name in changes}
        dropped |= {"file_rows": None, "file_length": -1} if len(changes.get("src", self.src)) != len(self) else {}
        return replace(self, **dropped | changes)

    def _columns(self) -> dict[str, np.ndarray]:
        columns = ("src", "dst", "t", "kind", "edge_attr", "labels", "relation")
        return {name: getattr(self, name) for name in columns if getattr(self, name) is not None}

    # ---- identity --------------------------------------------------------------------------------------
    @cached_property
    def content_hash(self) -> str:
        """Hex digest of every array; equal streams hash equally whatever file they came from."""
        parts: list[Any] = [f"events {self.num_nodes}"]
        for name, array in {**self._columns(), "x": self.x}.items():
            parts += [name, array]
        parts += [] if self.node_type is None else ["node_type", self.node_type]
        parts += ["\n".join(names) for names in (self.relation_names, self.node_type_names) if names]
        for table in not_none(self.edge_table, self.table):
            parts += [~np.isfinite(table.values)] if table.has_missing else []
            parts += table.text_arrays()
        ids = None if self.node_ids is None else self.node_ids.ids.tolist()
        for name, texts in (("classes", self.class_names), ("ids", ids)):
            parts += [] if texts is None else ["\n".join([name, *map(str, texts)])]
        return digest_of(*parts)

    def __repr__(self) -> str:
        span = f", t {self.t[0]}..{self.t[-1]} {self.time_unit}".rstrip() if len(self) else ""
        return f"EventStream({self.name!r}, {len(self):,} events, {self.num_nodes:,} nodes{span})"


def rows_from(
    src: np.ndarray, dst: np.ndarray, vocabulary: Vocabulary | None, where: str
) -> tuple[np.ndarray, np.ndarray, Vocabulary | None]:
    """Return node rows and their vocabulary: integers are rows, other ids are collected in sorted order.

    Raises:
        DataError: ids that are missing, fractions, or not in a vocabulary that was given.
    """
    for name, column in (("src", src), ("dst", dst)):
        if column.dtype.kind == "u" and column.max(initial=0) > np.iinfo(np.int64).max:
            raise DataError(f"{where}: {name} names node {column.max()}, beyond 2^63 - 1; give such ids as strings")
    if all(column.dtype.kind in "iub" or not column.size for column in (src, dst)):
        return src.astype(np.int64, copy=False), dst.astype(np.int64, copy=False), vocabulary
    for name, column in (("src", src), ("dst", dst)):
        if column.dtype.kind == "f":
            bad = np.flatnonzero(~(np.isfinite(column) & (column == np.floor(column))))
            detail = f"; row {bad[0]} is {column[bad[0]]}" if len(bad) else "; convert them to integers or strings"
            raise DataError(f"{where}: {name} holds fractions or missing ids{detail}")
    src, dst = src.astype(TEXT), dst.astype(TEXT)
    if vocabulary is None:
        vocabulary = Vocabulary.of(src, dst)
    src, dst = vocabulary.require_rows(src, dst)
    return src, dst, vocabulary


def holds(kinds: np.ndarray | None, kind: int) -> bool:
    """Return whether some event of kinds (E,), None where every event adds, is of a kind."""
    return kinds is not None and any(bool((block == kind).any()) for _, block in row_blocks(kinds))


def _any_nonzero(array: np.ndarray | None) -> bool:
    return array is not None and any(bool(block.any()) for _, block in row_blocks(array))


def check_deletes(stream: EventStream, *, before: int = 0) -> None:
    """Check that every deletion removes an edge that is active then, in its own direction.

    Args:
        stream: the events.
        before: so many events are not counted where one is named.
    """
    if stream.kind is None or not stream.has_deletes:
        return
    if holds(stream.kind, GONE):
        event = int(np.argmax(stream.kind == GONE)) - before
        raise DataError(
            f"{stream.name}: event {event} deletes a node; EventStream.from_arrays deletes its edges for it"
        )
    ends = edge_ends(stream.src, stream.dst, stream.kind, stream.num_nodes, stream.relation)
    edges = np.flatnonzero((ends >= 0) & (ends < NEVER))
    valid = np.zeros(len(stream), bool)
    valid[ends[edges]] = ends[edges] > edges
    wrong = np.flatnonzero((stream.kind == DELETE) & ~valid)
    if len(wrong):
        event = int(wrong[0])
        raise DataError(
            f"{stream.name}: event {event - before} deletes the edge {_named(stream, stream.src[event])} -> "
            f"{_named(stream, stream.dst[event])}, which is not active then; remove the deletion or add the edge first"
        )


def _named(stream: EventStream, node: np.integer) -> object:
    return node if stream.node_ids is None else stream.node_ids.names(np.array([node]))[0]


def edge_ends(
    src: np.ndarray, dst: np.ndarray, kind: np.ndarray, num_nodes: int, relation: np.ndarray | None = None
) -> np.ndarray:
    """Return (E,) int64 the position of the deletion that ends each edge, `NEVER` for none, -1 for other events.

    Args:
        src, dst: (E,) int64 nodes, in order of time.
        kind: (E,) as in `EventStream`.
        num_nodes: N.
        relation: (E,) relations; a deletion ends an edge of its own relation.
    """
    return _ends(_edge_numbers(src, dst, num_nodes, relation), kind)


def _edge_numbers(src: np.ndarray, dst: np.ndarray, num_nodes: int, relation: np.ndarray | None) -> np.ndarray:
    pair = src * num_nodes + dst
    return pair if relation is None else np.unique(np.stack([pair, relation]), axis=1, return_inverse=True)[1].ravel()


def _ends(group: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """Return `edge_ends` of events in groups (E,): the k-th deletion of a group ends its k-th edge."""
    deletes = kind == DELETE
    at = np.flatnonzero(kind != GONE)
    _, group = np.unique(group[at], return_inverse=True)
    order = np.lexsort((deletes[at], group))  # of a group: its additions, then its deletions, each in time's order
    sizes, added = np.bincount(group), np.bincount(group, ~deletes[at]).astype(np.int64)
    start = np.cumsum(sizes) - sizes
    places = np.flatnonzero(deletes[at][order])
    of = group[order[places]]
    number = places - start[of] - added[of]
    ending = number < added[of]
    ends = np.where(kind == ADD, NEVER, -1)
    ends[at[order[(start[of] + number)[ending]]]] = at[order[places[ending]]]
    return ends


def expand_node_deletions(
    stream: EventStream, earlier: tuple[np.ndarray, ...] | None = None, seen: np.ndarray | None = None
) -> EventStream:
    """Replace each node deletion by deletions of the node's active edges.

    Args:
        stream: the events.
        earlier: sources, destinations and relations (if the stream has some) of edges that are active before it.
        seen: (N,) bool, nodes that had an edge before it.

    Raises:
        DataError: a node is deleted that never had an edge.
    """
    if stream.kind is None or not holds(stream.kind, GONE):
        return stream
    _check_deleted_nodes_seen(stream, seen)
    edges = not_none(stream.src, stream.dst, stream.relation)
    front = 0 if earlier is None else len(earlier[0])
    if earlier is not None:
        edges = [np.concatenate(columns) for columns in zip(earlier, edges, strict=True)]
    src, dst, *relation = edges
    kind = np.concatenate([np.zeros(front, np.int8), stream.kind])
    rows, place = _expansion(
        src, dst, kind, _edge_numbers(src, dst, stream.num_nodes, relation[0] if relation else None)
    )
    rows, place = rows[front:], place[front:] - front  # earlier edges come first, and none of them is deleted there
    return _events_at(stream, [column[rows] for column in edges], rows == place + front, place)


def _check_deleted_nodes_seen(stream: EventStream, seen: np.ndarray | None) -> None:
    assert stream.kind is not None
    first = np.full(stream.num_nodes, NEVER)
    if seen is not None:
        first[seen] = -1
    added = np.flatnonzero(stream.kind == ADD)
    for nodes in (stream.src[added], stream.dst[added]):
        np.minimum.at(first, nodes, added)
    gone = np.flatnonzero(stream.kind == GONE)
    unknown = gone[first[stream.src[gone]] > gone]
    if len(unknown):
        raise DataError(
            f"{stream.name}: event {unknown[0]} deletes node {_named(stream, stream.src[unknown[0]])}, which has no "
            "edges before it; remove the deletion or add its edges first"
        )


def _expansion(src: np.ndarray, dst: np.ndarray, kind: np.ndarray, edge: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (E',) events that give the endpoints of expanded events, and (E',) their positions in the stream."""
    E, gone = len(src), np.flatnonzero(kind == GONE)
    leaves = np.minimum(*(_next(src[gone], gone, ends, E) for ends in (src, dst)))
    _, group = np.unique(np.stack([edge, leaves]), axis=1, return_inverse=True)
    expanded = np.flatnonzero((_ends(group.ravel(), kind) == NEVER) & (leaves < NEVER))
    others = np.flatnonzero(kind != GONE)
    rows, place = np.concatenate([expanded, others]), np.concatenate([leaves[expanded], others])
    order = np.lexsort((rows, place))
    return rows[order], place[order]


def _next(nodes: np.ndarray, at: np.ndarray, queried: np.ndarray, size: int) -> np.ndarray:
    """Return (E,) the first position after each event at which queried (E,) is among nodes (G,), which are at (G,)."""
    keys = np.sort(nodes * size + at)
    found = np.searchsorted(keys, queried * size + np.arange(size), side="right")
    known = np.append(keys, -1)[found]
    return np.where((found < len(keys)) & (known // max(size, 1) == queried), known % max(size, 1), NEVER)


def _events_at(
    stream: EventStream, edges: Sequence[np.ndarray], is_original: np.ndarray, place: np.ndarray
) -> EventStream:
    """Return events src, dst and relation (E',) at the places of others; those not themselves there are deletions.

    Such a deletion has features of zeros, an unknown label and no row of the file.
    """
    assert stream.kind is not None
    columns: dict[str, Any] = dict(zip(("src", "dst", "relation"), edges)) | {"t": stream.t[place]}
    columns["kind"] = np.where(is_original, stream.kind[place], DELETE).astype(np.int8)
    if stream.edge_attr is not None:
        columns["edge_attr"] = np.where(is_original[:, None], stream.edge_attr[place], 0).astype(np.float32)
    if stream.labels is not None:
        unknown = np.nan if stream.labels.dtype.kind == "f" else -1
        there = is_original if stream.labels.ndim == 1 else is_original[:, None]
        columns["labels"] = np.where(there, stream.labels[place], unknown).astype(stream.labels.dtype)
    if stream.edge_table is not None:
        table = stream.edge_table.take(place)
        columns["edge_table"] = replace(table, values=np.where(is_original[:, None], table.values, 0))
    columns["file_rows"] = np.where(is_original, stream.in_file(place), -1)
    columns["file_length"] = stream.file_length if stream.file_length >= 0 else len(stream)
    return stream.with_(**columns)


def not_none(*values: Any) -> list[Any]:
    """Return those that are not None."""
    return [value for value in values if value is not None]


def order_of_first(relation: np.ndarray) -> list[int]:
    """Return the distinct relations of events (E,), in the order of their first events.

    >>> order_of_first(np.array([2, 0, 2, 1]))
    [2, 0, 1]
    """
    found, first = np.unique(relation, return_index=True)
    return found[np.argsort(first)].tolist()  # type: ignore[no-any-return]


def as_slice(rows: np.ndarray) -> np.ndarray | slice:
    """Return ascending rows (P,) as a slice if they are consecutive.

    >>> as_slice(np.array([3, 4, 5])), as_slice(np.array([3, 5]))
    (slice(3, 6, None), array([3, 5]))
    """
    whole = len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1
    return slice(int(rows[0]), int(rows[-1]) + 1) if whole else rows


def is_prefix(rows: np.ndarray) -> bool:
    """Return whether ascending rows (P,) are the first P events, so that queries see only them."""
    return len(rows) > 0 and rows[0] == 0 and rows[-1] == len(rows) - 1


def type_codes(types: np.ndarray) -> Tensor:
    """Return (n,) int64 codes of types (n,) for networks: 0 for -1, which is unknown, otherwise the type plus 1."""
    import torch

    return torch.from_numpy(types.astype(np.int64) + 1)


TypedT = TypeVar("TypedT", "EventStream", "Graph")


def in_known_types(record: TypedT, field: str, known: tuple[str, ...], *, needed: bool) -> TypedT:
    """Return a record with relations or node types (field) in the numbers of known names; without them if () is known.

    Raises:
        DataError: a name that occurs is not known, or the record has no types but needs them.
    """
    types, names = getattr(record, field), getattr(record, f"{field}_names")
    if needed and known and not names:
        raise DataError(
            f"{record.name} has no {field}, but earlier data have {', '.join(known[:5])}. Name their column: "
            f"--read.{field}_column NAME"
        )
    if not names or names == known:
        return record
    if known:
        gone = None if field == "node_type" else getattr(record, "kind", None)  # relations of deleted nodes are ignored
        types = types if gone is None else np.where(gone == GONE, -1, types)
        types = renumbered(types, names, known, record.name, field.replace("_", " "))
        types = types if field == "node_type" else np.maximum(types, 0)
    return record.with_(**{field: types if known else None, f"{field}_names": known})


def types_by_relation(stream: EventStream) -> list[list[int]]:
    """Return the types of the sources and of the targets of each relation, -1 for an end with several types or none."""
    assert stream.relation is not None
    assert stream.node_type is not None
    found = []
    for nodes in (stream.src, stream.dst):
        known = np.zeros((len(stream.relation_names), len(stream.node_type_names) + 1), bool)
        known[stream.relation, stream.node_type[nodes]] = True  # the last column is for -1
        found.append(np.where(known[:, :-1].sum(1) == 1, known.argmax(1), -1).tolist())
    return [list(types) for types in zip(*found)]


def with_types_by_relation(
    events: EventStream, of_relations: Sequence[Sequence[int]] | None, names: Sequence[str]
) -> EventStream:
    """Return events whose nodes without a type have that of their first event in `types_by_relation`, if any."""
    if events.relation is None or not of_relations:
        return events
    types = np.full(events.num_nodes, -1, np.int16) if events.node_type is None else np.array(events.node_type)
    nodes, first = np.unique(np.stack([events.src, events.dst], 1), return_index=True)
    found = np.array(of_relations, np.int16)[events.relation].reshape(-1)[first]
    types[nodes] = np.where(types[nodes] < 0, found, types[nodes])
    return events.with_(node_type=types, node_type_names=tuple(names))


def renumbered(
    numbers: np.ndarray, names: tuple[str, ...], known: tuple[str, ...], where: str, what: str = "relation"
) -> np.ndarray:
    """Return numbers of names as numbers of the known names; -1 stays.

    Raises:
        DataError: a name that occurs is not known.
    """
    if names == known:
        return numbers
    place = {name: number for number, name in enumerate(known)}
    new = np.array([place.get(name, -1) for name in names], numbers.dtype)
    unknown = np.flatnonzero((numbers >= 0) & (new[numbers] < 0))
    if len(unknown):
        name = names[numbers[unknown[0]]]
        raise DataError(
            f"{where}: unknown {what} (known: {listed(known, 10)}): got {name!r} in row {unknown[0]}"
            f"{nearest(name, known)}"
        )
    return np.where(numbers < 0, numbers, new[numbers]).astype(numbers.dtype)


def canonical_tie_order(stream: EventStream) -> EventStream:
    """Sort events with equal timestamps by source, destination, features and label.

    Rows of nodes are in the sorted order of their ids, as the readers make them. A stream with deletions stays as
    it is: if an edge is added and deleted at one time, the order matters.
    """
    size, t = len(stream), stream.t
    if stream.has_deletes:
        return stream
    order = _refined(np.arange(size), [t], [stream.dst, stream.src])
    later = [] if stream.labels is None else list(stream.labels.reshape(size, -1).T)
    later += not_none(stream.relation)
    if stream.edge_table is not None:
        later += [text.codes for text in stream.edge_table.texts] + list(stream.edge_table.values.T)
    elif stream.edge_attr is not None:
        later += list(stream.edge_attr.T)
    order = _refined(order, [t, stream.src, stream.dst], later) if later else order
    if (order == np.arange(size)).all():
        return stream
    columns = {
        name: column[order]
        for name in ("src", "dst", "kind", "edge_attr", "labels", "relation")
        if (column := getattr(stream, name)) is not None
    }
    table = None if stream.edge_table is None else stream.edge_table.take(order)
    return stream.with_(**columns, edge_table=table, file_rows=stream.in_file(order))


def _refined(order: np.ndarray, equal: Sequence[np.ndarray], keys: Sequence[np.ndarray]) -> np.ndarray:
    """Sort runs of equal columns in an order (E,) by keys, the last key first."""
    same = np.ones(max(len(order) - 1, 0), bool)
    for column in equal:
        same &= column[order[1:]] == column[order[:-1]]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if not len(tied):
        return order
    rows = order[tied]
    run = np.cumsum(np.append(True, ~same[tied[:-1]] | (np.diff(tied) > 1)))
    order = order.copy()
    order[tied] = rows[np.lexsort((*(key[rows] for key in keys), run))]
    return order


__all__ = ["ADD", "DELETE", "GONE", "EventBatch", "EventStream"]
