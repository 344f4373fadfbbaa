"""Text columns: only training rows define the categories, and rows are encoded independently."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.data.graph import Graph
from hopstate.data.preprocessing import MAX_CATEGORIES
from hopstate.data.readers.encode import column_specs_of_run, encode_features, parse_column_specs
from hopstate.data.readers.tables import Table
from hopstate.data.store import load_events
from hopstate.errors import DataError, HopstateWarning

TRAIN = ["known"] * 10 + [f"v{i:03d}" for i in range(300) for _ in range(2)] + ["", ""]


def table(specs=None, **columns):
    frame = pd.DataFrame(columns)
    return encode_features(Table(frame, Path("x.csv"), 2), list(frame), "features", "auto", specs or {})[0]


def run_columns(made, rows=None):
    return made.columns_of(np.arange(len(made)) if rows is None else rows)


def quiet(made, columns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made.align_to(columns, "later")


def test_the_encoding_of_a_row_does_not_depend_on_other_rows():
    columns = run_columns(table(venue=TRAIN, price=np.arange(len(TRAIN)) / 4))
    specs = parse_column_specs(column_specs_of_run(columns))
    new = [f"w{i:03d}" for i in range(300) for _ in range(3)]
    mixed = ["known", "v004", "", "w001", *new]
    price = np.arange(len(mixed)) / 2
    among = quiet(table(specs, venue=mixed, price=price), columns)
    order = np.random.default_rng(0).permutation(len(mixed))
    turned = quiet(table(specs, price=price[order], venue=[mixed[i] for i in order]), columns)
    np.testing.assert_allclose(turned, among[order], rtol=1e-5, atol=1e-6)
    for row, name in enumerate(("category venue=known", "category venue=v004", "category venue=", "other venue")):
        single = quiet(table(specs, venue=[mixed[row]], price=price[[row]]), columns)
        np.testing.assert_allclose(single[0], among[row], rtol=1e-5, atol=1e-6)
        assert single[0, columns.index(name)] == 1
    cut = np.concatenate(
        [quiet(table(specs, venue=mixed[a:b], price=price[a:b]), columns) for a, b in ((0, 3), (3, 904))]
    )
    np.testing.assert_allclose(cut, among, rtol=1e-5, atol=1e-6)


def test_a_column_of_unknown_texts_has_a_warning():
    columns = run_columns(table(venue=["KDD", "ICML"] * 10))
    later = table(parse_column_specs(column_specs_of_run(columns)), venue=["kdd", "icml"])
    with pytest.warns(HopstateWarning, match="venue"):
        later.align_to(columns, "later")


# ---- held-out rows -----------------------------------------------------------------------------------------
TAILS = [
    ["KDD"] * 60,
    [f"u{i}" for i in range(60)],  # few texts repeat over all rows
    [f"w{i % 20}" for i in range(60)],
    [""] * 60,
    [f"v{i:03d}" for i in range(60)],
]


@pytest.mark.parametrize(
    "head", [["KDD", "ICML"] * 20, [f"t{i}" for i in range(40)], [f"v{i:03d}" for i in range(300)] * 2]
)
def test_held_out_rows_define_no_category(head):
    rows, found = np.arange(len(head)), []
    for tail in TAILS:
        made = table(venue=head + tail, price=np.arange(len(head) + 60.0))
        columns = run_columns(made, rows)
        found.append((columns, quiet(made, columns)[rows].tobytes()))
    assert len(set(found)) == 1
    count = sum(name.startswith("category ") for name in found[0][0])
    assert count == {40: 2 if head[0] == "KDD" else 0, 600: MAX_CATEGORIES}[len(head)]


def test_a_column_without_repeats_in_training_is_dropped():
    made = table(a=[1.0] * 40, venue=["x", "y"] * 20, title=[f"t{i}" for i in range(40)], b=[2.0] * 40)
    assert run_columns(made) == ("a", "category venue=x", "category venue=y", "other venue", "b")
    assert run_columns(made, np.arange(4))[-3:] == ("other venue", "other title", "b")  # too few rows to decide


# ---- kept -------------------------------------------------------------------------------------------------
def test_codes_follow_their_rows_and_survive_saving(tmp_path):
    made = table(venue=TRAIN, price=np.arange(len(TRAIN)) / 4)
    rows = np.random.default_rng(0).permutation(len(TRAIN))[:50]
    columns = run_columns(made)
    np.testing.assert_array_equal(quiet(made.take(rows), columns), quiet(made, columns)[rows])
    features = pd.DataFrame(
        {"id": np.arange(len(TRAIN)), "venue": TRAIN, "title": [f"t{i}" for i in range(len(TRAIN))]}
    )
    edges = pd.DataFrame({"source": [0, 1], "target": [1, 2], "how": ["mail", "call"]})
    graph = hopstate.read_graph(edges, features=features, edge_columns=["how"])
    graph.save(str(tmp_path / "graph"))
    loaded = Graph.load(str(tmp_path / "graph"))
    assert run_columns(loaded.table) == run_columns(graph.table)
    assert run_columns(loaded.edge_table) == run_columns(graph.edge_table)
    assert loaded.content_hash == graph.content_hash
    other = features.assign(venue=features["venue"].replace("v299", "v2xx"))  # beyond the most frequent ones
    assert hopstate.read_graph(edges, features=other, edge_columns=["how"]).content_hash != graph.content_hash
    events = hopstate.read_events(
        pd.DataFrame({"src": [0, 1], "dst": [2, 3], "t": [0, 1], "how": ["a", "b"]}), columns=["how=category"]
    )
    events.save(tmp_path / "events")
    again = load_events(tmp_path / "events")
    assert [text.words for text in again.edge_table.texts] == [("a", "b")]
    assert again.content_hash == events.content_hash


def test_damaged_text_columns_are_rejected(tmp_path):
    graph = hopstate.read_graph(
        pd.DataFrame({"source": [0], "target": [1]}), features=pd.DataFrame({"id": [0, 1], "venue": ["a", "b"]})
    )
    graph.save(str(tmp_path / "graph"))
    np.save(tmp_path / "graph" / "table_texts.npy", np.array([[0], [7]], np.int32))
    with pytest.raises(DataError, match="venue"):
        Graph.load(str(tmp_path / "graph"))
