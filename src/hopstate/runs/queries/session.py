"""A run opened for questions: its model over all that it knows, and over further events where they are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.dates import shown_times
from hopstate.data.stream_state import StreamState
from hopstate.errors import ConfigError, DataError
from hopstate.runs.curves import key_of
from hopstate.runs.data import known_data, settings_of_run
from hopstate.runs.going_on import as_trained, check_temporal, kept_state, name_new_ids, new_events, own_past
from hopstate.runs.load import load_run
from hopstate.runs.queries.names import Columns, Nodes, times_of, with_rows
from hopstate.runs.queries.shown import dates_of
from hopstate.runs.queries.told import tell_unmet
from hopstate.streaming.pair_queries import PairQueries
from hopstate.streaming.slices import Pace, Steps, in_slices
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.link import LinkTask


class Session:
    """A model of links over a past, to be asked.

    Args:
        folder: the run.
        task: its task, without its data.
        past: what is known.
        own: the run's own data where they are in no file.
        method: as in `hopstate.evaluate`.

    found: what was found out of the run once, whatever its past (its curve of probabilities, say).
    """

    def __init__(
        self, folder: RunFolder, task: LinkTask, past: StreamState, own: Any = None, method: str | None = None
    ) -> None:
        self.folder, self.task, self.own, self.method = folder, task, own, method
        self.columns = columns_of(settings_of_run(folder, method)[1]["read"])
        self.found: dict[str, Any] = {}
        self._pace = Pace()
        self._stand(past)

    def _stand(self, past: StreamState) -> None:
        self.past = past
        # two rows more than there are nodes: the ends of a pair that nobody has met
        self.queries = PairQueries(self.task, replace(past, num_nodes=past.num_nodes + 2, node_ids=None))

    def over(self, past: StreamState) -> Session:
        """Return the same run over another past, without reading its files again."""
        if past is self.past:
            return self
        made = copy(self)
        made._stand(past)
        return made

    @cached_property
    def key(self) -> str:
        """What is the same for the same weights, settings and data alone."""
        return key_of(self.folder, self.task)

    @cached_property
    def two_sets(self) -> bool:
        """Whether sources and targets are two sets of nodes, told apart by letters."""
        return bool(known_data(self.folder).get("two_sets"))

    @cached_property
    def dates(self) -> str:
        """The zone that the dates of the run's own file named, "" where its times are numbers."""
        return dates_of(self.folder, self.method)

    def now(self) -> Any:
        """Return the first time after all that is known.

        Raises:
            DataError, TimeOrderError: there is none.
        """
        return times_of(self.past, None, 1, "sources")[0]

    def shown(self, t: np.ndarray) -> np.ndarray:
        """Return (Q,) times as numbers, or as texts of ISO dates in their zone where the run's own file has dates."""
        return shown_times(t, self.past.time_unit or "", self.dates)

    def scores(self, src: Nodes, dst: Nodes, t: np.ndarray, *, told: bool = False) -> np.ndarray:
        """Return (Q,) scores of pairs src (Q,), dst (Q,) at t (Q,); ids that were never met are told, if not yet.

        Raises:
            DataError: the model cannot score a node that it has not met.
        """
        if not told:
            tell_unmet(self.past, src, dst)
        return self._scores(src, dst, t, slice(None))

    def scoring(self, src: Nodes, dst: Nodes, t: np.ndarray, *, told: bool = False) -> Steps[np.ndarray]:
        """Return what `scores` does, in slices; of the past as it is now, whatever comes between them."""
        if not told:
            tell_unmet(self.past, src, dst)
        return (yield from in_slices(partial(self._scores, src, dst, t), len(t), self._pace))

    def _scores(self, src: Nodes, dst: Nodes, t: np.ndarray, part: slice) -> np.ndarray:
        u, v = with_rows(self.past, src, dst)
        try:
            return self.queries.scores(u[part], v[part], t[part])
        except DataError as error:
            new = [name for nodes in (src, dst) for name in nodes.names[nodes.rows < 0].tolist()]
            if not new:
                raise
            raise DataError(f"{new[0]!r} was never met, and this model cannot score such a node: {error}") from None


def columns_of(read: Mapping[str, Any]) -> Columns:
    """Return the columns of sources, targets and times that options of reading name, None where they do not."""
    return read.get("source_column"), read.get("target_column"), read.get("time_column")


@contextmanager
def session(
    run: str | Path,
    *,
    events: Any = None,
    state: str | Path | None = None,
    fresh: bool = False,
    own: Any = None,
    read: Mapping[str, Any] | None = None,
    device: str | None = None,
    method: str | None = None,
    links: bool = True,
) -> Iterator[Session]:
    """Yield a run opened for questions of links, or where links is False of nodes; the rest as in `hopstate.score`.

    Raises:
        ConfigError: the run is none of a temporal method, or scores no pairs where links are asked for.
    """
    import torch

    from hopstate.data.stream_checkpoint import load_stream_state
    from hopstate.streaming.live import fingerprint, go_on

    folder = RunFolder.open(run)
    check_temporal(folder, method)
    task: Any
    with load_run(run, own, device=device, bare=True, method=method) as (trainer, task), torch.no_grad():
        if links and not isinstance(task, LinkTask):
            name = settings_of_run(folder, method)[0].name
            raise ConfigError(f"{folder.path} is a run of {name}, which scores no pairs; see predict and node_outputs")
        with trainer.precision():
            start = None if fresh else state if state is not None else kept_state(folder)
            past = own_past(folder, task, own) if start is None else load_stream_state(start, model=fingerprint(task))
            for one in events if isinstance(events, (list, tuple)) else [] if events is None else [events]:
                new = as_trained(folder, new_events(folder, one, read or {}))
                name_new_ids(past, new)
                past = go_on(task, past, new, score=False)[1]
            yield Session(folder, task, past, own, method)
