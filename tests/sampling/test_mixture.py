"""Training negatives: shares as configured, nothing at or after the event's time, determined by the seed."""

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.errors import ConfigError, DataError
from hopstate.sampling.negatives import RECENT_SHARE, MixedNegatives, Mixture, TrainingNegatives, draw_kinds

KINDS = ("historical", "inductive", "popular")


def events(count: int = 2000, nodes: int = 60, seed: int = 0) -> EventStream:
    """Return events with ties, some destinations far more popular than others, and repeat pairs."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, nodes // 2, count)
    dst = nodes // 2 + (rng.random(count) ** 3 * nodes // 2).astype(np.int64)
    return EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, count // 4, count)), num_nodes=nodes)


def drawn(stream: EventStream, seed: int = 3, rows: np.ndarray | None = None, **settings: object) -> tuple:
    """Return (sources, destinations) and the random destinations, which no event has: node 0 in place of each."""
    rows = np.arange(len(stream)) if rows is None else rows
    config = TrainingNegatives(**settings)
    random = np.zeros((len(rows), config.candidates), np.int64)
    return MixedNegatives(stream, rows, config).draw(random, seed), random


@pytest.mark.parametrize("loss", ["binary", "softmax"])
def test_shares_equal_their_settings(loss: str) -> None:
    stream, mixture = events(4000), Mixture(random=0.5, historical=0.2, inductive=0.1, popular=0.2)
    (_, dst), random = drawn(stream, mixture=mixture, loss=loss, **({"candidates": 5} if loss == "softmax" else {}))
    kinds = draw_kinds(mixture.shares(), dst.size, 3)
    assert (np.bincount(kinds) / dst.size).tolist() == [0.5, 0.2, 0.1, 0.2]
    early = stream.t[:, None] < 20  # with a short history, some stay random
    replaced = (dst != random)[~np.broadcast_to(early, dst.shape)].mean()
    assert replaced == pytest.approx(0.5, abs=0.02)
    assert draw_kinds(np.array([0.9, 0.1]), 7, 0).sum() == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", ["binary", "softmax"])
def test_only_strictly_earlier_destinations_are_drawn(kind: str, loss: str) -> None:
    """No pair or destination of the event itself; historical pairs have no event at that time."""
    stream = events()
    more = {"candidates": 3} if loss == "softmax" else {}
    (src, dst), random = drawn(stream, mixture=Mixture(**{kind: 1.0}), loss=loss, **more)
    first: dict[tuple[int, int], int] = {}
    for a, b, t in zip(stream.src.tolist(), stream.dst.tolist(), stream.t.tolist()):
        first.setdefault((a, b), t)
    for i in range(len(stream)):
        now = stream.t[i]
        past, at = stream.t < now, stream.t == now
        meets = set(zip(stream.src[at].tolist(), stream.dst[at].tolist()))
        for a, b, r in zip(src[i].tolist(), dst[i].tolist(), random[i].tolist()):
            if b == r:  # no candidate: only with a short history
                assert past.sum() < (600 if (kind, loss) == ("inductive", "softmax") else 200)
                continue
            assert b != stream.dst[i] or a != stream.src[i]
            if kind == "popular":
                assert a == stream.src[i]
                assert b in stream.dst[past]
            elif loss == "softmax":
                assert a == stream.src[i]
                assert first[a, b] < now
            else:
                assert first[a, b] < now
                assert (a, b) not in meets
                if kind == "inductive":
                    known = sorted(t for t in first.values() if t < now)
                    assert first[a, b] >= known[-max(1, int(len(known) * RECENT_SHARE))]


@pytest.mark.parametrize("loss", ["binary", "softmax"])
@pytest.mark.parametrize("kind", KINDS)
def test_simultaneous_destinations_are_not_negatives(kind: str, loss: str) -> None:
    """With few distinct times, a source has many simultaneous events: five of 50 at each of 12, the last one new."""
    stamps, sources = 12, 8
    t, src, place = (part.reshape(-1) for part in np.mgrid[0:stamps, 0:sources, 0:5])
    dst = sources + (7 * src + place + (place == 4) * t) % 50
    stream = EventStream(src=src, dst=dst, t=t, num_nodes=sources + 50)
    more = {"candidates": 4} if loss == "softmax" else {}
    config = TrainingNegatives(mixture=Mixture(**{kind: 1.0}), loss=loss, **more)
    never = np.full((len(stream), config.candidates), sources + 50)  # marks places without a candidate
    a, b = MixedNegatives(stream, np.arange(len(stream)), config).draw(never, 0)
    positives = set(zip(src.tolist(), dst.tolist(), t.tolist()))
    pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), np.repeat(t, config.candidates).tolist())
    assert not positives & set(pairs)
    assert (b != never).any()


def test_future_events_do_not_change_a_draw() -> None:
    stream = events()
    at = int(np.searchsorted(stream.t, stream.t[1200]))
    rng = np.random.default_rng(8)
    other = stream.with_(
        src=np.append(stream.src[:at], rng.integers(0, 30, 2000 - at)),
        dst=np.append(stream.dst[:at], rng.integers(30, 60, 2000 - at)),
    )
    for settings in ({"loss": "binary"}, {"loss": "softmax", "candidates": 4}):
        mixture = Mixture(random=0.1, historical=0.3, inductive=0.3, popular=0.3)
        (a, b), _ = drawn(stream, mixture=mixture, **settings)
        (c, d), _ = drawn(other, mixture=mixture, **settings)
        assert np.array_equal(a[:at], c[:at])
        assert np.array_equal(b[:at], d[:at])


def test_popular_destinations_are_drawn_by_frequency() -> None:
    stream = events(8000)
    (_, dst), _ = drawn(stream, mixture=Mixture(popular=1.0))
    late = stream.t > stream.t[4000]
    share = np.bincount(dst[late, 0], minlength=60) / late.sum()
    received = np.bincount(stream.dst, minlength=60) / len(stream)
    assert np.corrcoef(share, received)[0, 1] > 0.95  # never the event's own


def test_seeds_fix_the_draw_and_differ() -> None:
    stream, mixture = events(), Mixture(historical=0.5)
    one, again, other = (drawn(stream, seed, mixture=mixture)[0] for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, again))
    assert not np.array_equal(one[1], other[1])
    (_, dst), random = drawn(stream, mixture=Mixture())
    assert np.array_equal(dst, random)  # the papers' choice is a random draw


def test_one_event_and_no_event() -> None:
    one = EventStream(src=np.zeros(5, np.int64), dst=np.ones(5, np.int64), t=np.arange(5), num_nodes=2)
    for kind in KINDS:
        for loss in ("binary", "softmax"):
            (_, dst), _ = drawn(one, mixture=Mixture(**{kind: 1.0}), loss=loss)
            assert not dst.any()  # the only pair is the event's own
            (_, dst), _ = drawn(one.slice(0, 0), mixture=Mixture(**{kind: 1.0}), loss=loss)
            assert dst.shape == (0, 1)


def test_invalid_mixture_settings_are_rejected() -> None:
    for wrong in ({"historical": 1.2}, {"random": 0.9}, {"random": 0.9, "popular": 0.2}, {"inductive": -0.1}):
        with pytest.raises(ConfigError):
            Mixture(**wrong)
    assert Mixture(historical=0.1).shares().tolist() == [0.9, 0.1, 0.0, 0.0]
    with pytest.raises(ConfigError, match="softmax"):
        TrainingNegatives(candidates=3)
    with pytest.raises(ConfigError, match="binary"):
        TrainingNegatives(loss="hinge")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="candidates"):
        drawn(events(), loss="softmax", candidates=1 << 20)
