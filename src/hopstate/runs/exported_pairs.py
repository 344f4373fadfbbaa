"""What programs of links carry besides the network: a run's curve of probabilities; and inputs for programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, HopstateError
from hopstate.methods import method_of_run
from hopstate.runs.load import load_run
from hopstate.runs.queries.calibrated import Curve, curve_of
from hopstate.runs.queries.names import nodes_of, read_pairs, times_of, with_rows
from hopstate.runs.queries.session import session
from hopstate.streaming.history_scorer import HistoryScorer
from hopstate.training.exported import ExportForm, Port
from hopstate.training.run_folder import RunFolder


def export_inputs(
    run: str | Path, pairs: Any = None, time: Any = None, *, own: Any = None, method: str | None = None
) -> dict[str, np.ndarray]:
    """Return the inputs of a run's exported program: for pairs at a time, or of the run's own graph or graphs.

    Args:
        run: the run folder, of nagphormer, a backbone trained on the whole graph, dyg-mamba, graphmixer, dygformer,
            gmn or gmn-graphs.
        pairs, time, own, method: as in `hopstate.score`. A run of nodes has all nodes of its graph, whatever pairs are;
            a run over graphs takes numbers of graphs (G,) in their place, or None for all.

    Returns:
        An array for each input, by its name in export.json, which says what it holds.

    Raises:
        ConfigError: hopstate makes no inputs for the run's method.
        TimeOrderError, DataError, ShapeError: as `hopstate.score`; DataError too for graphs that are not there.
    """
    folder = RunFolder.open(run)
    known = method_of_run(folder.read_json("config.json").get("method"), str(folder.path / "config.json"), method)
    if not callable(known.export):
        raise ConfigError(f"{known.name} has no program, so that there are no inputs: {known.export}")
    refused = ConfigError(
        f"export_inputs makes no inputs for this run of {known.name}; `hopstate export` does write its program, whose "
        f"export.json says what each of them holds"
    )
    if known.data != "events":
        with load_run(run, own, device="cpu", method=method) as (_, task):
            form: ExportForm = known.export(task)
            if form.fill is None:
                raise refused
            return _named(form, form.fill(pairs))
    with session(run, own=own, device="cpu", method=method) as asked:
        form = known.export(asked.task)
        if form.fill is None:
            raise refused
        src, dst, column = read_pairs(asked.past, pairs, (None,) * 3, asked.columns, asked.dates)
        nodes = (nodes_of(asked.past, ids, what) for ids, what in ((src, "sources"), (dst, "targets")))
        u, v = with_rows(asked.past, *nodes)
        t = times_of(asked.past, column if time is None else time, len(u), "pairs", asked.dates)
        scorer = asked.queries.latest()
        assert isinstance(scorer, HistoryScorer)
        return _named(form, form.fill(scorer.tokenizer.pairs(u, v, t)))


def _named(form: ExportForm, found: tuple[Tensor, ...]) -> dict[str, np.ndarray]:
    return {port.name: values.numpy() for port, values in zip(form.inputs, found, strict=True)}


def curve_of_run(run: Path, own: Any, method: str | None) -> Curve | HopstateError:
    """Return a run's curve from scores to probabilities, or why it has none."""
    with session(run, own=own, device="cpu", method=method) as asked:
        try:
            return curve_of(asked)
        except HopstateError as error:
            return error


class Calibrated(nn.Module):
    """A network's logits, their sigmoid, which is what `hopstate.score` calls a score, and its probability.

    Args:
        module: inputs → (P,) logits.
        curve: from scores to probabilities; None for a program without them.
    """

    knots: Tensor
    values: Tensor

    def __init__(self, module: nn.Module, curve: Curve | None) -> None:
        super().__init__()
        self.module, self.told = module, curve is not None
        if curve is not None:
            self.register_buffer("knots", torch.from_numpy(curve.scores.astype(np.float64)))
            self.register_buffer("values", torch.from_numpy(curve.values.astype(np.float64)))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return (P,) logits, float64 scores, and float64 probabilities where there is a curve."""
        logit = self.module(*inputs)
        score = torch.sigmoid(logit.double())
        return (logit, score, self._interpolated(score)) if self.told else (logit, score)

    def _interpolated(self, score: Tensor) -> Tensor:
        """Return the curve at scores (P,): linear between knots, as at the nearest one beyond them."""
        count = (score.unsqueeze(1) >= self.knots).sum(1)
        left, right = (count - 1).clamp(min=0), count.clamp(max=len(self.knots) - 1)
        low, width = self.knots[left], self.knots[right] - self.knots[left]
        share = ((score - low) / torch.where(width > 0, width, 1.0)).clamp(0.0, 1.0) * (width > 0)
        return self.values[left] + share * (self.values[right] - self.values[left])


def with_probabilities(form: ExportForm, found: Curve | HopstateError) -> ExportForm:
    """Return the form of a model of pairs with scores and probabilities beside its logits."""
    curve = found if isinstance(found, Curve) else None
    outputs = [
        *form.outputs,
        Port(name="score", meaning="sigmoid of the logit, as hopstate.score has it", axes=("pair",)),
    ]
    preprocessing = form.preprocessing
    if curve is None:
        preprocessing += f"; there is no output of probabilities: {found}"
    else:
        outputs.append(Port(name="probability", meaning=f"of the score, {curve.text()}", axes=("pair",)))
    return replace(form, module=Calibrated(form.module, curve), outputs=tuple(outputs), preprocessing=preprocessing)


__all__ = ["export_inputs"]
