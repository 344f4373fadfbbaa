"""DyG-Mamba on an event stream: link prediction and node classification.

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
from hopstate.methods.pair_trees.event_method import label_baselines
from hopstate.methods.pair_trees.method import link_baselines
from hopstate.methods.shared.event_nodes import (
    EventNodeRun,
    event_targets,
    init_context,
    load_backbone,
    settings_from_init,
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

# Tokens per microbatch by default. With more tokens and 400 inner channels, arrays exceed 32 MiB, which glibc returns
# to the system after every use. The page faults slow a CPU step by half.
MAX_TOKENS = 20_480
MAX_LOOKUP_TOKENS = 65_536  # tokens of the pairs that are tokenized at once, in a training step and in scoring
ASSUMED_LENGTH = 4096  # assumed length of unlimited histories


@dataclass(frozen=True, kw_only=True)
class DyGMambaRun(HistoryLinkRun):
    """Configuration of a DyG-Mamba run.

    Args:
        model: encodings, state-space blocks, head.
        history: length of sequences, and position of the node itself in them.
        microbatch_size: pairs computed together in a training step, to limit memory (about 57 KB per token). The
            gradient is still that of the full batch. null: about 20,000 tokens per microbatch.
    """

    model: DyGMambaConfig = field(default_factory=DyGMambaConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    microbatch_size: int | None = None


def build(stream: EventStream, config: DyGMambaRun, context: Context) -> LinkTask:
    default_pairs = max(1, MAX_LOOKUP_TOKENS // (2 * (config.history.max_length or ASSUMED_LENGTH)))
    widths = history_features(used_features(stream, context), stream, config.deletions, context)
    return history_task(
        stream,
        config,
        context,
        model=DyGMamba(config.model, **widths),
        tokenizer=lambda store, events, *args: HistoryTokenizer(store, events, config.history, *args),
        microbatch_size=default_pairs if config.microbatch_size is None else config.microbatch_size,
        microbatch_tokens=MAX_TOKENS if config.microbatch_size is None else None,
    )


@dataclass(frozen=True, kw_only=True)
class DyGMambaNodesRun(EventNodeRun):
    """Configuration of a DyG-Mamba run that classifies an event's source at the event's time.

    Args:
        model: encodings, state-space blocks and head. Settings for pairs (co-occurrence, independent encoders,
            cross-attention) do not apply.
        history: length of sequences, and position of the node itself in them.
        batch_size: events per step.
        deletions: how histories contain deletions: "feature" as tokens with an indicator feature, "drop" not at all, or
            "keep" as ordinary tokens.
    """

    model: DyGMambaConfig = field(default_factory=DyGMambaConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    batch_size: int = 200
    deletions: Deletions = "feature"
    loop: LoopConfig = field(default_factory=event_loop)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(minimum=1, batch_size=self.batch_size)
        check_range(minimum=0, bootstrap=self.bootstrap)


def build_nodes(stream: EventStream, config: DyGMambaNodesRun, context: Context) -> EventNodeTask:
    split = config.split.of(stream)
    targets = event_targets(stream, split, config, context)
    init = init_context(config, context, links="dyg-mamba")
    clock, deletions = clock_of(stream, split, config.time_scale, init), deletions_of(stream, config.deletions, init)
    keeps_deletions = deletions != "drop"

    def tokenizer(store: NeighborStore, events: EventStream) -> HistoryTokenizer:
        return HistoryTokenizer(store, events, config.history, clock, deletions, config.loop.float_type)

    model = DyGMambaNodes(
        config.model, targets.width, **history_features(used_features(stream, init), stream, config.deletions, init)
    )
    frozen = load_backbone(model, config, context, links="dyg-mamba", head=("head",))
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
    """Return the export of a trained task: tokens of past events → logits of pairs or outputs of nodes."""
    model = bare(task.model)
    assert isinstance(model, (DyGMamba, DyGMambaNodes))
    if model.config.cross_attention:
        raise ConfigError("cross-attention (model.cross_attention) cannot be exported")
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
        "node classification with state-space models over past events",
        "arXiv:2408.06966",
        auto_config=partial(settings_from_init, links="dyg-mamba"),
        baselines=label_baselines,
        space=SPACE,
        export=export_spec,
        relations=True,
    ),
    "dyg-mamba": history_method(
        "dyg-mamba",
        DyGMambaRun,
        build,
        summary="state-space models over past events, with time differences as step sizes",
        source="arXiv:2408.06966",
        baselines=link_baselines,
        space=SPACE,
        budget=200_000,
        export=export_spec,
    ),
}
