"""Labels are never guessed: several columns, several per cell, regression targets and -1 need a choice."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hopstate.data.labels import LabelOptions, looks_like_regression, read_labels
from hopstate.data.readers.read_graph import read_graph
from hopstate.errors import ConfigError, DataError


def graph(tmp_path: Path, text: str, **options):
    (tmp_path / "e.csv").write_text("source,target\n0,1\n1,2\n")
    (tmp_path / "l.csv").write_text(text)
    return read_graph(tmp_path / "e.csv", labels=tmp_path / "l.csv", **options)


def rows(*values, head: str = "id,label") -> str:
    return "\n".join([head, *(f"{i},{value}" for i, value in enumerate(values))]) + "\n"


@pytest.mark.parametrize(
    ("head", "listed"),
    [
        ("id,topic,venue,year,field,group", "topic, venue, year, field, group"),
        ("id,label_1,label_2,label_3,label_4,label_5", "label_1, label_2, label_3, label_4, label_5"),
        ("id,label,class", "label, class"),
        ("id,label,label_coarse,size", "label, label_coarse"),
    ],
)
def test_several_label_columns_are_listed_and_need_a_choice(tmp_path, head, listed):
    width = head.count(",")
    text = rows(",".join("ababa"[:width]), ",".join("babab"[:width]), ",".join("aabba"[:width]), head=head)
    with pytest.raises(DataError, match=listed):
        graph(tmp_path, text)
    name = listed.split(", ")[1]
    found = graph(tmp_path, text, label_column=name)
    assert found.class_names == ("a", "b")
    assert any(name in note and "2" in note for note in found.notes)


def test_one_column_named_label_is_used_with_a_note(tmp_path):
    found = graph(tmp_path, rows("1,x,3", "2,y,4", "3,x,5", head="id,size,label,weight"))
    assert found.class_names == ("x", "y")
    assert any("label" in note and "x, y" in note for note in found.notes)


def test_a_label_of_minus_one_needs_a_choice(tmp_path):
    text = rows(0, 1, -1)
    with pytest.raises(DataError, match=r"-1.*row 2"):
        graph(tmp_path, text)
    assert graph(tmp_path, text, unlabeled_value="-1").y.tolist() == [0, 1, -1]
    signs = graph(tmp_path, text, unlabeled_value="none")
    assert (signs.y.tolist(), signs.class_names) == ([1, 2, 0], ("-1", "0", "1"))
    assert graph(tmp_path, rows(-1, 1, -1)).class_names == ("-1", "1")  # classes -1 and 1
    assert graph(tmp_path, rows("red", "?", "blue"), unlabeled_value="?").y.tolist() == [1, -1, 0]
    assert graph(tmp_path, rows(0, 1, 9), unlabeled_value="9").y.tolist() == [0, 1, -1]
    with pytest.raises(ConfigError):
        graph(tmp_path, rows(0, 1, 9), unlabeled_value="none of them")


@pytest.mark.parametrize("cut", [";", "|", "; "])
def test_several_labels_in_a_cell_need_a_choice(tmp_path, cut):
    text = rows("cs.CV", f"cs.CV{cut}stat.ML", "stat.ML")
    with pytest.raises(DataError, match=r"cs.CV.*row 1"):
        graph(tmp_path, text)
    assert graph(tmp_path, text, multilabel="first").class_names == ("cs.CV", "stat.ML")
    assert len(graph(tmp_path, text, multilabel="whole").class_names) == 3
    with pytest.raises(DataError):
        graph(tmp_path, rows("a", '"a,b"', "b"))
    assert graph(tmp_path, rows('"Doe, John"', '"Roe, Jane"', '"Doe, John"')).num_classes == 2


def test_rounded_regression_targets_need_a_choice(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "e.csv").write_text("0,1\n")
    for amounts in (rng.normal(0, 15, 400), rng.exponential(8, 400), 20 + 60 * rng.random(400)):
        text = rows(*np.round(amounts).astype(int).tolist())
        with pytest.raises(DataError, match=r"read\.task"):
            graph(tmp_path, text, unlabeled_value="none")
        assert graph(tmp_path, text, task="regression").y.dtype == np.float32
        assert graph(tmp_path, text, task="classification", unlabeled_value="none").num_classes > 10


def test_numbered_classes_are_not_regression_targets():
    rng = np.random.default_rng(0)
    assert not looks_like_regression(rng.integers(0, 40, 2000))
    assert not looks_like_regression(1 + rng.integers(0, 47, 2000))
    assert not looks_like_regression(rng.choice(40, 20000, p=rng.dirichlet(np.ones(40))))
    assert not looks_like_regression(np.array([5, 7, 9] * 5))
    assert not looks_like_regression(rng.choice(rng.choice(10**6, 12), 500))


def test_texts_that_rarely_repeat_need_a_choice_unless_named(tmp_path):
    text = rows(*(f"title {i}" for i in range(30)), head="id,title")
    with pytest.raises(DataError, match="title"):
        graph(tmp_path, text)
    assert graph(tmp_path, text, label_column="title").num_classes == 30


def test_an_array_of_several_labels_is_named(tmp_path):
    (tmp_path / "e.csv").write_text("source,target\n0,1\n1,2\n")
    np.save(tmp_path / "y.npy", np.zeros((3, 2), int))
    with pytest.raises(DataError, match=r"y\.npy"):
        read_graph(tmp_path / "e.csv", labels=tmp_path / "y.npy")
    np.save(tmp_path / "y.npy", np.array([[0], [1], [0]]))
    assert read_graph(tmp_path / "e.csv", labels=tmp_path / "y.npy").y.tolist() == [0, 1, 0]


def test_unknown_label_choices_are_rejected(tmp_path):
    for options in ({"task": "rank"}, {"multilabel": "last"}):
        with pytest.raises(ConfigError):
            graph(tmp_path, rows(0, 1), **options)


@pytest.mark.parametrize("cut", [" ", "/", "+", "&"])
def test_labels_with_an_ambiguous_separator_need_a_choice(cut: str, tmp_path: Path) -> None:
    """Only if each part is a label by itself: "New York" and "A/B testing" are single labels."""
    several = pd.DataFrame({"id": range(9), "label": ["cs.CV", f"cs.CV{cut}stat.ML", "stat.ML"] * 3})
    several.to_csv(tmp_path / "l.csv", index=False)
    with pytest.raises(DataError, match="multilabel"):
        read_labels(tmp_path / "l.csv", LabelOptions())
    assert read_labels(tmp_path / "l.csv", LabelOptions(multilabel="first")).names == ("cs.CV", "stat.ML")
    one = several.replace({"label": {"stat.ML": "other"}})
    one.to_csv(tmp_path / "o.csv", index=False)
    assert len(read_labels(tmp_path / "o.csv", LabelOptions()).names) == 3


def test_rows_marked_as_unlabeled_are_in_no_split(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": range(12), "label": [-1, 0, 1] * 4, "split": (["train"] * 2 + ["val", "test"]) * 3})
    frame.to_csv(tmp_path / "l.csv", index=False)
    found = read_labels(tmp_path / "l.csv", LabelOptions(unlabeled_value="-1"))
    assert (found.splits[found.y < 0] == "").all()
    assert (found.splits[found.y >= 0] != "").all()
    assert any("4" in note for note in found.notes)
