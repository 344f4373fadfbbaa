"""What came of preparing a source: a whole store, or nothing of it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopstate.data.event_store import META, VERSION, WORK
from hopstate.data.store import META as GRAPH_META
from hopstate.data.store import VERSION as GRAPH_VERSION
from hopstate.errors import ConfigError, DataError, FormatError, HopstateError, StorageError
from hopstate.io.opening import exists
from hopstate.io.tensors import load_npy

BAD_ROWS = "bad_rows.csv"
MARKERS = {"events": META, "edges": GRAPH_META}  # what comes last, by what a row is


@dataclass(frozen=True)
class Prepared:
    """What came of a source.

    Args:
        path: the store.
        events, nodes: how many it holds; for edges, how many stored ones.
        bad: rows that were left out.
        bad_rows: the file that they stand in, None where there is none.
        notes: sentences on how the table was read.
    """

    path: Path
    events: int
    nodes: int
    bad: int
    bad_rows: Path | None
    notes: tuple[str, ...] = ()


def refuse_other(out: Path, kind: str) -> None:
    """Raise StorageError, with what is to be done, where a folder holds neither a store of a kind nor the work on one.

    Args:
        out: the folder.
        kind: of `MARKERS`.
    """
    if not out.exists() or exists(out / MARKERS[kind]) or (out / WORK).is_dir():
        return
    if not out.is_dir():
        raise StorageError(f"{out} is a file; choose a folder for the store")
    for other, marker in MARKERS.items():
        if exists(out / marker):
            raise StorageError(f"{out} holds a store of {other}, not of {kind}; choose another folder")
    names = sorted(path.name for path in out.iterdir())
    parts = [name for name in names if name.endswith(".npy")]
    if parts:
        raise StorageError(
            f"{out} is a half-written store: {parts[0]} is there, and neither {MARKERS[kind]}, which is written last, "
            f"nor the folder {WORK}, from which preparing goes on; remove it and prepare again, or choose another one"
        )
    if names:
        raise StorageError(f"{out} exists and holds no store; choose another folder")


@contextlib.contextmanager
def nothing_half(out: Path) -> Iterator[None]:
    """Take away what was written where the source cannot become a store: other files or options begin anew."""
    try:
        yield
    except (DataError, FormatError, ConfigError):
        shutil.rmtree(out / WORK, ignore_errors=True)
        for path in out.iterdir():
            if path.suffix == ".npy" or path.name == BAD_ROWS:
                path.unlink()
        raise


@contextlib.contextmanager
def no_empty_folder(out: Path) -> Iterator[None]:
    """Take a folder that was made for a store away again, where the source cannot become one."""
    there = out.exists()
    try:
        yield
    except (DataError, FormatError, ConfigError):
        if not there:
            with contextlib.suppress(OSError):  # what holds something stays
                out.rmdir()
        raise


def prepared_of(out: Path, edges: bool, meta: dict[str, Any]) -> Prepared:
    """Return what a finished store holds.

    Raises:
        FormatError: it is of another version, or an array is missing or shorter than it was.
    """
    version = GRAPH_VERSION if edges else VERSION
    if meta.get("version") != version:
        raise FormatError(
            f"{out} is a store of format {meta.get('version')}; this hopstate writes {version}: choose another folder"
        )
    bad = meta["prepared"]["bad"]
    try:
        arrays = {name: load_npy(out / f"{name}.npy", mmap=True) for name in meta["arrays"]}
        count = len(arrays["indices" if edges else "t"])
    except (HopstateError, KeyError) as error:
        raise FormatError(
            f"{out} is no longer the store that was written: {error}; delete it and prepare it again"
        ) from None
    return Prepared(out, count, meta["num_nodes"], bad, out / BAD_ROWS if bad else None, tuple(meta.get("notes", ())))
