"""CTDG-SSM for sequence classification: the class is predicted from a node's memory after the last event.

Source: Raghuvanshi et al. 2026, arXiv:2606.04672, section 7.4; data of Gravina et al. 2024, arXiv:2406.02740.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hopstate.data.dates import Clock, TimeScale, elapsed
from hopstate.datasets.temporal_generators import PathSequences
from hopstate.methods.ctdg_ssm.model import CTDGSSM, CTDGSSMConfig
from hopstate.methods.method import Context, Method, Range, RunConfig
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.tasks.sequence import SequenceTask


@dataclass(frozen=True, kw_only=True)
class PathOptions:
    """Settings of generated temporal paths; see `hopstate.datasets.temporal_generators.path_sequences`.

    Args:
        length: nodes of a path. The first node's features encode the class, which is predicted at the last node.
        count: number of sequences.
        variant: "ctan" (2 features, times 0, 1, ...) or "ctdg-ssm" (1 feature, random times, classes and split).
        seed: seed of the generator. 9 gives the published files of "ctan".
    """

    length: int = 9
    count: int = 1000
    variant: Literal["ctan", "ctdg-ssm"] = "ctan"
    seed: int = 9


@dataclass(frozen=True, kw_only=True)
class CTDGSSMSequenceRun(RunConfig):
    """Configuration of a CTDG-SSM run on sequences.

    Args:
        data: path-sequences.
        read: settings of the sequences.
        model: the memory model. Active nodes are neighborhoods of model.order hops. Longer paths need a lower
            step_bias, because the memory decays with every event: -4 for 50 nodes, -5 for 100.
        num_neighbors: most recent neighbors followed per node.
        time_scale: unit of time differences, if model.time_dim is above 0: the "median" gap between events of the
            training sequences, "seconds", or "raw".
        batch_size: sequences per step.
        tbptt_window: events of truncated backpropagation through time, null for all.
        read_node: the node whose memory is classified; -1 for the last event's target.
        loop: training loop settings.
    """

    read: PathOptions = field(default_factory=PathOptions)
    model: CTDGSSMConfig = field(default_factory=lambda: CTDGSSMConfig(order=2, time_dim=0))
    num_neighbors: int = 10
    time_scale: TimeScale = "median"
    batch_size: int = 128
    tbptt_window: int | None = None
    read_node: int = -1
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(
            epochs=100, patience=None, grad_clip=1.0, optim=OptimConfig(name="adam", lr=3e-3, weight_decay=0.0)
        )
    )


def build(data: PathSequences, config: CTDGSSMSequenceRun, context: Context) -> SequenceTask:
    saved = (context.trained or {}).get("clock")
    clock = Clock(**saved) if saved else _clock(data, config.time_scale)
    widths = {"node_dim": data.x.shape[2], "edge_dim": data.edge_attr.shape[2], "num_nodes": data.num_nodes}
    classes = int(data.y.max()) + 1
    return SequenceTask(
        CTDGSSM(
            config.model,
            decoder="sequence",
            num_outputs=classes if classes > 2 else 1,
            seed=config.loop.seed,
            **widths,
        ),
        data,
        hops=config.model.order,
        batch_size=config.batch_size,
        seed=config.loop.seed,
        read=config.read_node,
        neighbors=config.num_neighbors,
        tbptt_window=config.tbptt_window,
        clock=clock,
    )


def _clock(data: PathSequences, time_scale: TimeScale) -> Clock:
    """Return the clock of the training sequences; see `hopstate.data.dates.Clock.fit`."""
    t = data.t[data.split["train"]]
    if time_scale == "median":
        return Clock.of_gaps(elapsed(t[:, 1:], t[:, :-1]).ravel())
    return Clock.fit(t[:0, 0], time_scale=time_scale)


METHODS = {
    "ctdg-ssm-sequences": Method(
        "ctdg-ssm-sequences",
        CTDGSSMSequenceRun,
        build,
        "sequences",
        "a class per event sequence, read from a state-space memory",
        "arXiv:2606.04672",
        space={"model.order": [1, 2, 3], "loop.optim.lr": Range(1e-4, 1e-2, log=True)},
        export="its memory update cannot be exported yet",
    )
}
