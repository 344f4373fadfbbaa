"""How much a trained link predictor loses when its view of the past is made noisy.

Source: DyG-Mamba, arXiv:2408.06966, section 5.5, figure 5 and appendix D.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from hopstate.data.figure import draw_figure
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import ConfigError
from hopstate.evaluation.link import evaluate_link
from hopstate.tokens.noise import NoisyLookups, noisy_edges
from hopstate.training.link_task import HistoryLinkTask

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Noise = Literal["sequences", "stream"]
LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


def robustness(
    task: Any, *, noise: Sequence[Noise] = ("sequences", "stream"), levels: Sequence[float] = LEVELS, seed: int = 0
) -> pd.DataFrame:
    """Return test metrics against random negatives at each level of noise: one row a kind, level and setting.

    Args:
        task: a trained link prediction task of a model fed from histories.
        noise: "sequences" replaces a share of every looked-up sequence, "stream" adds a share of random edges to the
            histories. What is scored stays as it is.
        levels: shares sigma.
        seed: of the noise.

    Raises:
        ConfigError: a task without histories, an unknown kind, or a level outside [0, 1].
    """
    import pandas as pd

    if not isinstance(task, HistoryLinkTask):
        raise ConfigError("robustness needs a run of a model fed from histories: dyg-mamba, dygformer, graphmixer")
    for kind in noise:
        if kind not in get_args(Noise):
            raise ConfigError(f"noise is {' or '.join(get_args(Noise))}; got {kind!r}")
    rows = []
    for kind in dict.fromkeys(noise):
        for sigma in levels:
            rows += _measure(task, kind, sigma, seed)
    return pd.DataFrame(rows)


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
                axis.plot(rows.sigma, 100 * rows.ap, "o-", label=setting)
            axis.set(xlabel="share of made-up events", ylabel="average precision, %", title=f"noise in {kind}")
            axis.grid(alpha=0.3)
            axis.legend(frameon=False)

    draw_figure(path, (5 * len(kinds), 3.8), paint)


def _measure(task: HistoryLinkTask, kind: Noise, sigma: float, seed: int) -> list[dict[str, Any]]:
    """Return a row for each setting of the test part."""
    stream, store = task.stream, task.inputs.store
    if kind == "sequences":
        scorer = task.scorer_with(NoisyLookups(store, sigma, seed))
    else:
        src, dst, t, ids = noisy_edges(stream, sigma, seed, deletions=task.inputs.deletions)
        scorer = task.scorer_with(NeighborStore.from_events(src, dst, t, ids, stream.num_nodes))
    report = evaluate_link(
        scorer,
        stream,
        task.split,
        "test",
        strategies=("random",),
        protocol=task.evaluation.protocol,
        batch_size=task.evaluation.batch_size,
        negatives={k: v for k, v in task.negatives.items() if k[0].endswith("test") and k[1] == "random"},
    )
    return [
        {"noise": kind, "sigma": sigma, "setting": row["setting"], "ap": row["ap"], "auc": row["auc"]}
        for row in report.rows
    ]
