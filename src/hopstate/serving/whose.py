"""Whose a log is: what it says of its model, and of the run that it comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from hopstate.errors import CheckpointError, ConfigError
from hopstate.runs.data import known_data
from hopstate.training.run_folder import RunFolder

_ELSEWHERE = ("data", "read", "loop")  # settings that may change where data are moved, or tell of training alone


def check_served(facts: Mapping[str, Any], model: str, place: object) -> None:
    """Refuse a model that a log is not of.

    Raises:
        ConfigError: it is another model's.
    """
    if facts.get("model", model) == model:
        return
    raise ConfigError(f"the log in {place} is of a model of other weights; give another folder")


def own_events(facts: Mapping[str, Any], model: str) -> int | None:
    """Return how many events of its own data a model had when it came to a log, None where it never did.

    Raises:
        CheckpointError: the log holds another thing there.
    """
    found = facts.get("own_events") if facts.get("model") == model else None
    if found is not None and (type(found) is not int or found < 0):
        raise CheckpointError(f"the log says that model {model} had {found!r} events of its own; use a copy of it")
    return found


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
