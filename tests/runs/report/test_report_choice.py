"""Reports mark the best method by validation metrics; test metrics select nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from test_report import make_run, table, verdict

from hopstate.runs.report import write_report


def with_validation(folder: Path, **val: float | None) -> None:
    """Give a run validation metrics that differ from its test metrics."""
    path = folder / "result.json"
    found = json.loads(path.read_text())
    found["metrics"]["val"] = val
    path.write_text(json.dumps(found))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Validation ranks sage first, test gcn."""
    for name, test, val in (("gcn", 0.9, 0.7), ("sage", 0.8, 0.75)):
        for seed in range(3):
            folder = tmp_path / f"runs/{name}-{seed}"
            make_run(folder, name, "cora", {"accuracy": test + 0.01 * seed}, seed=seed)
            with_validation(folder, accuracy=val + 0.01 * seed)
    return tmp_path / "runs"


def test_validation_selects_and_the_test_metric_is_shown(runs: Path, tmp_path: Path) -> None:
    page = write_report([runs], tmp_path / "r.html")
    (words,) = verdict(page)
    assert words.startswith("sage")
    for text in ("76.00 ± 1.00", "81.00 ± 1.00", "10.00", "gcn (91.00)"):
        assert text in words
    assert [row[0] for row in table(page, "Results on cora")[1:]] == ["sage best", "gcn"]
    bars = re.findall(r'class="bar" style="width:([\d.]+)%;background:(#\w+)"', page.read_text())
    assert [width for width, _ in bars] == ["81.0", "91.0"]
    colors = re.findall(r'<span class="dot" style="background:(#\w+)">', page.read_text())
    assert colors[:2] == [color for _, color in bars]  # a method has one color


def test_without_validation_no_method_is_marked_best(runs: Path, tmp_path: Path) -> None:
    for folder in runs.iterdir():
        with_validation(folder)
    page = write_report([runs], tmp_path / "r.html")
    assert "best" not in "".join(row[0] for row in table(page, "Results on cora"))


def test_each_kind_of_negatives_is_marked_by_the_selection_metric(tmp_path: Path) -> None:
    kinds = {"average_precision": 0.9, "historical_average_precision": 0.8}
    make_run(tmp_path / "a/high", "dyg-mamba", "uci", kinds)
    make_run(tmp_path / "a/low", "ctdg-ssm", "uci", {name: value - 0.2 for name, value in kinds.items()})
    with_validation(tmp_path / "a/high", average_precision=0.5)
    page = write_report([tmp_path / "a"], tmp_path / "r.html")
    heads, *rows = table(page, "Links of uci: all links")
    assert [row[0] for row in rows] == ["ctdg-ssm best", "dyg-mamba"]
    assert len(set(heads)) == len(heads)
