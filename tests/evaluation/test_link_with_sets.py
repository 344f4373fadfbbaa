"""The recency baseline on negatives drawn with Python sets in DyGLib's order reproduces every published digit.

The sampler below is the definition of the historical and inductive strategies; `hopstate.sampling.negatives` draws
from the same pairs in another order.
"""

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.readers.read_events import read_events
from hopstate.data.splits import EventSplit, dyglib_split
from hopstate.evaluation.link import evaluate_link
from hopstate.methods.heuristics.method import Recency
from hopstate.sampling.negatives import SEEDS, Negatives, draw_negatives
from hopstate.testing.conformance import F32_SUM

# AUC and AP of historical, then inductive; transductive, then inductive
RECENCY = {
    "uci": [0.8007, 0.8932, 0.7475, 0.8445, 0.7619, 0.8586, 0.7618, 0.8586],
    "enron": [0.8440, 0.8814, 0.7927, 0.8247, 0.8229, 0.8574, 0.8229, 0.8574],
}


def with_sets(stream: EventStream, split: EventSplit, part: str, strategy: str) -> Negatives:
    rows = split.rows(part)
    pool = np.arange(len(stream)) if part == "test" else rows
    src, dst, t = stream.src[pool] + 1, stream.dst[pool] + 1, stream.t[pool]  # DyGLib's ids, which order its sets
    grid = {(u, v) for u in np.unique(src) for v in np.unique(dst)}
    rng = np.random.RandomState(SEEDS[part])

    def pairs_between(first: float, last: float) -> set:
        within = (t >= first) & (t <= last)
        return set(zip(src[within], dst[within], strict=True))

    known = pairs_between(t.min(), stream.t[split.val[-1]]) if strategy == "inductive" else set()
    drawn = []
    for start in range(0, len(rows), 200):
        batch = rows[start : start + 200]
        own = set(zip(stream.src[batch] + 1, stream.dst[batch] + 1, strict=True))
        begin, end = stream.t[batch[0]], stream.t[batch[-1]]
        pairs = list(pairs_between(t.min(), begin) - known - pairs_between(begin, end))
        if len(batch) > len(pairs):
            others = list(grid - own)
            missing = len(batch) - len(pairs)
            places = rng.choice(len(others), size=missing, replace=len(others) < missing)
            drawn += [others[i] for i in places] + pairs
        else:
            drawn += [pairs[i] for i in rng.choice(len(pairs), size=len(batch), replace=False)]
    negative = np.array(drawn, np.int64) - 1
    ours = draw_negatives(stream, split, part, strategy)
    return Negatives(
        rows=rows,
        offsets=ours.offsets,
        src=negative[:, 0],
        dst=negative[:, 1],
        strategy=strategy,
        seed=0,
        batch_size=200,
    )


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", ["uci", "enron"])
def test_recency_on_negatives_drawn_as_sets(shared, name):
    stream = read_events(shared / f"data/temporal/{name}")
    split = dyglib_split(stream)
    strategies = ("historical", "inductive")
    negatives = {(p, s): with_sets(stream, split, p, s) for p in ("test", "new_test") for s in strategies}
    model = Recency(NeighborStore.from_stream(stream))
    report = evaluate_link(model, stream, split, strategies=strategies, negatives=negatives)
    found = [value for row in report.rows for value in (row["roc_auc"], row["average_precision"])]
    np.testing.assert_allclose(found, RECENCY[name], atol=F32_SUM)
