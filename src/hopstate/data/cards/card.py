"""Data cards: what a stream or a graph holds, and what about it looks wrong, before anything is trained on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hopstate.data.cards.median import median_and_largest
from hopstate.data.cards.stream_figures import (
    StreamFigures,
    event_gaps,
    kind_counts,
    node_gaps,
    repetition,
    stream_figures,
)
from hopstate.data.cards.targets import event_label_facts, label_doubts, label_facts, table_facts
from hopstate.data.column_facts import FAR_APART, column_facts, row_blocks, scale_ratio
from hopstate.data.dates import shown_span, shown_times
from hopstate.data.deletions import stated
from hopstate.data.event_build import UNITS
from hopstate.data.events import DELETE, GONE, IMPLIED, EventStream
from hopstate.data.features import FeatureTable
from hopstate.data.graph import Graph
from hopstate.data.texts import OTHER

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "day": 86400.0}


@dataclass(frozen=True, kw_only=True)
class Card:
    """Facts of a data set.

    Args:
        title: name and kind.
        facts: name to number or text, in reading order.
        suspicious: sentences, each about something to look at; empty where nothing stands out.
        notes: sentences on how the data were read, and on what was left out.
    """

    title: str
    facts: dict[str, Any]
    suspicious: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the card as lines."""
        width = max(map(len, self.facts))
        lines = [self.title, *(f"  {name.ljust(width)}  {_shown(value)}" for name, value in self.facts.items())]
        if self.notes:
            lines += ["as read:", *(f"  - {sentence}" for sentence in self.notes)]
        if self.suspicious:
            lines += ["suspicious:", *(f"  - {sentence}" for sentence in self.suspicious)]
        return "\n".join(lines)


def inspect_stream(stream: EventStream) -> Card:
    """Return the card of an event stream: counts, degrees, times, repetition, features, and what looks wrong."""
    whole, stream = stream, stated(stream)  # deletions that follow from those of nodes are no events of the data
    count, found = len(stream), stream_figures(stream)
    firsts, answers = repetition(stream, np.array([0, count]))
    met = int(firsts[0])
    facts: dict[str, Any] = {
        "events": count,
        "nodes": stream.num_nodes,
        "nodes with events": int((found.degree > 0).sum()),
        "sources / destinations": f"{found.sends.sum():,} / {found.receives.sum():,}",
        "bipartite": stream.is_bipartite,
        "distinct pairs": met,
        "repeat ratio (pair met before)": 1 - met / count if count else float("nan"),
        "reply ratio (met the other way before)": answers / count if count else float("nan"),
        "self-events": found.loops,
        "events per node, median / mean / most": spread(found.degree),
    }
    facts |= _time_facts(stream, found) | _column_facts(stream)
    if whole.kind is not None:
        facts["deletions"] = int(kind_counts(whole.kind)[[DELETE, IMPLIED]].sum())
    return Card(
        title=f"{stream.name} (event stream{f', {stream.source}' if stream.source else ''})",
        facts=facts,
        suspicious=tuple(_stream_doubts(stream, found)),
        notes=stream.notes,
    )


def inspect_graph(graph: Graph) -> Card:
    """Return the card of a graph: counts, degrees, components, labels, features, and what looks wrong."""
    facts: dict[str, Any] = {
        "nodes": graph.num_nodes,
        "stored edges": graph.num_edges,
        "undirected": graph.is_undirected,
        "self-loops": graph.num_self_loops,
        "degree, median / mean / most": spread(graph.degree),
        "components": _components(graph)[0],
        "largest component": _components(graph)[1],
        "node features": feature_text(graph.x),
        "edge features": feature_text(graph.edge_attr),
    }
    facts |= missing_facts(graph.table)
    facts |= missing_facts(graph.edge_table, "missing values of edges")
    facts |= table_facts(graph.table, "columns of nodes") | table_facts(graph.edge_table, "columns of edges")
    facts |= label_facts(graph.y, graph.class_names)
    if graph.num_classes:
        named = zip(class_names(graph), class_counts(graph), strict=True)
        facts["classes"] = ", ".join(f"{name}: {n:,}" for name, n in named)
        facts["share of edges within a class"] = _homophily(graph)
    for name, mask in graph.masks.items():
        facts[f"{name} nodes"] = int(np.atleast_2d(mask)[0].sum())
    return Card(
        title=f"{graph.name} (graph{f', {graph.source}' if graph.source else ''})",
        facts=facts,
        suspicious=tuple(_graph_doubts(graph)),
        notes=graph.notes,
    )


