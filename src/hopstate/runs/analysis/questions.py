"""What is asked of a trained run beyond its scores: why a pair got its score, and how much noise it bears."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.errors import ConfigError, HopstateWarning
from hopstate.io.output import check_figure_path, check_table_path, write_table
from hopstate.runs.analysis.explain import Explanation, FeatureExplanation, explain_pair
from hopstate.runs.analysis.explain_node import NodeExplanation, explain_node
from hopstate.runs.analysis.robustness import LEVELS, Noise, plot_robustness, untouched
from hopstate.runs.analysis.robustness import robustness as measure
from hopstate.runs.analysis.similarity import SimilarityMap
from hopstate.runs.analysis.similarity import similarity_map as alike_tokens
from hopstate.runs.data import known_data, settings_of_run
from hopstate.runs.going_on import kept_state
from hopstate.runs.load import load_run
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.events import EventTask

if TYPE_CHECKING:
    import pandas as pd


def explain(
    run: str | Path,
    source: Any = None,
    target: Any = None,
    t: Any = None,
    *,
    node: Any = None,
    data: Any = None,
    out: str | Path | None = None,
    plot: str | Path | None = None,
    device: str | None = None,
    method: str | None = None,
    raw: bool = False,
) -> Explanation | FeatureExplanation | NodeExplanation:
    """Return what each past event, or feature, added to the score of a pair, or what a node's prediction is made of.

    See `hopstate.runs.analysis.explain` and `hopstate.runs.analysis.explain_node`.

    Args:
        run: a run folder of dyg-mamba, pair-trees, an ensemble, or of nodes of a graph.
        source, target: the user's ids of a pair.
        node: of a run on a graph: the user's id of the node, in place of a pair.
        t: time of the query, a number in the stream's unit or a date; only events strictly before it are seen. Without
            any, the first time after the last event of the data.
        data: other events than the run was trained on.
        out: also write the table there (.csv or .parquet); of events, what the pair's own history tells goes to a file
            of its own beside it (`features_path`).
        plot: also draw the timeline there (.png, .pdf or .svg).
        device: where to compute; None takes the run's own setting.
        method: as in `hopstate.evaluate`.
        raw: as in `hopstate.io.output.write_table`.

    Warns:
        HopstateWarning: what `hopstate stream` has added, which `score` knows, lies before the time and is not seen.
    """
    _check_paths(out, plot)
    if node is not None:
        if plot is not None:
            raise ConfigError("plot is of pairs; a node's explanation is a table (out)")
        return _explain_node(run, node, data, out, method, raw=raw)
    with load_run(run, data, device=device, method=method) as (trainer, task), trainer.precision():
        found = explain_pair(task, source, target, t)
        if data is None and isinstance(task, EventTask) and found.t > task.stream.t[-1]:
            _tell_streamed(trainer.run)
    if out is not None:
        write_table(found.table, Path(out), raw=raw)
        if isinstance(found, Explanation) and len(found.features):
            write_table(found.features, features_path(out), raw=raw)
    if plot is not None:
        found.plot(plot)
    return found


def _explain_node(
    run: str | Path, node: Any, data: Any, out: str | Path | None, method: str | None, *, raw: bool
) -> NodeExplanation:
    known, folder = settings_of_run(RunFolder.open(run), method)[0], RunFolder.open(run)
    names = (known_data(folder).get("features") or {}).get("x", {}).get("columns") or ()
    with load_run(run, data, device="cpu", method=method) as (_, task):
        found = explain_node(task, known, node, names)
    if out is not None:
        for path, table in zip((out, *parts_paths(out)), (found.features, found.nodes, found.edges), strict=True):
            write_table(table, Path(path), raw=raw)
    return found


def parts_paths(out: str | Path) -> tuple[Path, Path]:
    """Return where the tables of nodes and edges go beside that of features."""
    path = Path(out)
    stem, dot, ends = path.name.partition(".")
    return path.with_name(f"{stem}-nodes{dot}{ends}"), path.with_name(f"{stem}-edges{dot}{ends}")


def similarity_map(
    run: str | Path,
    source: Any,
    target: Any,
    t: Any = None,
    *,
    latest: int = 16,
    data: Any = None,
    plot: str | Path | None = None,
    device: str | None = None,
) -> SimilarityMap:
    """Return how alike a pair's past events are to DyG-Mamba; see `hopstate.runs.analysis.similarity`.

    Args:
        run: a run folder of dyg-mamba.
        source, target, t, data, device: as in `explain`.
        latest: tokens of each end, the latest ones.
        plot: also draw it there (.png, .pdf or .svg).
    """
    _check_paths(None, plot)
    with load_run(run, data, device=device) as (trainer, task), trainer.precision():
        found = alike_tokens(task, source, target, t, latest=latest)
    if plot is not None:
        found.plot(plot)
    return found


def _tell_streamed(run: RunFolder) -> None:
    """Warn where a run has a state after events that its own data lack: `score` answers from there."""
    kept = kept_state(run)
    if kept is not None:
        warnings.warn(
            f"what `hopstate stream` has added in {kept} is not seen here, while score and rank know it; give --data "
            "all of the events, if these are to count",
            HopstateWarning,
            stacklevel=3,
        )


def features_path(out: str | Path) -> Path:
    """Return where the features of an explanation by events are written beside its table: why.csv, why-features.csv."""
    name, dot, rest = Path(out).name.partition(".")
    return Path(out).with_name(f"{name}-features{dot}{rest}")


def robustness(
    run: str | Path,
    *,
    noise: Sequence[Noise] | None = None,
    levels: Sequence[float] | None = None,
    seed: int = 0,
    data: Any = None,
    out: str | Path | None = None,
    plot: str | Path | None = None,
    device: str | None = None,
    method: str | None = None,
) -> pd.DataFrame:
    """Return test metrics of a trained run under noise; see `hopstate.runs.analysis.robustness`.

    What noise in sequences does not reach is said in the table's `attrs["note"]`.

    Args:
        run: a run folder of a model of links that is fed from histories or has a node memory.
        noise: kinds; None takes the model's own.
        levels: shares of noise; None takes 0 to 0.6 by 0.1.
        seed: of the noise.
        data: other events than the run was trained on; None, or the record where it was trained on one.
        out: also write the table there (.csv or .parquet).
        plot: also draw it there (.png, .pdf or .svg).
        device: where to compute; None takes the run's own setting.
        method: as in `hopstate.evaluate`.
    """
    import torch

    _check_paths(out, plot)
    with load_run(run, data, device=device, method=method) as (trainer, task), torch.no_grad(), trainer.precision():
        task.model.eval()
        table = measure(task, noise=noise, levels=LEVELS if levels is None else levels, seed=seed)
        table.attrs["note"] = untouched(task, noise)
    if out is not None:
        write_table(table, Path(out))
    if plot is not None:
        plot_robustness(table, plot)
    return table


def _check_paths(out: str | Path | None, plot: str | Path | None) -> None:
    """Refuse a name that could not be written, before any work."""
    if out is not None:
        check_table_path(out)
    if plot is not None:
        check_figure_path(plot)
