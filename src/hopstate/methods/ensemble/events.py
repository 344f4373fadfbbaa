"""An ensemble of runs on the links of an event stream."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scipy.special import expit

from hopstate.data.events import EventBatch, EventStream
from hopstate.data.stream_state import Memories, StreamState
from hopstate.errors import ConfigError
from hopstate.methods.ensemble.members import Member, Stack, members_of
from hopstate.methods.heuristics.method import heuristic_floors
from hopstate.methods.method import Context, Floors, Method
from hopstate.methods.shared.link import LinkRun, evaluation_negatives
from hopstate.streaming.history_scorer import HistoryScorer, to_values
from hopstate.streaming.memory_scorer import FollowingMemory, MemoryScorer
from hopstate.streaming.node_state import NodeState
from hopstate.streaming.slices import Steps
from hopstate.training.config import LoopConfig
from hopstate.training.tasks.events import EventSource
from hopstate.training.tasks.link import LinkTask


@dataclass(frozen=True, kw_only=True)
class EnsembleRun(LinkRun):
    """Configuration of an ensemble of runs on links in time.

    Args:
        runs: folders of the finished runs.
        loop: of it only the seed, the device and the progress matter.
    """

    runs: tuple[str, ...] = ()
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=0))


class EnsembleScorer:
    """Scores pairs by the weighted log-odds of members' scorers over the same events (`StreamingModel`)."""

    def __init__(self, stack: Stack, names: list[str], scorers: list[Any]) -> None:
        self.stack, self.names, self.scorers = stack, names, scorers
        self.observes = any(getattr(scorer, "observes", True) for scorer in scorers)
        self.by_time = any(one.by_time for one in scorers)
        for scorer in scorers:
            if isinstance(scorer, (HistoryScorer, MemoryScorer)):
                scorer.activation = to_values

    def reset(self) -> None:
        """Forget every event observed."""
        for scorer in self.scorers:
            scorer.reset()

    def observe(self, batch: EventBatch) -> None:
        """Let every member take in a batch."""
        for scorer in self.scorers:
            scorer.observe(batch)

    def state(self) -> list[Any]:
        return [scorer.state() for scorer in self.scorers]

    def restore(self, state: list[Any]) -> None:
        """Go on from what `state` returned."""
        for scorer, own in zip(self.scorers, state, strict=True):
            scorer.restore(own)

    def members(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q, M) log-odds of pairs by each member; its scores if these are no probabilities."""
        found = [getattr(scorer, "log_odds", scorer.score)(src, dst, t) for scorer in self.scorers]
        return np.stack([torch.as_tensor(x).double().cpu().numpy() for x in found], 1)

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) probabilities of pairs src (Q,), dst (Q,) at times t (Q,)."""
        return expit(self.stack.logits(self.members(src, dst, t)))

    def feature_shares(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray
    ) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Return the members, their log-odds and what these add; see `ExplainsPairs`."""
        x = self.members(src, dst, t)
        return self.names, x, self.stack.shares(x)


class MemberScorer(EnsembleScorer):
    """Scores pairs by the log-odds of a single member."""

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) log-odds of pairs."""
        return self.members(src, dst, t)[:, 0]


class MovingEnsemble(EnsembleScorer):
    """An ensemble with node memories over a past (`MovesMemory`).

    Memories are kept side by side in one, each with its output as a further row, padded to one width.
    Output is zero.
    """

    def __init__(self, stack: Stack, names: list[str], scorers: list[Any], past: StreamState) -> None:
        super().__init__(stack, names, scorers)
        self.past, self.moving = past, [scorer for scorer in scorers if isinstance(scorer, FollowingMemory)]
        last = 0
        for one in self.moving:
            (K, _, d), first = one.memory.memory.shape, last
            last = first + K + 1
            memories = lambda nodes, rows=slice(first, last), d=d: self._memories(nodes, rows, d)  # noqa: E731
            one.past = SimpleNamespace(num_nodes=past.num_nodes, clock=past.clock, memories=memories)  # type: ignore[assignment]

    @property
    def memory(self) -> NodeState:
        """Memory of the first of them; all have one clock. Without a tag, others need the features of all events."""
        state = self.moving[0].memory
        return state if len(self.moving) == len(self.scorers) else replace(state, tag="")

    def observing(self, batch: EventBatch) -> Steps[None]:
        """Do what `observe` does, in slices."""
        for one in self.moving:
            yield from one.observing(batch)

    def _memories(self, nodes: np.ndarray, rows: slice, d: int) -> Memories | None:
        found = self.past.memories(nodes)
        if found is None:
            return None
        own = found.memory[:, rows, :d]
        return replace(found, memory=own[:, :-1], output=own[:, -1])

    def moved(self) -> Memories | None:
        """Return what is remembered now of the nodes of which any memory moved; None where none did."""
        nodes = np.unique(np.concatenate([one.moved_nodes() for one in self.moving]))
        if not len(nodes):
            return None
        found = [one.remembered(nodes) for one in self.moving]
        width, last_time = max(own.output.shape[1] for own in found), np.max([own.last_time for own in found], 0)
        rows = [np.concatenate([own.memory, own.output[:, None]], 1) for own in found]
        memory = np.concatenate([np.pad(own, ((0, 0), (0, 0), (0, width - own.shape[2]))) for own in rows], 1)
        output = np.zeros((len(nodes), width), memory.dtype)
        return Memories(nodes=nodes, memory=memory, output=output, last_time=last_time)


