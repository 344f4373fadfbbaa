"""The lines about targets in a run card."""

import json
from pathlib import Path

from hopstate.runs.card import run_card, target_lines
from made_events import small_run


def test_the_run_card_shows_regression_targets_and_classes():
    known = {"target": {"goal": "values", "names": ["value"], "center": [50.25], "scale": [8.0]}}
    (line,) = target_lines(known, {"read": {"label_column": "price"}})
    assert all(part in line for part in ("price", "50.25", "8"))
    many = {"target": {"goal": "values", "names": ["a", "b"], "center": [1.5, 2.5], "scale": [3.0, 4.0]}}
    (line,) = target_lines(many, {"read": {}})
    assert line.index("1.5") < line.index("b (") < line.index("2.5")
    labels = {"target": {"goal": "labels", "names": ["spam", "bot"]}}
    assert "spam, bot" in target_lines(labels, {})[0]
    assert "x, y" in target_lines({"class_names": ["x", "y"]}, {})[0]
    assert target_lines({"class_names": ["x", "y"]}, {"task": "link"}) == []


def test_the_run_card_shows_the_test_metric_of_each_baseline(tmp_path: Path) -> None:
    run = small_run("recency", tmp_path)
    found = {"edgebank": {"average_precision": 0.6}, "chance": {"val_average_precision": 0.5}}
    (run.path / "baselines.json").write_text(json.dumps(found))
    (line,) = [line for line in run_card(run.path).splitlines() if line.startswith("baselines")]
    assert "60.00" in line
    assert "50.00" not in line
