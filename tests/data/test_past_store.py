"""A past on disk: read back as it was, whole after a kill at any write, and refused where it is damaged."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.data import past_store
from hopstate.data.events import EventStream
from hopstate.data.layers import Memories
from hopstate.data.past import Past
from hopstate.data.past_store import check_folder, load_past, save_past
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import CheckpointError, DataError, MissingFileError, StorageError
from hopstate.io import tensors as tensor_files
from hopstate.io.tensors import read_tensors, write_tensors


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


def after(past: Past, stream: EventStream) -> Past:
    """What a call makes: the events, and memories of some nodes."""
    part, now = past.joined(stream)
    nodes, value = np.unique(part.src), float(len(now))
    memories = Memories(
        nodes=nodes,
        memory=np.full((len(nodes), 2, 3), value, np.float32),
        output=np.full((len(nodes), 3), value, np.float32),
        last_time=np.full(len(nodes), value),
    )
    layers = (*now.layers[:-1], replace(now.layers[-1], memories=memories))
    return replace(now, layers=layers, settled=len(now) - 1, clock=value, tag="model of 3", model="abc")


def content(past: Past) -> tuple[Any, ...]:
    held = past.memories(np.arange(past.num_nodes))
    assert held is not None
    parts = [getattr(held, key).tolist() for key in ("nodes", "memory", "output", "last_time")]
    whole, rest = past.events(), past.events(past.settled)
    facts = [getattr(past, key) for key in ("num_nodes", "time_unit", "settled", "clock", "model", "tag", "last")]
    x = None if past.x is None else past.x.tolist()
    assert rest.edge_attr is not None
    return whole.with_(edge_attr=None).content_hash, rest.edge_attr.tolist(), parts, facts, x


IDS = [None, np.array([10, 20, 30, 40, 50]), np.array(["a", "b", "c", "d\n", "ü"])]


@pytest.mark.parametrize("ids", IDS)
def test_saved_and_read_back_it_is_the_same(tmp_path: Path, ids: Any) -> None:
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    past = after(replace(Past(), x=x, model="abc"), events(0, 6, ids))
    save_past(past, tmp_path / "live")
    assert content(load_past(tmp_path / "live", model="abc")) == content(past)
    for first, count in ((6, 4), (10, 1), (11, 1), (12, 20)):
        past = after(past, events(first, count, ids, kind=first == 10))
        loaded = after(load_past(tmp_path / "live"), events(first, count, ids, kind=first == 10))
        save_past(loaded, tmp_path / "live")
        assert content(load_past(tmp_path / "live")) == content(past) == content(loaded)
    copy = save_past(loaded, tmp_path / "copy")
    assert content(load_past(tmp_path / "copy")) == content(copy) == content(past)


def test_what_lies_there_is_not_written_again(tmp_path: Path) -> None:
    past = after(Past(model="abc"), events(0, 400))
    past = save_past(past, tmp_path)
    base = next(tmp_path.glob("layer-0-400-*"))
    before = base.stat().st_mtime_ns
    for first in range(400, 420):
        past = save_past(after(load_past(tmp_path), events(first, 1)), tmp_path)
    assert base.stat().st_mtime_ns == before
    assert len(list(tmp_path.glob("layer-*"))) <= 6


class Killed(BaseException):
    """The process ends here; nothing after it runs."""


def test_a_kill_at_any_write_leaves_the_state_before_or_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write and each removal, before and after it; then the same call comes again."""
    calls = [events(0, 8), events(8, 3), events(11, 1)]
    expected = [past := Past(model="abc"), *(past := after(past, call) for call in calls)]
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

    monkeypatch.setattr(past_store, "write_text", killing(past_store.write_text))
    monkeypatch.setattr(tensor_files, "replace_file", killing(tensor_files.replace_file))
    monkeypatch.setattr(Path, "unlink", killing(Path.unlink))
    for at in range(1000):
        folder, kills = tmp_path / str(at), 0
        count["left"] = at
        done = 0
        while done < len(calls):
            found = load_past(folder) if (folder / "live.json").is_file() else Past(model="abc")
            if len(found) == len(expected[done + 1]):  # the kill came after it counted
                done += 1
                continue
            assert len(found) == len(expected[done])
            assert not len(found) or content(found) == content(expected[done])
            try:
                save_past(after(found, calls[done]), folder)
            except Killed:
                kills += 1
                count["left"] = -1
        assert content(load_past(folder)) == content(expected[-1])
        named = {entry["file"] for entry in json.loads((folder / "live.json").read_text())["layers"]}
        assert named <= {path.name for path in folder.glob("layer-*")}
        if not kills:
            break
    assert at > 10


def test_what_a_killed_writer_left_is_cleared(tmp_path: Path) -> None:
    past = save_past(after(Past(model="abc"), events(0, 8)), tmp_path)
    for name in ("layer-8-9-00000000.safetensors", ".layer-8-9-00000000.safetensors.part", "x-00000000.safetensors"):
        (tmp_path / name).write_bytes(b"half")
    save_past(after(past, events(8, 1)), tmp_path)
    assert {p.name.split("-")[0] for p in tmp_path.iterdir()} == {"layer", "live.json"}


