"""Fits of these tests draw no picture of their curves: it takes longer than a small fit."""

import pytest


@pytest.fixture(autouse=True)
def _no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopstate.training.progress.draw_curves", lambda *_: None, raising=False)
