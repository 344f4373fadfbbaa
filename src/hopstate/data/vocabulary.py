"""Two-way map between a user's ids (strings or integers) and the row numbers 0..n-1 that everything else uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hopstate.errors import DataError, nearest

if TYPE_CHECKING:
    import pandas as pd

_PIECE = 1 << 20  # ids compared together
FEW = 32  # ids that are looked up one by one: to make an array of texts of pandas' takes as long as a hundred


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The user's ids in row order; ids are unique and all of one kind (int64 or str).

    Args:
        ids: shape (n,), integers or strings; ids[row] is the user's own id of that row. May be memory-mapped.

    Raises:
        DataError: ids of another kind, or one that stands more than once.
    """

    ids: np.ndarray

    def __post_init__(self) -> None:
        ids = np.asarray(self.ids)
        if ids.ndim != 1 or ids.dtype.kind not in "iuUOT":
            raise DataError(f"ids are a vector of integers or strings; got {ids.dtype} of shape {ids.shape}")
        if ids.dtype.kind in "OT":
            ids = ids.astype(str)
        if ids.dtype.kind == "u" and ids.max(initial=0) > np.iinfo(np.int64).max:
            raise DataError(f"id {ids.max()} is beyond 2^63 - 1; give such ids as strings")
        object.__setattr__(self, "ids", ids if ids.dtype.kind == "U" else ids.astype(np.int64, copy=False))
        if not _rising(self.ids) and not self._index.is_unique:
            again = self._index[self._index.duplicated()][0]
            raise DataError(f"id {str(again)!r} stands more than once; ids must be unique")

    @cached_property
    def _index(self) -> pd.Index:
        """A hash table from id to row."""
        import pandas as pd

        return pd.Index(self.ids)

    @classmethod
    def of(cls, *columns: np.ndarray) -> Vocabulary:
        """Collect the distinct ids of columns, in sorted order."""
        return cls(np.unique(np.concatenate([np.asarray(c) for c in columns])))

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def row(self, key: Any) -> int:
        """Return the row of one id.

        Raises:
            DataError: the id is unknown; the nearest known id is suggested.
        """
        row = int(self.rows([key])[0])
        if row < 0:
            raise DataError(f"unknown id {key!r}{nearest(str(key), map(str, self.ids[:10000].tolist()))}")
        return row

    def rows(self, keys: Sequence[Any] | np.ndarray) -> np.ndarray:
        """Return int64 rows of many ids, -1 where an id is unknown."""
        import pandas as pd

        keys = np.asarray(keys)
        if len(keys) <= FEW and keys.dtype.kind == self.ids.dtype.kind:
            return np.array([self._row(key) for key in keys.tolist()], np.int64)
        return self._index.get_indexer(pd.Index(keys)).astype(np.int64, copy=False)

    def _row(self, key: int | str) -> int:
        try:
            return cast(int, self._index.get_loc(key))  # ids are unique, so that it is no slice
        except KeyError:
            return -1

    def names(self, rows: np.ndarray) -> np.ndarray:
        """Return the user's ids of the given rows."""
        return self.ids[rows]

    def grown(self, new: Iterable[Any]) -> Vocabulary:
        """Return a vocabulary with unseen ids of new appended in order of first appearance."""
        keys = list(dict.fromkeys(new))
        return self.followed_by(
            [key for key, row in zip(keys, self.rows(keys), strict=True) if row < 0] if keys else []
        )

    def followed_by(self, fresh: Sequence[Any]) -> Vocabulary:
        """Return a vocabulary with ids appended, of which each is new and stands once."""
        if not len(fresh):
            return self
        ids = np.concatenate([self.ids, np.asarray(fresh)])
        if ids.dtype.kind != self.ids.dtype.kind:
            return Vocabulary(ids)
        made = object.__new__(Vocabulary)  # what is unique is not looked through once more
        object.__setattr__(made, "ids", ids)
        object.__setattr__(made, "_from", self._mark)
        return made

    def is_of(self, other: Vocabulary | None) -> bool:
        """Return whether this is another vocabulary or that with ids appended once: rows there are rows here."""
        return other is not None and (self is other or self.__dict__.get("_from") is other._mark)

    @cached_property
    def _mark(self) -> object:
        """Tells it from all others; a copy has another."""
        return object()


def _rising(ids: np.ndarray) -> bool:
    """Return whether each id is above the one before it, as prepared ones are: no table need tell that none is twice.

    A table of ten million texts takes over a gigabyte, and training asks for none.
    """
    last = len(ids) - 1
    starts = range(0, last, _PIECE)
    return all((ids[i + 1 : i + 1 + _PIECE] > ids[i : min(i + _PIECE, last)]).all() for i in starts)
