"""A trained run as a `torch.nn.Module`, and its node embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.events import not_none
from hopstate.data.stream_state import StreamState
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError
from hopstate.methods.shared.programs import ExportSpec
from hopstate.runs.load import load_run, load_state, register_data
from hopstate.runs.query_inputs import parse_query_times, query_relations
from hopstate.runs.saved_run import SavedRun
from hopstate.streaming.live import PairQueries
from hopstate.streaming.memory_scorer import LazyMemoryScorer
from hopstate.streaming.protocols import LiveTask
from hopstate.training.devices import bare
from hopstate.training.tasks.event_node import EventNodeTask
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.node import NodeTask
from hopstate.training.tasks.static_link import StaticLinkTask
from hopstate.training.tasks.task import Task

if TYPE_CHECKING:
    import pandas as pd


class TrainedModel(nn.Module):
    """A trained network that takes the user's ids.

    Args:
        run: the run folder.
        data: the run's data if they are not in a file; for node tasks on a graph, optionally other data.
        device: where to compute. Default: the run's setting.

    The model stays in evaluation mode even after `train()`. To train further, resume the run with `fit --resume`.

    network: the method's own module with the chosen weights, in eval mode.
    ids: the user's ids of the nodes, in the order of their rows.
    """

    def __init__(self, run: str | Path, data: Any = None, device: str | None = None) -> None:
        super().__init__()
        saved = SavedRun.open(run)
        self._saved = saved
        temporal, self._dates = saved.follows_events, saved.dates
        self._record = register_data(saved, data) if temporal and data is not None else None
        with load_run(run, None if temporal else data, device=device, bare=temporal) as (_, task):
            self.task = task
            self.network = bare(task.model)
            self.network.eval()
            self.past: StreamState | None = None
            if temporal:
                assert isinstance(task, LiveTask)
                with torch.no_grad():
                    self.past = load_state(saved, task)
        self._ids, self._count = _nodes(task) if self.past is None else (self.past.node_ids, 0)
        self.eval()

    def train(self, mode: bool = True) -> TrainedModel:
        """Stay in evaluation mode."""
        return super().train(False)

    @property
    def ids(self) -> np.ndarray:
        """The user's ids of known nodes, by row."""
        count = self._count if self.past is None else self.past.num_nodes
        return np.arange(count) if self._ids is None else self._ids.ids

    def rows(self, nodes: Any) -> np.ndarray:
        """Return the rows of nodes (n,) by the user's ids.

        Raises:
            DataError: an id that is not known.
        """
        names = np.atleast_1d(np.asarray(nodes))
        known = self._ids if self._ids is not None else Vocabulary(np.arange(len(self.ids)))
        rows = known.rows(names.astype(str) if known.is_text else names)
        if (rows < 0).any():
            raise known.unknown(names[int(np.argmax(rows < 0))].item())
        return rows

    def forward(self, *query: Any) -> Tensor:
        """Return outputs: of nodes (n,) their (n, C) logits; of pairs their scores (n,), at times; of nodes at times.

        Args:
            query: nodes, none for all of a graph; source, target of links of a graph; or source, target, time, and a
                relation if events have some; or node, time. Ids are the user's own. Times are numbers in the unit of
                the run's data, or dates, one for all or one each, none before the last event.

        Raises:
            DataError: an id that is not known.
            ConfigError: the run's method does not support the query.
        """
        if isinstance(self.task, NodeTask):
            rows = self.rows(query[0]) if query else np.arange(len(self.ids))
            return self.task.logits(rows)
        if isinstance(self.task, StaticLinkTask) and len(query) == 2:
            source, target = np.broadcast_arrays(*map(self.rows, query))
            with torch.no_grad():
                return torch.from_numpy(self._score(source, target))
        query, relation = (
            (query[:3], query[3]) if isinstance(self.task, LinkTask) and len(query) == 4 else (query, None)
        )
        if isinstance(self.task, EventNodeTask) and not self.task.takes_nodes:
            raise ConfigError("this model scores events, not nodes: got a node query. See predict")
        if self.past is None or len(query) != (3 if isinstance(self.task, LinkTask) else 2):
            raise ConfigError(
                f"unsupported query: got {len(query)} arguments. Give nodes or source, target of a graph; source, "
                "target, time of a stream; or node, time of a stream"
            )
        ends, t = self._query_rows(*query)
        if isinstance(self.task, (LinkTask, EventNodeTask)):
            relations = (
                query_relations(self.past, relation, len(t), "pairs") if isinstance(self.task, LinkTask) else None
            )
            columns = not_none(ends[0], ends[-1], t, relations)
            return torch.from_numpy(PairQueries(self.task, self.past).scores(*columns))
        raise ConfigError(f"{type(self.network).__name__} supports neither node nor pair queries")

    @cached_property
    def _score(self) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Rows of pairs of a graph's nodes → their logits; the graph is encoded once."""
        assert isinstance(self.task, StaticLinkTask)
        return self.task.scorer()

    def as_pyg(self) -> tuple[nn.Module, dict[str, Tensor]]:
        """Return the network as a module of plain tensors, and those of the run's graph, for explainers.

        Of a backbone these are `x`, `edge_index` and what edges carry. Messages go through torch-geometric's layers, so
        that its `Explainer` and Captum take the module.

        Raises:
            ConfigError: the method has no such form.

        Example:
            module, inputs = hopstate.load("runs/gcn").model.as_pyg()
            explainer = Explainer(module, GNNExplainer(), explanation_type="model", edge_mask_type="object", ...)
            explainer(inputs["x"], inputs["edge_index"], index=3)
        """
        method = self._saved.method
        if not callable(method.export):
            raise ConfigError(f"{method.name} has no form of plain tensors: {method.export}")
        form: ExportSpec = method.export(self.task)
        if form.fill is None or self.past is not None:
            raise ConfigError(f"{method.name} has no form over the tensors of a graph")
        names = [port.name for port in form.inputs]
        return form.module.eval(), dict(zip(names, form.filled(None), strict=True))

    def _query_rows(self, *query: Any) -> tuple[list[np.ndarray], np.ndarray]:
        """Return one or two arrays of rows (n,), and times (n,) in the dtype of the state."""
        assert self.past is not None
        rows = [self.rows(nodes) for nodes in query[:-1]]
        kind = self.past.time_dtype
        t = (
            parse_query_times(self.past, np.atleast_1d(np.asarray(query[-1])), self._dates)
            if rows
            else np.empty(0, kind)
        )
        return rows, np.broadcast_to(t, rows[0].shape).copy() if rows else t

    @torch.no_grad()
    def embeddings(self, nodes: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return ids (n,) and embeddings (n, d): the input of the last layer after all known events.

        Args:
            nodes: the user's ids; None takes all.

        Raises:
            ConfigError: the method has no node embeddings.
        """
        ids = self.ids if nodes is None else np.atleast_1d(np.asarray(nodes))
        rows = np.arange(len(ids)) if nodes is None else self.rows(nodes)
        if isinstance(self.task, NodeTask) and "head" in dict(self.network.named_children()):
            with _without_head(self.network):
                return ids, self.task.logits(rows).numpy()
        if isinstance(self.task, StaticLinkTask):
            return ids, self.task.encoded("test")[0][rows].cpu().numpy()
        if self.past is not None:
            assert isinstance(self.task, LiveTask)
            follower = PairQueries(self.task, self.past).latest()
            if isinstance(follower, LazyMemoryScorer):
                return ids, follower.vectors(rows)
        name = type(self.network).__name__
        if self.past is None:
            raise ConfigError(f"{name} has no separate head, so it exposes no embeddings")
        raise ConfigError(
            f"{name} has no node embeddings, because they depend on the pair and the time; use score or rank"
        )


def _nodes(task: Task) -> tuple[Vocabulary | None, int]:
    if isinstance(task, NodeTask):
        return task.labels.node_ids, len(task.labels.y)
    if isinstance(task, StaticLinkTask):
        return task.node_ids, task.messages.num_nodes
    raise ConfigError("this run predicts neither nodes nor links of a graph or stream; use evaluate and predict")


@contextmanager
def _without_head(network: nn.Module) -> Iterator[None]:
    head = network.head
    network.head = nn.Identity()
    try:
        yield
    finally:
        network.head = head


def embeddings(run: str | Path, nodes: Any = None, data: Any = None, device: str | None = None) -> pd.DataFrame:
    """Return node embeddings of a trained run: a column node with ids, then one column per dimension.

    On a graph, the input of the last layer or of the link decoder; on a stream, the final node memory.

    Args:
        run: a run folder.
        nodes: the user's ids; None takes all.
        data: the run's own data, where they are nowhere else.
        device: where to compute; None takes the run's own setting.

    Raises:
        ConfigError: the method has no node embeddings.
        DataError: an id that is not known.
    """
    import pandas as pd

    ids, vectors = TrainedModel(run, data, device).embeddings(nodes)
    table = pd.DataFrame(vectors)
    table.insert(0, "node", ids)
    return table


__all__ = ["TrainedModel", "embeddings"]
