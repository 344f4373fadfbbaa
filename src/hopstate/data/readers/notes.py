"""Notes on what reading edges drops or adds: duplicates, reverse edges, self-loops, times."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.dates import iso_dates
from hopstate.data.readers.local import date_forms
from hopstate.data.readers.roles import TIME_NAME
from hopstate.data.readers.text import role_name
from hopstate.data.readers.times import calendar_unit
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import nearest

if TYPE_CHECKING:
    import pandas as pd

_NAMES_ROWS = re.compile(r"(?i:id|index)|.*(?:_(?i:id)|[a-z]I[dD])")  # names of columns of ids: edge_id, graphID


def _weight_note(sources: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> tuple[str, ...]:
    """Return a note on pairs of nodes with several weights (E,), of which the first is kept."""
    import pandas as pd

    u, v = np.minimum(sources, targets), np.maximum(sources, targets)
    pairs = pd.DataFrame({"u": u, "v": v, "weight": weights}).groupby(["u", "v"], sort=True)
    several = pairs["weight"].nunique(dropna=False) > 1
    if not several.any():
        return ()
    pair: Any = several.idxmax()
    return (
        f"of {int(several.sum()):,} pairs of nodes with several weights, one in each direction, the first was kept: "
        f"{pairs['weight'].first()[pair]:g} of nodes {pair[0]} and {pair[1]} (--read.undirected false keeps both)",
    )


def edge_notes(
    sources: np.ndarray,
    targets: np.ndarray,
    num_nodes: int,
    *,
    undirected: bool,
    duplicates: str,
    self_loops: str,
    edge_attr: np.ndarray | None = None,
    edge_weight: np.ndarray | None = None,
    relation: np.ndarray | None = None,
) -> tuple[str, ...]:
    """Return notes on what `Graph.from_edges` changes."""
    features = edge_attr is not None
    distinct = np.unique(sources * num_nodes + targets)
    triples = distinct if relation is None else np.unique(np.stack([sources, targets, relation]), axis=1).T
    repeated = len(sources) - len(triples)
    loops = int((sources == targets).sum())
    one, other = np.divmod(distinct, num_nodes)
    apart = one != other
    both = int(np.isin(other[apart] * num_nodes + one[apart], distinct, assume_unique=True).sum()) // 2
    notes = []
    if repeated and duplicates == "drop":
        merged = ", with the features of the first" if features else ""
        notes.append(
            f"{repeated:,} of {len(sources):,} edges are listed more than once and were merged{merged} "
            f"(--read.duplicates keep)"
        )
    if undirected and 2 * both < int(apart.sum()):
        pairs = f"; {both:,} pairs of nodes are listed in both directions, the others in one" if both else ""
        notes.append(
            f"every edge is stored in both directions, so that the direction it is listed in is lost{pairs} "
            f"(--read.undirected false keeps it)"
        )
    if undirected and both and features and duplicates == "drop":
        notes.append(f"of {both:,} edges listed in both directions the features of the first were kept")
    if loops:
        what = "dropped" if self_loops == "drop" else "kept (--read.self_loops drop leaves them out)"
        notes.append(f"{loops:,} edges join a node to itself: {what}")
    if undirected and duplicates == "drop" and edge_weight is not None:
        notes += _weight_note(sources, targets, edge_weight)
    return tuple(notes)


def uninformative_columns(frame: pd.DataFrame, columns: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return edge columns that are empty or number the rows, and notes on both."""
    empty = [name for name in columns if frame[name].isna().all()]
    rows = [name for name in columns if _NAMES_ROWS.fullmatch(name) and _all_differ(frame[name])]
    notes: tuple[str, ...] = (f"columns {', '.join(empty)} hold nothing and were left out",) if empty else ()
    if rows:
        notes += (
            f"columns {', '.join(rows)} number the edges and were left out (--read.edge_columns '[{rows[0]}]' takes "
            "one)",
        )
    return empty + rows, notes


def _all_differ(values: pd.Series) -> bool:
    return values.dtype.kind in "iu" and len(values) > 1 and bool(values.is_unique)


def date_hint(frame: pd.DataFrame, columns: Sequence[str]) -> str:
    """Return what follows a complaint about columns of text: the options that read the first of dates as times."""
    for name in columns:
        sample = frame[name].dropna()[:100].astype(str)
        forms = date_forms(sample)
        form = f" --read.time_format {' or '.join(map(shlex.quote, forms))}" if forms else ""
        if forms or (len(sample) and iso_dates(sample).notna().all()):
            return f"; {name!r} looks like dates: if rows are events in time, say {_time_column(name)}{form}"
    return ""


def time_notes(frame: pd.DataFrame, columns: Sequence[str]) -> tuple[str, ...]:
    """Return a note on the first of numeric edge columns that is a time by its name, or by all of its values."""
    for name in columns:
        values = frame[name].to_numpy(np.float64, na_value=np.nan)
        if TIME_NAME.fullmatch(role_name(name)) or (len(values) and calendar_unit(values.min(), values.max())):
            return (f"{name!r} looks like a time: if rows are events in time, say {_time_column(name)}",)
    return ()


def _time_column(name: str) -> str:
    return f"--read.time_column {shlex.quote(name)}"


def isolated_nodes_note(label_ids: np.ndarray, pairs: Sequence[np.ndarray]) -> tuple[str, ...]:
    """Return a note on ids of labels that no edge names: nodes without neighbours, or written in another way."""
    in_edges = Vocabulary.of(*pairs)
    isolated = label_ids.take(np.flatnonzero(in_edges.rows(label_ids) < 0)) if len(in_edges) else label_ids
    if not len(isolated):
        return ()
    name, known = str(isolated[0]), in_edges.first()
    suggestion = next(
        (f"; did you mean {key!r}?" for key in known if key.lower() == name.lower()), nearest(name, known)
    )
    return (
        f"{len(isolated):,} of {len(label_ids):,} ids of labels are in no edge and became isolated nodes; the first is "
        f"{name!r}{suggestion}",
    )
