"""A stream state on disk: round trips, consistent after a kill at any write, rejected if damaged."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.data import stream_checkpoint
from hopstate.data.events import EventStream
from hopstate.data.stream_checkpoint import check_folder, files_of, load_stream_state, save_stream_state, with_checksum
from hopstate.data.stream_state import Memories, StreamState
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import CheckpointError, MissingFileError, StorageError
from hopstate.io import tensors
from hopstate.io.tensors import write_tensors


def events(first: int, count: int, ids: Any = None, kind: bool = False) -> EventStream:
    rng = np.random.default_rng(first)
    return EventStream(
        src=rng.integers(0, 3, count),
        dst=rng.integers(3, 5, count),
        t=first + np.arange(count),
        kind=np.zeros(count, np.int8) if kind else None,
        edge_attr=rng.normal(size=(count, 2)).astype(np.float32),
        node_ids=None if ids is None else Vocabulary(ids),
        num_nodes=5,
        time_unit="s",
    )


def after(past: StreamState, stream: EventStream) -> StreamState:
    """The changes of a call: events, and memories of some nodes."""
    part, now = past.joined(stream)
    nodes, value = np.unique(part.src), float(len(now))
    memories = Memories(
        nodes=nodes,
        memory=np.full((len(nodes), 2, 3), value, np.float32),
        output=np.full((len(nodes), 3), value, np.float32),
        last_time=np.full(len(nodes), value),
    )
    now = now.settled_at(len(now) - 1, moved=memories, clock=value, tag="model of 3")
    return replace(now, model="abc")


def content(past: StreamState) -> tuple[Any, ...]:
    memories = past.memories(np.arange(past.num_nodes))
    assert memories is not None
    parts = [getattr(memories, key).tolist() for key in ("nodes", "memory", "output", "last_time")]
    whole, rest = past.events(), past.events(past.settled)
    facts = [getattr(past, key) for key in ("num_nodes", "time_unit", "settled", "clock", "model", "tag", "last")]
    x = None if past.x is None else past.x.tolist()
    assert rest.edge_attr is not None
    return whole.with_(edge_attr=None).content_hash, rest.edge_attr.tolist(), parts, facts, x


IDS = [None, np.array([10, 20, 30, 40, 50]), np.array(["a", "b", "c", "d\n", "ü"])]


@pytest.mark.parametrize("ids", IDS)
def test_save_and_load_round_trip(tmp_path: Path, ids: Any) -> None:
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    past = after(replace(StreamState(), x=x, model="abc"), events(0, 6, ids))
    save_stream_state(past, tmp_path / "live")
    assert content(load_stream_state(tmp_path / "live", model="abc")) == content(past)
    for first, count in ((6, 4), (10, 1), (11, 1), (12, 20)):
        past = after(past, events(first, count, ids, kind=first == 10))
        loaded = after(load_stream_state(tmp_path / "live"), events(first, count, ids, kind=first == 10))
        save_stream_state(loaded, tmp_path / "live")
        assert content(load_stream_state(tmp_path / "live")) == content(past) == content(loaded)
    copy = save_stream_state(loaded, tmp_path / "copy")
    assert content(load_stream_state(tmp_path / "copy")) == content(copy) == content(past)


def test_existing_parts_are_not_written_again(tmp_path: Path) -> None:
    past = after(StreamState(model="abc"), events(0, 400))
    past = save_stream_state(past, tmp_path)
    base = next(tmp_path.glob("events-0-400-*"))
    before = base.stat().st_mtime_ns
    for first in range(400, 420):
        past = save_stream_state(after(load_stream_state(tmp_path), events(first, 1)), tmp_path)
    assert base.stat().st_mtime_ns == before
    assert len(list(tmp_path.glob("events-*"))) <= 6
    assert len(list(tmp_path.glob("memory-*"))) <= 6


class Killed(BaseException):
    """Simulates the end of the process."""


def test_a_kill_at_any_write_leaves_the_state_before_or_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill before and after each write and each removal; then the same call is repeated."""
    calls = [events(0, 8), events(8, 3), events(11, 1)]
    expected = [past := StreamState(model="abc"), *(past := after(past, call) for call in calls)]
    count = {"left": -1}

    def killing(write: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            for _ in range(2):
                if count["left"] == 0:
                    raise Killed
                count["left"] -= 1
                done = write(*given, **named) if _ == 0 else None
            return done

        return call

    monkeypatch.setattr(stream_checkpoint, "write_text", killing(stream_checkpoint.write_text))
    monkeypatch.setattr(tensors, "replace_file", killing(tensors.replace_file))
    monkeypatch.setattr(Path, "unlink", killing(Path.unlink))
    for at in range(1000):
        folder, kills = tmp_path / str(at), 0
        count["left"] = at
        done = 0
        while done < len(calls):
            found = load_stream_state(folder) if (folder / "live.json").is_file() else StreamState(model="abc")
            if len(found) == len(expected[done + 1]):  # the kill came after the commit
                done += 1
                continue
            assert len(found) == len(expected[done])
            assert not len(found) or content(found) == content(expected[done])
            try:
                save_stream_state(after(found, calls[done]), folder)
            except Killed:
                kills += 1
                count["left"] = -1
        assert content(load_stream_state(folder)) == content(expected[-1])
        assert files_of(folder / "live.json") <= {path.name for path in folder.iterdir()}
        if not kills:
            break
    assert at > 10


def test_leftovers_of_a_killed_writer_are_deleted(tmp_path: Path) -> None:
    past = save_stream_state(after(StreamState(model="abc"), events(0, 8)), tmp_path)
    memory = "memory-0123456789abcdef.safetensors"
    part = f".{memory}.0123abcd-99.0123456789ab.part"
    for name in ("events-8-9-01234567.safetensors", part, memory, "notes-of-the-user.txt"):
        (tmp_path / name).write_bytes(b"half")
    save_stream_state(after(past, events(8, 1)), tmp_path)
    assert {p.name.split("-")[0] for p in tmp_path.iterdir()} == {"events", "memory", "live.json", "notes"}
    assert not (tmp_path / memory).exists()


def test_an_unusable_state_is_rejected_by_name(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        load_stream_state(tmp_path / "none")
    save_stream_state(after(StreamState(model="abc"), events(0, 8)), tmp_path / "live")
    with pytest.raises(CheckpointError):
        load_stream_state(tmp_path / "live", model="xyz")
    head, file = tmp_path / "live" / "live.json", next((tmp_path / "live").glob("events-*"))
    text, data = head.read_text(), file.read_bytes()
    facts = json.loads(text)
    wrong = ["", "[]", "{", "null", *(json.dumps(with_checksum(facts | change)) for change in BROKEN)]
    for broken in wrong:
        head.write_text(broken)
        with pytest.raises(CheckpointError):
            load_stream_state(tmp_path / "live")
    head.write_text(text)
    for broken_data in (data[:-8], data + b"12345678", b"\0" * len(data)):
        file.write_bytes(broken_data)
        with pytest.raises(CheckpointError):
            load_stream_state(tmp_path / "live")
    file.unlink()
    with pytest.raises(CheckpointError):
        load_stream_state(tmp_path / "live")


@pytest.mark.parametrize("change", [{"memories": []}, {"settled": 3}, {"clock": 1.0}, {"time_unit": "h"}])
def test_a_header_round_trip(tmp_path: Path, change: dict[str, Any]) -> None:
    save_stream_state(after(StreamState(model="abc"), events(0, 8)), tmp_path)
    head = tmp_path / "live.json"
    head.write_text(json.dumps(json.loads(head.read_text()) | change))
    with pytest.raises(CheckpointError, match=r"live\.json"):
        load_stream_state(tmp_path)


BROKEN: list[dict[str, Any]] = [
    {"format": "other"},
    {"settled": 9},
    {"num_nodes": 4},
    {"events": [{}]},
    {"events": [{"file": "../x", "first": 0, "last": 8, "bytes": 1}]},
    {"events": []},
    {"memories": [{"file": "none", "bytes": 1}]},
]


def test_a_folder_of_other_things_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        check_folder(tmp_path / "file")
    with pytest.raises(StorageError, match="file"):
        check_folder(tmp_path)
    check_folder(tmp_path / "new")


def test_a_state_replaced_during_a_read_is_read_consistently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    past = after(StreamState(model="abc"), events(0, 8))
    for first in range(8, 12):  # a few small files, which the writer merges
        past = save_stream_state(after(past, events(first, 1)), tmp_path)
    expected, read, writes = content(after(past, events(12, 9))), stream_checkpoint._tensors, []

    def overtaken(path: Path, **options: Any) -> Any:
        if not writes:
            writes.append(1)
            save_stream_state(after(load_stream_state(tmp_path), events(12, 9)), tmp_path)
        return read(path, **options)

    monkeypatch.setattr(stream_checkpoint, "_tensors", overtaken)
    found = content(load_stream_state(tmp_path))
    assert all(
        np.array_equal(a, b, equal_nan=True) if isinstance(a, np.ndarray) else a == b for a, b in zip(found, expected)
    )
    assert writes


@pytest.mark.parametrize("damage", ["src", "t", "edge_attr", "kind", "nodes", "output", "last_time"])
def test_parts_of_a_file_round_trip(tmp_path: Path, damage: str) -> None:
    stream = events(0, 8).with_(kind=np.array([0, 0, 0, 0, 0, 0, 0, 1], np.int8), from_start=False)
    stream = stream.with_(src=np.append(stream.src[:7], stream.src[0]), dst=np.append(stream.dst[:7], stream.dst[0]))
    save_stream_state(after(StreamState(model="abc"), stream), tmp_path)
    group = "memories" if damage in ("nodes", "output", "last_time") else "events"
    head = json.loads((tmp_path / "live.json").read_text())
    path = tmp_path / head[group][0]["file"]
    whole, _ = tensors.read_tensors(path, format=stream_checkpoint.FORMAT, what="x")
    value = whole[damage]
    wrong = [value.float().half(), value[None].clone(), torch.full_like(value, -1) - value.abs()]
    wrong += [] if damage == "edge_attr" else [value[:-1].clone()]
    wrong += [] if damage in ("edge_attr", "kind") else [None]
    for broken in wrong if damage not in ("edge_attr", "output", "last_time") else wrong[:2]:
        kept = {name: value for name, value in whole.items() if name != damage}
        write_tensors(path, kept | ({} if broken is None else {damage: broken}), {}, format=stream_checkpoint.FORMAT)
        head[group][0]["bytes"] = path.stat().st_size
        (tmp_path / "live.json").write_text(json.dumps(with_checksum(head)))
        with pytest.raises(CheckpointError):
            load_stream_state(tmp_path)
