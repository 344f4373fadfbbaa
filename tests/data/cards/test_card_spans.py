"""A card's lengths of time without a known unit can be read, and say how the unit is named."""

import numpy as np

from hopstate.data.cards.card import inspect_stream
from hopstate.data.events import EventStream


def test_spans_without_a_unit_are_written_out() -> None:
    t = np.array([1_700_000_000, 1_700_000_010, 1_709_993_389])
    facts = inspect_stream(EventStream(src=np.array([0, 1, 0]), dst=np.array([2, 3, 3]), t=t, num_nodes=4)).facts
    assert facts["time span"] == "9,993,389"
    assert "--read.time_unit" in facts["time"]
    short = EventStream(src=np.array([0, 1]), dst=np.array([2, 3]), t=np.array([0.0, 1e-3]), num_nodes=4)
    facts = inspect_stream(short).facts
    assert facts["time span"] == "0.001"
