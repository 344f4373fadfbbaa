"""What `stream` and `predict` do before a temporal model goes on over new events: its past, how they are read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopstate.data.events import EventStream
from hopstate.data.past import Past
from hopstate.errors import ConfigError
from hopstate.methods import get_method
from hopstate.methods.configuration import config_from, with_earlier
from hopstate.methods.prepare import prepared_as
from hopstate.run_data import load_data, reading
from hopstate.training.live import past_of
from hopstate.training.run import RunFolder


def check_temporal(folder: RunFolder) -> None:
    """Check that a run is of a method for event streams.

    Raises:
        ConfigError: it is not.
    """
    name = folder.read_json("config.json")["method"]
    kind = get_method(name).data
    if kind != "events":
        raise ConfigError(f"{folder.path} is a run of {name}, which works on {kind} and has no past to go on from")


def kept_state(folder: RunFolder) -> Path | None:
    """Return where the state of a run is kept, None where none is: a folder, or the file that version 0.1.0 wrote."""
    from hopstate.data.past_store import holds_past

    new, old = folder.path / "state", folder.path / "state.safetensors"
    return new if holds_past(new) else old if old.is_file() else None


def own_past(folder: RunFolder, task: Any, own: Any = None) -> Past:
    """Return the past of a run after all of its own data.

    Args:
        folder: the run.
        task: its task.
        own: its own data, where they are not in a file.
    """
    settings = folder.read_json("config.json")
    method = get_method(settings.pop("method"))
    config = config_from(method, with_earlier(method, settings))
    record = own if own is not None and not isinstance(own, (str, Path)) else None
    if record is None:
        record = load_data(config.data if own is None else str(own), config.read, method.data)
    return past_of(task, _as_trained(folder, record))


def new_events(folder: RunFolder, data: Any, read: Mapping[str, Any]) -> EventStream:
    """Return events that a run goes on over, tables read as its own files were but for what read says.

    Raises:
        ConfigError: an option that the method's configuration does not have, or features of nodes.
    """
    from hopstate.data.event_io import read_events

    if read.get("x") is not None:
        raise ConfigError("new events bring no features of nodes; the run keeps its own: leave read.x out")
    settings = folder.read_json("config.json")
    method = get_method(settings.pop("method"))
    # features and number of the nodes are of the run's own data; records have no columns to name
    columns = isinstance(data, (str, os.PathLike)) or hasattr(data, "iloc")
    own = {k: v for k, v in settings["read"].items() if k not in ("x", "num_nodes")} if columns else {}
    config = config_from(method, with_earlier(method, settings) | {"read": own | dict(read)})
    return _as_trained(folder, read_events(data, from_start=False, **reading(config.read)))


def _as_trained(folder: RunFolder, record: Any) -> Any:
    """Return events with features and classes as those that a run was trained on."""
    return prepared_as(record, folder.read_json("data.json"))
