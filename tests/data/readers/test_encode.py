"""Feature columns, inferred or given: numbers, dates, texts as categories; errors name the row."""

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.data.readers.encode import MAX_CATEGORIES
from hopstate.data.readers.local import date_forms
from hopstate.errors import ConfigError, DataError, HopstateWarning

N = 40


def graph_tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    edges = pd.DataFrame({"source": np.arange(N), "target": np.roll(np.arange(N), 1)})
    venue = np.array(["ICML", "KDD", "VLDB"])[rng.integers(0, 3, N)]
    features = pd.DataFrame({"id": np.arange(N), "cites": rng.integers(0, 9, N), "venue": venue})
    features["when"] = (pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N), unit="D")).strftime("%Y-%m-%d")
    return edges, features


def test_texts_are_categories_and_dates_are_numbers():
    edges, features = graph_tables()
    graph = hopstate.read_graph(edges, features=features)
    venues = [f"category venue={name}" for name in ("ICML", "KDD", "VLDB")]
    assert graph.table.columns == ("cites", *venues, "other venue", "date when")
    one = np.stack([features["venue"] == name for name in ("ICML", "KDD", "VLDB", "")], 1)
    assert np.array_equal(graph.table.values[:, 1:5], one)
    assert np.array_equal(np.diff(graph.table.values[:, 5]), np.full(N - 1, 86400.0))
    assert any("venue" in note and "3" in note for note in graph.notes)
    assert any("when" in note for note in graph.notes)


@pytest.mark.parametrize(
    ("texts", "forms"),
    [
        (["1 Mar 2024", "12 Dec 2023"], ("%d %b %Y",)),
        (["Mar 1, 2024", "Dec 12, 2023"], ("%b %d, %Y",)),
        (["31.12.2026 14:05", "1.2.2026 0:00"], ("%d.%m.%Y %H:%M",)),
        (["2/31/26, 10:05 PM", "2/13/26, 1:05 AM"], ("%m/%d/%y, %I:%M %p",)),
        (["1/2/26", "3/4/26"], ("%d/%m/%y", "%m/%d/%y")),
        (["2024/03/01", ""], ("%Y/%m/%d",)),
        (["1.2.3", "10.0.0.1"], ()),
        (["2024-03-01"], ()),
        (["a", "b", "1/2/2026"], ()),
        ([], ()),
    ],
)
def test_date_formats(texts: list[str], forms: tuple[str, ...]) -> None:
    assert date_forms(pd.Series(texts, dtype=str)) == forms


def test_the_order_of_rows_does_not_matter():
    edges, features = graph_tables()
    one = hopstate.read_graph(edges, features=features, num_nodes=N)
    two = hopstate.read_graph(edges, features=features.sample(frac=1, random_state=1), num_nodes=N)
    assert np.array_equal(one.table.values, two.table.values)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([*map(str, range(N - 1)), "x"], "venue.*row 39"),
        (
            [*["2020-01-05"] * (N - 1), "05/01/2020"],
            "05/01/2020.*row 39",
        ),
        (
            ["2020-01-01", *["2020-13-45"] * (N - 1)],
            "2020-13-45.*row 1",
        ),
        ([*range(N - 1), np.inf], "venue.*row 39"),
    ],
)
def test_a_bad_number_or_date_is_rejected_with_its_row(column, words):
    edges, features = graph_tables()
    with pytest.raises(DataError, match=words or None):
        hopstate.read_graph(edges, features=features.assign(venue=column), missing="auto")


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (
            [f"title {i}" for i in range(N)],
            "venue",
        ),
        ([f"{i % 28 + 1}/1/{2000 + i}" for i in range(N)], "venue"),
        ([None] * N, "venue"),
    ],
)
def test_uninformative_columns_have_a_note(column, words):
    edges, features = graph_tables()
    graph = hopstate.read_graph(edges, features=features.assign(venue=column), missing="auto")
    assert graph.num_nodes == N
    assert len([note for note in graph.notes if pd.Series([note]).str.contains(words).all()]) == 1


