"""The event stream: who met whom, when, and with which features; immutable and sorted by time.

An event's id is its position in the stream. Arrays are numpy and may be memory-mapped; slices are views.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hopstate.data.event_build import check_deletes, from_columns
from hopstate.data.event_record import ADD, DELETE, GONE, EventBatch, EventRecord
from hopstate.errors import DataError

if TYPE_CHECKING:
    from torch_geometric.data import TemporalData


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class EventStream(EventRecord):
    """E events between N nodes, sorted by time.

    Args:
        src, dst: (E,) int64 node rows in 0..N-1.
        t: (E,) int64 or float64, never decreasing; kept in the type given.
        kind: (E,) int8, or None if every event adds an edge: 0 (`ADD`); 1 (`DELETE`), the edge is deleted; 2 (`GONE`),
            the source is deleted, which is given as the destination too. `from_arrays` and the readers replace the
            deletion of a node by those of its edges; it is left only if earlier events are unknown (from_start=False).
        edge_attr: (E, D) float32 or None.
        labels: (E,) integers or floats, for node classification at the source (-1, and NaN of floats: unknown);
            (E, T) floats of several targets, NaN unknown; or None.
        x: (N, F) float32 node features or None.
        num_nodes: N; by default one more than the largest row, or the rows of x or node_ids.
        node_ids: the user's own ids, or None where ids are 0..N-1.
        time_unit: the unit of t ("s", "day", ...), for messages and cards; "" if unknown.
        name: for messages and file names.
        source: where the arrays came from, for messages.
        first_id: the id of the first event: not 0 in a slice.
        from_start: no event came before the first. False lets deletions end edges that earlier events added.
        class_names: names of the labels 0..C-1, or of the T columns of labels; or None.
        edge_table: the event features as a user's table holds them, where they come from one; see `Graph.table`.
        notes: sentences on how the data were read, and on what was left out.
        dates: the zone that the source's dates named, "" where its times are numbers; see `hopstate.data.dates`.
        two_sets: sources and targets are two sets of nodes whose ids the reader told apart: 7 became u7 or i7.
        file_rows: (E,) int64 the row of the user's table that each event stood in, -1 for implied deletions; None
            where all stand there still. Tables of answers are in that order.
        file_length: rows of that table, those that were left out too; -1 where none was.

    Raises:
        DataError: any promise above is broken, or an edge is deleted that does not stand; the message names the event.
        TimeOrderError: a time is smaller than the one before it (`from_arrays` sorts).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.from_start and not self.first_id:
            check_deletes(self)

    @classmethod
    def from_arrays(cls, src: Any, dst: Any, t: Any, *, warn: bool = True, **fields: Any) -> Self:
        """Build a stream from columns in any order and of any id type; sorted stably by time.

        Args:
            src, dst: (E,) integers, used as node rows; or strings, collected in a `Vocabulary`.
            t: (E,) integers or floats.
            warn: say (as a `HopstateWarning`) that unsorted events were sorted.
            fields: the other fields of `EventStream`, rows in the order of src.

        Raises:
            DataError: columns that disagree or cannot be read as ids and times.
        """
        return from_columns(cls, src, dst, t, warn=warn, **fields)

    @classmethod
    def from_pyg(cls, data: TemporalData, **fields: Any) -> Self:
        """Build a stream from a torch-geometric `TemporalData`: src, dst, t, msg as edge features, y as labels.

        Args:
            data: events in any order.
            fields: the other fields of `EventStream`.
        """
        arrays = {name: getattr(data, name, None) for name in ("src", "dst", "t", "msg", "y")}
        columns: dict[str, Any] = {
            name: None if value is None else value.detach().cpu().numpy() for name, value in arrays.items()
        }
        message = columns.pop("msg")
        if message is not None:
            message = message[:, None] if message.ndim == 1 else message if message.shape[1] else None
        columns |= {"edge_attr": message, "labels": columns.pop("y"), "name": "temporal-data"} | fields
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
        return TemporalData(**{name: torch.from_numpy(np.array(column)) for name, column in columns.items()})


__all__ = ["ADD", "DELETE", "GONE", "EventBatch", "EventStream"]
