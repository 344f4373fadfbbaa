"""Links from a memory per node that a GRU moves: one more method for event streams, in one file.

Source: Rossi et al. 2020, arXiv:2006.10637 (TGN), mean of messages, embedding "identity".
Deviation: a batch moves the memory right after it is scored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hopstate.data.events import EventStream
from hopstate.errors import check_range
from hopstate.layers.decoders import LinkHead
from hopstate.layers.encodings import TimeEncoding
from hopstate.methods.method import Context, Method
from hopstate.methods.shared.link import used_features
from hopstate.methods.shared.memory import MemoryLinkRun, memory_task
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.node_state import NodeState
from hopstate.streaming.protocols import MemoryModel
from hopstate.training.tasks.link import LinkTask


class NodeMemory(MemoryModel):
    """A memory per node, moved by the mean of its messages in a batch of events.

    Args:
        dim: width of the memory.
        node_dim, edge_dim: features of a node, which are not read here, and of an event.
    """

    max_log_delta = 45.0  # above every ln(1 + gap) that can occur

    def __init__(self, dim: int, *, node_dim: int = 0, edge_dim: int = 0) -> None:
        super().__init__()
        self.node_dim, self.edge_dim = self.feature_dims = 0, edge_dim
        self.dim, self.time_dim, self.tag = dim, dim, f"node-memory of width {dim}"
        self.time = TimeEncoding.between(dim, 1e-3, 1.0, learn=True)
        self.cell = nn.GRUCell(3 * dim + edge_dim, dim)
        self.head = LinkHead(dim)

    def initial_state(self, num_nodes: int = 0) -> NodeState:
        like = self.cell.weight_hh
        return NodeState.zeros(num_nodes, 1, self.dim, tag=self.tag, dtype=like.dtype, device=like.device)

    def update(self, state: NodeState, batch: ActiveBatch, *, in_place: bool = False) -> NodeState:
        state.check_tag(self.tag)
        state = state.grown(int(batch.nodes.max()) + 1 if len(batch.nodes) else 0)
        own, other = torch.cat([batch.source, batch.target]), torch.cat([batch.target, batch.source])
        before = state.memory[0, state.place(batch.nodes)]
        assert batch.gap is not None  # time_dim > 0
        message = [before[own], before[other], self.time(batch.gap.to(before)).repeat(2, 1)]
        if batch.edge_attr is not None:
            message.append(batch.edge_attr.to(before).repeat(2, 1))
        total = before.new_zeros(len(before), self.cell.input_size).index_add(0, own, torch.cat(message, 1))
        count = torch.bincount(own, minlength=len(before))[:, None]
        after = torch.where(count > 0, self.cell(total / count.clamp(min=1), before), before)
        seen, time = batch.nodes[own], batch.time.repeat(2)
        return state.replaced(batch.nodes, after[None], after, seen=seen, time=time, in_place=in_place)

    def represent(self, state: NodeState, nodes: Tensor) -> Tensor:
        state = state.grown(int(nodes.max()) + 1 if len(nodes) else 0)
        return state.output[state.place(nodes)]

    def link_logits(self, state: NodeState, source: Tensor, target: Tensor, gap: Tensor) -> Tensor:
        return self.head(self.represent(state, source), self.represent(state, target))


@dataclass(frozen=True, kw_only=True)
class NodeMemoryRun(MemoryLinkRun):
    """Configuration of a run.

    Args:
        dim: width of the memory.
    """

    dim: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(minimum=1, dim=self.dim)


def build(stream: EventStream, config: NodeMemoryRun, context: Context) -> LinkTask:
    """Return the task of training on a stream."""
    return memory_task(stream, config, context, NodeMemory(config.dim, **used_features(stream, context)))


METHOD = Method("node-memory", NodeMemoryRun, build, "events", "a GRU memory per node", "arXiv:2006.10637")
