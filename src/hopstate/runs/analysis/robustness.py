"""How much a trained link predictor loses when its view of the past is made noisy.

Source: DyG-Mamba, arXiv:2408.06966, section 5.5, figure 5 and appendix D.3; CTDG-SSM, arXiv:2606.04672, appendix E.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import ConfigError
from hopstate.evaluation.link import evaluate_link
from hopstate.io.output import draw_figure
from hopstate.layers.pair_history import PairHistory
from hopstate.streaming.protocols import LinkFollower, NoisyLaplacians
from hopstate.tokens.noise import NoisyLookups, noisy_edges
from hopstate.training.precision import bare
from hopstate.training.tasks.history import HistoryPairs
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.memory import MemoryWindows
from hopstate.training.tasks.protocols import Task

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Noise = Literal["sequences", "stream", "laplacian"]
LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


def robustness(
    task: Task, *, noise: Sequence[Noise] | None = None, levels: Sequence[float] = LEVELS, seed: int = 0
) -> pd.DataFrame:
    """Return test metrics against random negatives at each level of noise: one row a kind, level and setting.

    Args:
        task: a trained link prediction task of a model fed from histories, or with a node memory.
        noise: "sequences" replaces a share of every looked-up sequence (histories), "stream" adds a share of random
            edges to what is looked up, "laplacian" adds random matrices to a memory's Laplacians. What is scored stays
            as it is, and so do the events that move a memory. None takes the two that the model has.
        levels: shares sigma; of "laplacian" the spectral norm of what is added.
        seed: of the noise.

    Raises:
        ConfigError: a task without a past, a kind that its model does not have, a level outside [0, 1], or edges made
            up in a memory's stream with deletions.
    """
    import pandas as pd

    known = _kinds(task)
    assert isinstance(task, LinkTask)
    noise = known if noise is None else noise
    for kind in noise:
        if kind not in known:
            raise ConfigError(f"noise of this model is {' or '.join(known)}; got {kind!r}")
    rows = []
    for kind in dict.fromkeys(noise):
        for sigma in levels:
            rows += _measure(task, kind, sigma, seed)
    return pd.DataFrame(rows)


def untouched(task: Task, noise: Sequence[Noise] | None) -> str:
    """Return what noise in sequences leaves as it is, in words; "" where that is nothing or is not asked.

    A head's own history of the pair reads the stream and no sequences.
    """
    sequences = "sequences" in (_kinds(task) if noise is None else noise)
    heads = [part for part in task.model.modules() if isinstance(part, PairHistory)] if sequences else []
    if not heads:
        return ""
    return "noise in sequences does not reach what the head reads of the pair's own history; noise in stream does"


def plot_robustness(table: pd.DataFrame, path: str | Path) -> None:
    """Draw average precision against the level of noise as .png, .pdf or .svg.

    Raises:
        FormatError: another extension.
        StorageError: the file could not be written.
    """
    kinds = list(dict.fromkeys(table.noise))

    def paint(figure: Figure) -> None:
        for axis, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds):
            for setting, rows in table[table.noise == kind].groupby("setting"):
                axis.plot(rows.sigma, 100 * rows.average_precision, "o-", label=setting)
            axis.set(xlabel="share of made-up events", ylabel="average precision, %", title=f"noise in {kind}")
            axis.grid(alpha=0.3)
            axis.legend(frameon=False)

    draw_figure(path, (5 * len(kinds), 3.8), paint)


def _kinds(task: Task) -> tuple[Noise, ...]:
    source = task.source if isinstance(task, LinkTask) else None
    if isinstance(source, HistoryPairs):
        return ("sequences", "stream")
    if isinstance(source, MemoryWindows):
        return ("stream", "laplacian") if isinstance(source.memory_model, NoisyLaplacians) else ("stream",)
    raise ConfigError(
        "robustness needs a run on links of a model with a past: dyg-mamba, dygformer, graphmixer or ctdg-ssm"
    )


def _scorer(task: LinkTask, kind: Noise, sigma: float, seed: int) -> LinkFollower:
    """Return the model as a scorer under noise."""
    stream, source = task.stream, task.source
    if isinstance(source, HistoryPairs):
        if kind == "sequences":
            noisy = NoisyLookups(source.inputs.store, sigma, seed)
            return source.scorer_with(task.model, noisy)
        src, dst, t, ids = noisy_edges(stream, sigma, seed, deletions=source.inputs.deletions)
    else:
        assert isinstance(source, MemoryWindows)
        if kind == "laplacian":
            if not 0 <= sigma <= 1:
                raise ConfigError(f"a level of noise lies in [0, 1]; got {sigma}")
            assert isinstance(source.memory_model, NoisyLaplacians)
            source.memory_model.laplacian_noise = sigma
            return task.scorer("test")
        if stream.has_deletes:
            raise ConfigError("made-up edges of a memory cannot be told from deleted ones; take noise=laplacian")
        src, dst, t, ids = noisy_edges(stream, sigma, seed, deletions=False)
        ids = np.where(ids < 0, -2 - np.arange(len(ids)), ids)  # a memory's paths tell edges apart by their ids
    return source.scorer_with(task.model, NeighborStore.from_events(src, dst, t, ids, stream.num_nodes))


def _measure(task: LinkTask, kind: Noise, sigma: float, seed: int) -> list[dict[str, Any]]:
    """Return a row for each setting of the test split."""
    stream, model = task.stream, bare(task.model)
    trained_with = model.laplacian_noise if isinstance(model, NoisyLaplacians) else 0.0
    try:
        report = evaluate_link(
            _scorer(task, kind, sigma, seed),
            stream,
            task.split,
            "test",
            strategies=("random",),
            protocol=task.evaluation.protocol,
            batch_size=task.evaluation.batch_size,
            negatives={k: v for k, v in task.negatives.items() if k[0].endswith("test") and k[1] == "random"},
            max_events=task.evaluation.most,
        )
    finally:
        if isinstance(model, NoisyLaplacians):
            model.laplacian_noise = trained_with
    return [
        {
            "noise": kind,
            "sigma": sigma,
            "setting": row["setting"],
            "average_precision": row["average_precision"],
            "roc_auc": row["roc_auc"],
        }
        for row in report.rows
    ]
