"""DyGFormer and its data path as in DyGLib, reimplemented: the cost of a training step there.

After Yu et al., NeurIPS 2023 (arXiv:2303.13047) and the public code. A step scores the events and the negatives in two
calls, each of which cuts the histories of its rows one by one, pads them to the longest of the call, counts neighbours
with a dictionary per row, projects zero node and edge features, and attends over the padding with torch's module,
returning weights. Only benchmarks use it: the library's DyGFormer is another computation of the same model.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.data.events import EventStream

ROWS = tuple[np.ndarray, np.ndarray, np.ndarray]  # neighbours, events, times


class Released(nn.Module):
    """The model with its published settings over histories as lists of arrays, one per node.

    Args:
        stream: its past events; ids from 0 here, from 1 within, where 0 is padding.
        length: tokens of a history at most, the node itself included.
        width: of node and edge features and of an embedding.
        channel: width of each of the four encodings.
    """

    def __init__(self, stream: EventStream, length: int = 32, width: int = 172, channel: int = 50) -> None:
        super().__init__()
        self.length, self.histories = length, histories(stream)
        self.x = torch.zeros(stream.num_nodes + 1, width)
        self.edges = torch.zeros(len(stream) + 1, width)
        self.frequencies = nn.Linear(1, 100)
        with torch.no_grad():
            self.frequencies.weight.copy_(torch.from_numpy(1 / 10 ** np.linspace(0, 9, 100)).unsqueeze(1))
            self.frequencies.bias.zero_()
        self.count = nn.Sequential(nn.Linear(1, channel), nn.ReLU(), nn.Linear(channel, channel))
        self.project = nn.ModuleList(nn.Linear(d, channel) for d in (width, width, 100, channel))
        self.blocks = nn.ModuleList(Block(4 * channel) for _ in range(2))
        self.output = nn.Linear(4 * channel, width)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def step_loss(self, src: np.ndarray, dst: np.ndarray, drawn: np.ndarray, t: np.ndarray) -> Tensor:
        """Return the loss of events (B,) and of as many negatives, with one call each."""
        scores = torch.cat([self(src, dst, t), self(src, drawn, t)])
        labels = torch.cat([torch.ones(len(src)), torch.zeros(len(src))])
        return F.binary_cross_entropy(scores, labels)

    def forward(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> Tensor:
        """Return (B,) probabilities of pairs at times."""
        sides = [self.padded(nodes + 1, t) for nodes in (src, dst)]
        counts = appearances(sides[0][0], sides[1][0])
        parts = [self.encoded(side, t, count) for side, count in zip(sides, counts, strict=True)]
        x = torch.cat(parts, 1)
        for block in self.blocks:
            x = block(x)
        cut = parts[0].shape[1]
        u, v = self.output(x[:, :cut].mean(1)), self.output(x[:, cut:].mean(1))
        return self.head(torch.cat([u, v], 1)).squeeze(1).sigmoid()

    def padded(self, nodes: np.ndarray, t: np.ndarray) -> ROWS:
        """Return neighbours, events and times (B, longest + 1), each row with its node first and zeros at the end."""
        found = []
        for node, time in zip(nodes, t, strict=True):
            ends, events, times = self.histories[node]
            before = np.searchsorted(times, time)
            some = slice(max(0, before - self.length + 1), before)
            found.append((ends[some], events[some], times[some]))
        shape = len(nodes), 1 + max(len(row[0]) for row in found)
        out = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        for i, row in enumerate(found):
            out[0][i, 0], out[2][i, 0] = nodes[i], t[i]
            for whole, part in zip(out, row, strict=True):
                whole[i, 1 : len(part) + 1] = part
        return out

    def encoded(self, side: ROWS, t: np.ndarray, counts: Tensor) -> Tensor:
        """Return (B, L, 4 channel) encodings of a side's tokens."""
        nodes, events, times = side
        gaps = torch.from_numpy(t[:, None] - times).float().unsqueeze(-1)
        clock = torch.cos(self.frequencies(gaps))
        clock[torch.from_numpy(nodes == 0)] = 0.0
        seen = self.count(counts.unsqueeze(-1)).sum(2)
        values = self.x[torch.from_numpy(nodes)], self.edges[torch.from_numpy(events)], clock, seen
        return torch.cat([project(value) for project, value in zip(self.project, values, strict=True)], -1)


class Block(nn.Module):
    """A pre-norm Transformer block over padded sequences (B, L, width).

    Args:
        width: of a token.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, dropout=0.1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norms[0](x.transpose(0, 1))  # positions first, as the module expects
        x = x + self.dropout(self.attention(rows, rows, rows)[0].transpose(0, 1))
        return x + self.dropout(self.narrow(self.dropout(F.gelu(self.wide(self.norms[1](x))))))


def histories(stream: EventStream) -> list[ROWS]:
    """Return for each node, by its id from 1, the neighbors, events and times of its history, oldest first."""
    count = stream.num_nodes + 1
    ends = np.concatenate([stream.src, stream.dst]) + 1
    others = np.concatenate([stream.dst, stream.src]) + 1
    rows = np.tile(np.arange(len(stream)), 2)
    order = np.lexsort((rows, ends))
    cuts = np.searchsorted(ends[order], np.arange(1, count))
    return [(others[some], rows[some] + 1, stream.t[rows[some]].astype(np.float64)) for some in np.split(order, cuts)]


def appearances(src: np.ndarray, dst: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return how often each token's node occurs in both histories, (B, L, 2) for either side, padding 0."""
    out: tuple[list[Tensor], list[Tensor]] = ([], [])
    for own, other in zip(src, dst, strict=True):
        tables = [dict(zip(*np.unique(row, return_counts=True), strict=True)) for row in (own, other)]
        for row, found in zip((own, other), out, strict=True):
            columns = [torch.from_numpy(row.copy()).apply_(lambda node, t=t: t.get(node, 0)) for t in tables]
            found.append(torch.stack(columns, 1).float())
    sides = torch.stack(out[0]), torch.stack(out[1])
    for side, nodes in zip(sides, (src, dst), strict=True):
        side[torch.from_numpy(nodes == 0)] = 0.0
    return sides
