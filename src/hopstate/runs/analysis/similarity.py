"""How alike a pair's past events are to a model: cosines between its last two hidden states.

Source: DyG-Mamba, arXiv:2408.06966, section 5.6 and figure 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.io.output import draw_figure
from hopstate.methods.dyg_mamba.model import DyGMamba
from hopstate.runs.analysis.explain import asked_tokens, token_table
from hopstate.streaming.history_scorer import to_device
from hopstate.training.precision import bare
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.task import Task

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class SimilarityMap:
    """Similarities of a pair's tokens.

    Args:
        tokens: one row a token: end ("source" or "target": whose history), neighbor (the node itself where event_id is
            -1), t, event_id. The source's come first, each history oldest first.
        values: (T, T) cosines of the last hidden state of a token (row) and the one before of another (column), scaled
            to [0, 1] over the map.
    """

    tokens: pd.DataFrame
    values: np.ndarray

    def plot(self, path: str | Path) -> None:
        """Draw the map as .png, .pdf or .svg.

        Raises:
            FormatError: another extension.
            StorageError: the file could not be written.
        """
        draw_figure(path, (7, 6), self._paint)

    def _paint(self, figure: Figure) -> None:
        axis = figure.subplots()
        image = axis.imshow(self.values, vmin=0, vmax=1)
        names, places = [str(name) for name in self.tokens.neighbor], np.arange(len(self.tokens))
        axis.set_xticks(places, names, rotation=90)
        axis.set_yticks(places, names)
        middle = int((self.tokens.end == "source").sum()) - 0.5
        axis.axhline(middle, color="white", lw=1)
        axis.axvline(middle, color="white", lw=1)
        axis.set(xlabel="second-last hidden state: source, then target", ylabel="last hidden state")
        figure.colorbar(image, label="cosine similarity, scaled to [0, 1]")


def similarity_map(task: Task, source: Any, target: Any, t: Any = None, *, latest: int = 16) -> SimilarityMap:
    """Return the similarities of a pair's tokens at t.

    Args:
        task: a trained link prediction task of DyG-Mamba.
        source, target, t: as in `hopstate.runs.analysis.explain.explain_pair`.
        latest: tokens of each end, the latest ones.

    Raises:
        ConfigError: another model, one without blocks, or t is no time.
        DataError: an unknown id.
    """
    model = bare(task.model) if isinstance(task, LinkTask) else None
    if not isinstance(task, LinkTask) or not isinstance(model, DyGMamba) or not model.config.num_layers:
        raise ConfigError("a similarity map needs a run of dyg-mamba with at least one block")
    tokens, when = asked_tokens(task, source, target, t)
    before, after = _hidden_states(model, to_device(tokens, next(model.parameters()).device))
    table = token_table(task.stream, tokens, when)
    table = table.sort_values(["end", "t"], kind="stable").groupby("end").tail(latest)
    rows = table.index.to_numpy()
    values = nn.functional.normalize(after, dim=1)[rows] @ nn.functional.normalize(before, dim=1)[rows].T
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / (high - low) if high > low else torch.zeros_like(values)
    return SimilarityMap(table.reset_index(drop=True), scaled.numpy())


def _hidden_states(model: DyGMamba, tokens: Any) -> tuple[Tensor, Tensor]:
    """Return what enters and what leaves the last block, (T, channel) each, on the CPU."""
    states: list[tuple[Tensor, Tensor]] = []
    hooks = [
        encoder.blocks[-1].register_forward_hook(lambda _, inputs, out: states.append((inputs[0], out)))  # type: ignore[union-attr,index]
        for encoder in model.encoders
    ]
    try:
        with torch.no_grad():
            model.eval()(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    before, after = (torch.cat(parts).double().cpu() for parts in zip(*states, strict=True))
    return before, after


__all__ = ["SimilarityMap", "similarity_map"]
