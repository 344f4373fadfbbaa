"""DyG-Mamba on a user's event stream: which links come next.

Source: DyG-Mamba, arXiv:2408.06966; settings of its tables 9 and 10, in `DyGMamba.Config` and `HistoryConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hopstate.data.events import EventStream
from hopstate.methods.base import Context, Method
from hopstate.methods.link import HistoryLinkRun, history_task, used_features
from hopstate.models.dyg_mamba import DyGMamba, DyGMambaConfig
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer
from hopstate.training.link_task import HistoryLinkTask


@dataclass(frozen=True, kw_only=True)
class DyGMambaRun(HistoryLinkRun):
    """Configuration of a DyG-Mamba run.

    Args:
        data: a file, a folder, or the name of a data set (see `hopstate datasets`).
        read: how a file is read.
        split: which events are for training, validation and test.
        model: encodings, state-space blocks, head.
        history: how much of the past a sequence holds, and where the node itself stands in it.
        evaluation: protocol and negatives.
        batch_size: events a step; as many random negatives are added.
        loop: training.
    """

    model: DyGMambaConfig = field(default_factory=DyGMambaConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)


def build(stream: EventStream, config: DyGMambaRun, context: Context) -> HistoryLinkTask:
    """Return the task of training DyG-Mamba on stream."""
    return history_task(
        stream,
        config,
        context,
        model=DyGMamba(config.model, **used_features(stream)),
        tokenizer=lambda store, events: HistoryTokenizer(store, events, config.history),
    )


METHODS = {
    "dyg-mamba": Method(
        "dyg-mamba",
        DyGMambaRun,
        build,
        "events",
        "state spaces over two nodes' past events, stepped by the time between them",
        "arXiv:2408.06966",
    )
}
