"""Negatives: bit-identical to DyGLib's random arrays, and every rule of the other strategies."""

import numpy as np
import pandas as pd
import pytest
from tests.made_events import LOOP, repeating

import hopstate
from hopstate.data.events import EventStream
from hopstate.data.splits import EventSplit, chronological_split, dyglib_split
from hopstate.errors import ConfigError, DataError, FormatError, MissingFileError
from hopstate.evaluation.labels import metric_label
from hopstate.sampling.negatives import (
    STRATEGIES,
    Negatives,
    OnePerEvent,
    _number_pairs,
    draw_negatives,
    load_or_draw,
    one_against_many,
)
from hopstate.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def data() -> tuple[EventStream, EventSplit]:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 30, 3000), rng.integers(20, 60, 3000)
    stream = EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, 900, 3000)))
    return stream, chronological_split(stream)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["uci", "enron"])
def test_random_negatives_equal_dyglibs(shared, name):
    table = pd.read_csv(shared / f"data/temporal/{name}/ml_{name}.csv")
    golden = np.load(shared / f"golden/dyglib_{name}.npz")
    stream = EventStream.from_arrays(table.u.to_numpy() - 1, table.i.to_numpy() - 1, table.ts.to_numpy())
    split = dyglib_split(stream)
    for part in ("val", "new_val", "test", "new_test"):
        drawn = draw_negatives(stream, split, part)
        np.testing.assert_array_equal(drawn.dst + 1, golden[f"random_negative_dst_{part}"], err_msg=part)
        np.testing.assert_array_equal(drawn.src, stream.src[split.rows(part)])


def seen_and_window(stream, drawn, batch_size):
    """Yield negative pairs, earlier pairs, pairs within the span and own pairs of every batch."""
    pairs = list(zip(stream.src.tolist(), stream.dst.tolist(), strict=True))
    for start in range(0, len(drawn), batch_size):
        part = slice(start, start + batch_size)
        t0, t1 = stream.t[drawn.rows[part]][[0, -1]]
        earlier = {p for p, t in zip(pairs, stream.t, strict=True) if t <= t0}
        window = {p for p, t in zip(pairs, stream.t, strict=True) if t0 <= t <= t1}
        negative = list(zip(drawn.src[part].tolist(), drawn.dst[part].tolist(), strict=True))
        yield negative, earlier, window, {pairs[r] for r in drawn.rows[part]}


@pytest.mark.parametrize("part", ["val", "test"])
@pytest.mark.parametrize("strategy", ["historical", "inductive"])
def test_historical_and_inductive_pairs_follow_their_rules(data, strategy, part):
    stream, split = data
    drawn = draw_negatives(stream, split, part, strategy, batch_size=100)
    last = stream.t[(split.train if part == "val" else split.val)[-1]]
    pairs = zip(stream.src.tolist(), stream.dst.tolist(), stream.t, strict=True)
    observed = set() if strategy == "historical" else {(u, v) for u, v, t in pairs if t <= last}
    filled = 0
    for negative, earlier, window, own in seen_and_window(stream, drawn, 100):
        allowed = earlier - window - observed
        found = min(len(allowed), len(negative))
        fill, good = negative[: len(negative) - found], negative[len(negative) - found :]
        assert set(good) <= allowed
        assert len(set(good)) == len(good)
        assert not set(fill) & own
        assert len(set(fill)) == len(fill)
        filled += len(fill)
    assert (filled > 0) == (strategy == "inductive")  # both branches are reached


def test_historical_pairs_are_drawn_evenly(data):
    stream, split = data
    last = EventSplit(train=split.train, val=split.val, test=split.test[-40:])
    counts = np.zeros((60, 60), int)
    for seed in range(500):
        drawn = draw_negatives(stream, last, "test", "historical", seed=seed)
        counts[drawn.src, drawn.dst] += 1
    drawn_counts = counts[counts > 0]
    assert abs(drawn_counts - drawn_counts.mean()).max() < 6 * np.sqrt(drawn_counts.mean())
    [(_, seen, window, _)] = seen_and_window(stream, drawn, 40)
    assert len(drawn_counts) == len(seen - window)


def test_one_against_many_follows_its_rules(data):
    stream, split = data
    drawn = one_against_many(stream, split, "test", num_negatives=20, seed=3)
    training = {(int(u), int(v)) for u, v in zip(stream.src[split.train], stream.dst[split.train], strict=True)}
    pool = set(stream.dst.tolist())
    for i, row in enumerate(drawn.rows):
        s, negatives = stream.src[row], drawn.dst[drawn.offsets[i] : drawn.offsets[i + 1]].tolist()
        now = set(stream.dst[(stream.src == s) & (stream.t == stream.t[row])].tolist())
        partners = {v for u, v in training if u == s}
        assert not now & set(negatives)
        assert len(set(negatives)) == len(negatives)
        from_history = min(10, len(partners - now))
        assert sum(v in partners for v in negatives) == from_history
        assert len(negatives) == from_history + min(20 - from_history, len(pool - partners - now))
    few = one_against_many(stream, split, "test", num_negatives=1000)
    assert few.offsets[-1] < 1000 * len(few)


def test_a_seed_fixes_the_negatives_and_saving_keeps_them(data, tmp_path):
    stream, split = data
    for strategy in ("random", "historical", "inductive"):
        a, b = (draw_negatives(stream, split, "test", strategy, seed=5) for _ in range(2))
        other = draw_negatives(stream, split, "test", strategy, seed=6)
        np.testing.assert_array_equal(np.stack([a.src, a.dst]), np.stack([b.src, b.dst]))
        assert not np.array_equal(np.stack([a.src, a.dst]), np.stack([other.src, other.dst]))
        path = tmp_path / f"{strategy}.npz"
        drawn, loaded = (load_or_draw(path, stream, split, "test", strategy) for _ in range(2))
        np.testing.assert_array_equal(loaded.dst, drawn.dst)
        assert (loaded.strategy, loaded.seed, loaded.batch_size) == (strategy, drawn.seed, 200)
        with pytest.raises(DataError):
            load_or_draw(path, stream, split, "val", strategy)
    with pytest.raises(DataError):
        Negatives.load(path, stream.slice(0, 10))