# ---- streams ------------------------------------------------------------------------------------------------
def _time_facts(stream: EventStream, found: StreamFigures) -> dict[str, Any]:
    if not len(stream):
        return {}
    when = shown_times(stream.t[[0, -1]], stream.time_unit, stream.dates).tolist()
    unit = f" {stream.time_unit or '(unit unknown; --read.time_unit names it)'}"
    unit = f" (counted in {stream.time_unit})" if stream.dates else unit
    facts: dict[str, Any] = {
        "time": f"{when[0]} to {when[1]}{unit}, {stream.t.dtype}",
        "time span": _span(stream, stream.t[-1] - stream.t[0]),
        "share of ties (same time as the event before)": found.ties / max(len(stream) - 1, 1),
    }
    for name, gaps in (("events", event_gaps), ("a node's events", node_gaps)):
        spans = median_and_largest(partial(gaps, stream))
        if spans is not None:
            facts[f"between {name}, median / longest"] = " / ".join(_span(stream, span) for span in spans)
    return facts


def _span(stream: EventStream, span: Any) -> str:
    """Return a length of time in words where its unit is known, else the number."""
    unit = stream.time_unit
    if unit in UNITS:
        return shown_span(span, unit)
    figure = f"{span:,.0f}" if 1e6 <= abs(span) < 1e15 else f"{span:.6g}"  # no 1e+06 of what can be read
    return f"{figure}{f' {unit}' if unit else ''}"


def _column_facts(stream: EventStream) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "edge features": feature_text(stream.edge_attr),
        "node features": feature_text(stream.x),
    }
    facts |= missing_facts(stream.edge_table) | table_facts(stream.edge_table, "columns of events")
    if stream.kind is not None:
        kinds = kind_counts(stream.kind)
        facts["deletions"] = int(kinds[DELETE])
        facts |= {"deleted nodes": int(kinds[GONE])} if kinds[GONE] else {}
    return facts | event_label_facts(stream.labels, stream.class_names)


def _stream_doubts(stream: EventStream, found: StreamFigures) -> Iterator[str]:
    if not len(stream):
        yield "there are no events"
        return
    follow, span = max(len(stream) - 1, 1), float(stream.t[-1] - stream.t[0])
    if not span:
        yield "all events have one time: nothing is before anything else, and no split by time is possible"
    elif found.ties / follow > 0.5:
        share = f"{found.ties / follow:.0%} of events share the time of the one before"
        yield f"{share}: their order is not to be trusted, and figures hang on it; --read.ties sorted makes them not"
    if span and follow > 10 and found.longest > 0.2 * span:
        share = f"{found.longest / span:.0%} of the time span"
        yield f"one gap holds {share}, after event {found.longest_after}: data missing?"
    if span * SECONDS.get(stream.time_unit, 0) > 200 * 365.25 * 86400:
        yield f"the span is over 200 years if times are in {stream.time_unit}: is the unit right?"
    if stream.t.dtype.kind == "f" and len(stream) > 1 and found.whole:
        yield "times are floats but all whole numbers: integers would be exact"
    yield from _pair_doubts(stream, found)
    yield from feature_doubts("edge", stream.edge_attr, stream.edge_table)
    yield from feature_doubts("node", stream.x)
    yield from label_doubts(stream.labels, stream.class_names, "event")


def _pair_doubts(stream: EventStream, found: StreamFigures) -> Iterator[str]:
    count, degree = len(stream), found.degree
    if found.copies > 0.01 * count:
        yield f"{found.copies:,} events repeat the one before in source, destination and time: logged twice?"
    if found.loops:
        yield f"{found.loops:,} events join a node to itself ({found.loops / count:.1%})"
    if stream.num_nodes > 3 and degree.max() > 0.4 * count:
        share = degree.max() / count
        yield f"node {_name(stream.node_ids, int(degree.argmax()))} takes part in {share:.0%} of all events"
    absent = int((degree == 0).sum())
    if absent:
        yield f"{absent:,} nodes have no event"


# ---- graphs -------------------------------------------------------------------------------------------------
def _components(graph: Graph) -> tuple[int, int]:
    """Return (number of weakly connected components, nodes of the largest)."""
    from scipy.sparse.csgraph import connected_components

    count, labels = connected_components(graph.to_scipy(), directed=True, connection="weak")
    return int(count), int(np.bincount(labels).max(initial=0))


