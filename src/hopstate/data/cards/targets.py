"""What `fit` would see of tables: each column with its kind and scale, and how far labels reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hopstate.data.cards.median import median_and_largest
from hopstate.data.column_facts import ColumnFacts, column_facts, row_blocks
from hopstate.data.columns import DATE, kinds_of
from hopstate.data.features import FeatureTable
from hopstate.data.targets import default_names
from hopstate.data.texts import CATEGORY, OTHER

SHOWN = 12  # columns that are told one by one


def table_facts(table: FeatureTable | None, name: str) -> dict[str, Any]:
    """Return the kind and the scale of a table's columns under a name; nothing where its columns have no names."""
    if table is None or all(one.startswith("column ") for one in table.columns):
        return {}
    kinds = dict(one.removesuffix("?").rsplit("=", 1) for one in kinds_of(table.columns))
    facts = column_facts(table.values)
    told = [_column(table, own, kind, facts) for own, kind in list(kinds.items())[:SHOWN]]
    return {name: "; ".join(told) + (f"; and {len(kinds) - SHOWN} more" if len(kinds) > SHOWN else "")}


def _column(table: FeatureTable, name: str, kind: str, facts: ColumnFacts) -> str:
    if kind == "category":
        of = np.rint(facts.mean * facts.known).astype(int).tolist()  # rows of each, where the column is 1
        mine = [i for i, one in enumerate(table.columns) if one.startswith(f"{CATEGORY}{name}=")]
        counts = sorted(((of[i], i) for i in mine), reverse=True)
        shown = ", ".join(f"{table.columns[i].partition('=')[2] or 'none'}: {n:,}" for n, i in counts[:3])
        rest = of[table.columns.index(f"{OTHER}{name}")]
        more = ", ..." * (len(mine) > 3) + (f", others: {rest:,}" if rest else "")
        return f"{name} category of {len(mine)} ({shown}{more})"
    at = table.columns.index(f"{DATE}{name}" if kind == "date" else name)
    if not facts.known[at]:
        return f"{name} {kind}, empty"
    low, high, mean, deviation = (one[at] for one in (facts.low, facts.high, facts.mean, facts.deviation))
    if kind == "date":
        first, last = (str(np.datetime64(int(t), "s"))[:10] for t in (low, high))
        return f"{name} date, {first} to {last}"
    return f"{name} number, {low:.4g} to {high:.4g}, mean {mean:.4g}, sd {deviation:.4g}"


def label_facts(y: np.ndarray | None, names: Sequence[str] | None, of: str = "nodes") -> dict[str, Any]:
    """Return how many nodes, or events, have a label, and how amounts and several labels are spread.

    Args:
        y: (N,) int64 classes, -1 unknown; (N,) or (N, T) floats, NaN unknown.
        names: of T targets.
        of: what the rows are.
    """
    if y is None or not len(y):
        return {}
    wide, whole = y.reshape(len(y), -1), y.dtype.kind == "i"
    count = sum(int((block >= 0 if whole else ~np.isnan(block)).any(1).sum()) for _, block in row_blocks(wide))
    facts: dict[str, Any] = {"labels": f"{count:,} of {len(y):,} {of} ({count / len(y):.0%}) have one"}
    if whole or not count:
        return facts
    own = names if names is not None and len(names) == wide.shape[1] else default_names(wide.shape[1])
    some = column_facts(wide)
    told = [f"{name}: {_spread(wide[:, at], some, at)}" for at, name in enumerate(own[:SHOWN])]
    return facts | {"targets": "; ".join(told)}


def _spread(column: np.ndarray, facts: ColumnFacts, at: int) -> str:
    """Return in words how the floats of a column (n,), the one at a place of the facts, are spread."""
    known, low, high, mean = facts.known[at], facts.low[at], facts.high[at], facts.mean[at]
    middle = median_and_largest(lambda: _known_parts(column)) if known else None
    if middle is None:
        return "none known"
    if {low, high} <= {0, 1} and (low == high or facts.two[at]):
        return f"{mean:.0%} of {known:,} are 1"
    told = f"median {middle[0]:.4g}, mean {mean:.4g}, sd {facts.deviation[at]:.4g}"
    return f"{low:.4g} to {high:.4g}, {told} ({known:,} known)"


