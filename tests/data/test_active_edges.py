"""The active edges of a long stream are counted event by event: the same verdict as that of the whole columns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopstate.data import event_build
from hopstate.data import event_build as active_edges
from hopstate.data.event_build import check_deletes, deletions_are_valid
from hopstate.data.events import ADD, DELETE, EventStream
from hopstate.errors import DataError

NODES = 4
rows = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.sampled_from([ADD, ADD, ADD, DELETE]))


def stream_of(told):
    src, dst, kind = np.array(told).T
    columns = {"src": src, "dst": dst, "t": np.arange(len(src)), "kind": kind.astype(np.int8)}
    return EventStream(**columns, num_nodes=NODES, from_start=False)


def whole(told):
    """Return rows whose deletions all remove an active edge."""
    edges, made = [], []
    for u, v, kind in told:
        if kind == ADD:
            edges.append((u, v))
        elif (u, v) in edges:
            edges.remove((u, v))
        else:
            continue
        made.append((u, v, kind))
    return made


@pytest.mark.parametrize(("chunk", "pairs"), [(1 << 20, 1 << 23), (3, 4)])
@settings(max_examples=60, deadline=None)
@given(st.lists(rows, min_size=1, max_size=40), st.booleans())
def test_the_verdict_is_that_of_the_whole_columns(chunk, pairs, told, mended):
    told = (whole(told) if mended else told) or [(0, 1, ADD)]
    stream = stream_of(told)
    try:
        check_deletes(stream)
        expected = True
    except DataError:
        expected = False
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(active_edges, "CHUNK", chunk)
        patched.setattr(active_edges, "PAIRS", pairs)
        assert deletions_are_valid(stream) == expected


def test_a_long_stream_is_refused_with_the_event_named(monkeypatch):
    monkeypatch.setattr(event_build, "CHUNK", 2)
    with pytest.raises(DataError, match="event 3"):
        check_deletes(stream_of([(0, 1, ADD), (1, 2, ADD), (0, 1, DELETE), (0, 1, DELETE)]))
    check_deletes(stream_of([(0, 1, ADD), (1, 2, ADD), (0, 1, DELETE), (0, 1, ADD)]))