def test_column_kinds_can_be_given():
    edges, features = graph_tables()
    specs = ["cites=category", "when=date:%Y-%m-%d", "venue=drop"]
    graph = hopstate.read_graph(edges, features=features, columns=specs)
    kinds = [f"category cites={value}" for value in sorted(set(features["cites"]))]
    assert graph.table.columns == (*kinds, "other cites", "date when")
    mixed = features.assign(venue=[*range(N - 1), "x"])
    assert "category venue=x" in hopstate.read_graph(edges, features=mixed, columns=["venue=category"]).table.columns
    with pytest.raises(DataError, match="39"):
        hopstate.read_graph(edges, features=mixed, columns=["venue=number"])
    days = features.assign(when=[f"{i % 28 + 1}/02/2020" for i in range(N)])
    read = hopstate.read_graph(edges, features=days, columns=["when=date:%d/%m/%Y"]).table
    assert read.values[1, -1] - read.values[0, -1] == 86400
    gaps = features.assign(cites=features["cites"].astype(float).where(features.index > 3))  # 1, not 1.0
    assert "category cites=8" in hopstate.read_graph(edges, features=gaps, columns=["cites=category"]).table.columns


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("venue", ConfigError, ""),
        ("venue=categry", ConfigError, "categry"),
        ("venue=number:%d", ConfigError, ""),
        ("venu=category", DataError, "venu"),
    ],
)
def test_given_column_kinds_are_checked(spec, error, words):
    edges, features = graph_tables()
    with pytest.raises(error, match=words or None):
        hopstate.read_graph(edges, features=features, columns=[spec])
    events = pd.DataFrame({"src": [0, 1], "dst": [2, 3], "t": [0, 1], "venue": ["a", "b"]})
    with pytest.raises(error, match=words or None):
        hopstate.read_events(events, columns=[spec])


def test_many_categories_are_bounded_with_a_note():
    count = 20_000
    rng = np.random.default_rng(0)
    features = pd.DataFrame({"id": np.arange(count), "word": [f"w{i}" for i in rng.integers(0, 8_000, count)]})
    edges = pd.DataFrame({"source": [0, 1], "target": [1, 2]})
    graph = hopstate.read_graph(edges, features=features)
    assert graph.num_features == MAX_CATEGORIES + 1
    assert (graph.table.values.sum(1) == 1).all()
    assert any("rarer ones" in note for note in graph.notes)


def test_texts_and_dates_of_events_are_read_if_named():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"src": rng.integers(0, 6, 50), "dst": rng.integers(6, 12, 50), "t": np.arange(50)})
    table["how"] = np.array(["mail", "call"])[rng.integers(0, 2, 50)]
    table["paid"] = "2020-01-01"
    plain = hopstate.read_events(table)
    assert plain.edge_attr is None
    assert any("how" in note and "paid" in note for note in plain.notes)
    expected = ("category how=call", "category how=mail", "other how")
    assert hopstate.read_events(table, edge_columns=["how"]).edge_table.columns == expected
    assert hopstate.read_events(table, columns=["how=category"]).edge_table.columns == expected
    both = hopstate.read_events(table, edge_columns=["paid", "how"]).edge_table
    assert both.columns == ("date paid", *expected)
    gaps = table.assign(paid=[None, *["2020-01-01"] * 49])
    with pytest.raises(DataError, match="date paid"):
        hopstate.read_events(gaps, edge_columns=["paid"])
    assert np.isnan(hopstate.read_events(gaps, edge_columns=["paid"], missing="auto").edge_table.values[0, 0])


def test_texts_of_edges_are_read_if_named():
    edges, _ = graph_tables()
    table = edges.assign(kind=["cites", "extends"] * (N // 2))
    with pytest.warns(HopstateWarning, match="kind"):
        assert hopstate.read_graph(table).edge_table is None
    graph = hopstate.read_graph(table, edge_columns=["kind"], undirected=False)
    assert graph.edge_table.columns == ("category kind=cites", "category kind=extends", "other kind")
