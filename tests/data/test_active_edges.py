"""A stream is accepted if each of its deletions removes an active edge."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopstate.data.events import ADD, DELETE, EventStream, check_deletes
from hopstate.errors import DataError

NODES = 4
rows = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.sampled_from([ADD, ADD, ADD, DELETE]))


def stream_of(listed):
    src, dst, kind = np.array(listed).T
    columns = {"src": src, "dst": dst, "t": np.arange(len(src)), "kind": kind.astype(np.int8)}
    return EventStream(**columns, num_nodes=NODES, from_start=False)


def only_valid(listed):
    """Return rows whose deletions all remove an active edge."""
    edges, made = [], []
    for u, v, kind in listed:
        if kind == ADD:
            edges.append((u, v))
        elif (u, v) in edges:
            edges.remove((u, v))
        else:
            continue
        made.append((u, v, kind))
    return made


@settings(max_examples=100, deadline=None)
@given(st.lists(rows, min_size=1, max_size=40), st.booleans())
def test_only_active_edges_are_deleted(listed, valid):
    listed = (only_valid(listed) if valid else listed) or [(0, 1, ADD)]
    if only_valid(listed) == listed:
        check_deletes(stream_of(listed))
    else:
        with pytest.raises(DataError, match=r"event \d"):
            check_deletes(stream_of(listed))


def test_the_event_that_deletes_no_active_edge_is_named():
    with pytest.raises(DataError, match="event 3"):
        check_deletes(stream_of([(0, 1, ADD), (1, 2, ADD), (0, 1, DELETE), (0, 1, DELETE)]))
