"""A stream on which only long histories tell who meets next: blocs that vote together, read through noise.

Members of a parliament meet in votes, a few each year, all votes of a year at one time stamp. A vote carries its
matter: where the sender's bloc stands, and noise about as large. So

- when a pair met, and how often, says little: hardly any pair meets twice;
- whom both met says little: a bloc is far larger than a member's list of partners;
- one vote of a member says little: its noise in all features together outweighs what it reads;
- all votes of a member over the years say which bloc it is in: noise averages out, and blocs drift slowly.

A method that reads last events and counts (recency, EdgeBank) is left with the rest of the first three; one that sums a
member's history up can know the bloc of both. Trees know part of it from paths of three events between members.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopstate.data.events import EventStream
from hopstate.datasets.temporal_generators import check_groups, check_shares
from hopstate.errors import ConfigError
from hopstate.random import named_rng


@dataclass(frozen=True, kw_only=True)
class BlocConfig:
    """Settings of `generate_blocs`.

    Args:
        num_nodes: members.
        num_events: votes in common, over all years.
        num_years: distinct time stamps; all events of a year share one.
        num_blocs: groups that vote together; as many features has an event.
        within: share of events inside a bloc; the others are between any two members.
        drift: share of members that draw their bloc anew from one year to the next.
        noise: standard deviation of a reading's noise in each feature, where a bloc's own feature is 1.
        seed: one seed, one stream.

    Raises:
        ConfigError: fewer than two members a bloc, fewer than one event a year, or a share outside 0..1.
    """

    num_nodes: int = 5_000
    num_events: int = 30_000
    num_years: int = 12
    num_blocs: int = 8
    within: float = 0.95
    drift: float = 0.01
    noise: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        check_groups(self.num_nodes, self.num_blocs, "members", "blocs")
        if self.num_years < 1 or self.num_events < self.num_years:
            raise ConfigError(f"{self.num_events} events cannot fill {self.num_years} years with one each")
        check_shares(self, "within", "drift")
        if not 0 <= self.noise < np.inf:
            raise ConfigError(f"noise is {self.noise}; it must be finite and at least 0")


def generate_blocs(config: BlocConfig | None = None) -> EventStream:
    """Make a stream of votes in common between members of slowly changing blocs, with the noisy matter of each vote.

    Returns:
        A stream at times 0, 1, ..., num_years - 1 with num_blocs features an event; nodes have none.
    """
    c = config or BlocConfig()
    rng = named_rng(c.seed)
    bloc = rng.permutation(np.arange(c.num_nodes) % c.num_blocs)
    cuts = np.linspace(0, c.num_events, c.num_years + 1).round().astype(np.int64)
    sizes = cuts[1:] - cuts[:-1]
    src, dst, matter = [], [], []
    for size in sizes.tolist():
        sender = rng.integers(0, c.num_nodes, size)
        inside = rng.random(size) < c.within
        order = np.argsort(bloc, kind="stable")
        start = np.searchsorted(bloc[order], np.arange(c.num_blocs + 1))
        first, count = start[bloc[sender]], np.diff(start)[bloc[sender]]
        mate = order[first + (rng.random(size) * count).astype(np.int64)]
        receiver = np.where(inside, mate, rng.integers(0, c.num_nodes, size))
        receiver = np.where(receiver == sender, (receiver + 1) % c.num_nodes, receiver)
        src.append(sender)
        dst.append(receiver)
        matter.append(np.eye(c.num_blocs)[bloc[sender]] + c.noise * rng.normal(size=(size, c.num_blocs)))
        moves = rng.random(c.num_nodes) < c.drift
        bloc = np.where(moves, rng.integers(0, c.num_blocs, c.num_nodes), bloc)
    return EventStream(
        src=np.concatenate(src),
        dst=np.concatenate(dst),
        t=np.repeat(np.arange(c.num_years), sizes),
        edge_attr=np.concatenate(matter).astype(np.float32),
        num_nodes=c.num_nodes,
        name="blocs-generated",
        source="hopstate.datasets.generate_blocs",
    )


__all__ = ["BlocConfig", "generate_blocs"]
