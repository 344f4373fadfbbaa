"""Scores of any pairs at any times from now on: what events there, each the next to come, would be scored as.

Histories hold what is strictly earlier than a query's time; a memory is that from before the batch that an event at
that time would fall into (see `streaming.live`). A score depends on its pair and time alone, not on what else is asked,
to the accuracy of floats.
"""

from __future__ import annotations

import numpy as np

from hopstate.data.stream_state import StreamState
from hopstate.sampling.event_batches import batch_boundaries
from hopstate.streaming.following import Begun
from hopstate.streaming.protocols import LinkFollower, LiveTask, MovesMemory
from hopstate.streaming.replay import as_scores
from hopstate.streaming.scores import check_scores


class PairQueries:
    """A model of links over a past, asked again and again; the past stays as it is.

    Args:
        task: the trained model.
        past: what it has seen.

    follower: the model over the past, as the last query left it.
    """

    def __init__(self, task: LiveTask[LinkFollower], past: StreamState) -> None:
        self.task, self.past = task, past
        self._open = past.events(past.settled)
        boundaries = batch_boundaries(self._open.t, task.live_batch)
        full = len(boundaries) < 2 or boundaries[-1] - boundaries[-2] >= task.live_batch
        self._boundaries = (
            boundaries if full else boundaries[:-1]
        )  # the last batch is still open: it has moved nothing yet
        self._restart()

    def scores(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) float64 scores of pairs src (Q,), dst (Q,) at times t (Q,), none before the past's last event.

        Raises:
            DataError: a score is NaN or infinite, or a node that the model cannot have.
        """
        found = np.empty(len(t))
        position = np.searchsorted(self._open.t, t, side="left")
        place = np.searchsorted(self._boundaries, position, side="right") - 1
        for b in np.unique(place):
            mine = np.flatnonzero(place == b)
            self._move_to(int(b))
            found[mine] = as_scores(self.task.ask(self.follower, src[mine], dst[mine], t[mine]), len(mine))
        return check_scores(found)

    def at(self, t: int | float) -> LinkFollower:
        position = np.searchsorted(self._open.t, t, side="left")
        self._move_to(int(np.searchsorted(self._boundaries, position, side="right")) - 1)
        return self.follower

    @property
    def moved(self) -> int:
        """The id of the first event that has not moved the follower's memory, as the last query left it."""
        return self.past.settled + int(self._boundaries[self._moved])

    def latest(self) -> LinkFollower:
        """Return the follower as it stands for whatever comes after the past's last event."""
        self._move_to(len(self._boundaries) - 1)
        return self.follower

    def begun(self) -> Begun | None:
        """Return by which open batches the memory has been moved for the queries so far, None where by none."""
        if not self._moved or not isinstance(self.follower, MovesMemory):
            return None
        return Begun(self._boundaries[: self._moved + 1], self.follower.state())

    def _restart(self) -> None:
        self.follower: LinkFollower = self.task.follow(self.past)
        self._moved = 0

    def _move_to(self, batch: int) -> None:
        if batch < self._moved:
            self._restart()
        for b in range(self._moved, batch):
            self.follower.observe(self._open.take(np.arange(self._boundaries[b], self._boundaries[b + 1])))
        self._moved = batch
