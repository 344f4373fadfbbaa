"""Synthetic event streams: temporal path graphs with long-range labels, messages, clubs and orders.

Source: Gravina et al. 2024, arXiv:2406.02740 (CTAN), for the path graphs. `path_sequences` regenerates their published
files bit-identically. The variant "ctdg-ssm" follows CTDG-SSM's notebook.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hopstate.data.events import EventStream
from hopstate.errors import ConfigError, check_range
from hopstate.random import named_rng


@dataclass(frozen=True, eq=False, kw_only=True)
class PathSequences:
    """S temporal paths with L nodes each; the sign at the first node is the label, to be predicted at the last.

    Args:
        pairs: (L-1, 2) int64, the events of every sequence: (0, 1), (1, 2), ...
        t: (S, L-1) int64 or float64 times.
        x: (S, L, d) float32 node features.
        edge_attr: (S, L-1, d) float32 event features.
        y: (S,) int64, 0 or 1.
        split: sequence numbers of "train", "val" and "test".
        name: for messages and run folders.
    """

    pairs: np.ndarray
    t: np.ndarray
    x: np.ndarray
    edge_attr: np.ndarray
    y: np.ndarray
    split: dict[str, np.ndarray]
    name: str = "path-sequences"

    @property
    def num_nodes(self) -> int:
        """Nodes of a sequence."""
        return self.x.shape[1]

    @property
    def content_hash(self) -> str:
        """SHA-256 over every array, hexadecimal."""
        digest = hashlib.sha256(b"path sequences")
        for array in (self.pairs, self.t, self.x, self.edge_attr, self.y, *self.split.values()):
            digest.update(f"{array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def stream(self, number: int) -> EventStream:
        """Return one sequence as a stream over its own L nodes."""
        src, dst = np.ascontiguousarray(self.pairs.T)
        return EventStream(
            src=src,
            dst=dst,
            t=self.t[number],
            edge_attr=self.edge_attr[number],
            x=self.x[number],
            name=f"path-{len(self.pairs) + 1}-{number}",
            source="hopstate.datasets.temporal_generators.path_sequences",
        )


def path_sequences(
    length: int = 9, *, count: int = 1000, variant: Literal["ctan", "ctdg-ssm"] = "ctan", seed: int = 9
) -> PathSequences:
    """Make temporal paths v_0 -> v_1 -> ... whose label is the sign at v_0.

    Args:
        length: L nodes, so L - 1 events.
        count: S sequences.
        variant: "ctan": 2 features, times 0, 1, ..., labels in turn, split in file order 70/15/15. "ctdg-ssm": 1
            feature, sorted times uniform on 0..10, labels and split at random.
        seed: of `numpy.random.default_rng`; 9 gives CTAN's files.

    Raises:
        ConfigError: fewer than 2 nodes or 7 sequences, or an unknown variant.
    """
    if length < 2 or count < 7:
        raise ConfigError(f"need at least 2 nodes and 7 sequences; got length {length}, count {count}")
    if variant not in ("ctan", "ctdg-ssm"):
        raise ConfigError(f"unknown variant {variant!r}; known: ctan, ctdg-ssm")
    rng = named_rng(seed)
    ctan, events = variant == "ctan", np.arange(length - 1)
    labels = np.arange(count) % 2 if ctan else rng.integers(0, 2, count)
    sign = (2.0 * labels - 1)[:, None]
    x = rng.uniform(-1, 1, (count, length, 2 if ctan else 1))
    x[:, 0] = sign
    t = np.tile(events, (count, 1)) if ctan else np.sort(rng.uniform(0, 10, (count, length - 1)), axis=1)
    messages = rng.uniform(-1, 1, (count, length - 1, x.shape[2]))
    messages[:, 0] = sign
    order = np.arange(count) if ctan else rng.permutation(count)
    splits = np.split(order, [round(0.7 * count), round(0.85 * count)])
    return PathSequences(
        pairs=np.stack([events, events + 1], 1),
        t=t,
        x=x.astype(np.float32),
        edge_attr=messages.astype(np.float32),
        y=labels.astype(np.int64),
        split=dict(zip(("train", "val", "test"), splits, strict=True)),
    )


def check_groups(count: int, groups: int, who: str, what: str) -> None:
    """Check that each group can have at least two members.

    Args:
        count: number of members.
        groups: number of groups.
        who: word for members in the error message.
        what: word for groups in the error message.

    Raises:
        ConfigError: there are fewer than two members per group, or no group.
    """
    if groups < 1 or count < 2 * groups:
        raise ConfigError(f"{count} {who} cannot fill {groups} {what} with two each")


@dataclass(frozen=True, kw_only=True)
class MessageConfig:
    """Settings of `generate_messages`.

    Args:
        num_nodes: users.
        num_events: messages expected; how many come depends on the answers.
        num_communities: groups who mostly write to each other.
        within: share of fresh messages that stay in the sender's group.
        reply: chance that a message is answered (and an answer answered, a cascade).
        reply_delay: mean hours until an answer.
        repeat: chance that a fresh message goes to an earlier partner.
        drift: users who change group, per day, as a share of all.
        days: length of the stream.
        periodicity: 0 (even) to 1: how much less is written at night and at weekends.
        tick: seconds that times are rounded down to; large ticks make ties.
        newcomers: share of users who join during the stream rather than at its start.
        seed: one seed, one stream.
    """

    num_nodes: int = 300
    num_events: int = 8000
    num_communities: int = 6
    within: float = 0.9
    reply: float = 0.45
    reply_delay: float = 3.0
    repeat: float = 0.35
    drift: float = 0.003
    days: float = 60.0
    periodicity: float = 0.8
    tick: int = 60
    newcomers: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        check_groups(self.num_nodes, self.num_communities, "nodes", "communities")
        if self.num_events < 1 or self.tick < 1 or self.days <= 0 or self.reply_delay <= 0:
            raise ConfigError("num_events and tick must be at least 1, days and reply_delay over 0")
        check_range(minimum=0, maximum=1, within=self.within, repeat=self.repeat, drift=self.drift)
        check_range(minimum=0, maximum=1, periodicity=self.periodicity, newcomers=self.newcomers)
        check_range(minimum=0, below=1, reply=self.reply)  # at 1, a cascade never ends


def generate_messages(config: MessageConfig | None = None) -> EventStream:
    """Generate messages between users in drifting communities, with replies, repeat pairs and a daily rhythm.

    A new message goes to an earlier partner, to a user of the same group, or to anyone. Each message may be answered
    later, and the answer too. Recency alone cannot predict whom a user writes to first, or when an exchange ends.

    Returns:
        A stream in seconds with one edge feature (whether the message is an answer) and labels 0 or 1: whether the
        sender has left the initial group.
    """
    config = config or MessageConfig()
    rng = named_rng(config.seed)
    users = _Users(config, rng)
    fresh = np.sort(_moments(config, rng, max(1, round(config.num_events * (1 - config.reply)))))
    sources, destinations, times, answers = [], [], [], []
    for moment in fresh:
        sender = users.sender(moment)
        receiver = users.receiver(sender, moment)
        end = moment
        for depth in range(20):
            sources.append(sender)
            destinations.append(receiver)
            times.append(end)
            answers.append(float(depth > 0))
            if rng.random() >= config.reply:
                break
            sender, receiver = receiver, sender
            end += rng.exponential(config.reply_delay * 3600)
    order = np.argsort(times, kind="stable")
    when = (np.array(times)[order] // config.tick * config.tick).astype(np.int64)
    src = np.array(sources)[order]
    return EventStream(
        src=src,
        dst=np.array(destinations)[order],
        t=when,
        edge_attr=np.array(answers, np.float32)[order, None],
        labels=users.moved(src, when),
        num_nodes=config.num_nodes,
        time_unit="s",
        name="messages-generated",
        source="hopstate.datasets.generate_messages",
    )


class _Users:
    """Active users, their groups and their earlier partners."""

    def __init__(self, config: MessageConfig, rng: np.random.Generator) -> None:
        self._config, self._rng = config, rng
        n, seconds = config.num_nodes, config.days * 86400
        late = rng.random(n) < config.newcomers
        self._joins = np.where(late, rng.uniform(0, 0.9 * seconds, n), 0.0)
        self._joins[:2] = 0  # someone must be there to write and to be written to
        self._zeal = rng.pareto(1.5, n) + 0.2  # a few users write most of the messages
        self._fame = rng.pareto(2.0, n) + 0.2
        self._start = rng.integers(0, config.num_communities, n)
        self._moves = np.where(rng.random(n) < config.drift * config.days, rng.uniform(0, seconds, n), np.inf)
        self._target = rng.integers(0, config.num_communities, n)
        self._partners: list[list[int]] = [[] for _ in range(n)]

    def _group(self, t: float) -> np.ndarray:
        return np.where(t >= self._moves, self._target, self._start)

    def sender(self, t: float) -> int:
        weight = self._zeal * (self._joins <= t)
        return int(self._rng.choice(len(weight), p=weight / weight.sum()))

    def receiver(self, sender: int, t: float) -> int:
        earlier = self._partners[sender]
        if earlier and self._rng.random() < self._config.repeat:
            return earlier[self._rng.integers(len(earlier))]
        weight = self._fame * (self._joins <= t)
        weight[sender] = 0
        group = self._group(t)
        near = weight * (group == group[sender])
        if near.any() and self._rng.random() < self._config.within:
            weight = near
        found = int(self._rng.choice(len(weight), p=weight / weight.sum()))
        earlier.append(found)
        self._partners[found].append(sender)
        return found

    def moved(self, nodes: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (E,) int64: whether each node has left its initial group."""
        return ((t >= self._moves[nodes]) & (self._target[nodes] != self._start[nodes])).astype(np.int64)


