# mypy: ignore-errors
"""Compiled loops of `id_table`: ids as words of eight bytes, found by a hash, told apart by the words.

Indexes are unsigned, which saves the compiler asking whether they count from the end. Imported on first use.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_BLOCK = 256  # ids whose places are asked for together, so that memory answers several at a time
_ONE, _EIGHT = np.uint64(1), np.uint64(8)
_HIGH, _LOW = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def pack(data, offsets, words, starts):
    """Write texts, which hold no NUL, as words with zeros after their end.

    Args:
        data: (B,) uint8.
        offsets: (n + 1,) where each begins in data.
        words: (W,) uint64, of which each takes as many as it needs.
        starts: (n + 1,) uint64 where each begins in words.
    """
    to = np.uint64(0)
    starts[0] = to
    for i in range(len(offsets) - 1):
        at, stop = np.uint64(offsets[i]), np.uint64(offsets[i + 1])
        while at < stop:
            many = min(stop - at, _EIGHT)
            word = np.uint64(0)
            if many == _EIGHT:
                for k in range(8):
                    word |= np.uint64(data[at + np.uint64(k)]) << np.uint64(8 * k)
            else:
                for k in range(many):
                    word |= np.uint64(data[at + np.uint64(k)]) << np.uint64(8 * k)
            words[to] = word
            to += _ONE
            at += many
        starts[i + 1] = to


@njit(cache=True, nogil=True)
def hash_words(words, starts, count, hashes):
    """Write 64 bits of each run of words."""
    for i in range(count):
        found = np.uint64(0x9E3779B97F4A7C15)
        at = starts[i]
        while at < starts[i + 1]:
            found = (found ^ words[at]) * np.uint64(0xBF58476D1CE4E5B9)
            found ^= found >> np.uint64(32)
            at += _ONE
        found *= np.uint64(0x94D049BB133111EB)
        hashes[i] = found ^ (found >> np.uint64(29))


@njit(cache=True, nogil=True, inline="always")
def _same(words, start, stop, kept, begin, end):
    if stop - start != end - begin:
        return False
    while start < stop:
        if words[start] != kept[begin]:
            return False
        start += _ONE
        begin += _ONE
    return True


@njit(cache=True, nogil=True)
def _slot(words, start, stop, hashed, slots, kept, begins):
    """Return the slot of an id, or the empty one that it is to have."""
    mask, none = np.uint64(len(slots) - 1), np.uint64(0)
    slot = hashed & mask
    while slots[slot] != none:
        place = slots[slot] & _LOW
        alike = (slots[slot] ^ hashed) & _HIGH == none
        if alike and _same(words, start, stop, kept, begins[place - _ONE], begins[place]):
            break
        slot = (slot + _ONE) & mask
    return slot


@njit(cache=True, nogil=True)
def _keep(words, start, stop, kept, to):
    """Write the words of an id after those that are kept; return where they end."""
    while start < stop:
        kept[to] = words[start]
        start += _ONE
        to += _ONE
    return to


@njit(cache=True, nogil=True)
def enter(words, starts, hashes, slots, kept, begins, count, codes, fresh):
    """Write the code of each id, and where the new ones come first; return how many there are then.

    A slot holds the upper half of the hash and, below, the code and 1; 0 is none. There is room for all.

    Args:
        words, starts, hashes: of n ids.
        slots: the table, a power of two of uint64.
        kept, begins: words of known ids by code, and where each begins.
        count: known ids.
        codes: (n,) int32.
        fresh: (n,) int64; the places of new ids, in the order of their codes.
    """
    mask, none, before = np.uint64(len(slots) - 1), np.uint64(0), count
    places, heads = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64)
    for first in range(0, len(codes), _BLOCK):
        many = min(_BLOCK, len(codes) - first)
        for i in range(many):
            hashed = hashes[first + i]
            entry = slots[hashed & mask]
            if entry != none and (entry ^ hashed) & _HIGH != none:
                entry = slots[(hashed + _ONE) & mask]
            places[i] = entry & _LOW if (entry ^ hashed) & _HIGH == none else none
        for i in range(many):
            heads[i] = kept[begins[max(places[i], _ONE) - _ONE]]
        for i in range(many):
            at, place = first + i, places[i]
            found = place != none and heads[i] == words[starts[at]]
            if found:
                found = _same(words, starts[at], starts[at + 1], kept, begins[place - _ONE], begins[place])
            codes[at] = np.int64(place) - 1 if found else -1
        for at in range(first, first + many):
            if codes[at] < 0:
                slot = _slot(words, starts[at], starts[at + 1], hashes[at], slots, kept, begins)
                if slots[slot] == none:
                    fresh[count - before] = at
                    begins[count + 1] = _keep(words, starts[at], starts[at + 1], kept, begins[count])
                    count += 1
                    slots[slot] = (hashes[at] & _HIGH) | np.uint64(count)
                codes[at] = np.int64(slots[slot] & _LOW) - 1
    return count


@njit(cache=True, nogil=True)
def fill(hashes, count, slots):
    """Enter ids that are all different into an empty table."""
    mask = np.uint64(len(slots) - 1)
    for code in range(count):
        slot = hashes[code] & mask
        while slots[slot] != np.uint64(0):
            slot = (slot + _ONE) & mask
        slots[slot] = (hashes[code] & _HIGH) | np.uint64(code + 1)
