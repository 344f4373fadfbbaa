"""Negative pairs for dynamic link prediction, drawn once from a seed, saved beside the run and reloadable.

Strategies, one negative for each positive, batch by batch:
random: the source kept, the destination uniform over the pool's destinations (DyGLib's arrays, bit for bit). As there,
    the event's own destination may be drawn. Training draws it again (`avoid_own`), evaluation reports its share.
historical: pairs first met by the batch's start that do not meet within the batch's span; both ends replaced.
inductive: those of the historical pairs that had not met by the last observed event.
Deletions are neither positives, nor meetings, nor a proof that a pair meets.
Where a batch has too few pairs, the rest are random pairs of the pool's ends that are not in the batch.
One against many: `one_against_many`.

Source: Yu et al. 2023, arXiv:2303.13047 (DyGLib), after Poursafaei et al. 2022, arXiv:2207.10128; Huang et al. 2023,
arXiv:2307.01026 (TGB), for one against many.
Deviation: historical and inductive pairs are drawn by a compiled loop whose order is its own, so they agree with
DyGLib's in distribution, not array by array (there the order is that of Python sets).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from hopstate.data.events import EventStream, stretch
from hopstate.data.splits import EventSplit
from hopstate.errors import ConfigError, DataError, nearest
from hopstate.io.opening import exists
from hopstate.io.scratch import let_go
from hopstate.ops.rows import ranges
from hopstate.random import named_rng
from hopstate.sampling.judged import in_batches, judged, judged_batches
from hopstate.sampling.negative_sets import Negatives

Strategy = Literal["random", "historical", "inductive"]
STRATEGIES: tuple[Strategy, ...] = ("random", "historical", "inductive")
MOST = 1 << 30  # negatives of one split that are held together
_SORTED = 1 << 24  # events whose pairs are sorted together
SEEDS = {"val": 0, "new_val": 1, "test": 2, "new_test": 3}  # DyGLib's


class NoOtherPairError(DataError):
    """Every pair that could stand beside a batch of events is in it."""


def draw_negatives(
    stream: EventStream,
    splits: EventSplit,
    split: str,
    strategy: Strategy = "random",
    *,
    seed: int | None = None,
    batch_size: int = 200,
    part: slice | None = None,
    most: int | None = None,
    avoid_own: bool = False,
) -> Negatives:
    """Draw one negative pair for each event of a split, batch by batch.

    Args:
        stream, splits: the data.
        split: "train", "val", "test", "new_val" or "new_test"; a new split draws from its own events only.
        strategy: see the top of this file.
        seed: by default DyGLib's for the split (val 0, new_val 1, test 2, new_test 3; train 0).
        batch_size: events scored together.
        part: of the split's events alone, with the pairs that they have among all.
        most: of them that are judged (see `judged`), with the pairs that they have among all; None for all.
        avoid_own: draw a random destination again if it is the event's own; of split "train" only.

    Raises:
        ConfigError: an unknown split or strategy, or a batch size under 1.
        DataError: the split, or the part of it, is empty.
        NoOtherPairError: a batch holds every pair that there is to draw.
    """
    rows = stream.additions(splits.rows(split))
    if strategy not in STRATEGIES:
        raise ConfigError(f"unknown strategy {strategy!r}{nearest(strategy, STRATEGIES)}; known: {STRATEGIES}")
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}; it must be at least 1")
    if not len(rows):
        raise DataError(f"{stream.name}: split {split!r} has no events, so there is nothing to draw negatives for")
    seed = SEEDS.get(split, 0) if seed is None else seed
    pool = {"train": splits.train, "new_val": splits.new_val, "new_test": splits.new_test}.get(split)
    if pool is not None or stream.has_deletes:
        pool = stream.additions(pool)
    pool_src, pool_dst, pool_t = (c if pool is None else c[stretch(pool)] for c in (stream.src, stream.dst, stream.t))
    begin, end, _ = (part or slice(None)).indices(len(rows))
    if begin >= end:
        raise DataError(f"{stream.name}: {part} holds none of the {len(rows)} events of split {split!r}")
    numbers = judged_batches(len(rows), most, batch_size)  # batches are whole, as each draws for all of its events
    numbers = numbers[(numbers >= begin // batch_size) & (numbers <= (end - 1) // batch_size)]
    own = slice(begin - numbers[0] * batch_size, end - numbers[0] * batch_size) if part else slice(None)
    if strategy == "random":
        count = min(int(numbers[-1] + 1) * batch_size, len(rows))
        drawn = random_destinations(pool_src, pool_dst, count, batch_size, seed, avoid_own=avoid_own)
        drawn = in_batches(drawn, numbers, batch_size)
    rows = in_batches(rows, numbers, batch_size)
    if strategy == "random":
        src, dst = stream.src[stretch(rows)], drawn
    else:
        observed = {"train": None, "val": splits.train, "new_val": splits.train}.get(split, splits.val)
        last = None if strategy == "historical" or observed is None else stream.t[observed[-1]]
        batch = stream.src[rows], stream.dst[rows], stream.t[rows]
        src, dst = _seen_before((pool_src, pool_dst, pool_t), batch, last, batch_size, seed, numbers)
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

    Args:
        src, dst: the pool's ends; sources only take their (unused) share of random numbers.
        count: the first events of the pool, each of which gets a destination.
        batch_size: events whose numbers are drawn together.
        seed: of the random numbers.
        avoid_own: draw again, uniformly over the others, a destination that is the event's own; the rest stays.
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
    let_go(src, dst)
    return found


def _distinct(nodes: np.ndarray) -> np.ndarray:
    """Return `np.unique` of rows of nodes (P,), without a sorted copy where there are many."""
    highest = int(nodes.max(initial=-1))
    if len(nodes) < 1024 or highest > 8 * len(nodes):
        return np.unique(nodes)
    met = np.zeros(highest + 1, bool)
    met[nodes] = True
    return np.flatnonzero(met)


def _seen_before(
    pool: tuple[np.ndarray, np.ndarray, np.ndarray],
    batch: tuple[np.ndarray, np.ndarray, np.ndarray],
    last_observed: float | None,
    batch_size: int,
    seed: int,
    numbers: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw historical pairs, or inductive ones where last_observed is given; see the top of this file."""
    from hopstate.sampling.kernels import random_pairs, seen_pairs

    (src, dst, t), (batch_src, batch_dst, batch_t) = pool, batch
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
    let_go(src, dst, t)
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
        let_go(src, dst)
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
        stream, splits: the data.
        split: whose events are the positives.
        num_negatives: K; the first share of them from destinations s met in training, the rest from those it did
            not, all without replacement; fewer where there are too few. "all" takes the whole pool of destinations
            but those met at t, as TGB does for tgbl-wiki.
        seed: one seed, one array.
        history_share: share of K to draw from destinations met in training.
        most: positives that are judged (see `judged`), with the destinations that they have among all; None for all.

    Raises:
        ConfigError: num_negatives under 1 or a share outside 0..1.
        DataError: the split is empty, or its pairs with every destination are more than fit.
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
    strategy: Strategy = "random",
    *,
    seed: int | None = None,
    batch_size: int = 200,
    most: int | None = None,
) -> Negatives:
    """Load saved negatives of a split, or draw and save them; strategy, seed, most as in `draw_negatives`."""
    path = Path(path)
    if exists(path):
        loaded = Negatives.load(path, stream)
        wanted = (strategy, SEEDS.get(split, 0) if seed is None else seed, batch_size)
        rows = stream.additions(splits.rows(split))
        if (loaded.strategy, loaded.seed, loaded.batch_size) == wanted and np.array_equal(
            loaded.rows, in_batches(rows, judged_batches(len(rows), most, batch_size), batch_size)
        ):
            return loaded
        raise DataError(f"{path} holds {loaded.strategy} negatives of other settings; remove it or use another name")
    drawn = draw_negatives(stream, splits, split, strategy, seed=seed, batch_size=batch_size, most=most)
    drawn.save(path)
    return drawn
