"""Methods that observe events go on from a saved state bit for bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_live import METHODS, events, part, task_of

from hopstate.data.events import EventStream
from hopstate.methods import MODULES, get_method
from hopstate.streaming.live import state_after_stream


def test_all_temporal_methods_are_covered() -> None:
    temporal = {name for name in MODULES if get_method(name).data == "events"}
    assert temporal == set(METHODS)


def scores(scorer: Any, name: str, stream: EventStream) -> np.ndarray:
    src, dst, late = stream.src.copy(), stream.dst.copy(), np.full(len(stream), stream.t[-1] + 1)
    found = scorer.score_nodes(src, late) if name.endswith("nodes") else scorer.score(src, dst, late)
    return np.asarray(found)


@pytest.mark.parametrize("name", ["ctdg-ssm", "ctdg-ssm-nodes", "edgebank"])
def test_a_restored_state_continues_bit_identically(name: str, tmp_path: Path) -> None:
    task, stream = task_of(name, tmp_path), events(160)
    with torch.no_grad():
        past = state_after_stream(task, replace(stream, **part(stream, 0, 40)))
        scorer = task.follow(past)
        early, late = (stream.take(np.arange(a, b)) for a, b in ((past.settled, 60), (60, 160)))
        scorer.observe(early)
        kept, before = scorer.state(), scores(scorer, name, stream)
        scorer.observe(late)
        after = scores(scorer, name, stream)
        for _ in range(2):  # a state can be used again
            scorer.restore(kept)
            assert np.array_equal(scores(scorer, name, stream), before)
            scorer.observe(late)
            assert np.array_equal(scores(scorer, name, stream), after)
    assert not np.array_equal(before, after)
