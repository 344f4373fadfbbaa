"""Tables in memory, read as their CSV files are: the same records, and what no file could hold refused by name."""

import warnings

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.errors import HopstateError
from made_tables import tables


def hostile() -> dict[str, tuple[pd.DataFrame, str]]:
    edges = tables()[0]
    return {
        "two of one name": (edges.set_axis(["source", "source"], axis=1), "source"),
        "levels of names": (pd.concat({"a": edges}, axis=1), ""),
        "levels of the index": (edges.set_index([edges.index, edges.index]), ""),
        "texts as a nameless index": (edges.set_axis([f"r{i}" for i in range(120)]), ""),
        "lists": (edges.assign(source=[[1, 2]] * 120), "row 0"),
        "bytes": (edges.assign(source=[b"a"] * 120), "row 0"),
        "": (pd.DataFrame(index=range(3)), ""),
        "missing ids": (
            edges.assign(source=edges["source"].where(edges.index != 3)),
            "source.*row 3",
        ),
        "complex": (edges.assign(w=1j), "complex"),
    }


@pytest.mark.parametrize("case", hostile())
def test_tables_that_no_file_could_be_are_refused_by_name(case):
    table, words = hostile()[case]
    with pytest.raises(HopstateError, match=words or None) as told:
        hopstate.read_graph(table)
    assert "/hopstate-" not in str(told.value)  # no name of a temporary file


def test_odd_indices_and_dtypes_are_read_as_their_file_is(tmp_path):
    edges, features, labels = tables()
    odd = edges.set_axis([5] * len(edges))  # an index that is not unique says nothing
    odd["source"] = odd["source"].astype("category")
    odd["weight"] = pd.array([1, None] * 60, "Int64")
    odd.to_csv(tmp_path / "e.csv", index=False)
    options = {"features": features, "labels": labels.convert_dtypes(), "missing": "mean"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = hopstate.read_graph(odd, **options), hopstate.read_graph(tmp_path / "e.csv", **options)
    assert one.content_hash == two.content_hash
    assert one.edge_table.columns == two.edge_table.columns == ("weight",)
    numbers = pd.DataFrame(np.random.default_rng(0).integers(0, 9, (30, 2)))  # columns called 0 and 1
    assert hopstate.read_graph(numbers).num_nodes == 9


def test_one_table_holds_features_and_labels():
    edges, features, labels = tables()
    both = features.merge(labels, on="id")
    graph = hopstate.read_graph(edges, features=both, labels=both)
    assert graph.num_features == 2
    assert graph.class_names == ("down", "up")
