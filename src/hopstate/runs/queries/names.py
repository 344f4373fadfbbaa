"""Ids, pairs and times as users give them, and as rows of a past."""

from __future__ import annotations

import re
from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.dates import NAIVE, UNITS, counted_in, shown_time, zone_of
from hopstate.data.readers.ids import whole_numbers
from hopstate.data.readers.roles import SOURCES, TARGETS, TIMES
from hopstate.data.readers.tables import Table, is_frame, read_table
from hopstate.data.readers.times import timed
from hopstate.data.stream_state import StreamState
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError, ShapeError, TimeOrderError
from hopstate.runs.asking import first_after, times_in

_CENTURIES = 292 * 31_557_600  # seconds since 1970 that dates reach, to 2262
_WHOLE = re.compile("[+-]?[0-9]{1,18}")  # what 64 bits hold for sure
_IDS = ("id", "node", "node_id", "source", "target", "src", "dst", "user", "item")


@dataclass(frozen=True)
class Nodes:
    """Ids of a past's nodes.

    Args:
        names: (q,) the user's ids, of the past's kind.
        rows: (q,) int64 their rows, -1 where the past has none.
        met: (q,) whether an event was theirs.
    """

    names: np.ndarray
    rows: np.ndarray
    met: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    def at(self, places: np.ndarray) -> Nodes:
        return Nodes(self.names[places], self.rows[places], self.met[places])


def nodes_of(past: StreamState, names: Any, what: str, *, two_sets: bool = False) -> Nodes:
    """Return the nodes of ids; what says in messages what they are: "sources", "targets", "candidates" or others.

    Of two sets of nodes that are told apart by letters, 7 among sources is u7 and among others i7.

    Raises:
        DataError: ids of another kind than the past's, one that is missing, or a node that was deleted.
    """
    _check_there(names, what)
    given = np.asarray(names)
    given = np.array(list(map(str, given.tolist()))) if given.ndim == 1 and given.dtype.kind in "OT" else given
    if given.ndim != 1:
        raise ShapeError(f"{what} are a list of ids; got an array of shape {given.shape}")
    ids = past.node_ids
    if ids is not None and ids.is_text:
        given = given.astype(str)
        rows = ids.rows(given) if len(given) else np.empty(0, np.int64)
        if (rows < 0).any():  # spaces around an id are no part of it, as in files
            bare = np.char.strip(given)
            found = ids.rows(bare)
            given, rows = np.where((rows < 0) & (found >= 0), bare, given), np.where(rows < 0, found, rows)
            if two_sets:
                full = np.char.add("u" if what == "sources" else "i", bare)
                found = ids.rows(full)
                given, rows = np.where((rows < 0) & (found >= 0), full, given), np.where(rows < 0, found, rows)
    else:
        given = _numbers(given, what)
        rows = np.where((given >= 0) & (given < past.num_nodes), given, -1) if ids is None else ids.rows(given)
    met = rows >= 0
    if ids is None and met.any():
        sent, received = past.ever_active()
        met[met] = (sent | received)[rows[met]]
    return Nodes(given, rows, met)


def _check_there(names: Any, what: str) -> None:
    """Raise DataError where a list of ids holds None or NaN, which an array of texts would take for texts."""
    import pandas as pd

    missing = np.asarray(pd.isna(names if np.ndim(names) else [names]))
    if missing.ndim == 1 and missing.any():
        at = int(np.argmax(missing))
        raise DataError(f"{what} hold no id in place {at + 1}: {list(names)[at]}")


def _numbers(given: np.ndarray, what: str) -> np.ndarray:
    if given.dtype.kind == "U":
        for name in given.tolist():
            if not _WHOLE.fullmatch(name.strip()):
                raise DataError(
                    f"{what}: the run's nodes are numbers, and {name!r} is none; give ids as in its own data"
                )
        return np.array([int(name) for name in given.tolist()], np.int64)
    if given.dtype.kind == "b":
        raise DataError(f"{what}: the run's nodes are numbers; got true and false")
    return whole_numbers(given, f"{what}: id", lambda row: f"row {row}")


