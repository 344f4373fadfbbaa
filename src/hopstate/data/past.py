"""All that a trained temporal model has seen: the events, and what a model with a memory remembers after them.

Where it stands follows from the events alone, not from how they came: events are cut into batches by their positions
since the first, and the last batches, which events to come may still belong to or be scored before, stay open; their
events are known to look-ups and have not moved the memory.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from hopstate.data.dates import shown_time
from hopstate.data.event_build import UNITS
from hopstate.data.events import ADD, EventStream
from hopstate.data.layered_store import LayeredStore
from hopstate.data.layers import Layer, Memories
from hopstate.data.past_deletions import resolved
from hopstate.data.readers.ids import EXACT
from hopstate.data.validate import check_num_nodes
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import CheckpointError, DataError, TimeOrderError
from hopstate.io.opening import reading

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Past:
    """Events so far, and a memory of those before `settled`.

    Args:
        layers: of the events, oldest first.
        num_nodes: N.
        node_ids: the user's ids, or None where ids are rows.
        x: (M, F) float32 features of the first M nodes, or None; others have zeros.
        x_path: the file that they lie in, or None.
        time_unit: of the events' times, "" where unknown; None where nothing tells, and then new events do.
        settled: id of the first event that has not moved the memory.
        clock: time of the last event that has.
        model: fingerprint of the model that this is the past of, "" for any.
        tag: of the memory; see `NodeState`.
        last: hash of the events that were taken last, "" where none were.
    """

    layers: tuple[Layer, ...] = ()
    num_nodes: int = 0
    node_ids: Vocabulary | None = None
    x: np.ndarray | None = None
    x_path: Path | None = None
    time_unit: str | None = None
    settled: int = 0
    clock: float = -math.inf
    model: str = ""
    tag: str = ""
    last: str = ""

    # ---- what it holds -----------------------------------------------------------------------------------
    def __len__(self) -> int:
        return self.layers[-1].last if self.layers else 0

    @property
    def last_time(self) -> int | float:
        """Time of the last event, -inf before the first."""
        return self.layers[-1].t[-1].item() if len(self) else -math.inf

    @property
    def has_features(self) -> bool:
        """Whether features of events were kept."""
        return bool(self.layers) and all(layer.edge_attr is not None for layer in self.layers)

    @property
    def has_deletes(self) -> bool:
        """Whether an event removes an edge or a node."""
        return any(layer.kind is not None for layer in self.layers)

    def store(self, *, deletions: bool = False) -> LayeredStore:
        """Return look-ups over all events, those that delete edges only if asked for.

        Args:
            deletions: see `NeighborStore.from_stream`.
        """
        return LayeredStore(self.layers, self.num_nodes, deletions=deletions)

    def events(self, first: int = 0, stop: int | None = None) -> EventStream:
        """Return events first .. stop-1 under their ids, with their features where all were kept, without nodes'."""
        stop = len(self) if stop is None else stop
        with reading(
            next((x.path for x in self.layers if x.path is not None), "the past"), "earlier events", CheckpointError
        ):
            return self._events(first, stop)

    def _events(self, first: int, stop: int) -> EventStream:
        layers = [x for x in self.layers if x.first < stop and x.last > first]
        cuts = [slice(max(first - x.first, 0), stop - x.first) for x in layers]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(x, name)[cut] for x, cut in zip(layers, cuts)])
            if layers
            else np.empty(0, np.int64)
            for name in ("src", "dst", "t")
        }
        if any(x.kind is not None for x in layers):
            kinds = [np.full(len(x), ADD, np.int8) if x.kind is None else x.kind for x in layers]
            columns["kind"] = np.concatenate([kind[cut] for kind, cut in zip(kinds, cuts)])
        if layers and all(x.edge_attr is not None and x.last - len(x.edge_attr) <= max(first, x.first) for x in layers):
            columns["edge_attr"] = np.concatenate(
                [x.features(np.arange(x.first + cut.start, min(x.last, stop))) for x, cut in zip(layers, cuts)]
            )
        facts: dict[str, Any] = {
            "num_nodes": self.num_nodes,
            "node_ids": self.node_ids,
            "time_unit": self.time_unit or "",
        }
        return EventStream(**columns, **facts, first_id=first, name="earlier events")

    def memories(self, nodes: np.ndarray) -> Memories | None:
        """Return what is remembered of those of nodes (q,), rising, that were ever active; None where none was."""
        missing, parts = nodes, []
        for memories in (layer.memories for layer in reversed(self.layers)):
            if memories is not None and len(missing):
                here, rows = memories.find(missing)
                parts.append(Memories(nodes=missing[here], **{k: getattr(memories, k)[rows] for k in _REMEMBERED}))
                missing = missing[~here]
        found = Memories.newest(parts) if parts else None
        if found is not None and not _sound(found):
            where = next((x.path.parent for x in self.layers if x.path is not None), "the past")
            raise CheckpointError(f"{where} is damaged: its memories hold NaN or infinities; use an earlier copy")
        return found

    # ---- what comes --------------------------------------------------------------------------------------
    def joined(self, new: EventStream, *, skip_features: bool = False, again: bool = False) -> tuple[EventStream, Past]:
        """Return new events in the rows, ids and times of this past, and the past that has taken them in.

        Ids that have not been met become the next rows; nothing has moved the memory yet.

        Args:
            new: events with the user's ids.
            skip_features: do not keep features of events.
            again: take the very events that were taken last once more.

        Raises:
            TimeOrderError: a new event is earlier than the last one so far.
            DataError: the events that were taken last once more, times of another unit that cannot be converted or
                that the clock so far cannot tell, ids of another kind, or a deletion of an edge that does not stand.
        """
        new = self._in_clock(new if self.time_unit is None else in_unit(new, self.time_unit))
        if len(self) and len(new) and new.t[0] < self.last_time:
            raise TimeOrderError(
                f"{new.name} begins at {shown_time(new.t[0], new.time_unit, new.dates)}, but the memory has seen "
                f"events up to {shown_time(self.last_time, new.time_unit, new.dates)}; give only later events (has "
                "this file been streamed already?)"
            )
        (src, dst), ids, num_nodes = _rows(self, new)
        rest = {"x": None, "num_nodes": num_nodes, "node_ids": ids, "first_id": len(self), "labels": new.labels}
        added = new.with_(src=src, dst=dst, **rest)
        digest = _digest(added)
        if len(added) and digest == self.last and not again:
            raise DataError(
                f"{new.name} has been streamed already: it holds the events that the memory took last; give later "
                "ones, go on from another state (--state) or from the end of the run's own data (--fresh), or say "
                "that they happened once more (--again)"
            )
        added, ended = resolved(self.layers, added)
        fresh = None if ids is None else ids.names(np.arange(self.num_nodes, len(ids)))
        unread = added.labels is not None or (skip_features and added.edge_attr is not None)
        bare = added.with_(labels=None, edge_attr=None if skip_features else added.edge_attr) if unread else added
        layer = Layer.of(bare, ids=fresh, ended=ended)
        layers = (*self.layers, layer) if len(added) else self.layers
        grown: dict[str, Any] = {"num_nodes": num_nodes, "node_ids": ids, "time_unit": added.time_unit}
        return added, replace(self, layers=layers, **grown, last=digest if len(added) else self.last)

    def _in_clock(self, new: EventStream) -> EventStream:
        """Return new events with times of the past's type."""
        kind = self.layers[-1].t.dtype if self.layers else new.t.dtype
        if kind == new.t.dtype or not len(new):
            return new
        exact, number = np.abs(new.t) <= EXACT, "numbers with fractions, exact up to 2^53"
        if kind.kind == "i":
            exact, number = exact & (new.t == np.floor(new.t)), "whole numbers"
        if not exact.all():
            raise DataError(
                f"{new.name}: {new.t[np.argmin(exact)]} is no time of this run: the events so far have {number}; give "
                "times as theirs are"
            )
        return new.with_(t=new.t.astype(kind))


