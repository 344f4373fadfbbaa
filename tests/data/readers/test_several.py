"""Several targets of a node: labels in one cell, columns of 0 and 1, regression columns; missing values."""

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.errors import DataError

EDGES = pd.DataFrame({"source": [0, 1, 2, 3], "target": [1, 2, 3, 0]})


def labelled(**columns):
    return pd.DataFrame({"id": [2, 0, 1, 3], **columns})


def test_each_label_of_a_cell_is_a_separate_target():
    labels = labelled(topic=["b; a", "a", None, "c;b"])
    graph = hopstate.read_graph(EDGES, labels=labels, multilabel="all")
    assert graph.class_names == ("a", "b", "c")
    unknown = [np.nan] * 3
    np.testing.assert_array_equal(graph.y, np.array([[1, 0, 0], unknown, [1, 1, 0], [0, 1, 1]], np.float32))
    assert any("3" in note and "1" in note for note in graph.notes)
    with pytest.raises(DataError, match="multilabel"):
        hopstate.read_graph(EDGES, labels=labels)


def test_several_columns_are_several_targets():
    labels = labelled(spam=[1, 0, None, 1], bot=[True, False, True, True], fame=[0.5, 2, None, 3])
    graph = hopstate.read_graph(EDGES, labels=labels, label_column="spam,bot")
    np.testing.assert_array_equal(graph.y, np.array([[0, 0], [np.nan, 1], [1, 1], [1, 1]], np.float32))
    assert graph.class_names == ("spam", "bot")
    amounts = hopstate.read_graph(EDGES, labels=labels, label_column="spam, fame")
    assert amounts.y[0].tolist() == [0, 2]
    assert any("spam" in note and "fame" in note for note in amounts.notes)


@pytest.mark.parametrize(
    ("columns", "chosen", "words"),
    [
        ({"a": [1, 0, 1, 0], "b": [1, 0, 1, 0]}, "a,c", "'c'"),
        ({"a": [1, 0, 1, 0], "b": ["x", "1", "0", "1"]}, "a,b", "b.*row 0"),
        ({"a": [1, 0, 1, np.inf], "b": [1, 0, 1, 0]}, "a,b", "a.*row 3"),
        ({"a": [None] * 4, "b": [None] * 4}, "a,b", ""),
    ],
)
def test_columns_that_are_not_targets_are_named(columns, chosen, words):
    with pytest.raises(DataError, match=words or None):
        hopstate.read_graph(EDGES, labels=labelled(**columns), label_column=chosen)
