"""Two-way map between a user's ids (strings or integers) and the row numbers 0..n-1 that everything else uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hopstate.errors import DataError, nearest


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The user's ids in row order; ids are unique and all of one kind (int64 or str).

    Args:
        ids: shape (n,), int64 or unicode/object strings; ids[row] is the user's own id of that row.
    """

    ids: np.ndarray
    _rows: dict[Any, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", {key: row for row, key in enumerate(self.ids.tolist())})
        if len(self._rows) != len(self.ids):
            values, counts = np.unique(self.ids, return_counts=True)
            raise DataError(f"id {values[counts > 1][0]!r} stands more than once; ids must be unique")

    @classmethod
    def of(cls, *columns: np.ndarray) -> Vocabulary:
        """Collect the distinct ids of columns, in sorted order."""
        return cls(np.unique(np.concatenate([np.asarray(c) for c in columns])))

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def row(self, key: Any) -> int:
        """Return the row of one id.

        Raises:
            DataError: the id is unknown; the nearest known id is suggested.
        """
        try:
            return self._rows[key]
        except KeyError:
            raise DataError(f"unknown id {key!r}{nearest(str(key), map(str, self.ids[:10000].tolist()))}") from None

    def rows(self, keys: Sequence[Any] | np.ndarray) -> np.ndarray:
        """Return int64 rows of many ids, -1 where an id is unknown."""
        get = self._rows.get
        return np.fromiter((get(key, -1) for key in np.asarray(keys).tolist()), np.int64, len(keys))

    def names(self, rows: np.ndarray) -> np.ndarray:
        """Return the user's ids of the given rows."""
        return self.ids[rows]

    def grown(self, new: Iterable[Any]) -> Vocabulary:
        """Return a vocabulary with unseen ids of new appended in order of first appearance."""
        fresh = [key for key in dict.fromkeys(new) if key not in self._rows]
        return self if not fresh else Vocabulary(np.concatenate([self.ids, np.asarray(fresh)]))
