"""Event histories of queries (u, v, t) as packed tokens: one token per past event, without padding.

A query's sequence holds its node's last events strictly before t, oldest first. The node itself can be an extra token
("target"), first or last. Features that are all zero are None.

Source: Yu et al. 2023, arXiv:2303.13047 (sequences, co-occurrence); DyG-Mamba, arXiv:2408.06966, section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hopstate.data.dates import Clock
from hopstate.data.events import ADD, type_codes
from hopstate.data.stream_state import NodeFeatures, StreamState
from hopstate.errors import ConfigError, ShapeError
from hopstate.ops.neighbors import PackedNeighbors, cooccurrence

if TYPE_CHECKING:
    from hopstate.data.events import EventStream
    from hopstate.data.neighbor_store import Histories, Rows

Target = Literal["first", "last", "none"]
Deletions = Literal["feature", "drop", "keep"]
_TARGET_PLACE = {"none": 0, "first": 1, "last": 2}
_UNLIMITED = 2**62
_TOKEN_COLUMNS = ("nodes", "event_ids", "gaps", "spans", "counts", "x", "edge_attr", "relation", "node_type")


class HistoryTokens(NamedTuple):
    """Packed token sequences.

    For P pairs, the sequences of u_0..u_{P-1} precede those of v_0..v_{P-1}.

    Args:
        offsets: (S+1,) int64; sequence s has the rows offsets[s]:offsets[s+1] of the other tensors.
        nodes: (T,) int64 neighbor, or the target itself.
        event_ids: (T,) int64, -1 for a target token.
        gaps: (T,) time from the event to the query, in units of the tokenizer's clock; 0 for a target token.
        spans: (T,) time from the event to the next one of its sequence, or to the query for the last one. A last target
            token has 0. A first target token has the time from the first event to the query.
        counts: (T, 2) int64 occurrences of the token's node in u's and v's sequence; None without pairs.
        x: (T, F) float32 node features, or None if all are zero.
        edge_attr: (T, D) float32 event features, zero for target tokens; None if all are zero. If deletions are marked,
            the last column flags them.
        longest: length of the longest sequence.
        pair: (P, F) float32 pair features, see `hopstate.tokens.pair_features`; None if the model does not read them.
        relation: (T,) int64 codes of the events' relations, 0 for target tokens; None if events are untyped.
        node_type: (T,) int64 codes of the nodes' types; None if nodes are untyped.
        query_relation: (P,) int64 codes of the pairs' relations; None if no relation is given.
    """

    offsets: Tensor
    nodes: Tensor
    event_ids: Tensor
    gaps: Tensor
    spans: Tensor
    counts: Tensor | None
    x: Tensor | None
    edge_attr: Tensor | None
    longest: int
    pair: Tensor | None = None
    relation: Tensor | None = None
    node_type: Tensor | None = None
    query_relation: Tensor | None = None

    @property
    def num_sequences(self) -> int:
        """Number of sequences S."""
        return self.offsets.shape[0] - 1

    @property
    def lengths(self) -> Tensor:
        """(S,) int64 tokens per sequence."""
        return self.offsets.diff()

    def rows(self) -> Tensor:
        """Return (T,) int64 the sequence of each token."""
        index = torch.arange(self.num_sequences, device=self.offsets.device)
        return index.repeat_interleave(self.lengths, output_size=self.nodes.shape[0])

    def query_types(self) -> Tensor | None:
        """Return (T,) int64 codes of the relation that each token's pair is queried for; None if none is given."""
        if self.query_relation is None:
            return None
        return self.query_relation.repeat(2)[self.rows()]

    def span_ratios(self) -> Tensor:
        """Return (T,) spans divided by the time from the sequence's first event to the query, or 0 if that is 0."""
        # the oldest event is the one with the largest gap
        total = torch.segment_reduce(self.gaps, "max", offsets=self.offsets, initial=0.0)[self.rows()]
        return torch.where(total > 0, self.spans / total, 0.0)

    def half(self, *, second: bool) -> HistoryTokens:
        """Return only the sequences of u, or only those of v."""
        middle = self.num_sequences // 2
        cut = int(self.offsets[middle])
        rows = slice(cut, None) if second else slice(0, cut)
        offsets = self.offsets[middle:] - cut if second else self.offsets[: middle + 1]
        values = {name: getattr(self, name) for name in _TOKEN_COLUMNS}
        picked: dict[str, Any] = {name: None if value is None else value[rows] for name, value in values.items()}
        return HistoryTokens(offsets=offsets, longest=self.longest, **picked)

    def halves(self) -> list[HistoryTokens]:
        """Return the sequences of u and those of v.

        During export the split is unknown, and both contain all tokens.
        """
        exporting = torch.compiler.is_exporting()
        return [self, self] if exporting else [self.half(second=second) for second in (False, True)]

    def joined(self, halves: Sequence[Tensor]) -> Tensor:
        """Merge the (T, d) results computed on each of `halves`."""
        if torch.compiler.is_exporting():
            second = self.rows() >= self.num_sequences // 2
            return torch.where(second[:, None], halves[1], halves[0])
        return torch.cat(list(halves))

    @classmethod
    def concatenate(cls, parts: Sequence[HistoryTokens]) -> HistoryTokens:
        """Return the tokens of the pairs of all parts, one pair each."""
        cuts = [int(part.offsets[1]) for part in parts]
        lengths = torch.stack([part.lengths for part in parts], 1).flatten()
        columns: dict[str, Any] = {
            "offsets": torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]),
            "longest": max(part.longest for part in parts),
        }
        for name in (*_TOKEN_COLUMNS, "pair", "query_relation"):
            values = [getattr(part, name) for part in parts]
            if values[0] is None:
                columns[name] = None
            elif name in _TOKEN_COLUMNS:
                first = [value[:cut] for value, cut in zip(values, cuts, strict=True)]
                second = [value[cut:] for value, cut in zip(values, cuts, strict=True)]
                columns[name] = torch.cat(first + second)
            else:
                columns[name] = torch.cat(values)
        return cls(**columns)

    def positions(self) -> Tensor:
        """Return (T,) int64 each token's position in its sequence, from 0."""
        return torch.arange(self.nodes.shape[0], device=self.offsets.device) - self.offsets[self.rows()]


