"""Who may come next: the candidates of a source at a time, from what is strictly earlier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hopstate.errors import DataError
from hopstate.runs.queries.first_stage import FirstStage, kept_recall
from hopstate.runs.queries.names import Nodes, nodes_of, read_ids
from hopstate.runs.queries.pool import usual_candidates
from hopstate.runs.queries.session import Session


class Candidates:
    """The candidates of sources.

    Args:
        asked: the run.
        given: ids, or a file of ids; None takes `usual_candidates`.
        new_only: leave out a source itself, and whom it has met.
        first_stage: so many at most, the most likely by `FirstStage`; None keeps all.

    recall: the share of validation events whose destination the first stage keeps; None without one.
    """

    def __init__(self, asked: Session, given: Any, *, new_only: bool = False, first_stage: int | None = None) -> None:
        self.past, self.new_only, self.count = asked.past, new_only, first_stage
        self._given: Nodes | None = None
        if given is not None:
            ids = read_ids(Path(given) if isinstance(given, (str, Path)) else given, "candidates")
            nodes = nodes_of(self.past, ids, "candidates")
            _, first = np.unique(nodes.names, return_index=True)
            first.sort()
            self._given = Nodes(nodes.names[first], nodes.rows[first], nodes.met[first])
        self._usual: dict[Any, np.ndarray] = {}
        self._stage = None if first_stage is None else FirstStage(self.past)
        self.recall = None if first_stage is None else kept_recall(asked, first_stage)

    def of(self, sources: Nodes, i: int, t: Any) -> Nodes:
        """Return the candidates of source i at a time."""
        row, name = int(sources.rows[i]), sources.names[i]
        if self._given is None:
            rows = self._usual_before(t)
            rows = rows[rows != row]
            names = rows if self.past.node_ids is None else self.past.node_ids.names(rows)
            found = Nodes(names, rows, np.ones(len(rows), bool))
        else:
            found = self._given
        if self.new_only:
            met = np.zeros(len(found), bool)
            known = np.flatnonzero(found.rows >= 0)
            if row >= 0 and len(known):
                ends = np.full(len(known), row), found.rows[known], np.full(len(known), t)
                met[known] = self.past.store().last_meeting(*ends)[1]
            found = _kept(found, np.flatnonzero(~met & (found.names != name)))
        if self._stage is not None and self.count is not None and len(found) > self.count:
            found = _kept(found, self._stage.best(row, found.rows, t, self.count))
        return found

    def _usual_before(self, t: Any) -> np.ndarray:
        key = None if t > self.past.last_time else t
        if key not in self._usual:
            rows = usual_candidates(self.past, t)
            if not len(rows):
                raise DataError("no node was met before that time, so nobody is a candidate; name some (--candidates)")
            self._usual[key] = rows
        return self._usual[key]


def _kept(nodes: Nodes, at: np.ndarray) -> Nodes:
    return Nodes(nodes.names[at], nodes.rows[at], nodes.met[at])
