"""Summaries: what a graph, a set of graphs or an event stream contains, and what looks wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from hopstate.data.dates import NANOSECONDS, UNITS, format_duration, format_times, plot_times
from hopstate.data.events import DELETE, EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.data.preprocessing import CATEGORY, DATE, OTHER, WARN_SCALE_RATIO, FeatureTable, scale_ratio
from hopstate.data.readers.encode import column_specs_of_run
from hopstate.data.validate import default_names
from hopstate.errors import listed
from hopstate.io.output import draw_figure, format_number_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MAX_TYPES = 20  # relations that are listed
MAX_ROWS = 1 << 24  # rows that are sorted or converted at once, to bound the memory
MAX_LISTED = 12  # columns, or distinct values, listed one by one
RARE = 0.01  # share of the labelled rows below which a class is suspicious


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Facts about a dataset."""

    title: str  # name and kind
    facts: dict[str, Any]  # in reading order
    suspicious: tuple[str, ...]  # sentences, each about one thing to check
    notes: tuple[str, ...] = ()  # on how the data were read, and on what was left out

    def text(self) -> str:
        width = max(map(len, self.facts))
        lines = [self.title, *(f"  {name.ljust(width)}  {_formatted(value)}" for name, value in self.facts.items())]
        for heading, sentences in (("as read:", self.notes), ("suspicious:", self.suspicious)):
            if sentences:
                lines += [heading, *(f"  - {sentence}" for sentence in sentences)]
        return "\n".join(lines)


def summarize(data: EventStream | Graph | GraphSet) -> Summary:
    """Return the summary of a dataset: counts, degrees, times, features, labels, and what looks wrong.

    Example:
        >>> print(hopstate.inspect(hopstate.read_events(events)).title)
        table (event stream, memory)
    """
    if isinstance(data, EventStream):
        kind, facts, doubts, notes = "event stream", *_stream_summary(data), data.notes
        if len(data) > MAX_ROWS:
            notes = (*notes, f"pairs, gaps and columns are those of the first {MAX_ROWS:,} events")
    elif isinstance(data, GraphSet):
        kind, facts, doubts, notes = "set of graphs", _set_facts(data), list(_set_doubts(data)), data.union.notes
    else:
        kind, facts, doubts, notes = "graph", _graph_facts(data), list(_graph_doubts(data)), data.notes
    title = f"{data.name} ({kind}{f', {data.source}' if data.source else ''})"
    return Summary(title=title, facts=facts, suspicious=tuple(doubts), notes=notes)


# ---- streams ------------------------------------------------------------------------------------------------
def event_degrees(stream: EventStream) -> np.ndarray:
    """Return (N,) how many events each node takes part in; a self-event counts once."""
    degree = np.zeros(stream.num_nodes, np.int64)
    step = max(1 << 22, stream.num_nodes)
    for start in range(0, len(stream), step):
        src, dst = stream.src[start : start + step], stream.dst[start : start + step]
        degree += np.bincount(src, minlength=stream.num_nodes)
        degree += np.bincount(dst[src != dst], minlength=stream.num_nodes)
    return degree


def _stream_summary(stream: EventStream) -> tuple[dict[str, Any], list[str]]:
    degree = event_degrees(stream)
    head = stream.slice(0, min(len(stream), MAX_ROWS))
    src, dst = np.asarray(head.src, np.int64), np.asarray(head.dst, np.int64)
    pair, reverse = src * stream.num_nodes + dst, dst * stream.num_nodes + src
    pairs, first = np.unique(pair, return_index=True)
    place = np.searchsorted(pairs, reverse).clip(max=len(pairs) - 1)
    replies = (pairs[place] == reverse) & (first[place] < np.arange(len(head))) & (src != dst) if len(head) else src > 0
    facts: dict[str, Any] = {
        "events": len(stream),
        "nodes": stream.num_nodes,
        "nodes with events": int((degree > 0).sum()),
        "sources / destinations": f"{len(np.unique(src)):,} / {len(np.unique(dst)):,}",
        "bipartite": stream.is_bipartite,
        "distinct pairs": len(pairs),
        "repeat ratio (earlier event of the pair)": 1 - len(pairs) / len(head) if len(head) else float("nan"),
        "reply ratio (earlier reverse event)": float(replies.mean()) if len(head) else float("nan"),
        "self-events": int((src == dst).sum()),
        "events per node, median / mean / most": _median_mean_max(degree),
    }
    facts |= _time_facts(head, stream) | _feature_facts(stream.x, stream.edge_attr)
    facts |= _missing_facts(stream.edge_table) | _column_facts(stream.edge_table, "columns of events")
    facts |= _missing_facts(stream.table, "missing values of nodes") | _column_facts(stream.table, "columns of nodes")
    if stream.kind is not None:
        facts["deletions"] = int((stream.kind == DELETE).sum())
    facts |= _type_facts("relations", stream.relation, stream.relation_names)
    facts |= _type_facts("node types", stream.node_type, stream.node_type_names)
    facts |= _label_facts(stream.labels, stream.class_names, "events")
    return facts, list(_stream_doubts(stream, head, degree))


