"""Whose a log is: what it tells of the models that it has had, and of the runs that they come from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopstate.errors import CheckpointError, ConfigError
from hopstate.runs.data import known_data
from hopstate.training.run_folder import RunFolder

_ELSEWHERE = ("data", "read", "loop")  # settings that may change where data are moved, or tell of training alone


class OtherModelError(ConfigError):
    """A log is served by another model."""


def check_served(facts: Mapping[str, Any], model: str, place: object) -> None:
    """Refuse a model that does not serve a log.

    Raises:
        OtherModelError: another one does, since a swap or from the log's begin.
    """
    if facts.get("model", model) == model:
        return
    if own_events(facts, model) is not None:
        raise OtherModelError(
            f"since a swap the log in {place} is served by the other run of the two; serve that one, or name it as the "
            "shadow of this one (--shadow), by which the log tells who serves"
        )
    raise OtherModelError(f"the log in {place} is of a model of other weights; give another folder")


def own_events(facts: Mapping[str, Any], model: str) -> int | None:
    """Return how many events of its own data a model had when it came to a log, None where it never did.

    Raises:
        CheckpointError: the log holds another thing there.
    """
    found = facts.get("own_events") if facts.get("model") == model else facts.get(f"own_events {model}")
    if found is not None and (type(found) is not int or found < 0):
        raise CheckpointError(f"the log says that model {model} had {found!r} events of its own; use a copy of it")
    return found


def state_folder(folder: Path, facts: Mapping[str, Any], model: str) -> Path:
    """Return where a model's snapshots lie: each model that a log has had keeps its own."""
    first = facts.get("begun", facts.get("model", model))
    return folder / ("state" if first == model else f"state-{model}")


def signed(run: RunFolder, model: str) -> dict[str, str]:
    """Return what a log is told of a model's run: its settings and own data, which weights may not tell apart."""
    settings = {name: value for name, value in run.settings().items() if name not in _ELSEWHERE}
    text = json.dumps([settings, known_data(run)["content_hash"]], sort_keys=True)
    return {f"run of {model}": hashlib.sha256(text.encode()).hexdigest()[:16]}


def check_signed(facts: Mapping[str, Any], run: RunFolder, model: str, place: object) -> bool:
    """Return whether a log knows the run of a model; an earlier version's knows none.

    Raises:
        ConfigError: it is of another run.
    """
    ((key, own),) = signed(run, model).items()
    if facts.get(key, own) != own:
        raise ConfigError(
            f"the log in {place} is another run's: of other data, or of other settings (method, model, evaluation), "
            "though its weights, if it has any, are these; give another folder"
        )
    return key in facts
