"""Histories of a mapped stream are in unnamed files: the same results, and no file is left."""

import numpy as np
import pytest
import torch

from hopstate.data.events import EventStream, as_slice, is_prefix
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import chronological_split
from hopstate.data.store import load_events
from hopstate.evaluation.link import evaluate_link
from hopstate.io.scratch import mapped_array, release_pages, scratch_folder_of
from hopstate.methods.heuristics.edgebank import EdgeBank, ObservedPrefix
from hopstate.runs.run import fit
from hopstate.training.checkpoint import load_checkpoint


def made(events=400, nodes=12, seed=0):
    rng = np.random.default_rng(seed)
    return EventStream(
        src=rng.integers(0, nodes, events),
        dst=rng.integers(0, nodes, events),
        t=np.sort(rng.integers(0, events // 3, events)),  # three events at a time
        num_nodes=nodes,
    )


@pytest.fixture
def mapped(tmp_path, monkeypatch):
    monkeypatch.setattr("hopstate.data.neighbor_store.MAPPED", 1)
    made().save(tmp_path / "store")
    return load_events(tmp_path / "store")


def queries(nodes, last):
    return np.repeat(np.arange(nodes), last + 2), np.tile(np.arange(last + 2), nodes)


@pytest.mark.parametrize(
    ("subset", "stretch"),
    [(None, 1), (slice(0, 250), 90), (slice(30, 300), 1 << 24), (slice(7, 7), 90), (slice(0, 400, 3), 90)],
)
def test_mapped_histories_equal_those_in_memory(mapped, tmp_path, monkeypatch, subset, stretch):
    monkeypatch.setattr("hopstate.data.neighbor_store._STRETCH", stretch)
    monkeypatch.setattr("hopstate.data.neighbor_store._CHUNK", 64)
    rows = None if subset is None else np.arange(400)[subset]
    own, there = NeighborStore.from_stream(mapped, rows), NeighborStore.from_stream(made(), rows)
    assert isinstance(own._times, np.memmap) == bool(rows is None or len(rows))
    assert not isinstance(there._times, np.memmap)
    nodes, t = queries(12, 140)
    for k in (1, 5, 1000):
        a, b = own.last(nodes, t, k), there.last(nodes, t, k)
        for name in ("offsets", "nodes", "event_ids", "times"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    names = {path.name for path in (tmp_path / "store").iterdir()}
    assert all(name.endswith((".npy", ".json")) for name in names)


def test_mapped_histories_can_be_extended(mapped):
    own, there = NeighborStore.from_stream(mapped), NeighborStore.from_stream(made())
    more = np.array([3, 12, 0]), np.array([4, 3, 0]), np.array([500, 501, 501])
    for store in (own, there):
        store.append(*more)
    nodes, t = queries(13, 502)
    a, b = own.last(nodes, t, 9), there.last(nodes, t, 9)
    np.testing.assert_array_equal(a.event_ids, b.event_ids)
    np.testing.assert_array_equal(a.nodes, b.nodes)


def test_training_queries_agree_in_histories_of_the_whole_stream():
    stream = made()
    rows = chronological_split(stream).train
    assert is_prefix(rows)
    whole, own = NeighborStore.from_stream(stream), NeighborStore.from_stream(stream, rows)
    for ends in (stream.src, stream.dst):
        a, b = (store.last(ends[rows], stream.t[rows], 1000) for store in (whole, own))
        for name in ("offsets", "nodes", "event_ids", "times"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    after = stream.t[rows[-1]] + 1  # the property is limited: later queries differ
    assert len(whole.last(np.arange(12), np.full(12, after + 50), 1000).nodes) > len(
        own.last(np.arange(12), np.full(12, after + 50), 1000).nodes
    )


def test_contiguous_rows_are_slices_and_prefixes():
    assert as_slice(np.array([3])) == slice(3, 4)
    assert isinstance(as_slice(np.array([], np.int64)), np.ndarray)
    assert isinstance(as_slice(np.array([0, 2])), np.ndarray)
    assert is_prefix(np.array([0, 1]))
    assert not is_prefix(np.array([1, 2]))
    assert not is_prefix(np.array([0, 2]))
    assert not is_prefix(np.array([], np.int64))


def test_released_pages_of_histories_are_read_again(tmp_path):
    room = mapped_array(tmp_path, 100_000, np.int64)
    room[:] = np.arange(100_000)
    release_pages(room, room[5:50], np.arange(3), None)
    np.testing.assert_array_equal(room, np.arange(100_000))
    np.save(tmp_path / "a.npy", np.arange(9))
    private = np.load(tmp_path / "a.npy", mmap_mode="c")
    private[0] = 7  # changes memory only
    release_pages(private)
    assert private[0] == 7
    assert scratch_folder_of(private) == tmp_path
    assert scratch_folder_of(np.arange(3)) is None
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


@pytest.mark.slow
def test_training_on_a_mapped_stream_is_bit_identical_to_memory(tmp_path, monkeypatch):
    stream = made(events=300, nodes=20)
    stream.save(tmp_path / "store")
    weights = []
    for name, most in (("memory", 1 << 40), ("mapped", 1)):
        monkeypatch.setattr("hopstate.data.neighbor_store.MAPPED", most)
        out = tmp_path / name
        fit("graphmixer", str(tmp_path / "store"), out=out, loop__epochs=1, batch_size=30, loop__progress=False)
        weights.append(load_checkpoint(out / "model.safetensors").tensors["model"])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_edgebank_on_a_mapped_stream_equals_memory(mapped):
    split = chronological_split(mapped)
    own, there = EdgeBank(12, stream=mapped), EdgeBank(12)
    assert isinstance(own.memory.store, ObservedPrefix)
    a, b = (evaluate_link(bank, mapped, split, batch_size=30) for bank in (own, there))
    assert a.rows == b.rows
    assert isinstance(own.memory.store, ObservedPrefix)
    assert 0 < a.scores["test", "random"].negative.mean() < 1


@pytest.mark.parametrize("rows", [[0, 1, 2, 5, 6, 7], [3, 4], [0, 1, 1, 0], [0, 2, 1, 3], []])
def test_edgebank_on_a_mapped_stream_accepts_events_in_any_order(mapped, rows):
    pairs = np.repeat(np.arange(12), 12), np.tile(np.arange(12), 12), np.full(144, 900)
    own, there = EdgeBank(12, stream=mapped), EdgeBank(12)
    for part in (np.array(rows[:3], np.int64), np.array(rows[3:], np.int64)):
        for bank in (own, there):
            bank.observe(mapped.take(part))
        np.testing.assert_array_equal(own.score(*pairs), there.score(*pairs))
    kept = own.state()
    own.observe(mapped.take(np.arange(200)))
    own.restore(kept)
    np.testing.assert_array_equal(own.score(*pairs), there.score(*pairs))


@pytest.mark.slow
def test_trees_on_a_mapped_stream_equal_memory(tmp_path, monkeypatch):
    made(events=600, nodes=20).save(tmp_path / "store")
    found = []
    for name, most in (("memory", 1 << 40), ("mapped", 1)):
        monkeypatch.setattr("hopstate.data.neighbor_store.MAPPED", most)
        monkeypatch.setattr("hopstate.tokens.pair_features._BATCH", 64)
        monkeypatch.setattr("hopstate.evaluation.link._PAGES", 1)
        run = fit("pair-trees", str(tmp_path / "store"), out=tmp_path / name, model__num_trees=5, loop__progress=False)
        found.append((run.metrics, run.baselines, load_checkpoint(run.path / "model.safetensors").tensors["model"]))
    assert found[0][:2] == found[1][:2]
    for name, baseline in found[0][1].items():  # the run's split, clock and index give the results of a baseline run
        own = fit(name, str(tmp_path / "store"), out=tmp_path / f"own-{name}", loop__progress=False)
        assert own.metrics["test"] == baseline
    assert all(torch.equal(found[0][2][name], found[1][2][name]) for name in found[0][2])


@pytest.mark.parametrize("name", ["graphmixer", pytest.param("pair-trees", marks=pytest.mark.slow)])
def test_a_run_on_a_mapped_stream_shares_one_index_with_its_baselines(name, tmp_path, monkeypatch):
    made(events=600, nodes=20).save(tmp_path / "store")
    built, build = [], NeighborStore.from_stream

    def counted(stream, rows=None, **options):
        built.append(rows)
        return build(stream, rows, **options)

    monkeypatch.setattr("hopstate.data.neighbor_store.MAPPED", 1)
    monkeypatch.setattr("hopstate.methods.pair_trees.method.tree_baseline", lambda *_: {})
    monkeypatch.setattr(NeighborStore, "from_stream", counted)
    few = {"model__num_trees": 5} if name == "pair-trees" else {"loop__epochs": 0}
    run = fit(name, str(tmp_path / "store"), out=tmp_path / "run", loop__progress=False, **few)
    assert {"recency", "edgebank"} <= set(run.baselines)
    assert built == [None]


def test_pages_are_released_before_each_baseline(tmp_path, monkeypatch):
    """At 100 M events the pages of a run and a baseline together would exceed the memory limit."""
    from hopstate.methods.heuristics import method

    made(events=600, nodes=20).save(tmp_path / "store")
    seen = []
    monkeypatch.setattr("hopstate.data.neighbor_store.MAPPED", 1)
    monkeypatch.setattr(method, "release_pages", lambda *columns: seen.append(len(columns)))
    monkeypatch.setattr("hopstate.methods.pair_trees.method.tree_baseline", lambda *_: {})
    monkeypatch.setattr(method, "_evaluate", lambda *_: seen.append("evaluated") or {})
    monkeypatch.setattr(NeighborStore, "release_pages", lambda _: seen.append("index"))
    fit("graphmixer", str(tmp_path / "store"), out=tmp_path / "run", loop__progress=False, loop__epochs=0)
    assert seen[-6:] == [3, "index", "evaluated", 3, "index", "evaluated"]