def _type_facts(what: str, column: np.ndarray | None, names: Sequence[str]) -> dict[str, Any]:
    if column is None or not names:
        return {}
    counts = np.bincount(column[column >= 0], minlength=len(names))
    order = np.argsort(-counts, kind="stable")
    return {what: f"{len(names):,}: {listed((f'{names[k]} {counts[k]:,}' for k in order), MAX_TYPES)}"}


def _time_facts(head: EventStream, stream: EventStream) -> dict[str, Any]:
    if not len(stream):
        return {}
    when = format_times(stream.t[[0, -1]], stream.time_unit, stream.dates).tolist()
    unit = f" {stream.time_unit or '(unit unknown; --read.time_unit names it)'}"
    unit = f" (counted in {stream.time_unit})" if stream.dates else unit
    gaps = np.diff(head.t)
    facts: dict[str, Any] = {
        "time": f"{when[0]} to {when[1]}{unit}, {stream.t.dtype}",
        "time span": format_duration(stream.t[-1] - stream.t[0], stream.time_unit),
        "share of ties (same time as the event before)": float((gaps == 0).mean()) if len(gaps) else 0.0,
    }
    for name, lengths in (("events", gaps), ("a node's events", node_time_deltas(head))):
        if len(lengths):
            spans = (np.median(lengths), lengths.max())
            facts[f"between {name}, median / longest"] = " / ".join(
                format_duration(span, stream.time_unit) for span in spans
            )
    return facts


def node_time_deltas(stream: EventStream) -> np.ndarray:
    """Return the times between consecutive events of the same node, over all nodes."""
    nodes, times = np.concatenate([stream.src, stream.dst]), np.concatenate([stream.t, stream.t])
    order = np.lexsort((times, nodes))
    return np.diff(times[order])[np.diff(nodes[order]) == 0]


def _stream_doubts(stream: EventStream, head: EventStream, degree: np.ndarray) -> Iterator[str]:
    if not len(stream):
        yield "there are no events"
        return
    gaps, span = np.diff(head.t), float(stream.t[-1] - stream.t[0])
    ties = float((gaps == 0).mean()) if len(gaps) else 0.0
    if not span:
        yield "all events have one time: nothing is before anything else, and no split by time is possible"
    elif ties > 0.5:
        yield (
            f"{ties:.0%} of events share the time of the one before: their order is not reliable, and results depend "
            "on it; --read.tie_order sorted makes them independent of it"
        )
    if span and len(gaps) > 10 and gaps.max() > 0.2 * span:
        yield f"one gap holds {gaps.max() / span:.0%} of the time span, after event {gaps.argmax()}: data missing?"
    if span * UNITS.get(stream.time_unit, 0) / NANOSECONDS["s"] > 200 * 365.25 * 86400:
        yield f"the span is over 200 years if times are in {stream.time_unit}: is the unit right?"
    if head.t.dtype.kind == "f" and len(head) > 1 and bool((head.t == np.floor(head.t)).all()):
        yield "times are floats but all whole numbers: integers would be exact"
    yield from _pair_doubts(stream, head, degree)
    yield from _feature_doubts("edge", stream.edge_attr, stream.edge_table, published=stream.published)
    yield from _feature_doubts("node", stream.x, stream.table, published=stream.published)
    yield from _label_doubts(stream.labels, stream.class_names, "event")


