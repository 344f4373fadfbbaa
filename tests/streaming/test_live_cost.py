"""The number of array entries that a live call reads does not depend on the length of the history."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.data.events import EventStream
from hopstate.data.stream_state import StreamState
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.method import Context
from hopstate.streaming.live import continue_stream, fingerprint

SMALL: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {"model.dim": 4, "model.time_dim": 4, "model.order": 2, "model.node_time_deltas": True},
    "dyg-mamba": {"model.channel_dim": 4, "model.time_dim": 4, "model.out_dim": 4, "history.max_length": 6},
    "graphmixer": {"model.num_links": 4, "model.dim": 4, "model.time_dim": 4, "model.out_dim": 4},
    "recency": {},
}
NODES, CALL = 4000, 40
COLUMNS = ("src", "dst", "t", "kind", "ends", "additions")


class Counted(np.ndarray):
    """An array that counts the entries that are read from it."""

    read = 0

    def __getitem__(self, key: Any) -> Any:
        found = np.asarray(self)[key]
        if not isinstance(key, slice):
            Counted.read += np.size(found)
            return found
        return found.view(Counted) if isinstance(found, np.ndarray) else found

    def __array_ufunc__(self, *args: Any, **rest: Any) -> Any:
        Counted.read += len(self)
        plain = [np.asarray(a) if isinstance(a, Counted) else a for a in args[2:]]
        return getattr(args[0], args[1])(*plain, **rest)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        def plain(value: Any) -> Any:
            if isinstance(value, Counted):
                Counted.read += len(value)
                return np.asarray(value)
            return type(value)(map(plain, value)) if isinstance(value, (list, tuple)) else value

        return func(*plain(args), **kwargs)


def counted(state: StreamState) -> None:
    """Count reads of a state's events from here on."""
    for name in COLUMNS:
        if (column := getattr(state.log, name)) is not None:
            column._room = column._room.view(Counted)


def events(first: int, count: int, *, deletes: bool) -> EventStream:
    """Return events of many nodes, each with few; every fourth deletes the edge before it, some a node."""
    rng = np.random.default_rng(first)
    src, dst = rng.integers(0, NODES // 2, count), rng.integers(NODES // 2, NODES, count)
    kind = np.zeros(count, np.int8)
    if deletes:
        gone = np.arange(3, count, 4)
        src[gone], dst[gone], kind[gone] = src[gone - 1], dst[gone - 1], 1
        node = np.arange(5, count, 20)
        src[node] = dst[node] = src[node - 1]
        kind[node] = 2
    return EventStream(src=src, dst=dst, t=first + np.arange(count), kind=kind, num_nodes=NODES, from_start=False)


def past_after(task: Any, count: int) -> StreamState:
    past = StreamState(model=fingerprint(task))
    for first in range(0, count, 1000):
        past = past.joined(events(first, 1000, deletes=True))[1]
    return replace(past, settled=len(past), tag=getattr(task.model, "tag", ""))


@pytest.mark.parametrize("method", SMALL)
def test_the_cost_of_a_call_does_not_grow_with_the_history(method: str, tmp_path: Path) -> None:
    own, chosen = events(0, 200, deletes=False).with_(kind=np.zeros(200, np.int8)), get_method(method)
    given = {"data": "x", **SMALL[method], "evaluation.strategies": ["random"], "evaluation.batch_size": 20}
    task = chosen.build(own, config_from(chosen, given), Context(run=tmp_path, cache=tmp_path))
    read = []
    for length in (4000, 16_000):
        past = past_after(task, length)
        for deletions in (False, True):
            past.store(deletions=deletions)  # built once per state
        counted(past)
        assert past.has_deletes
        Counted.read = 0
        with torch.no_grad():
            columns, after = continue_stream(task, past, events(length, CALL, deletes=True))
        assert len(after) > length
        assert len(columns["score"]) > CALL // 2
        read.append(Counted.read)
    assert max(read) < 4000, read  # reading the history means reading three complete columns
