"""Without a terminal, a long epoch prints its batch number sometimes."""

from types import SimpleNamespace

import numpy as np

import hopstate
from hopstate.data.events import EventStream
from hopstate.io.output import progress_callback, report_progress
from hopstate.training import progress
from hopstate.training.config import LoopConfig
from hopstate.training.progress import Reporter
from hopstate.training.run_folder import RunFolder


def test_a_long_epoch_shows_its_batches(tmp_path, capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    for expected in (True, False):
        config = LoopConfig(epochs=3, progress=expected, logger="none")
        with Reporter(config, RunFolder(tmp_path), "average_precision", []) as reporter:
            for step in range(1, 181):
                now[0] += 1.0
                reporter.step(SimpleNamespace(epoch=1, step=step), 200)
        lines = [line for line in capsys.readouterr().err.splitlines() if line]
        assert lines == (["epoch 2/3: batch 61/200", "epoch 2/3: batch 122/200"] if expected else [])


def test_a_long_evaluation_shows_its_batches(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    stream = EventStream(src=rng.integers(0, 9, 2000), dst=9 + rng.integers(0, 9, 2000), t=np.arange(2000))
    now = [0.0]

    def monotonic() -> float:
        now[0] += 31.0
        return now[0]

    monkeypatch.setattr(progress.time, "monotonic", monotonic)
    for expected in (True, False):
        config = {"evaluation.strategies": ["random"], "evaluation.batch_size": 50, "loop.progress": expected}
        hopstate.fit("recency", stream, out=tmp_path / str(expected), config=config)
        captured = capsys.readouterr().err
        assert (" 3 of 6" in captured) == expected
    heard = []
    with progress_callback(lambda done, total: heard.append((done, total))):
        report_progress(1, 2)
    report_progress(2, 2)
    assert heard == [(1, 2)]