def _pair_doubts(stream: EventStream, head: EventStream, degree: np.ndarray) -> Iterator[str]:
    copies = int(((np.diff(head.t) == 0) & (np.diff(head.src) == 0) & (np.diff(head.dst) == 0)).sum())
    if copies > 0.01 * len(head):
        yield f"{copies:,} events repeat the one before in source, destination and time: logged twice?"
    loops = int((head.src == head.dst).sum())
    if loops:
        yield f"{loops:,} events join a node to itself ({loops / len(head):.1%})"
    if stream.num_nodes > 3 and degree.max() > 0.4 * len(stream):
        hub = int(degree.argmax())
        name = hub if stream.node_ids is None else stream.node_ids.names(np.array([hub]))[0]
        yield f"node {name} takes part in {degree.max() / len(stream):.0%} of all events"
    absent = int((degree == 0).sum())
    if absent:
        yield f"{absent:,} nodes have no event"


# ---- graphs -------------------------------------------------------------------------------------------------
def _graph_facts(graph: Graph) -> dict[str, Any]:
    from scipy.sparse.csgraph import connected_components

    components, member = connected_components(graph.to_scipy(), directed=True, connection="weak")
    facts: dict[str, Any] = {
        "nodes": graph.num_nodes,
        "stored edges": graph.num_edges,
        "undirected": graph.is_undirected,
        "self-loops": graph.num_self_loops,
        "degree, median / mean / most": _median_mean_max(graph.degree),
        "components": int(components),
        "largest component": int(np.bincount(member).max(initial=0)),
    }
    facts |= _feature_facts(graph.x, graph.edge_attr) | _missing_facts(graph.table)
    facts |= _missing_facts(graph.edge_table, "missing values of edges")
    facts |= _column_facts(graph.table, "columns of nodes") | _column_facts(graph.edge_table, "columns of edges")
    facts |= _type_facts("relations", graph.relation, graph.relation_names)
    facts |= _type_facts("node types", graph.node_type, graph.node_type_names)
    facts |= _label_facts(graph.y, graph.class_names, "nodes")
    if graph.num_classes and graph.y is not None and graph.y.ndim == 1:
        facts["share of edges within a class"] = _homophily(graph)
    return facts | {f"{name} nodes": int(np.atleast_2d(mask)[0].sum()) for name, mask in graph.masks.items()}


def _homophily(graph: Graph) -> float:
    """Return the share of edges between labelled nodes that join two of one class."""
    assert graph.y is not None
    sources, targets = graph.edge_index()
    a, b = graph.y[sources], graph.y[targets]
    known = (a >= 0) & (b >= 0) & (sources != targets)
    return float((a == b)[known].mean()) if known.any() else float("nan")


def _graph_doubts(graph: Graph) -> Iterator[str]:
    isolated = int(((graph.degree + np.bincount(graph.indices, minlength=graph.num_nodes)) == 0).sum())
    if isolated:
        yield f"nodes without an edge: {isolated:,}"
    yield from _edge_doubts(graph)
    sources, targets = graph.edge_index()
    twice = int(((np.diff(sources) == 0) & (np.diff(targets) == 0)).sum())
    if twice:
        yield f"{twice:,} edges are stored more than once"
    yield from _label_doubts(graph.y, graph.class_names, "node")


def _edge_doubts(graph: Graph) -> Iterator[str]:
    if graph.num_self_loops:
        yield f"{graph.num_self_loops:,} edges join a node to itself"
    if not graph.is_undirected:
        yield "edges are directed: most methods here expect both directions stored"
    yield from _feature_doubts("node", graph.x, graph.table, published=graph.published)
    yield from _feature_doubts("edge", graph.edge_attr, graph.edge_table, published=graph.published)
    if graph.x is None:
        yield "there are no node features"


def _set_facts(graphs: GraphSet) -> dict[str, Any]:
    union = graphs.union
    facts: dict[str, Any] = {
        "graphs": graphs.num_graphs,
        "nodes of all": graphs.num_nodes,
        "stored edges of all": union.num_edges,
        "nodes of a graph, median / mean / most": _median_mean_max(np.diff(graphs.offsets)),
        "stored edges of a graph, median / mean / most": _median_mean_max(np.diff(union.indptr[graphs.offsets])),
        "undirected": union.is_undirected,
        "self-loops": union.num_self_loops,
    }
    facts |= _feature_facts(union.x, union.edge_attr) | _missing_facts(union.table)
    facts |= _missing_facts(union.edge_table, "missing values of edges")
    targets = _set_targets(graphs)
    for level, (y, names) in targets.items():
        facts |= _label_facts(y, names, f"{level}s", f" of {level}s")
    first = next(iter(targets), None)
    fits = {None: "there are no targets", "graph": "gmn-graphs or gin-graphs"}
    facts["to fit"] = fits.get(first, f"gmn-graphs --level {first}")
    if graphs.num_splits:
        facts["stored splits"] = graphs.num_splits
        facts |= {f"{name} graphs": len(ids) for name, ids in graphs.split(0).items()}
    return facts


