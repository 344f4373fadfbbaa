"""A piece's cells to numbers: codes of ids, times, labels, features; bad rows apart.

What a column holds is known only once all of it was read: so each piece tells what its own cells may be, as facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.dates import DAY_OR_MONTH, UNGUESSED, zone_of
from hopstate.data.prepare.layout import Columns, Layout
from hopstate.data.prepare.numbering import Numbering
from hopstate.data.prepare.piece_ids import check_words, id_facts, ids_of, no_id
from hopstate.data.prepare.pieces import Bad, Piece
from hopstate.data.prepare.times import times_of
from hopstate.data.readers.ids import MISSING
from hopstate.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_WORDS = 10_000  # different texts of labels in a piece
_LARGEST = float(np.finfo(np.float32).max)


@dataclass
class Staged:
    """What is kept of a piece.

    Args:
        columns: src and dst (n,) int32 codes of ids, t, label, f0, f1, ...
        facts: what the cells may be, as JSON holds it.
        bad: rows that were left out.
    """

    columns: dict[str, np.ndarray]
    facts: dict[str, Any]
    bad: list[Bad]


def staged(layout: Layout, columns: Columns, piece: Piece, numbering: Numbering) -> Staged:
    """Return a piece's cells as numbers, and the rows that cannot be read apart; numbering gives ids their codes."""
    import pyarrow as pa

    table, reasons = piece.table, np.zeros(len(piece.rows), object)
    ends = [ids_of(table[name], f"{layout.path}: column {name!r}") for name in (columns.source, columns.target)]
    for name, values in zip((columns.source, columns.target), ends):
        _mark(reasons, no_id(values), f"no usable id in column {name!r}")
        check_words(values, f"{layout.path}: ", name, lambda row: f"row {layout.line(int(piece.rows[row]))}")
    t: np.ndarray | None = None
    facts: dict[str, Any] = {}
    if columns.time is not None:
        t, unusable, facts = times_of(table[columns.time], columns.time, layout)
        why = f"no usable time in column {columns.time!r}"
        _mark(reasons, _of_either_order(table[columns.time], unusable), f"{why}: the {UNGUESSED}")
        _mark(reasons, unusable, why)
    most = np.inf if t is None else _LARGEST  # the table of a graph's edges keeps what float32 has no room for
    features = []
    for name in columns.features:
        values, absent = numbers_of(table[name])
        _mark(reasons, absent | ~(np.abs(values) <= most), f"no number in column {name!r}")
        features.append(values)
    good = reasons == 0
    kept = pa.array(good)
    found, told = _coded([values.filter(kept) for values in ends], numbering, typed=layout.text is None)
    facts |= {**told, "count": int(good.sum())}
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
    return Staged(found, facts | ({"first_bad": bad[0]} if bad else {}), bad)


def _coded(ends: list[pa.Array], numbering: Numbering, *, typed: bool) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return codes of the ids of both ends, and what the ids may be."""
    import pyarrow as pa

    alike = ends[0].type == ends[1].type  # else numbers beside texts, which are told apart as texts
    found: dict[str, np.ndarray] = {}
    facts, generations = [], []
    for side, (name, ids) in enumerate(zip(("src", "dst"), ends)):
        own = None if typed else ids.dictionary_encode()
        ids = ids if own is None else own.dictionary
        facts.append(id_facts(ids, typed=typed))
        codes, generation = numbering.codes(side, ids if alike else ids.cast(pa.string()))
        found[name] = codes if own is None else codes[own.indices.to_numpy(zero_copy_only=False)]
        generations.append(generation)
    return found, {"ids": facts, "generations": generations}


def _of_either_order(column: pa.ChunkedArray, unusable: np.ndarray) -> np.ndarray:
    """Return (n,) which unusable times are dates whose order of day and month nothing tells."""
    import pyarrow.types as types

    found, rows = np.zeros(len(unusable), bool), np.flatnonzero(unusable)
    if len(rows) and types.is_string(column.type):
        found[rows] = column.take(rows).to_pandas().str.match(DAY_OR_MONTH).eq(True)
    return found


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
        return values, {
            "label": "integer", "label_type": kind, "unlabelled": absent,
            "minus": int((values == -1).sum()) - absent,
        }  # fmt: skip
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
