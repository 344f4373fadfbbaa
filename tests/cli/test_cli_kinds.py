"""Links by kind of negatives in `compare` and the report: what is no better than which floor."""

from math import nan
from typing import Any

import pytest

from hopstate.cli.kinds import show_kinds, with_floors
from hopstate.runs.reproduce.tables import below_words


def row(method: str, **kinds: float) -> dict[str, Any]:
    return {"method": method, "kinds": {name: (value, None) for name, value in kinds.items()}}


def test_floors_are_told_of_one_another_asked_for_or_not() -> None:
    rows = [row("graphmixer", random=0.8, many=0.5), row("edgebank", random=0.7, many=0.2)]
    floors = {"recency": {"random": 0.75, "many": 0.6}, "edgebank": {"random": 0.7, "many": 0.2}}
    found = {one["method"]: one for one in with_floors(rows, floors)}
    assert list(found) == ["graphmixer", "edgebank", "recency"]
    assert "recency" in found["graphmixer"]["below"]
    assert "edgebank" not in found["graphmixer"]["below"]
    assert "recency" in found["edgebank"]["below"]
    assert found["recency"]["below"] == ""
    turned = with_floors(rows, {"recency": {"random": 0.1, "many": 0.6}})[-1]
    assert (turned["method"], "edgebank" in turned["below"]) == ("recency", True)


def test_floors_that_were_added_are_labelled_and_those_asked_for_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {"average_precision": 0.8, "new_average_precision": 0.7}
    rows = with_floors([row(name, **kinds) for name in ("graphmixer", "recency", "pair-trees")], {"edgebank": kinds})
    show_kinds(rows, "clubs")
    told = [line.split("│")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert told == ["graphmixer", "recency", "pair-trees", "edgebank (floor)"]


def test_a_table_says_how_many_events_a_kind_is_told_from(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {"average_precision": 0.8, "new_average_precision": 0.7}
    rows = with_floors([row("graphmixer", **kinds), row("dygformer", **kinds)], {"recency": kinds})
    show_kinds(rows, "clubs")
    assert "events" not in capsys.readouterr().out  # tables of earlier versions do not say
    rows[1]["events"] = {"average_precision": 1350, "new_average_precision": 11}
    show_kinds(rows, "clubs")
    told = capsys.readouterr().out
    (line,) = (line for line in told.splitlines() if line.startswith("│ events judged"))
    assert [cell.strip() for cell in line.split("│")[2:4]] == ["1,350", "11"]
    assert told.splitlines()[-1].startswith("Links with new nodes are told from 11 events alone")
    assert "All links are" not in told


def test_kinds_that_few_events_tell_stand_apart_and_are_none_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {"average_precision": 0.8, "historical_average_precision": 0.8, "new_average_precision": 0.7}
    of = {"average_precision": 1350, "historical_average_precision": 1350, "new_average_precision": 11}
    floor = {"recency": kinds}
    assert below_words(kinds, floor) == "recency on all"  # tables of earlier versions do not say how many
    assert below_words(kinds, floor, of) == "recency on all (of 11 events: random, new nodes)"
    better = kinds | {"average_precision": 0.9, "historical_average_precision": 0.9}
    assert below_words(better, floor, of) == "recency (of 11 events: random, new nodes)"
    assert below_words(better | {"new_average_precision": 0.9}, floor, of) == ""
    assert below_words(kinds, floor, dict.fromkeys(kinds, 11)) == "recency on all"  # said below the table
    assert below_words(kinds, floor, dict.fromkeys(kinds, 501) | {"new_average_precision": 500}) == "recency on all"
    rows = with_floors([row("graphmixer", **kinds) | {"events": of}], floor)
    assert [one["below"] for one in rows] == ["recency on all (of 11 events: random, new nodes)", ""]


def test_a_run_that_is_trees_alone_is_named_so(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {"average_precision": 0.8, "new_average_precision": 0.7}
    shares = {"graphmixer": [1.0, 1.0], "dygformer": [0.5]}
    rows = [row(method, **kinds) | {"trees_share": own} for method, own in shares.items()]
    show_kinds(with_floors(rows, {}), "clubs")
    told = capsys.readouterr().out
    assert "│ graphmixer (trees alone) │" in told
    assert "│ dygformer                │" in told


def test_no_number_is_neither_above_nor_below() -> None:
    for value, floor in ((nan, 0.5), (0.5, nan), (nan, nan)):
        assert below_words({"average_precision": value}, {"recency": {"average_precision": floor}}) == ""
    assert below_words({"average_precision": 0.5}, {"recency": {"average_precision": 0.5}}) == "recency on random"


def test_floors_are_named_as_people_write_them():
    assert below_words({"mrr": 0.5}, {"common_neighbors": {"mrr": 0.6}}) == "common neighbors on random"
