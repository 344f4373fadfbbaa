"""DyGFormer on a user's event stream.

Source: Yu et al., NeurIPS 2023, arXiv:2303.13047; settings of its Table 6 for short histories, in `DyGFormer.Config`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hopstate.data.events import EventStream
from hopstate.methods.baselines.dygformer_model import DyGFormer
from hopstate.methods.baselines.search import DYGLIB_DROPOUT
from hopstate.methods.method import Context
from hopstate.methods.pair_trees.floor import link_floors
from hopstate.methods.shared.link import HistoryLinkRun, feature_dims, history_features, history_method, history_task
from hopstate.methods.shared.programs import history_spec
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer
from hopstate.training.exported import ExportSpec
from hopstate.training.precision import bare
from hopstate.training.tasks.link import LinkTask


@dataclass(frozen=True, kw_only=True)
class DyGFormerRun(HistoryLinkRun):
    """Configuration of a DyGFormer run.

    Args:
        model: the Transformer over past events; its max_length is also how much of the past is looked up.
    """

    model: DyGFormer.Config = field(default_factory=DyGFormer.Config)


def build(stream: EventStream, config: DyGFormerRun, context: Context) -> LinkTask:
    history = HistoryConfig(max_length=config.model.max_length, target="first")
    widths = history_features(feature_dims(stream, context), stream, config, context)
    return history_task(
        stream,
        config,
        context,
        model=DyGFormer(config.model, **widths),
        tokenizer=lambda store, events, *rest: HistoryTokenizer(store, events, history, *rest),
    )


def export_spec(task: LinkTask) -> ExportSpec:
    """Return what is exported of a trained task: tokens of past events in, logits of pairs out."""
    about = (
        "the node itself and its last events strictly before the query, oldest first, up to model.max_length tokens; "
        "`hopstate.tokens.history` has the definition"
    )
    names = ("gaps", "counts", "x", "edge_attr", "pair")
    return history_spec(bare(task.model), names, clock=task.clock, preprocessing=about)


METHODS = {
    "dygformer": history_method(
        "dygformer",
        DyGFormerRun,
        build,
        summary="a Transformer over two nodes' past events, with co-occurrence counts",
        source="arXiv:2303.13047",
        floors=link_floors,
        space={
            "model.max_length,model.patch_size": ["32,1", "64,2", "128,4", "256,8", "512,16", "1024,32"],
            "model.dropout": DYGLIB_DROPOUT,
        },
        budget=300_000,
        export=export_spec,
    )
}
