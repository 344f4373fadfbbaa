"""Check that the scores of a trained run do not depend on later events."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hopstate.errors import ConfigError
from hopstate.runs.load import load_run
from hopstate.training.tasks.events import EventTask

if TYPE_CHECKING:
    from hopstate.evaluation.leak import LeakReport


def check_leak(
    run: str | Path,
    *,
    times: int = 6,
    queries: int = 64,
    events: int = 5000,
    seed: int = 0,
    device: str | None = None,
) -> LeakReport:
    """Change, add and remove events after random times and check that no earlier score changes.

    Args:
        run: run folder of a method for event streams.
        times: number of times to check. Default: 6.
        queries: pairs scored at and before each time. Default: 64.
        events: number of latest events to work on. Default: 5000.
        seed: seed of the times and alterations. Default: 0.
        device: where to compute. Default: the run's setting.

    Returns:
        The number of times and of compared scores.

    Raises:
        LeakError: a score depends on a later event.
        ConfigError: the run's data have no times.

    Example:
        >>> print(hopstate.check_leak(run.path, times=2, queries=4))
        no leak: 48 scores at 2 times did not change when the future did
    """
    from hopstate.evaluation import leak

    with load_run(run, device=device) as (_, task):
        if not isinstance(task, EventTask):
            raise ConfigError(f"{run} is not a temporal model: its data have no times that could leak")
        task.model.eval().double()
        stream = task.stream.slice(max(0, len(task.stream) - events), len(task.stream))
        return leak.check_leak(
            task.scorer_over, stream, score=task.score_events, times=times, queries=queries, seed=seed
        )
