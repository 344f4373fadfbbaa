"""Ensembles of runs on the links of an event stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scipy.special import expit

from hopstate.data.events import EventBatch, EventStream, not_none
from hopstate.data.stream_state import Memories, StreamState
from hopstate.errors import ConfigError
from hopstate.methods.ensemble.members import Member, StackedModel, members_of
from hopstate.methods.heuristics.method import heuristic_baselines
from hopstate.methods.method import Baselines, Context, Method
from hopstate.methods.shared.link import LinkRun, evaluation_negatives
from hopstate.streaming.event_replay import EventReplay
from hopstate.streaming.history_scorer import HistoryScorer, to_values
from hopstate.streaming.memory_scorer import LazyMemoryScorer, MemoryScorer
from hopstate.streaming.node_state import NodeState
from hopstate.streaming.slices import Steps
from hopstate.training.config import LoopConfig
from hopstate.training.tasks.events import EventSource
from hopstate.training.tasks.link import LinkTask


@dataclass(frozen=True, kw_only=True)
class EnsembleRun(LinkRun):
    """Configuration of an ensemble of temporal link predictors.

    Args:
        runs: folders of the finished runs.
        loop: only its seed, device and progress are used.
    """

    runs: tuple[str, ...] = ()
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=0))


class EnsembleScorer:
    """Score pairs by the weighted log-odds of the members."""

    def __init__(self, stack: StackedModel, names: list[str], scorers: list[Any]) -> None:
        self.stack, self.names, self.scorers = stack, names, scorers
        self.observes = any(getattr(scorer, "observes", True) for scorer in scorers)
        self.by_time = any(getattr(scorer, "by_time", False) for scorer in scorers)
        for scorer in scorers:
            if isinstance(scorer, (HistoryScorer, MemoryScorer)):
                scorer.activation = to_values

    def reset(self) -> None:
        """Forget all observed events."""
        for scorer in self.scorers:
            scorer.reset()

    def observe(self, batch: EventBatch) -> None:
        """Let every member observe a batch."""
        for scorer in self.scorers:
            scorer.observe(batch)

    def members(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None
    ) -> np.ndarray:
        """Return (Q, M) log-odds of pairs by each member, or its scores if they are not probabilities."""
        queries = not_none(src, dst, t, relation)
        scores = [getattr(scorer, "log_odds", scorer.score)(*queries) for scorer in self.scorers]
        return np.stack([torch.as_tensor(x).double().cpu().numpy() for x in scores], 1)

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> np.ndarray:
        """Return (Q,) probabilities of pairs src (Q,), dst (Q,) at times t (Q,)."""
        return expit(self.stack.logits(self.members(src, dst, t, relation)))

    def feature_shares(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None
    ) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Return the members' names, log-odds and contributions; see `ExplainsPairs`."""
        x = self.members(src, dst, t, relation)
        return self.names, x, self.stack.contributions(x)


class MemberScorer(EnsembleScorer):
    """Score pairs by the log-odds of a single member."""

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> np.ndarray:
        """Return (Q,) log-odds of pairs."""
        return self.members(src, dst, t, relation)[:, 0]


class MovingEnsemble(EnsembleScorer):
    """An ensemble with node memories over a stream state (`HasMemory`).

    The memories of all members are concatenated, each with its output as an additional row, and padded to one width.
    The output of the ensemble is zero.
    """

    def __init__(self, stack: StackedModel, names: list[str], scorers: list[Any], past: StreamState) -> None:
        super().__init__(stack, names, scorers)
        self.past, self.moving = past, [scorer for scorer in scorers if isinstance(scorer, LazyMemoryScorer)]
        self._observing = [scorer for scorer in scorers if getattr(scorer, "observes", True)]
        last = 0
        for member in self.moving:
            (K, _, d), first = member.memory.memory.shape, last
            last = first + K + 1
            memories = lambda nodes, rows=slice(first, last), d=d: self._memories(nodes, rows, d)  # noqa: E731
            member.past = SimpleNamespace(num_nodes=past.num_nodes, clock=past.clock, memories=memories)  # type: ignore[assignment]

    @property
    def memory(self) -> NodeState:
        """Memory of the first member, without a tag if other members need the features of all events."""
        state = self.moving[0].memory
        return state if len(self.moving) == len(self.scorers) else replace(state, tag="")

    def observing(self, batch: EventBatch) -> Steps[None]:
        """Run `observe` in slices."""
        for scorer in self._observing:
            if isinstance(scorer, LazyMemoryScorer):
                yield from scorer.observing(batch)
            else:
                scorer.observe(batch)

    def state(self) -> list[Any]:
        """Return the states of the members that observe events."""
        return [scorer.state() for scorer in self._observing]

    def restore(self, state: list[Any]) -> None:
        for scorer, own in zip(self._observing, state, strict=True):
            scorer.restore(own)

    def scores_without(
        self, replays: Sequence[EventReplay], follow: Callable[[StreamState], EnsembleScorer]
    ) -> Steps[list[np.ndarray]]:
        """Return scores as `HasMemory` says; members without a memory read histories without the event."""
        replayed = []
        for member in self.moving:
            scores = yield from member.scores_without(replays, follow)
            replayed.append(scores)
        columns = [self.scorers.index(member) for member in self.moving]
        found = []
        for place, replay in enumerate(replays):
            x = []
            for state in replay.states():
                x.append(follow(state).members(*replay.query()))
                yield
            members = np.concatenate(x)
            members[:, columns] = np.stack([scores[place] for scores in replayed], 1)
            found.append(expit(self.stack.logits(members)))
        return found

    def _memories(self, nodes: np.ndarray, rows: slice, d: int) -> Memories | None:
        memories = self.past.memories(nodes)
        if memories is None:
            return None
        memory = memories.memory[:, rows, :d]
        return replace(memories, memory=memory[:, :-1], output=memory[:, -1])

    def moved(self) -> Memories | None:
        """Return the memories of all updated nodes, or None if there are none."""
        nodes = np.unique(np.concatenate([member.moved_nodes() for member in self.moving]))
        if not len(nodes):
            return None
        memories = [member.remembered(nodes) for member in self.moving]
        last_time = np.max([own.last_time for own in memories], 0)
        width = max(own.output.shape[1] for own in memories)
        rows = [np.concatenate([own.memory, own.output[:, None]], 1) for own in memories]
        memory = np.concatenate([np.pad(own, ((0, 0), (0, 0), (0, width - own.shape[2]))) for own in rows], 1)
        output = np.zeros((len(nodes), width), memory.dtype)
        return Memories(nodes=nodes, memory=memory, output=output, last_time=last_time)


