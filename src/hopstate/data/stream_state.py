"""Where a memory model stands in a stream: its node memory, the events behind it, whose ids, and which model's.

What later events need of earlier ones (recent neighbours, last meetings, edges that stand) is in the events, so a
state goes on in another process, from one file, exactly where it stopped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hopstate.data.event_build import UNITS, check_deletes
from hopstate.data.events import EventStream
from hopstate.data.node_state import NodeState
from hopstate.data.tensor_file import read_tensors, write_tensors
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import CheckpointError, DataError, TimeOrderError

FORMAT = "hopstate-stream-state-1"


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamState:
    """A node memory after some events.

    Args:
        memory: what the model remembers.
        events: all events so far: src, dst, t, kind and the user's ids.
        model: fingerprint of the model whose memory it is.
        time_unit: of the events' times, "" where unknown; None where a file of an earlier version does not tell.
        last: content hash of the events that were taken last, in the state's rows; "" where none were.
    """

    memory: NodeState
    events: EventStream
    model: str = ""
    time_unit: str | None = ""
    last: str = ""

    @classmethod
    def at_end(cls, stream: EventStream, memory: NodeState, model: str, *, last: str = "") -> StreamState:
        """Return the state after all events of a stream.

        Args:
            stream: the events.
            memory: of its nodes then.
            model: the model's fingerprint.
            last: content hash of the events that were taken last.
        """
        bare = stream.with_(edge_attr=None, labels=None, x=None, num_nodes=stream.num_nodes)
        return cls(memory=memory, events=bare, model=model, time_unit=stream.time_unit, last=last)

    def joined(self, new: EventStream) -> tuple[EventStream, EventStream]:
        """Return the events so far and new ones as one bare stream, and new ones alone in its rows and event ids.

        Ids that have not been met become the next rows, and times are counted in the state's unit.

        Raises:
            TimeOrderError: a new event is earlier than the last one so far.
            DataError: the events that were taken last once more, times of another unit that cannot be converted, ids
                of another kind, or a deletion of an edge that does not stand.
        """
        old = self.events
        new = new if self.time_unit is None else _in_unit(new, self.time_unit)
        if len(old) and len(new) and new.t[0] < old.t[-1]:
            raise TimeOrderError(
                f"{new.name} begins at {new.t[0]}, but the memory has seen events up to {old.t[-1]}; give only later "
                "events (has this file been streamed already?)"
            )
        (src, dst), ids, num_nodes = _rows(old, new)
        kinds = [np.zeros(len(part), np.int8) if part.kind is None else part.kind for part in (old, new)]
        whole = EventStream(
            src=np.concatenate([old.src, src]),
            dst=np.concatenate([old.dst, dst]),
            t=np.concatenate([old.t, new.t]),
            kind=np.concatenate(kinds) if old.has_deletes or new.has_deletes else None,
            num_nodes=num_nodes,
            node_ids=ids,
            time_unit=new.time_unit,
            name=new.name,
            source=new.source,
        )
        rest = {"x": None, "num_nodes": num_nodes, "node_ids": ids, "first_id": len(old)}
        part = new.with_(src=src, dst=dst, **rest)
        if len(part) and part.content_hash == self.last:
            raise DataError(
                f"{new.name} has been streamed already: it holds the events that the memory took last; give later "
                "ones, or go on from another state (--state) or from the end of the run's own data (--fresh)"
            )
        check_deletes(whole)
        return whole, part

    def save(self, path: str | Path) -> None:
        """Write the state to one safetensors file, atomically.

        Raises:
            StorageError: it could not be written; an earlier file of that name is untouched.
        """
        e = self.events
        columns = {"src": e.src, "dst": e.dst, "t": e.t} | ({} if e.kind is None else {"kind": e.kind})
        tensors = self.memory.tensors() | {f"events.{k}": torch.from_numpy(np.array(v)) for k, v in columns.items()}
        if e.node_ids is not None:
            text = json.dumps(e.node_ids.ids.tolist()).encode()
            tensors["events.ids"] = torch.from_numpy(np.frombuffer(text, np.uint8).copy())
        record = {"clock": self.memory.clock, "tag": self.memory.tag, "model": self.model, "num_nodes": e.num_nodes}
        record |= {"time_unit": self.time_unit, "last": self.last}
        write_tensors(path, tensors, record, format=FORMAT)

    @classmethod
    def load(cls, path: str | Path, *, model: str | None = None) -> StreamState:
        """Read a state onto the CPU.

        Args:
            path: a file that `save` wrote.
            model: the fingerprint that the state must have, None to take any.

        Raises:
            MissingFileError: there is no such file.
            CheckpointError: the file is damaged, holds no state, or another model's.
        """
        tensors, record = read_tensors(path, format=FORMAT, what="stream state")
        if model is not None and record["model"] != model:
            raise CheckpointError(f"{path} is the state of another model (other weights); start from this run's own")
        found = [k for k in tensors if k.startswith("events.")]
        arrays: dict[str, Any] = {k.removeprefix("events."): tensors.pop(k).numpy() for k in found}
        try:
            ids = arrays.pop("ids", None)
            names = None if ids is None else Vocabulary(np.array(json.loads(ids.tobytes())))
            unit = record.get("time_unit")
            facts = {"num_nodes": record["num_nodes"], "time_unit": unit or "", "name": "earlier events"}
            events = EventStream(**arrays, **facts, node_ids=names)
        except (DataError, TypeError, ValueError) as error:
            raise CheckpointError(f"the events in {path} are damaged ({error}); use an earlier copy") from error
        memory = NodeState.from_tensors(tensors, record["clock"], record["tag"])
        last = record.get("last", "")
        return cls(memory=memory, events=events, model=record["model"], time_unit=unit, last=last)


def _in_unit(new: EventStream, unit: str) -> EventStream:
    """Return new events with times in a unit, where that loses nothing."""
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


def _rows(old: EventStream, new: EventStream) -> tuple[tuple[np.ndarray, np.ndarray], Vocabulary | None, int]:
    """Return new's (src, dst) in the rows of old, the vocabulary of both and the number of nodes."""
    ids = new.node_ids
    names = (new.src, new.dst) if ids is None else (ids.names(new.src), ids.names(new.dst))
    text = names[0].dtype.kind == "U"
    if old.node_ids is None:
        if text:
            raise DataError(f"{new.name} names nodes by text ({names[0][0]!r}), earlier events by number; use numbers")
        return names, None, max(old.num_nodes, int(np.concatenate(names).max(initial=-1)) + 1)
    if old.node_ids.ids.dtype.kind == "U" and not text:
        names = names[0].astype(str), names[1].astype(str)
    elif old.node_ids.ids.dtype.kind == "i" and text:
        raise DataError(f"{new.name} names nodes by text ({names[0][0]!r}), earlier events by number; use numbers")
    both = old.node_ids.grown(np.stack(names, 1).reshape(-1).tolist())
    return (both.rows(names[0]), both.rows(names[1])), both, len(both)
