"""Ensembles of runs on the links of a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.io.files import replace_file
from hopstate.methods.ensemble.members import Member, StackedModel, members_of
from hopstate.methods.method import Baselines, Context, Method
from hopstate.methods.shared.node import NodeRun, save_npz
from hopstate.training.tasks.static_link import StaticLinkTask


@dataclass(frozen=True, kw_only=True)
class LinkEnsembleRun(NodeRun):
    """Configuration of an ensemble of runs on links of a graph.

    Args:
        runs: folders of the finished runs.
    """

    runs: tuple[str, ...] = ()
    task: Literal["node", "link"] = "link"


class LinkEnsembleTask(StaticLinkTask):
    """Static link prediction by an ensemble of runs."""

    def __init__(self, members: list[Member]) -> None:
        self.members, self.stack, first = members, StackedModel(members), members[0].task
        super().__init__(
            self.stack,  # type: ignore[arg-type]
            first.source,
            first.vectors,
            first.split,
            learned=first.learned,
            messages=first.messages,
            link=first.link,
            batch_size=first.batch_size,
            seed=first.seed,
            split_seed=first.split_seed,
            node_ids=first.node_ids,
        )

    single_process = "it is not trained in batches"

    def fit_without_gradients(self) -> dict[str, float]:
        """Fit the weights on validation; return its metrics as a first epoch."""
        question = self.question("val")
        negatives = question.negatives()
        pairs = np.concatenate([question.pairs, negatives[negatives[:, 1] >= 0]])
        x = np.stack([member.task.scorer("val")(*pairs.T) for member in self.members], 1)
        self.stack.fit(x, np.arange(len(pairs)) < len(question.pairs))
        return {"epoch": 1, **{f"val_{name}": value for name, value in self.evaluate("val").items()}}

    def scorer(self, split: str = "test") -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        scorers = [member.task.scorer(split) for member in self.members]
        return lambda u, v: self.stack.logits(np.stack([score(u, v) for score in scorers], 1))

    def encoded(self, split: str) -> Any:
        """Raise ConfigError, because only members have node embeddings."""
        raise ConfigError("an ensemble has no node embeddings; use those of a member")


def build(graph: Graph, config: LinkEnsembleRun, context: Context) -> LinkEnsembleTask:
    members = members_of(graph, config, context)
    pairs = members[0].task.split.pairs
    for member in members[1:]:
        if not all(np.array_equal(pairs[name], member_pairs) for name, member_pairs in member.task.split.pairs.items()):
            raise ConfigError(f"{members[0].name} and {member.name} differ in the links of their splits")
    if context.trained is None:
        replace_file(context.run / "split.npz", lambda part: save_npz(part, dict(pairs)))
    return LinkEnsembleTask(members)


def member_baselines(graph: Graph, config: LinkEnsembleRun, context: Context, task: LinkEnsembleTask) -> Baselines:
    key = task.metric
    tasks = {member.name: member.task for member in task.members}
    return {
        name: member_task.evaluate("test") | {f"val_{key}": member_task.evaluate("val")[key]}
        for name, member_task in tasks.items()
    }


METHODS = {
    "link-ensemble": Method(
        "link-ensemble", LinkEnsembleRun, build, "graph", "finished runs on a graph's links, combined", "stacking",
        baselines=member_baselines, reads_edges=lambda config: True, export="export its members",
    ),
}  # fmt: skip
