"""How long a training step takes, found before training from real batches, and without leaving a trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import torch

from hopstate.random import rng_state, set_rng_state
from hopstate.training.tasks.protocols import BatchT, Microbatches, Rehearses, Task

BATCHES = 3  # at most, of which the first compiles and fills caches that training uses
SECONDS = 1.0  # after which no third batch is begun
SHARE = 0.02  # of a run's steps at most
ENOUGH = 1_000_000  # steps of a run that is measured and not trained


def step_seconds(
    task: Task[BatchT], backward: Callable[[Any], torch.Tensor | None], *, epoch: int, start: int, steps: int
) -> float | None:
    """Return the seconds of a step's loss and gradients; None where a run is too short or its batches leave a trace.

    Weights, buffers, random states and the task's state are afterwards what they were.

    Args:
        task: what will be trained.
        backward: adds the gradients of a batch, and returns its loss.
        epoch: whose batches are computed.
        start: first batch that may be taken; the middle one is, if that comes later, as early ones see short histories.
        steps: that are left to train.
    """
    most = min(BATCHES, int(SHARE * steps))
    start = max(start, task.num_batches(epoch) // 2)
    made = task.rehearsal(epoch, start) if isinstance(task, Rehearses) else _again(task, epoch, start)
    if most < 1 or made is None:
        return None
    model, random = task.model, rng_state()
    state = {name: tensor.clone() for name, tensor in task.state().items()}
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    model.train()
    try:
        with closing(made):  # type: ignore[type-var]
            return _timed(made, backward, most)
    finally:
        model.zero_grad(set_to_none=True)
        for buffer, before in buffers:
            buffer.data.copy_(before)
        task.load_state(state)
        set_rng_state(random)


def _again(task: Task[BatchT], epoch: int, start: int) -> Iterator[BatchT | Microbatches[BatchT]]:
    for _ in range(BATCHES):  # an epoch may be one batch
        yield from task.batches(epoch, start)


def _timed(made: Iterator[Any], backward: Callable[[Any], torch.Tensor | None], most: int) -> float | None:
    begin = last = time.perf_counter()
    times: list[float] = []
    for batch in made:
        loss = backward(batch)
        if loss is not None:
            loss.item()  # waits for the device
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if len(times) == most or (len(times) > 1 and now - begin > SECONDS):  # the first compiles: it tells nothing
            break
    return min(times[1:] or times, default=None)
