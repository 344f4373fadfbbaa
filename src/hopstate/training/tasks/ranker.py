"""What stands beside a model of links where candidates are ranked: rules over the same pairs."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hopstate.data.past import Past


class Rules(Protocol):
    """What speaks of pairs beside a model's scores."""

    def __call__(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) float64 log-odds of pairs src (Q,), dst (Q,) at times t (Q,), each by itself."""
        ...

    def feature_shares(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q, F) float64: what each of a pair's features adds to them."""
        ...


class Ranker(Protocol):
    """Rules that are fitted beside random pairs alone, which is what probabilities and ranks are among."""

    @property
    def there(self) -> bool:
        """Whether they were fitted."""
        ...

    def of(self, split: str) -> Rules:
        """Return them by the training events for "train", else by the whole stream, before each time."""
        ...

    def over(self, past: Past) -> Rules:
        """Return them by the events of a past, before each time."""
        ...


__all__ = ["Ranker", "Rules"]