class EnsembleSource(EventSource[EnsembleScorer]):
    """The members as scorers; nothing is learned from batches."""

    def __init__(self, members: list[Member]) -> None:
        first, self.tasks, self.stack = members[0].task, [member.task for member in members], Stack(members)
        node, edge = zip(*(task.feature_dims for task in self.tasks))
        super().__init__(self.stack, first.stream, first.split, feature_dims=(max(node), max(edge)))
        self.names = [member.name for member in members]

    def scorer(self, model: Any, split: str) -> EnsembleScorer:
        return EnsembleScorer(self.stack, self.names, [task.scorer(split) for task in self.tasks])

    def scorer_over(self, model: Any, stream: EventStream) -> EnsembleScorer:
        return EnsembleScorer(self.stack, self.names, [task.scorer_over(stream) for task in self.tasks])

    def follow(self, model: Any, past: StreamState) -> EnsembleScorer:
        scorers = [task.follow(past) for task in self.tasks]
        if any(isinstance(scorer, FollowingMemory) for scorer in scorers):
            return MovingEnsemble(self.stack, self.names, scorers, past)
        return EnsembleScorer(self.stack, self.names, scorers)


class EnsembleTask(LinkTask):
    """Links in time from the scores of several runs."""

    source: EnsembleSource

    def _each(self) -> list[MemberScorer]:
        source = self.source
        return [MemberScorer(source.stack, [], [task.scorer("val")]) for task in source.tasks]

    def fit_without_gradients(self) -> tuple[list[dict[str, float]], int]:
        """Fit the weights on validation; return its metrics as a first epoch."""
        drawn = {
            key: own for key, own in self._drawn("val", self.evaluation.selection_strategies).items() if key[0] == "val"
        }
        if not drawn:
            raise ConfigError("split: validation has no events, on which the weights of an ensemble are fitted")
        found = [
            [own.without_own_event().pooled() for own in self._scored(scorer, "val", drawn, "pooled").values()]
            for scorer in self._each()
        ]
        x = np.stack([np.concatenate([values for _, values in own]) for own in found], 1)
        self.source.stack.fit(x, np.concatenate([labels for labels, _ in found[0]]))
        return [{"epoch": 1, **{f"val_{name}": value for name, value in self.evaluate("val").items()}}], 1


def build(stream: EventStream, config: EnsembleRun, context: Context) -> EnsembleTask:
    source, size = EnsembleSource(members := members_of(stream, config, context)), config.evaluation.batch_size
    for member, scorer in zip(members, [task.scorer("val") for task in source.tasks]):
        own = member.config.evaluation.batch_size
        if isinstance(scorer, MemoryScorer) and own != size:
            raise ConfigError(f"evaluation.batch_size={size}, but the memory of {member.name} moves by {own} events")
    negatives = evaluation_negatives(stream, source.split, config, context)
    return EnsembleTask(source, evaluation=config.evaluation, negatives=negatives)


def member_floors(stream: EventStream, config: EnsembleRun, context: Context, task: EnsembleTask) -> Floors:
    """Return test metrics of each member, recency and EdgeBank, and the validation metric of each."""
    found: Floors = {}
    for name, own in zip(task.source.names, task.source.tasks):
        judge = LinkTask(own.source, evaluation=config.evaluation, negatives=task.negatives)
        found[name] = judge.evaluate("test") | {f"val_{judge.metric}": judge.evaluate("val")[judge.metric]}
    return found | heuristic_floors(stream, config, context, task)


METHODS = {
    "ensemble": Method(
        "ensemble", EnsembleRun, build, "events", "finished runs on links in time, combined", "stacking",
        floors=member_floors, export="export its members",
    ),
}  # fmt: skip
