"""The lines about targets on the page of a run."""

from hopstate.runs.card import target_lines


def test_the_page_of_a_run_shows_amounts_and_classes():
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
