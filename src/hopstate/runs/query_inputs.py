"""Parse ids, pairs and times of queries into rows and times of a stream state."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.dates import NAIVE, UNITS, as_utc_times, format_time, format_times, parse_times, zone_of
from hopstate.data.events import renumbered
from hopstate.data.readers.encode import category_texts
from hopstate.data.readers.roles import (
    SOURCES,
    TARGETS,
    TIMES,
    assign_by_position,
    find_role_column,
    is_unnamed,
)
from hopstate.data.readers.tables import Table, is_frame, read_table, to_integer_ids
from hopstate.data.readers.times import parse_time_column
from hopstate.data.stream_state import StreamState, in_unit
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import (
    ConfigError,
    DataError,
    HopstateWarning,
    MissingFileError,
    ShapeError,
    TimeOrderError,
    nearest,
)
from hopstate.io.files import check_output
from hopstate.io.output import check_table_path
from hopstate.runs.saved_run import SavedRun
from hopstate.training.tasks.events import to_user_ids

if TYPE_CHECKING:
    import pandas as pd

    from hopstate.data.events import EventStream


def plain_table(given: Any) -> Any:
    """Return a mapping as a DataFrame, and a DataFrame without an index that holds no column."""
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


def in_input_order(
    columns: Mapping[str, Any], record: EventStream, given: Any, unit: str, dates: str, *, include_unscored: bool
) -> pd.DataFrame:
    """Return predictions of events in the order, index and time format of the user's table.

    Args:
        columns: columns of predictions; "row" is the row of the table.
        record: the table's events.
        given: the table.
        unit, dates: of the times in columns, see `EventStream`.
        include_unscored: include rows without a prediction (deletions, missing times), with missing values.
    """
    import pandas as pd

    table = pd.DataFrame(columns).set_index("row").sort_index(kind="stable")
    table["t"] = format_times(table["t"].to_numpy(), unit, dates)
    length = record.file_length if record.file_length >= 0 else int(_is_in_file(record).sum())
    if include_unscored and len(table) < length:
        table = _filled(table, record, length, unit, dates)
    if isinstance(given, pd.DataFrame) and len(given) == length:
        return table.set_axis(given.index[table.index])
    return table.reset_index(drop=True)


def _filled(table: pd.DataFrame, record: EventStream, length: int, unit: str, dates: str) -> pd.DataFrame:
    """Return a table with a row for each of the user's; those without an answer have their ids and times at most."""
    import pandas as pd

    events = in_unit(record, unit)
    rows = np.flatnonzero(_is_in_file(events))
    known = to_user_ids(events, rows) | {"t": format_times(events.t[rows], unit, dates)}
    known["node"] = known["src"]
    given = pd.DataFrame({name: known[name] for name in known if name in table}, index=events.in_file(rows))
    whole = {name: column.dtype for name, column in {**table, **given}.items() if column.dtype.kind in "iu"}
    table = table.astype(dict.fromkeys(whole, "Int64")).reindex(range(length))
    for name, column in given.items():
        table[name] = table[name].fillna(column.astype(table[name].dtype).reindex(range(length)))
    return table


def _is_in_file(record: EventStream) -> np.ndarray:
    """Return (E,) which events are rows of the user's; deletions that follow from that of a node are not."""
    return record.in_file(np.arange(len(record))) >= 0


def check_table(out: str | Path | None, run: SavedRun, data: Any, read: Mapping[str, Any] | None, *more: Any) -> None:
    """Check that a table can be written and overwrites no input file."""
    if out is None:
        return
    check_table_path(out)
    settings = run.method_settings()
    files = [value for options in (settings.get("read") or {}, read or {}) for value in options.values()]
    check_output(Path(out), settings.get("data"), data, *files, *more)


Columns = tuple[str | None, str | None, str | None, str | None]  # of source, target, time and relation
NO_COLUMNS: Columns = (None, None, None, None)

_WHOLE = re.compile("[+-]?[0-9]{1,18}")  # always fits 64 bits
_IDS = ("id", "node", "node_id", "source", "target", "src", "dst", "user", "item")
_SECONDS_OF_DATES = 292 * 31_557_600  # dates reach from 1970 to 2262
_LAST_TIME = np.iinfo(np.int64).max
_SHOWN = 5  # ids named in a warning


# ---- nodes -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class QueryNodes:
    """Nodes of a query.

    Args:
        names: (q,) the user's ids.
        rows: (q,) int64 rows in the state, -1 for ids that it does not know.
        seen: (q,) whether the node has an event in the state.
    """

    names: np.ndarray
    rows: np.ndarray
    seen: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    def at(self, places: np.ndarray) -> QueryNodes:
        return QueryNodes(self.names[places], self.rows[places], self.seen[places])

    @staticmethod
    def join(parts: Sequence[QueryNodes]) -> QueryNodes:
        return QueryNodes(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("names", "rows", "seen"))
        )


