"""Two-way map between a user's ids (strings or integers) and the row numbers 0..n-1 that everything else uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.errors import DataError, nearest
from hopstate.io.scratch import row_blocks

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 1000  # bytes of an id
_SHARE = 10  # part of the ids from which on it is faster to make a new table than to keep one
PRINTED = bytes(range(33, 127))  # signs of ASCII without white space
TEXT = np.dtypes.StringDType()  # of arrays of ids: as wide as each text


class _Ids:
    """Ids by row: some in an array, and those that were added after them in a list."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.added: list[Any] = []
        self.row_of: dict[Any, int] = {}  # of the added ones

    def __len__(self) -> int:
        return len(self.array) + len(self.added)

    def add(self, ids: list[Any]) -> None:
        self.row_of.update(zip(ids, range(len(self), len(self) + len(ids))))
        self.added += ids

    @cached_property
    def is_sorted(self) -> bool:
        """Whether each id of the array is above the one before it, as in those collected from columns."""
        import pyarrow.compute as pc

        ids, last = self.array, len(self.array) - 1
        if not isinstance(ids, np.ndarray):
            return bool(last < 1 or pc.all(pc.greater(ids.slice(1), ids.slice(0, last))).as_py())
        return all((block[1:] > block[:-1]).all() for _, block in row_blocks(ids, overlap=1))

    @cached_property
    def index(self) -> pd.Index:
        """A hash table from text to row. Of objects: of texts, each look-up would copy all of them."""
        import pandas as pd

        return pd.Index(self.array.to_numpy(zero_copy_only=False), dtype=np.dtype(object))

    @cached_property
    def sorted(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The integers in sorted order, and their rows if those differ."""
        if self.is_sorted:
            return self.array, None
        order = np.argsort(self.array, kind="stable")
        return self.array[order], order

    def rows_of_texts(self, keys: Any) -> np.ndarray:
        import pyarrow.compute as pc

        if len(keys) * _SHARE > len(self.array):  # a table of all ids is made and dropped
            found = pc.index_in(as_texts(keys), value_set=self.array)
            return found.fill_null(-1).to_numpy().astype(np.int64)
        import pandas as pd

        return self.index.get_indexer(pd.Index(keys.tolist(), dtype=np.dtype(object))).astype(np.int64)

    def rows_of_integers(self, keys: np.ndarray) -> np.ndarray:
        ids, order = self.sorted
        place = np.minimum(np.searchsorted(ids, keys), len(ids) - 1)
        found = place if order is None else order[place]
        return np.where(ids[place] == keys, found, -1)


class Vocabulary:
    """The user's ids in row order; ids are unique and all of one kind (int64 or str).

    Texts are a string array of pyarrow (offsets and bytes), so that one long id does not widen the others. A vocabulary
    that grew from another shares its ids, so that adding ids costs only their number.

    Args:
        ids: shape (n,), integers or strings; ids[row] is the user's own id of that row. May be memory-mapped.

    Raises:
        DataError: ids of another kind, one that occurs more than once, or a text of more than `LONGEST` bytes.
    """

    def __init__(self, ids: Any) -> None:
        self._shared = _Ids(ids_array(ids))
        self._size = len(self._shared)
        if self._shared.is_sorted:
            return
        repeated = _repeated(self._shared.array)
        if repeated is not None:
            raise DataError(f"id {repeated!r} occurs more than once; ids must be unique")

    @classmethod
    def of(cls, *columns: Any) -> Vocabulary:
        """Collect the distinct ids of columns, in sorted order."""
        import pyarrow as pa
        import pyarrow.compute as pc

        arrays = [ids_array(column) for column in columns]
        if all(isinstance(array, np.ndarray) for array in arrays):
            return cls(np.sort(pc.unique(pa.array(np.concatenate(arrays))).to_numpy()))
        distinct = pc.unique(pa.concat_arrays([as_texts(array) for array in arrays]))
        return cls(distinct.take(pc.array_sort_indices(distinct)))

    @classmethod
    def from_parts(cls, offsets: np.ndarray, data: np.ndarray) -> Vocabulary:
        """Return the vocabulary of texts whose `parts` these are; memory-mapped arrays stay so.

        Raises:
            DataError: they are damaged.
        """
        import pyarrow as pa

        if offsets.dtype != np.int64 or data.dtype != np.uint8 or offsets.ndim != 1 or not len(offsets):
            raise DataError("node ids are damaged: offsets and bytes are of another type")
        try:
            texts = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
            texts.validate(full=True)
        except pa.ArrowInvalid as error:
            raise DataError(f"node ids are damaged: {error}") from None
        return cls(texts)

    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (n + 1,) int64 offsets and (bytes,) uint8 of the texts."""
        import pyarrow as pa

        texts = self._array if not self._array.offset else pa.concat_arrays([self._array])
        _, offsets, data = texts.buffers()
        bounds = np.frombuffer(offsets, np.int64)[: len(texts) + 1] if offsets is not None else np.zeros(1, np.int64)
        return bounds, np.frombuffer(data or b"", np.uint8)[: int(bounds[-1])]

    @cached_property
    def _array(self) -> Any:
        """All ids: int64, or a string array of pyarrow."""
        added = self._shared.added[: self._size - len(self._shared.array)]
        return _joined(self._shared.array, ids_array(added)) if added else self._shared.array

    @property
    def is_text(self) -> bool:
        """Whether ids are texts."""
        return not isinstance(self._shared.array, np.ndarray)

    @property
    def is_rows(self) -> bool:
        """Whether the ids are 0, 1, ..., n-1, so that each is its own row."""
        return not self.is_text and np.array_equal(self._array, np.arange(len(self)))

    @property
    def ids(self) -> np.ndarray:
        """All ids in row order, int64 or objects; texts are copied on each call."""
        return self._array.to_numpy(zero_copy_only=False) if self.is_text else self._array

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: object) -> bool:
        return bool(self.rows([key])[0] >= 0)

    def __getstate__(self) -> dict[str, Any]:
        return {"_shared": _Ids(self._array), "_size": self._size}

    def row(self, key: Any) -> int:
        """Return the row of one id.

        Raises:
            DataError: the id is unknown; the nearest known id is suggested.
        """
        row = int(self.rows([key])[0])
        if row < 0:
            raise self.unknown(key)
        return row

    def unknown(self, key: Any) -> DataError:
        """Return the error about an id that is unknown, with the nearest known id or examples."""
        known = self.first()
        hint = nearest(str(key), known) or (f"; known are {', '.join(map(repr, known[:3]))}, ..." if known else "")
        return DataError(f"unknown id {key!r}{hint}")

    def require_rows(self, *columns: Any) -> list[np.ndarray]:
        """Return the rows of columns of ids; raise a DataError, as `row` does, for one that is unknown."""
        found = [self.rows(ids) for ids in columns]
        for ids, rows in zip(columns, found, strict=True):
            if (rows < 0).any():
                self.row(ids[int(np.argmax(rows < 0))])
        return found

    def first(self, count: int = 10_000) -> list[str]:
        """Return the first ids as texts, for messages."""
        return [str(name) for name in self._array[:count].tolist()]

    def rows(self, keys: Any) -> np.ndarray:
        """Return int64 rows of ids, -1 for an id that is unknown."""
        if not hasattr(keys, "type"):  # not an array of pyarrow
            keys = _as_array(keys)
            if keys.ndim != 1:
                return self.rows(keys.reshape(-1)).reshape(keys.shape)
        text = not isinstance(keys, np.ndarray) or keys.dtype.kind in "UTO"
        rows = np.full(len(keys), -1, np.int64)
        if self.is_text != text or not len(self) or not len(keys):
            return rows
        if len(self._shared.array):
            rows = self._shared.rows_of_texts(keys) if text else self._shared.rows_of_integers(keys)
        if self._shared.added:
            missing = np.flatnonzero(rows < 0)
            for place, key in zip(missing.tolist(), keys.take(missing).tolist(), strict=True):
                row = self._shared.row_of.get(str(key) if text else key, -1)
                rows[place] = row if row < self._size else -1  # others share the ids and have added more
        return rows

    def names(self, rows: np.ndarray) -> np.ndarray:
        """Return the user's ids of the given rows, of any shape, as int64 or objects."""
        if np.ndim(rows) > 1:
            return self.names(np.reshape(rows, -1)).reshape(np.shape(rows))
        selected = self.take(rows)
        return selected.to_numpy(zero_copy_only=False) if self.is_text else selected

    def take(self, rows: np.ndarray) -> Any:
        """Return the user's ids of the given rows, as int64 or as a string array of pyarrow."""
        rows, count = np.asarray(rows, np.int64), len(self._shared.array)
        if not self._shared.added or rows.max(initial=-1) < count:
            return self._shared.array[rows] if not self.is_text else self._shared.array.take(rows)
        added = ids_array([self._shared.added[row - count] for row in rows[rows >= count].tolist()])
        both = _joined(self._shared.array.take(rows[rows < count]), added)
        order = np.argsort(np.argsort(rows >= count, kind="stable"), kind="stable")
        return both.take(order)

    def grown(self, keys: Any) -> tuple[Vocabulary, np.ndarray]:
        """Return a vocabulary with unseen ids of keys (n,) appended as they first appear, and the keys' rows in it."""
        keys = _as_array(keys)
        rows = self.rows(keys)
        missing = np.flatnonzero(rows < 0)
        if not len(missing):
            return self, rows
        vocabulary = self.followed_by(list(dict.fromkeys(keys[missing].tolist())))
        rows[missing] = vocabulary.rows(keys[missing])
        return vocabulary, rows

    def followed_by(self, fresh: Sequence[Any]) -> Vocabulary:
        """Return a vocabulary with ids appended, of which each is new and occurs once."""
        if not len(fresh):
            return self
        added = ids_array(fresh)
        if isinstance(added, np.ndarray) == self.is_text:
            return Vocabulary(_joined(self._array, added))
        vocabulary = object.__new__(Vocabulary)  # ids that are unique are not checked again
        vocabulary._shared = self._shared if len(self._shared) == self._size else _Ids(self._array)
        vocabulary._shared.add(added.tolist())
        vocabulary._size = len(vocabulary._shared)
        return vocabulary

    def is_of(self, other: Vocabulary | None) -> bool:
        """Return whether this is another vocabulary or that with ids appended: rows there are rows here."""
        return other is not None and self._shared is other._shared and other._size <= self._size