def _sound(found: Memories) -> bool:
    """Return whether memories are numbers; the output of a deleted node is none, where its memory is empty."""
    empty = np.isnan(found.output).all(1) & (found.memory == 0).all((1, 2))
    return bool(np.isfinite(found.memory).all() and np.isfinite(found.output[~empty]).all())


_REMEMBERED = ("memory", "output", "last_time")


def _digest(added: EventStream) -> str:
    """Return a hash of events in rows, which does not depend on how many nodes there are."""
    digest = hashlib.sha256()
    for name in ("src", "dst", "t", "kind", "edge_attr"):
        column = getattr(added, name)
        if column is not None:
            digest.update(f"{name} {column.dtype.str} {column.shape}".encode())
            digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def in_unit(new: EventStream, unit: str) -> EventStream:
    """Return new events with times in a unit, where that loses nothing.

    Raises:
        DataError: a unit is unknown and the other not, or times are finer than the unit.
    """
    if new.time_unit == unit:
        return new
    units = [name or "a unit that nobody named" for name in (new.time_unit, unit)]
    if not {new.time_unit, unit} <= UNITS.keys():
        raise DataError(
            f"{new.name} counts time in {units[0]}, earlier events in {units[1]}; "
            "convert the times, or name their unit if it is the same (--read.time_unit)"
        )
    ours, theirs = UNITS[unit], UNITS[new.time_unit]
    if theirs >= ours:
        return new.with_(t=new.t * (theirs // ours), time_unit=unit)
    if (new.t % (ours // theirs)).any():
        raise DataError(f"{new.name} has times finer than a whole {unit}, in which earlier events count; round them")
    return new.with_(t=new.t // (ours // theirs), time_unit=unit)


def _rows(old: Past, new: EventStream) -> tuple[tuple[np.ndarray, np.ndarray], Vocabulary | None, int]:
    """Return new's (src, dst) in the rows of old, the vocabulary of both and the number of nodes."""
    ids = new.node_ids
    if not old.num_nodes and not len(old):  # nothing came before: the new events' own rows
        return (new.src, new.dst), ids, new.num_nodes
    if ids is not None and ids.is_of(old.node_ids):
        return (new.src, new.dst), ids, len(ids)
    names = (new.src, new.dst) if ids is None else (ids.names(new.src), ids.names(new.dst))
    text = names[0].dtype.kind == "U"
    if old.node_ids is None:
        if text:
            raise DataError(
                f"{new.name} names nodes by text ({str(names[0][0])!r}), earlier events by number; use numbers"
            )
        count = max(old.num_nodes, int(np.concatenate(names).max(initial=-1)) + 1)
        if count > old.num_nodes:  # rows are made for every number below the largest
            check_num_nodes(count, len(old) + len(new), new.name, 2 * old.num_nodes)
        return names, None, count
    if old.node_ids.is_text and not text:
        names = names[0].astype(str), names[1].astype(str)
    elif not old.node_ids.is_text and text:
        raise DataError(f"{new.name} names nodes by text ({str(names[0][0])!r}), earlier events by number; use numbers")
    both = old.node_ids.grown(np.stack(names, 1).reshape(-1).tolist())
    return (both.rows(names[0]), both.rows(names[1])), both, len(both)


class NodeFeatures:
    """Features of any of a past's nodes: rows of x where it has them, else zeros; indexed by (q,) nodes."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x

    @overload
    def __getitem__(self, nodes: np.ndarray) -> np.ndarray: ...
    @overload
    def __getitem__(self, nodes: Tensor) -> Tensor: ...
    def __getitem__(self, nodes: np.ndarray | Tensor) -> np.ndarray | Tensor:
        if not isinstance(nodes, np.ndarray):
            import torch

            return torch.from_numpy(self._rows(nodes.numpy()))
        return self._rows(nodes)

    def _rows(self, nodes: np.ndarray) -> np.ndarray:
        known = nodes < len(self.x)
        rows = np.zeros((len(nodes), self.x.shape[1]), np.float32)
        rows[known] = self.x[nodes[known]]
        return rows


class EventFeatures:
    """Features of a past's events, where they were kept; indexed by (q,) ids."""

    def __init__(self, past: Past) -> None:
        self.layers = past.layers

    def __getitem__(self, ids: np.ndarray) -> np.ndarray:
        of = np.searchsorted([layer.first for layer in self.layers], ids, side="right") - 1
        attr = self.layers[-1].edge_attr
        assert attr is not None
        rows = np.empty((len(ids), attr.shape[1]), np.float32)
        for i in np.unique(of):
            rows[of == i] = self.layers[i].features(ids[of == i])
        return rows


class EventKinds:
    """Kinds of a past's events; indexed by (q,) ids."""

    def __init__(self, past: Past) -> None:
        self.layers = past.layers

    def __getitem__(self, ids: np.ndarray) -> np.ndarray:
        of = np.searchsorted([layer.first for layer in self.layers], ids, side="right") - 1
        kinds = np.full(len(ids), ADD, np.int8)
        for i in np.unique(of):
            if (kind := self.layers[i].kind) is not None:
                kinds[of == i] = kind[ids[of == i] - self.layers[i].first]
        return kinds
