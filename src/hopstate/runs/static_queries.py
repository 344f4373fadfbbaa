"""`score` and `rank` of a run on the links of a graph without times, from its training links.

A pair's score is what `evaluate` ranks it by, to float accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.errors import ConfigError
from hopstate.evaluation.calibration import Curve, fitted
from hopstate.methods.shared.static_link import rows_of
from hopstate.runs.data import settings_of_run
from hopstate.runs.load import load_run
from hopstate.runs.query_inputs import read_ids, read_pairs
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.static_link import StaticLinkTask

if TYPE_CHECKING:
    import pandas as pd


def is_static(folder: RunFolder, method: str | None = None) -> bool:
    """Return whether a run predicts links of a graph without times."""
    return settings_of_run(folder, method)[1].get("task") == "link"


class StaticLinks:
    """A trained model of links over its messages.

    Args:
        task: of the run.
        columns: of sources and targets in the run's own table of edges, None if those have the usual names.
    """

    def __init__(self, task: StaticLinkTask, columns: tuple[str | None, str | None]) -> None:
        self.task, self.graph, self.columns = task, task.messages, columns
        self.score = task.scorer()
        self._curve: Curve | None = None

    def names(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.graph.node_ids is None else self.graph.node_ids.names(rows)

    def table(self, u: np.ndarray, v: np.ndarray, scores: np.ndarray) -> pd.DataFrame:
        """Return columns src, dst, score and probability of rows u (n,), v (n,)."""
        import pandas as pd

        curve = self.curve()
        found = pd.DataFrame(
            {"src": self.names(u), "dst": self.names(v), "score": scores, "probability": curve(scores)}
        )
        found.attrs["probability"] = curve.text().replace("events", "links")
        return found

    def curve(self) -> Curve:
        """Return the map from scores to probabilities, fitted to validation's links and as many drawn pairs."""
        if self._curve is None:
            question = self.task.question("val")
            negatives = question.negatives()
            pairs = np.concatenate([question.pairs, negatives[negatives[:, 1] >= 0]])
            y = (np.arange(len(pairs)) < len(question.pairs)).astype(np.float64)
            self._curve = replace(fitted(self.task.scorer("val")(*pairs.T), y, "drawn"), events=len(question.pairs))
        return self._curve


@contextmanager
def opened_run(run: str | Path, own: Any, device: str | None, method: str | None) -> Iterator[StaticLinks]:
    """Yield a run on static links opened for queries; own is its data if they are not in a file."""
    import torch

    read = settings_of_run(RunFolder.open(run), method)[1].get("read") or {}
    with load_run(run, own, device=device, method=method) as (trainer, task), torch.no_grad(), trainer.precision():
        assert isinstance(task, StaticLinkTask)
        task.model.eval()
        yield StaticLinks(task, (read.get("source_column"), read.get("target_column")))


def score_links(
    run: str | Path, pairs: Any, read: Mapping[str, Any], own: Any, device: str | None, method: str | None
) -> pd.DataFrame:
    """Return columns src, dst, score and probability of pairs; see `hopstate.score`.

    Raises:
        DataError: an unknown id; the nearest is named.
    """
    with opened_run(run, own, device, method) as opened:
        columns = read.get("source_column"), read.get("target_column"), None
        given = read_pairs(pairs, columns, (*opened.columns, None), opened.graph.node_ids)
        u = rows_of(opened.graph, np.asarray(given.source), "pairs", "u")
        v = rows_of(opened.graph, np.asarray(given.target), "pairs", "i")
        return opened.table(u, v, opened.score(u, v))


def rank_links(
    run: str | Path,
    sources: Any,
    top: int | None,
    candidates: Any,
    new_only: bool,
    own: Any,
    device: str | None,
    method: str | None,
) -> pd.DataFrame:
    """Return columns src, rank, dst, score and probability of each source's best candidates; see `hopstate.rank`.

    Candidates are all nodes but the source, of two sets of nodes those of the other set; with new_only those without a
    link to it in any split.

    Raises:
        DataError: an unknown id; the nearest is named.
    """
    import pandas as pd

    with opened_run(run, own, device, method) as opened:
        ids = opened.graph.node_ids
        given = rows_of(opened.graph, read_ids(sources, "sources", ids), "sources", "u")
        pool, types = np.arange(opened.graph.num_nodes), opened.graph.node_type
        if candidates is not None:
            candidates = read_ids(Path(candidates) if isinstance(candidates, str) else candidates, "candidates", ids)
            pool = np.array(list(dict.fromkeys(rows_of(opened.graph, candidates, "candidates", "i").tolist())))
            types = None  # whoever names candidates means them
        tables = [_ranked(opened, int(u), _other_side(pool, types, u), top, new_only) for u in given]
        return pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]


def _other_side(pool: np.ndarray, types: np.ndarray | None, u: np.ndarray) -> np.ndarray:
    return pool if types is None or types[u] < 0 else pool[types[pool] == 1 - types[u]]


def _ranked(opened: StaticLinks, u: int, pool: np.ndarray, top: int | None, new_only: bool) -> pd.DataFrame:
    others = pool[pool != u]
    if new_only:
        others = others[~opened.task.free.linked(np.full(len(others), u), others)]
    source = np.full(len(others), u)
    scores = opened.score(source, others)
    best = np.argsort(-scores, kind="stable")[:top]
    table = opened.table(source[best], others[best], scores[best])
    table.insert(1, "rank", np.arange(1, len(best) + 1))
    return table


def check_static(**given: Any) -> None:
    """Raise ConfigError for options, given by name, that only event streams have."""
    for name, value in given.items():
        if value not in (None, False, ()):
            option = name.replace("_", "-")
            raise ConfigError(
                f"{name} applies to event streams only, and this run's graph has no times: leave --{option} out"
            )
