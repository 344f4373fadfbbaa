"""Tables of answers: in the order and with the index of the given table, and written over none of the files read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.dates import shown_times
from hopstate.data.stream_state import in_unit
from hopstate.io.files import check_output
from hopstate.io.output import check_table_path
from hopstate.runs.data import settings_of_run
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.events import to_user_ids

if TYPE_CHECKING:
    import pandas as pd

    from hopstate.data.events import EventStream


def plain_table(given: Any) -> Any:
    """Return a mapping of columns as a table, and a table whose index numbers or names no column without it."""
    import pandas as pd

    if isinstance(given, Mapping):
        return pd.DataFrame(dict(given))
    if not isinstance(given, pd.DataFrame):
        return given
    names = given.index.names
    if given.index.nlevels > 1 and None not in names and not set(names) & set(given.columns):
        return given.reset_index()
    return given.reset_index(drop=True) if given.index.nlevels > 1 or names[0] is None else given


def with_index_of(table: pd.DataFrame, given: Any) -> pd.DataFrame:
    import pandas as pd

    same = isinstance(given, (pd.DataFrame, pd.Series)) and len(given) == len(table)
    return table.set_axis(given.index) if same else table


def in_given_order(
    columns: Mapping[str, Any], record: EventStream, given: Any, unit: str, dates: str, *, whole: bool
) -> pd.DataFrame:
    """Return answers on events in the order and with the index of the user's table, times as it wrote them.

    Args:
        columns: of answers; "row" is the row of the table that each answers.
        record: the table's events.
        given: the table.
        unit, dates: of the times in columns, see `EventStream`.
        whole: rows without an answer (deletions, events without a time) are included, empty.
    """
    import pandas as pd

    found = pd.DataFrame(columns).set_index("row").sort_index(kind="stable")
    found["t"] = shown_times(found["t"].to_numpy(), unit, dates)
    length = record.file_length if record.file_length >= 0 else int(_own_events(record).sum())
    if whole and len(found) < length:
        found = _filled(found, record, length, unit, dates)
    if isinstance(given, pd.DataFrame) and len(given) == length:
        return found.set_axis(given.index[found.index])
    return found.reset_index(drop=True)


def _filled(found: pd.DataFrame, record: EventStream, length: int, unit: str, dates: str) -> pd.DataFrame:
    """Return a table with a row for each of the user's; those without an answer have their ids and times at most."""
    import pandas as pd

    events = in_unit(record, unit)
    rows = np.flatnonzero(_own_events(events))
    known = to_user_ids(events, rows) | {"t": shown_times(events.t[rows], unit, dates)}
    known["node"] = known["src"]
    given = pd.DataFrame({name: known[name] for name in known if name in found}, index=events.in_file(rows))
    whole = {name: column.dtype for name, column in {**found, **given}.items() if column.dtype.kind in "iu"}
    found = found.astype(dict.fromkeys(whole, "Int64")).reindex(range(length))
    for name, column in given.items():
        found[name] = found[name].fillna(column.astype(found[name].dtype).reindex(range(length)))
    return found


def _own_events(record: EventStream) -> np.ndarray:
    """Return (E,) which events are rows of the user's; deletions that follow from that of a node are not."""
    return record.in_file(np.arange(len(record))) >= 0


def check_table(
    out: str | Path | None, folder: RunFolder, method: str | None, data: Any, read: Mapping[str, Any] | None, *more: Any
) -> None:
    """Check that a table can be written, and over none of the files that it is made from.

    Args:
        out: the table; None is not checked.
        folder: the run.
        method: as in `hopstate.evaluate`.
        data, read: what else is read, and how.
        more: further files that are read.

    Raises:
        FormatError: out is not the name of a table.
        ConfigError: out is read, or the run's method is not known.
        StorageError: out cannot be written.
    """
    settings = settings_of_run(folder, method)[1]
    if out is None:
        return
    check_table_path(out)
    files = [value for options in (settings.get("read") or {}, read or {}) for value in options.values()]
    check_output(Path(out), settings.get("data"), data, *files, *more)
