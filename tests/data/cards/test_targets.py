"""Cards of tables: columns by kind and scale, how far labels reach; read as `fit` reads."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.cli.main import main
from hopstate.data import column_facts
from hopstate.data.cards.card import inspect_graph
from hopstate.data.cards.targets import event_label_facts, label_doubts, label_facts

EDGES = pd.DataFrame({"source": [0, 1, 2, 3], "target": [1, 2, 3, 0]})


def features() -> pd.DataFrame:
    table = pd.DataFrame({"id": range(4), "price": [1.0, None, 3.0, 5.0], "venue": ["KDD", "KDD", None, "ICML"]})
    return table.assign(when=["2020-01-01", "2021-05-05", "2020-07-07", "2020-02-02"])


def test_columns_are_told_by_kind_and_scale():
    card = inspect_graph(hopstate.read_graph(EDGES, features=features(), missing="auto"))
    told = card.facts["columns of nodes"].split("; ")
    assert told[0] == "price number, 1 to 5, mean 3, sd 1.633"
    assert told[1].startswith("venue category of 3 (KDD: 2, ")
    assert told[2] == "when date, 2020-01-01 to 2021-05-05"
    assert card.facts["missing values"] == "price: 1"
    assert not [doubt for doubt in card.suspicious if "never change" in doubt]


def test_labels_are_told_by_how_far_they_reach():
    assert label_facts(np.array([0, 1, -1, -1]), None) == {"labels": "2 of 4 nodes (50%) have one"}
    amounts = label_facts(np.array([1, 3, np.nan, 5], np.float32), None)
    assert amounts["targets"] == "value: 1 to 5, median 3, mean 3, sd 1.633 (3 known)"
    several = label_facts(np.array([[1, np.nan], [0, np.nan], [np.nan, np.nan]], np.float32), ("spam", "bot"))
    assert several == {"labels": "2 of 3 nodes (67%) have one", "targets": "spam: 50% of 2 are 1; bot: none known"}


@pytest.mark.parametrize("kind", ["classes", "many classes", "floats", "amounts", "several", "one", "none"])
def test_labels_are_told_alike_in_blocks_of_any_size(kind, monkeypatch):
    rng = np.random.default_rng(0)
    labels = {
        "classes": rng.integers(-1, 4, 50),
        "many classes": rng.integers(-1, 40, 50),
        "floats": np.where(rng.random(50) < 0.2, np.nan, rng.integers(-1, 3, 50)),
        "amounts": np.where(rng.random(50) < 0.2, np.nan, rng.normal(size=50)),
        "several": np.where(rng.random((50, 3)) < 0.2, np.nan, rng.normal(size=(50, 3))).astype(np.float32),
        "one": np.where(rng.random(50) < 0.2, np.nan, 1.0),
        "none": np.full(50, np.nan),
    }[kind]
    whole = event_label_facts(labels, None), list(label_doubts(labels, None, "event"))
    monkeypatch.setattr(column_facts, "BLOCK", 3)
    assert (event_label_facts(labels, None), list(label_doubts(labels, None, "event"))) == whole


def test_labels_of_events_are_told_as_classes_or_amounts():
    assert event_label_facts(None, None) == {}
    assert event_label_facts(np.array([1, 0, 1, -1]), ("ok", "fraud")) == {"labels": "ok: 1, fraud: 2, unknown: 1"}
    assert event_label_facts(np.array([0.0, np.nan, 2.0]), None) == {"labels": "0: 1, 2: 1, unknown: 1"}
    assert event_label_facts(np.arange(20), None) == {"labels": "20 values: 20"}
    amounts = event_label_facts(np.array([0.5, np.nan, 2.5, 3.0]), None)
    assert amounts == {
        "labels": "3 of 4 events (75%) have one",
        "targets": "value: 0.5 to 3, median 2.5, mean 2, sd 1.08 (3 known)",
    }


@pytest.mark.parametrize(
    ("y", "names", "said"),
    [
        (np.full(4, -1), None, ["no event has a label: there is nothing to learn"]),
        (np.full(4, np.nan), None, ["no event has a label: there is nothing to learn"]),
        (np.array([1, 1, -1, 1]), ("ok", "fraud"), ["every label is fraud: there is nothing to learn"]),
        (np.array([1, 0, -1, 1]), None, []),
        (np.array([0.5, -1.0, 0.5]), None, []),  # -1 is an amount among fractions
        (
            np.array([[1, 0, np.nan], [1, 1, np.nan]]),
            ("a", "b", "c"),
            ["label 'a' is 1 in every event that has one", "label 'c' is known of no event"],
        ),
    ],
)
def test_labels_that_say_nothing_stand_out(y: np.ndarray, names: tuple[str, ...] | None, said: list[str]) -> None:
    found = list(label_doubts(y, names, "event"))
    assert [one.removesuffix(": there is nothing to learn in it") for one in found] == said


def test_inspect_reads_what_fit_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    EDGES.to_csv("edges.csv", index=False)
    features().to_csv("features.csv", index=False)
    pd.DataFrame({"id": [0, 1], "spam": [0, 1], "bot": [1, None]}).to_csv("labels.csv", index=False)
    tables = ["--read.features", "features.csv", "--read.labels", "labels.csv", "--read.label_column", "spam,bot"]
    assert main(["inspect", "edges.csv", *tables, "--read.columns", "[price=category]"]) == 0
    told = capsys.readouterr().out
    assert "price category of 4" in told
    assert "2 of 4 nodes (50%) have one" in told
    pd.DataFrame({"src": [0, 1], "dst": [1, 2], "t": [0, 1], "feat_0": [1.0, None]}).to_csv("events.csv", index=False)
    assert main(["inspect", "events.csv"]) == 0
    assert "feat_0 number" in capsys.readouterr().out
