"""Why a pair got its score, a short text a pair: the events or features that weighed most, else what the past holds.

Of trees, the features that added most to the log-odds; of models whose logit is a sum over the events of both histories
(dyg-mamba), the events that did. Others tell no shares: then the text says what is known of the pair, and no weights.
"""

from __future__ import annotations

import numpy as np

from hopstate.data.layered_store import LayeredStore
from hopstate.runs.queries.names import Nodes, with_rows
from hopstate.runs.queries.session import Session
from hopstate.streaming.history_scorer import HistoryScorer, to_device
from hopstate.tokens.history import HistoryTokens
from hopstate.training.tasks.protocols import ExplainsEvents, ExplainsPairs

SHOWN = 3  # events or features a pair
TOGETHER = 64  # pairs taken apart at once


def reasons(asked: Session, u: Nodes, v: Nodes, t: np.ndarray) -> np.ndarray:
    """Return (Q,) texts of pairs u (Q,), v (Q,) at t (Q,)."""
    src, dst = with_rows(asked.past, u, v)
    follower, found = asked.queries.follower, []
    for start in range(0, len(t), TOGETHER):
        chunk = slice(start, start + TOGETHER)
        if isinstance(follower, ExplainsPairs):
            found += _features(follower, src[chunk], dst[chunk], t[chunk])
        elif isinstance(follower, HistoryScorer) and isinstance(follower.model, ExplainsEvents):
            found += _events(asked, follower, src[chunk], dst[chunk], t[chunk])
        else:
            found += _facts(asked, src[chunk], dst[chunk], t[chunk])
    return np.array(found, dtype=object)


def _features(scorer: ExplainsPairs, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> list[str]:
    names, x, shares = scorer.feature_shares(u, v, t)
    best = np.argsort(-np.abs(shares), axis=1, kind="stable")[:, :SHOWN]
    return [
        "; ".join(
            f"{names[k]} {'never' if np.isnan(x[i, k]) else f'{x[i, k]:.3g}'} ({shares[i, k]:+.2f})"
            for k in best[i].tolist()
            if shares[i, k]
        )
        for i in range(len(u))
    ]


def _events(asked: Session, scorer: HistoryScorer, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> list[str]:
    model, tokens = scorer.model, scorer.tokenizer.pairs(u, v, t)
    assert isinstance(model, ExplainsEvents)
    assert isinstance(tokens, HistoryTokens)
    was, device = model.training, next(model.parameters()).device
    model.eval()
    shares = model.contributions(to_device(tokens, device))[0].double().cpu().numpy()
    model.train(was)
    ids, offsets, nodes = tokens.event_ids.numpy(), tokens.offsets.numpy(), tokens.nodes.numpy()
    told = []
    for i in range(len(u)):
        at = [np.arange(offsets[k], offsets[k + 1]) for k in (i, len(u) + i)]
        ends = np.repeat([int(u[i]), int(v[i])], [len(part) for part in at])
        place = np.concatenate(at)
        real = ids[place] >= 0
        place, ends = place[real], ends[real]
        best = np.argsort(-np.abs(shares[place]), kind="stable")[:SHOWN]
        when = asked.shown(_times(asked, ids[place[best]]))
        told.append(
            "; ".join(
                f"{_name(asked, end)} with {_name(asked, node)} at {time} ({share:+.2f})"
                for end, node, time, share in zip(
                    ends[best], nodes[place[best]], when, shares[place[best]], strict=True
                )
            )
            or "no earlier event of either"
        )
    return told


def _facts(asked: Session, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> list[str]:
    store = asked.queries.past.store()
    last, met = store.last_meeting(u, v, t)
    count, when = store.count_meetings(u, v, t), asked.shown(last)
    shared = [_shared(store, *one) for one in zip(u.tolist(), v.tolist(), t, strict=True)]
    known = [f"meetings: {n}, the last at {at}" for n, at in zip(count, when, strict=True)]
    return [
        f"{known[i] if met[i] else 'never met'}; {shared[i]} shared among the latest 32 of each" for i in range(len(u))
    ]


def _shared(store: LayeredStore, u: int, v: int, t: float) -> int:
    near = store.last(np.array([u, v]), np.array([t, t]), 32)
    first, second = (set(near.of(k)[0].tolist()) - {u, v} for k in (0, 1))
    return len(first & second)


def _times(asked: Session, ids: np.ndarray) -> np.ndarray:
    """Return (q,) times of events."""
    layers = asked.past.layers
    of = np.searchsorted([layer.first for layer in layers], ids, side="right") - 1
    kind = layers[-1].t.dtype
    return np.array([layers[k].t[i - layers[k].first] for k, i in zip(of, ids, strict=True)], kind)


def _name(asked: Session, row: int) -> str:
    ids = asked.past.node_ids
    return str(row if ids is None else ids.ids[row] if row < len(ids) else "the new node")


__all__ = ["reasons"]
