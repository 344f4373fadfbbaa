"""A piece's cells to numbers: codes of its own distinct ids, times, labels, features; bad rows apart.

What a column holds is known only once all of it was read: so each piece tells what its own cells may be, as facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.dates import zone_of
from hopstate.data.prepare.layout import Columns, Layout
from hopstate.data.prepare.pieces import Bad, Piece
from hopstate.data.prepare.times import times_of
from hopstate.data.readers.ids import MISSING
from hopstate.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

WHOLE = r"^[+-]?[0-9]+(\.0*)?$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_STARTS = np.isin(np.arange(256), np.frombuffer(b"+-.0123456789", np.uint8))  # by byte
_WORDS = 10_000  # different texts of labels in a piece
_LARGEST = float(np.finfo(np.float32).max)


@dataclass
class Staged:
    """What is kept of a piece.

    Args:
        columns: src and dst (n,) int32 codes of the piece's own ids, t, label, f0, f1, ...
        ids: of the two columns, the distinct ids by code.
        facts: what the cells may be, as JSON holds it.
        bad: rows that were left out.
    """

    columns: dict[str, np.ndarray]
    ids: list[pa.Array]
    facts: dict[str, Any]
    bad: list[Bad]


def staged(layout: Layout, columns: Columns, piece: Piece) -> Staged:
    """Return a piece's cells as numbers, and the rows that cannot be read apart."""
    import pyarrow as pa

    table, reasons = piece.table, np.zeros(len(piece.rows), object)
    ends = [_texts(table[name]) for name in (columns.source, columns.target)]
    for name, values in zip((columns.source, columns.target), ends):
        _mark(reasons, _no_id(values), f"no usable id in column {name!r}")
    t: np.ndarray | None = None
    facts: dict[str, Any] = {}
    if columns.time is not None:
        t, unusable, facts = times_of(table[columns.time], columns.time, layout)
        _mark(reasons, unusable, f"no usable time in column {columns.time!r}")
    most = np.inf if t is None else _LARGEST  # the table of a graph's edges keeps what float32 has no room for
    features = []
    for name in columns.features:
        values, absent = numbers_of(table[name])
        _mark(reasons, absent | ~(np.abs(values) <= most), f"no number in column {name!r}")
        features.append(values)
    good = reasons == 0
    kept = pa.array(good)
    found: dict[str, np.ndarray] = {}
    ids = []
    for name, values in zip(("src", "dst"), ends):
        coded = values.filter(kept).dictionary_encode()
        found[name] = coded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
        ids.append(coded.dictionary)
    facts |= {"ids": [id_facts(one) for one in ids], "count": int(good.sum())}
    if columns.time is not None and t is not None:
        found["t"] = t = t[good]
        facts["sorted"] = bool((t[1:] >= t[:-1]).all())
        if len(t):
            facts |= {"first": t[0].item(), "last": t[-1].item(), "least": t.min().item(), "most": t.max().item()}
        if facts["time"] == "date":
            facts["zone"] = zone_of(table[columns.time].filter(kept).to_pandas())
    found |= {f"f{i}": values[good] for i, values in enumerate(features)}
    with np.errstate(over="ignore"):
        facts["exact"] = all(np.array_equal(v[good].astype(np.float32), v[good]) for v in features)
    if columns.label is not None:
        found["label"], told = labels_of(table[columns.label].filter(kept))
        facts |= told
    bad = sorted([*piece.bad, *_bad(layout, piece, reasons)])
    return Staged(found, ids, facts | ({"first_bad": bad[0]} if bad else {}), bad)


def _mark(reasons: np.ndarray, which: np.ndarray, why: str) -> None:
    reasons[which & (reasons == 0)] = why


def _bad(layout: Layout, piece: Piece, reasons: np.ndarray) -> list[Bad]:
    rows = np.flatnonzero(reasons != 0)
    cells = piece.table.take(rows).to_pylist() if len(rows) else []
    return [
        (
            layout.line(int(piece.rows[row])),
            str(reasons[row]),
            ",".join("" if v is None else str(v) for v in one.values()),
        )
        for row, one in zip(rows.tolist(), cells)
    ]


