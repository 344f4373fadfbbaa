"""Where a run begins: the folder it is given, or a new one, and nothing of it left where it is refused."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

from hopstate.errors import HopstateError
from hopstate.io.files import locked, make_folder, named_errors, remove_file, replace_file
from hopstate.training.ranks import Ranks
from hopstate.training.run_folder import LEFT, RunFolder

SAVED = ("checkpoint.safetensors", "result.json")
FIRST = ("metrics.jsonl", "metrics.csv", "tensorboard/*", "logger-*.json")  # what the loop makes before its first step


@contextlib.contextmanager
def begun(out: str | Path | None, method: str, data: str) -> Iterator[Path]:
    """Yield the folder out, or a new one under runs/; folders that were not there and are empty after an error go.

    Args:
        out: the folder, or None.
        method, data: name a new one.
    """
    base = _base(method, data).parent if out is None else Path(out)
    missing = [path for path in (base, *base.parents) if not path.exists()]
    folder = new_folder(method, data) if out is None else Path(out)
    try:
        yield folder
    except BaseException:
        for path in (folder, *missing) if out is None else missing:
            with contextlib.suppress(OSError):  # it holds something
                path.rmdir()
        raise


@contextlib.contextmanager
def held(out: str | Path | None, method: str, data: str, ranks: Ranks) -> Iterator[Path]:
    """Yield the folder of a run that begins, which is held, and put back as it was where the run is refused.

    Rank 0 does all that; the others take the folder that it tells them.

    Args:
        out, method, data: as in `begun`.
        ranks: this process's place.

    Raises:
        BusyError: another process is training in that folder.
    """
    if not ranks.first:
        yield Path(ranks.broadcast(str))
        return
    with begun(out, method, data) as folder, locked(folder), undone_if_refused(RunFolder(folder)):
        ranks.broadcast(lambda: str(folder))
        yield folder


@contextlib.contextmanager
def undone_if_refused(run: RunFolder) -> Iterator[None]:
    """Put a folder back as it was where what follows is refused, or fails before an epoch or a checkpoint of it.

    Who uses it holds the folder's lock. A folder of other things is left alone: no run begins there.
    """
    if not (run.never_trained() or (run.path / "config.json").is_file()):
        yield
        return
    before, stood = _own(run.path), _saved(run.path)
    folders = _folders(run.path)
    kept = {file: file.read_bytes() for file in before if file.suffix == ".json" and file.parent == run.path}
    try:
        yield
    except Exception:  # a run that Ctrl-C stopped may go on
        if _saved(run.path) == stood:
            with contextlib.suppress(OSError, HopstateError):  # of a failing disk; what came first is told
                _undo(run.path, before, kept, folders)
        raise


def _undo(run: Path, before: set[Path], kept: dict[Path, bytes], folders: set[Path]) -> None:
    for file in _own(run) - before:
        remove_file(file)
    for file, held in kept.items():
        if not file.is_file() or file.read_bytes() != held:
            replace_file(file, partial(_put, held))
    for path in sorted(_folders(run) - folders, reverse=True):
        with contextlib.suppress(OSError):  # it holds something
            path.rmdir()


def _put(held: bytes, part: Path) -> None:
    part.write_bytes(held)


def _own(folder: Path) -> set[Path]:
    found = (path for pattern in (*LEFT, *FIRST) for path in folder.glob(pattern))
    return {path for path in found if path.is_file() and not path.is_symlink()}


def _folders(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_dir()}


def _saved(folder: Path) -> list[tuple[int, int]]:
    """Return what tells whether something was trained: checkpoint and result, and rows of metrics."""
    stats = [(folder / name).stat() for name in SAVED if (folder / name).is_file()]
    rows = folder / "metrics.jsonl"
    return [*((s.st_mtime_ns, s.st_size) for s in stats), (0, rows.stat().st_size if rows.is_file() else 0)]


def _base(method: str, data: str) -> Path:
    stem = f"{method}-{Path(data).stem or 'data'}".replace(":", "-")
    return Path(os.environ.get("HOPSTATE_RUNS", "runs")) / f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"


def new_folder(method: str, data: str) -> Path:
    base = _base(method, data)
    path, number = base, 1
    make_folder(base.parent)
    while True:
        with named_errors(path), contextlib.suppress(FileExistsError):
            path.mkdir()  # two processes of one second get two folders
            return path
        number += 1
        path = base.with_name(f"{base.name}-{number}")