@dataclass(frozen=True, kw_only=True)
class HistoryConfig:
    """Length of event histories.

    Args:
        max_length: maximum tokens per sequence, including the target token. null sets no limit.
        window: maximum age of an event at the query, in the training stream's time unit. null sets no limit.
        target: position of the node's own token: "first", "last" or "none".

    Example:
        >>> hopstate.HistoryConfig(max_length=8)
        HistoryConfig(max_length=8, window=None, target='first')
    """

    max_length: int | None = 32
    window: float | None = None
    target: Target = "first"

    def __post_init__(self) -> None:
        if self.target not in _TARGET_PLACE:
            raise ConfigError(f"history.target must be 'first', 'last' or 'none'; got {self.target!r}")
        if self.max_length is not None and self.max_length < 1:
            raise ConfigError(f"history.max_length must be at least 1, or null for no limit; got {self.max_length}")
        if self.num_events < 1:
            raise ConfigError("history.max_length=1 leaves no room for events; use 2, or target: none")
        if self.window is not None and not self.window > 0:
            raise ConfigError(f"history.window must be above 0, or null for no limit; got {self.window}")

    @property
    def num_events(self) -> int:
        """Maximum number of events per sequence."""
        return _UNLIMITED if self.max_length is None else self.max_length - (self.target != "none")


