"""Labels of other files are matched with the classes and targets of a run by name, in any order and number."""

import warnings

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.errors import DataError, HopstateWarning
from hopstate.methods.shared.label_alignment import align_targets
from hopstate.training.tasks.target import Target

NAN = np.nan
ABC = Target(goal="labels", names=("a", "b", "c"), metrics=("micro_f1",))
VENUES = Target(goal="classes", names=("KDD", "WWW"), metrics=("accuracy",))


def rows(values):
    return np.array(values, np.float32)


def align(y, names, target=ABC, *, listed=False):
    return align_targets(y, names, target, len(y), "later", absent_is_zero=listed)


def test_targets_are_matched_by_name_in_any_order():
    y = rows([[1, 0, NAN], [0, 1, 1]])
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        names = tuple("abc"[i] for i in order)
        np.testing.assert_array_equal(align(y[:, list(order)], names), y)


@pytest.mark.parametrize(
    "names", [("x", "y", "z"), ("A", "B", "C"), ("a|b", "c|a", "b|c"), ("x",), ("w", "x", "y", "z")]
)
def test_disjoint_names_are_rejected_with_both_lists(names):
    y = np.ones((4, len(names)), np.float32)
    with pytest.raises(DataError, match="later") as caught:
        align(y, names)
    assert all(repr(name) in str(caught.value) for name in names)


def test_generic_names_are_matched_by_position():
    y = rows([[1, 0, 1]])
    for names in (None, ("value_0", "value_1", "value_2")):
        np.testing.assert_array_equal(align(y, names), y)
    plain = Target(goal="labels", names=("value_0", "value_1", "value_2"), metrics=("micro_f1",))
    np.testing.assert_array_equal(align(y, ("z", "y", "x"), plain), y)
    with pytest.raises(DataError, match="later"):
        align(y[:, :1], None)


@pytest.mark.parametrize("goal", ["labels", "values"])
def test_an_absent_target_is_unknown_with_a_warning(goal):
    target = Target(goal=goal, names=("a", "b", "c"), metrics=("micro_f1" if goal == "labels" else "mae",))
    with pytest.warns(HopstateWarning, match="'b'"):
        found = align(rows([[1, 0], [NAN, 1]]), ("c", "a"), target)
    np.testing.assert_array_equal(found, rows([[0, NAN, 1], [1, NAN, NAN]]))


def test_a_label_absent_from_every_cell_is_zero():
    y = rows([[1, 0], [NAN, NAN], [0, 1]])
    with pytest.warns(HopstateWarning, match="'b'"):
        found = align(y, ("c", "a"), listed=True)
    np.testing.assert_array_equal(found, rows([[0, 0, 1], [NAN, NAN, NAN], [1, 0, 0]]))


def test_new_labels_have_a_warning_with_name_and_count():
    y = rows([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]])
    with pytest.warns(HopstateWarning, match="'d'"):
        found = align(y, ("a", "b", "c", "d"), listed=True)
    np.testing.assert_array_equal(found, y[:, :3])


def test_a_complete_file_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        align(rows([[1, 0, 1]]), ("c", "b", "a"), listed=True)
        align(np.array([1, -1, 0]), ("WWW", "KDD"), VENUES)


def test_new_classes_count_as_errors_with_a_warning():
    with pytest.warns(HopstateWarning, match="ICML"):
        found = align(np.array([0, 1, 2, 1, -1]), ("WWW", "ICML", "KDD"), VENUES)
    np.testing.assert_array_equal(found, [1, 2, 0, 2, -1])


@pytest.mark.parametrize("names", [("ICML", "VLDB"), None])
def test_entirely_new_classes_are_rejected_with_both_lists(names):
    with pytest.raises(DataError, match=r"KDD.*WWW") as caught:
        align(np.array([0, 1, 1, -1]), names, VENUES)
    assert "'ICML'" in str(caught.value) if names else "'0'" in str(caught.value)


def test_rows_without_any_class_are_accepted():
    np.testing.assert_array_equal(align(np.array([-1, -1]), ("ICML",), VENUES), [-1, -1])


def test_regression_values_are_not_labels_of_0_and_1():
    with pytest.raises(DataError, match="5"):
        align(rows([[1, 0, 5]]), ("a", "b", "c"))


# ---- from files --------------------------------------------------------------------------------------------
TOPICS = ["a", "b", "c", "a;b", "b;c", "a;c"]


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Return a run on multilabel cells, its edges, features and labels."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, len(TOPICS), 60)
    edges = pd.DataFrame(rng.integers(0, 60, (120, 2)), columns=["source", "target"])
    features = pd.DataFrame({"id": np.arange(60), "one": kind == 0, "two": kind + rng.normal(size=60)})
    labels = pd.DataFrame({"id": np.arange(60), "topic": [TOPICS[k] for k in kind]})
    run = hopstate.fit(
        "mlp", edges, features=features, labels=labels, read={"multilabel": "all"},
        out=tmp_path_factory.mktemp("several") / "run", loop={"epochs": 2, "progress": False},
    )  # fmt: skip
    return run, edges, features, labels


def predict_labels(several, labels):
    run, edges, features, _ = several
    return run.predict(edges, read={"features": features, "labels": labels}).filter(like="label_")


def test_the_label_separator_does_not_matter(several):
    labels = several[3]
    own = predict_labels(several, labels)
    other = predict_labels(several, labels.assign(topic=labels["topic"].str.replace(";", "|")))
    pd.testing.assert_frame_equal(own, other)
    with pytest.raises(DataError, match="'a', 'b', 'c'"):
        predict_labels(several, labels.assign(topic=labels["topic"].str.replace(";", "~").map("{}~z".format)))


def test_a_later_file_may_have_fewer_or_more_labels(several):
    labels = several[3]
    fewer = labels[~labels["topic"].str.contains("c")]
    with pytest.warns(HopstateWarning, match="'c'"):
        found = predict_labels(several, fewer)
    own = predict_labels(several, labels)
    at = fewer.index
    np.testing.assert_array_equal(found.loc[at], own.loc[at])
    assert found.drop(at).isna().all(axis=None)
    with pytest.warns(HopstateWarning, match="'new'"):
        more = predict_labels(several, labels.assign(topic=labels["topic"] + ";new"))
    pd.testing.assert_frame_equal(more, own)
