"""Who may come next: the candidates of a source at a time, from what is strictly earlier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hopstate.errors import DataError
from hopstate.runs.queries.first_stage import FirstStage
from hopstate.runs.queries.names import Nodes, nodes_of, read_ids, with_rows
from hopstate.runs.queries.pool import usual_candidates
from hopstate.runs.queries.session import Session
from hopstate.streaming.slices import Steps


class Candidates:
    """The candidates of sources.

    Args:
        asked: the run.
        given: ids, or a file of ids; None takes `usual_candidates`.
        new_only: leave out a source itself, and whom it has met.
        first_stage: so many at most, the first by `FirstStage`; None keeps all.

    stage: what left some out; None as long as nothing did.
    """

    def __init__(self, asked: Session, given: Any, *, new_only: bool = False, first_stage: int | None = None) -> None:
        self.asked, self.past, self.new_only, self.count = asked, asked.past, new_only, first_stage
        self._given: Nodes | None = None
        if given is not None:
            ids = read_ids(Path(given) if isinstance(given, (str, Path)) else given, "candidates", self.past.node_ids)
            nodes = nodes_of(self.past, ids, "candidates", two_sets=asked.two_sets)
            _, first = np.unique(nodes.names, return_index=True)
            first.sort()
            self._given = nodes.at(first)
        self._usual: dict[Any, np.ndarray] = {}
        self.stage: FirstStage | None = None

    @property
    def given(self) -> tuple[Nodes, ...]:
        """The candidates that were named, nothing where none were."""
        return () if self._given is None else (self._given,)

    def of(self, sources: Nodes, i: int, t: Any) -> Steps[Nodes]:
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
            found = found.at(np.flatnonzero(~met & (found.names != name)))
        if self.count is None or len(found) <= self.count:
            return found
        self.stage = self.stage or FirstStage(self.asked)
        yield
        source = Nodes(*(np.repeat(getattr(sources, end)[i : i + 1], len(found)) for end in ("names", "rows", "met")))
        u, v = with_rows(self.past, source, found)
        return found.at((yield from self.stage.best(int(u[0]), v, t, self.count)))

    def told(self) -> dict[str, float]:
        """Return the shares that the first stage keeps: of the model's own best, and of validation's destinations."""
        if self.count is None:
            return {}
        if self.stage is None:
            return {"first_stage_recall": 1.0}
        found = self.stage.finds(self.count)
        return {"first_stage_recall": self.stage.keeps(self.count)} | (
            {} if found is None else {"first_stage_destinations": found}
        )

    def _usual_before(self, t: Any) -> np.ndarray:
        key = None if t > self.past.last_time else t
        if key not in self._usual:
            rows = usual_candidates(self.past, t)
            if not len(rows):
                raise DataError("no node was met before that time, so nobody is a candidate; name some (--candidates)")
            self._usual[key] = rows
        return self._usual[key]
