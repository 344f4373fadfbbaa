"""Summaries of datasets: facts checked manually, every warning, and plots written to files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.cli.main import main
from hopstate.data import summary
from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import is_set
from hopstate.data.summary import class_counts, event_degrees, node_time_deltas, plot_summary, summarize
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


def test_facts_of_a_stream():
    card = summarize(stream(labels=np.array([0, 1, 0, 0, 0, 0]), kind=np.zeros(6, np.int8)))
    expected = {
        "events": 6,
        "nodes": 4,
        "nodes with events": 4,
        "sources / destinations": "3 / 4",
        "bipartite": False,
        "distinct pairs": 5,
        "repeat ratio (earlier event of the pair)": 1 / 6,
        "reply ratio (earlier reverse event)": 2 / 6,
        "self-events": 1,
        "events per node, median / mean / most": "3 / 2.75 / 4",
        "share of ties (same time as the event before)": 0.2,
        "between events, median / longest": "10 seconds / 20 seconds",
        "deletions": 0,
        "labels": "6 of 6 events (100%) have one",
        "classes": "0: 5, 1: 1",
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
        (
            {
                "edge_attr": np.stack([np.arange(6.0), 1e6 * np.arange(6.0)], 1).astype(np.float32),
                "published": True,
            },
            "",
        ),
        ({"edge_attr": 2e6 + np.arange(6, dtype=np.float32)[:, None], "published": True}, "0"),
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
def test_warnings_about_a_stream(changes, named):
    doubts = summarize(stream(**changes)).suspicious
    plain = summarize(stream(src=np.array([0, 1, 0, 1, 2, 0]))).suspicious
    assert any(named in sentence for sentence in set(doubts) - set(plain)), doubts


def test_a_time_gap_gives_a_warning_and_clean_data_give_none():
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 20, 500), rng.integers(20, 40, 500)
    t = np.cumsum(rng.integers(1, 10, 500))
    clean = EventStream(src=src, dst=dst, t=t, time_unit="s", node_ids=Vocabulary(np.arange(40)))
    assert summarize(clean).suspicious == ()
    holed = clean.with_(t=np.where(np.arange(500) > 250, t + 5000, t))
    assert "250" in summarize(holed).suspicious[0]


def test_an_empty_stream_and_one_event():
    empty = EventStream(src=np.array([], int), dst=np.array([], int), t=np.array([]))
    assert len(summarize(empty).suspicious) == 1
    one = summarize(stream().slice(0, 1))
    assert one.facts["events"] == 1


def test_a_long_stream_is_counted_fully_and_sorted_in_part(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 20, (2, 500))
    EventStream(src=src, dst=dst, t=np.arange(500), num_nodes=20).save(tmp_path / "store")
    mapped = read_events(tmp_path / "store")
    whole = summarize(mapped)
    monkeypatch.setattr(summary, "MAX_ROWS", 100)
    part = summarize(mapped)
    for name in ("events", "nodes", "events per node, median / mean / most", "time span"):
        assert part.facts[name] == whole.facts[name]
    assert part.facts["distinct pairs"] == summarize(mapped.slice(0, 100)).facts["distinct pairs"]
    assert len(part.notes) == len(whole.notes) + 1
    assert "100" in part.notes[-1]


@pytest.mark.parametrize(("count", "nodes"), [(400, 12), (400, 90), (1, 3), (130, 1)])
def test_statistics_equal_a_loop_over_events(count: int, nodes: int) -> None:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, nodes, (2, count))
    t = np.cumsum(rng.integers(0, 3, count))
    data = EventStream(src=src, dst=dst, t=t, num_nodes=nodes + 2)
    pairs: set[tuple[int, int]] = set()
    repeats = replies = 0
    last: dict[int, int] = {}
    gaps = []
    for u, v, when in zip(src.tolist(), dst.tolist(), t.tolist(), strict=True):
        repeats += (u, v) in pairs
        replies += u != v and (v, u) in pairs
        pairs.add((u, v))
        for node in (u, v):
            gaps += [when - last[node]] if node in last else []
            last[node] = when
    facts = summarize(data).facts
    assert facts["repeat ratio (earlier event of the pair)"] == pytest.approx(repeats / count)
    assert facts["reply ratio (earlier reverse event)"] == pytest.approx(replies / count)
    assert sorted(node_time_deltas(data).tolist()) == sorted(gaps)
    assert event_degrees(data).tolist() == [int(((src == v) | (dst == v)).sum()) for v in range(nodes + 2)]


def test_facts_and_warnings_of_a_graph():
    edges = np.array([[0, 1], [1, 2], [2, 0], [3, 3]])
    graph = Graph.from_edges(
        edges,
        5,
        x=np.zeros((5, 2), np.float32),
        y=np.array([0, 0, 1, 1, -1]),
        masks={"train": np.array([True, True, True, False, False])},
    )
    card = summarize(graph)
    assert card.facts["components"] == 3
    assert card.facts["largest component"] == 3
    assert card.facts["share of edges within a class"] == pytest.approx(1 / 3)
    assert card.facts["classes"] == "0: 2, 1: 2"
    assert card.facts["train nodes"] == 3
    assert len(card.suspicious) >= 3
    directed = Graph.from_edges(edges, 5, undirected=False)
    assert any("directed" in sentence for sentence in summarize(directed).suspicious)


def test_plots_are_written(tmp_path):
    graph = Graph.from_edges(np.array([[0, 1], [1, 2]]), y=np.array([0, 1, 1]))
    for name, data in (
        ("a.png", stream()),
        ("c.svg", graph.with_(y=None)),
        ("d.png", stream().slice(0, 1)),
    ):
        plot_summary(data, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(FormatError):
        plot_summary(graph, tmp_path / "a.jpg")


def ring_set(y=None, **more) -> GraphSet:
    ring = np.arange(4)
    edges = np.concatenate([np.stack([ring, np.roll(ring, 1)], 1) + 4 * g for g in range(3)])
    union = Graph.from_edges(
        edges, 13, x=np.random.default_rng(0).normal(size=(13, 2)).astype(np.float32), name="rings"
    )
    return GraphSet(union=union, offsets=np.array([0, 4, 8, 12, 13]), y=y, **more)


def test_facts_of_a_graph_set():
    masks = {"train": np.array([1, 1, 0, 0], bool), "val": np.array([0, 0, 1, 0], bool), "test": np.arange(4) == 3}
    card = summarize(ring_set(np.array([0, 1, 1, -1]), class_names=("no", "yes"), masks=masks))
    expected = {
        "graphs": 4,
        "nodes of all": 13,
        "stored edges of all": 24,
        "nodes of a graph, median / mean / most": "4 / 3.25 / 4",
        "stored edges of a graph, median / mean / most": "8 / 6.00 / 8",
        "node features": "2",
        "classes of graphs": "no: 1, yes: 2",
        "labels of graphs": "3 of 4 graphs (75%) have one",
        "to fit": "gmn-graphs or gin-graphs",
        "train graphs": 2,
    }
    assert {k: card.facts[k] for k in expected} == expected
    assert len(card.suspicious) == 1


@pytest.mark.parametrize(
    ("y", "fact", "value"),
    [
        (None, "graphs", 4),
        (np.array([0.5, np.nan, 2, 3], np.float32), "targets of graphs", "value: 0.5 to 3, mean 1.833"),
        (
            np.array([[0, 1]] * 3 + [[1, 1]], np.float32),
            "targets of graphs",
            "value_0: 0 to 1, mean 0.25, sd 0.433 (4 known); value_1: 1 to 1",
        ),
    ],
)
def test_targets_of_a_graph_set(y, fact, value):
    facts = summarize(ring_set(y)).facts
    assert str(facts[fact]).startswith(str(value))
    assert facts["to fit"]


@pytest.mark.parametrize("y", [np.zeros(4, np.int64), np.full(4, np.nan, np.float32), np.ones(4, np.float32)])
def test_warnings_about_a_graph_set(y):
    plain = summarize(ring_set(np.array([0, 1, 1, 0]))).suspicious
    assert len(summarize(ring_set(y)).suspicious) == len(plain) + 1


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
def test_sources_of_graph_sets_need_no_download(address, expected):
    assert is_set(address) is expected


def test_inspect_reads_graph_sets(tmp_path, capsys):
    (tmp_path / "T.txt").write_text("2\n3 1\n0 1 1\n2 2 0 2\n0 1 1\n2 -1\n5 1 1\n5 1 0\n")
    (tmp_path / "folder").mkdir()
    for what, text in {"A": "1, 2\n3, 4\n", "graph_indicator": "1\n1\n2\n2\n", "graph_labels": "0\n1\n"}.items():
        (tmp_path / "folder" / f"T_{what}.txt").write_text(text)
    for path, kind in ((tmp_path / "T.txt", "auto"), (tmp_path / "folder", "auto"), (tmp_path / "T.txt", "graphs")):
        assert main(["inspect", str(path), "--kind", kind]) == 0
        assert capsys.readouterr().out


def test_spans_without_a_unit_are_written_out() -> None:
    t = np.array([1_700_000_000, 1_700_000_010, 1_709_993_389])
    facts = summarize(EventStream(src=np.array([0, 1, 0]), dst=np.array([2, 3, 3]), t=t, num_nodes=4)).facts
    assert facts["time span"] == "9,993,389"
    assert "--read.time_unit" in facts["time"]
    short = EventStream(src=np.array([0, 1]), dst=np.array([2, 3]), t=np.array([0.0, 1e-3]), num_nodes=4)
    facts = summarize(short).facts
    assert facts["time span"] == "0.001"


EDGES = pd.DataFrame({"source": [0, 1, 2, 3], "target": [1, 2, 3, 0]})


def features() -> pd.DataFrame:
    table = pd.DataFrame({"id": range(4), "price": [1.0, None, 3.0, 5.0], "venue": ["KDD", "KDD", None, "ICML"]})
    return table.assign(when=["2020-01-01", "2021-05-05", "2020-07-07", "2020-02-02"])


def test_columns_are_listed_by_kind_and_scale():
    card = summarize(hopstate.read_graph(EDGES, features=features(), missing="auto"))
    columns = card.facts["columns of nodes"].split("; ")
    assert columns[0] == "price number, 1 to 5, mean 3, sd 1.633"
    assert columns[1].startswith("venue category of 3 (KDD: 2, ")
    assert columns[2] == "when date, 2020-01-01 to 2021-05-05"
    assert card.facts["missing values"] == "price: 1"
    assert not [doubt for doubt in card.suspicious if "never change" in doubt]


def labels_of(y: np.ndarray, names: tuple[str, ...] | None = None) -> tuple[dict[str, Any], list[str]]:
    """Return the facts and warnings about labels of events."""
    places = np.arange(len(y))
    data = EventStream(src=places, dst=places + len(y), t=places, labels=y, class_names=names)
    found = summarize(data)
    facts = {name: value for name, value in found.facts.items() if name in ("labels", "classes", "targets")}
    return facts, [doubt for doubt in found.suspicious if "label" in doubt]


def test_labels_are_listed_as_classes_or_regression_values():
    facts, _ = labels_of(np.array([1, 0, 1, -1]), ("ok", "fraud"))
    assert facts == {"labels": "3 of 4 events (75%) have one", "classes": "ok: 1, fraud: 2"}
    facts, _ = labels_of(np.array([0.0, np.nan, 2.0]))
    assert facts == {"labels": "2 of 3 events (67%) have one", "classes": "0: 1, 2: 1"}
    facts, _ = labels_of(np.array([0.5, np.nan, 2.5, 3.0]))
    assert facts["labels"] == "3 of 4 events (75%) have one"
    assert facts["targets"] == "value: 0.5 to 3, mean 2, sd 1.08 (3 known)"
    several = np.array([[1, np.nan], [0, np.nan], [np.nan, np.nan]], np.float32)
    facts, _ = labels_of(several, ("spam", "bot"))
    assert facts["targets"] == "spam: 0 to 1, mean 0.5, sd 0.5 (2 known); bot: none known"
    assert class_counts(np.array([0.5, -1.0, 0.5]), None) is None  # -1 is a regression value among fractions
    assert class_counts(np.arange(20.0), None) is None
    counts = class_counts(np.array([0, 0, 2]), ("a", "b", "c"))
    assert counts is not None
    assert counts.to_dict() == {"a": 2, "b": 0, "c": 1}


@pytest.mark.parametrize(
    ("y", "names", "named"),
    [
        (np.full(4, -1), None, ["no event"]),
        (np.full(4, np.nan), None, ["no event"]),
        (np.array([1, 1, -1, 1]), ("ok", "fraud"), ["fraud"]),
        (np.array([1, 0, -1, 1]), None, []),
        (np.array([0.5, -1.0, 0.5]), None, []),
        (np.repeat([0, 1], [999, 1]), ("ok", "fraud"), ["fraud"]),
        (np.array([[1, 0, np.nan], [1, 1, np.nan]]), ("a", "b", "c"), ["'a'", "'c'"]),
    ],
)
def test_labels_without_information_are_suspicious(
    y: np.ndarray, names: tuple[str, ...] | None, named: list[str]
) -> None:
    doubts = labels_of(y, names)[1]
    assert len(doubts) == len(named)
    assert all(name in doubt for name, doubt in zip(named, doubts, strict=True))


def test_inspect_reads_what_fit_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    EDGES.to_csv("edges.csv", index=False)
    features().to_csv("features.csv", index=False)
    pd.DataFrame({"id": [0, 1], "spam": [0, 1], "bot": [1, None]}).to_csv("labels.csv", index=False)
    tables = ["--read.features", "features.csv", "--read.labels", "labels.csv", "--read.label_column", "spam,bot"]
    assert main(["inspect", "edges.csv", *tables, "--read.columns", "[price=category]"]) == 0
    output = capsys.readouterr().out
    assert "price category of 4" in output
    assert "2 of 4 nodes (50%) have one" in output
    pd.DataFrame({"src": [0, 1], "dst": [1, 2], "t": [0, 1], "feat_0": [1.0, None]}).to_csv("events.csv", index=False)
    assert main(["inspect", "events.csv"]) == 0
    assert "feat_0 number" in capsys.readouterr().out