def test_bad_negatives_are_named(data, tmp_path):
    stream, split = data
    with pytest.raises(ConfigError, match="historical"):
        draw_negatives(stream, split, "test", "history")
    with pytest.raises(ConfigError, match="batch_size"):
        draw_negatives(stream, split, "test", batch_size=0)
    with pytest.raises(DataError):
        draw_negatives(stream, split, "new_test")
    with pytest.raises(ConfigError, match="num_negatives"):
        one_against_many(stream, split, num_negatives=0)
    with pytest.raises(MissingFileError):
        Negatives.load(tmp_path / "none.npz")
    (tmp_path / "bad.npz").write_bytes(b"PK nonsense")
    with pytest.raises(FormatError):
        Negatives.load(tmp_path / "bad.npz")
    one = EventStream(src=np.zeros(9, int), dst=np.ones(9, int), t=np.arange(9))
    with pytest.raises(DataError):
        draw_negatives(one, chronological_split(one), "test", "historical", batch_size=1)


@pytest.mark.parametrize("strategy", ["random", "historical", "inductive"])
@pytest.mark.parametrize("split", ["train", "val", "test", "new_test"])
def test_negatives_do_not_depend_on_how_events_are_cut(split, strategy):
    rng = np.random.default_rng(3)
    ends, t = rng.integers(0, 30, (2, 900)), np.sort(rng.integers(0, 300, 900))
    stream = EventStream(src=ends[0], dst=30 + ends[1] % 20, t=t, num_nodes=50)
    splits = dyglib_split(stream)
    whole = draw_negatives(stream, splits, split, strategy, seed=5, batch_size=16)
    count = len(whole.rows)
    for part in (
        slice(0, 1),
        slice(0, 40),
        slice(17, 33),
        slice(count - 20, count),
        slice(count - 1, None),
        slice(None),
    ):
        some = draw_negatives(stream, splits, split, strategy, seed=5, batch_size=16, part=part)
        for name in ("rows", "src", "dst"):
            np.testing.assert_array_equal(getattr(some, name), getattr(whole, name)[part])
        assert some.offsets.tolist() == list(range(len(some.rows) + 1))
    with pytest.raises(DataError):
        draw_negatives(stream, splits, split, strategy, part=slice(count, None))


def test_a_random_destination_equal_to_the_events_is_redrawn():
    """Uniformly over the others; other draws are kept, and so is a pool of one destination."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 40, 6000), 40 + rng.integers(0, 5, 6000)
    stream = EventStream(src=src, dst=dst, t=np.arange(6000), num_nodes=45)
    splits = chronological_split(stream)
    plain, drawn = (draw_negatives(stream, splits, "train", seed=7, avoid_positives=own) for own in (False, True))
    own = plain.collisions(stream)
    assert own.mean() == pytest.approx(1 / 5, abs=0.02)
    assert not drawn.collisions(stream).any()
    np.testing.assert_array_equal(drawn.dst[~own], plain.dst[~own])
    shares = np.bincount((drawn.dst - stream.dst[drawn.rows])[own] % 5) / own.sum()
    assert shares[1:] == pytest.approx(0.25, abs=0.06)
    some = draw_negatives(stream, splits, "train", seed=7, avoid_positives=True, part=slice(100, 900))
    np.testing.assert_array_equal(some.dst, drawn.dst[100:900])
    one = EventStream(src=src, dst=np.full(6000, 40), t=np.arange(6000), num_nodes=45)
    assert draw_negatives(one, chronological_split(one), "train", avoid_positives=True).collisions(one).all()


@pytest.mark.parametrize("together", [1 << 24, 128, 1])
@pytest.mark.parametrize("events", [0, 1, 2, 700])
def test_pairs_are_numbered_by_their_first_event_in_blocks(events, together, monkeypatch):
    monkeypatch.setattr("hopstate.sampling.negatives._SORTED", together)
    src, dst = np.random.default_rng(1).integers(0, 12, (2, events))
    seen: dict[tuple[int, int], int] = {}
    numbers = [seen.setdefault(pair, len(seen)) for pair in zip(src.tolist(), dst.tolist())]
    pairs, first, count = _number_pairs(src, dst)
    assert pairs.tolist() == numbers
    assert first.tolist() == [numbers.index(i) for i in range(len(seen))]
    assert count == len(seen)


class PopularNegatives(OnePerEvent):
    """Destinations as often as they received before."""

    name, label = "popular", "popular negatives"

    def pairs(self, batches):
        rng = np.random.default_rng(batches.seed)
        return batches.src, rng.choice(batches.pool[1], len(batches.src))


def test_a_registered_strategy_is_evaluated_and_named_in_tables(monkeypatch, tmp_path):
    monkeypatch.setitem(STRATEGIES, "popular", PopularNegatives())
    chosen = {"evaluation.strategies": ["popular", "random"], "evaluation.select_by": "first"}
    run = hopstate.fit("recency", repeating(300), out=tmp_path / "run", **LOOP, config=chosen)
    assert "popular_average_precision" in run.metrics["test"]
    assert RunFolder(run.path).result()["metric"] == "popular_average_precision"
    assert metric_label("new_popular_roc_auc") == "ROC AUC, popular negatives, new nodes"