def with_rows(past: StreamState, src: Nodes, dst: Nodes) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of pairs: a node without one gets that which it would get if its event came next.

    Those are the rows num_nodes and, of two unknown ends, num_nodes + 1.
    """
    u = np.where(src.rows < 0, past.num_nodes, src.rows)
    both = (src.rows < 0) & (dst.rows < 0) & (src.names != dst.names)
    return u, np.where(dst.rows < 0, past.num_nodes + both, dst.rows)


# ---- files -----------------------------------------------------------------------------------------------
Columns = tuple[str | None, str | None, str | None]  # of source, target and time


def read_pairs(
    past: StreamState, pairs: Any, columns: Columns, usual: Columns = (None,) * 3, dates: str = ""
) -> tuple[Any, Any, Any]:
    """Return sources, targets and times (None without such a column) of a file, a table, an array or a list of pairs.

    Args:
        past: whose unit the times are in.
        pairs: what is given.
        columns: as said of these pairs; None goes by what is usual.
        usual: names in the run's own data, None where those went by the usual names.
        dates: of the run's own data, see `hopstate.data.dates`.

    Raises:
        DataError: two columns that could be the same thing, none that could, or nothing at all.
    """
    if isinstance(pairs, (str, Path)) or is_frame(pairs):
        table = table_of(pairs, "pairs", 2, past.node_ids)
        names = [str(name) for name in table.frame.columns]
        own = (given or (name if name in names else None) for given, name in zip(columns, usual, strict=True))
        return _from_table(past, table, tuple(own), dates)  # type: ignore[arg-type]
    given = list(pairs)
    if any(isinstance(pair, str) or not isinstance(pair, Sized) or len(pair) != 2 for pair in given):
        raise ShapeError("pairs are a file, a table, or a list of (source, target); in a table they may have times")
    if not given:
        raise DataError("no pairs were given")
    return [pair[0] for pair in given], [pair[1] for pair in given], None


def table_of(given: Any, what: str, num_ids: int, known: Vocabulary | None = None) -> Table:
    """Return a table that is given, or in a file.

    Args:
        given, what: the table, and how messages call it.
        num_ids: so many leading columns hold ids where no name is known.
        known: the run's ids; where they are texts, those of a file are as they are written.
    """
    if isinstance(given, (str, Path)):
        table = read_table(Path(given).expanduser(), [*SOURCES, *TARGETS, *TIMES, *_IDS], num_ids=num_ids)
        return replace(table, text_ids=known is not None and known.is_text)
    return read_table(given, [*SOURCES, *TARGETS, *TIMES, *_IDS], what=f"the table of {what}")


def _from_table(past: StreamState, table: Table, columns: Columns, dates: str) -> tuple[Any, Any, Any]:
    source, target, time = pair_columns(table, columns)
    src, dst = table.ids(source), table.ids(target)
    return src, dst, None if time is None else _file_times(past, table, time, dates)


def pair_columns(table: Table, columns: Columns) -> tuple[str, str, str | None]:
    """Return the columns of sources, targets and times (or None) of a table of pairs; columns are those named.

    Raises:
        DataError: several could be one of them, or none; or the table is empty.
    """
    unnamed = all(str(name).startswith("column ") for name in table.frame.columns)
    wanted = zip(columns, (SOURCES, TARGETS, TIMES), ("source_column", "target_column", "time_column"), strict=True)
    found = [
        _the_column(table, given, known, i if unnamed else None, option, optional=i == 2)
        for i, (given, known, option) in enumerate(wanted)
    ]
    source, target, time = found
    if not len(table.frame):
        raise DataError(f"{table.path} holds no pairs")
    assert source is not None
    assert target is not None
    return source, target, time


def _the_column(
    table: Table, given: str | None, known: Sequence[str], place: int | None, option: str, *, optional: bool
) -> str | None:
    """Return the one column that is meant.

    Raises:
        DataError: several could be, or none.
    """
    names = [str(name) for name in table.frame.columns]
    could = [name for name in names if name.lower() in known]
    if given is None and len(could) > 1:
        raise DataError(
            f"{table.path}: columns {' and '.join(could)} could both be the {option.removesuffix('_column')}; name "
            f"one: --read.{option} {could[0]} ({option} of read in Python)"
        )
    otherwise = place if place is not None and (not optional or place < len(names)) else None
    found = table.column(given, known, otherwise, option)
    if found is None and not optional:
        raise DataError(
            f"{table.path} has no column for the {option.removesuffix('_column')} (known names: {', '.join(known)}); "
            f"it has: {', '.join(names)}. Name it: --read.{option} NAME"
        )
    return found


def _file_times(past: StreamState, table: Table, column: str, dates: str) -> np.ndarray:
    """Return a column of times in the unit of a past's; numbers are in it already."""
    _, t, unit, _ = timed(table, column, "", "error")
    ours = past.time_unit or ""
    if not unit:
        return t
    if ours not in UNITS:
        raise DataError(
            f"{table.path} holds dates, and the run's own times are numbers of a unit that nobody named; give numbers "
            "as its own file has them, or train it with --read.time_unit s (or ms, us, ns)"
        )
    if zone_of(table.frame[column]) == NAIVE:
        t = counted_in(t, unit, dates, f"{table.path}, column {column!r}")
    if UNITS[unit] >= UNITS[ours]:
        return t * (UNITS[unit] // UNITS[ours])
    step = UNITS[ours] // UNITS[unit]
    fine = np.flatnonzero(t % step)
    if len(fine):
        raise DataError(f"{table.path}: the date in {table.place(int(fine[0]))} is finer than a whole {ours}; round it")
    return t // step


def read_ids(given: Any, what: str, known: Vocabulary | None = None) -> np.ndarray:
    """Return ids of a file (of one column, or whose column of ids is named as usual), of a list, or one id.

    Args:
        given, what, known: as in `table_of`.

    Raises:
        DataError: no ids, one that is missing, or several columns that could hold them.
    """
    if not isinstance(given, Path):
        _check_there(given if np.ndim(given) else [given], what)
        found = np.atleast_1d(np.asarray(given))
        if not len(found):
            raise DataError(f"no {what} were given")
        return np.array(list(map(str, found.tolist()))) if found.dtype.kind in "OT" else found
    table = table_of(given, what, 1, known)
    names = [str(name) for name in table.frame.columns]
    could = [name for name in names if name.lower() in _IDS] if len(names) > 1 else names[:1]
    if len(could) != 1:
        raise DataError(
            f"{table.path}: {'columns ' + ' and '.join(could) + ' could all' if could else 'none of its columns can'} "
            f"hold the {what}; give a file with one column of ids (it has: {', '.join(names)})"
        )
    if not len(table.frame):
        raise DataError(f"{table.path} holds no ids")
    return table.ids(could[0])


# ---- times -----------------------------------------------------------------------------------------------
def times_of(past: StreamState, given: Any, count: int, what: str, dates: str = "") -> np.ndarray:
    """Return (count,) times in the past's unit and type; None gives the first after all that is known.

    Args:
        past: what is known.
        given: times, one for all or one each.
        count, what: how many are asked for, and what they are of, for messages.
        dates: in which messages show times, see `hopstate.data.dates`.

    Raises:
        DataError: there is no past, or a time is none.
        ShapeError: not one for each, nor one for all.
        TimeOrderError: a time before the last event that is known.
    """
    if not len(past):
        raise DataError("the run has no past: it has seen no event, so nothing can be asked of it")
    last = past.t[-1]
    if given is None:
        return np.full(count, first_after(last))
    times = np.atleast_1d(np.asarray(given))
    try:
        found = times_in(past, times, dates)
    except ConfigError as error:
        raise ConfigError(f"time of {what}: {error}") from None
    if found.shape not in ((1,), (count,)):
        raise ShapeError(f"one time for each of the {what}, or one for all: got {len(found)} for {count}")
    found = np.broadcast_to(found, (count,)).copy()
    numbers = bool(dates) and times.dtype.kind in "iuf"
    how = f" (numbers count {past.time_unit} since 1970 here, as the run's own dates do)" if numbers else ""
    beyond = numbers & (np.abs(found.astype(np.float64)) > _CENTURIES * 10**9 / UNITS.get(past.time_unit or "", 1))
    if np.any(beyond):
        raise DataError(
            f"{what}, row {int(np.argmax(beyond))}: {found[np.argmax(beyond)]} is no date of this run{how}; "
            "give a date, or a number in that unit"
        )
    early = np.flatnonzero(found < last)
    if len(early):
        asked, end = (shown_time(t, past.time_unit or "", dates) for t in (found[early[0]], last))
        raise TimeOrderError(
            f"{what}, row {early[0]}, are asked for at {asked}, but what is known has events up to {end} "
            f"({len(early)} of {count} times lie before it){how}; ask for later ones, or use predict, which gives what "
            "was known at each of the run's own events"
        )
    return found