def _moments(config: MessageConfig, rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw times by rejection sampling: fewer at night and on weekends."""
    found = np.empty(0)
    while len(found) < count:
        t = rng.uniform(0, config.days * 86400, 4 * count)
        hour, day = t / 3600 % 24, t // 86400 % 7
        busy = (0.5 - 0.5 * np.cos(2 * np.pi * (hour - 3) / 24)) * np.where(day >= 5, 0.4, 1.0)
        found = np.append(found, t[rng.random(len(t)) < 1 - config.periodicity + config.periodicity * busy])
    return found[:count]


START = 1_767_225_600  # 1 January 2026, UTC, in seconds


@dataclass(frozen=True, kw_only=True)
class ClubConfig:
    """Settings of `generate_clubs`.

    Args:
        num_nodes: members.
        num_events: talks.
        num_clubs: hidden groups; as many features has an event.
        within: share of the talks without habit that stay in the club.
        habit: share of the talks that go to an earlier partner of the initiator.
        noise: standard deviation of a reading's noise in each feature, where a club's own feature is 1.
        days: length of the stream.
        seed: one seed, one stream.

    Raises:
        ConfigError: fewer than two members a club, no talk, or a share outside 0..1.
    """

    num_nodes: int = 1_500
    num_events: int = 6_000
    num_clubs: int = 6
    within: float = 0.95
    habit: float = 0.2
    noise: float = 0.7
    days: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_groups(self.num_nodes, self.num_clubs, "members", "clubs")
        check_range(minimum=0, maximum=1, within=self.within, habit=self.habit)
        if self.num_events < 1 or not 0 < self.days < np.inf:
            raise ConfigError(f"num_events must be at least 1 and days over 0; got {self.num_events}, {self.days}")
        if not 0 <= self.noise < np.inf:
            raise ConfigError(f"noise is {self.noise}; it must be finite and at least 0")


def generate_clubs(config: ClubConfig | None = None) -> EventStream:
    """Generate a stream of talks inside hidden clubs, with repeat pairs and noisy club indicators as edge features.

    Returns:
        A stream in seconds from 1 January 2026, with num_clubs features per event and no node features.
    """
    c = config or ClubConfig()
    rng = named_rng(c.seed)
    club = rng.permutation(np.arange(c.num_nodes) % c.num_clubs)
    src = rng.integers(0, c.num_nodes, c.num_events)
    order = np.argsort(club, kind="stable")
    start = np.searchsorted(club[order], np.arange(c.num_clubs + 1))
    first, count = start[club[src]], np.diff(start)[club[src]]
    inside = rng.random(c.num_events) < c.within
    mate = order[first + (rng.random(c.num_events) * count).astype(np.int64)]
    dst = np.where(inside, mate, rng.integers(0, c.num_nodes, c.num_events))
    dst = np.where(dst == src, (dst + 1) % c.num_nodes, dst)
    again, which = rng.random(c.num_events) < c.habit, rng.random(c.num_events)
    partners: list[list[int]] = [[] for _ in range(c.num_nodes)]
    for i, (u, v) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        if again[i] and partners[u]:
            v = dst[i] = partners[u][int(which[i] * len(partners[u]))]
        partners[u].append(v)
        partners[v].append(u)
    t = START + np.sort(rng.integers(0, max(1, round(c.days * 86_400)), c.num_events))
    readings = np.eye(c.num_clubs)[club[src]] + c.noise * rng.normal(size=(c.num_events, c.num_clubs))
    return EventStream(
        src=src,
        dst=dst,
        t=t,
        edge_attr=readings.astype(np.float32),
        num_nodes=c.num_nodes,
        time_unit="s",
        dates="UTC",
        name="clubs-generated",
        source="hopstate.datasets.generate_clubs",
    )


@dataclass(frozen=True, kw_only=True)
class OrderConfig:
    """Settings of `generate_orders`.

    Args:
        num_customers, num_shops: nodes of the two types.
        num_events: events of all relations.
        favorites: shops that a customer orders from, others that the customer visits, and friends to transfer to.
        pay: mean time from an order to its payment, and from a payment to its review, in hours. Its standard deviation
            is an eighth of it, so that other orders come in between.
        transfers, visits: shares of these among the events that nothing else causes; the others are orders.
        reviews: share of payments that are followed by a review of the shop.
        noise: share of orders, visits and transfers to anybody.
        days: length of the stream.
        seed: one seed, one stream.

    Raises:
        ConfigError: fewer than two nodes of a type, fewer favorites than one, or a share outside 0..1.
    """

    num_customers: int = 100
    num_shops: int = 100
    num_events: int = 8_000
    favorites: int = 6
    pay: float = 72.0
    transfers: float = 0.1
    visits: float = 0.3
    reviews: float = 0.3
    noise: float = 0.1
    days: float = 90.0
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.num_customers, self.num_shops) < 2 or min(self.favorites, self.num_events) < 1:
            raise ConfigError("num_customers and num_shops must be at least 2, favorites and num_events at least 1")
        check_range(minimum=0, maximum=1, transfers=self.transfers, visits=self.visits)
        check_range(minimum=0, maximum=1, reviews=self.reviews, noise=self.noise)
        if not 0 < self.days < np.inf or not 0 < self.pay < np.inf:
            raise ConfigError(f"days and pay must be over 0: got {self.days} and {self.pay}")


SHARPNESS = 64.0  # shape of the gamma distribution of the time to a payment
RELATIONS = ("order", "pay", "review", "transfer", "visit")


def generate_orders(config: OrderConfig | None = None) -> EventStream:
    """Generate a stream whose relations decide the target: customers order from shops and pay them later.

    An order goes to a favorite shop, a visit to another favorite shop, a transfer to a friend. Each order is paid once,
    about `pay` hours later, and a payment may be followed by a review of the same shop. Recency does not tell which of
    several open orders is paid.

    Returns:
        A stream in seconds with the relations `RELATIONS` and the node types "customer" and "shop".
    """
    c = config or OrderConfig()
    rng = named_rng(c.seed)
    N, M, hour = c.num_customers, c.num_shops, 3600.0
    term = c.pay * hour / SHARPNESS
    shops, visited = rng.integers(N, N + M, (2, N, c.favorites))
    friends = (np.arange(N)[:, None] + rng.integers(1, N, (N, c.favorites))) % N
    events: list[tuple[float, int, int, int]] = []
    for t in np.sort(rng.uniform(0, c.days * 24 * hour, c.num_events)):
        u, place, anyone = int(rng.integers(N)), int(rng.integers(c.favorites)), rng.random() < c.noise
        kind = rng.random()
        if kind < c.transfers:
            friend = (u + int(rng.integers(1, N))) % N if anyone else int(friends[u, place])
            events.append((t, u, friend, 3))
            continue
        visits = kind < c.transfers + c.visits
        shop = N + int(rng.integers(M)) if anyone else int((visited if visits else shops)[u, place])
        if visits:
            events.append((t, u, shop, 4))
            continue
        paid = t + term * rng.gamma(SHARPNESS)
        events += [(t, u, shop, 0), (paid, u, shop, 1)]
        if rng.random() < c.reviews:
            events.append((paid + term * rng.gamma(SHARPNESS), u, shop, 2))
    events.sort()
    t, src, dst, relation = np.array(events[: c.num_events]).T
    return EventStream(
        src=src.astype(np.int64),
        dst=dst.astype(np.int64),
        t=t.astype(np.int64),
        relation=relation.astype(np.int32),
        relation_names=RELATIONS,
        node_type=np.repeat(np.array([0, 1], np.int16), [N, M]),
        node_type_names=("customer", "shop"),
        num_nodes=N + M,
        time_unit="s",
        name="orders-generated",
        source="hopstate.datasets.generate_orders",
    )