class HistoryTokenizer:
    """Tokenize the event histories of query nodes and pairs.

    Args:
        store: event histories; events appended later are visible to later queries.
        stream: source of event and node features.
        config: length of the histories.
        clock: time normalization. Default: seconds if the stream's unit is known.
        deletions: "drop" drops deletions, "feature" adds a flag feature, "keep" treats them as additions. The
            store must match.
        dtype: dtype of gaps and spans. float32 is exact up to 2^24 units.

    Example:
        >>> stream = hopstate.read_events(events)
        >>> store = hopstate.NeighborStore.from_stream(stream)
        >>> history = hopstate.HistoryTokenizer(store, stream, hopstate.HistoryConfig(max_length=8))
        >>> pairs = history.pairs(stream.src[-2:], stream.dst[-2:], stream.t[-2:])
    """

    def __init__(
        self,
        store: Histories,
        stream: EventStream,
        config: HistoryConfig,
        clock: Clock | None = None,
        deletions: Deletions = "drop",
        dtype: type[np.floating] = np.float32,
    ) -> None:
        self.store: Histories = store
        self.config, self.deletions, self.dtype = config, deletions != "drop", dtype
        self.event_kinds: Rows | None = stream.kind if deletions == "feature" and stream.has_deletes else None
        self.marked = deletions == "feature"
        clock = Clock.fit(stream.t[:0], stream.time_unit, "seconds") if clock is None else clock
        self.clock = clock.over(stream.time_unit)
        self.x: Rows | None = stream.x if stream.has_node_features else None
        self.edge_attr: Rows | None = stream.edge_attr if stream.has_edge_features else None
        self.relation: Rows | None = stream.relation
        self.node_type: Rows | None = stream.node_type
        self._first_id = stream.first_id

    def over(self, past: StreamState) -> HistoryTokenizer:
        """Return a tokenizer over all events and features of a stream state."""
        tokenizer = copy(self)
        tokenizer.store, tokenizer._first_id = past.store(deletions=self.deletions), 0
        tokenizer.event_kinds = past.kind if self.marked else None
        tokenizer.clock = self.clock.over(past.time_unit or "")
        tokenizer.x = None if past.x is None else NodeFeatures(past.x)
        tokenizer.edge_attr = past.edge_attr
        tokenizer.relation, tokenizer.node_type = past.relation, past.types_of_nodes
        return tokenizer

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> HistoryTokens:
        """Return the sequences of u (P,), then v (P,), at t (P,), with co-occurrence counts; relation (P,) of pairs."""
        if not len(u) == len(v) == len(t):
            raise ShapeError(f"u, v and t must have equal lengths: got {len(u)}, {len(v)} and {len(t)}")
        offsets, nodes, columns = self._tokens(np.concatenate([u, v]), np.concatenate([t, t]))
        middle, cut = len(u), offsets[len(u)]
        both = cooccurrence(offsets[: middle + 1], nodes[:cut], offsets[middle:] - cut, nodes[cut:])
        tokens = self._record(offsets, nodes, columns, torch.from_numpy(np.concatenate(both)))
        return tokens if relation is None else tokens._replace(query_relation=type_codes(relation))

    def nodes(self, nodes: np.ndarray, t: np.ndarray) -> HistoryTokens:
        """Return the sequences of nodes (S,) at t (S,), without counts."""
        return self._record(*self._tokens(nodes, t), None)

    def _tokens(self, nodes: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
        c, clock = self.config, self.clock
        found = self.store.last(nodes, t, c.num_events)
        window = None if c.window is None else c.window * clock.ratio
        how: dict[str, Any] = {"window": window, "target": c.target, "unit": clock.unit, "dtype": self.dtype}
        offsets, token_nodes, *columns = pack_tokens(found, nodes, t, **how)
        return offsets, token_nodes, tuple(columns)

    def _record(
        self, offsets: np.ndarray, nodes: np.ndarray, columns: tuple[np.ndarray, ...], counts: Tensor | None
    ) -> HistoryTokens:
        ids, gaps, spans = columns
        edge_attr = None if self.edge_attr is None and self.event_kinds is None else self._edge_rows(ids)
        return HistoryTokens(
            offsets=torch.from_numpy(offsets),
            nodes=torch.from_numpy(nodes),
            event_ids=torch.from_numpy(ids),
            gaps=torch.from_numpy(gaps),
            spans=torch.from_numpy(spans),
            counts=counts,
            x=None if self.x is None else torch.from_numpy(self.x[nodes]),
            edge_attr=None if edge_attr is None else torch.from_numpy(edge_attr),
            longest=int(np.diff(offsets).max(initial=0)),
            relation=None if self.relation is None else self._relation_codes(self.relation, ids),
            node_type=None if self.node_type is None else type_codes(self.node_type[nodes]),
        )

    def _relation_codes(self, relation: Rows, ids: np.ndarray) -> Tensor:
        target, at = self._places(ids)
        return type_codes(np.where(target, -1, relation[at]))

    def _places(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which tokens are targets, and the position in the stream of the others' events."""
        target = ids < 0
        return target, np.where(target, 0, ids - self._first_id)

    def _edge_rows(self, ids: np.ndarray) -> np.ndarray:
        target, at = self._places(ids)
        rows = np.empty((len(ids), 0), np.float32) if self.edge_attr is None else self.edge_attr[at]
        if self.marked:
            mark = np.zeros(len(ids)) if self.event_kinds is None else self.event_kinds[at] != ADD
            rows = np.concatenate([rows, mark[:, None]], 1, dtype=np.float32)
        rows[target] = 0
        return rows


def pack_tokens(
    found: PackedNeighbors,
    targets: np.ndarray,
    t: np.ndarray,
    *,
    window: float | None = None,
    target: Target = "none",
    unit: float = 1.0,
    dtype: type[np.floating] = np.float32,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return offsets (Q+1,), nodes, event_ids, gaps and spans of packed neighbor lists; see `HistoryTokens`.

    Args:
        found: Q neighbor lists strictly before the query times, oldest first.
        targets, t: (Q,) query nodes and times.
        window: maximum age of an event.
        target: position of the target token.
        unit: time unit of gaps and spans.
        dtype: dtype of gaps and spans, cast after the subtraction.
    """
    from hopstate.tokens.kernels import count_tokens, write_tokens

    kind = np.result_type(found.times, t)
    times, when = np.ascontiguousarray(found.times, kind), np.ascontiguousarray(t, kind)
    cap = np.zeros(1, kind)
    if window is not None:
        cap[0] = window
    targets = np.ascontiguousarray(targets, np.int64)
    first, offsets = np.empty(len(when), np.int64), np.empty(len(when) + 1, np.int64)
    count_tokens(found.offsets, times, when, window is not None, cap[0], _TARGET_PLACE[target], first, offsets)
    size = int(offsets[-1])
    nodes, ids = np.empty(size, np.int64), np.empty(size, np.int64)
    gaps, spans = np.empty(size, dtype), np.empty(size, dtype)
    lists = (found.offsets, found.nodes, found.event_ids, times)
    write_tokens(*lists, targets, when, _TARGET_PLACE[target], first, offsets, float(unit), nodes, ids, gaps, spans)
    return offsets, nodes, ids, gaps, spans
