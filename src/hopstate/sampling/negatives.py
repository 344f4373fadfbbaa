"""Negative sampling for dynamic link prediction, in evaluation and training.

`STRATEGIES` maps names to negative-sampling strategies. To add one, subclass `NegativeStrategy` and register it there.
Evaluation draws its negatives once from a seed and saves them with the run. Training draws a `Mixture` of negatives
again in each epoch.

Deletion events are not positives and do not count as interactions.

Source: Yu et al. 2023, arXiv:2303.13047 (DyGLib), after Poursafaei et al. 2022, arXiv:2207.10128; Huang et al. 2023,
arXiv:2307.01026 (TGB), for one against many and `tgb_negatives`.
Deviation: historical and inductive negatives have DyGLib's distribution but not the same values, because DyGLib's order
is that of Python sets.
"""

from __future__ import annotations

import json
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack

import numpy as np

from hopstate.data.events import EventStream, as_slice, order_of_first
from hopstate.data.splits import EventSplit
from hopstate.errors import ConfigError, DataError, FormatError, MissingFileError, check_range, nearest, refuse_idle
from hopstate.io.files import replace_file
from hopstate.io.opening import exists, parse_json
from hopstate.io.scratch import release_pages
from hopstate.io.tensors import Archive
from hopstate.ops.rows import ranges
from hopstate.random import named_rng
from hopstate.sampling.event_batches import rows_of_batches, sample_batches, sample_rows


@dataclass(frozen=True, eq=False, kw_only=True)
class Negatives:
    """Negative pairs of some positive events; those of positive i have indices offsets[i]:offsets[i+1].

    Args:
        rows: (P,) int64 positions of the positive events in the stream.
        offsets: (P+1,) int64 offsets into src and dst.
        src, dst: (offsets[-1],) int64 node rows.
        strategy: name of the negative-sampling strategy.
        seed: random seed.
        batch_size: positives per batch, on which historical and inductive negatives depend.
        content_hash: hash of the stream, checked on load.
    """

    rows: np.ndarray
    offsets: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    strategy: str
    seed: int
    batch_size: int
    content_hash: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def equals(self, other: Negatives) -> bool:
        """Return whether both have the same events and the same negative pairs."""
        columns = ("rows", "offsets", "src", "dst")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in columns)

    def collisions(self, stream: EventStream) -> np.ndarray:
        """Return (offsets[-1],) bool: which negatives equal the pair of their own positive event."""
        of = np.repeat(self.rows, np.diff(self.offsets))
        return (stream.src[of] == self.src) & (stream.dst[of] == self.dst)

    def take(self, rows: np.ndarray) -> Negatives:
        """Return the negatives of a subset of the events.

        Args:
            rows: (n,) sorted positions of the events in the stream.

        Raises:
            DataError: an event has no negatives here.
        """
        place = np.minimum(np.searchsorted(self.rows, rows), max(len(self.rows) - 1, 0))
        if len(rows) and (not len(self.rows) or not np.array_equal(self.rows[place], rows)):
            raise DataError(f"some events are not among the {len(self.rows)} events of these negatives")
        counts = np.diff(self.offsets)[place]
        chosen = ranges(self.offsets[:-1][place], counts)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return replace(self, rows=rows, offsets=offsets, src=self.src[chosen], dst=self.dst[chosen])

    def save(self, path: Path | str) -> None:
        """Save as an .npz file, atomically."""
        facts = {"strategy": self.strategy, "seed": self.seed, "batch_size": self.batch_size}
        note = np.frombuffer(json.dumps(facts | {"content_hash": self.content_hash}).encode(), np.uint8)
        columns = {"rows": self.rows, "offsets": self.offsets, "src": self.src, "dst": self.dst, "facts": note}

        def write(part: Path) -> None:
            # level 1 takes an eighth of the time of numpy's level 6; the file is 4% larger
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for name, column in columns.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, column, allow_pickle=False)

        replace_file(Path(path), write)

    @classmethod
    def load(cls, path: Path | str, stream: EventStream | None = None) -> Negatives:
        """Load negatives that `save` wrote.

        Args:
            path: the .npz file.
            stream: check that the negatives were drawn for this stream. Default: no check.

        Raises:
            MissingFileError: the file does not exist.
            FormatError: the file has another format or is damaged.
            DataError: the negatives were drawn for another stream.
        """
        path = Path(path)
        if not exists(path):
            raise MissingFileError(f"no negatives at {path}")
        with Archive(path) as archive:
            try:
                arrays: dict[str, Any] = {name: archive[name] for name in ("rows", "offsets", "src", "dst")}
                facts = parse_json(archive["facts"].tobytes(), f"the settings in {path}")
                loaded = cls(**arrays, **facts)
            except (KeyError, TypeError) as error:
                raise FormatError(f"{path} does not hold saved negatives: {error}") from None
        loaded._check(path)
        if stream is not None and loaded.content_hash != stream.content_hash:
            raise DataError(f"{path} was drawn for another stream than {stream.name}; draw the negatives again")
        if stream is not None:
            for name, limit in (("rows", len(stream)), ("src", stream.num_nodes), ("dst", stream.num_nodes)):
                column = getattr(loaded, name)
                if len(column) and not 0 <= column.min() <= column.max() < limit:
                    raise FormatError(f"{path} is damaged: {name} leaves 0..{limit - 1}; draw the negatives again")
        return loaded

    def _check(self, path: Path) -> None:
        wrong = [
            name
            for name in ("rows", "offsets", "src", "dst")
            if getattr(self, name).dtype != np.int64 or getattr(self, name).ndim != 1
        ]
        facts = ("strategy", str), ("seed", int), ("batch_size", int), ("content_hash", str)
        wrong += [name for name, kind in facts if type(getattr(self, name)) is not kind]
        if wrong:
            raise FormatError(f"{path} does not hold saved negatives: {wrong[0]} is of another kind; draw them again")
        bounds = self.offsets
        if len(bounds) != len(self.rows) + 1 or bounds[0] != 0 or (np.diff(bounds) < 0).any():
            raise FormatError(f"{path} is damaged: its offsets fit no {len(self.rows)} positives; draw them again")
        if not bounds[-1] == len(self.src) == len(self.dst):
            raise FormatError(f"{path} is damaged: {len(self.src)} sources, {bounds[-1]} negatives; draw them again")


