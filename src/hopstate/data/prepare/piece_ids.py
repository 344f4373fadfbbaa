"""Ids of a piece: whole numbers or texts, as `hopstate.data.readers.ids` has them in memory.

A file of text does not say which they are, so that each piece tells what its own may be; a typed one (Parquet) does:
its texts are texts, also where all of them look like numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.readers.ids import EXACT, MISSING, NO_ID, no_id_but
from hopstate.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_WHOLE = r"^[+-]?[0-9]+(\.0*)?$"
_BELOW = r"^-0*[1-9][0-9]*(\.0*)?$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_STARTS = np.isin(np.arange(256), np.frombuffer(b"+-.0123456789", np.uint8))  # by byte
COUNTS = ("count", "numbers", "zeros", "odd", "fractions")


def ids_of(column: pa.ChunkedArray, what: str) -> pa.Array:
    """Return a column of ids as one array of int64 or of texts without spaces around them.

    Numbers that no id is are null: fractions, those beyond 2^53 among fractions, and those beyond int64.

    Args:
        column: (n,) whatever the file has.
        what: how messages call it.

    Raises:
        DataError: a type that gives no ids that are read back as they are.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_floating(kind):
        numbers = pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy()
        good = (np.abs(numbers) < EXACT) & (numbers == np.floor(numbers))
        return pa.array(np.where(good, numbers, 0).astype(np.int64), mask=~good)
    if types.is_integer(kind):
        if types.is_uint64(kind):
            most = pa.scalar(np.iinfo(np.int64).max, kind)
            column = pc.if_else(pc.less_equal(column, most), column, pa.scalar(None, kind))
        return _whole(column.cast(pa.int64()))
    if types.is_boolean(kind):
        return _whole(pc.if_else(column, "True", "False"))
    if (types.is_temporal(kind) and not types.is_date(kind)) or types.is_binary(kind) or types.is_large_binary(kind):
        raise DataError(f"{what} holds {kind}, which is no id; write texts or whole numbers")
    return _whole(pc.utf8_trim_whitespace(column if types.is_string(kind) else column.cast(pa.string())))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def no_id(values: pa.Array) -> np.ndarray:
    """Return (n,) where there is none, or one with the end of a line in it."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    absent = values.is_null()
    if not types.is_integer(values.type):
        absent = pc.or_(absent, pc.equal(values, ""))
        if np.isin(_bytes(values), np.frombuffer(b"\r\n\0", np.uint8)).any():
            absent = pc.or_(absent, pc.match_substring_regex(values, r"[\r\n\x00]"))
    return pc.fill_null(absent, True).to_numpy(zero_copy_only=False)


def check_words(values: pa.Array, where: str, column: str, place: Callable[[int], str]) -> None:
    """Check that no id is a word for nothing; arguments as `hopstate.data.readers.ids.no_id_but` has them.

    Raises:
        DataError: one is; its row is named.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    if types.is_integer(values.type):
        return
    row = pc.index(pc.is_in(values, pa.array(NO_ID, values.type)), True).as_py()
    if row >= 0:
        raise no_id_but(where, values[row].as_py(), column, place(row))


def _bytes(texts: pa.Array) -> np.ndarray:
    """Return the bytes of texts, of those beside a slice too: no byte of a longer character is one of ASCII."""
    data = texts.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _like_numbers(ids: pa.Array) -> bool:
    """Return whether a text begins as a number does; None and empty texts are taken for their neighbour."""
    if not len(ids):
        return False
    starts = np.frombuffer(ids.buffers()[1], np.int32)[ids.offset : ids.offset + len(ids)]
    data = _bytes(ids)
    first = data[np.minimum(starts, max(len(data) - 1, 0))] if len(data) else data
    return bool(_STARTS[first].any())


def id_facts(ids: pa.Array, *, typed: bool) -> dict[str, Any]:
    """Return what distinct ids may be: how many are whole numbers and so on (`COUNTS`), and one that is negative.

    Args:
        ids: distinct, int64 or texts.
        typed: the file says that they are texts, or numbers.
    """
    import pyarrow.compute as pc
    import pyarrow.types as types

    if types.is_integer(ids.type):
        least = pc.min(ids).as_py() or 0
        return {"kind": "integer", "negative": str(least) if least < 0 else "", "count": len(ids)}
    facts: dict[str, Any] = {"kind": "text", **dict.fromkeys(COUNTS, 0), "count": len(ids), "negative": ""}
    if typed:
        return facts
    if not _like_numbers(ids):
        return facts | {"odd": _odd(ids)}
    whole = pc.match_substring_regex(ids, _WHOLE)
    numbers = pc.and_(whole, pc.invert(pc.match_substring_regex(ids, r"^[+-]?0[0-9]")))
    rest = ids.filter(pc.invert(whole))
    some = {"numbers": numbers, "zeros": pc.xor(whole, numbers)}
    some |= {"fractions": pc.match_substring_regex(rest, _NUMBER)}
    below = ids.filter(pc.match_substring_regex(ids, _BELOW))[:1].to_pylist()
    counts = {name: int(pc.sum(which).as_py() or 0) for name, which in some.items()}
    return facts | counts | {"odd": _odd(rest), "negative": below[0] if below else ""}


def _odd(ids: pa.Array) -> int:
    return sum(one in MISSING or one[0] in "#%" for one in ids[:1000].to_pylist())
