"""`score` and `rank` of a run on the links of a graph without times: from its training links, by the user's ids.

A pair's score is what `evaluate` ranks it by, to the accuracy of floats, whatever is asked beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.readers.tables import is_frame
from hopstate.errors import ConfigError, DataError, ShapeError
from hopstate.evaluation.calibration import Curve, fitted
from hopstate.methods.shared.static_link import rows_of
from hopstate.runs.data import settings_of_run
from hopstate.runs.load import load_run
from hopstate.runs.queries.names import pair_columns, read_ids, table_of
from hopstate.runs.queries.told import tell_few
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.static_link import StaticLinkTask

if TYPE_CHECKING:
    import pandas as pd

    from hopstate.data.vocabulary import Vocabulary


def is_static(folder: RunFolder, method: str | None = None) -> bool:
    """Return whether a run predicts links of a graph without times."""
    return settings_of_run(folder, method)[1].get("task") == "link"


class Asked:
    """A trained model of links over its messages.

    Args:
        task: of the run.
        usual: columns of sources and targets in the run's own table of edges, None where those go by usual names.
    """

    def __init__(self, task: StaticLinkTask, usual: tuple[str | None, str | None]) -> None:
        self.task, self.graph, self.usual = task, task.messages, usual
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
            beside = question.negatives()
            pairs = np.concatenate([question.pairs, beside[beside[:, 1] >= 0]])
            y = (np.arange(len(pairs)) < len(question.pairs)).astype(np.float64)
            self._curve = replace(fitted(self.task.scorer("val")(*pairs.T), y, "drawn"), events=len(question.pairs))
        return self._curve


@contextmanager
def asked_run(run: str | Path, own: Any, device: str | None, method: str | None) -> Iterator[Asked]:
    """Yield a run on static links opened for questions; own is its data where they are in no file."""
    import torch

    read = settings_of_run(RunFolder.open(run), method)[1].get("read") or {}
    with load_run(run, own, device=device, method=method) as (trainer, task), torch.no_grad(), trainer.precision():
        assert isinstance(task, StaticLinkTask)
        task.model.eval()
        yield Asked(task, (read.get("source_column"), read.get("target_column")))


def score_links(
    run: str | Path, pairs: Any, read: Mapping[str, Any], own: Any, device: str | None, method: str | None
) -> pd.DataFrame:
    """Return columns src, dst, score and probability of pairs; see `hopstate.score`.

    Raises:
        DataError: an id that is no node of the run's graph; the nearest is named.
    """
    with asked_run(run, own, device, method) as asked:
        ends = _pairs(pairs, read, asked.usual, asked.graph.node_ids)
        u, v = (rows_of(asked.graph, ids, "pairs", letter) for ids, letter in zip(ends, "ui", strict=True))
        return asked.table(u, v, asked.score(u, v))


def rank_links(
    run: str | Path, sources: Any, top: int | None, candidates: Any, new_only: bool, own: Any, device: str | None,
    method: str | None,
) -> pd.DataFrame:  # fmt: skip
    """Return columns src, rank, dst, score and probability of each source's best candidates; see `hopstate.rank`.

    Candidates are all nodes but the source, of two sets of nodes those of the other set; with new_only those without a
    link to it in any split.

    Raises:
        DataError: an id that is no node of the run's graph; the nearest is named.
    """
    import pandas as pd

    with asked_run(run, own, device, method) as asked:
        given = rows_of(asked.graph, read_ids(sources, "sources", asked.graph.node_ids), "sources", "u")
        pool = np.arange(asked.graph.num_nodes)
        if candidates is not None:
            ids = read_ids(
                Path(candidates) if isinstance(candidates, (str, Path)) else candidates,
                "candidates",
                asked.graph.node_ids,
            )
            found = rows_of(asked.graph, ids, "candidates", "i")
            pool = found[np.sort(np.unique(found, return_index=True)[1])]
        types = None if candidates is not None else asked.graph.node_type  # who names candidates means them
        parts = [_ranked(asked, int(u), _other_side(pool, types, u), top, new_only) for u in given]
        counts = [len(part) for part in parts]
        tell_few(top, asked.names(given), counts, new_only=new_only, stacklevel=5)
        return pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]


def _other_side(pool: np.ndarray, types: np.ndarray | None, u: np.ndarray) -> np.ndarray:
    return pool if types is None or types[u] < 0 else pool[types[pool] == 1 - types[u]]


def _ranked(asked: Asked, u: int, pool: np.ndarray, top: int | None, new_only: bool) -> pd.DataFrame:
    others = pool[pool != u]
    if new_only:
        others = others[~asked.task.free.linked(np.full(len(others), u), others)]
    many = np.full(len(others), u)
    scores = asked.score(many, others)
    best = np.argsort(-scores, kind="stable")[:top]
    table = asked.table(many[best], others[best], scores[best])
    table.insert(1, "rank", np.arange(1, len(best) + 1))
    return table


def _pairs(
    pairs: Any, read: Mapping[str, Any], usual: tuple[str | None, str | None], known: Vocabulary | None
) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(pairs, (str, Path)) or is_frame(pairs):
        table = table_of(pairs, "pairs", 2, known)
        names = [str(name) for name in table.frame.columns]
        own = (read.get("source_column"), read.get("target_column"))
        meant = [given or (name if name in names else None) for given, name in zip(own, usual, strict=True)]
        source, target, _ = pair_columns(table, (meant[0], meant[1], None))
        return np.asarray(table.ids(source)), np.asarray(table.ids(target))
    given = list(pairs)
    if not given:
        raise DataError("no pairs were given")
    if any(isinstance(pair, str) or not isinstance(pair, Sized) or len(pair) != 2 for pair in given):
        raise ShapeError("pairs are a file, a table, or a list of (source, target)")
    return np.asarray([pair[0] for pair in given]), np.asarray([pair[1] for pair in given])


def check_static(**given: Any) -> None:
    """Raise ConfigError for what only a stream of events has; given are those options, by name."""
    for name, value in given.items():
        if value not in (None, False, ()):
            option = name.replace("_", "-")
            raise ConfigError(
                f"{name} is of runs on event streams; this run's graph has no times: leave --{option} out"
            )


__all__ = ["Asked", "asked_run", "check_static", "is_static", "rank_links", "score_links"]
