"""Tables in memory, pandas' or pyarrow's, and arrays, read as the same table in a CSV file is: by way of one.

So a table and its file give the same record to the bit, and the same errors, in which the file's path is the table's
name. A named index is a column, as in a file that pandas writes; one without a name numbers rows and is left out.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.errors import DataError, HopstateError, HopstateWarning
from hopstate.io.files import save_array
from hopstate.io.output import write_table

FILES = {"edges": "the table of edges", "events": "the table of events"}  # stem of a file → how messages call it
FILES |= {"features": "the table of features", "labels": "the table of labels", "x": "the array x"}


def is_frame(value: Any) -> bool:
    """Return whether a value is a table of pandas or pyarrow."""
    return hasattr(value, "columns") and (hasattr(value, "iloc") or hasattr(value, "to_pandas"))


def as_frame(value: Any) -> Any:
    """Return a column of pandas as an array, or with its index as a table if that has a name; others as they are."""
    if is_frame(value) or not hasattr(value, "to_frame"):
        return value
    return value.to_numpy() if value.index.name is None else value.to_frame()


def is_array(value: Any) -> bool:
    """Return whether a value is an array of numpy or a tensor of torch."""
    return isinstance(value, np.ndarray) or (hasattr(value, "detach") and hasattr(value, "numpy"))


@contextmanager
def files_of(tables: Mapping[str, Any]) -> Iterator[dict[str, Path]]:
    """Yield the files of tables and arrays for as long as they are read; errors and warnings name the tables.

    Args:
        tables: a key of `FILES` → table or array.

    Raises:
        DataError: a table that no file can hold; see `write_frame`.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hopstate-", ignore_cleanup_errors=True)))
        stack.enter_context(_told(folder))
        yield {stem: write_held(value, folder, stem) for stem, value in tables.items()}


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Let messages call files in a folder by the tables they hold."""

    def told(text: str) -> str:
        if str(folder) not in text:
            return text
        text = re.sub(r" \(line \d+\)", "", text)  # of the file, which nobody sees
        for stem, name in FILES.items():
            for end in (".csv", ".npy"):
                text = text.replace(str(folder / f"{stem}{end}"), name)
        return text

    said: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield
    except HopstateError as error:
        raise type(error)(told(str(error))) from None
    finally:
        for one in said:
            if issubclass(one.category, HopstateWarning):
                warnings.warn(told(str(one.message)), one.category, stacklevel=6)
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def write_held(value: Any, folder: Path, stem: str) -> Path:
    """Write a table as .csv, an array as .npy, into a folder, and return the file.

    Raises:
        DataError: see `write_frame`; or something that is neither a table nor an array.
        StorageError: it could not be written.
    """
    if is_frame(value):
        path = folder / f"{stem}.csv"
        write_frame(value, path, FILES[stem])
    elif is_array(value):
        path = folder / f"{stem}.npy"
        array = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
        if array.dtype.kind in "OUS" and array.ndim == 1:
            array = array.astype(str)
        elif array.dtype.kind not in "biuf":
            raise DataError(f"{FILES[stem]} is an array of {array.dtype}; give numbers, or a table")
        save_array(path, np.ascontiguousarray(array))
    else:
        raise DataError(
            f"{FILES[stem]} is a {type(value).__name__}; give a file, a table of pandas or pyarrow, or an array"
        )
    return path


def write_frame(frame: Any, path: Path, what: str) -> None:
    """Write a table as a CSV file, as pandas does; columns that are called by numbers become "column 0" and so on.

    Raises:
        DataError: two columns of one name, several levels of names or of the index, an index of texts without a name,
            cells that hold lists, records or bytes, or no column at all.
    """
    table = _plain(frame, what)
    _check_cells(table, what)
    write_table(table, path, raw=True)


def _plain(frame: Any, what: str) -> Any:
    """Return a pandas table whose columns have different texts as names, a named index among them."""
    import pandas as pd

    if not hasattr(frame, "iloc"):
        names = list(getattr(frame, "column_names", frame.columns))
        _check_names(names, what)
        frame = frame.to_pandas(**_whole(frame))
    if frame.columns.nlevels > 1 or frame.index.nlevels > 1:
        which = "names of columns" if frame.columns.nlevels > 1 else "the index"
        raise DataError(f"{what}: {which} have several levels (MultiIndex); flatten them, e.g. by reset_index()")
    index = frame.index
    if index.name is not None:
        if index.name in frame.columns:
            raise DataError(f"{what}: the index and a column are both called {index.name!r}; rename one of them")
        frame = frame.reset_index()
    elif index.dtype.kind not in "iu" and len(index):
        raise DataError(
            f"{what}: its index holds {pd.api.types.infer_dtype(index)} such as {index[0]!r} and has no name; "
            "name it (rename_axis('id')) to take it as a column, or leave it out (reset_index(drop=True))"
        )
    names = [f"column {name}" if isinstance(name, (int, np.integer)) else str(name) for name in frame.columns]
    if not names:
        raise DataError(f"{what} has no columns")
    _check_names(names, what)
    return frame.set_axis(names, axis=1)


def _check_names(names: list[Any], what: str) -> None:
    twice = sorted({str(name) for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataError(f"{what} has two columns of the same name: {', '.join(twice)}")


def _whole(table: Any) -> dict[str, Any]:
    """Return the options by which whole numbers with gaps stay whole on the way from pyarrow to pandas."""
    import pandas as pd

    kinds = {f"{sign}int{size}": getattr(pd, f"{sign[:1].upper()}Int{size}Dtype")() for sign in ("", "u")
             for size in (8, 16, 32, 64)}  # fmt: skip
    return {"types_mapper": lambda kind: kinds.get(str(kind))} if hasattr(table, "schema") else {}


def _check_cells(table: Any, what: str) -> None:
    """Raise DataError for a column whose cells are no texts, numbers or dates."""
    import pandas as pd

    for name, column in table.items():
        if column.dtype.kind == "c":
            raise DataError(f"{what}: column {name!r} holds complex numbers; give their parts as two columns")
        if column.dtype != object:
            continue
        inferred = pd.api.types.infer_dtype(column, skipna=True)
        if inferred not in ("bytes", "mixed"):
            continue
        for row, cell in enumerate(column):  # few: most mixtures are called by what they mix
            if isinstance(cell, bytes) or pd.api.types.is_list_like(cell):
                raise DataError(
                    f"{what}: column {name!r} holds a {type(cell).__name__} in row {row}; a table has one text, number "
                    "or date in each cell"
                )


__all__ = ["FILES", "as_frame", "files_of", "is_array", "is_frame", "write_held"]