def _known_parts(column: np.ndarray) -> Iterator[np.ndarray]:
    for _, block in row_blocks(column[:, None]):
        yield block[np.isfinite(block)].astype(np.float64)


def event_label_facts(labels: np.ndarray | None, names: Sequence[str] | None) -> dict[str, Any]:
    """Return how classes, amounts or several labels of events are spread, and how far they reach.

    Args:
        labels: (E,) classes, -1 or NaN unknown, or amounts; (E, T) floats, NaN unknown; or None.
        names: of classes, or of T targets.
    """
    if labels is None:
        return {}
    known = _classes(labels) if labels.ndim == 1 else None
    if known is None:
        return label_facts(labels, names, "events")
    values, counts = known
    there = {_name(names, v): int(n) for v, n in zip(values, counts, strict=True)}
    if len(there) > SHOWN:
        there = {f"{len(there):,} values": sum(there.values())}
    missing = len(labels) - int(counts.sum())
    return {"labels": ", ".join(f"{name}: {n:,}" for name, n in (there | {"unknown": missing}).items() if n)}


def label_doubts(y: np.ndarray | None, names: Sequence[str] | None, of: str) -> Iterator[str]:
    """Yield what looks wrong with labels (n,) or (n, T) of events or nodes: none is known, or all are the same."""
    if y is None or not len(y):
        return
    if y.ndim > 1:
        own = names if names is not None and len(names) == y.shape[1] else default_names(y.shape[1])
        for name, column in zip(own, y.T, strict=True):
            values = _values(column)
            if len(values) < 2:
                what = f"is {values[0]:g} in every {of} that has one" if len(values) else f"is known of no {of}"
                yield f"label {name!r} {what}: there is nothing to learn in it"
        return
    values = _values(y)
    if not len(values):
        yield f"no {of} has a label: there is nothing to learn"
    elif len(values) < 2:
        yield f"every label is {_name(names, values[0])}: there is nothing to learn"


def _classes(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the known classes among labels (E,) and how often each is there; None of amounts.

    Floats are classes where all are whole numbers of which there are few; -1 is then unknown, as of whole numbers.
    """
    values, counts = _distinct(labels, SHOWN if labels.dtype.kind == "f" else len(labels))
    if labels.dtype.kind == "f" and (len(values) > SHOWN or (values != np.floor(values)).any()):
        return None
    return values[values != -1], counts[values != -1]


def _values(labels: np.ndarray) -> np.ndarray:
    """Return the known values among labels (E,), not all of them where there are many."""
    values, _ = _distinct(labels, SHOWN)
    amounts = labels.dtype.kind == "f" and (len(values) > SHOWN or (values != np.floor(values)).any())
    return values if amounts else values[values != -1]


def _distinct(labels: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which values labels (E,) have, NaN left out, and how often.

    If they are more than `most`, the values until then are returned.
    """
    values, counts = np.asarray(labels[:0]), np.zeros(0, np.int64)
    for _, block in row_blocks(labels[:, None]):
        own, times = np.unique(block[~np.isnan(block)] if block.dtype.kind == "f" else block, return_counts=True)
        values, place = np.unique(np.concatenate([values, own]), return_inverse=True)
        counts = np.bincount(place, np.concatenate([counts, times]), len(values)).astype(np.int64)
        if len(values) > most:
            break
    return values, counts


def _name(names: Sequence[str] | None, value: Any) -> str:
    return names[int(value)] if names is not None and 0 <= value < len(names) else f"{value:g}"


__all__ = ["event_label_facts", "label_doubts", "label_facts", "table_facts"]