def _homophily(graph: Graph) -> float:
    """Return the share of edges between labelled nodes that join two of one class."""
    assert graph.y is not None
    sources, targets = graph.edge_index()
    a, b = graph.y[sources], graph.y[targets]
    known = (a >= 0) & (b >= 0) & (sources != targets)
    return float((a == b)[known].mean()) if known.any() else float("nan")


def class_counts(graph: Graph) -> np.ndarray:
    """Return (C,) how many nodes are labelled with each class."""
    assert graph.y is not None
    return np.bincount(graph.y[graph.y >= 0], minlength=graph.num_classes)


def class_names(graph: Graph) -> tuple[str, ...]:
    """Return the names of the classes; their numbers where they have none."""
    return graph.class_names or tuple(map(str, range(graph.num_classes)))


def _graph_doubts(graph: Graph) -> Iterator[str]:
    alone = int(((graph.degree + np.bincount(graph.indices, minlength=graph.num_nodes)) == 0).sum())
    if alone:
        yield f"{alone:,} nodes have no edge"
    if graph.num_self_loops:
        yield f"{graph.num_self_loops:,} edges join a node to itself"
    if not graph.is_undirected:
        yield "edges are directed: most methods here expect both directions stored"
    sources, targets = graph.edge_index()
    twice = int(((np.diff(sources) == 0) & (np.diff(targets) == 0)).sum())
    if twice:
        yield f"{twice:,} edges are stored more than once"
    yield from feature_doubts("node", graph.x, graph.table)
    yield from feature_doubts("edge", graph.edge_attr, graph.edge_table)
    if graph.num_classes:
        counts = class_counts(graph)
        for name, count in zip(class_names(graph), counts, strict=True):
            if count < 0.01 * counts.sum():
                yield f"class {name} has {count:,} of {counts.sum():,} labelled nodes"
    yield from label_doubts(graph.y, graph.class_names, "node")
    if graph.x is None:
        yield "there are no node features"


# ---- both ---------------------------------------------------------------------------------------------------
def feature_text(array: np.ndarray | None) -> str:
    """Return how wide features are, in words."""
    if array is None:
        return "none"
    zero = array.size and not any(np.any(block) for _, block in row_blocks(array))
    return f"{array.shape[1]} wide, all zero" if zero else f"{array.shape[1]} wide"


def missing_facts(table: FeatureTable | None, name: str = "missing values") -> dict[str, Any]:
    """Return how many values of each column are missing, as a fact of that name; nothing where none is."""
    if table is None or not table.has_missing:
        return {}
    counts = len(table) - column_facts(table.values).known
    named = [f"{table.columns[i]}: {counts[i]:,}" for i in np.flatnonzero(counts)[:12].tolist()]
    return {name: ", ".join(named) + (", ..." if (counts > 0).sum() > 12 else "")}


def feature_doubts(name: str, array: np.ndarray | None, table: FeatureTable | None = None) -> Iterator[str]:
    """Yield what looks wrong with the features of nodes or edges; name says of which."""
    if array is None or not array.size:
        return
    ends = [(block.min(0), block.max(0)) for _, block in row_blocks(array)]
    low, high = np.min([low for low, _ in ends], axis=0), np.max([high for _, high in ends], axis=0)
    if not (np.any(low) or np.any(high)):
        yield f"the {name} features are zero everywhere: they carry nothing"
        return
    idle = np.array([False] * len(low) if table is None else [one.startswith(OTHER) for one in table.columns])
    constant = int(((low == high) & ~idle).sum()) if len(idle) == len(low) else int((low == high).sum())
    if constant:
        yield f"{constant} of {array.shape[1]} {name} features never change"
    ratio, large, small = scale_ratio(array if table is None else table.values)
    if ratio > FAR_APART:
        names = [f"column {i}" if table is None else repr(table.columns[i]) for i in (large, small)]
        what = "fit leaves them so unless told --read.scale standard" if table is None else (
            "fit standardises them by training rows unless told --read.scale none"
        )  # fmt: skip
        most = f"{names[0]} and {names[1]}" if large != small else f"{names[0]}, which lies far from 0"
        yield f"{name} features differ in scale by {ratio:.0e}, most {most}: {what}"


def spread(counts: np.ndarray) -> str:
    """Return median, mean and most of some counts."""
    return f"{np.median(counts):g} / {counts.mean():.2f} / {counts.max():,}" if len(counts) else "none"


def _name(ids: Any, row: int) -> Any:
    return row if ids is None else ids.names(np.array([row]))[0]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)