class EnsembleSource(EventSource[EnsembleScorer]):
    """The members as scorers. There is nothing to train in batches."""

    def __init__(self, members: list[Member]) -> None:
        first, self.tasks, self.stack = members[0].task, [member.task for member in members], StackedModel(members)
        node, edge = zip(*(task.feature_dims for task in self.tasks))
        super().__init__(self.stack, first.stream, first.split, feature_dims=(max(node), max(edge)))
        self.names = [member.name for member in members]

    def scorer(self, model: Any, split: str) -> EnsembleScorer:
        return EnsembleScorer(self.stack, self.names, [task.scorer(split) for task in self.tasks])

    def scorer_over(self, model: Any, stream: EventStream) -> EnsembleScorer:
        return EnsembleScorer(self.stack, self.names, [task.scorer_over(stream) for task in self.tasks])

    def follow(self, model: Any, past: StreamState) -> EnsembleScorer:
        scorers = [task.follow(past) for task in self.tasks]
        if any(isinstance(scorer, LazyMemoryScorer) for scorer in scorers):
            return MovingEnsemble(self.stack, self.names, scorers, past)
        return EnsembleScorer(self.stack, self.names, scorers)


class EnsembleTask(LinkTask):
    """Temporal link prediction by an ensemble of runs."""

    source: EnsembleSource

    def _each(self) -> list[MemberScorer]:
        source = self.source
        return [MemberScorer(source.stack, [], [task.scorer("val")]) for task in source.tasks]

    def fit_without_gradients(self) -> dict[str, float]:
        """Fit the weights on validation; return its metrics as a first epoch."""
        negatives = {
            key: own for key, own in self._drawn("val", self.evaluation.selection_strategies).items() if key[0] == "val"
        }
        if not negatives:
            raise ConfigError("split: the weights of an ensemble need validation events, but there are none")
        scores = [
            [own.without_collisions().pooled() for own in self._scored(scorer, "val", negatives, "pooled").values()]
            for scorer in self._each()
        ]
        x = np.stack([np.concatenate([values for _, values in own]) for own in scores], 1)
        self.source.stack.fit(x, np.concatenate([labels for labels, _ in scores[0]]))
        return {"epoch": 1, **{f"val_{name}": value for name, value in self.evaluate("val").items()}}


def build(stream: EventStream, config: EnsembleRun, context: Context) -> EnsembleTask:
    source, size = EnsembleSource(members := members_of(stream, config, context)), config.evaluation.batch_size
    for member, scorer in zip(members, [task.scorer("val") for task in source.tasks]):
        member_size = member.config.evaluation.batch_size
        if isinstance(scorer, MemoryScorer) and member_size != size:
            raise ConfigError(
                f"evaluation.batch_size={size}, but {member.name} updates its memory every {member_size} events"
            )
    negatives = evaluation_negatives(stream, source.split, config, context)
    return EnsembleTask(source, evaluation=config.evaluation, negatives=negatives)


def member_baselines(stream: EventStream, config: EnsembleRun, context: Context, task: EnsembleTask) -> Baselines:
    """Return test metrics of each member, recency and EdgeBank, and the validation metric of each."""
    metrics: Baselines = {}
    for name, member_task in zip(task.source.names, task.source.tasks):
        evaluator = LinkTask(member_task.source, evaluation=config.evaluation, negatives=task.negatives)
        metrics[name] = evaluator.evaluate("test") | {
            f"val_{evaluator.metric}": evaluator.evaluate("val")[evaluator.metric]
        }
    return metrics | heuristic_baselines(stream, config, context, task)


METHODS = {
    "ensemble": Method(
        "ensemble", EnsembleRun, build, "events", "finished runs on links in time, combined", "stacking",
        baselines=member_baselines, export="export its members", relations=True,
    ),
}  # fmt: skip
