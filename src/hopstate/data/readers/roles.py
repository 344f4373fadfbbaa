"""Roles of columns (source, target, time, ...) and whether sources and targets are one set of nodes.

An option or the column's name sets its role. If two columns match a role, or a table of more than three columns has no
names, an error lists the options.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hopstate.data.labels import split_column_names
from hopstate.data.readers.tables import Table
from hopstate.data.readers.text import role_name
from hopstate.data.vocabulary import as_texts, count_shared
from hopstate.errors import ConfigError, DataError


def _keys(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}{end}" for name in names for end in ("", "_id", "id"))


# of two sets of nodes: who acts, and on what
USERS = _keys("user", "customer", "client", "buyer", "member", "visitor", "viewer", "listener", "reviewer", "reader")
ITEMS = _keys("item", "product", "movie", "song", "track", "book", "article", "merchant", "shop", "ad", "video", "game")
# of one set
SOURCES: tuple[str, ...] = (
    *("u", "head", "node1", "node_1", "from", "from_id", "from_node", "from_user", "source_node", "src_node"),
    *_keys("src", "source", "sender", "caller", "payer", "follower"),
    *USERS,
)
TARGETS: tuple[str, ...] = (
    *("i", "v", "tail", "node2", "node_2", "to", "to_id", "to_node", "to_user", "target_node", "dst_node"),
    *_keys("dst", "target", "destination", "receiver", "recipient", "callee", "payee", "followee", "seller"),
    *ITEMS,
)
TIMES = (
    *("t", "time", "timestamp", "time_stamp", "ts", "unixts", "unix_time", "event_time", "created_at", "when"),
    *("date", "datetime"),
)

TIME_NAME = re.compile(r"(?:.*_)?(?:time|timestamp|stamp|ts|date|datetime|year|month|day|hour|minute|clock|at)|when")

READ_AS = "read as: "

_MAX_LISTED = 10  # columns that a sentence names

_MIN_ROWS = 20  # rows by which a column of two values is no accident

_PLACE = "column "


def find_role_column(
    table: Table, given: str | None, names: Collection[str], option: str, excluded: Collection[str | None] = ()
) -> str | None:
    """Return the column of a role: by option, otherwise by name, or None."""
    if given is not None:
        return table.column(given, (), None, option)
    could = [name for name in table.names if role_name(name) in names and name not in excluded]
    if len(could) > 1:
        raise ambiguous_role_error(table, could, option)
    return could[0] if could else None


def node_type_columns(table: Table, given: str | None) -> tuple[str, ...]:
    """Return the two columns that the option node_type_column names, none without it."""
    columns = split_column_names(table, given, "node_type_column")
    if given is not None and len(columns) != 2:
        raise ConfigError(
            f"node_type_column names two columns, the types of sources and of targets: got {given!r}. Write "
            "--read.node_type_column SOURCE_TYPE,TARGET_TYPE"
        )
    return columns


def ambiguous_role_error(table: Table, could: Sequence[str], option: str) -> DataError:
    what = option.removesuffix("_column")
    return DataError(
        f"{table.path}: columns {', '.join(map(repr, could))} could each be the {what}, and nothing says which; name "
        f"it: --read.{option} {shlex.quote(could[0])} ({option} in Python)"
    )


def is_unnamed(table: Table) -> bool:
    """Return whether a table's columns have no names, only places."""
    return all(name.startswith(_PLACE) for name in table.names)


def check_unnamed(table: Table, given: Mapping[str, str | None], required: Sequence[str]) -> None:
    """Raise DataError if more than three columns have no names and no required option is set."""
    names = table.names
    if not is_unnamed(table) or len(names) <= 3 or any(given[option] is not None for option in required):
        return
    first = ", ".join(f"{name!r} ({table.frame[name].iloc[0]})" for name in names[:_MAX_LISTED] if len(table.frame))
    options = " ".join(f"--read.{option} NAME" for option in given)
    raise DataError(
        f"{table.path} has {len(names)} columns without names: {first}"
        f"{', ...' * (len(names) > _MAX_LISTED)}. Assign them with {options}, with names such as 'column 0', or add a "
        "header line"
    )


def assign_by_position(table: Table, given: Mapping[str, str | None]) -> dict[str, str | None]:
    """Assign columns without names to the options that are not set, in order."""
    rest = iter([name for name in table.names if name not in given.values()])
    return {option: name if name is not None else next(rest, None) for option, name in given.items()}


