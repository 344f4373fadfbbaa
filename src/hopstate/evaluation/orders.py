"""Scores of an evaluation in the order of `hopstate rank`: with who met before, and with the rules beside a model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.meetings import met_before
from hopstate.evaluation.link_scores import LinkScores
from hopstate.evaluation.probabilities import Curve, Says
from hopstate.sampling.negative_sets import Negatives

Key = tuple[str, str]  # split and strategy
Known = tuple[np.ndarray | None, np.ndarray | None]  # (Q,) who met before, and (Q,) what rules say; None: not yet


def pairs_of(
    stream: EventStream, drawn: Negatives, at: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return src, dst and t (Q,) of the pairs of `LinkScores.pooled`, or of those at places (Q,)."""
    of = np.concatenate([drawn.rows, np.repeat(drawn.rows, np.diff(drawn.offsets))])
    src = np.concatenate([stream.src[drawn.rows], drawn.src])
    dst = np.concatenate([stream.dst[drawn.rows], drawn.dst])
    return (src, dst, stream.t[of]) if at is None else (src[at], dst[at], stream.t[of[at]])


class Orders:
    """What candidates of a stream stand in the order of.

    Args:
        stream: the events.
        curve: whose order it is.
        rules: what says the log-odds beside a model's scores; None where the curve asks for none.
        known: of pairs that are asked for again, by (split, strategy), who met and what the rules say; filled here.
    """

    def __init__(
        self, stream: EventStream, curve: Curve, rules: Says | None = None, known: dict[Key, Known] | None = None
    ) -> None:
        self.stream, self.curve, self.rules, self.known = stream, curve, rules, known

    def of(self, key: Key, scored: LinkScores, drawn: Negatives) -> LinkScores:
        """Return the order of scored, which is of drawn, known as key."""
        count, (met, said) = len(scored.positive), self._known(key, drawn)
        order = self.curve.ordered(scored.pooled()[1], met, said)
        return replace(scored, positive=order[:count], negative=order[count:])

    def _known(self, key: Key, drawn: Negatives) -> Known:
        met, said = (None, None) if self.known is None else self.known.get(key, (None, None))
        asks = self.rules if self.curve.share and said is None else None
        looks = bool(self.curve.met) and met is None
        if asks is not None or looks:
            asked = pairs_of(self.stream, drawn)
            met = met_before(self.stream, *asked) if looks else met
            said = asks(*asked) if asks is not None else said
            if self.known is not None:
                self.known[key] = met, said
        return met, said


__all__ = ["Key", "Known", "Orders", "pairs_of"]