def ids_array(ids: Any) -> Any:
    """Return ids as an int64 array, or as a large string array of pyarrow.

    Raises:
        DataError: ids of another kind, beyond 64 bits, or a text that is too long or broken; its row is named.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(ids, (pa.Array, pa.ChunkedArray)):
        ids = _as_array(ids)
        if ids.ndim != 1 or ids.dtype.kind not in "iuUOT":
            raise DataError(f"ids are a vector of integers or strings; got {ids.dtype} of shape {ids.shape}")
        if ids.dtype.kind == "u" and ids.max(initial=0) > np.iinfo(np.int64).max:
            raise DataError(f"id {ids.max()} is beyond 2^63 - 1; give such ids as strings")
        if ids.dtype.kind in "iu":
            return ids.astype(np.int64, copy=False)
    texts = as_texts(ids)
    for wrong, what, remedy in unusable_ids(texts):
        row = pc.index(wrong, True).as_py()
        if row >= 0:
            raise DataError(f"{what}: got {texts[row].as_py()[:40]!r} in row {row}. {remedy}")
    return texts


def _as_array(ids: Any) -> np.ndarray:
    """Return ids as an array; a list of texts as objects, because one long text would widen all others."""
    return np.array(ids, object) if isinstance(ids, list) and ids and isinstance(ids[0], str) else np.asarray(ids)


def unusable_ids(texts: Any) -> Iterator[tuple[Any, str, str]]:
    """Yield which texts cannot be ids, what is wrong with them, and what to do."""
    import pyarrow.compute as pc

    if not consist_of(texts, PRINTED):
        yield pc.match_substring(texts, "\0"), "an id with a NUL in it", "Remove it."
        yield pc.match_substring(texts, "\ufeff"), "an id with a byte-order mark in it", "Remove it."
    yield pc.greater(pc.binary_length(texts), LONGEST), f"an id of over {LONGEST:,} bytes", "Shorten it."


def consist_of(texts: Any, signs: bytes) -> bool:
    """Return whether texts of pyarrow hold no other bytes than some: a look at all of their memory."""
    chunks = texts.chunks if hasattr(texts, "chunks") else [texts]
    return not any(bytes(chunk.buffers()[2] or b"").translate(None, signs) for chunk in chunks)


def count_shared(first: Any, second: Any) -> int:
    """Return how many distinct ids are in both of two columns; none if one holds texts and the other integers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first, second = ids_array(first), ids_array(second)
    if isinstance(first, np.ndarray) != isinstance(second, np.ndarray):
        return 0
    one, other = (pc.unique(pa.array(ids)) for ids in (first, second))
    return int(pc.sum(pc.is_in(one, value_set=other)).as_py() or 0)


def as_texts(ids: Any) -> Any:
    """Return ids as a large string array of pyarrow."""
    import pyarrow as pa

    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if isinstance(ids, pa.Array):
        return ids if ids.type == pa.large_string() else ids.cast(pa.large_string())
    try:
        return pa.array([str(name) for name in ids.tolist()], pa.large_string())
    except UnicodeError as error:
        raise DataError(f"an id holds half of a character (a lone surrogate): {error}") from None


def _joined(ids: Any, added: Any) -> Any:
    import pyarrow as pa

    if isinstance(ids, np.ndarray) and isinstance(added, np.ndarray):
        return np.concatenate([ids, added])
    return pa.concat_arrays([as_texts(ids), as_texts(added)])


def _repeated(ids: Any) -> int | str | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    array = pa.array(ids) if isinstance(ids, np.ndarray) else ids
    if len(pc.unique(array)) == len(array):
        return None
    counts = pc.value_counts(array)
    place = int(np.argmax(counts.field("counts").to_numpy() > 1))
    return counts.field("values")[place].as_py()  # type: ignore[no-any-return]
