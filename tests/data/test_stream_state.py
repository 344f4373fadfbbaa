"""Stream states: one file and back, ids that go on, and what cannot be joined."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.data.events import EventStream
from hopstate.data.node_state import NodeState
from hopstate.data.stream_state import FORMAT, StreamState
from hopstate.data.tensor_file import write_tensors
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import CheckpointError, DataError, MissingFileError, TimeOrderError


def events(t: list[float], **fields: Any) -> EventStream:
    rng = np.random.default_rng(len(t))
    return EventStream(src=rng.integers(0, 3, len(t)), dst=rng.integers(3, 5, len(t)), t=np.array(t), **fields)


def state(stream: EventStream) -> StreamState:
    memory = NodeState.zeros(stream.num_nodes, 2, 3, tag="model of 3")
    memory.memory.normal_(generator=torch.Generator().manual_seed(0))
    return StreamState.at_end(stream, memory, "abc")


@pytest.mark.parametrize("ids", [None, np.array([10, 20, 30, 40, 50]), np.array(["a", "b", "c", "d\n", "ü"])])
def test_saved_and_read_back_it_is_the_same(tmp_path: Path, ids: Any) -> None:
    names = None if ids is None else Vocabulary(ids)
    kind = np.array([0, 0, 0, 1], np.int8) if ids is None else None
    stream = EventStream(
        src=np.array([0, 1, 2, 0]), dst=np.array([3, 4, 4, 3]), t=np.arange(4), kind=kind, node_ids=names, num_nodes=5
    )
    before = state(stream)
    before.save(tmp_path / "state.safetensors")
    after = StreamState.load(tmp_path / "state.safetensors", model="abc")
    assert after.events.content_hash == stream.content_hash
    assert after.events.t.dtype == np.int64
    assert after.memory.tag == "model of 3"
    assert all(torch.equal(v, after.memory.tensors()[k]) for k, v in before.memory.tensors().items())


def test_new_events_follow_in_the_same_rows() -> None:
    old = EventStream(
        src=np.array([0, 1]), dst=np.array([2, 2]), t=np.array([1, 2]), node_ids=Vocabulary(np.array(["a", "b", "c"]))
    )
    names = Vocabulary(np.array(["b", "c", "x", "y"]))
    new = EventStream(
        src=np.array([3, 0]),
        dst=np.array([1, 2]),
        t=np.array([2, 5]),
        edge_attr=np.ones((2, 1), np.float32),
        node_ids=names,
    )
    whole, part = state(old).joined(new)
    assert whole.node_ids is not None
    assert whole.node_ids.ids.tolist() == ["a", "b", "c", "y", "x"]
    assert whole.src.tolist() == [0, 1, 3, 1]
    assert whole.dst.tolist() == [2, 2, 2, 4]
    assert part.event_ids.tolist() == [2, 3]
    assert part.take(np.array([1])).src.tolist() == [1]
    assert part.edge_attr is not None
    assert whole.edge_attr is None


def test_numbers_may_follow_text_and_text_never_numbers() -> None:
    text = Vocabulary(np.array(["0", "1", "2", "3", "4"]))
    whole, _ = state(events([1, 2], node_ids=text)).joined(events([3, 4]))
    assert whole.num_nodes == 5
    for ids in (None, Vocabulary(np.arange(5))):
        with pytest.raises(DataError, match="by text"):
            state(events([1, 2], node_ids=ids, num_nodes=5)).joined(events([3, 4], node_ids=text))


def test_what_cannot_follow_is_named(tmp_path: Path) -> None:
    now = state(events([1, 5]))
    with pytest.raises(TimeOrderError, match="begins at 4"):
        now.joined(events([4, 6]))
    pair = np.array([0]), np.array([0]), np.array([9])
    with pytest.raises(DataError, match="does not stand"):
        now.joined(EventStream(src=pair[0], dst=pair[1], t=pair[2], kind=np.array([1], np.int8)))
    with pytest.raises(MissingFileError):
        StreamState.load(tmp_path / "none.safetensors")
    now.memory.save(tmp_path / "memory.safetensors")
    with pytest.raises(CheckpointError, match="holds no stream state"):
        StreamState.load(tmp_path / "memory.safetensors")
    now.save(tmp_path / "state.safetensors")
    with pytest.raises(CheckpointError, match="another model"):
        StreamState.load(tmp_path / "state.safetensors", model="xyz")


def test_the_events_taken_last_are_refused(tmp_path: Path) -> None:
    new = events([5, 5], num_nodes=5)
    now = state(events([1, 5]))
    whole, part = now.joined(new)
    after = StreamState.at_end(whole, now.memory.grown(5), "abc", last=part.content_hash)
    after.save(tmp_path / "state.safetensors")
    for held in (after, StreamState.load(tmp_path / "state.safetensors")):
        with pytest.raises(DataError, match=r"streamed already.*--state.*--fresh"):
            held.joined(new)
        assert len(held.joined(events([5, 5, 5]))[0]) == 7


@pytest.mark.parametrize(("own", "unit"), [("", "s"), ("s", ""), ("day", "s"), ("s", "h")])
def test_times_of_another_unit_are_refused(tmp_path: Path, own: str, unit: str) -> None:
    now = state(events([1, 5], time_unit=own))
    now.save(tmp_path / "state.safetensors")
    for held in (now, StreamState.load(tmp_path / "state.safetensors")):
        with pytest.raises(DataError, match=r"earlier events in .*--read\.time_unit"):
            held.joined(events([6, 7], time_unit=unit))
        assert held.joined(events([6, 7], time_unit=own))[0].time_unit == own


def test_units_of_dates_are_converted_where_nothing_is_lost() -> None:
    fine, coarse = state(events([1000, 5000], time_unit="ms")), state(events([1, 5], time_unit="s"))
    whole, part = fine.joined(events([6, 7], time_unit="s"))
    assert whole.t.tolist() == [1000, 5000, 6000, 7000]
    assert (whole.time_unit, part.time_unit, part.t.dtype) == ("ms", "ms", np.int64)
    assert coarse.joined(events([6000, 7000], time_unit="ms"))[1].t.tolist() == [6, 7]
    with pytest.raises(DataError, match="finer than a whole s"):
        coarse.joined(events([6000, 7001], time_unit="ms"))


def test_a_file_that_does_not_tell_its_unit_takes_that_of_what_follows(tmp_path: Path) -> None:
    now = state(events([1, 5]))
    tensors = now.memory.tensors() | {
        f"events.{k}": torch.from_numpy(getattr(now.events, k).copy()) for k in ("src", "dst", "t")
    }
    record = {"clock": now.memory.clock, "tag": now.memory.tag, "model": "abc", "num_nodes": now.events.num_nodes}
    write_tensors(tmp_path / "old.safetensors", tensors, record, format=FORMAT)
    old = StreamState.load(tmp_path / "old.safetensors")
    assert (old.time_unit, old.last) == (None, "")
    assert old.joined(events([6, 7], time_unit="s"))[0].time_unit == "s"
    old.save(tmp_path / "again.safetensors")
    assert StreamState.load(tmp_path / "again.safetensors").time_unit is None
