"""Links ranked among candidates: how far up what happened stands, over all events and by what the pair had been.

An event's own pair met before, is a new pair of nodes that both had events, or has a new node, strictly before its time
each. "known" asks of the first kind alone, among candidates that the source has met too: of those I know, who next?

Source: Järvelin and Kekäläinen 2002, doi:10.1145/582415.582418 (NDCG, here of one relevant candidate); Huang et al.
2023, arXiv:2307.01026 (MRR, Hits@k); Poursafaei et al. 2022, arXiv:2207.10128 (events by whether the pair met before).
"""

from __future__ import annotations

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import Histories, NeighborStore
from hopstate.evaluation.intervals import bootstrap_mean, limits_of
from hopstate.evaluation.ranking import gains, hits, mrr, ranks, recalls

KINDS = ("met", "new_pair", "new_node")
HITS = (1, 3, 10)
FIRST = 10  # places that NDCG and recall look at


def kinds_of(store: Histories, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return (Q,) what pairs src (Q,), dst (Q,) were strictly before t (Q,): positions in KINDS."""
    met = store.last_meeting(src, dst, t)[1]
    old = [store.last(ends, t, 1).lengths > 0 for ends in (src, dst)]
    return np.where(met, 0, np.where(old[0] & old[1], 1, 2))


def ranking_metrics(
    stream: EventStream,
    rows: np.ndarray,
    positive: np.ndarray,
    negative: np.ndarray,
    offsets: np.ndarray,
    candidates: np.ndarray,
    *,
    bootstrap: int = 0,
    seed: int = 0,
) -> dict[str, float]:
    """Return MRR, Hits@k, NDCG@10 and recall@10 of events, and MRR by kind; `mrr_low`, `mrr_high` are limits.

    Of each kind "<kind>_events" says how many events it is told from.

    Args:
        stream: where the events stand; what had happened is looked up in all of it.
        rows: (P,) positions of the events, each with a candidate at least.
        positive: (P,) their scores.
        negative: (T,) scores of the candidates, packed by offsets (P+1,).
        candidates: (T,) int64 the candidates, each of its event's own source.
        bootstrap: resamples for intervals; 0 gives none.
        seed: of the resamples.
    """
    src, dst, t = (column[rows] for column in (stream.src, stream.dst, stream.t))
    rank = ranks(positive, negative, offsets)
    found = {"mrr": mrr(rank)} | {f"hits@{k}": hits(rank, k) for k in HITS}
    moment = np.unique(t, return_inverse=True)[1].reshape(-1)
    query = np.unique(src * len(rows) + moment, return_inverse=True)[1].reshape(-1)
    values = {"mrr": 1 / rank, f"ndcg@{FIRST}": gains(rank, FIRST), f"recall@{FIRST}": recalls(rank, FIRST, query)}
    store = NeighborStore.from_stream(stream)
    kind = kinds_of(store, src, dst, t)
    values |= {f"{name}_mrr": 1 / rank[kind == i] for i, name in enumerate(KINDS)}
    values["known_mrr"] = 1 / _among_known(store, (src, dst, t), kind, positive, negative, offsets, candidates)
    for name, column in values.items():
        if not len(column):
            continue
        found[name] = float(column.mean())
        if name.removesuffix("_mrr") in (*KINDS, "known"):
            found[f"{name.removesuffix('_mrr')}_events"] = len(column)
        if bootstrap:
            found |= limits_of({name: bootstrap_mean(column, repeats=bootstrap, seed=seed)})
    return found


def _among_known(
    store: NeighborStore,
    events: tuple[np.ndarray, np.ndarray, np.ndarray],
    kind: np.ndarray,
    positive: np.ndarray,
    negative: np.ndarray,
    offsets: np.ndarray,
    candidates: np.ndarray,
) -> np.ndarray:
    """Return ranks of events whose pair met, among candidates that their source had met; none without such."""
    src, _, t = events
    of = np.repeat(np.arange(len(src)), np.diff(offsets))
    asked = np.flatnonzero(kind[of] == 0)
    kept = asked[store.last_meeting(src[of[asked]], candidates[asked], t[of[asked]])[1]]
    count = np.bincount(of[kept], minlength=len(src))
    mine = count > 0
    if not mine.any():
        return np.empty(0)
    bounds = np.concatenate([[0], np.cumsum(count[mine])])
    return ranks(positive[mine], negative[kept], bounds)
