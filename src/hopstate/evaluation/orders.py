"""Scores of an evaluation in the order of `hopstate rank`: with who met before, and with the rules beside a model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.meetings import met_before
from hopstate.evaluation.link_scores import LinkScores
from hopstate.evaluation.probabilities import Curve, Says
from hopstate.sampling.negative_sets import Negatives


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
    """

    def __init__(self, stream: EventStream, curve: Curve, rules: Says | None = None) -> None:
        self.stream, self.curve, self.rules = stream, curve, rules

    def of(self, scored: LinkScores, drawn: Negatives) -> LinkScores:
        """Return the order of scored, which is of drawn."""
        count, asked = len(scored.positive), pairs_of(self.stream, drawn)
        met = met_before(self.stream, *asked) if self.curve.met else None
        said = self.rules(*asked) if self.curve.share and self.rules is not None else None
        order = self.curve.ordered(scored.pooled()[1], met, said)
        return replace(scored, positive=order[:count], negative=order[count:])


__all__ = ["Orders", "pairs_of"]
