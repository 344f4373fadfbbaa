"""A stream small enough to train on in seconds, on which methods differ for one reason that can be taken out.

Members of hidden clubs talk. Each talk carries a reading: what the talk was about, where the initiator's club has its
own feature, under noise of nearly the same size. Two rules make the stream:

- habit: some talks go to an earlier partner. When a pair last talked tells of it, so recency sees it, trees too;
- clubs: almost all others go to anybody of the initiator's club. A club is far larger than a member's list of partners
  and one reading says little, but the readings of a member's whole history, summed up, tell the club. So do paths of
  three events between two members, which trees count, in part.

With `clubs=False` partners are drawn from everybody, while readings stay as they are: the second rule is gone, and so
is what a long memory is worth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopstate.data.events import EventStream
from hopstate.datasets.temporal_generators import check_groups, check_shares
from hopstate.errors import ConfigError
from hopstate.random import named_rng

START = 1_767_225_600  # 1 January 2026, UTC, in seconds


@dataclass(frozen=True, kw_only=True)
class ClubConfig:
    """Settings of `generate_clubs`.

    Args:
        num_nodes: members.
        num_events: talks.
        num_clubs: hidden groups; as many features has an event.
        clubs: whether partners are sought in the club; False draws them from everybody.
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
    clubs: bool = True
    within: float = 0.95
    habit: float = 0.2
    noise: float = 0.7
    days: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_groups(self.num_nodes, self.num_clubs, "members", "clubs")
        check_shares(self, "within", "habit")
        if self.num_events < 1 or not 0 < self.days < np.inf:
            raise ConfigError(f"num_events must be at least 1 and days over 0; got {self.num_events}, {self.days}")
        if not 0 <= self.noise < np.inf:
            raise ConfigError(f"noise is {self.noise}; it must be finite and at least 0")


def generate_clubs(config: ClubConfig | None = None) -> EventStream:
    """Make a stream of talks inside hidden clubs, with habits and a noisy reading of the club beside each talk.

    Returns:
        A stream in seconds, from 1 January 2026 on, with num_clubs features an event; nodes have none.
    """
    c = config or ClubConfig()
    rng = named_rng(c.seed)
    club = rng.permutation(np.arange(c.num_nodes) % c.num_clubs)
    src = rng.integers(0, c.num_nodes, c.num_events)
    order = np.argsort(club, kind="stable")
    start = np.searchsorted(club[order], np.arange(c.num_clubs + 1))
    first, count = start[club[src]], np.diff(start)[club[src]]
    inside = (rng.random(c.num_events) < c.within) & c.clubs
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


__all__ = ["ClubConfig", "generate_clubs"]