KeyT = TypeVar("KeyT")


def distinct_sets(drawn: Mapping[KeyT, Negatives]) -> dict[KeyT, Negatives]:
    """Return the sets of negatives that do not equal an earlier set.

    For events with unseen nodes, historical and inductive negatives are the same.
    """
    found: dict[KeyT, Negatives] = {}
    for key, one in drawn.items():
        if not any(one.equals(other) for other in found.values()):
            found[key] = one
    return found


MAX_NEGATIVES = 1 << 30  # per split, in memory
_SORTED = 1 << 24  # events per sort
SEEDS = {"val": 0, "new_val": 1, "test": 2, "new_test": 3}  # DyGLib's


class NoOtherPairError(DataError):
    """A batch contains every possible pair, so there is no negative."""


class DrawOptions(TypedDict, total=False):
    """Options of `NegativeStrategy.draw`.

    Args:
        num_negatives: negatives per event, for ranking strategies. Default: 100.
        seed: random seed of strategies without published seeds. Default: 0.
        max_events: evaluate a sample of at most this many events (see `event_batches.sample_rows`). Default: all.
    """

    num_negatives: int | Literal["all"]
    seed: int
    max_events: int | None


class NegativeStrategy(ABC):
    """A negative-sampling strategy for evaluation."""

    name: str  # in evaluation.strategies, metric names and file names
    label: str  # in tables
    ranking = False  # True: many negatives per event (MRR, Hits@k); False: one (AP, ROC AUC)

    @abstractmethod
    def draw(self, stream: EventStream, splits: EventSplit, split: str, **how: Unpack[DrawOptions]) -> Negatives:
        """Draw the negatives of a split.

        Args:
            stream: the event stream.
            splits: its splits.
            split: "train", "val", "test", "new_val" or "new_test".
            how: see `DrawOptions`.

        Raises:
            NoOtherPairError: a batch contains every possible pair.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class Batches:
    """Positive events in batches, and the pool of events that their negatives are drawn from.

    Args:
        src, dst, t: (P,) sources, destinations and times of the positive events.
        pool: sources, destinations and times of the pool, sorted by time.
        numbers: (B,) batch numbers within the split, which seed the draws.
        batch_size: events per batch.
        seed: random seed.
        observed: time of the last event before the split; None in training.
        avoid_positives: draw again if a random destination equals that of the positive event.
    """

    src: np.ndarray
    dst: np.ndarray
    t: np.ndarray
    pool: tuple[np.ndarray, np.ndarray, np.ndarray]
    numbers: np.ndarray
    batch_size: int
    seed: int
    observed: float | None
    avoid_positives: bool


class OnePerEvent(NegativeStrategy):
    """A strategy with one negative pair per event; see `draw_negatives`."""

    def draw(self, stream: EventStream, splits: EventSplit, split: str, **how: Unpack[DrawOptions]) -> Negatives:
        return draw_negatives(stream, splits, split, self.name, max_events=how.get("max_events"))

    @abstractmethod
    def pairs(self, batches: Batches) -> tuple[np.ndarray, np.ndarray]:
        """Return (P,) sources and (P,) destinations."""


class RandomNegatives(OnePerEvent):
    """Random negatives: keep the source and draw the destination uniformly from the pool, bit-identical to DyGLib.

    As in DyGLib, a negative may equal its positive event. Training avoids this (`avoid_positives`), and evaluation
    reports how often it occurs.
    """

    name, label = "random", "random negatives"

    def pairs(self, batches: Batches) -> tuple[np.ndarray, np.ndarray]:
        size, numbers = batches.batch_size, batches.numbers
        count = len(batches.src) + int(numbers[-1] + 1 - len(numbers)) * size  # from the first event of the split
        src, dst, _ = batches.pool
        drawn = random_destinations(src, dst, count, size, batches.seed, avoid_positives=batches.avoid_positives)
        return batches.src, rows_of_batches(drawn, numbers, size)


class HistoricalNegatives(OnePerEvent):
    """Historical negatives: pairs that occurred before the batch but not within its time window.

    If there are too few, the remaining negatives are random pairs that are not in the batch.
    """

    name, label = "historical", "historical negatives"

    def pairs(self, batches: Batches) -> tuple[np.ndarray, np.ndarray]:
        return _draw_past_pairs(batches, None)


class InductiveNegatives(OnePerEvent):
    """Inductive negatives: historical pairs that first occurred after the last observed event."""

    name, label = "inductive", "inductive negatives"

    def pairs(self, batches: Batches) -> tuple[np.ndarray, np.ndarray]:
        return _draw_past_pairs(batches, batches.observed)


class RankingNegatives(NegativeStrategy):
    """Many negative destinations per event, for ranking metrics; see `one_against_many`."""

    name, label, ranking = "ranking", "ranking", True

    def draw(self, stream: EventStream, splits: EventSplit, split: str, **how: Unpack[DrawOptions]) -> Negatives:
        return one_against_many(stream, splits, split, **how)


STRATEGIES: dict[str, NegativeStrategy] = {
    strategy.name: strategy
    for strategy in (RandomNegatives(), HistoricalNegatives(), InductiveNegatives(), RankingNegatives())
}
DEFAULT_STRATEGIES = ("random", "historical", "inductive")
_WITHOUT_PREFIX = ("random", "ranking")  # their metrics have different names
_RANKING_METRICS = ("mrr", "hits@", "ndcg@", "recall@")


def strategy_of(name: str) -> NegativeStrategy:
    """Return a strategy by name.

    Raises:
        ConfigError: the name is unknown.
    """
    if name not in STRATEGIES:
        raise ConfigError(f"unknown negatives {name!r}{nearest(name, STRATEGIES)}; known: {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def metric_name(metric: str, strategy: str, *, new_nodes: bool) -> str:
    """Return the name of a metric for a strategy. Only historical and inductive negatives are a prefix.

    >>> metric_name("mrr", "ranking", new_nodes=True), metric_name("roc_auc", "historical", new_nodes=False)
    ('new_mrr', 'historical_roc_auc')
    """
    return f"{'new_' if new_nodes else ''}{'' if strategy in _WITHOUT_PREFIX else f'{strategy}_'}{metric}"


def parse_metric(name: str) -> tuple[str, NegativeStrategy, bool]:
    """Split a metric name into metric, strategy and whether it covers events with unseen nodes; see `metric_name`.

    >>> metric, strategy, new_nodes = parse_metric("new_mrr")
    >>> metric, strategy.name, new_nodes
    ('mrr', 'ranking', True)
    """
    metric = name.removeprefix("new_")
    default = STRATEGIES["ranking" if metric.startswith(_RANKING_METRICS) else "random"]
    strategy = next((s for s in STRATEGIES.values() if metric.startswith(f"{s.name}_")), default)
    return metric.removeprefix(f"{strategy.name}_"), strategy, name.startswith("new_")


def draw_negatives(
    stream: EventStream,
    splits: EventSplit,
    split: str,
    strategy: str = "random",
    *,
    seed: int | None = None,
    batch_size: int = 200,
    part: slice | None = None,
    max_events: int | None = None,
    avoid_positives: bool = False,
) -> Negatives:
    """Draw one negative pair for each event of a split.

    A subset of the events (`part`, `max_events`) gets the same negatives as in a draw for the full split.

    Args:
        stream: the event stream.
        splits: its splits.
        split: "train", "val", "test", "new_val" or "new_test". A "new" split draws from its own events only.
        strategy: name of a `OnePerEvent` strategy. Default: "random".
        seed: random seed. Default: DyGLib's seed for the split (val 0, new_val 1, test 2, new_test 3; train 0).
        batch_size: events per batch. Default: 200.
        part: draw only for this range of the split's events. Default: all.
        max_events: draw only for a sample of at most this many events (see `sample_rows`). Default: all.
        avoid_positives: draw again if a random destination equals that of the event; for split "train" only.

    Raises:
        ConfigError: the strategy is unknown or has many negatives per event, or batch_size is below 1.
        DataError: there are no events to draw for.
        NoOtherPairError: a batch contains every possible pair.
    """
    rows, kind = stream.additions(splits.rows(split)), strategy_of(strategy)
    if not isinstance(kind, OnePerEvent):
        raise ConfigError(f"strategy must draw one negative per event: got {strategy!r}")
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1: got {batch_size}")
    if not len(rows):
        raise DataError(f"cannot draw negatives: split {split!r} of {stream.name} has no events")
    seed = SEEDS.get(split, 0) if seed is None else seed
    pool = {"train": splits.train, "new_val": splits.new_val, "new_test": splits.new_test}.get(split)
    if pool is not None or stream.has_deletes:
        pool = stream.additions(pool)
    pool_src, pool_dst, pool_t = (c if pool is None else c[as_slice(pool)] for c in (stream.src, stream.dst, stream.t))
    begin, end, _ = (part or slice(None)).indices(len(rows))
    if begin >= end:
        raise DataError(f"{part} contains none of the {len(rows)} events of split {split!r} of {stream.name}")
    numbers = sample_batches(len(rows), max_events, batch_size)  # batches are drawn completely, then cut to part
    numbers = numbers[(numbers >= begin // batch_size) & (numbers <= (end - 1) // batch_size)]
    cut = slice(begin - numbers[0] * batch_size, end - numbers[0] * batch_size) if part else slice(None)
    rows = rows_of_batches(rows, numbers, batch_size)
    observed = {"train": None, "val": splits.train, "new_val": splits.train}.get(split, splits.val)
    batches = Batches(
        src=stream.src[as_slice(rows)],
        dst=stream.dst[as_slice(rows)],
        t=stream.t[as_slice(rows)],
        pool=(pool_src, pool_dst, pool_t),
        numbers=numbers,
        batch_size=batch_size,
        seed=seed,
        observed=None if observed is None else stream.t[observed[-1]],
        avoid_positives=avoid_positives,
    )
    src, dst = kind.pairs(batches)
    if stream.relation is not None:
        src, dst = RelationEnds(stream, pool).respected(rows, src, dst, seed=seed, avoid_positives=avoid_positives)
    return Negatives(
        rows=rows[cut],
        offsets=np.arange(len(rows[cut]) + 1),
        src=src[cut],
        dst=dst[cut],
        strategy=strategy,
        seed=seed,
        batch_size=batch_size,
        content_hash=stream.content_hash,
    )


class RelationEnds:
    """Sources and targets that each relation of a stream joins.

    They are the nodes that are an end of its events; of nodes with types, all nodes of their types.

    Args:
        stream: events with relations.
        rows: (P,) positions of the events to read. Default: all.
    """

    def __init__(self, stream: EventStream, rows: np.ndarray | None = None) -> None:
        assert stream.relation is not None
        self._stream = stream
        part = slice(None) if rows is None else as_slice(rows)
        relation, src, dst = (column[part] for column in (stream.relation, stream.src, stream.dst))
        self._order = order_of_first(relation)  # seeds draws, so that other numbers of relations change nothing
        self._targets = None if stream.node_type is None else _distinct(dst)
        self._size = stream.num_nodes if stream.node_type is None else len(stream.node_type_names) + 1
        self._keys = [np.unique(self._key(relation, ends)) for ends in (src, dst)]

    def _key(self, relation: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Return (Q,) numbers of relations (Q,) with nodes (Q,), or with their types if nodes have types."""
        types = self._stream.node_type
        return relation.astype(np.int64) * self._size + (nodes if types is None else types[nodes] + 1)

    def joins(self, side: Literal[0, 1], relation: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Return (Q,) whether each relation (Q,) joins each of nodes (Q,) as a source (side 0) or a target (side 1)."""
        keys, wanted = self._keys[side], self._key(relation, nodes)
        return keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted

    def targets(self, relation: int) -> np.ndarray:
        """Return the sorted targets that a relation joins."""
        if self._targets is not None:
            return self._targets[self.joins(1, np.full(len(self._targets), relation), self._targets)]
        first, last = np.searchsorted(self._keys[1], [relation * self._size, (relation + 1) * self._size])
        return self._keys[1][first:last] - relation * self._size

    def respected(
        self, rows: np.ndarray, src: np.ndarray, dst: np.ndarray, *, seed: int, avoid_positives: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return negatives of events at rows (P,), with random targets of the event's relation in place of wrong pairs.

        Args:
            rows: positions of the events.
            src, dst: (P,) or (P, K) negatives; a pair is wrong if the event's relation joins no such nodes.
            seed: random seed.
            avoid_positives: a new target is not the event's own, if the relation has another.
        """
        width = src.size // max(len(rows), 1)
        event = np.repeat(rows, width)
        relation = self._stream.pairs(event)[3]
        u, v = src.reshape(-1).copy(), dst.reshape(-1).copy()
        wrong = np.flatnonzero(~(self.joins(0, relation, u) & self.joins(1, relation, v)))
        u[wrong] = self._stream.src[event[wrong]]
        for r in np.unique(relation[wrong]).tolist():
            mine, pool = wrong[relation[wrong] == r], self.targets(r)
            rng, own = named_rng(seed, "relation", self._order.index(r)), self._stream.dst[event[mine]]
            place = np.searchsorted(pool, own)
            avoided = avoid_positives and len(pool) > 1
            drawn = rng.integers(0, len(pool) - avoided, len(mine))
            v[mine] = pool[drawn + (avoided & (drawn >= place))]
        return u.reshape(src.shape), v.reshape(dst.shape)


def random_destinations(
    src: np.ndarray, dst: np.ndarray, count: int, batch_size: int, seed: int, *, avoid_positives: bool = False
) -> np.ndarray:
    """Draw destinations uniformly from the distinct values of dst, with the same random numbers as DyGLib.

    DyGLib also draws sources, which are not used; here they only advance the generator.

    Args:
        src, dst: (P,) sources and destinations of the pool.
        count: number of destinations to draw.
        batch_size: events per batch.
        seed: random seed.
        avoid_positives: draw again, uniformly from the others, if a destination equals that of the event.
    """
    sources, destinations = _distinct(src), _distinct(dst)
    state = np.random.RandomState(seed)
    out = np.empty(count, np.int64)
    for start in range(0, count, batch_size):
        size = min(batch_size, count - start)
        state.randint(0, len(sources), size)
        out[start : start + size] = state.randint(0, len(destinations), size)
    found = destinations[out]
    if avoid_positives and len(destinations) > 1:
        same = np.flatnonzero(found == dst[:count])
        again = named_rng(seed, "others").integers(0, len(destinations) - 1, len(same))
        found[same] = destinations[again + (destinations[again] >= found[same])]
    release_pages(src, dst)
    return found


def _distinct(nodes: np.ndarray) -> np.ndarray:
    """Return `np.unique(nodes)`, without a sorted copy if there are many nodes."""
    highest = int(nodes.max(initial=-1))
    if len(nodes) < 1024 or highest > 8 * len(nodes):
        return np.unique(nodes)
    occurs = np.zeros(highest + 1, bool)
    occurs[nodes] = True
    return np.flatnonzero(occurs)


def _draw_past_pairs(batches: Batches, last_observed: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Draw pairs that occurred before the batch, or only those that first occurred after last_observed."""
    from hopstate.sampling.kernels import draw_past_pairs, fill_random_pairs

    (src, dst, t), batch_size, seed, numbers = batches.pool, batches.batch_size, batches.seed, batches.numbers
    batch_src, batch_dst, batch_t = batches.src, batches.dst, batches.t
    starts = np.append(np.arange(0, len(batch_t), batch_size), len(batch_t))
    t0, t1 = batch_t[starts[:-1]], batch_t[starts[1:] - 1]
    stop = int(np.searchsorted(t, t1[-1], side="right"))  # later events do not matter
    pairs, first, num_pairs = _number_pairs(src[:stop], dst[:stop])
    high = np.searchsorted(first, np.searchsorted(t, t0, side="right"))  # pairs that occurred by then
    low = 0 if last_observed is None else int(np.searchsorted(first, np.searchsorted(t, last_observed, side="right")))
    low = np.minimum(np.full(len(high), low), high)
    begin, end = np.searchsorted(t, t0, side="left"), np.searchsorted(t, t1, side="right")
    chosen, found = np.empty(len(batch_t), np.int64), np.empty(len(high), np.int64)
    draw_past_pairs(low, high, begin, end, pairs, starts, seed, numbers, num_pairs, chosen, found)

    sources, destinations = _distinct(src), _distinct(dst)
    missing = np.diff(starts) - found
    grid = np.searchsorted(sources, batch_src) * len(destinations) + np.searchsorted(destinations, batch_dst)
    out_src, out_dst = np.empty(len(batch_t), np.int64), np.empty(len(batch_t), np.int64)
    _check_grid(missing, grid, starts, numbers, len(sources) * len(destinations))
    fill_random_pairs(missing, grid, starts, len(sources), len(destinations), seed + 1, numbers, out_src, out_dst)
    place = ranges(np.zeros(len(starts) - 1, np.int64), np.diff(starts))
    filled = place < np.repeat(missing, np.diff(starts))
    from_pool = first[chosen[place < np.repeat(found, np.diff(starts))]]
    negative_src, negative_dst = np.empty_like(out_src), np.empty_like(out_dst)
    negative_src[filled], negative_dst[filled] = sources[out_src[filled]], destinations[out_dst[filled]]
    negative_src[~filled], negative_dst[~filled] = src[from_pool], dst[from_pool]
    release_pages(src, dst, t)
    return negative_src, negative_dst


def _number_pairs(src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Number the distinct pairs by first occurrence.

    The sources are sorted in parts to limit memory: a column of 100 million events takes almost a gigabyte.

    Returns:
        (E,) pair number of each event, (pairs,) first event of each pair, and the number of pairs.
    """
    count, width = len(src), int(dst.max(initial=0)) + 1
    kind = np.int32 if count < 2**31 else np.int64
    head = np.empty(count, kind)  # the first event of each event's pair
    shares = -(-count // _SORTED)
    for share in range(shares):
        events = np.flatnonzero(src % shares == share) if shares > 1 else np.arange(count)
        key = src[events] * width
        key += dst[events]
        order = np.argsort(key, kind="stable")  # stable: events of a pair stay sorted by time
        key, events = key[order], events[order]
        new = np.append(True, key[1:] != key[:-1])[: len(key)]
        head[events] = np.repeat(events[new], np.diff(np.flatnonzero(np.append(new, True))))
        release_pages(src, dst)
    first = np.flatnonzero(head == np.arange(count, dtype=kind))
    number = np.empty(count, kind)  # pair number, set at the first event of each pair
    number[first] = np.arange(len(first), dtype=kind)
    for a in range(0, count, _SORTED):
        head[a : a + _SORTED] = number[head[a : a + _SORTED]]
    return head, first, len(first)


def _check_grid(missing: np.ndarray, grid: np.ndarray, starts: np.ndarray, numbers: np.ndarray, size: int) -> None:
    for b in np.flatnonzero(missing):
        if size <= starts[b + 1] - starts[b] and len(np.unique(grid[starts[b] : starts[b + 1]])) >= size:
            what = "Use smaller batches" if size > 1 else "The data has only one source and one target"
            raise NoOtherPairError(f"cannot draw negatives: batch {numbers[b]} contains every possible pair. {what}")


def one_against_many(
    stream: EventStream,
    splits: EventSplit,
    split: str = "test",
    *,
    num_negatives: int | Literal["all"] = 100,
    seed: int = 0,
    max_events: int | None = None,
) -> Negatives:
    """Draw many negative destinations for each positive (s, d, t), as in TGB.

    Up to half of them are destinations of s in the training split, the others are not. Destinations of s at time t are
    excluded. If events have relations, candidates are the targets that the relation of the event joins (see
    `RelationEnds`), and destinations of s at time t are excluded if they have that relation.

    Args:
        stream: the event stream.
        splits: its splits.
        split: split of the positives. Default: "test".
        num_negatives: number of negatives per positive, drawn without replacement; fewer if there are not enough. "all"
            takes all destinations, as TGB does for tgbl-wiki. Default: 100.
        seed: random seed. Default: 0.
        max_events: draw only for a sample of at most this many positives (see `sample_rows`). Default: all.

    Raises:
        ConfigError: num_negatives is below 1.
        DataError: the split has no events, or there would be too many negatives.
    """
    rows, added = stream.additions(splits.rows(split)), stream.additions()
    numbers = sample_rows(np.arange(len(rows)), max_events)  # seed the draws
    rows = rows[numbers]
    pool = np.unique(stream.dst[added])
    count = len(pool) if num_negatives == "all" else num_negatives
    history = count if num_negatives == "all" else count // 2
    if count < 1:
        raise ConfigError(f"num_negatives must be at least 1: got {count}")
    if not len(rows):
        raise DataError(f"cannot draw negatives: split {split!r} of {stream.name} has no events")
    if len(rows) * count > MAX_NEGATIVES:
        raise DataError(
            f"too many negatives: got {len(rows)} positives of {split!r} with {count} each; the maximum is "
            f"{MAX_NEGATIVES} in all. Lower evaluation.num_negatives"
        )
    how, train = (history, count, seed), stream.additions(splits.train)
    if stream.relation is None:
        counts, dst = _ranking_candidates(stream, rows, numbers, pool, train, added, *how)
    else:
        relation, ends, parts = stream.relation, RelationEnds(stream, added), []
        for r in np.unique(relation[rows]).tolist():
            mine, among = np.flatnonzero(relation[rows] == r), added[relation[added] == r]
            some, found = _ranking_candidates(stream, rows[mine], numbers[mine], ends.targets(r), train, among, *how)
            parts.append((mine, some, np.repeat(mine, some), found))
        mine, some, of, found = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        counts, dst = some[np.argsort(mine)], found[np.argsort(of, kind="stable")]
    return Negatives(
        rows=rows,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        src=np.repeat(stream.src[rows], counts),
        dst=dst,
        strategy="ranking",
        seed=seed,
        batch_size=len(rows),
        content_hash=stream.content_hash,
    )


def _ranking_candidates(
    stream: EventStream, rows: np.ndarray, numbers: np.ndarray, pool: np.ndarray, train: np.ndarray,
    added: np.ndarray, history: int, num_negatives: int, seed: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the number of candidates of each event at rows (B,), and all of them.

    Args:
        stream: the event stream.
        rows: positions of the events.
        numbers: (B,) their numbers within the split, which seed the draws.
        pool: sorted destinations to draw from.
        train: positions of the training events; their destinations in the pool are drawn first.
        added: positions of the events whose destinations are excluded at their time.
        history: maximum number of training destinations.
        num_negatives: maximum number of destinations.
        seed: random seed.
    """
    from hopstate.sampling.kernels import draw_ranking_candidates

    src, group, current_offsets, current_dst = _group_by_source_and_time(stream, rows, pool, added)
    place = np.searchsorted(pool, stream.dst[train])
    inside = pool[np.minimum(place, len(pool) - 1)] == stream.dst[train]
    train_pairs = np.unique(stream.src[train[inside]] * len(pool) + place[inside])
    train_offsets = np.searchsorted(train_pairs, np.arange(stream.num_nodes + 1) * len(pool))
    out, count = np.empty(len(rows) * num_negatives, np.int64), np.empty(len(rows), np.int64)
    places = np.arange(len(rows)) * num_negatives
    train_dst = train_pairs % len(pool)
    draw_ranking_candidates(
        src,
        group,
        pool,
        numbers,
        places,
        train_dst,
        train_offsets,
        current_dst,
        current_offsets,
        history,
        num_negatives,
        seed,
        out,
        count,
    )
    return count, out.reshape(len(rows), num_negatives)[np.arange(num_negatives) < count[:, None]]


def _group_by_source_and_time(
    stream: EventStream, rows: np.ndarray, pool: np.ndarray, added: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Group the events at added (P,) by (source, timestamp).

    Returns:
        (B,) sources and (B,) group numbers of rows, then offsets and destinations of each group in CSR format.
    """
    order = added[np.lexsort((stream.t[added], stream.src[added]))]
    s, t = stream.src[order], stream.t[order]
    new = np.append(True, (s[1:] != s[:-1]) | (t[1:] != t[:-1]))
    group_of = np.empty(len(stream), np.int64)
    group_of[order] = np.cumsum(new) - 1
    key = np.unique(group_of[added] * len(pool) + np.searchsorted(pool, stream.dst[added]))
    start = np.searchsorted(key, np.arange(group_of[added].max(initial=-1) + 2) * len(pool))
    return stream.src[rows], group_of[rows], start, key % len(pool)


def load_or_draw(
    path: Path | str,
    stream: EventStream,
    splits: EventSplit,
    split: str,
    strategy: str = "random",
    **how: Unpack[DrawOptions],
) -> Negatives:
    """Load the negatives of a split from path, or draw and save them if the file does not exist.

    For the other arguments see `NegativeStrategy.draw`.

    Raises:
        DataError: the file contains negatives with other settings.
    """
    if not exists(path):
        drawn = strategy_of(strategy).draw(stream, splits, split, **how)
        drawn.save(path)
        return drawn
    loaded = Negatives.load(path, stream)
    rows = sample_rows(stream.additions(splits.rows(split)), how.get("max_events"))
    if loaded.strategy != strategy or not np.array_equal(loaded.rows, rows):
        raise DataError(f"the {loaded.strategy} negatives in {path} have other settings. Remove it or use another name")
    return loaded


def tgb_negatives(
    published: Mapping[tuple[Any, Any, Any], Iterable[Any]] | Sequence[Iterable[Any]],
    stream: EventStream,
    rows: np.ndarray,
    *,
    nodes: np.ndarray | None = None,
) -> Negatives:
    """Convert the negatives that TGB publishes.

    TGB publishes pickle files, which hopstate does not open. Load them with py-tgb:

        dataset = tgb.linkproppred.dataset.LinkPropPredDataset(name="tgbl-wiki")
        dataset.load_test_ns()
        negatives = tgb_negatives(dataset.negative_sampler.eval_set["test"], stream, splits.test)

    The negatives of TGB 2.0, which depend on the relation and the types of nodes, come from the sampler:

        sources, targets, times, relations = stream.pairs(splits.test)
        published = dataset.negative_sampler.query_batch(sources, targets, times, relations, "test")
        negatives = tgb_negatives(published, stream, splits.test)

    Pass them to `evaluate_link(..., negatives={("test", "ranking"): negatives})`, or store them with `Negatives.save`.
    For events with unseen nodes, use `negatives.take(splits.new_test)`.

    Source: Huang et al. 2023, arXiv:2307.01026, and Gastinger et al. 2024, arXiv:2406.09639 (TGB 2.0); the layout that
    py-tgb 2.3.0 reads.

    Args:
        published: maps (source, destination, time) to destinations, with TGB's node numbers and times in seconds; or
            the destinations of each event, as the sampler of py-tgb returns them.
        stream: the event stream.
        rows: (P,) int64 positions of the split's events; deletions are ignored.
        nodes: (N,) int64 node row of each TGB number. Default: the numbers are the rows, as in data read by "tgb:NAME"
            and in TGB archives with JODIE's layout (tgbl-wiki).

    Raises:
        DataError: an event has no published negatives, or a destination is not a node of the stream.
    """
    rows = stream.additions(rows)
    numbers = np.arange(stream.num_nodes) if nodes is None else np.asarray(nodes, np.int64)
    number = np.full(stream.num_nodes, -1, np.int64)
    number[numbers] = np.arange(len(numbers))
    if isinstance(published, Mapping):
        if stream.relation is not None:
            raise DataError(
                f"{stream.name} has relations: got a mapping of TGB's negatives, which may hold targets to leave out. "
                "Give what negative_sampler.query_batch returns"
            )
        ends = number[stream.src[rows]].tolist(), number[stream.dst[rows]].tolist()
        keys = list(zip(*ends, stream.t[rows].astype(np.int64).tolist(), strict=True))
        missing = next((event for event, key in enumerate(keys) if key not in published), None)
        if missing is not None:
            raise DataError(
                f"no TGB negatives for event {keys[missing]} at position {rows[missing]} of {stream.name}. Check the "
                "split and the version of the data, or pass nodes if node numbers differ"
            )
        published = [published[key] for key in keys]
    if len(published) != len(rows):
        raise DataError(f"TGB negatives of {len(rows)} events of {stream.name}: got those of {len(published)}")
    found = [np.asarray(targets).astype(np.int64) for targets in published]
    dst = np.concatenate([np.empty(0, np.int64), *found])
    if len(dst) and not 0 <= dst.min() <= dst.max() < len(numbers):
        raise DataError(
            f"TGB negatives for {stream.name} must be nodes 0..{len(numbers) - 1}: got {dst.min()}..{dst.max()}. "
            "Pass nodes"
        )
    counts = np.array([len(part) for part in found], np.int64)
    return Negatives(
        rows=rows,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        src=np.repeat(stream.src[rows], counts),
        dst=numbers[dst],
        strategy="ranking",
        seed=0,
        batch_size=len(rows),
        content_hash=stream.content_hash,
    )


# ---- training --------------------------------------------------------------------------------------------
RECENT_SHARE = 0.2
MAX_CANDIDATES = 1 << 28  # per epoch, in memory


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Shares of the kinds of negatives in training; they sum to 1.

    Past events are strictly earlier than the positive event. If no past pair fits, the negative is random. With the
    softmax loss, historical and inductive candidates are past destinations of the same source. Destinations of the
    source at the same timestamp are never candidates or popular negatives.

    Source: Mikolov et al. 2013, arXiv:1310.4546 (popular destinations, here without the power 3/4).

    Args:
        random: destinations drawn uniformly from the training events. Default: the remaining share.
        historical: past pairs that do not occur at the event's timestamp.
        inductive: historical pairs from the most recent fifth.
        popular: destinations of past events, proportionally to their number of events.
    """

    random: float | None = None
    historical: float = 0.0
    inductive: float = 0.0
    popular: float = 0.0

    def __post_init__(self) -> None:
        others = (self.historical, self.inductive, self.popular)
        shares = (*others, 1 - sum(others) if self.random is None else self.random)
        if not all(-1e-9 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-6:
            raise ConfigError(
                f"shares in negatives.mixture must sum to 1: got {asdict(self)}. Example: "
                "{random: 0.9, historical: 0.1}"
            )

    def shares(self) -> np.ndarray:
        """Return (4,) shares of random, historical, inductive and popular."""
        others = (self.historical, self.inductive, self.popular)
        return np.array([max(0.0, 1 - sum(others)), *others])


@dataclass(frozen=True, kw_only=True)
class TrainingNegatives:
    """Negative sampling and loss in training.

    Args:
        mixture: shares of the kinds of negatives.
        loss: "binary" (binary cross-entropy with one negative per event) or "softmax" (cross-entropy over the event and
            candidates with the same source).
        candidates: negative candidates per event, for "softmax".
    """

    mixture: Mixture = field(default_factory=Mixture)
    loss: Literal["binary", "softmax"] = "binary"
    candidates: int = 1

    def __post_init__(self) -> None:
        if self.loss not in ("binary", "softmax"):
            raise ConfigError(f"negatives.loss must be 'binary' or 'softmax': got {self.loss!r}")
        check_range("negatives.", minimum=1, candidates=self.candidates)
        refuse_idle(self, candidates=self.loss == "binary" and "loss=binary has one pair per event; use softmax")

    @property
    def group(self) -> int:
        """Rows per softmax: an event and its candidates. 1 for the binary loss."""
        return 1 + self.candidates if self.loss == "softmax" else 1


class MixedNegatives:
    """Draws a mixture of training negatives for each epoch.

    Args:
        stream: the event stream.
        rows: (P,) sorted positions of the training events.
        config: mixture and loss.
    """

    def __init__(self, stream: EventStream, rows: np.ndarray, config: TrainingNegatives) -> None:
        self.config = config
        part = as_slice(rows)
        self._src, self._dst, t = (np.ascontiguousarray(c[part]) for c in (stream.src, stream.dst, stream.t))
        if len(rows) * config.candidates > MAX_CANDIDATES:
            raise DataError(
                f"negatives.candidates is too large: got {config.candidates} for {len(rows)} training events; the "
                f"maximum is {MAX_CANDIDATES} in all"
            )
        self._shares = config.mixture.shares()
        if not self._shares[1:].any():
            return
        self._begin, self._end = (np.searchsorted(t, t, side=side) for side in ("left", "right"))
        if config.loss == "binary":
            key = self._src * (int(self._dst.max(initial=0)) + 1) + self._dst
            _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
            order = np.argsort(first, kind="stable")
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            self._pair, self._first = rank[inverse.reshape(-1)], first[order]
            self._num_past_pairs = np.searchsorted(self._first, self._begin)
        self._source_events = np.argsort(self._src, kind="stable")
        self._source_offsets = np.searchsorted(self._src[self._source_events], np.arange(stream.num_nodes + 1))

    def draw(self, random: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and destinations (P, K) of the negatives; random (P, K) are uniformly drawn destinations."""
        from hopstate.sampling.kernels import draw_candidates, draw_pairs

        if not self._shares[1:].any() or not len(random):
            return np.broadcast_to(self._src[:, None], random.shape), random
        src, dst = np.repeat(self._src[:, None], random.shape[1], 1), random.copy()
        kinds = draw_kinds(self._shares, random.size, seed).reshape(random.shape)
        if self.config.loss == "binary":
            past = (self._begin, self._end, self._pair, self._num_past_pairs, RECENT_SHARE, self._first)
            events = (self._source_events, self._source_offsets, self._src, self._dst)
            draw_pairs(kinds[:, 0], *past, *events, seed, src[:, 0], dst[:, 0])
        else:
            ends = (self._begin, self._end)
            by_source = (self._source_events, self._source_offsets)
            draw_candidates(kinds, *ends, *by_source, RECENT_SHARE, self._src, self._dst, seed, dst)
        return src, dst


def draw_kinds(shares: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return (count,) int8 kind numbers in random order, with the frequencies given by shares.

    >>> np.bincount(draw_kinds(np.array([0.7, 0.3]), 10, seed=0)).tolist()
    [7, 3]
    """
    ends = np.round(np.cumsum(shares) * count).astype(np.int64)
    kinds = np.repeat(np.arange(len(shares), dtype=np.int8), np.diff(ends, prepend=0))
    return named_rng(seed, 1).permutation(kinds)
