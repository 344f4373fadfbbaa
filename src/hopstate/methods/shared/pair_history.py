"""A pair's own history beside what a learned model takes: look-ups, and the scale that the head standardises by.

Source: ours; features as `pair-trees` reads them, see `hopstate.tokens.pair_features`.
"""

from __future__ import annotations

from copy import copy

import numpy as np
import torch

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream, stretch
from hopstate.data.neighbor_store import EventLookup, Histories, NeighborStore, NeighborView
from hopstate.data.splits import EventSplit
from hopstate.data.stream_state import StreamState
from hopstate.io.scratch import let_go
from hopstate.layers.pair_history import PairHistory
from hopstate.methods.shared.around import AroundTokenizer
from hopstate.random import named_rng
from hopstate.streaming.history_scorer import Input, PairTokenizer
from hopstate.tokens.pair_features import PairFeatures

LOOKED_AT = 20_000  # training events, evenly spread, that features are scaled by
_NONE = np.empty(0, np.int64)


def pair_features(store: Histories, stream: EventStream, clock: Clock) -> PairFeatures:
    """Return what a head reads of pairs: the features without those of events, which the model sees."""
    return PairFeatures(store, stream, clock, _NONE)


class PairHistoryTokenizer(AroundTokenizer[PairTokenizer]):
    """A model's input, and what the pairs' own histories tell beside it.

    Args:
        inner: the model's tokenizer; its input has a field `pair`.
        features: of pairs, from the same events without deletions.
    """

    def __init__(self, inner: PairTokenizer, features: PairFeatures) -> None:
        super().__init__(inner)
        self.features = features

    def moved(self, store: EventLookup) -> None:
        """Read histories there, too."""
        # made-up look-ups have no histories to read, and of those with deletions the meetings alone count
        if isinstance(store, NeighborStore | NeighborView) and not self.inner.deletions:
            self.features.store = store

    def over(self, past: StreamState) -> PairHistoryTokenizer:
        """Return the same over all events of a past."""
        made = copy(self)
        made.inner, made.features = self.inner.over(past), self.features.over(past)
        return made

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> Input:
        """Return the input for scoring pairs u (P,), v (P,) at t (P,); errors as the model's own tokenizer."""
        found = self.inner.pairs(u, v, t)
        return found._replace(pair=torch.from_numpy(self.features.pairs(u, v, t)))  # type: ignore[attr-defined]


def fit_scale(head: PairHistory, features: PairFeatures, stream: EventStream, split: EventSplit, seed: int) -> None:
    """Give a head the scale of training pairs: events, and for each a random and a past pair at its time.

    Args:
        head: takes mean and deviation.
        features: over the training events alone.
        stream, split: the data.
        seed: of the other pairs.
    """
    rows = stream.additions(split.train)
    if not len(rows):
        return
    at = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), LOOKED_AT)).astype(np.int64))
    src, dst, t = (column[stretch(rows)] for column in (stream.src, stream.dst, stream.t))
    rng = named_rng(seed, "pair-history")
    before = np.searchsorted(t, t[at])
    past = (rng.random(len(at)) * before).astype(np.int64)
    had = at[before > 0], past[before > 0]
    u = np.concatenate([src[at], src[at], src[had[1]]])
    v = np.concatenate([dst[at], dst[rng.integers(0, len(dst), len(at))], dst[had[1]]])
    head.fit(torch.from_numpy(features.pairs(u, v, np.concatenate([t[at], t[at], t[had[0]]]))))
    let_go(src, dst, t)
    if isinstance(features.store, NeighborStore):
        features.store.let_go()  # of a mapped index: queries from all over the stream have touched most of it
