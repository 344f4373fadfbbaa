"""What the events of a table do: the column that says it, add or delete an edge, or delete a node."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from hopstate.data.events import ADD, DELETE, GONE
from hopstate.data.readers.ids import whole_numbers
from hopstate.data.readers.roles import role
from hopstate.data.readers.tables import Table, is_numeric
from hopstate.errors import DataError

KINDS = ("kind", "op", "operation")
NONE = ""  # in place of a column's name: none
_KIND_WORDS = {"add": ADD, "+": ADD, "insert": ADD, "delete": DELETE, "remove": DELETE, "-": DELETE}
_KIND_WORDS |= {f"{verb}{gap}node": GONE for verb in ("delete", "remove") for gap in "-_ "}


def node_deletions(table: Table, kinds: np.ndarray, source: str, target: str) -> tuple[Table, np.ndarray]:
    """Return the table with the source for the target of events that delete a node, and the kinds that tell those.

    Raises:
        DataError: one names another node as its target.
    """
    values = table.frame[target]
    empty = values.isna().to_numpy() | (values.astype(str).str.strip() == "").to_numpy()
    gone = (kinds == GONE) | ((kinds == DELETE) & empty)
    if not gone.any():
        return table, kinds
    sources = table.frame[source]
    numbers = is_numeric(values) and is_numeric(sources)
    same = (values == sources) if numbers else (values.astype(str) == sources.astype(str))
    other = gone & ~empty & ~same.to_numpy()
    if other.any():
        bad = int(np.argmax(other))
        raise DataError(
            f"{table.path}: {table.place(bad)} deletes node '{sources.iloc[bad]}' but names '{values.iloc[bad]}' in "
            f"column {target!r}; leave that cell empty, or write delete for an edge"
        )
    filled = values.where(~gone, sources)
    if not filled.isna().any() and filled.dtype.kind == "f" and sources.dtype.kind in "iu":
        whole_numbers(filled.to_numpy(), f"{table.path}: id", table.place)  # what an empty cell made a fraction
        filled = filled.astype(np.int64)
    written, own = table.text(target), table.text(source)
    texts = {} if written is None or own is None else {target: written.where(~gone, own)}
    table = replace(table, frame=table.frame.assign(**{target: filled}), filled=texts)
    return table, np.where(gone, GONE, kinds).astype(np.int8)


def kind_column(table: Table, taken: Collection[str]) -> str:
    """Return the column that is called as one of kinds and says some in words; else `NONE`.

    Args:
        table: of events.
        taken: columns that hold something else.

    Raises:
        DataError: several could be it, or it holds codes, which may stand for anything.
    """
    found = role(table, None, KINDS, "kind_column", taken)
    if found is None or not _said_kinds(table, found)[1].any():
        return NONE
    values = table.frame[found]
    if is_numeric(values):
        codes = ", ".join(map(str, sorted(values.dropna().unique().tolist())[:5]))
        raise DataError(
            f"{table.path}: column {found!r} holds codes, {codes}, which may stand for adding and deleting edges or "
            f"for anything else; say which: --read.kind_column {found} (kind_column in Python) reads 0, 1 and 2 as "
            f"add, delete and delete-node, --read.columns '[{found}=category]' takes it as event features, "
            f"'[{found}=drop]' leaves it out"
        )
    return found


def _said_kinds(table: Table, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return kinds of events (E,) by a column's numbers or words, and (E,) where it holds a kind."""
    values = table.frame[column].to_numpy()
    if values.dtype.kind in "iufb":
        kinds = np.where(values < 0, 1, 0) if (values < 0).any() else values
        good = np.isin(values, (-1, 1)) if (values < 0).any() else np.isin(values, (ADD, DELETE, GONE))
    else:
        words = np.char.lower(values.astype(str))
        good = np.isin(words, list(_KIND_WORDS))
        kinds = np.array([_KIND_WORDS.get(word, 0) for word in words.tolist()])
    return kinds, good


def kinds_of(table: Table, column: str) -> np.ndarray:
    """Return `ADD`, `DELETE` and `GONE` from 0/1/2, +1/-1 or words.

    Raises:
        DataError: something else; its row is named.
    """
    kinds, good = _said_kinds(table, column)
    if not good.all():
        values = table.frame[column].to_numpy()
        bad = int(np.argmin(good))
        raise DataError(
            f"{table.path}: {values[bad]!r} in column {column!r}, {table.place(bad)}, is no kind of event; "
            "use add, delete and delete-node, 0, 1 and 2, or +1/-1; where the column holds something else, say what: "
            f"--read.columns '[{column}=category]' takes it as event features, '[{column}=drop]' leaves it out"
        )
    return kinds.astype(np.int8)
