"""Whether pairs met before is what the store of the whole stream says, in one chunk or many."""

import numpy as np
import pytest

from hopstate.data import meetings
from hopstate.data.events import EventStream
from hopstate.data.meetings import met_before
from hopstate.data.neighbor_store import NeighborStore
from made_events import additions_and_deletions, repeating


@pytest.mark.parametrize("chunk", [1, 7, 1 << 22])
@pytest.mark.parametrize("deletions", [False, True])
def test_it_is_what_the_store_says(chunk: int, deletions: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meetings, "_CHUNK", chunk)
    stream = additions_and_deletions(150, 3, people=6, goods=6, last=60) if deletions else repeating(300)
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, stream.num_nodes, (2, 500))
    t = rng.integers(-1, int(stream.t[-1]) + 2, 500)
    found = met_before(stream, src, dst, t)
    assert found.tolist() == NeighborStore.from_stream(stream).last_meeting(src, dst, t)[1].tolist()
    assert found.any()
    assert not found.all()
    assert met_before(stream, dst, src, t).tolist() == found.tolist()
    assert not met_before(stream, src + stream.num_nodes, dst, t).any()


def test_nothing_is_asked_or_known() -> None:
    none = np.empty(0, np.int64)
    empty = EventStream(src=none, dst=none, t=none, num_nodes=3)
    assert met_before(repeating(10), none, none, none).tolist() == []
    assert met_before(empty, np.array([0]), np.array([1]), np.array([5])).tolist() == [False]
