"""GraphMixer on a user's event stream.

Source: Cong et al., ICLR 2023, arXiv:2302.11636; settings of DyGLib (arXiv:2303.13047), in `GraphMixer.Config`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from hopstate.data.clock import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import check_range, refuse_idle
from hopstate.methods.baselines.graphmixer_model import GraphMixer
from hopstate.methods.baselines.graphmixer_tokens import RecentLinks, RecentLinkTokenizer
from hopstate.methods.baselines.search import DYGLIB_DROPOUT
from hopstate.methods.method import Context
from hopstate.methods.pair_trees.floor import link_floors
from hopstate.methods.shared.link import HistoryLinkRun, feature_dims, history_features, history_method, history_task
from hopstate.methods.shared.programs import history_spec, packed_tokens
from hopstate.tokens.history import Deletions
from hopstate.training.exported import ExportSpec, Tensors
from hopstate.training.precision import bare
from hopstate.training.tasks.link import LinkTask


@dataclass(frozen=True, kw_only=True)
class GraphMixerRun(HistoryLinkRun):
    """Configuration of a GraphMixer run.

    Args:
        model: the MLP-Mixer over recent links; its num_links is also how many are looked up.
        num_neighbors: most recent neighbours whose features are averaged.
        window: only neighbours met at most this long before are averaged, in the stream's unit; null for no limit.
    """

    model: GraphMixer.Config = field(default_factory=GraphMixer.Config)
    num_neighbors: int = 2000
    window: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(least=1, num_neighbors=self.num_neighbors)
        check_range(above=0, window=self.window)


def build(stream: EventStream, config: GraphMixerRun, context: Context) -> LinkTask:
    if context.trained is None and len(stream) and not stream.has_node_features:
        why = "they choose whose features are averaged, and this stream has no node features"
        refuse_idle(config, num_neighbors=why, window=why)
    links, neighbors, window = config.model.num_links, config.num_neighbors, config.window

    def tokenizer(
        store: NeighborStore, events: EventStream, clock: Clock, deletions: Deletions, dtype: type[np.floating]
    ) -> RecentLinkTokenizer:
        sizes = {"num_links": links, "num_neighbors": neighbors}
        return RecentLinkTokenizer(store, events, **sizes, window=window, clock=clock, deletions=deletions, dtype=dtype)

    widths = history_features(feature_dims(stream, context), stream, config, context)
    return history_task(
        stream,
        config,
        context,
        model=GraphMixer(config.model, **widths),
        tokenizer=tokenizer,
    )


def export_spec(task: LinkTask) -> ExportSpec:
    """Return what is exported of a trained task: tokens of past events in, logits of pairs out."""
    about = (
        "the last model.num_links events of each node strictly before the query, oldest first, the node itself left out"
    )

    def record(given: Tensors) -> RecentLinks:
        tokens, nodes = packed_tokens(given), given.get("nodes")
        ends = torch.arange(tokens.num_sequences).view(2, -1)
        return RecentLinks(tokens, ends, None if nodes is None else nodes.flatten(0, 1), tokens.pair)

    names = ("gaps", "edge_attr", "nodes", "pair")
    return history_spec(bare(task.model), names, clock=task.clock, preprocessing=about, record=record)


METHODS = {
    "graphmixer": history_method(
        "graphmixer",
        GraphMixerRun,
        build,
        summary="an MLP-Mixer over each node's most recent links",
        source="arXiv:2302.11636",
        floors=link_floors,
        space={"model.num_links": [10, 20, 30], "model.dropout": DYGLIB_DROPOUT},
        budget=600_000,
        export=export_spec,
    )
}
