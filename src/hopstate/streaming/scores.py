"""What every score must be."""

from __future__ import annotations

import numpy as np

from hopstate.errors import DivergenceError


def check_scores(scores: np.ndarray, what: str = "scores") -> np.ndarray:
    """Return scores as float64; what names them in the message.

    Raises:
        DivergenceError: a score is NaN or infinite; the first is named.
    """
    scores = np.asarray(scores, np.float64)
    finite = np.isfinite(scores)
    if not finite.all():
        bad = np.flatnonzero(~finite.reshape(len(scores), -1).all(1))
        raise DivergenceError(f"{len(bad)} of {len(scores)} {what} are NaN or infinite, the first at row {bad[0]}")
    return scores
