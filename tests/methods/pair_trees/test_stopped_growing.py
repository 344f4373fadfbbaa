"""Ctrl-C while trees grow: the run ends at once, and grows the same trees when it is taken up."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.methods.pair_trees.method import PairTreesTask
from hopstate.runs.api import fit

SMALL = {"model.max_trees": 3, "loop.progress": False, "loop.tensorboard": "no", "loop.device": "cpu"}


def test_a_wish_to_stop_is_heard_while_trees_grow_and_the_run_begins_anew(tmp_path: Path, monkeypatch: Any) -> None:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 12, (2, 400))
    events = EventStream(src=ends[0], dst=ends[1], t=np.arange(400), num_nodes=12)
    whole = fit("pair-trees", events, out=tmp_path / "whole", config=SMALL)

    def stopped(_: PairTreesTask) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):  # the signal is seen between two lines
            pass
        pytest.fail("growing went on")

    with monkeypatch.context() as patched:
        patched.setattr(PairTreesTask, "fit_whole", stopped)
        cut = fit("pair-trees", events, out=tmp_path / "cut", config=SMALL)
    assert cut.interrupted
    assert not (tmp_path / "cut" / "result.json").exists()
    again = fit("pair-trees", events, out=tmp_path / "cut", config=SMALL, resume=True)
    assert again.metrics == whole.metrics
