"""A table in memory of the distinct ids met so far, coded in the order in which they come first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CODES = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Packed:
    """Ids as words of eight bytes; see `hopstate.data.prepare.id_kernels`.

    Args:
        words: (W,) uint64.
        starts: (n + 1,) uint64 where each id begins in words.
        hashes: (n,) uint64.
    """

    words: np.ndarray
    starts: np.ndarray
    hashes: np.ndarray


def packed(ids: pa.Array) -> Packed:
    """Return (n,) int64 or non-empty texts, no null among them, as words."""
    import pyarrow.types as types

    from hopstate.data.prepare.id_kernels import hash_words, pack

    count = len(ids)
    if types.is_integer(ids.type) or not count:
        words = ids.to_numpy().view(np.uint64) if count else np.empty(0, np.uint64)
        starts = np.arange(count + 1, dtype=np.uint64)
    else:
        _, places, data = ids.buffers()
        offsets = np.frombuffer(places, np.int32)[ids.offset : ids.offset + count + 1]
        words = np.empty((int(offsets[-1]) - int(offsets[0])) // 8 + count, np.uint64)
        starts = np.empty(count + 1, np.uint64)
        pack(np.frombuffer(data, np.uint8), offsets, words, starts)
    hashes = np.empty(count, np.uint64)
    hash_words(words, starts, count, hashes)
    return Packed(words, starts, hashes)


class IdTable:
    """An open-addressing table at most half full; ids are told apart by all of their bytes, never by a hash alone."""

    def __init__(self) -> None:
        self.count = 0
        self._slots = np.zeros(1 << 10, np.uint64)
        self._words = np.zeros(1 << 10, np.uint64)
        self._begins = np.zeros(1 << 10, np.uint64)

    def bytes_with(self, ids: Packed) -> int:
        """Return the bytes that the table has once it has room for more ids."""
        return 8 * sum(self._sizes(ids))

    def _sizes(self, ids: Packed) -> tuple[int, int, int]:
        count, words = self.count + len(ids.hashes), int(self._begins[self.count] + ids.starts[-1])
        needed = (2 * count, words, count + 1)
        return tuple(max(len(a), 1 << (n - 1).bit_length()) for a, n in zip(self._arrays(), needed))  # type: ignore[return-value]

    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._slots, self._words, self._begins

    def enter(self, ids: Packed) -> tuple[np.ndarray, np.ndarray]:
        """Return (n,) int32 codes of ids, and the places of those that are new, in the order of their codes."""
        from hopstate.data.prepare.id_kernels import enter

        self._grow(ids)
        codes, fresh = np.empty(len(ids.hashes), np.int32), np.empty(len(ids.hashes), np.int64)
        before = self.count
        self.count = enter(ids.words, ids.starts, ids.hashes, *self._arrays(), before, codes, fresh)
        return codes, fresh[: self.count - before]

    def _grow(self, ids: Packed) -> None:
        from hopstate.data.prepare.id_kernels import fill, hash_words

        slots, words, begins = self._sizes(ids)
        if words > len(self._words):
            self._words = _longer(self._words, int(self._begins[self.count]), words)
        if begins > len(self._begins):
            self._begins = _longer(self._begins, self.count + 1, begins)
        if slots > len(self._slots):
            self._slots = np.zeros(slots, np.uint64)
            hashes = np.empty(self.count, np.uint64)
            hash_words(self._words, self._begins, self.count, hashes)
            fill(hashes, self.count, self._slots)


def _longer(array: np.ndarray, used: int, size: int) -> np.ndarray:
    longer = np.empty(size, array.dtype)
    longer[:used] = array[:used]
    return longer


__all__ = ["MOST_CODES", "IdTable", "Packed", "packed"]