def test_a_state_that_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        load_past(tmp_path / "none")
    save_past(after(Past(model="abc"), events(0, 8)), tmp_path / "live")
    with pytest.raises(CheckpointError):
        load_past(tmp_path / "live", model="xyz")
    head, layer = tmp_path / "live" / "live.json", next((tmp_path / "live").glob("layer-*"))
    text, data = head.read_text(), layer.read_bytes()
    facts = json.loads(text)
    facts.pop("crc32")  # as of version 0.1.0
    wrong = ["", "[]", "{", "null", *(json.dumps(facts | change) for change in BROKEN)]
    for broken in wrong:
        head.write_text(broken)
        with pytest.raises(CheckpointError):
            load_past(tmp_path / "live")
    head.write_text(text)
    tensors, record = read_tensors(layer, format="hopstate-live-1", what="layer")
    tensors = {key: tensor.clone() for key, tensor in tensors.items()}
    tensors["index.length"][:] = 10**6
    write_tensors(layer, tensors, record, format="hopstate-live-1")
    with pytest.raises(DataError, match="layer-0-8"):
        load_past(tmp_path / "live").store().last(np.array([0]), np.array([9]), 3)
    for broken_data in (data[:-8], data + b"12345678", b"\0" * len(data)):
        layer.write_bytes(broken_data)
        with pytest.raises(CheckpointError):
            load_past(tmp_path / "live")
    layer.unlink()
    with pytest.raises(CheckpointError):
        load_past(tmp_path / "live")


BROKEN: list[dict[str, Any]] = [
    {"format": "other"},
    {"settled": 9},
    {"num_nodes": 4},
    {"layers": [{}]},
    {"layers": [{"file": "../x", "first": 0, "events": 8, "bytes": 1}]},
    {"layers": []},
]


def test_a_folder_of_other_things_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        check_folder(tmp_path / "file")
    with pytest.raises(StorageError, match="file"):
        check_folder(tmp_path)
    check_folder(tmp_path / "new")


@pytest.mark.parametrize("ids", IDS)
def test_a_state_of_version_0_1_0_is_read(tmp_path: Path, ids: Any) -> None:
    stream = events(0, 6, ids)
    columns = {f"events.{key}": torch.from_numpy(np.array(getattr(stream, key))) for key in ("src", "dst", "t")}
    if ids is not None:
        columns["events.ids"] = torch.from_numpy(np.frombuffer(json.dumps(ids.tolist()).encode(), np.uint8).copy())
    memory = {"memory": torch.randn(2, 5, 3), "output": torch.randn(5, 3), "last_time": torch.randn(5).double()}
    record = {"clock": 5.0, "tag": "model of 3", "model": "abc", "num_nodes": 5, "time_unit": "s", "last": "x"}
    write_tensors(tmp_path / "old.safetensors", columns | memory, record, format="hopstate-stream-state-1")
    past = load_past(tmp_path / "old.safetensors", model="abc")
    assert (past.settled, past.clock, past.time_unit, past.num_nodes) == (6, 5.0, "s", 5)
    assert past.events().content_hash == stream.with_(edge_attr=None).content_hash
    held = past.memories(np.array([1, 4]))
    assert held is not None
    assert np.array_equal(held.memory, memory["memory"][:, [1, 4]].transpose(0, 1).numpy())
    save_past(past, tmp_path / "live")
    assert load_past(tmp_path / "live").events().content_hash == past.events().content_hash
    with pytest.raises(CheckpointError):
        load_past(tmp_path / "old.safetensors", model="xyz")


def test_a_state_that_is_replaced_while_it_is_read_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = after(Past(model="abc"), events(0, 8))
    for first in range(8, 12):  # a few small layers, which the writer joins
        past = save_past(after(past, events(first, 1)), tmp_path)
    expected, read, writes = content(after(past, events(12, 9))), past_store._read, []

    def overtaken(*arguments: Any) -> Any:
        if not writes:
            writes.append(1)
            save_past(after(load_past(tmp_path), events(12, 9)), tmp_path)
        return read(*arguments)

    monkeypatch.setattr(past_store, "_read", overtaken)
    found = content(load_past(tmp_path))
    assert all(
        np.array_equal(a, b, equal_nan=True) if isinstance(a, np.ndarray) else a == b for a, b in zip(found, expected)
    )
    assert writes


@pytest.mark.parametrize("damage", ["nodes", "index.codes", "events.t", "memories.output", "index.start"])
def test_parts_of_a_layer_are_what_they_were_written_as(tmp_path: Path, damage: str) -> None:
    save_past(after(Past(model="abc"), events(0, 8)), tmp_path)
    path = next(tmp_path.glob("layer-*"))
    tensors, _ = read_tensors(path, format=past_store.FORMAT, what="x")
    key = damage if damage in tensors else f"events.{damage}"
    for wrong in (None, tensors[key].float().half(), tensors[key][:-1].clone(), tensors[key][None].clone()):
        held = {name: value for name, value in tensors.items() if name != key} | ({} if wrong is None else {key: wrong})
        write_tensors(path, held, {"first": 0}, format=past_store.FORMAT)
        head = json.loads((tmp_path / "live.json").read_text())
        head["layers"][0]["bytes"] = path.stat().st_size
        head.pop("crc32", None)
        (tmp_path / "live.json").write_text(json.dumps(head))
        with pytest.raises(CheckpointError):
            load_past(tmp_path)
