"""Splits of labelled nodes, of a graph's links and of an event stream's events.

Event streams are split in order of time, by date, or as DyGLib does.

Source: Yu et al. 2023, arXiv:2303.13047 (DyGLib), for `dyglib_split`; its new nodes depend on CPython's order of a
set of integers, reproduced here with the ids of the dataset (1..N where the stream has no vocabulary of integers).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.dates import UNITS, parse_times
from hopstate.data.events import EventStream, as_slice
from hopstate.data.graph import Graph
from hopstate.data.validate import SPLITS
from hopstate.errors import CheckpointError, ConfigError, DataError, FormatError
from hopstate.io.scratch import release_pages
from hopstate.io.tensors import Archive
from hopstate.ops.rows import bounds_of, ranges
from hopstate.random import named_rng


def random_split(
    y: np.ndarray,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    *,
    seed: int = 0,
    stratified: bool = False,
) -> dict[str, np.ndarray]:
    """Return sorted rows of train, val and test, sampled without replacement from labeled rows.

    Args:
        y: (N,) classes, -1 unknown, or (N,) / (N, T) float targets, NaN unknown.
        fractions: shares of train, val and test. Rows beyond their sum are in no split.
        seed: random seed.
        stratified: give every class these shares, to within two nodes.

    Raises:
        ConfigError: shares are negative or sum to more than 1, or stratified is set without classes.
        DataError: no row is labeled.

    Example:
        >>> split = hopstate.splits.random_split(np.repeat([0, 1], 50), (0.6, 0.2, 0.2))
        >>> {name: len(rows) for name, rows in split.items()}
        {'train': 60, 'val': 20, 'test': 20}
    """
    shares = np.asarray(fractions, np.float64)
    if shares.shape != (3,) or (shares < 0).any() or shares.sum() > 1 + 1e-9:
        raise ConfigError(f"fractions are three shares that sum to at most 1; got {list(fractions)}")
    y = np.asarray(y)
    classes = y.dtype.kind in "iu"
    if stratified and not (classes and y.ndim == 1):
        raise ConfigError("a stratified split needs class labels; these are numbers")
    known = y >= 0 if classes else ~np.isnan(y)
    rows = np.flatnonzero(known if known.ndim == 1 else known.any(1))
    if not len(rows):
        raise DataError("no label is known, so that nothing can be drawn for training")
    order = named_rng(seed).permutation(rows)
    sizes = np.diff(np.rint(np.cumsum([0, *shares, max(0.0, 1 - shares.sum())]) * len(rows)).astype(np.int64))
    which = np.repeat(np.arange(4), sizes)  # train, val, test, left over
    if stratified:
        order = order[np.argsort(y[order], kind="stable")]
        # every split's nodes evenly spaced along the classes, so that each class gets its share to within two
        which = which[np.argsort(np.concatenate([(np.arange(n) + 0.5) / max(n, 1) for n in sizes]), kind="stable")]
    return {name: np.sort(order[which == i]) for i, name in enumerate(SPLITS)}


def per_class_split(y: np.ndarray, counts: tuple[int, int], *, seed: int = 0) -> dict[str, np.ndarray]:
    """Return sorted rows of train and val with equal numbers of each class. All other labeled rows are test.

    Args:
        y: (N,) classes, -1 unknown.
        counts: nodes per class for train and for val.
        seed: random seed.

    Raises:
        ConfigError: y is not of classes.
        DataError: a class has too few nodes for the requested sizes and one test node.

    Example:
        >>> split = hopstate.splits.per_class_split(np.repeat([0, 1], 50), (20, 10))
        >>> {name: len(rows) for name, rows in split.items()}
        {'train': 40, 'val': 20, 'test': 40}
    """
    y = np.asarray(y)
    if y.dtype.kind not in "iu" or y.ndim != 1:
        raise ConfigError("nodes of each class need class labels; these are numbers")
    order = named_rng(seed).permutation(np.flatnonzero(y >= 0))
    order = order[np.argsort(y[order], kind="stable")]
    sizes = np.bincount(y[order]) if len(order) else np.zeros(1, np.int64)
    too_small = np.flatnonzero((sizes > 0) & (sizes <= sum(counts)))
    if len(too_small) or not len(order):
        raise DataError(
            f"{counts[0]} training and {counts[1]} validation nodes of each class: class "
            f"{too_small[0] if len(too_small) else 0} has {sizes[too_small[0]] if len(too_small) else 0}; ask for fewer"
        )
    place = ranges(np.zeros_like(sizes), sizes)
    which = np.searchsorted(np.cumsum(counts), place, side="right")
    return {name: np.sort(order[which == i]) for i, name in enumerate(SPLITS)}


def masks_from_rows(splits: Sequence[Mapping[str, np.ndarray]], num_nodes: int) -> dict[str, np.ndarray]:
    """Return masks (R, N) of R splits given as rows of num_nodes = N nodes; (N,) where R is 1."""
    masks = {name: np.zeros((len(splits), num_nodes), bool) for name in splits[0]}
    for number, split in enumerate(splits):
        for name, rows in split.items():
            masks[name][number, rows] = True
    return {name: mask[0] if len(splits) == 1 else mask for name, mask in masks.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeSplit:
    """Links by split.

    Args:
        pairs: "train", "val", "test" to (n, 2) int64 rows of nodes: (source, target) if the graph is directed,
            otherwise each link once, the smaller row first.
        directed: whether the graph is directed.
    """

    pairs: Mapping[str, np.ndarray]
    directed: bool


def split_edges(
    graph: Graph,
    fractions: tuple[float, float, float] = (0.85, 0.05, 0.10),
    *,
    seed: int = 0,
    times: np.ndarray | None = None,
) -> EdgeSplit:
    """Split the links of a graph at random or by time.

    Args:
        graph: the graph.
        fractions: shares of train, val and test, which sum to 1.
        seed: random seed of the split, or of the order of links with equal times.
        times: (E,) times of the stored edges. The latest links are then for test, and those before them for validation.
            A link that is stored several times has the earliest of its times.

    Raises:
        DataError: fewer than three links, or a time that is not a number.

    Example:
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> split = hopstate.splits.split_edges(graph)
        >>> sorted(split.pairs)
        ['test', 'train', 'val']
    """
    stored_keys, rows = _links(graph)
    keys = np.unique(stored_keys)
    order = named_rng(seed).permutation(len(keys))
    if times is not None:
        first = np.full(len(keys), np.inf)
        np.minimum.at(first, np.searchsorted(keys, stored_keys), _checked_times(graph, times)[rows])
        order = order[np.argsort(first[order], kind="stable")]
    if len(keys) < 3:
        raise DataError(
            f"{graph.name} has {len(keys)} links between different nodes; training, validation and test take one each "
            "at least"
        )
    val, test = (max(1, round(share * len(keys))) for share in fractions[1:])
    test = min(test, len(keys) - 2)
    val = min(val, len(keys) - 1 - test)
    which = np.empty(len(keys), np.int8)
    which[order] = np.repeat(np.arange(3, dtype=np.int8), [len(keys) - val - test, val, test])
    return _by_split(graph, keys, which, rows)


def given_split(graph: Graph, pairs: Mapping[str, np.ndarray]) -> EdgeSplit:
    """Return the split in which val and test hold the links given, and train all others.

    Args:
        graph: the graph.
        pairs: "val" and "test" to (n, 2) rows of nodes, in either direction; "train", where it is there, is checked.

    Raises:
        DataError: a pair that is not a link of the graph, one in two splits, or an empty split.

    Example:
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> drawn = hopstate.splits.split_edges(graph).pairs
        >>> given = hopstate.splits.given_split(graph, {"val": drawn["val"], "test": drawn["test"]}).pairs
        >>> (given["train"] == drawn["train"]).all().item()
        True
    """
    stored_keys, rows = _links(graph)
    key = np.unique(stored_keys)
    which = np.zeros(len(key), np.int8)
    assigned = np.zeros(len(key), bool)
    for name, links in pairs.items():
        keys = link_keys(links, graph.num_nodes)
        place = np.minimum(np.searchsorted(key, keys), max(len(key) - 1, 0))
        bad = np.flatnonzero(key[place] != keys) if len(key) else np.arange(len(keys))
        if len(bad):
            u, v = links[bad[0]]
            raise DataError(
                f"the split's {name} pair of rows ({u}, {v}) is not a link of {graph.name} between two nodes"
            )
        number = SPLITS.index(name)
        twice = np.flatnonzero(assigned[place] & (which[place] != number))
        if len(twice):
            u, v = links[twice[0]]
            raise DataError(f"the pair of rows ({u}, {v}) is in {name} and in {SPLITS[int(which[place[twice[0]]])]}")
        which[place], assigned[place] = number, True
    sizes = np.bincount(which, minlength=3)
    if sizes.min() == 0:
        raise DataError(f"the given split leaves {SPLITS[int(sizes.argmin())]} of {graph.name} without a link")
    return _by_split(graph, key, which, rows)


def load_split_pairs(path: Path, num_nodes: int) -> dict[str, np.ndarray]:
    """Load the pairs (n, 2) of each split of a link-prediction run.

    Args:
        path: its split.npz.
        num_nodes: of the run's own graph.

    Raises:
        CheckpointError: it is damaged, or holds something else.
    """
    try:
        with Archive(path) as file:
            found = {name: file[name] for name in SPLITS if name in file}
    except FormatError as error:
        raise CheckpointError(f"{path} is damaged; train again ({error})") from None
    shaped = all(a.ndim == 2 and a.shape[1] == 2 and a.dtype.kind in "iu" for a in found.values())
    if not {"val", "test"} <= found.keys() or not shaped:
        raise CheckpointError(f"{path} holds no split of links; train again")
    if any(((pairs < 0) | (pairs >= num_nodes)).any() for pairs in found.values()):
        raise CheckpointError(f"{path} holds links of nodes that the run's {num_nodes:,} are not; train again")
    return found


def message_edges(graph: Graph, messages: np.ndarray) -> Graph:
    """Return the graph with only the edges of some links, and its self-loops, each with what it carries.

    Args:
        graph: the graph.
        messages: (n, 2) rows of nodes, the links over which messages pass.

    Example:
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> train = hopstate.splits.split_edges(graph).pairs["train"]
        >>> hopstate.splits.message_edges(graph, train).num_edges == 2 * len(train)
        True
    """
    rows = edges_of_links(graph, messages, loops=True)
    kept = np.zeros(graph.num_edges, bool)
    kept[rows] = True
    return graph.with_(indptr=bounds_of(kept)[graph.indptr], indices=graph.indices[rows], **graph.carried(rows))


def edges_of_links(graph: Graph, links: np.ndarray, *, loops: bool = False) -> np.ndarray:
    """Return the stored edges, ascending, of links (n, 2) in both directions; with loops the self-loops too."""
    sources, targets = graph.edge_index()
    allowed = np.unique(link_keys(links, graph.num_nodes))
    own = link_keys(np.stack([sources, targets], 1), graph.num_nodes)
    kept = (sources == targets) & loops
    if len(allowed):
        kept |= allowed[np.minimum(np.searchsorted(allowed, own), len(allowed) - 1)] == own
    return np.flatnonzero(kept)


def link_keys(pairs: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return (n,) int64, equal for the two directions of a link, of pairs (n, 2)."""
    pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
    return pairs.min(1) * num_nodes + pairs.max(1)


