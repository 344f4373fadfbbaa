"""Data cards: the facts by hand, every doubt, and plots that are files."""

import numpy as np
import pytest

from hopstate.data.cards.card import inspect_graph, inspect_stream
from hopstate.data.cards.plots import plot_card
from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
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
        "between events, median / longest": "10 / 20",
        "deletions": 0,
        "labels": "0: 5, 1: 1",
        "edge features": "none",
    }
    assert {k: card.facts[k] for k in expected} == pytest.approx(expected)
    assert "bipartite" in card.text()
    assert "suspicious:" in card.text()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"t": np.zeros(6)}, "all events have one time"),
        ({"t": np.array([0, 0, 0, 0, 0, 5])}, "share the time of the one before"),
        ({"t": np.arange(6) * 10**11}, "over 200 years"),
        ({"t": np.arange(6.0)}, "all whole numbers"),
        ({"edge_attr": np.zeros((6, 3), np.float32)}, "edge features are zero everywhere"),
        ({"x": np.ones((4, 2), np.float32)}, "2 of 2 node features never change"),
        ({"edge_attr": np.stack([np.arange(6.0), 1e6 * np.arange(6.0)], 1).astype(np.float32)}, "differ in scale"),
        ({"num_nodes": 9}, "5 nodes have no event"),
        ({"labels": np.zeros(6, int)}, "every label is 0"),
        ({"dst": np.array([1, 2, 1, 1, 3, 2]), "src": np.zeros(6, int)}, "node 0 takes part in 100%"),
        ({}, "1 events join a node to itself"),
        (
            {
                "src": np.array([0, 0, 1, 1, 2, 2]),
                "dst": np.array([1, 1, 2, 2, 3, 3]),
                "t": np.array([0, 0, 1, 1, 2, 2]),
            },
            "logged twice",
        ),
    ],
)
def test_doubts_about_a_stream(changes, words):
    doubts = inspect_stream(stream(**changes)).suspicious
    assert any(words in sentence for sentence in doubts), doubts


def test_a_gap_in_the_data_is_seen_and_nothing_is_said_of_clean_data():
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 20, 500), rng.integers(20, 40, 500)
    t = np.cumsum(rng.integers(1, 10, 500))
    clean = EventStream(src=src, dst=dst, t=t, time_unit="s", node_ids=Vocabulary(np.arange(40)))
    assert inspect_stream(clean).suspicious == ()
    assert "suspicious" not in inspect_stream(clean).text()
    holed = clean.with_(t=np.where(np.arange(500) > 250, t + 5000, t))
    assert "after event 250" in inspect_stream(holed).suspicious[0]


def test_an_empty_stream_and_one_event():
    empty = EventStream(src=np.array([], int), dst=np.array([], int), t=np.array([]))
    assert inspect_stream(empty).suspicious == ("there are no events",)
    one = inspect_stream(stream().slice(0, 1))
    assert one.facts["events"] == 1


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
    for words in ("1 nodes have no edge", "join a node to itself", "node features are zero"):
        assert any(words in sentence for sentence in card.suspicious), card.suspicious
    directed = Graph.from_edges(edges, 5, undirected=False)
    assert any("directed" in sentence for sentence in inspect_graph(directed).suspicious)


def test_plots_are_written(tmp_path):
    graph = Graph.from_edges(np.array([[0, 1], [1, 2]]), y=np.array([0, 1, 1]))
    for name, data in (
        ("a.png", stream()),
        ("b.pdf", graph),
        ("c.svg", graph.with_(y=None)),
        ("d.png", stream().slice(0, 1)),
    ):
        plot_card(data, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(FormatError, match="drawn"):
        plot_card(graph, tmp_path / "a.jpg")


@pytest.mark.shared
def test_the_card_of_a_real_stream_names_what_is_known_of_it(shared):
    from hopstate.data.readers.read_events import read_events

    card = inspect_stream(read_events(shared / "data/temporal/enron"))
    text = " ".join(card.suspicious)
    for words in ("82% of events share the time", "features are zero", "join a node to itself", "whole numbers"):
        assert words in text
