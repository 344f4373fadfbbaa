"""What a frozen model makes of a pair, as further features of trees: its head's hidden layer, and its logit.

The model is one that is fed from histories, trained before on the training events of the same split. Its weights are
kept with the trees, and what it was built from with what the run remembers of its data, so that the trees do without
the folder it came from.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.events import EventStream
from hopstate.layers.alike import alike
from hopstate.layers.evaluating import evaluating
from hopstate.layers.heads import LinkHead
from hopstate.methods.method import Context
from hopstate.methods.shared.frozen import frozen_run
from hopstate.streaming.history_scorer import HistoryScorer, to_device
from hopstate.tokens.pair_features import PairFeatures
from hopstate.training.tasks.history import HistoryPairs

if TYPE_CHECKING:
    from hopstate.data.past import Past
    from hopstate.methods.shared.link import JudgedRun

MODELS = ("dyg-mamba", "dygformer", "graphmixer")  # whose head is a `LinkHead` over two ends' histories


@dataclass(frozen=True, eq=False, kw_only=True)
class Frozen:
    """A model that is no longer trained.

    Args:
        source: of its inputs, and of it as a scorer.
        head: its own.
        kept: from which it is built again: its settings, and what its run remembers of its data.
    """

    source: HistoryPairs
    head: LinkHead
    kept: Mapping[str, Any]

    @property
    def model(self) -> nn.Module:
        """The network."""
        return self.source.model

    @property
    def names(self) -> tuple[str, ...]:
        """What trees read of it."""
        return ("logit of the frozen model", *(f"encoding {i}" for i in range(self.head.score.in_features)))

    def beside(self, features: PairFeatures, split: str) -> EncodedPairs:
        """Return pairs' features and their encodings: by training events for "train", else by the whole stream."""
        return EncodedPairs(features, self, self.source.scorer(self.model, split))


class EncodedPairs:
    """Queries to their features and to what a frozen model makes of them, looked up in the same events.

    Args:
        features: of pairs.
        frozen: the model.
        scorer: it, over those events.
    """

    deletions = False  # of the features, which the trees' own store is made for

    def __init__(self, features: PairFeatures, frozen: Frozen, scorer: HistoryScorer) -> None:
        self.features, self.frozen, self.scorer = features, frozen, scorer

    @property
    def alike(self) -> bool:
        """Whether no row depends on company by a bit."""
        return self.scorer.alike

    @property
    def names(self) -> tuple[str, ...]:
        """The features, in the order of columns."""
        return (*self.features.names, *self.frozen.names)

    def over(self, past: Past) -> EncodedPairs:
        """Return the same over all events of a past."""
        made = copy(self)
        made.features, made.scorer = self.features.over(past), self.frozen.source.follow(self.frozen.model, past)
        return made

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q, F) float32 features of pairs u (Q,), v (Q,) at times t (Q,); errors as `PairFeatures.pairs`."""
        own = self.features.pairs(u, v, t)
        return np.concatenate([own, encodings(self.scorer, self.frozen.head, u, v, t)], 1)


def encodings(scorer: HistoryScorer, head: LinkHead, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return (Q, 1 + hidden) float32: the logit of pairs u (Q,), v (Q,) at t (Q,), and the layer that it is made from.

    Args:
        scorer: the model over the events that are known.
        head: the model's own.
    """
    out = np.empty((len(u), 1 + head.score.in_features), np.float32)
    hidden: list[Tensor] = []
    device = next(scorer.model.parameters()).device
    hook = head.score.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
    try:
        with evaluating(scorer.model), alike() if scorer.alike else nullcontext():
            for start in range(0, len(u), scorer.max_queries):
                part = slice(start, start + scorer.max_queries)
                tokens = to_device(scorer.tokenizer.pairs(u[part], v[part], t[part]), device)
                logits = scorer.model(tokens)
                out[part] = torch.cat([logits[:, None], hidden.pop()], 1).cpu().numpy()
    finally:
        hook.remove()
    return out


def frozen_model(stream: EventStream, config: JudgedRun, run: str | None, context: Context) -> Frozen | None:
    """Return the model of a finished run, over the stream of the trees' config; None where no run is named.

    Raises:
        ConfigError, CheckpointError: as `hopstate.methods.shared.frozen.frozen_run`.
    """
    found = frozen_run(stream, config, run, context, what="encodings", methods=MODELS)
    if found is None:
        return None
    (head,) = (layer for layer in found.model.modules() if isinstance(layer, LinkHead))
    return Frozen(source=cast("HistoryPairs", found.task.source), head=head, kept=found.kept)


__all__ = ["MODELS", "EncodedPairs", "Frozen", "encodings", "frozen_model"]
