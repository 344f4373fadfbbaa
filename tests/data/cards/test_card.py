"""Data cards: the facts by hand, every doubt, and plots that are files."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from hopstate.cli.main import main
from hopstate.data import active_edges, column_facts, event_build, event_record
from hopstate.data.cards import median, stream_figures
from hopstate.data.cards.card import inspect_graph, inspect_stream
from hopstate.data.cards.plots import plot_card
from hopstate.data.cards.set_card import inspect_set
from hopstate.data.event_store import save_events
from hopstate.data.events import ADD, DELETE, EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph_set import is_set
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import FormatError


def stream(**changes) -> EventStream:
    fields = {
        "src": np.array([0, 1, 0, 2, 2, 0]),
        "dst": np.array([1, 0, 1, 2, 3, 2]),
        "t": np.array([0, 10, 10, 30, 40, 50]),
        "time_unit": "s",
    }
    return EventStream(**{**fields, **changes})


def test_facts_of_a_stream_by_hand():
    card = inspect_stream(stream(labels=np.array([0, 1, 0, 0, 0, 0]), kind=np.zeros(6, np.int8)))
    expected = {
        "events": 6,
        "nodes": 4,
        "nodes with events": 4,
        "sources / destinations": "3 / 4",
        "bipartite": False,
        "distinct pairs": 5,
        "repeat ratio (pair met before)": 1 / 6,
        "reply ratio (met the other way before)": 2 / 6,
        "self-events": 1,
        "events per node, median / mean / most": "3 / 2.75 / 4",
        "share of ties (same time as the event before)": 0.2,
        "between events, median / longest": "10 seconds / 20 seconds",
        "deletions": 0,
        "labels": "0: 5, 1: 1",
        "edge features": "none",
    }
    assert {k: card.facts[k] for k in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"t": np.zeros(6)}, ""),
        ({"t": np.array([0, 0, 0, 0, 0, 5])}, ""),
        ({"t": np.arange(6) * 10**11}, ""),
        ({"t": np.arange(6.0)}, ""),
        ({"edge_attr": np.zeros((6, 3), np.float32)}, ""),
        ({"x": np.ones((4, 2), np.float32)}, "2"),
        ({"edge_attr": np.stack([np.arange(6.0), 1e6 * np.arange(6.0)], 1).astype(np.float32)}, ""),
        ({"edge_attr": 2e6 + np.arange(6, dtype=np.float32)[:, None]}, "0"),
        ({"num_nodes": 9}, "5"),
        ({"labels": np.zeros(6, int)}, "0"),
        ({"dst": np.array([1, 2, 1, 1, 3, 2]), "src": np.zeros(6, int)}, "node 0"),
        ({}, "1"),
        (
            {
                "src": np.array([0, 0, 1, 1, 2, 2]),
                "dst": np.array([1, 1, 2, 2, 3, 3]),
                "t": np.array([0, 0, 1, 1, 2, 2]),
            },
            "",
        ),
    ],
)
def test_doubts_about_a_stream(changes, named):
    doubts = inspect_stream(stream(**changes)).suspicious
    plain = inspect_stream(stream(src=np.array([0, 1, 0, 1, 2, 0]))).suspicious
    assert any(named in sentence for sentence in set(doubts) - set(plain)), doubts


def test_a_gap_in_the_data_is_a_doubt_and_clean_data_have_none():
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 20, 500), rng.integers(20, 40, 500)
    t = np.cumsum(rng.integers(1, 10, 500))
    clean = EventStream(src=src, dst=dst, t=t, time_unit="s", node_ids=Vocabulary(np.arange(40)))
    assert inspect_stream(clean).suspicious == ()
    holed = clean.with_(t=np.where(np.arange(500) > 250, t + 5000, t))
    assert "250" in inspect_stream(holed).suspicious[0]


def test_an_empty_stream_and_one_event():
    empty = EventStream(src=np.array([], int), dst=np.array([], int), t=np.array([]))
    assert len(inspect_stream(empty).suspicious) == 1
    one = inspect_stream(stream().slice(0, 1))
    assert one.facts["events"] == 1


@pytest.mark.slow
def test_a_card_takes_less_memory_than_a_column(monkeypatch):
    for looking in (stream_figures, event_record):
        monkeypatch.setattr(looking, "_CHUNK", 1 << 14)
    monkeypatch.setattr(stream_figures, "_PAIRS", 1 << 18)
    monkeypatch.setattr(median, "_HELD", 1 << 14)
    rng, count = np.random.default_rng(0), 3_000_000
    src, dst = rng.integers(0, 1000, (2, count))
    long = EventStream(src=src, dst=dst, t=np.cumsum(rng.integers(0, 1000, count)), kind=np.zeros(count, np.int8))
    inspect_stream(long.slice(0, 9))  # compiles what it needs
    tracemalloc.start()
    inspect_stream(long)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < long.t.nbytes


def coming_and_going(cycles):
    """Return a stream in which nodes meet three others, leave all of them, and come again."""
    kind = np.tile(np.array([ADD, ADD, ADD, DELETE, DELETE, DELETE], np.int8), cycles)
    node = np.repeat(np.arange(cycles) % 1000, 6)
    other = np.tile([1000, 1001, 1002, 1002, 1000, 1001], cycles)
    place = np.arange(6 * cycles)
    return EventStream(
        src=node, dst=other, t=place // 6, kind=kind, num_nodes=1005,
        edge_attr=np.where(kind == ADD, place % 11 + 1, 0).astype(np.float32)[:, None],
        labels=place % 3,
    )  # fmt: skip


@pytest.mark.parametrize("large", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_mapped_stream_with_deletions_has_the_same_card(tmp_path, monkeypatch, large):
    short = coming_and_going(3_000)
    save_events(short, tmp_path / "short")
    expected = [inspect_stream(replace(read_events(tmp_path / "short"), name="a", source="")).text()]
    monkeypatch.setattr(event_build, "CHUNK", 1 << 10)
    for looking in (stream_figures, event_record):
        monkeypatch.setattr(looking, "_CHUNK", 1 << 14)
    monkeypatch.setattr(column_facts, "BLOCK", 1 << 16)
    monkeypatch.setattr(active_edges, "CHUNK", 1 << 14)
    monkeypatch.setattr(active_edges, "PAIRS", 1 << 16)
    monkeypatch.setattr(stream_figures, "_PAIRS", 1 << 16)
    monkeypatch.setattr(median, "_HELD", 1 << 14)
    mapped = read_events(tmp_path / "short")
    expected += [inspect_stream(replace(found, name="a", source="")).text() for found in (mapped, short)]
    assert len(set(expected)) == 1
    if not large:
        return
    stream = coming_and_going(400_000)
    save_events(stream, tmp_path / "long")
    tracemalloc.start()
    inspect_stream(read_events(tmp_path / "long"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < stream.t.nbytes


def test_facts_and_doubts_of_a_graph():
    edges = np.array([[0, 1], [1, 2], [2, 0], [3, 3]])
    graph = Graph.from_edges(
        edges,
        5,
        x=np.zeros((5, 2), np.float32),
        y=np.array([0, 0, 1, 1, -1]),
        masks={"train": np.array([True, True, True, False, False])},
    )
    card = inspect_graph(graph)
    assert card.facts["components"] == 3
    assert card.facts["largest component"] == 3
    assert card.facts["share of edges within a class"] == pytest.approx(1 / 3)
    assert card.facts["classes"] == "0: 2, 1: 2"
    assert card.facts["train nodes"] == 3
    assert len(card.suspicious) >= 3
    directed = Graph.from_edges(edges, 5, undirected=False)
    assert any("directed" in sentence for sentence in inspect_graph(directed).suspicious)


def test_plots_are_written(tmp_path):
    graph = Graph.from_edges(np.array([[0, 1], [1, 2]]), y=np.array([0, 1, 1]))
    for name, data in (
        ("a.png", stream()),
        ("c.svg", graph.with_(y=None)),
        ("d.png", stream().slice(0, 1)),
    ):
        plot_card(data, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(FormatError):
        plot_card(graph, tmp_path / "a.jpg")


@pytest.mark.slow
@pytest.mark.shared
def test_the_card_of_a_real_stream_names_what_is_known_of_it(shared):
    from hopstate.data.readers.read_events import read_events

    card = inspect_stream(read_events(shared / "data/temporal/enron"))
    text = " ".join(card.suspicious)
    assert "82%" in text


def ring_set(y=None, **more) -> GraphSet:
    ring = np.arange(4)
    edges = np.concatenate([np.stack([ring, np.roll(ring, 1)], 1) + 4 * g for g in range(3)])
    union = Graph.from_edges(
        edges, 13, x=np.random.default_rng(0).normal(size=(13, 2)).astype(np.float32), name="rings"
    )
    return GraphSet(union=union, offsets=np.array([0, 4, 8, 12, 13]), y=y, **more)


def test_facts_of_a_set_of_graphs_by_hand():
    masks = {"train": np.array([1, 1, 0, 0], bool), "val": np.array([0, 0, 1, 0], bool), "test": np.arange(4) == 3}
    card = inspect_set(ring_set(np.array([0, 1, 1, -1]), class_names=("no", "yes"), masks=masks))
    expected = {
        "graphs": 4,
        "nodes of all": 13,
        "stored edges of all": 24,
        "nodes of a graph, median / mean / most": "4 / 3.25 / 4",
        "stored edges of a graph, median / mean / most": "8 / 6.00 / 8",
        "node features": "2 wide",
        "classes of graphs": "no: 1, yes: 2",
        "missing targets of graphs": 1,
        "to fit": "classes of graphs: gmn-graphs or gin-graphs",
        "train graphs": 2,
    }
    assert {k: card.facts[k] for k in expected} == expected
    assert len(card.suspicious) == 1


@pytest.mark.parametrize(
    ("y", "fact", "value"),
    [
        (None, "graphs", 4),
        (np.array([0.5, np.nan, 2, 3], np.float32), "targets of graphs", "1 values, 0.5 to 3, mean 1.833"),
        (
            np.array([[0, 1]] * 3 + [[1, 1]], np.float32),
            "targets of graphs",
            "2 labels of 0 and 1, 0 to 1",
        ),
    ],
)
def test_targets_of_a_set(y, fact, value):
    facts = inspect_set(ring_set(y)).facts
    assert str(facts[fact]).startswith(str(value))
    assert facts["to fit"]


@pytest.mark.parametrize("y", [np.zeros(4, np.int64), np.full(4, np.nan, np.float32), np.ones(4, np.float32)])
def test_doubts_about_a_set(y):
    plain = inspect_set(ring_set(np.array([0, 1, 1, 0]))).suspicious
    assert len(inspect_set(ring_set(y)).suspicious) == len(plain) + 1


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("pyg:GNNBenchmarkDataset:PATTERN", True),
        ("pyg:TUDataset:MUTAG", True),
        ("ogb:ogbg-molhiv", True),
        ("pyg:Planetoid:Cora", False),
        ("ogb:ogbn-arxiv", False),
        ("nowhere.txt", False),
        ("\0", False),
    ],
)
def test_addresses_of_sets_are_known_without_a_download(address, expected):
    assert is_set(address) is expected


def test_the_command_knows_sets_of_graphs(tmp_path, capsys):
    (tmp_path / "T.txt").write_text("2\n3 1\n0 1 1\n2 2 0 2\n0 1 1\n2 -1\n5 1 1\n5 1 0\n")
    (tmp_path / "folder").mkdir()
    for what, text in {"A": "1, 2\n3, 4\n", "graph_indicator": "1\n1\n2\n2\n", "graph_labels": "0\n1\n"}.items():
        (tmp_path / "folder" / f"T_{what}.txt").write_text(text)
    for path, kind in ((tmp_path / "T.txt", "auto"), (tmp_path / "folder", "auto"), (tmp_path / "T.txt", "graphs")):
        assert main(["inspect", str(path), "--kind", kind]) == 0
        assert capsys.readouterr().out