def _set_targets(graphs: GraphSet) -> dict[str, tuple[np.ndarray, Sequence[str] | None]]:
    union = graphs.union
    levels = {"graph": (graphs.y, graphs.class_names), "node": (union.y, union.class_names)}
    levels["edge"] = (graphs.edge_y, union.class_names)
    return {level: (y, names) for level, (y, names) in levels.items() if y is not None}


def _set_doubts(graphs: GraphSet) -> Iterator[str]:
    sizes, edges = np.diff(graphs.offsets), np.diff(graphs.union.indptr[graphs.offsets])
    if (edges == 0).any():
        yield f"{int((edges == 0).sum()):,} graphs have no edge"
    if len(sizes) > 4 and sizes.max() > 100 * np.median(sizes):
        yield f"graph {int(sizes.argmax())} has {sizes.max():,} nodes, over 100 times the median"
    yield from _edge_doubts(graphs.union)
    for level, (y, names) in _set_targets(graphs).items():
        yield from _label_doubts(y, names, level)


# ---- features and labels ------------------------------------------------------------------------------------
def _feature_facts(x: np.ndarray | None, edge_attr: np.ndarray | None) -> dict[str, Any]:
    facts = {}
    for name, array in (("node features", x), ("edge features", edge_attr)):
        zero = array is not None and array.size and not np.any(array)
        facts[name] = "none" if array is None else f"{array.shape[1]}{', all zero' if zero else ''}"
    return facts


def _missing_facts(table: FeatureTable | None, name: str = "missing values") -> dict[str, Any]:
    """Return how many values of each column are missing; nothing if none is."""
    if table is None:
        return {}
    counts = (~np.isfinite(table.values[:MAX_ROWS])).sum(0)
    named = [f"{table.columns[i]}: {counts[i]:,}" for i in np.flatnonzero(counts).tolist()]
    return {name: listed(named, MAX_LISTED)} if named else {}


def _column_facts(table: FeatureTable | None, name: str) -> dict[str, Any]:
    """Return the kind and the range of a table's columns under a name; nothing if its columns have no names."""
    if table is None or all(one.startswith("column ") for one in table.columns):
        return {}
    kinds = dict(one.removesuffix("?").rsplit("=", 1) for one in column_specs_of_run(table.columns))
    frame = pd.DataFrame(table.values[:MAX_ROWS], columns=list(table.columns))
    facts = [_column_text(frame, own, kind) for own, kind in list(kinds.items())[:MAX_LISTED]]
    return {name: "; ".join(facts) + (f"; and {len(kinds) - MAX_LISTED} more" if len(kinds) > MAX_LISTED else "")}


def _column_text(frame: pd.DataFrame, name: str, kind: str) -> str:
    if kind == "category":
        indicators = frame.loc[:, frame.columns.str.startswith(f"{CATEGORY}{name}=")]
        counts = indicators.sum().astype(int).sort_values(ascending=False, kind="stable")
        parts = [f"{str(key).partition('=')[2] or 'none'}: {n:,}" for key, n in counts.head(3).items()]
        others = int(frame[f"{OTHER}{name}"].sum())
        parts += ["..."] * (len(counts) > 3) + [f"others: {others:,}"] * (others > 0)
        return f"{name} category of {len(counts)} ({', '.join(parts)})"
    column = frame[f"{DATE}{name}" if kind == "date" else name].astype(np.float64)
    column = column[np.isfinite(column)]
    if column.empty:
        return f"{name} {kind}, empty"
    if kind == "date":
        first, last = (str(np.datetime64(int(seconds), "s"))[:10] for seconds in (column.min(), column.max()))
        return f"{name} date, {first} to {last}"
    return f"{name} number, {_range(column)}"


def _range(column: pd.Series) -> str:
    return f"{column.min():.4g} to {column.max():.4g}, mean {column.mean():.4g}, sd {column.std(ddof=0):.4g}"


