"""Output of `fit` for a finished run."""

import json
from collections.abc import Callable

import pytest

from hopstate.cli.fit import not_outperformed, print_result
from hopstate.evaluation.labels import cell, metric_label
from hopstate.runs.run import Run


def test_every_metric_of_every_split_is_printed(
    trained: Callable[[str], Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained("graphmixer")
    print_result(run)
    printed = capsys.readouterr().out
    lines = {line.split("│")[1].strip(): line for line in printed.splitlines() if line.startswith("│")}
    for split, values in run.metrics.items():
        for name, value in values.items():
            place = 2 + list(run.metrics).index(split)
            assert lines[metric_label(name)].split("│")[place].strip() == cell(name, value)
    own = cell("average_precision", run.metrics["test"]["average_precision"])
    assert own in printed.splitlines()[0]
    assert run.path.name in printed
    assert "result.json" in printed
    share = json.loads((run.path / "result.json").read_text())["train_share"]
    assert 0 < share < 1
    assert f"{share:.1%}" in printed


def test_baselines_that_outperform_the_method_are_named(trained: Callable[[str], Run]) -> None:
    run = trained("graphmixer")
    metric, own = "average_precision", run.metrics["test"]["average_precision"]
    run.baselines.clear()
    run.baselines.update({"worse": {metric: own - 0.1}, "equal": {metric: own}, "better": {metric: own + 0.1}})
    assert not_outperformed(run) == ["equal", "better"]
