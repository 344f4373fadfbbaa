"""Read the relations of events and edges, and the types of their nodes, from columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hopstate.data.events import GONE
from hopstate.data.readers.encode import category_texts
from hopstate.data.readers.tables import Table
from hopstate.errors import DataError

IGNORED = "none"  # in place of a column of relations or types: events of a typed source are read as untyped
MAX_RELATIONS = 10_000
_INTEGER = re.compile(r"[+-]?\d{1,18}")


def relations_of(table: Table, column: str, kinds: np.ndarray | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return relations (E,) of a column and their sorted names; deleted nodes have none."""
    texts = category_texts(table, column).to_numpy(object)
    needed = np.ones(len(texts), bool) if kinds is None else kinds != GONE
    table.check((texts == "") & needed, column, "no relation", "Fill it in, or remove the row.")
    names = names_of_types([texts[needed]])
    check_num_types(names, f"{table.path}: column {column!r}")
    codes = codes_of_types(texts, names)
    return np.where(needed, codes, 0).astype(np.int32), names


def node_types_of(
    table: Table, columns: Sequence[str], ends: tuple[np.ndarray, np.ndarray], num_nodes: int
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the types (N,) of nodes by two columns, -1 where all cells of a node are empty, and their names."""
    texts = [category_texts(table, column).to_numpy(object) for column in columns]
    names = names_of_types(texts)
    check_num_types(names, f"{table.path}: columns {', '.join(columns)}")
    found = np.full(num_nodes, -1, np.int16)
    codes = [codes_of_types(column, names) for column in texts]
    for nodes, types in zip(ends, codes, strict=True):
        found[nodes[types >= 0]] = types[types >= 0]
    for column, nodes, types in zip(columns, ends, codes, strict=True):
        other = (types >= 0) & (types != found[nodes])
        table.check(other, column, "a node has a second type", "Give each node one type.")
    return found, names


def check_num_types(names: Sequence[str], where: str) -> None:
    if len(names) > MAX_RELATIONS:
        raise DataError(
            f"{where}: too many relations or types: got {len(names):,} different values, {names[0]!r} among them. Name "
            f"a column with at most {MAX_RELATIONS:,}"
        )


def names_of_types(columns: Sequence[np.ndarray]) -> tuple[str, ...]:
    """Return the different texts of columns, sorted; whole numbers by value."""
    texts = sorted({text for column in columns for text in set(column.tolist())} - {""})
    whole = all(_INTEGER.fullmatch(text) for text in texts)
    return tuple(sorted(texts, key=int) if whole else texts)


def codes_of_types(texts: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Return (E,) the number of each text among names, -1 for others."""
    import pandas as pd

    place = {name: number for number, name in enumerate(names)}
    codes, names_found = pd.factorize(texts)
    return np.array([place.get(text, -1) for text in names_found], np.int32)[codes]