def _feature_doubts(
    name: str, array: np.ndarray | None, table: FeatureTable | None = None, *, published: bool
) -> Iterator[str]:
    if array is None or not array.size:
        return
    array = np.asarray(array)  # numpy reduces a memory map itself without a copy
    low, high = array.min(0), array.max(0)
    if not (np.any(low) or np.any(high)):
        yield f"the {name} features are zero everywhere: they carry nothing"
        return
    constant = low == high
    if table is not None and len(table.columns) == len(low):  # "other" categories are often unused
        constant &= [not column.startswith(OTHER) for column in table.columns]
    if constant.any():
        yield f"{int(constant.sum())} of {len(low)} {name} features never change"
    if not published:  # fit scales them
        return
    ratio, largest, smallest = scale_ratio(array if table is None else table.values)
    if ratio > WARN_SCALE_RATIO:
        names = [f"column {i}" if table is None else repr(table.columns[i]) for i in (largest, smallest)]
        columns_text = f"{names[0]} and {names[1]}" if largest != smallest else f"{names[0]}, which lies far from 0"
        yield (
            f"{name} features differ in scale by {ratio:.0e}, most {columns_text}: fit does not scale them by default "
            "(--read.scale standard)"
        )


def class_counts(y: np.ndarray, names: Sequence[str] | None) -> pd.Series | None:
    """Return how often each class occurs, None of amounts or several targets."""
    if y.ndim > 1:
        return None
    known = pd.Series(np.asarray(y)[:MAX_ROWS]).dropna()
    if y.dtype.kind == "f" and ((known != np.floor(known)).any() or known.nunique() > MAX_LISTED):
        return None
    counts = known[known != -1].astype(np.int64).value_counts().sort_index()
    if names is not None:
        counts = counts.reindex(counts.index.union(pd.RangeIndex(len(names))), fill_value=0)
    return counts.rename(lambda i: names[i] if names is not None and 0 <= i < len(names) else str(i))


def _label_facts(y: np.ndarray | None, names: Sequence[str] | None, of: str, suffix: str = "") -> dict[str, Any]:
    if y is None or not len(y):
        return {}
    counts = class_counts(y, names)
    values = pd.DataFrame(np.asarray(y).reshape(len(y), -1)[:MAX_ROWS])
    known = int(counts.sum()) if counts is not None else int(values.notna().any(axis=1).sum())
    facts = {f"labels{suffix}": f"{known:,} of {len(values):,} {of} ({known / len(values):.0%}) have one"}
    if counts is None:
        parts = [f"{name}: {_target_text(values[at])}" for at, name in enumerate(_target_names(y, names)[:MAX_LISTED])]
        return facts | {f"targets{suffix}": "; ".join(parts)} if known else facts
    shown = [f"{name}: {n:,}" for name, n in counts.head(2 * MAX_LISTED).items()]
    shown += [f"others: {counts.iloc[2 * MAX_LISTED :].sum():,}"] * (len(counts) > 2 * MAX_LISTED)
    return facts | {f"classes{suffix}": ", ".join(shown)} if known else facts


def _target_names(y: np.ndarray, names: Sequence[str] | None) -> Sequence[str]:
    width = 1 if y.ndim == 1 else y.shape[1]
    return names if names is not None and len(names) == width else default_names(width)


def _target_text(column: pd.Series) -> str:
    known = column[np.isfinite(column)].astype(np.float64)
    return "none known" if known.empty else f"{_range(known)} ({len(known):,} known)"


def _label_doubts(y: np.ndarray | None, names: Sequence[str] | None, of: str) -> Iterator[str]:
    """Yield what is wrong with labels (n,) or (n, T): none is known, all are the same, or a class is rare."""
    if y is None or not len(y):
        return
    counts = class_counts(y, names)
    if counts is not None:
        total, present = int(counts.sum()), counts[counts > 0]
        if not total:
            yield f"no {of} has a label: there is nothing to learn"
        elif len(present) == 1:
            yield f"every label is {present.index[0]}: there is nothing to learn"
        else:
            rare = counts[counts < RARE * total]
            yield from (f"class {name} has {n:,} of {total:,} labelled {of}s" for name, n in rare.items())
        return
    wide = pd.DataFrame(np.asarray(y).reshape(len(y), -1)[:MAX_ROWS])
    for at, name in enumerate(_target_names(y, names)):
        values = wide[at].dropna().unique()
        if len(values) < 2:
            what = f"is {values[0]:g} for every labelled {of}" if len(values) else f"is known of no {of}"
            yield f"label {name!r} {what}: there is nothing to learn in it"


