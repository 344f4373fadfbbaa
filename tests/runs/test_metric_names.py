"""How values of a metric are formatted, by the metric's direction."""

from __future__ import annotations

import pytest

from hopstate.evaluation.labels import is_error, sort_key
from hopstate.evaluation.metrics import METRICS, Metric


@pytest.mark.parametrize("name", ["max_error", "new_historical_max_error"])
def test_error_metrics_with_an_underscore_are_errors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = Metric(name="max_error", label="max error", higher_is_better=False, functions={})
    monkeypatch.setitem(METRICS, "max_error", metric)
    assert is_error(name)
    assert sort_key(name, 1.0) < sort_key(name, 2.0)


@pytest.mark.parametrize("name", ["brier", "historical_ece", "new_brier"])
def test_calibration_errors_are_better_if_lower(name: str) -> None:
    assert is_error(name)
    assert sort_key(name, 0.1) < sort_key(name, 0.2)
