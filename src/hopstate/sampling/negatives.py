"""Negative pairs for dynamic link prediction, drawn once from a seed, saved beside the run and reloadable.

`STRATEGIES` holds the kinds of negatives by name. A kind of your own is a subclass of `NegativeStrategy`; once it is
there, evaluation, tables and reports know it.

Deletions are neither positives, nor meetings, nor a proof that a pair meets.

A model is trained on a `Mixture` of them, drawn anew for every epoch.

Source: Yu et al. 2023, arXiv:2303.13047 (DyGLib), after Poursafaei et al. 2022, arXiv:2207.10128; Huang et al. 2023,
arXiv:2307.01026 (TGB), for one against many and `tgb_negatives`.
Deviation: historical and inductive pairs are drawn by a compiled loop whose order is its own, so they agree with
DyGLib's in distribution, not array by array (there the order is that of Python sets).
"""

from __future__ import annotations

import json
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack

import numpy as np

from hopstate.data.events import EventStream, as_slice
from hopstate.data.splits import EventSplit
from hopstate.errors import ConfigError, DataError, FormatError, MissingFileError, check_range, nearest, refuse_idle
from hopstate.io.files import replace_file
from hopstate.io.opening import exists, parse_json
from hopstate.io.scratch import release_pages
from hopstate.io.tensors import Archive
from hopstate.ops.rows import ranges
from hopstate.random import named_rng
from hopstate.sampling.event_batches import in_batches, judged, judged_batches


@dataclass(frozen=True, eq=False, kw_only=True)
class Negatives:
    """Negative pairs of the events at some positions of a stream, packed: positive i has offsets[i]:offsets[i+1].

    Args:
        rows: (P,) int64 positions of the positives.
        offsets: (P+1,) int64.
        src, dst: (offsets[-1],) int64 node rows.
        strategy: name of their strategy.
        seed: what they were drawn from.
        batch_size: positives in a batch, which historical and inductive pairs depend on.
        content_hash: of the stream, checked when they are loaded for it.
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
        """Return whether these are the same pairs of the same events, whatever strategy drew them."""
        columns = ("rows", "offsets", "src", "dst")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in columns)

    def own_event(self, stream: EventStream) -> np.ndarray:
        """Return (offsets[-1],) bool: which negatives are the very pair of their event, as a random one may be."""
        of = np.repeat(self.rows, np.diff(self.offsets))
        return (stream.src[of] == self.src) & (stream.dst[of] == self.dst)

    def take(self, rows: np.ndarray) -> Negatives:
        """Return those of the events at some positions (n,), ascending; DataError of an event without any."""
        place = np.minimum(np.searchsorted(self.rows, rows), max(len(self.rows) - 1, 0))
        if len(rows) and (not len(self.rows) or not np.array_equal(self.rows[place], rows)):
            raise DataError(f"these negatives are of {len(self.rows)} other events")
        counts = np.diff(self.offsets)[place]
        held = ranges(self.offsets[:-1][place], counts)
        bounds = np.concatenate([[0], np.cumsum(counts)])
        return replace(self, rows=rows, offsets=bounds, src=self.src[held], dst=self.dst[held])

    def save(self, path: Path | str) -> None:
        """Write as .npz, atomically."""
        facts = {"strategy": self.strategy, "seed": self.seed, "batch_size": self.batch_size}
        note = np.frombuffer(json.dumps(facts | {"content_hash": self.content_hash}).encode(), np.uint8)
        columns = {"rows": self.rows, "offsets": self.offsets, "src": self.src, "dst": self.dst, "facts": note}

        def write(part: Path) -> None:
            # level 1: an eighth of the time of numpy's level 6, and 4% larger
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for name, column in columns.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, column, allow_pickle=False)

        replace_file(Path(path), write)

    @classmethod
    def load(cls, path: Path | str, stream: EventStream | None = None) -> Negatives:
        """Read what `save` wrote.

        Raises:
            MissingFileError: no such file.
            FormatError: another kind of file, or a damaged one.
            DataError: they were drawn for another stream than the one given.
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
            for name, most in (("rows", len(stream)), ("src", stream.num_nodes), ("dst", stream.num_nodes)):
                column = getattr(loaded, name)
                if len(column) and not 0 <= column.min() <= column.max() < most:
                    raise FormatError(f"{path} is damaged: {name} leaves 0..{most - 1}; draw the negatives again")
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
    """Return the sets of negatives without those that repeat an earlier one, pair by pair.

    Of events with new nodes the historical and the inductive pairs are the same: none of them met before the split.
    """
    found: dict[KeyT, Negatives] = {}
    for key, one in drawn.items():
        if not any(one.equals(other) for other in found.values()):
            found[key] = one
    return found