def check_single_time_column(table: Table, time: str, excluded: Collection[str | None]) -> None:
    """Raise DataError if another column is also named like a time."""
    could = [name for name in table.names if name == time or TIME_NAME.fullmatch(role_name(name))]
    could = [name for name in could if name == time or name not in excluded]
    if len(could) > 1:
        raise ambiguous_role_error(table, could, "time_column")


def check_target(table: Table, target: str, unused: Sequence[str]) -> None:
    """Raise DataError if a column called target holds 0 and 1, so that one of the unused columns may be the target."""
    values = table.frame[target]
    if target.lower() == "target" and unused and len(values) >= _MIN_ROWS and set(values.unique()) <= {0, 1}:
        raise DataError(
            f"{table.path}: column {target!r} holds 0 and 1 alone, so that it may be a label, and "
            f"{', '.join(map(repr, unused[:_MAX_LISTED]))} the target; say which is: --read.target_column {unused[0]} "
            f"--read.label_column {target}, or --read.target_column {target}"
        )


def roles_note(
    table: Table,
    roles: Mapping[str, str | None],
    features: Sequence[str],
    times: str = "",
    sets: str = "",
    *,
    features_name: str = "features",
) -> str:
    """Return the note that lists the role of each column."""
    used = {*features, *roles.values(), *(part.strip() for name in roles.values() if name for part in name.split(","))}
    ignored = [name for name in table.names if name not in used]
    parts = [
        f"{what}={name}{f' ({times})' if what == 'time' and times else ''}" for what, name in roles.items() if name
    ]
    parts.append(f"{features_name}: {_listed(features) or 'none'}")
    note = f"{READ_AS}{', '.join(parts)}{f'; {sets}' if sets else ''}"
    return f"{note}; ignored: {_listed(ignored)}" if ignored else note


def _listed(names: Sequence[str]) -> str:
    more = f", ... ({len(names):,} in all)" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more


ONE, TWO = "one set of nodes", "two sets of nodes"

Bipartite = bool | Literal["auto"]


def bipartite_of(value: Any) -> Bipartite:
    found = {"auto": "auto", "true": True, "false": False}.get(str(value).lower())
    if found is None:
        raise ConfigError(f"read.bipartite is auto, true or false; got {value!r}")
    return found  # type: ignore[return-value]


def bipartite_by_name(source: str, target: str, *, unnamed: bool) -> str:
    """Return `ONE` or `TWO` by the column names, "" if they do not decide; unnamed columns are one set."""
    source, target = role_name(source), role_name(target)
    if source in USERS and target in ITEMS:
        return TWO
    plain = source in SOURCES and source not in USERS and target in TARGETS and target not in ITEMS
    return ONE if unnamed or plain else ""


def bipartite_ids(
    ends: tuple[Any, Any], gone: np.ndarray | None, named: str, bipartite: Bipartite, where: str
) -> tuple[Any, Any, str]:
    """Return source and target ids (E,), with prefixes if the graph is bipartite, and a note.

    gone (E,) marks node deletions, which have the node as source and target. `bipartite_by_name` gives named.
    """
    src, dst = ends
    shared = count_shared(src, dst if gone is None else dst.take(np.flatnonzero(~gone)))
    if bipartite == "auto" and shared and not named and isinstance(src, np.ndarray):
        raise shared_ids_error(where, f"{shared:,} numbers are in both")
    if bipartite is True or (bipartite == "auto" and shared and named == TWO):
        users, items = (add_prefix(letter, ids) for letter, ids in (("u", src), ("i", dst)))
        if gone is not None:
            items = pc.if_else(pa.array(gone), add_prefix("u", dst), items)
        names = f"sources are called u{src[0]} and so on, targets i{dst[0]}"
        return users, items, f"{TWO} ({shared:,} ids in both; {names})"
    return src, dst, ONE if shared or named == ONE else TWO


def add_prefix(letter: str, ids: Any) -> Any:
    return pc.binary_join_element_wise(
        pa.scalar(letter, pa.large_string()), as_texts(ids), pa.scalar("", pa.large_string())
    )


def shared_ids_error(where: str, why: str) -> DataError:
    return DataError(
        f"{where}: {why}, and nothing says whether they are the same nodes; say --read.bipartite false where they are, "
        "true where sources and targets are two sets, as users and items are (bipartite in Python)"
    )
