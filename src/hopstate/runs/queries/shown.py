"""Whether an answer shows times as dates: where the run was read from dates; else they are numbers in its own unit."""

from __future__ import annotations

import csv
from pathlib import Path

from hopstate.data.dates import NAIVE
from hopstate.data.readers.roles import TIMES
from hopstate.errors import HopstateError
from hopstate.io.opening import bounded
from hopstate.runs.data import known_data, settings_of_run
from hopstate.training.run_folder import RunFolder


def dates_of(folder: RunFolder, method: str | None = None) -> str:
    """Return the zone that the dates of a run's own file named, "" where its times are numbers."""
    dates = known_data(folder).get("dates")
    if dates is None:  # runs from before it was noted
        return NAIVE if has_dates(folder, method) else ""
    return str(dates)


def has_dates(folder: RunFolder, method: str | None) -> bool:
    """Return whether the times of a run's own file are dates: its first rows tell."""
    _, settings = settings_of_run(folder, method)
    path = Path(str(settings.get("data", "")))
    if not path.is_file():
        return False
    try:
        if path.suffix == ".parquet":
            return _parquet_dates(path, settings["read"].get("time_column"))
        with bounded(path) as file:
            head = file.read(1 << 16).decode("utf-8-sig", "replace").splitlines()
    except (HopstateError, OSError):
        return False
    lines = [line for line in head if line.strip() and not line.lstrip().startswith(("#", "%"))][:2]
    if len(lines) < 2:
        return False
    names, cells = next(csv.reader(lines[:1])), next(csv.reader(lines[1:]))
    if len(names) < 3:
        names, cells = (next(csv.reader([line], delimiter="\t")) for line in lines)
    place = _time_place([name.strip() for name in names], settings["read"].get("time_column"))
    if place is None or place >= len(cells):
        return False
    try:
        float(cells[place])
    except ValueError:
        return True
    return False


def _time_place(names: list[str], given: str | None) -> int | None:
    """Return the column of times; without a header, the third."""
    wanted = [given] if given is not None else [name for want in TIMES for name in names if name.lower() == want]
    at = [names.index(name) for name in wanted if name in names]
    return at[0] if at else 2 if len(names) > 2 else None


def _parquet_dates(path: Path, given: str | None) -> bool:
    from pyarrow import parquet, types

    schema = parquet.read_schema(path)
    place = _time_place(list(schema.names), given)
    kind = None if place is None else schema.field(place).type
    return kind is not None and (types.is_timestamp(kind) or types.is_date(kind) or types.is_string(kind))