MOST = 1 << 30  # negatives of one split that are held together
_SORTED = 1 << 24  # events whose pairs are sorted together
SEEDS = {"val": 0, "new_val": 1, "test": 2, "new_test": 3}  # DyGLib's


class NoOtherPairError(DataError):
    """Every pair that could stand beside a batch of events is in it."""


class HowDrawn(TypedDict, total=False):
    """How negatives for evaluation are drawn.

    Args:
        num_negatives: of an event, where it has many; 100 by default.
        seed: of strategies without published seeds; 0 by default.
        most: events that are evaluated (see `hopstate.sampling.event_batches.judged`); None for all.
    """

    num_negatives: int | Literal["all"]
    seed: int
    most: int | None


class NegativeStrategy(ABC):
    """A kind of negative pairs for evaluation."""

    name: str  # in evaluation.strategies, in names of metrics and of files
    label: str  # in tables
    ranking = False  # an event is ranked among many destinations (MRR, Hits@k) in place of told from one pair (AP)

    @abstractmethod
    def draw(self, stream: EventStream, splits: EventSplit, split: str, **how: Unpack[HowDrawn]) -> Negatives:
        """Draw the negatives of a split ("train", "val", "test", "new_val" or "new_test"); how: see `HowDrawn`.

        Raises:
            NoOtherPairError: there is no pair that does not meet.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class Batches:
    """Batches of a split's events, and the pool of events that their negative pairs come from.

    Args:
        src, dst, t: (P,) the events.
        pool: sources, destinations and times of the pool, by time.
        numbers: (B,) numbers of the batches among those of the whole split; each draws by its own.
        batch_size: events of a batch.
        seed: of the random numbers.
        observed: time of the last event before the split; None in training.
        avoid_own: draw a random destination again if it is the event's own.
    """

    src: np.ndarray
    dst: np.ndarray
    t: np.ndarray
    pool: tuple[np.ndarray, np.ndarray, np.ndarray]
    numbers: np.ndarray
    batch_size: int
    seed: int
    observed: float | None
    avoid_own: bool


class OnePerEvent(NegativeStrategy):
    """One negative pair for each event, batch by batch; see `draw_negatives`."""

    def draw(self, stream: EventStream, splits: EventSplit, split: str, **how: Unpack[HowDrawn]) -> Negatives:
        return draw_negatives(stream, splits, split, self.name, most=how.get("most"))

    @abstractmethod
    def pairs(self, batches: Batches) -> tuple[np.ndarray, np.ndarray]:
        """Return (P,) sources and (P,) destinations."""


class RandomNegatives(OnePerEvent):
    """The source kept, the destination uniform over the pool's destinations (DyGLib's arrays, bit for bit).

    As there, the event's own destination may be drawn. Training draws it again (`avoid_own`), evaluation reports its
    share.
    """

    name, label = "random", "random negatives"

    def pairs(self, batches: Batches) -> tuple[np.ndarray, np.ndarray]:
        size, numbers = batches.batch_size, batches.numbers
        count = len(batches.src) + int(numbers[-1] + 1 - len(numbers)) * size  # from the split's first event on
        src, dst, _ = batches.pool
        drawn = random_destinations(src, dst, count, size, batches.seed, avoid_own=batches.avoid_own)
        return batches.src, in_batches(drawn, numbers, size)


class HistoricalNegatives(OnePerEvent):
    """Pairs first met by the batch's start that do not meet within the batch's span; both ends replaced.

    Where a batch has too few such pairs, the rest are random pairs of the pool's ends that are not in the batch.
    """

    name, label = "historical", "historical negatives"

    def pairs(self, batches: Batches) -> tuple[np.ndarray, np.ndarray]:
        return _seen_before(batches, None)


class InductiveNegatives(OnePerEvent):
    """Those of the historical pairs that had not met by the last observed event."""

    name, label = "inductive", "inductive negatives"

    def pairs(self, batches: Batches) -> tuple[np.ndarray, np.ndarray]:
        return _seen_before(batches, batches.observed)


class ManyNegatives(NegativeStrategy):
    """Many destinations for each event; see `one_against_many`."""

    name, label, ranking = "many", "many negatives", True

    def draw(self, stream: EventStream, splits: EventSplit, split: str, **how: Unpack[HowDrawn]) -> Negatives:
        return one_against_many(stream, splits, split, **how)


STRATEGIES: dict[str, NegativeStrategy] = {
    strategy.name: strategy
    for strategy in (RandomNegatives(), HistoricalNegatives(), InductiveNegatives(), ManyNegatives())
}
USUAL = ("random", "historical", "inductive")  # of an evaluation by default


def strategy_of(name: str) -> NegativeStrategy:
    """Return a strategy by name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in STRATEGIES:
        raise ConfigError(f"unknown negatives {name!r}{nearest(name, STRATEGIES)}; known: {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def metric_name(metric: str, strategy: str, *, new_nodes: bool) -> str:
    """Return the name of a metric of some negatives: those of random ones have no prefix.

    >>> metric_name("mrr", "many", new_nodes=True), metric_name("roc_auc", "random", new_nodes=False)
    ('new_many_mrr', 'roc_auc')
    """
    return f"{'new_' if new_nodes else ''}{'' if strategy == 'random' else f'{strategy}_'}{metric}"


def parse_metric(name: str) -> tuple[str, NegativeStrategy, bool]:
    """Return metric, strategy and whether it is of events with new nodes; see `metric_name`.

    >>> parse_metric("new_many_mrr")[0]
    'mrr'
    """
    metric = name.removeprefix("new_")
    found = next((own for own in STRATEGIES.values() if metric.startswith(f"{own.name}_")), STRATEGIES["random"])
    return metric.removeprefix(f"{found.name}_"), found, name.startswith("new_")


def draw_negatives(
    stream: EventStream,
    splits: EventSplit,
    split: str,
    strategy: str = "random",
    *,
    seed: int | None = None,
    batch_size: int = 200,
    part: slice | None = None,
    most: int | None = None,
    avoid_own: bool = False,
) -> Negatives:
    """Draw one negative pair for each event of a split, batch by batch.

    Args:
        split: "train", "val", "test", "new_val" or "new_test"; a new split draws from its own events only.
        strategy: name of a `OnePerEvent` strategy.
        seed: by default DyGLib's for the split (val 0, new_val 1, test 2, new_test 3; train 0).
        part: of the split's events alone, with the pairs that they have among all.
        most: of them that are judged (see `judged`), with the pairs that they have among all; None for all.
        avoid_own: draw a random destination again if it is the event's own; of split "train" only.

    Raises:
        NoOtherPairError: a batch holds every pair that there is to draw.
    """
    rows, kind = stream.additions(splits.rows(split)), strategy_of(strategy)
    if not isinstance(kind, OnePerEvent):
        raise ConfigError(f"{strategy!r} negatives are not one pair an event")
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}; it must be at least 1")
    if not len(rows):
        raise DataError(f"{stream.name}: split {split!r} has no events, so there is nothing to draw negatives for")
    seed = SEEDS.get(split, 0) if seed is None else seed
    pool = {"train": splits.train, "new_val": splits.new_val, "new_test": splits.new_test}.get(split)
    if pool is not None or stream.has_deletes:
        pool = stream.additions(pool)
    pool_src, pool_dst, pool_t = (c if pool is None else c[as_slice(pool)] for c in (stream.src, stream.dst, stream.t))
    begin, end, _ = (part or slice(None)).indices(len(rows))
    if begin >= end:
        raise DataError(f"{stream.name}: {part} holds none of the {len(rows)} events of split {split!r}")
    numbers = judged_batches(len(rows), most, batch_size)  # batches are whole, as each draws for all of its events
    numbers = numbers[(numbers >= begin // batch_size) & (numbers <= (end - 1) // batch_size)]
    own = slice(begin - numbers[0] * batch_size, end - numbers[0] * batch_size) if part else slice(None)
    rows = in_batches(rows, numbers, batch_size)
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
        avoid_own=avoid_own,
    )
    src, dst = kind.pairs(batches)
    return Negatives(
        rows=rows[own],
        offsets=np.arange(len(rows[own]) + 1),
        src=src[own],
        dst=dst[own],
        strategy=strategy,
        seed=seed,
        batch_size=batch_size,
        content_hash=stream.content_hash,
    )


def random_destinations(
    src: np.ndarray, dst: np.ndarray, count: int, batch_size: int, seed: int, *, avoid_own: bool = False
) -> np.ndarray:
    """Draw count destinations uniformly over the distinct ones of dst, in DyGLib's order of random numbers.

    Sources only take their (unused) share of random numbers. avoid_own draws again, uniformly over the others, a
    destination that is the event's own; the rest stays.
    """
    sources, destinations = _distinct(src), _distinct(dst)
    state = np.random.RandomState(seed)
    out = np.empty(count, np.int64)
    for start in range(0, count, batch_size):
        size = min(batch_size, count - start)
        state.randint(0, len(sources), size)
        out[start : start + size] = state.randint(0, len(destinations), size)
    found = destinations[out]
    if avoid_own and len(destinations) > 1:
        same = np.flatnonzero(found == dst[:count])
        again = named_rng(seed, "others").integers(0, len(destinations) - 1, len(same))
        found[same] = destinations[again + (destinations[again] >= found[same])]
    release_pages(src, dst)
    return found


def _distinct(nodes: np.ndarray) -> np.ndarray:
    """Return `np.unique` of rows of nodes (P,), without a sorted copy where there are many."""
    highest = int(nodes.max(initial=-1))
    if len(nodes) < 1024 or highest > 8 * len(nodes):
        return np.unique(nodes)
    met = np.zeros(highest + 1, bool)
    met[nodes] = True
    return np.flatnonzero(met)


def _seen_before(batches: Batches, last_observed: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Draw pairs that met before, or only those that had not met by a time."""
    from hopstate.sampling.kernels import random_pairs, seen_pairs

    (src, dst, t), batch_size, seed, numbers = batches.pool, batches.batch_size, batches.seed, batches.numbers
    batch_src, batch_dst, batch_t = batches.src, batches.dst, batches.t
    starts = np.append(np.arange(0, len(batch_t), batch_size), len(batch_t))
    t0, t1 = batch_t[starts[:-1]], batch_t[starts[1:] - 1]
    told = int(np.searchsorted(t, t1[-1], side="right"))  # what comes later is asked for nothing
    pairs, first, firsts = _number_pairs(src[:told], dst[:told])
    high = np.searchsorted(first, np.searchsorted(t, t0, side="right"))  # pairs met by then
    low = 0 if last_observed is None else int(np.searchsorted(first, np.searchsorted(t, last_observed, side="right")))
    low = np.minimum(np.full(len(high), low), high)
    begin, end = np.searchsorted(t, t0, side="left"), np.searchsorted(t, t1, side="right")
    chosen, found = np.empty(len(batch_t), np.int64), np.empty(len(high), np.int64)
    seen_pairs(low, high, begin, end, pairs, starts, seed, numbers, firsts, chosen, found)

    sources, destinations = _distinct(src), _distinct(dst)
    missing = np.diff(starts) - found
    grid = np.searchsorted(sources, batch_src) * len(destinations) + np.searchsorted(destinations, batch_dst)
    out_src, out_dst = np.empty(len(batch_t), np.int64), np.empty(len(batch_t), np.int64)
    _check_grid(missing, grid, starts, numbers, len(sources) * len(destinations))
    random_pairs(missing, grid, starts, len(sources), len(destinations), seed + 1, numbers, out_src, out_dst)
    place = ranges(np.zeros(len(starts) - 1, np.int64), np.diff(starts))
    filled = place < np.repeat(missing, np.diff(starts))
    from_pool = first[chosen[place < np.repeat(found, np.diff(starts))]]
    negative_src, negative_dst = np.empty_like(out_src), np.empty_like(out_dst)
    negative_src[filled], negative_dst[filled] = sources[out_src[filled]], destinations[out_dst[filled]]
    negative_src[~filled], negative_dst[~filled] = src[from_pool], dst[from_pool]
    release_pages(src, dst, t)
    return negative_src, negative_dst


def _number_pairs(src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Number the distinct pairs by first occurrence: (each event's pair, each pair's first event, how many).

    Of a hundred million events every column is most of a gigabyte, so sources are sorted a share at a time.
    """
    count, width = len(src), int(dst.max(initial=0)) + 1
    kind = np.int32 if count < 2**31 else np.int64
    head = np.empty(count, kind)  # the first event of each event's pair
    shares = -(-count // _SORTED)
    for share in range(shares):
        mine = np.flatnonzero(src % shares == share) if shares > 1 else np.arange(count)
        key = src[mine] * width
        key += dst[mine]
        order = np.argsort(key, kind="stable")  # of one pair by time
        key, mine = key[order], mine[order]
        new = np.append(True, key[1:] != key[:-1])[: len(key)]
        head[mine] = np.repeat(mine[new], np.diff(np.flatnonzero(np.append(new, True))))
        release_pages(src, dst)
    first = np.flatnonzero(head == np.arange(count, dtype=kind))
    number = np.empty(count, kind)  # of pairs, where they are first
    number[first] = np.arange(len(first), dtype=kind)
    for a in range(0, count, _SORTED):
        head[a : a + _SORTED] = number[head[a : a + _SORTED]]
    return head, first, len(first)


def _check_grid(missing: np.ndarray, grid: np.ndarray, starts: np.ndarray, numbers: np.ndarray, size: int) -> None:
    for b in np.flatnonzero(missing):
        if size <= starts[b + 1] - starts[b] and len(np.unique(grid[starts[b] : starts[b + 1]])) >= size:
            what = "use smaller batches" if size > 1 else "one source and one target are all there are"
            raise NoOtherPairError(f"batch {numbers[b]} holds every possible pair, so no negative can be drawn; {what}")


def one_against_many(
    stream: EventStream,
    splits: EventSplit,
    split: str = "test",
    *,
    num_negatives: int | Literal["all"] = 100,
    seed: int = 0,
    history_share: float = 0.5,
    most: int | None = None,
) -> Negatives:
    """Draw many destinations for each positive (s, d, t): met in training, and never met; none met at t.

    Args:
        num_negatives: K; the first share of them from destinations s met in training, the rest from those it did
            not, all without replacement; fewer where there are too few. "all" takes the whole pool of destinations
            but those met at t, as TGB does for tgbl-wiki.
        history_share: share of K to draw from destinations met in training.
        most: positives that are judged (see `judged`), with the destinations that they have among all; None for all.
    """
    from hopstate.sampling.kernels import many_kernel

    rows, added = stream.additions(splits.rows(split)), stream.additions(splits.train)
    numbers = judged(np.arange(len(rows)), most)  # of the positives, each of which draws by its own
    rows = rows[numbers]
    pool = np.unique(stream.dst[stream.additions()])
    whole = num_negatives == "all"
    num_negatives = len(pool) if num_negatives == "all" else num_negatives
    if num_negatives < 1 or not 0 <= history_share <= 1:
        raise ConfigError(f"num_negatives {num_negatives} must be at least 1, history_share {history_share} in 0..1")
    if not len(rows):
        raise DataError(f"{stream.name}: split {split!r} has no events, so there is nothing to draw negatives for")
    if len(rows) * num_negatives > MOST:
        raise DataError(
            f"{len(rows)} positives of {split!r} with {num_negatives} negatives each are {len(rows) * num_negatives} "
            f"pairs, more than {MOST}; lower evaluation.num_negatives"
        )
    src, group, at_start, at = _meetings(stream, rows, pool)
    met_key = np.unique(stream.src[added] * len(pool) + np.searchsorted(pool, stream.dst[added]))
    met_start = np.searchsorted(met_key, np.arange(stream.num_nodes + 1) * len(pool))
    out, count = np.empty(len(rows) * num_negatives, np.int64), np.empty(len(rows), np.int64)
    places = np.arange(len(rows)) * num_negatives
    history = num_negatives if whole else int(num_negatives * history_share)
    met = met_key % len(pool)
    many_kernel(
        src, group, pool, numbers, places, met, met_start, at, at_start, history, num_negatives, seed, out, count
    )
    kept = np.arange(num_negatives) < count[:, None]
    return Negatives(
        rows=rows,
        offsets=np.concatenate([[0], np.cumsum(count)]),
        src=np.repeat(src, count),
        dst=out.reshape(len(rows), num_negatives)[kept],
        strategy="many",
        seed=seed,
        batch_size=len(rows),
        content_hash=stream.content_hash,
    )


def _meetings(
    stream: EventStream, rows: np.ndarray, pool: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Group the stream by (source, time): (sources, group of each row, CSR of the destinations met in each group)."""
    added = stream.additions()
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
    **how: Unpack[HowDrawn],
) -> Negatives:
    """Load saved negatives of a split, or draw and save them; other arguments as of `NegativeStrategy.draw`."""
    if not exists(path):
        drawn = strategy_of(strategy).draw(stream, splits, split, **how)
        drawn.save(path)
        return drawn
    loaded = Negatives.load(path, stream)
    rows = judged(stream.additions(splits.rows(split)), how.get("most"))
    if loaded.strategy != strategy or not np.array_equal(loaded.rows, rows):
        raise DataError(f"{path} holds {loaded.strategy} negatives of other settings; remove it or use another name")
    return loaded


def tgb_negatives(
    published: Mapping[tuple[Any, Any, Any], Iterable[Any]],
    stream: EventStream,
    rows: np.ndarray,
    *,
    nodes: np.ndarray | None = None,
) -> Negatives:
    """Return TGB's own negatives of a split's events, in place of drawn ones.

    TGB publishes them as pickles, which hopstate does not open; py-tgb does, and what it holds then goes in here:

        dataset = tgb.linkproppred.dataset.LinkPropPredDataset(name="tgbl-wiki")
        dataset.load_test_ns()
        negatives = tgb_negatives(dataset.negative_sampler.eval_set["test"], stream, splits.test)

    `Negatives.save` keeps them as .npz, and `evaluate_link(..., negatives={("test", "many"): negatives})` ranks by
    them; events with new nodes, where a split has any, take `negatives.take(splits.new_test)`.

    Source: Huang et al. 2023, arXiv:2307.01026; the layout that py-tgb 2.3.0 reads.

    Args:
        published: (source, destination, time) → destinations, in TGB's numbers and in whole seconds.
        stream: the events.
        rows: (P,) int64 positions of the split's events; those that delete are passed over.
        nodes: (N,) int64 the row of each of TGB's numbers; None where they are the same, as for data read by
            "tgb:NAME", and for TGB's archives in JODIE's layout (tgbl-wiki).

    Raises:
        DataError: an event that the negatives do not know, or a destination that is no node of the stream.
    """
    rows = stream.additions(rows)
    numbers = np.arange(stream.num_nodes) if nodes is None else np.asarray(nodes, np.int64)
    number = np.full(stream.num_nodes, -1, np.int64)
    number[numbers] = np.arange(len(numbers))
    ends = number[stream.src[rows]].tolist(), number[stream.dst[rows]].tolist()
    found: list[np.ndarray] = []
    for event, key in enumerate(zip(*ends, stream.t[rows].astype(np.int64).tolist(), strict=True)):
        if key not in published:
            raise DataError(
                f"{stream.name}: TGB's negatives know no event {key} (position {rows[event]} of the stream); they are "
                "of another split or version of the data, or nodes are numbered otherwise: give nodes"
            )
        found.append(np.asarray(published[key]).astype(np.int64))
    dst = np.concatenate([np.empty(0, np.int64), *found])
    if len(dst) and not 0 <= dst.min() <= dst.max() < len(numbers):
        raise DataError(f"{stream.name}: TGB's negatives name nodes outside 0..{len(numbers) - 1}; give nodes")
    counts = np.array([len(part) for part in found], np.int64)
    return Negatives(
        rows=rows,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        src=np.repeat(stream.src[rows], counts),
        dst=numbers[dst],
        strategy="many",
        seed=0,
        batch_size=len(rows),
        content_hash=stream.content_hash,
    )


# ---- training --------------------------------------------------------------------------------------------
NEWEST = 0.2
MAX_CANDIDATES = 1 << 28  # candidates of an epoch that are held together


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Shares of kinds of negatives in training; they sum to 1.

    What is past is strictly earlier than the event; where nothing fits the random pair stays. With loss softmax the
    source is kept throughout: historical and inductive candidates are destinations of the source's own past events.
    No candidate, nor a popular destination, is one that the source meets at the event's own time.

    Source: Mikolov et al. 2013, arXiv:1310.4546 (popular destinations, here without the power 3/4).

    Args:
        random: uniform destinations of training events; null takes the rest.
        historical: pairs that met before and do not meet at the event's time.
        inductive: of those, one of the newest fifth.
        popular: destinations of past events, as often as they received.
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
                f"negatives.mixture holds shares of random, historical, inductive and popular that sum to 1, e.g. "
                f"{{random: 0.9, historical: 0.1}}; got {asdict(self)}"
            )

    def shares(self) -> np.ndarray:
        """Return (4,) shares of random, historical, inductive and popular."""
        others = (self.historical, self.inductive, self.popular)
        return np.array([max(0.0, 1 - sum(others)), *others])

    @property
    def met(self) -> float:
        """Share of pairs that met before."""
        return self.historical + self.inductive


@dataclass(frozen=True, kw_only=True)
class TrainingNegatives:
    """What stands beside the events in training.

    Args:
        mixture: shares of kinds of pairs that did not meet.
        loss: "binary", each event and one pair on their own; or "softmax", an event against candidates of its source.
        candidates: of an event, of softmax.
    """

    mixture: Mixture = field(default_factory=Mixture)
    loss: Literal["binary", "softmax"] = "binary"
    candidates: int = 1

    def __post_init__(self) -> None:
        if self.loss not in ("binary", "softmax"):
            raise ConfigError(f"negatives.loss is 'binary' or 'softmax'; got {self.loss!r}")
        check_range("negatives.", least=1, candidates=self.candidates)
        refuse_idle(self, candidates=self.loss == "binary" and "loss=binary has one pair an event; take softmax")

    @property
    def group(self) -> int:
        """Rows that are told apart together: an event and its candidates, or 1 where each row stands alone."""
        return 1 + self.candidates if self.loss == "softmax" else 1


class MixedNegatives:
    """Draws of one epoch after another.

    Args:
        stream: the events.
        rows: (P,) ascending positions of the training events.
        config: kinds and loss.
    """

    def __init__(self, stream: EventStream, rows: np.ndarray, config: TrainingNegatives) -> None:
        self.config = config
        part = as_slice(rows)
        self._src, self._dst, t = (np.ascontiguousarray(c[part]) for c in (stream.src, stream.dst, stream.t))
        if len(rows) * config.candidates > MAX_CANDIDATES:
            raise DataError(
                f"negatives.candidates={config.candidates} of {len(rows)} training events are more than "
                f"{MAX_CANDIDATES} in all; lower it"
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
            self._known = np.searchsorted(self._first, self._begin)
        self._own = np.argsort(self._src, kind="stable")
        self._own_start = np.searchsorted(self._src[self._own], np.arange(stream.num_nodes + 1))

    def draw(self, random: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and destinations (P, K) of each event's pairs; random (P, K): destinations drawn uniformly."""
        from hopstate.sampling.kernels import draw_candidates, draw_pairs

        if not self._shares[1:].any() or not len(random):
            return np.broadcast_to(self._src[:, None], random.shape), random
        src, dst = np.repeat(self._src[:, None], random.shape[1], 1), random.copy()
        kinds = kinds_of(self._shares, random.size, seed).reshape(random.shape)
        if self.config.loss == "binary":
            met = (self._begin, self._end, self._pair, self._known, NEWEST, self._first, self._own, self._own_start)
            draw_pairs(kinds[:, 0], *met, self._src, self._dst, seed, src[:, 0], dst[:, 0])
        else:
            own = (self._begin, self._end, self._own, self._own_start, NEWEST, self._src, self._dst)
            draw_candidates(kinds, *own, seed, dst)
        return src, dst


def kinds_of(shares: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return (count,) int8 numbers of kinds in drawn order, of each as many as its share says, to one.

    >>> np.bincount(kinds_of(np.array([0.7, 0.3]), 10, seed=0)).tolist()
    [7, 3]
    """
    ends = np.round(np.cumsum(shares) * count).astype(np.int64)
    kinds = np.repeat(np.arange(len(shares), dtype=np.int8), np.diff(ends, prepend=0))
    return named_rng(seed, 1).permutation(kinds)
