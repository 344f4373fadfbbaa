"""Pairs that did not meet, beside which a link predictor's training events stand: a mixture of kinds.

random: the source kept, the destination uniform over those of training events (what the papers train with).
historical: a pair that met before the event's own time and does not meet at it; both ends replaced.
inductive: of those, one of the newest fifth, as evaluation's inductive pairs are the ones that met lately.
popular: the source kept, the destination that of a past event drawn uniformly, so as often as it received.

Against candidates of the event's own source (loss softmax) the source is kept throughout: historical and inductive
candidates are destinations of the source's own past events, or of the newest fifth of them. No candidate, nor a
popular destination, is one that the source meets at the event's own time.

What is past is strictly earlier than the event. Where nothing fits (a source without a past) the random pair stays.

Source: Poursafaei et al. 2022, arXiv:2207.10128 (historical and inductive pairs, there in evaluation alone); the
popularity-weighted ones after Mikolov et al. 2013, arXiv:1310.4546, without the power 3/4.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np

from hopstate.data.events import EventStream, stretch
from hopstate.errors import ConfigError, DataError, check_range, refuse_idle
from hopstate.random import named_rng

NEWEST = 0.2
MOST = 1 << 28  # candidates of an epoch that are held together


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Shares of kinds; they sum to 1.

    Args:
        random: uniform destinations; null takes the rest.
        historical: pairs that met before.
        inductive: pairs that met first of late.
        popular: destinations as often as they received.
    """

    random: float | None = None
    historical: float = 0.0
    inductive: float = 0.0
    popular: float = 0.0

    def __post_init__(self) -> None:
        others = (self.historical, self.inductive, self.popular)
        shares = (*others, 1 - sum(others) if self.random is None else self.random)
        if not all(-1e-9 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-6:
            raise ConfigError(
                f"negatives.mixture holds shares of random, historical, inductive and popular that sum to 1, e.g. "
                f"{{random: 0.9, historical: 0.1}}; got {asdict(self)}"
            )

    def shares(self) -> np.ndarray:
        """Return (4,) shares of random, historical, inductive and popular."""
        others = (self.historical, self.inductive, self.popular)
        return np.array([max(0.0, 1 - sum(others)), *others])

    @property
    def met(self) -> float:
        """Share of pairs that met before."""
        return self.historical + self.inductive


@dataclass(frozen=True, kw_only=True)
class TrainingNegatives:
    """What stands beside the events in training.

    Args:
        mixture: shares of kinds of pairs that did not meet.
        loss: "binary", each event and one pair on their own; or "softmax", an event against candidates of its source.
        candidates: of an event, of softmax.
    """

    mixture: Mixture = field(default_factory=Mixture)
    loss: Literal["binary", "softmax"] = "binary"
    candidates: int = 1

    def __post_init__(self) -> None:
        if self.loss not in ("binary", "softmax"):
            raise ConfigError(f"negatives.loss is 'binary' or 'softmax'; got {self.loss!r}")
        check_range("negatives.", least=1, candidates=self.candidates)
        refuse_idle(self, candidates=self.loss == "binary" and "loss=binary has one pair an event; take softmax")

    @property
    def group(self) -> int:
        """Rows that are told apart together: an event and its candidates, or 1 where each row stands alone."""
        return 1 + self.candidates if self.loss == "softmax" else 1


class MixedNegatives:
    """Draws of one epoch after another.

    Args:
        stream: the events.
        rows: (P,) ascending positions of the training events.
        config: kinds and loss.
    """

    def __init__(self, stream: EventStream, rows: np.ndarray, config: TrainingNegatives) -> None:
        self.config = config
        part = stretch(rows)
        self._src, self._dst, t = (np.ascontiguousarray(c[part]) for c in (stream.src, stream.dst, stream.t))
        if len(rows) * config.candidates > MOST:
            raise DataError(
                f"{len(rows)} training events with {config.candidates} candidates each are more than {MOST}; lower "
                "negatives.candidates"
            )
        self._shares = config.mixture.shares()
        if not self._shares[1:].any():
            return
        self._begin, self._end = (np.searchsorted(t, t, side=side) for side in ("left", "right"))
        if config.loss == "binary":
            key = self._src * (int(self._dst.max(initial=0)) + 1) + self._dst
            _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
            order = np.argsort(first, kind="stable")
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            self._pair, self._first = rank[inverse.reshape(-1)], first[order]
            self._known = np.searchsorted(self._first, self._begin)
        self._own = np.argsort(self._src, kind="stable")
        self._own_start = np.searchsorted(self._src[self._own], np.arange(stream.num_nodes + 1))

    def draw(self, random: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and destinations (P, K) of the pairs beside each event.

        Args:
            random: (P, K) destinations drawn uniformly, which stand where the mixture says random.
            seed: of the kinds and of the other pairs.
        """
        from hopstate.sampling.kernels import draw_candidates, draw_pairs

        if not self._shares[1:].any() or not len(random):
            return np.broadcast_to(self._src[:, None], random.shape), random
        src, dst = np.repeat(self._src[:, None], random.shape[1], 1), random.copy()
        kinds = kinds_of(self._shares, random.size, seed).reshape(random.shape)
        if self.config.loss == "binary":
            met = (self._begin, self._end, self._pair, self._known, NEWEST, self._first, self._own, self._own_start)
            draw_pairs(kinds[:, 0], *met, self._src, self._dst, seed, src[:, 0], dst[:, 0])
        else:
            own = (self._begin, self._end, self._own, self._own_start, NEWEST, self._src, self._dst)
            draw_candidates(kinds, *own, seed, dst)
        return src, dst


def kinds_of(shares: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return (count,) int8 numbers of kinds in drawn order, of each as many as its share says, to one.

    >>> np.bincount(kinds_of(np.array([0.7, 0.3]), 10, seed=0)).tolist()
    [7, 3]
    """
    ends = np.round(np.cumsum(shares) * count).astype(np.int64)
    kinds = np.repeat(np.arange(len(shares), dtype=np.int8), np.diff(ends, prepend=0))
    return named_rng(seed, 1).permutation(kinds)