def resolve_nodes(past: StreamState, names: Any, what: str, *, two_sets: bool = False) -> QueryNodes:
    """Return the nodes of ids. In bipartite data with prefixed ids (two_sets), 7 is u7 as a source and otherwise i7."""
    _check_no_missing(names, what)
    given = _texts_of_objects(np.asarray(names))
    if given.ndim != 1:
        raise ShapeError(f"{what} are a list of ids; got an array of shape {given.shape}")
    ids = past.node_ids
    if ids is not None and ids.is_text:
        given, rows = _text_rows(ids, given.astype(str), ("u" if what == "sources" else "i") if two_sets else "")
        return QueryNodes(given, rows, rows >= 0)
    given = _numbers(given, what)
    if ids is not None:
        rows = ids.rows(given)
        return QueryNodes(given, rows, rows >= 0)
    rows = np.where((given >= 0) & (given < past.num_nodes), given, -1)
    seen = rows >= 0
    if seen.any():
        sent, received = past.ever_active()
        seen[seen] = (sent | received)[rows[seen]]
    return QueryNodes(given, rows, seen)


def _text_rows(ids: Vocabulary, given: np.ndarray, letter: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (q,) ids as the vocabulary spells them, and their rows: spaces around an id do not count, as in files."""
    rows = ids.rows(given)
    stripped = np.char.strip(given)
    for spelling in (stripped, np.char.add(letter, stripped)) if (rows < 0).any() else ():
        found = ids.rows(spelling)
        better = (rows < 0) & (found >= 0)
        given, rows = np.where(better, spelling, given), np.where(better, found, rows)
    return given, rows


def _check_no_missing(names: Any, what: str) -> None:
    import pandas as pd

    missing = np.asarray(pd.isna(names if np.ndim(names) else [names]))
    if missing.ndim == 1 and missing.any():
        at = int(np.argmax(missing))
        raise DataError(f"{what} hold no id in place {at + 1}: {list(names)[at]}")


def _texts_of_objects(given: np.ndarray) -> np.ndarray:
    return np.array(list(map(str, given.tolist()))) if given.ndim == 1 and given.dtype.kind in "OT" else given


def _numbers(given: np.ndarray, what: str) -> np.ndarray:
    if given.dtype.kind == "U":
        for name in given.tolist():
            if not _WHOLE.fullmatch(name.strip()):
                raise DataError(f"{what}: the run's nodes are numbers; got {name!r}. Give ids as in its own data")
        return np.array([int(name) for name in given.tolist()], np.int64)
    if given.dtype.kind == "b":
        raise DataError(f"{what}: the run's nodes are numbers; got true and false")
    return to_integer_ids(given, f"{what}: id", lambda row: f"row {row}")


def pair_rows(past: StreamState, src: QueryNodes, dst: QueryNodes) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of pairs; an unknown node gets the row that its first event would give it.

    Those are the rows num_nodes and, for the second of two unknown nodes, num_nodes + 1.
    """
    u = np.where(src.rows < 0, past.num_nodes, src.rows)
    both = (src.rows < 0) & (dst.rows < 0) & (src.names != dst.names)
    return u, np.where(dst.rows < 0, past.num_nodes + both, dst.rows)


def warn_unseen(past: StreamState, *groups: QueryNodes) -> None:
    """Warn of nodes without an event; name the first, each with the nearest known id."""
    names = list(dict.fromkeys(name for group in groups for name in group.names[~group.seen].tolist()))
    if not names:
        return
    known = past.node_ids.first() if past.node_ids is not None and past.node_ids.is_text else ()
    hints = (nearest(str(name), known).replace("; did", " (did").replace("?", "?)") for name in names[:_SHOWN])
    quoted = [f"{name!r}{hint}" for name, hint in zip(names, hints)]
    warnings.warn(
        f"{len(names)} of the given ids have no events: {_join_names(quoted, len(names))}. They are scored as unseen "
        "nodes, with an empty history and zero features",
        HopstateWarning,
        stacklevel=4,
    )


def _join_names(names: Sequence[str], count: int) -> str:
    return ", ".join(names) + (f" and {count - len(names)} more" if count > len(names) else "")


# ---- tables of pairs and ids ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Pairs:
    """Pairs as given: ids of sources and targets, and the table and columns of their times and relations, if any."""

    source: Any
    target: Any
    table: Table | None = None
    time: str | None = None
    relation: str | None = None

    def relations(self) -> list[str] | None:
        """Return the names of the pairs' relations; None without such a column."""
        if self.table is None or self.relation is None:
            return None
        return category_texts(self.table, self.relation).tolist()

    def times(self, past: StreamState, dates: str) -> np.ndarray | None:
        """Return the times in the unit of a state; None without such a column."""
        if self.table is None or self.time is None:
            return None
        return _column_times(past, self.table, self.time, dates)


def read_pairs(
    pairs: Any, columns: Columns, usual: Columns = NO_COLUMNS, vocabulary: Vocabulary | None = None
) -> Pairs:
    """Return the pairs of a file, a table, an array or a list; usual columns are those of the run's own data."""
    if isinstance(pairs, (str, Path)) or is_frame(pairs):
        table = _table_of(pairs, "pairs", 2, vocabulary)
        chosen = [given or (name if name in table.names else None) for given, name in zip(columns, usual, strict=True)]
        source, target, time = _pair_columns(table, chosen[:3])
        relation = find_role_column(table, chosen[3], ("relation",), "relation_column")
        return Pairs(table.ids(source), table.ids(target), table, time, relation)
    given = list(pairs)
    if any(isinstance(pair, str) or not isinstance(pair, Sized) or len(pair) != 2 for pair in given):
        raise ShapeError("pairs are a file, a table, or a list of (source, target); in a table they may have times")
    if not given:
        raise DataError("no pairs were given")
    return Pairs([pair[0] for pair in given], [pair[1] for pair in given])


def _table_of(given: Any, what: str, num_ids: int, vocabulary: Vocabulary | None) -> Table:
    """Return a table in memory or in a file; num_ids leading columns hold ids if no name is known."""
    names = [*SOURCES, *TARGETS, *TIMES, *_IDS]
    if isinstance(given, (str, Path)):
        table = read_table(Path(given).expanduser(), names, num_ids=num_ids)
        return replace(table, text_ids=vocabulary is not None and vocabulary.is_text)
    return read_table(given, names, what=f"the table of {what}")


def _pair_columns(table: Table, columns: Sequence[str | None]) -> tuple[str, str, str | None]:
    """Return the columns of source, target and time, by the names given, the usual names, or the order."""
    given = dict(zip(("source_column", "target_column", "time_column"), columns, strict=True))
    given = assign_by_position(table, given) if is_unnamed(table) else given
    found: dict[str, str | None] = {}
    for (option, name), known in zip(given.items(), (SOURCES, TARGETS, TIMES), strict=True):
        found[option] = find_role_column(table, name, known, option)
        if found[option] is None and option != "time_column":
            raise DataError(
                f"{table.path} has no column for the {option.removesuffix('_column')} (known names: "
                f"{', '.join(known[:10])}, ...); it has: {', '.join(table.names)}. Name it: --read.{option} NAME"
            )
    if not len(table.frame):
        raise DataError(f"{table.path} holds no pairs")
    source, target, time = found.values()
    assert source is not None
    assert target is not None
    return source, target, time


def read_ids(given: Any, what: str, vocabulary: Vocabulary | None = None) -> np.ndarray:
    """Return ids of a file (a `Path`), of a list, or one id."""
    if not isinstance(given, Path):
        _check_no_missing(given if np.ndim(given) else [given], what)
        ids = np.atleast_1d(np.asarray(given))
        if not len(ids):
            raise DataError(f"no {what} were given")
        return _texts_of_objects(ids)
    if not given.expanduser().exists():
        raise MissingFileError(f"{what}: no file at {given}. Give a file with one column of ids")
    table = _table_of(given, what, 1, vocabulary)
    names = table.names
    matching = [name for name in names if name.lower() in _IDS] if len(names) > 1 else names[:1]
    if len(matching) != 1:
        raise DataError(
            f"{table.path}: got {len(matching)} columns that could hold the {what} in {', '.join(names)}. Give a file "
            "with one column of ids"
        )
    if not len(table.frame):
        raise DataError(f"{table.path} holds no ids")
    return table.ids(matching[0])


# ---- relations -----------------------------------------------------------------------------------------------
def query_relations(past: StreamState, given: Any, count: int, what: str) -> np.ndarray | None:
    """Return (count,) relations of names, one for all or one each; None if the run's events have none."""
    known = past.relation_names
    if not known:
        if given is not None:
            raise ConfigError(f"relation: the run's events have none: got {given!r}. Leave it out")
        return None
    if given is None and len(known) > 1:
        raise ConfigError(
            f"relation: got none, and the run's events have {len(known)}: {', '.join(known[:10])}"
            f"{', ...' * (len(known) > 10)}. Give one of them, or one for each of the {what}"
        )
    names = np.atleast_1d(np.asarray(known[0] if given is None else given)).astype(str)
    if names.shape not in ((1,), (count,)):
        raise ShapeError(f"one relation for each of the {what}, or one for all: got {len(names)} for {count}")
    distinct, place = np.unique(names, return_inverse=True)
    codes = renumbered(np.arange(len(distinct), dtype=np.int32), tuple(distinct.tolist()), known, what)
    return np.broadcast_to(codes[place.ravel()], (count,)).copy()


# ---- times ---------------------------------------------------------------------------------------------------
def _column_times(past: StreamState, table: Table, column: str, dates: str) -> np.ndarray:
    _, t, unit, _ = parse_time_column(table, column, "", drop_missing=False)
    if not unit:
        return t
    ours = past.time_unit or ""
    if ours not in UNITS:
        raise DataError(
            f"{table.path} holds dates, but the run's own times are numbers of an unknown unit. Give numbers as in its "
            "own file, or train it with --read.time_unit s (or ms, us, ns)"
        )
    if zone_of(table.frame[column]) == NAIVE:
        t = as_utc_times(t, unit, dates, f"{table.path}, column {column!r}")
    if UNITS[unit] >= UNITS[ours]:
        return t * (UNITS[unit] // UNITS[ours])
    step = UNITS[ours] // UNITS[unit]
    fine = np.flatnonzero(t % step)
    if len(fine):
        raise DataError(f"{table.path}: the date in {table.place(int(fine[0]))} is finer than a whole {ours}; round it")
    return t // step


def query_times(past: StreamState, given: Any, count: int, what: str, dates: str = "") -> np.ndarray:
    """Return (count,) times in a state's unit and type, one for all or one each; None is the first after its last."""
    if not len(past):
        raise DataError("the run has seen no event, so it cannot be queried")
    last = past.t[-1]
    if given is None:
        return np.full(count, next_time(last))
    times = np.atleast_1d(np.asarray(given))
    parsed = parse_query_times(past, times, dates)
    if parsed.shape not in ((1,), (count,)):
        raise ShapeError(f"one time for each of the {what}, or one for all: got {len(parsed)} for {count}")
    parsed = np.broadcast_to(parsed, (count,)).copy()
    numbers = bool(dates) and times.dtype.kind in "iuf"
    how = f" (numbers count {past.time_unit} since 1970, as the run's own dates do)" if numbers else ""
    limit = _SECONDS_OF_DATES * 10**9 / UNITS.get(past.time_unit or "", 1)
    beyond = np.abs(parsed.astype(np.float64)) > limit
    if numbers and beyond.any():
        row = int(np.argmax(beyond))
        raise DataError(f"{what}, row {row}: not a date of this run: got {parsed[row]}{how}. Give a date")
    early = np.flatnonzero(parsed < last)
    if len(early):
        early_text, last_text = (format_time(t, past.time_unit or "", dates) for t in (parsed[early[0]], last))
        raise TimeOrderError(
            f"{what}, row {early[0]}: the time {early_text} is before the last known event at {last_text} "
            f"({len(early)} of {count} times are){how}. Give later times, or use predict, which scores the run's events"
        )
    return parsed


def parse_query_times(past: StreamState, t: np.ndarray, dates: str, *, fractions: bool = False) -> np.ndarray:
    """Return times in the unit and type of a state's; dates without a zone are in that of the run's own data.

    If fractions is true, times that have some stay floats although the state's are whole numbers.
    """
    kind = past.time_dtype if len(past) else t.dtype
    if t.dtype.kind in "OUM":
        values = list(t) if t.dtype.kind == "M" else t.tolist()
        t = np.array(parse_times(values, past.time_unit or "", dates, "the run's events"))
    if t.dtype.kind == "O" and all(isinstance(value, int) for value in t.tolist()):
        t = t.astype(np.float64)  # beyond 64 bits, which is an error below
    if t.dtype.kind not in "iuf":
        raise DataError(f"times are numbers in the unit of the run's own data, or dates; got {t.dtype}")
    wrong = ~np.isfinite(t)
    if fractions and t.dtype.kind == "f" and not wrong.any() and (t != np.floor(t)).any():
        kind = t.dtype
    if kind.kind != "f":
        if t.dtype.kind == "f":
            wrong |= (t != np.floor(t)) | (t >= 2.0**63) | (t < -(2.0**63))  # 2.0**63 is the first float beyond int64
        else:
            wrong |= t > _LAST_TIME
    if wrong.any():
        number = "a finite number" if kind.kind == "f" else "a whole number"
        raise DataError(f"not a time of this run: got {t[np.argmax(wrong)]}. Each of its own events has {number}")
    return t.astype(kind)


def next_time(last: Any) -> Any:
    """Return the first time after a time, a NumPy number of its type."""
    if last == _LAST_TIME:
        raise TimeOrderError(f"the last known event is at {last}, the largest time there is")
    return last.dtype.type(last + 1 if last.dtype.kind == "i" else np.nextafter(last, np.inf))
