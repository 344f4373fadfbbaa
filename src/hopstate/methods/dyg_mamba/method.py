"""DyG-Mamba on a user's event stream: which links come next, and what state a node is in.

Source: DyG-Mamba, arXiv:2408.06966; settings of its tables 9 and 10, in `DyGMamba.Config` and `HistoryConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import ConfigError, check_range
from hopstate.methods.dyg_mamba.model import DyGMamba, DyGMambaConfig, DyGMambaNodes, frozen_bounds
from hopstate.methods.method import Context, Method, Space
from hopstate.methods.pair_trees.method import link_floors
from hopstate.methods.shared.event_nodes import (
    EventNodeRun,
    event_floors,
    event_targets,
    init_context,
    suit_init,
    take_backbone,
)
from hopstate.methods.shared.link import (
    HistoryLinkRun,
    clock_of,
    deletions_of,
    event_loop,
    history_features,
    history_method,
    history_task,
    used_features,
)
from hopstate.methods.shared.programs import ExportSpec, history_spec
from hopstate.tokens.history import Deletions, HistoryConfig, HistoryTokenizer
from hopstate.training.config import LoopConfig
from hopstate.training.devices import bare
from hopstate.training.tasks.event_node import EventNodeTask
from hopstate.training.tasks.events import EventTask, HistoryNodes
from hopstate.training.tasks.link import LinkTask

# Computed together, unless microbatch_size says otherwise. More tokens than this by 400 inner channels are more than
# 32 MiB, and then glibc gives it back to the system at every use: page faults make a CPU's step half as long again.
MAX_TOKENS = 20_480
LOOKED_UP = 65_536  # tokens looked up together, before the count tells how to cut; of scoring, computed together
LONG = 4096  # taken for the length of a history without a cap


@dataclass(frozen=True, kw_only=True)
class DyGMambaRun(HistoryLinkRun):
    """Configuration of a DyG-Mamba run.

    Args:
        model: encodings, state-space blocks, head.
        history: how much of the past a sequence holds, and where the node itself stands in it.
        microbatch_size: pairs computed together in a training step, to bound memory (about 57 KB a token); the gradient
            is the whole batch's all the same. null: so many that a microbatch has about 20,000 tokens.
    """

    model: DyGMambaConfig = field(default_factory=DyGMambaConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    microbatch_size: int | None = None


def build(stream: EventStream, config: DyGMambaRun, context: Context) -> LinkTask:
    at_once = max(1, LOOKED_UP // (2 * (config.history.max_length or LONG)))
    widths = history_features(used_features(stream, context), stream, config.deletions, context)
    return history_task(
        stream,
        config,
        context,
        model=DyGMamba(config.model, **widths),
        tokenizer=lambda store, events, *rest: HistoryTokenizer(store, events, config.history, *rest),
        microbatch_size=at_once if config.microbatch_size is None else config.microbatch_size,
        microbatch_tokens=MAX_TOKENS if config.microbatch_size is None else None,
    )


@dataclass(frozen=True, kw_only=True)
class DyGMambaNodesRun(EventNodeRun):
    """Configuration of a DyG-Mamba run that classifies an event's source at the event's time.

    Args:
        model: encodings, state-space blocks, head; without co-occurrence, independent encoders and cross-attention,
            which take a pair.
        history: how much of the past a sequence holds, and where the node itself stands in it.
        batch_size: events a step.
        deletions: what histories make of them: "marked", tokens with a feature that says so; "left-out"; or "unmarked",
            tokens like any other.
    """

    model: DyGMambaConfig = field(default_factory=DyGMambaConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    batch_size: int = 200
    deletions: Deletions = "marked"
    loop: LoopConfig = field(default_factory=event_loop)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(minimum=1, batch_size=self.batch_size)
        check_range(minimum=0, bootstrap=self.bootstrap)


def build_nodes(stream: EventStream, config: DyGMambaNodesRun, context: Context) -> EventNodeTask:
    split = config.split.of(stream)
    targets = event_targets(stream, split, config, context)
    built = init_context(config, context, links="dyg-mamba")
    clock, kept = clock_of(stream, split, config.gap_unit, built), deletions_of(stream, config.deletions, built)
    keeps_deletions = kept != "left-out"

    def tokenizer(store: NeighborStore, events: EventStream) -> HistoryTokenizer:
        return HistoryTokenizer(store, events, config.history, clock, kept, config.loop.float_type)

    model = DyGMambaNodes(
        config.model, targets.width, **history_features(used_features(stream, built), stream, config.deletions, built)
    )
    frozen = take_backbone(model, config, context, links="dyg-mamba", head=("head",))
    source = HistoryNodes(
        model,
        stream,
        split,
        train_inputs=tokenizer(NeighborStore.from_stream(stream, split.train, deletions=keeps_deletions), stream),
        inputs=lambda events: tokenizer(NeighborStore.from_stream(events, deletions=keeps_deletions), events),
        batch_size=config.batch_size,
        y=targets.y,
        target=targets.target,
    )
    return EventNodeTask(source, targets=targets, bootstrap=config.bootstrap, clock=clock, frozen=frozen)


def export_spec(task: EventTask[Any]) -> ExportSpec:
    """Return what is exported of a trained task: tokens of past events in, logits of pairs or rows of nodes out."""
    model = bare(task.model)
    assert isinstance(model, (DyGMamba, DyGMambaNodes))
    if model.config.cross_attention:
        raise ConfigError("attention between the two ends (model.cross_attention) has no program")
    nodes = isinstance(model, DyGMambaNodes)
    counts = () if nodes or not model.config.cooccurrence else ("counts",)
    about = (
        "the last events of each node strictly before the query, oldest first, as many as history.max_length keeps, "
        "and the node itself as a token where history.target says; `hopstate.tokens.history` has the definition"
    )
    names = ("gaps", "spans", *counts, "x", "edge_attr", "pair")
    return history_spec(frozen_bounds(model), names, clock=task.clock, preprocessing=about, nodes=nodes)


SPACE: Space = {"history.max_length": [32, 64, 128, 256, 512, 1024, 2048]}  # appendix D.3

METHODS = {
    "dyg-mamba-nodes": Method(
        "dyg-mamba-nodes",
        DyGMambaNodesRun,
        build_nodes,
        "events",
        "the state of an event's source, from state spaces over its past events",
        "arXiv:2408.06966",
        suit=partial(suit_init, links="dyg-mamba"),
        floors=event_floors,
        space=SPACE,
        export=export_spec,
    ),
    "dyg-mamba": history_method(
        "dyg-mamba",
        DyGMambaRun,
        build,
        summary="state spaces over two nodes' past events, stepped by the time between them",
        source="arXiv:2408.06966",
        floors=link_floors,
        space=SPACE,
        budget=200_000,
        export=export_spec,
    ),
}