def _median_mean_max(counts: np.ndarray) -> str:
    return f"{np.median(counts):g} / {counts.mean():.2f} / {counts.max():,}" if len(counts) else "none"


def _formatted(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


COLOUR = "#0b62b0"  # the first color of a report
MOST_CLASSES = 24


def plot_summary(data: EventStream | Graph | GraphSet, path: str | Path) -> None:
    """Draw a stream's activity and degrees, a graph's degrees and classes, or a set's, as .png, .pdf or .svg."""

    def paint(figure: Figure) -> None:
        first, second = figure.subplots(1, 2)
        if isinstance(data, EventStream):
            _plot_activity(first, data)
            _plot_counts(second, event_degrees(data), "events of a node", "nodes", "degrees")
        elif isinstance(data, GraphSet):
            _plot_counts(first, np.diff(data.offsets), "nodes of a graph", "graphs", "sizes")
            _plot_labels(second, data.y, data.class_names, "graphs")
        else:
            _plot_counts(first, data.degree, "degree", "nodes", "degrees")
            _plot_labels(second, data.y, data.class_names, "nodes")
        figure.suptitle(data.name)

    draw_figure(path, (10, 3.5), paint)


def _plot_activity(axes: Axes, stream: EventStream) -> None:
    if len(stream):
        edges = np.histogram_bin_edges(stream.t[[0, -1]].astype(np.float64), 80)
        counts = np.diff(np.searchsorted(stream.t, edges[1:-1]), prepend=0, append=len(stream))
        whole = edges.astype(np.int64) if stream.t.dtype.kind in "iu" else edges
        axes.stairs(counts, plot_times(whole, stream.time_unit, stream.dates), fill=True, color=COLOUR)
    if stream.dates:
        axes.tick_params(axis="x", rotation=30)
    else:
        format_number_ticks(axes)
    format_number_ticks(axes, "y")
    unit = f" ({stream.time_unit})" if stream.time_unit and not stream.dates else ""
    axes.set(xlabel=f"time{unit}", ylabel="events", title="activity")


def _plot_counts(axes: Axes, values: np.ndarray, what: str, of: str, title: str) -> None:
    """Draw how often whole numbers occur; the share at or above each, on logarithmic axes, if their range is wide."""
    ordered = np.sort(values[values > 0])
    axes.set(xlabel=what, ylabel=of, title=title)
    if len(ordered) and ordered[-1] >= 10 * ordered[0]:
        axes.loglog(ordered, 1 - np.arange(len(ordered)) / len(ordered), drawstyle="steps-post", color=COLOUR)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,g}")
        axes.set_ylabel(f"share of {of} at or above")
        return
    if len(ordered):
        axes.hist(ordered, bins=(np.arange(ordered[0], ordered[-1] + 2) - 0.5).tolist(), color=COLOUR)
    format_number_ticks(axes, integers=True)
    format_number_ticks(axes, "y", integers=True)


def _plot_labels(axes: Axes, y: np.ndarray | None, names: Sequence[str] | None, of: str) -> None:
    """Draw how many are of each class, the largest if they are many; or the amounts."""
    counts = None if y is None else class_counts(y, names)
    if counts is not None:
        shown = counts[counts.index.isin(counts.nlargest(MOST_CLASSES).index)][::-1]
        labels = [name if len(name) <= 24 else f"{name[:23]}…" for name in shown.index]
        axes.barh(np.arange(len(shown)), shown.to_numpy(), color=COLOUR)
        axes.set_yticks(np.arange(len(shown)), labels, fontsize=10 if len(shown) <= 12 else 6)
        format_number_ticks(axes)
        title = "classes" if len(shown) == len(counts) else f"the {len(shown)} largest of {len(counts)} classes"
        axes.set(xlabel=of, ylabel="class", title=title)
    elif y is not None and y.ndim == 1:
        axes.hist(y[~np.isnan(y)], bins=60, color=COLOUR)
        format_number_ticks(axes, "y")
        axes.set(xlabel="target", ylabel=of, title="targets")
    else:
        axes.set_axis_off()
