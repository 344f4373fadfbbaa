"""Links from the mean of each node's past events: one more method for event streams, in one file.

A past event is its features and an encoding of the time since it. A node is the mean over its events.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from hopstate.data.events import EventStream
from hopstate.errors import check_range
from hopstate.layers.decoders import LinkHead
from hopstate.layers.encodings import TimeEncoding
from hopstate.methods.method import Context
from hopstate.methods.shared.link import HistoryLinkRun, history_features, history_method, history_task, used_features
from hopstate.ops.rows import segment_sum
from hopstate.streaming.protocols import HistoryModel
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer, HistoryTokens
from hopstate.training.tasks.link import LinkTask


class MeanHistory(HistoryModel):
    """The mean of encoded past events of each end of a pair, and a link head.

    Args:
        dim: width of an encoding.
        node_dim, edge_dim: features of a node, which are not read here, and of an event.
    """

    def __init__(self, dim: int, *, node_dim: int = 0, edge_dim: int = 0) -> None:
        super().__init__()
        self.feature_dims = node_dim, edge_dim
        self.time = TimeEncoding.geometric(dim)
        self.event = nn.Linear(dim + edge_dim, dim)
        self.head = LinkHead(dim)

    def forward(self, tokens: HistoryTokens) -> Tensor:
        """Return (P,) logits of P pairs from the 2 P sequences of their ends."""
        known = [self.time(tokens.gaps)]
        if tokens.edge_attr is not None:
            known.append(tokens.edge_attr.to(known[0].dtype))
        events = torch.relu(self.event(torch.cat(known, 1)))
        mean = segment_sum(events, tokens.offsets) / tokens.lengths.clamp(min=1)[:, None]
        return self.head(*mean.tensor_split(2))


@dataclass(frozen=True, kw_only=True)
class MeanHistoryRun(HistoryLinkRun):
    """Configuration of a run.

    Args:
        dim: width of an encoding.
        history: how much of the past is read.
    """

    dim: int = 16
    history: HistoryConfig = field(default_factory=lambda: HistoryConfig(target="none"))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(minimum=1, dim=self.dim)


def build(stream: EventStream, config: MeanHistoryRun, context: Context) -> LinkTask:
    """Return the task of training on a stream."""
    widths = history_features(used_features(stream, context), stream, config.deletions, context)
    return history_task(
        stream,
        config,
        context,
        model=MeanHistory(config.dim, **widths),
        tokenizer=lambda store, events, *rest: HistoryTokenizer(store, events, config.history, *rest),
    )


METHOD = history_method(
    "mean-history", MeanHistoryRun, build, summary="the mean of two nodes' past events", source="ours", budget=500_000
)