def _texts(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of ids as one array of int64 or of texts without spaces around them."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    if types.is_floating(column.type) or types.is_integer(column.type):
        column = pc.cast(column, pa.int64())
    elif not types.is_string(column.type):
        column = pc.cast(column, pa.string())
    column = column if types.is_integer(column.type) else pc.utf8_trim_whitespace(column)
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def _no_id(values: pa.Array) -> np.ndarray:
    import pyarrow.compute as pc
    import pyarrow.types as types

    absent = values.is_null()
    if not types.is_integer(values.type):
        absent = pc.or_(absent, pc.equal(values, ""))
        if np.isin(_bytes(values), np.frombuffer(b"\r\n\0", np.uint8)).any():
            absent = pc.or_(absent, pc.match_substring_regex(values, r"[\r\n\x00]"))
    return pc.fill_null(absent, True).to_numpy(zero_copy_only=False)


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


def id_facts(ids: pa.Array) -> dict[str, Any]:
    """Return what distinct ids may be: all whole numbers, none with zeros in front; and how long they are."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    if types.is_integer(ids.type):
        least = pc.min(ids).as_py()
        return {"kind": "integer", "least": 0 if least is None else least, "count": len(ids)}
    longest = pc.max(pc.utf8_length(ids)).as_py() or 0
    if not _like_numbers(ids):
        none = dict.fromkeys(("numbers", "zeros", "fractions"), 0)
        return {"kind": "text", "longest": longest, "count": len(ids), "odd": _odd(ids), **none}
    whole = pc.match_substring_regex(ids, WHOLE)
    numbers = pc.and_(whole, pc.invert(pc.match_substring_regex(ids, r"^[+-]?0[0-9]")))
    facts: dict[str, Any] = {"kind": "text", "longest": longest, "count": len(ids)}
    facts["numbers"] = pc.sum(numbers).as_py() or 0
    rest = ids.filter(pc.invert(whole))
    facts["zeros"] = int(pc.sum(pc.xor(whole, numbers)).as_py() or 0)
    facts["odd"] = _odd(rest)
    facts["fractions"] = int(pc.sum(pc.match_substring_regex(rest, _NUMBER)).as_py() or 0)
    return facts


def _odd(ids: pa.Array) -> int:
    return sum(one in MISSING or one[0] in "#%" for one in ids[:1000].to_pylist())


def numbers_of(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return (n,) float64 of a column, and where there is no number."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    if types.is_string(column.type):
        column = pc.utf8_trim_whitespace(column)
        column = pc.if_else(pc.is_in(column, pa.array(MISSING)), pa.scalar(None, pa.string()), column)
        try:
            column = pc.cast(column, pa.float64())
        except pa.ArrowInvalid:
            values = pd.to_numeric(column.to_pandas(), errors="coerce").to_numpy(np.float64, na_value=np.nan)
            return values, ~np.isfinite(values)
    values = pc.fill_null(pc.cast(column, pa.float64()), np.nan).to_numpy()
    return values, ~np.isfinite(values)


def labels_of(column: pa.ChunkedArray) -> tuple[np.ndarray, dict[str, Any]]:
    """Return labels as numbers, or as codes of words that stand in the facts; -1 and NaN where there is none.

    Raises:
        DataError: too many different texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    kind = "" if types.is_string(column.type) else str(column.to_pandas().dtype)
    if types.is_boolean(column.type):
        column = pc.cast(column, pa.int64())
    if types.is_string(column.type):
        text = pc.utf8_trim_whitespace(column)
        text = pc.if_else(pc.is_in(text, pa.array(MISSING)), pa.scalar(None, pa.string()), text)
        try:
            column = pc.cast(text, pa.int64())
        except pa.ArrowInvalid:
            try:
                column = pc.cast(text, pa.float64())
            except pa.ArrowInvalid:
                return _words(text)
    absent = int(column.null_count)
    if types.is_integer(column.type):
        values = pc.fill_null(pc.cast(column, pa.int64()), -1).to_numpy()
        return values, {"label": "integer", "label_type": kind, "unlabelled": absent}
    values = pc.fill_null(pc.cast(column, pa.float64()), np.nan).to_numpy()
    return values, {"label": "number", "label_type": kind, "unlabelled": int(np.isnan(values).sum())}


def _words(text: pa.ChunkedArray) -> tuple[np.ndarray, dict[str, Any]]:
    import pyarrow.compute as pc

    coded = text.combine_chunks().dictionary_encode() if text.num_chunks != 1 else text.chunk(0).dictionary_encode()
    if len(coded.dictionary) > _WORDS:
        raise DataError(
            f"a column of labels holds over {_WORDS:,} different texts, which are no classes; --read.label_column ''"
        )
    codes = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    words = coded.dictionary.to_pylist()
    counts = np.bincount(codes[codes >= 0], minlength=len(words)).tolist()
    return codes, {"label": "text", "words": words, "word_counts": counts, "unlabelled": int((codes < 0).sum())}
