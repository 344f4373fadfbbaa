"""CTDG-SSM on a user's event stream: links, or classes of nodes, from a node memory.

Source: Raghuvanshi et al. 2026, arXiv:2606.04672; settings of its tables 2 and 9.
Deviations: the paper states no bound of a memory's norm, no length of back-propagation, no start of the filter and no
clipping; `model.max_norm` 100, `tbptt_window` 4, `model.filter_init` and `loop.grad_clip` 1 are this library's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import refuse_idle
from hopstate.methods.ctdg_ssm.model import CTDGSSM, CTDGSSMConfig, Readout
from hopstate.methods.method import Context, Method, Space
from hopstate.methods.pair_trees.event_method import label_baselines
from hopstate.methods.pair_trees.method import link_baselines
from hopstate.methods.shared.event_nodes import (
    event_targets,
    init_context,
    load_backbone,
    settings_from_init,
)
from hopstate.methods.shared.link import (
    PAIR_SETTINGS,
    SCHEDULE_SETTINGS,
    auto_epochs,
    auto_negatives,
    used_features,
)
from hopstate.methods.shared.memory import MemoryLinkRun, MemoryNodeRun, memory_source, memory_task
from hopstate.methods.shared.programs import ExportSpec, Port, Program, StateQuery, Tensors, logit_port, rows_port
from hopstate.tokens.pair_features import NAMES
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.devices import bare
from hopstate.training.tasks.event_node import EventNodeTask
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.memory import LabelObjective

BUDGET = 1_040_000  # training events times epochs for links: some minutes on one core; 30 epochs of UCI, 14 of Enron
NODES = 500_000  # the same for nodes
LOOKED_AT = 100_000  # latest training events that set the frequencies
MEMORY = (
    "batch_size",
    "model.dim",
    "model.max_norm",
    "model.embedding_norm",
    "model.static",
    "model.filter_init",
    "model.min_frequency",
    "model.max_frequency",
    *SCHEDULE_SETTINGS,
)
LEAST, MOST = 1.0, 8.0  # of the highest frequency
NO_NEIGHBOR = "model.order=0 does not use neighbors"


def auto_config_memory(
    stream: EventStream, config: CTDGSSMRun | CTDGSSMNodeRun, metrics: tuple[str, ...]
) -> Mapping[str, Any]:
    """Return automatic settings of CTDG-SSM for a stream.

    The filter starts at 1: at its critical start, made for paths, a dense graph's memory runs into its bound. Static
    vectors are random, one of the paper's four kinds. The norm before the decoder is left open by the paper.
    """
    train = config.split.of(stream).train
    count = len(stream.additions(train))
    chosen: dict[str, Any] = {
        "model.dim": 64,
        "model.max_norm": 10.0,
        "model.embedding_norm": True,
        "model.static": "random",
        "batch_size": int(np.clip(count // 600, 16, 64)) if count < 200_000 else 200,
        "loop.optim.lr": 2e-3,
        **auto_epochs(count, BUDGET if isinstance(config, CTDGSSMRun) else NODES),
    }
    if config.model.order:
        chosen["model.filter_init"] = 1.0
    if isinstance(config, CTDGSSMRun):
        chosen |= auto_negatives(stream, config, metrics)
    if config.model.time_dim:
        min_frequency, max_frequency = frequencies(stream, train, config)
        chosen |= {"model.min_frequency": min_frequency, "model.max_frequency": max_frequency}
    return chosen


def frequencies(stream: EventStream, train: np.ndarray, config: CTDGSSMRun | CTDGSSMNodeRun) -> tuple[float, float]:
    """Return the lowest and highest frequency of time encodings that resolve a stream's time differences.

    The lowest covers all values of ln(1 + time difference), `max_log_delta` included, with half a period. The highest
    covers the middle 80% of the differences between repeat events of a pair with two periods.

    Args:
        stream: the events.
        train: (P,) positions of the training events.
        config: the run configuration.
    """
    clock = Clock.fit(stream.t[train], stream.time_unit, config.time_scale)
    recent = stream.additions(train)[-LOOKED_AT:]
    store = NeighborStore.from_stream(stream, train)
    src, dst, t = stream.src[recent], stream.dst[recent], stream.t[recent]
    last, repeated = store.last_meeting(src, dst, t)
    gaps = clock.log_time_deltas(t[repeated], last[repeated], config.model.max_log_delta)
    log_range = float(np.subtract(*np.quantile(gaps, (0.9, 0.1)))) if len(gaps) else 0.0
    max_frequency = float(np.clip(4 * math.pi / max(log_range, 1e-9), LEAST, MOST))
    return _short(min(math.pi / config.model.max_log_delta, max_frequency)), _short(max_frequency)


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def _model() -> CTDGSSMConfig:
    return CTDGSSMConfig(max_norm=100.0)  # at the critical start a dense graph's memory would grow without bound


def _loop() -> LoopConfig:
    optim = OptimConfig(name="adam", lr=1e-3, weight_decay=0.0)
    return LoopConfig(epochs=200, patience=20, grad_clip=1.0, optim=optim)


@dataclass(frozen=True, kw_only=True)
class CTDGSSMRun(MemoryLinkRun):
    """Configuration of a CTDG-SSM run.

    Args:
        model: the memory model. Active nodes are neighborhoods of model.order hops.
    """

    model: CTDGSSMConfig = field(default_factory=_model)
    loop: LoopConfig = field(default_factory=_loop)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_idle(self, num_neighbors=not self.model.order and NO_NEIGHBOR)


@dataclass(frozen=True, kw_only=True)
class CTDGSSMNodeRun(MemoryNodeRun):
    """Configuration of a CTDG-SSM run that classifies an event's source at the time of the event.

    Args:
        model: the memory model. Active nodes are neighborhoods of model.order hops.
    """

    model: CTDGSSMConfig = field(default_factory=_model)
    loop: LoopConfig = field(default_factory=_loop)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_idle(self, num_neighbors=not self.model.order and NO_NEIGHBOR)


def build(stream: EventStream, config: CTDGSSMRun, context: Context) -> LinkTask:
    return memory_task(stream, config, context, _network(stream, config, context, decoder="link"))


def build_nodes(stream: EventStream, config: CTDGSSMNodeRun, context: Context) -> EventNodeTask:
    """Return the node-classification task."""
    split, init = config.split.of(stream), init_context(config, context, links="ctdg-ssm")
    targets = event_targets(stream, split, config, context)
    model = _network(stream, config, init, decoder="node", num_outputs=targets.width)
    objective = partial(LabelObjective, stream, y=targets.y, target=targets.target)
    source, clock = memory_source(stream, config, init, model, objective, config.batch_size)
    frozen = load_backbone(model, config, context, links="ctdg-ssm", head=("readout",))
    return EventNodeTask(
        source,
        targets=targets,
        eval_batch_size=config.batch_size,
        bootstrap=config.bootstrap,
        clock=clock,
        frozen=frozen,
    )


def _network(
    stream: EventStream,
    config: CTDGSSMRun | CTDGSSMNodeRun,
    context: Context,
    *,
    decoder: Literal["link", "node"],
    num_outputs: int = 1,
) -> CTDGSSM:
    sizes = {"num_nodes": stream.num_nodes, "num_outputs": num_outputs}
    widths = used_features(stream, context)
    return CTDGSSM(config.model, **widths, **sizes, decoder=decoder, seed=config.loop.seed)


def _auto_config_nodes(stream: EventStream, config: CTDGSSMNodeRun, metrics: tuple[str, ...]) -> Mapping[str, Any]:
    memory_settings = {} if config.init is not None else auto_config_memory(stream, config, metrics)
    return {**memory_settings, **settings_from_init(stream, config, metrics, links="ctdg-ssm")}


def export_spec(task: LinkTask | EventNodeTask) -> ExportSpec:
    """Return the export of a trained task: memory outputs → logits."""
    model, links = bare(task.model), isinstance(task, LinkTask)
    assert isinstance(model, CTDGSSM)
    ends, axis, what = (2, "pair", "the sources, then of the targets") if links else (1, "node", "the nodes")
    since = "the pair's last event), then since the source's and the target's last event"
    since = since if links else "the node's last event)"
    gap = f"ln(1 + time since {since}, in the run's own unit; model.max_log_delta if there is none"
    history, like = model.readout.pair_features, next(model.parameters())
    features = 0 if history is None else history.num_features
    inputs_by_name = {
        "memory": (f"output of the memory's last layer of {what}; zeros for unseen nodes", (ends, 3, model.config.dim)),
        "static": (f"static embeddings of {what}", (ends, 3, model.static.dim)),
        "gap": (gap, (3, model.gaps)),
        "pair": (f"features of the pair's history; columns: {', '.join(NAMES)}", (3, features)),
    }
    ports = [
        Port(name=name, meaning=meaning, axes=("", axis, "")[-len(shape) :], example=torch.rand(shape).to(like))
        for name, (meaning, shape) in inputs_by_name.items()
        if shape[-1]
    ]

    def call(readout: Readout, tensors: Tensors) -> Tensor:
        memory = tensors["memory"]
        none = memory.new_zeros(*memory.shape[:2], 0)
        read = torch.cat([tensors.get("gap", none[0]), tensors.get("pair", none[0])], 1)
        ends = torch.cat([readout.norm(memory), tensors.get("static", none)], -1).unbind(0)
        logits = readout(ends, read)
        return logits[:, 0] if links else logits

    def fill(query: StateQuery) -> Tensors:
        follower, nodes = query.follower, torch.from_numpy(np.ascontiguousarray(query.ends))
        follower.fetch(query.ends.ravel())
        memory, static = follower.memory.output[nodes], model.static(nodes.flatten()).view(*nodes.shape, -1)
        if links:
            read = follower.inputs.query_time_deltas(*query.ends, query.t)
        else:
            read = torch.from_numpy(follower.inputs.node_time_deltas(query.ends[0], query.t))[:, None]
        return {"memory": memory, "static": static, "gap": read[:, : model.gaps], "pair": read[:, model.gaps :]}

    return ExportSpec(
        module=Program(model.readout, ports, call),
        inputs=tuple(ports),
        outputs=(logit_port() if links else rows_port(axis),),
        preprocessing="the state of the memory before the query, as `hopstate stream` leaves it",
        left_out="the memory update of ctdg-ssm: it solves linear systems of the batch's "
        "size, for which ONNX has no operation; `hopstate stream` and `hopstate serve` update it",
        fill=fill,
    )


# the sizes of table 9 and the batches of table 14; the order is ours: the paper states no space for it
SPACE: Space = {"model.dim": [32, 128], "model.order": [1, 2], "batch_size": [64, 128, 200]}

METHODS = {
    "ctdg-ssm": Method(
        "ctdg-ssm",
        CTDGSSMRun,
        build,
        "events",
        "links from a state-space memory per node, moved by events and by how they change the graph",
        "arXiv:2606.04672",
        baselines=link_baselines,
        auto_config=auto_config_memory,
        automatic=(*MEMORY, *PAIR_SETTINGS),
        space=SPACE | {"model.static": ["none", "onehot", "random", "learnable"]},
        export=export_spec,
        relations=True,
    ),
    "ctdg-ssm-nodes": Method(
        "ctdg-ssm-nodes",
        CTDGSSMNodeRun,
        build_nodes,
        "events",
        "classes or amounts of nodes at the time of an event, from the same memory",
        "arXiv:2606.04672",
        auto_config=_auto_config_nodes,
        automatic=MEMORY,
        baselines=label_baselines,
        space=SPACE,
        export=export_spec,
        relations=True,
    ),
}
