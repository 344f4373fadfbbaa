"""Node memory of a streaming model, passed in and returned: zeros, snapshots and growth.

A state is a record: an update returns a new one and leaves the old as it was, so that a failed update changes
nothing and keeping a snapshot is keeping the record. Where that copy costs too much, on a large graph: without
gradients `replaced(..., in_place=True)` writes into the same tensors (then a snapshot is a copy); with them a few
updates go through the `subset` of the state that they concern, which `put` writes back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hopstate.errors import CheckpointError, TimeOrderError


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeState:
    """What a model remembers of N nodes.

    Args:
        memory: (K, N, d) one memory per layer.
        output: (N, d) each node's representation after the last batch that it was active in.
        last_time: (N,) float64 time of each node's last event, -inf before the first.
        clock: time of the last event of all, -inf before the first.
        tag: the model and widths that the state belongs to.
        rows: of a subset, (N,) int64 the nodes that it holds, rising; None where it holds all, 0..N-1.
        copy_of: (N,) int64 the node that each row is a copy of, if the state holds several copies of nodes.
    """

    memory: Tensor
    output: Tensor
    last_time: Tensor
    clock: float = -math.inf
    tag: str = ""
    rows: Tensor | None = None
    copy_of: Tensor | None = None

    @classmethod
    def zeros(
        cls,
        num_nodes: int,
        num_layers: int,
        dim: int,
        *,
        tag: str = "",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> NodeState:
        """Return the state before the first event: zeros, and no time seen.

        Args:
            num_nodes: N.
            num_layers: memories of a node.
            dim: numbers of a memory.
            tag: of the model it belongs to; another model refuses it.
            dtype, device: of the tensors.
        """
        return cls(
            memory=torch.zeros(num_layers, num_nodes, dim, dtype=dtype, device=device),
            output=torch.zeros(num_nodes, dim, dtype=dtype, device=device),
            last_time=torch.full((num_nodes,), -math.inf, dtype=torch.float64, device=device),
            tag=tag,
        )

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.output)

    def grown(self, num_nodes: int) -> NodeState:
        """Return the state with zeros for new nodes, so that it has num_nodes nodes.

        A state that is large enough, or a subset, is returned unchanged.
        """
        extra = num_nodes - self.num_nodes
        if extra <= 0 or self.rows is not None:
            return self
        K, _, d = self.memory.shape
        fresh = NodeState.zeros(extra, K, d, dtype=self.memory.dtype, device=self.memory.device)
        return replace(
            self,
            memory=torch.cat([self.memory, fresh.memory], 1),
            output=torch.cat([self.output, fresh.output]),
            last_time=torch.cat([self.last_time, fresh.last_time]),
        )

    # ---- subsets -------------------------------------------------------------------------------------------
    def place(self, nodes: Tensor) -> Tensor:
        """Return the rows in which nodes lie; a subset must hold them."""
        if self.rows is None:
            return nodes
        found = torch.searchsorted(self.rows, nodes)
        assert not len(nodes) or torch.equal(self.rows[found.clamp(max=len(self.rows) - 1)], nodes)
        return found

    def identity(self, nodes: Tensor) -> Tensor:
        """Return the nodes that nodes are copies of; themselves in a state without copies."""
        return nodes if self.copy_of is None else self.copy_of[nodes]

    def subset(self, nodes: Tensor) -> NodeState:
        """Return the state of some nodes (repeats allowed) alone, still under their own numbers, as a copy."""
        rows = nodes.unique()
        return replace(
            self, memory=self.memory[:, rows], output=self.output[rows], last_time=self.last_time[rows], rows=rows
        )

    @torch.no_grad()
    def put(self, subset: NodeState) -> NodeState:
        """Copy a subset, without gradients, into this state in place; return the state with the subset's clock."""
        assert subset.rows is not None
        self.memory.index_copy_(1, subset.rows, subset.memory)
        self.output.index_copy_(0, subset.rows, subset.output)
        self.last_time.index_copy_(0, subset.rows, subset.last_time)
        return replace(self, clock=subset.clock)

    # ---- updates -----------------------------------------------------------------------------------------
    def replaced(
        self,
        nodes: Tensor,
        memory: Tensor,
        output: Tensor,
        *,
        seen: Tensor,
        time: Tensor,
        in_place: bool = False,
    ) -> NodeState:
        """Return the state with the rows of some nodes replaced.

        Args:
            nodes: (n,) distinct nodes.
            memory: (K, n, d).
            output: (n, d).
            seen: (e,) end points of the events, with repeats.
            time: (e,) float64 times of those events.
            in_place: write into this state's own tensors (no gradient may be recorded); the returned state shares
                them.
        """
        clock = max(self.clock, float(time.max())) if len(time) else self.clock
        nodes, seen = self.place(nodes), self.place(seen)
        if in_place:
            self.memory.index_copy_(1, nodes, memory)
            self.output.index_copy_(0, nodes, output)
            self.last_time.scatter_reduce_(0, seen, time, "amax")
            return replace(self, clock=clock)
        return replace(
            self,
            memory=self.memory.index_copy(1, nodes, memory),
            output=self.output.index_copy(0, nodes, output),
            last_time=self.last_time.scatter_reduce(0, seen, time, "amax"),
            clock=clock,
        )

    def detached(self) -> NodeState:
        """Return the state cut off from the gradients of past batches (truncated back-propagation through time)."""
        return replace(self, memory=self.memory.detach(), output=self.output.detach())

    def snapshot(self) -> NodeState:
        """Return a copy that later in-place updates do not change."""
        return self._with({k: v.clone() for k, v in self.tensors().items()}, self.rows)

    def to(self, device: torch.device | str) -> NodeState:
        """Return the state on a device."""
        rows = None if self.rows is None else self.rows.to(device)
        return self._with({k: v.to(device) for k, v in self.tensors().items()}, rows)

    def _with(self, tensors: dict[str, Tensor], rows: Tensor | None) -> NodeState:
        return replace(NodeState.from_tensors(tensors, self.clock, self.tag), rows=rows)

    # ---- storage -----------------------------------------------------------------------------------------
    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name, without gradients; with clock and tag, `from_tensors` takes them back."""
        return {"memory": self.memory.detach(), "output": self.output.detach(), "last_time": self.last_time}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], clock: float, tag: str) -> NodeState:
        """Return the state of what `tensors` returned, with its clock (time of the last event) and tag (of the model).

        Raises:
            CheckpointError: a tensor is missing, or their shapes disagree.
        """
        missing = {"memory", "output", "last_time"} - tensors.keys()
        if missing:
            raise CheckpointError(f"this node memory lacks {', '.join(sorted(missing))}; save the state again")
        memory, output, last_time = tensors["memory"], tensors["output"], tensors["last_time"]
        if memory.dim() != 3 or output.shape != memory.shape[1:] or last_time.shape != output.shape[:1]:
            shapes = ", ".join(f"{k} {tuple(v.shape)}" for k, v in tensors.items())
            raise CheckpointError(f"the parts of this node memory disagree: {shapes}")
        return cls(memory=memory, output=output, last_time=last_time, clock=clock, tag=tag)

    def check_tag(self, tag: str) -> None:
        """Check that the state belongs to the model of that tag.

        Raises:
            CheckpointError: it belongs to another.
        """
        if self.tag != tag:
            raise CheckpointError(f"this node memory belongs to {self.tag or 'no model'}, not to {tag}; start afresh")

    def check_times(self, nodes: Tensor, time: Tensor) -> None:
        """Check that no event of time (e,) at nodes (e,) precedes the last event of its node.

        Raises:
            TimeOrderError: one does; the first is named.
        """
        last = self.last_time[self.place(nodes)]
        late = time < last
        if bool(late.any()):
            i = int(late.nonzero()[0])
            raise TimeOrderError(
                f"an event of node {int(nodes[i])} at time {float(time[i]):g} comes after one at "
                f"{float(last[i]):g}; sort the events by time before streaming them"
            )
