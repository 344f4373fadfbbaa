"""What `fit` would see of tables: each column with its kind and scale, and how far labels reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hopstate.data.amounts import default_names
from hopstate.data.column_facts import ColumnFacts, column_facts
from hopstate.data.columns import DATE, kinds_of
from hopstate.data.features import FeatureTable
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
    wide = y.reshape(len(y), -1)
    known = wide >= 0 if y.dtype.kind == "i" else ~np.isnan(wide)
    count = int(known.any(1).sum())
    facts: dict[str, Any] = {"labels": f"{count:,} of {len(y):,} {of} ({count / len(y):.0%}) have one"}
    if y.dtype.kind == "i" or not count:
        return facts
    own = names if names is not None and len(names) == wide.shape[1] else default_names(wide.shape[1])
    told = []
    for name, column, there in list(zip(own, wide.T, known.T, strict=True))[:SHOWN]:
        values = column[there].astype(np.float64)
        if len(values) and np.isin(values, (0, 1)).all():
            told.append(f"{name}: {values.mean():.0%} of {len(values):,} are 1")
        elif len(values):
            middle = f"median {np.median(values):.4g}, mean {values.mean():.4g}, sd {values.std():.4g}"
            told.append(f"{name}: {values.min():.4g} to {values.max():.4g}, {middle} ({len(values):,} known)")
        else:
            told.append(f"{name}: none known")
    return facts | {"targets": "; ".join(told)}


def event_label_facts(labels: np.ndarray | None, names: Sequence[str] | None) -> dict[str, Any]:
    """Return how classes, amounts or several labels of events are spread, and how far they reach.

    Args:
        labels: (E,) classes, -1 or NaN unknown, or amounts; (E, T) floats, NaN unknown; or None.
        names: of classes, or of T targets.
    """
    if labels is None:
        return {}
    if labels.ndim > 1 or not _are_classes(labels):
        return label_facts(labels, names, "events")
    values, counts = np.unique(_known(labels), return_counts=True)
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
            values = np.unique(_known(column))
            if len(values) < 2:
                what = f"is {values[0]:g} in every {of} that has one" if len(values) else f"is known of no {of}"
                yield f"label {name!r} {what}: there is nothing to learn in it"
        return
    values = np.unique(_known(y))
    if not len(values):
        yield f"no {of} has a label: there is nothing to learn"
    elif len(values) < 2:
        yield f"every label is {_name(names, values[0])}: there is nothing to learn"


def _are_classes(labels: np.ndarray) -> bool:
    """Say whether labels (E,) are classes, as whole numbers of which there are few are, and not amounts."""
    if labels.dtype.kind != "f":
        return True
    known = labels[~np.isnan(labels)]
    return bool((known == np.floor(known)).all()) and len(np.unique(known)) <= SHOWN


def _known(labels: np.ndarray) -> np.ndarray:
    """Return the labels that are known: -1 is none of a class, NaN none of an amount."""
    if labels.dtype.kind == "f":
        labels = labels[~np.isnan(labels)]
        return labels[labels != -1] if _are_classes(labels) else labels
    return labels[labels != -1]


def _name(names: Sequence[str] | None, value: Any) -> str:
    return names[int(value)] if names is not None and 0 <= value < len(names) else f"{value:g}"


__all__ = ["event_label_facts", "label_doubts", "label_facts", "table_facts"]