def _links(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys of the stored edges that are links, and the rows of these edges."""
    sources, targets = graph.edge_index()
    rows = np.flatnonzero(sources != targets)
    return link_keys(np.stack([sources[rows], targets[rows]], 1), graph.num_nodes), rows


def _checked_times(graph: Graph, times: np.ndarray) -> np.ndarray:
    times = np.asarray(times, np.float64)
    bad = np.flatnonzero(~np.isfinite(times))
    sources, targets = graph.edge_index()
    if len(bad):
        raise DataError(
            f"{graph.name}: the edge of rows ({sources[bad[0]]}, {targets[bad[0]]}) has no time ({len(bad)} edges have "
            "none); fill them in, or split by chance (--link.split random)"
        )
    return times


def _by_split(graph: Graph, key: np.ndarray, which: np.ndarray, rows: np.ndarray) -> EdgeSplit:
    n = max(graph.num_nodes, 1)
    if graph.is_undirected:
        pairs = {name: np.stack([key[which == i] // n, key[which == i] % n], 1) for i, name in enumerate(SPLITS)}
        return EdgeSplit(pairs=pairs, directed=False)
    edges = np.unique(graph.edge_index()[:, rows].T, axis=0)
    own = which[np.searchsorted(key, link_keys(edges, n))]
    return EdgeSplit(pairs={name: edges[own == i] for i, name in enumerate(SPLITS)}, directed=True)


_EMPTY = np.empty(0, np.int64)
IN_SECOND = {unit: UNITS["s"] // size for unit, size in UNITS.items()}
_DURATIONS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}  # letter to seconds
EVENT_SPLITS = ("train", "val", "test", "new_val", "new_test")


@dataclass(frozen=True, eq=False, kw_only=True)
class EventSplit:
    """Positions of a stream's events, ascending, for training, validation and testing.

    Args:
        train, val, test: int64 positions.
        new_val, new_test: those of val and test that touch a node absent from training (the "inductive" rows).
        new_nodes: nodes without events in training, because they were removed; or empty.
        val_time, test_time: training ends at val_time (inclusive), validation at test_time.
    """

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    new_val: np.ndarray = field(default_factory=_EMPTY.copy)
    new_test: np.ndarray = field(default_factory=_EMPTY.copy)
    new_nodes: np.ndarray = field(default_factory=_EMPTY.copy)
    val_time: float = float("nan")
    test_time: float = float("nan")

    def rows(self, split: str) -> np.ndarray:
        """Return the positions of "train", "val", "test", "new_val" or "new_test"."""
        if split not in EVENT_SPLITS:
            raise ConfigError(f"unknown split {split!r}; known: {', '.join(EVENT_SPLITS)}")
        return getattr(self, split)


def chronological_split(stream: EventStream, *, val_ratio: float = 0.15, test_ratio: float = 0.15) -> EventSplit:
    """Split by quantiles of time. Events with equal timestamps are in one split.

    Deletions of edges that follow from the deletion of a node do not count in the quantiles.

    Raises:
        ConfigError: ratios that are not positive or leave nothing.
        DataError: no training, validation or test events remain.

    Example:
        >>> stream = hopstate.read_events(events)
        >>> split = hopstate.splits.chronological_split(stream)
        >>> len(split.rows("train")), len(split.rows("test"))
        (84, 18)
    """
    val_time, test_time = _quantiles(stream, val_ratio, test_ratio)
    return split_at(stream, val_time, test_time)


def split_at(stream: EventStream, val_time: Any, test_time: Any) -> EventSplit:
    """Split by time: training t <= val_time, validation val_time < t <= test_time, test later.

    Args:
        val_time, test_time: numbers in the stream's unit; or dates (`datetime`, or text such as "2024-03-01") if the
            stream's time_unit is s, ms, us or ns since 1970. Dates without a zone have the stream's zone.

    Raises:
        ConfigError: the times are out of order, or dates on a stream of unknown unit.
        DataError: no training, validation or test events remain.

    Example:
        >>> stream = hopstate.read_events(events)
        >>> split = hopstate.splits.split_at(stream, 79, 99)
        >>> len(split.train), len(split.val), len(split.test)
        (80, 20, 20)
    """
    low, high = parse_times([val_time, test_time], stream.time_unit, stream.dates, stream.name)
    if low > high:
        raise ConfigError(f"val_time {val_time} must not be after test_time {test_time}")
    first, second = np.searchsorted(stream.t, [low, high], side="right")
    rows = np.arange(len(stream))
    return _finish(stream, (rows[:first], rows[first:second], rows[second:]), (low, high))


def dyglib_split(
    stream: EventStream,
    *,
    val_ratio: float = 0.15,
    test_ratio: float = 0.15,
    new_node_ratio: float = 0.1,
    seed: int = 2020,
) -> EventSplit:
    """Split as DyGLib: by quantiles of time. A tenth of the nodes, sampled from later events, is removed from training.

    Args:
        val_ratio, test_ratio: shares of the events.
        new_node_ratio: share of all nodes to remove from training.
        seed: of `random.sample`.

    Raises:
        ConfigError: ratios that are not positive or leave nothing.
        DataError: no training, validation or test events remain.

    Example:
        >>> stream = hopstate.read_events(events)
        >>> split = hopstate.splits.dyglib_split(stream)
        >>> len(split.val), len(split.test)
        (18, 18)
    """
    val_time, test_time = _quantiles(stream, val_ratio, test_ratio)
    ids = np.arange(1, stream.num_nodes + 1)
    if stream.node_ids is not None and not stream.node_ids.is_text:
        ids = stream.node_ids.ids
    later = int(np.searchsorted(stream.t, val_time, side="right"))
    # The order of this set decides who is drawn, so it is built exactly as there: sources, then destinations.
    pool = set(ids[stream.src[later:]].tolist()).union(set(ids[stream.dst[later:]].tolist()))
    num_seen = len(np.union1d(stream.src, stream.dst))
    count = int(new_node_ratio * num_seen)
    if count > len(pool):
        raise ConfigError(
            f"new_node_ratio {new_node_ratio} asks for {count} new nodes, only {len(pool)} are seen after training"
        )
    drawn = random.Random(seed).sample(tuple(pool), count)
    new = np.flatnonzero(np.isin(ids, drawn))
    second = int(np.searchsorted(stream.t, test_time, side="right"))
    rows = np.arange(len(stream))
    kept = rows[:later][~_touches(stream, rows[:later], new)]
    return _finish(stream, (kept, rows[later:second], rows[second:]), (val_time, test_time), new)


def _touches(stream: EventStream, rows: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    among = np.zeros(stream.num_nodes, bool)
    among[nodes] = True
    part = as_slice(rows)
    return among[stream.src[part]] | among[stream.dst[part]]


def _finish(
    stream: EventStream,
    parts: tuple[np.ndarray, np.ndarray, np.ndarray],
    times: tuple[float, float],
    new_nodes: np.ndarray = _EMPTY,
) -> EventSplit:
    """Return the split of rows of train, val and test, which end at times."""
    sizes = {name: len(rows) for name, rows in zip(SPLITS, parts, strict=True)}
    empty = next((name for name, size in sizes.items() if not size), None)
    if empty is not None:
        raise DataError(
            f"{stream.name}: the split leaves no {empty} events, got {sizes}; choose other ratios or times, or more "
            "data"
        )
    train, val, test = parts
    unseen = np.ones(stream.num_nodes, bool)
    part = as_slice(train)
    unseen[stream.src[part]] = False
    unseen[stream.dst[part]] = False
    absent = np.flatnonzero(unseen)
    new_val, new_test = (rows[_touches(stream, rows, absent)] for rows in (val, test))
    release_pages(stream.src, stream.dst, stream.t)
    return EventSplit(
        train=train, val=val, test=test, new_val=new_val, new_test=new_test, new_nodes=new_nodes,
        val_time=float(times[0]), test_time=float(times[1]),
    )  # fmt: skip


def _quantiles(stream: EventStream, val_ratio: float, test_ratio: float) -> tuple[float | int, float | int]:
    if not (val_ratio > 0 and test_ratio > 0 and val_ratio + test_ratio < 1):
        raise ConfigError(f"val_ratio {val_ratio} and test_ratio {test_ratio} must be positive and leave training data")
    if not len(stream):
        raise DataError(f"{stream.name}: the stream is empty; there is nothing to split")
    return _quantile(stream.t, 1 - val_ratio - test_ratio), _quantile(stream.t, 1 - test_ratio)


def _quantile(t: np.ndarray, share: float) -> float | int:
    """Return `np.quantile` of rising numbers, which would copy them; of large integers exact, rounded down.

    >>> _quantile(np.array([1, 2, 4]), 0.75)
    3.0
    """
    place = share * (len(t) - 1)
    low = int(place)
    a, b = t[low], t[min(low + 1, len(t) - 1)]
    if t.dtype.kind == "i" and max(abs(int(t[0])), abs(int(t[-1]))) > 2**53:  # such as nanoseconds since 1970
        gap = int(b) - int(a)  # alone a float
        return int(a) + min(math.floor((place - low) * gap), max(gap - 1, 0))
    return float(np.quantile(np.array([a, b]), place - low)) if b != a else float(a)


# ---- windows of a fixed duration ---------------------------------------------------------------------------------
def split_windows(stream: EventStream, window: Any) -> EventSplit:
    """Split by a duration: the last window is test, the one before it is validation, and all earlier events train.

    Args:
        window: a number in the stream's unit, or a duration; see `parse_duration`.

    Raises:
        ConfigError: the duration is invalid, or leaves no time for training.
        DataError: no training, validation or test events remain.

    Example:
        >>> stream = hopstate.read_events(events)
        >>> split = hopstate.splits.split_windows(stream, 20)
        >>> len(split.train), len(split.val), len(split.test)
        (80, 20, 20)
    """
    length, end = parse_duration(stream, window), stream.t[-1].item()
    low, high = end - 2 * length, end - length
    if low < stream.t[0]:
        raise ConfigError(
            f"two windows of {window} are {2 * length:g} of the stream's {end - stream.t[0].item():g} units of time "
            "and leave none for training; give a shorter split.window"
        )
    return split_at(stream, low, high)


def parse_duration(stream: EventStream, duration: Any) -> float | int:
    """Return a duration in the stream's unit. It is exact if the stream has integer times.

    Args:
        stream: the event stream.
        duration: a number in its unit, or text such as 30s, 15m, 12h, 7d or 4w if the unit is s, ms, us or ns.

    Raises:
        ConfigError: the duration is invalid or not above 0, or the unit of the stream is unknown.

    >>> import numpy as np
    >>> one = np.zeros(1, np.int64)
    >>> parse_duration(EventStream(src=one, dst=one, t=one, num_nodes=1, time_unit="ms"), "2h")
    7200000
    """
    text = str(duration).strip()
    factor, number = 1, text
    if text and text[-1] in _DURATIONS:
        if stream.time_unit not in IN_SECOND:
            raise ConfigError(
                f"{stream.name}: what a time counts in is unknown, so {text!r} means nothing; say it "
                "(--read.time_unit s) or give the window as a number in the file's own unit"
            )
        factor, number = _DURATIONS[text[-1]] * IN_SECOND[stream.time_unit], text[:-1]
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigError(f"{duration!r} is not a duration above 0 such as 12h, 7d or 3600 (in the stream's unit)")
    length = value * factor
    return max(1, round(length)) if stream.t.dtype.kind == "i" else length
