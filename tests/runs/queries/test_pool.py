"""Who can be met, and who never was a source, from what a past holds."""

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.stream_state import StreamState
from hopstate.runs.queries.pool import only_targets


def past(src: list[int], dst: list[int], num_nodes: int = 6) -> StreamState:
    events = EventStream(src=np.array(src), dst=np.array(dst), t=np.arange(len(src)), num_nodes=num_nodes)
    half, state = len(src) // 2, StreamState()
    for some in (slice(0, half), slice(half, len(src))):
        columns = {name: getattr(events, name)[some].copy() for name in ("src", "dst", "t")}
        state = state.joined(EventStream(**columns, num_nodes=num_nodes))[1]
    return state


def test_only_targets_where_the_two_sides_are_apart() -> None:
    asked = np.array([0, 3, 4, 5, -1])
    two_sided = past([0, 1, 0, 2], [3, 4, 4, 3])
    assert only_targets(two_sided, asked).tolist() == [False, True, True, False, False]  # 5 met nobody
    one_sided = past([0, 1, 0, 3], [3, 4, 4, 1])
    assert not only_targets(one_sided, asked).any()
