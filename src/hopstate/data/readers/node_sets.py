"""Whether the two ends of events are nodes of one set, or of two whose ids only look alike, as users and items do."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from hopstate.data.readers.roles import ITEMS, SOURCES, TARGETS, USERS
from hopstate.data.vocabulary import TEXT, count_shared
from hopstate.errors import ConfigError, DataError

ONE, TWO = "one set of nodes", "two sets of nodes"
Bipartite = bool | Literal["auto"]


def bipartite_of(value: Any) -> Bipartite:
    """Return the option, of which texts are words of a command.

    Raises:
        ConfigError: it is another.
    """
    found = {"auto": "auto", "true": True, "false": False}.get(str(value).lower())
    if found is None:
        raise ConfigError(f"read.bipartite is auto, true or false; got {value!r}")
    return found  # type: ignore[return-value]


def sets_by_name(source: str, target: str, *, unnamed: bool) -> str:
    """Return `ONE` or `TWO` as names of columns say, "" where they do not; columns without names are one set."""
    source, target = source.lower(), target.lower()
    if source in USERS and target in ITEMS:
        return TWO
    plain = source in SOURCES and source not in USERS and target in TARGETS and target not in ITEMS
    return ONE if unnamed or plain else ""


def in_sets(
    ends: tuple[np.ndarray, np.ndarray], gone: np.ndarray | None, named: str, bipartite: Bipartite, where: str
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return ids of sources and targets (E,), with a letter in front where they are two sets, and what is said of it.

    Args:
        ends: both, as they are written.
        gone: events that delete their source, which stands as the target too, or None.
        named: see `sets_by_name`.
        bipartite: as the user says; True always puts letters in front.
        where: how messages call the columns.

    Raises:
        DataError: the same numbers in both, and nothing says whether they are the same nodes.
    """
    src, dst = ends
    met = slice(None) if gone is None else ~gone
    shared = count_shared(src, dst[met])
    if bipartite == "auto" and shared and not named and src.dtype.kind == "i":
        raise shared_ids(where, f"{shared:,} numbers are in both")
    if bipartite is True or (bipartite == "auto" and shared and named == TWO):
        users, items = (np.strings.add(letter, ids.astype(TEXT)) for letter, ids in (("u", src), ("i", dst)))
        if gone is not None:
            items = np.where(gone, np.strings.add("u", dst.astype(TEXT)), items)
        names = f"sources are called u{src[0]} and so on, targets i{dst[0]}"
        return users, items, f"{TWO} ({shared:,} ids in both; {names})"
    return src, dst, ONE if shared or named == ONE else TWO


def shared_ids(where: str, why: str) -> DataError:
    """Return the error that asks whether two columns hold ids of one set of nodes or of two."""
    return DataError(
        f"{where}: {why}, and nothing says whether they are the same nodes; say --read.bipartite false where they are, "
        "true where sources and targets are two sets, as users and items are (bipartite in Python)"
    )


__all__ = ["ONE", "TWO", "Bipartite", "bipartite_of", "in_sets", "sets_by_name", "shared_ids"]
