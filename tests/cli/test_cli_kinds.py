"""Links by kind of negatives in `compare`: methods that do not outperform a baseline."""

from math import nan
from typing import Any

import pytest

from hopstate.cli.compare import show_kinds
from hopstate.runs.compare import add_baselines
from hopstate.runs.summary import baselines_not_exceeded

KINDS = {"average_precision": 0.8, "historical_average_precision": 0.8, "new_average_precision": 0.7}


def row(method: str, **kinds: float) -> dict[str, Any]:
    return {"method": method, "kinds": {name: (value, None) for name, value in kinds.items()}}


def test_baselines_are_compared_with_methods_and_with_each_other() -> None:
    rows = [row("graphmixer", random=0.8, ranking=0.5), row("edgebank", random=0.7, ranking=0.2)]
    baselines = {"recency": {"random": 0.75, "ranking": 0.6}, "edgebank": {"random": 0.7, "ranking": 0.2}}
    found = {one["method"]: one for one in add_baselines(rows, baselines)}
    assert list(found) == ["graphmixer", "edgebank", "recency"]
    assert "recency" in found["graphmixer"]["not_outperformed"]
    assert "edgebank" not in found["graphmixer"]["not_outperformed"]
    assert "recency" in found["edgebank"]["not_outperformed"]
    assert found["recency"]["not_outperformed"] == ""
    other = add_baselines(rows, {"recency": {"random": 0.1, "ranking": 0.6}})[-1]
    assert (other["method"], "edgebank" in other["not_outperformed"]) == ("recency", True)


def test_the_table_has_a_row_per_method_then_the_baselines_then_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    rows = add_baselines([row(name, **KINDS) for name in ("graphmixer", "dygformer")], {"recency": KINDS})
    show_kinds(rows, "clubs")
    printed = capsys.readouterr().out
    names = [line.split("│")[1].split() for line in printed.splitlines() if line.startswith("│")]
    assert [name[0] for name in names] == ["graphmixer", "dygformer", "recency"]
    assert [len(name) > 1 for name in names] == [False, False, True]  # a baseline is marked
    rows[1]["num_events"] = {"average_precision": 1350, "new_average_precision": 11}
    show_kinds(rows, "clubs")
    printed = capsys.readouterr().out
    last = [line for line in printed.splitlines() if line.startswith("│")][-1]
    assert [cell.strip() for cell in last.split("│")[2:5]] == ["1,350", "", "11"]
    assert "11" in printed.splitlines()[-1]


def test_an_equal_metric_is_not_better_and_nan_is_ignored() -> None:
    for value, baseline in ((nan, 0.5), (0.5, nan), (nan, nan), (0.51, 0.5)):
        assert baselines_not_exceeded({"mrr": value}, {"recency": {"mrr": baseline}}) == ""
    assert "recency" in baselines_not_exceeded({"mrr": 0.5}, {"recency": {"mrr": 0.5}})
    assert "common neighbors" in baselines_not_exceeded({"mrr": 0.5}, {"common_neighbors": {"mrr": 0.6}})
