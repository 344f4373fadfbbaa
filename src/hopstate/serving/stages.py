"""Rankings in two stages, where a model takes long over each pair: the first stage is made when a service starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from hopstate.runs.queries.first_stage import NAME, FirstStage
from hopstate.runs.queries.session import Session
from hopstate.serving.live import LiveRun
from hopstate.streaming.history_scorer import HistoryScorer

FEW, STAGE = 500, 100  # candidates that a slow model scores whole, and those that its first stage leaves of more


def is_slow(asked: Session, candidates: int) -> bool:
    """Return whether so many candidates take the model long: it reads both histories of each pair."""
    return candidates > FEW and isinstance(asked.queries.follower, HistoryScorer)


def has_stage(asked: Session) -> bool:
    """Return whether a run has its first stage."""
    return (asked.folder.path / NAME).is_file()


def make_stage(live: LiveRun, told: Callable[[str], None]) -> dict[str, Any] | None:
    """Make the first stage of a run that wants one, or load it; return what it keeps, None where there is none.

    Args:
        live: the run.
        told: called before it is made, which takes a minute.
    """
    asked = live.asked()
    if not is_slow(asked, asked.past.num_nodes):
        return None
    if not has_stage(asked):
        if not os.access(asked.folder.path, os.W_OK):  # each start would make it again
            return None
        told("making a first stage of rankings, once; it takes a minute (--first-stage never: rank in one stage)")
    with torch.no_grad():
        stage = FirstStage(asked)
    return {"candidates": STAGE, "recall": stage.keeps(STAGE), "destinations": stage.finds(STAGE)}
