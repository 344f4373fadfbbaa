"""`hopstate.compare` from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hopstate


def test_a_comparison_has_a_row_per_method_and_reuses_finished_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = {"evaluation.strategies": ["random"], "recency.evaluation.bootstrap": 5}
    found = hopstate.compare(["recency", "edgebank"], "messages-generated", out="both", config=config)
    assert found["method"].tolist() == ["recency", "edgebank"]
    folders = [tmp_path / "both" / f"{name}-split0-seed0" for name in found["method"]]
    results = [json.loads((folder / "result.json").read_text()) for folder in folders]
    assert found["test_mean"].tolist() == [run["metrics"]["test"][run["metric"]] for run in results]
    monkeypatch.setattr("hopstate.runs.compare.fit_config", None)
    again = hopstate.compare(["recency", "edgebank"], "messages-generated", out="both", config=config)
    assert again["test_mean"].tolist() == found["test_mean"].tolist()
    settings = [json.loads((folder / "config.json").read_text()) for folder in folders]
    assert [one["evaluation"]["bootstrap"] for one in settings] == [5, 0]
