"""Rows of the ids that events name, remembered: most come again, and to look all of them up takes longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hopstate.data.past import Past
from hopstate.data.vocabulary import Vocabulary

MOST = 1 << 18  # ids of a run's own data up to which all are remembered; of more, those that came, up to so many


class KnownRows:
    """Rows in the vocabulary of a past that goes on: its rows stay what they are, and new ids come after them."""

    def __init__(self) -> None:
        self._seen: Vocabulary | None = None  # the one asked last
        self._base: Vocabulary | None = None  # one whose ids are not all remembered; of those after it all are
        self._rows: dict[Any, int] = {}

    def rows(
        self, past: Past, ids: Sequence[Any], fit: Callable[[Sequence[Any]], bool]
    ) -> tuple[np.ndarray, Vocabulary | None] | None:
        """Return (n,) rows of ids, and the vocabulary that has them all, None where rows are ids; None for no answer.

        Args:
            past: what the ids come after; new ones are remembered once it has them.
            ids: of the type of the past's.
            fit: whether some may be ids; there is no answer where they may not.
        """
        if past.node_ids is None:
            rows = np.array(ids)
            inside = rows.dtype == np.int64 and rows.min() >= 0 and rows.max() < past.num_nodes
            return (rows, None) if inside else own_rows(rows) if fit(ids) else None
        self._stand(past.node_ids)
        found, all_ids = list(map(self._rows.get, ids)), past.node_ids
        if None in found:
            missing = [k for k, row in enumerate(found) if row is None]
            other = dict.fromkeys(ids[k] for k in missing)
            if not fit(list(other)):
                return None
            all_ids = self._look_up(other, past.node_ids)
            for k in missing:
                found[k] = other[ids[k]]
        return np.array(found, np.int64), all_ids

    def _look_up(self, other: dict[Any, Any], vocabulary: Vocabulary) -> Vocabulary:
        """Find the rows of ids that are not remembered; return the vocabulary with those that are new."""
        fresh = list(other)
        if self._base is not None:
            other |= zip(fresh, self._base.rows(fresh).tolist(), strict=True)
            fresh = [one for one, row in other.items() if row < 0]
            if len(self._rows) < MOST:
                self._rows |= {one: row for one, row in other.items() if row >= 0}
        other |= zip(fresh, range(len(vocabulary), len(vocabulary) + len(fresh)), strict=True)
        return vocabulary.followed_by(fresh)

    def _stand(self, vocabulary: Vocabulary) -> None:
        """Go on to a vocabulary; one that does not follow the last begins anew."""
        if vocabulary is self._seen:
            return
        if self._seen is not None and vocabulary.is_of(self._seen):
            first = len(self._seen)
            self._rows |= zip(
                vocabulary.take(np.arange(first, len(vocabulary))).tolist(), range(first, len(vocabulary)), strict=True
            )
        else:
            is_small = len(vocabulary) <= MOST
            self._base = None if is_small else vocabulary
            self._rows = dict(zip(vocabulary.ids.tolist(), range(len(vocabulary)))) if is_small else {}
        self._seen = vocabulary


def own_rows(ids: np.ndarray) -> tuple[np.ndarray, Vocabulary | None]:
    """Return (n,) rows of ids in a vocabulary of their own, and that; None where rows are ids."""
    names, rows = np.unique(ids, return_inverse=True)
    is_rows = names.dtype.kind == "i" and np.array_equal(names, np.arange(len(names)))
    return rows, None if is_rows else Vocabulary(names)
