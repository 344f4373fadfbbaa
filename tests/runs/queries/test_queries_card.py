"""The page that tells what a run is."""

from hopstate.runs.queries.card import target_lines


def test_the_page_of_a_run_tells_amounts_from_classes():
    known = {"target": {"goal": "values", "names": ["value"], "center": [50.25], "scale": [8.0]}}
    (line,) = target_lines(known, {"read": {"label_column": "price"}})
    assert line.startswith("target  amounts: price (mean 50.25, deviation 8 of the training rows); ")
    many = {"target": {"goal": "values", "names": ["a", "b"], "center": [1.0, 2.0], "scale": [3.0, 4.0]}}
    assert "a (mean 1, deviation 3 of the training rows), b (mean 2" in target_lines(many, {"read": {}})[0]
    labels = {"target": {"goal": "labels", "names": ["spam", "bot"]}}
    assert target_lines(labels, {}) == ["labels  spam, bot: a probability each, as a row may have several or none"]
    assert target_lines({"class_names": ["x", "y"]}, {}) == ["classes x, y"]  # as 0.1.0 kept them
    assert target_lines({"class_names": ["x", "y"]}, {"task": "link"}) == []
