"""Classification of event sequences as a `Task`: streams of one shape advance together; the end state is classified.

Source: CTDG-SSM, arXiv:2606.04672, section 7.4 and table 13; Gravina et al., ICML 2024 (temporal path graphs).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hopstate.data.dates import Clock
from hopstate.datasets.temporal_generators import PathSequences
from hopstate.errors import ConfigError, check_range
from hopstate.evaluation.metrics import evaluate_metrics
from hopstate.random import named_rng
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.protocols import MemoryModel
from hopstate.training.tasks.task import Task, TaskFacts, rows_of_split


@dataclass(frozen=True)
class _Step:
    """One event of a stream: its active nodes, and edges as rows of the active nodes."""

    active: Tensor  # (a,) nodes of the stream
    ends: Tensor  # (2,) rows
    after: Tensor  # (2, e) rows
    before: Tensor  # (2, e - 1)


class SequenceTask(Task[dict[str, Tensor]]):
    """Sequence classification: each sequence starts with an empty memory, and one node's final state is classified.

    Args:
        model: a memory model with one sequence class per node.
        data: the sequences.
        hops: distance from an event within which nodes are active; equals the filter's order.
        batch_size: sequences per step.
        seed: seed of the batch order.
        read: index of the classified node; -1 is the target of the last event.
        neighbors: number of most recent neighbors followed per node.
        tbptt_window: events that gradients flow back through. None uses all.
        clock: time normalization. None uses times unchanged.
        eval_batch_size: sequences per evaluation step.
    """

    metric = "accuracy"

    def __init__(
        self,
        model: MemoryModel,
        data: PathSequences,
        *,
        hops: int,
        batch_size: int = 128,
        seed: int = 0,
        read: int = -1,
        neighbors: int = 10,
        tbptt_window: int | None = None,
        clock: Clock | None = None,
        eval_batch_size: int = 512,
    ) -> None:
        check_range(minimum=1, batch_size=batch_size, eval_batch_size=eval_batch_size, tbptt_window=tbptt_window)
        check_range(minimum=1, neighbors=neighbors)
        check_range(minimum=0, hops=hops)
        self.num_nodes = data.x.shape[1]
        if not -1 <= read < self.num_nodes:
            raise ConfigError(f"read must be a node in 0..{self.num_nodes - 1} or -1; got {read}")
        super().__init__(model)
        self.memory_model, self.data, self.seed, self.clock = model, data, seed, clock or Clock()
        self.batch_size, self.eval_batch_size, self.tbptt_window = batch_size, eval_batch_size, tbptt_window
        self.read = int(data.pairs[-1, 1]) if read == -1 else read
        self._gaps = self._all_gaps()
        all_nodes = model.update_all
        self.steps = [_step(data.pairs[: k + 1], hops, neighbors, all_nodes) for k in range(len(data.pairs))]

    def num_batches(self, epoch: int) -> int:
        return -(-len(self.data.split["train"]) // self.batch_size)

    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[dict[str, Tensor]]:
        """Yield the columns of batch_size sequences, in an order drawn from (seed, epoch)."""
        order = named_rng(self.seed, "batches", epoch).permutation(self.data.split["train"])
        for i in range(start, self.num_batches(epoch), step):
            yield self._columns(order[i * self.batch_size : (i + 1) * self.batch_size])

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        logits = self._logits(batch)
        if logits.shape[1] == 1:
            return F.binary_cross_entropy_with_logits(logits[:, 0], batch["y"].to(logits.dtype))
        return F.cross_entropy(logits, batch["y"])

    def evaluate(self, split: str) -> dict[str, float]:
        return evaluate_metrics("classes", ("accuracy",), self.data.y[self._rows(split)], self._probabilities(split))

    def predict(self, split: str) -> dict[str, Any]:
        rows, p = self._rows(split), self._probabilities(split)
        columns = {"sequence": rows, "prediction": p.argmax(1)}
        return columns | {f"p_{i}": p[:, i] for i in range(p.shape[1])} | {"label": self.data.y[rows]}

    def facts(self) -> TaskFacts:
        return {"clock": self.clock}

    # ---- streaming ---------------------------------------------------------------------------------------
    def _rows(self, split: str) -> np.ndarray:
        return rows_of_split(self.data.split, split, len(self.data.y))

    def _columns(self, rows: np.ndarray) -> dict[str, Tensor]:
        d = self.data
        columns = {"t": d.t.astype(np.float64, copy=False), "y": d.y, "x": d.x, "edge_attr": d.edge_attr}
        columns |= {} if self._gaps is None else {"gap": self._gaps}
        return {k: torch.from_numpy(v[rows]) for k, v in columns.items()}

    def _probabilities(self, split: str) -> np.ndarray:
        rows = self._rows(split)
        device = next(self.model.parameters()).device
        parts = []
        for batch in np.split(rows, range(self.eval_batch_size, len(rows), self.eval_batch_size)):
            columns = {k: v.to(device) for k, v in self._columns(batch).items()}
            logits = self._logits(columns).double().cpu()
            both = torch.cat([torch.zeros_like(logits), logits], 1) if logits.shape[1] == 1 else logits
            parts.append(both.softmax(1))
        return torch.cat(parts).numpy()

    def _logits(self, columns: dict[str, Tensor]) -> Tensor:
        """Return (R, C) logits of R sequences, streamed event by event from an empty memory."""
        R, n = len(columns["y"]), self.num_nodes
        model, inference = self.memory_model, not torch.is_grad_enabled()
        state = model.initial_state(R * n)
        for k in range(len(self.steps)):
            if self.tbptt_window is not None and k % self.tbptt_window == 0:
                state = state.detached()
            state = model.update(state, self._batch(k, columns), in_place=inference)
        first = torch.arange(R, device=columns["y"].device) * n
        return model.sequence_logits(state, first + self.read)

    def _batch(self, k: int, columns: dict[str, Tensor]) -> ActiveBatch:
        """Return event k of each sequence as one batch of R blocks."""
        device = columns["y"].device
        step = _Step(*(v.to(device) for v in vars(self.steps[k]).values()))
        R, a = len(columns["y"]), len(step.active)
        block = torch.arange(R, device=device)[:, None]
        ends = step.ends + a * block  # (R, 2)
        return ActiveBatch(
            nodes=(step.active + self.num_nodes * block).flatten(),
            source=ends[:, 0],
            target=ends[:, 1],
            time=columns["t"][:, k],
            after=(step.after[:, None] + a * block).flatten(1),
            before=(step.before[:, None] + a * block).flatten(1),
            gap=columns["gap"][:, k] if "gap" in columns else None,
            node_attr=columns["x"][:, step.active].flatten(0, 1),
            edge_attr=columns["edge_attr"][:, k],
            blocks=R,
        )

    def _all_gaps(self) -> np.ndarray | None:
        """Return (S, L-1) ln(1 + time since the pair's last event), or None if the model ignores times."""
        if not self.memory_model.time_dim:
            return None
        t, limit = self.data.t, float(self.memory_model.max_log_delta)
        gaps, last_event = np.full(t.shape, limit), dict[tuple[int, int], int]()
        for k, (u, v) in enumerate(self.data.pairs.tolist()):
            last = last_event.get((min(u, v), max(u, v)))
            if last is not None:
                gaps[:, k] = self.clock.log_time_deltas(t[:, k], t[:, last], limit)
            last_event[min(u, v), max(u, v)] = k
        return gaps


def _step(pairs: np.ndarray, hops: int, neighbors: int, all_nodes: bool = False) -> _Step:
    """Return the last of pairs (k+1, 2), its nodes within some hops, and the edges that reach them.

    If all_nodes is set, all nodes seen so far are active.
    """
    past, event = pairs[:-1], pairs[-1]
    reached, edges = set(event.tolist()), set()
    frontier = reached
    for _ in range(hops):
        found: set[int] = set()
        for node in frontier:
            recent = np.flatnonzero((past == node).any(1))[-neighbors:]
            edges.update(recent.tolist())
            found.update(past[recent].reshape(-1).tolist())
        frontier = found - reached
        reached = reached | found
    active = np.unique(pairs) if all_nodes else np.array(sorted(reached))
    after = np.concatenate([past[sorted(edges)], event[None]]).T
    rows = torch.from_numpy(np.searchsorted(active, after))
    return _Step(torch.from_numpy(active), rows[:, -1], rows, rows[:, :-1])
