import pytest


@pytest.fixture(autouse=True)
def _no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw no curves: that takes most of the time of a small one."""
    monkeypatch.setattr("hopstate.training.progress.draw_curves", lambda *_: None, raising=False)
