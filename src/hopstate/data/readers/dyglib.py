"""Published formats of events: DyGLib's triple, JODIE's CSV, and TGB's archives of links.

The pickled negatives in TGB's archives are never opened. Source: Huang et al. 2023, arXiv:2307.01026; the layouts that
py-tgb 2.3.0 reads.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.readers import event_tables
from hopstate.data.readers.ids import EXACT, whole_numbers
from hopstate.data.readers.roles import ONE, READ_AS, TWO
from hopstate.data.readers.tables import stem_of
from hopstate.data.readers.times import check_digits
from hopstate.data.validate import beyond_clock, check_num_nodes, why_beyond
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError, FormatError, MissingFileError
from hopstate.io.opening import Bounded, bounded, check_regular, check_size, exists, reading
from hopstate.io.tensors import load_npy

if TYPE_CHECKING:
    import pandas as pd


def read_dyglib(path: Path, **fields: Any) -> EventStream:
    """Return the events of DyGLib's triple ml_X.csv, ml_X.npy (edge features) and ml_X_node.npy (node features).

    Ids start from 1 there, and both feature arrays have a row 0 of zeros; here rows start from 0 and the user's ids
    are kept in node_ids. Missing feature files are read as no features.

    Args:
        path: the .csv, or the folder that holds one.

    Raises:
        MissingFileError: no such file.
        FormatError: columns or arrays that are not DyGLib's.
        DataError: features that do not match the events.
    """
    path = _dyglib_csv(path)
    table = _csv(path, "DyGLib's CSV")
    missing = [name for name in ("u", "i", "ts", "idx") if name not in table]
    if missing:
        raise FormatError(f"{path} is not DyGLib's: no column {', '.join(missing)}; it has {', '.join(table.columns)}")
    if not len(table):
        raise DataError(f"{path} holds no events")
    u, i, index = (_whole(table, name, path) for name in ("u", "i", "idx"))
    if min(u.min(), i.min()) < 1:
        raise DataError(f"{path}: DyGLib's ids start from 1; the smallest is {min(u.min(), i.min())}")
    largest = int(max(u.max(), i.max()))
    edge, node = (_feature_rows(path.with_name(f"{path.stem}{end}.npy")) for end in ("", "_node"))
    if edge is not None and not (len(edge) > index.max() and index.min() >= 0):
        raise DataError(f"{path.stem}.npy has {len(edge)} rows, but idx reaches {index.max()}; they do not match")
    if node is not None and len(node) <= largest:
        raise DataError(f"{path.stem}_node.npy has {len(node)} rows, but ids reach {largest}; they do not match")
    num_nodes = largest if node is None else len(node) - 1
    if node is None:
        check_num_nodes(num_nodes, len(table), str(path), fields.get("num_nodes"))
    return EventStream.from_arrays(
        u - 1,
        i - 1,
        _times(path, table, "ts"),
        labels=table.label.to_numpy() if "label" in table else None,
        edge_attr=None if edge is None else edge[index],
        x=None if node is None else node[1:],
        node_ids=Vocabulary(np.arange(1, num_nodes + 1)),
        notes=(
            f"{READ_AS}source=u, target=i, time=ts{', label=label' if 'label' in table else ''}, features: "
            f"{'none' if edge is None else f'{path.stem}.npy'}; {ONE if u.max() >= i.min() else TWO}",
        ),
        **{"name": path.stem.removeprefix("ml_"), "source": str(path), **fields},
    )


def _dyglib_csv(path: Path) -> Path:
    if path.is_dir():
        found = sorted(path.glob("ml_*.csv"))
        if len(found) != 1:
            raise MissingFileError(f"{path} holds {len(found)} files ml_*.csv; name the one to read")
        return found[0]
    return path


def _csv(path: Path, what: str, **options: Any) -> pd.DataFrame:
    import pandas as pd

    with bounded(path, text=True) as file, reading(path, what):
        return pd.read_csv(file, low_memory=False, **options)


def _whole(table: pd.DataFrame, name: Any, path: Path) -> np.ndarray:
    """Return a column of whole numbers as int64."""
    values = table[name].to_numpy()
    if values.dtype.kind not in "iuf":
        raise FormatError(f"{path}: column {name!r} holds {values.dtype}, not whole numbers")
    return whole_numbers(values, f"{path}: {name!r}", lambda row: f"row {row} (line {row + 2})")


def _times(path: Path, table: pd.DataFrame, name: Any, **options: Any) -> np.ndarray:
    t: np.ndarray = table[name].to_numpy()

    def place(row: int) -> str:
        return f"row {row} (line {row + 2})"

    if t.dtype.kind == "f" and (np.abs(t) >= EXACT).any():
        text = _csv(path, "a column of times", usecols=[name], dtype=str, **options)[name].fillna("")
        check_digits(t, text, f"{path}: ", name, place)
    if t.dtype.kind in "iuf" and (beyond := beyond_clock(t) & np.isfinite(t)).any():
        row = int(np.argmax(beyond))
        raise DataError(f"{path}: {str(t[row])!r} in column {name!r}, {place(row)}, {why_beyond(t)}")
    return t


def _feature_rows(path: Path) -> np.ndarray | None:
    if not exists(path):
        return None
    array = load_npy(path)
    if array.ndim != 2 or array.dtype.kind not in "iuf":
        raise FormatError(f"{path} must hold a matrix of numbers; got {array.dtype} of shape {array.shape}")
    return array.astype(np.float32)


def read_jodie(path: Path, **fields: Any) -> EventStream:
    """Return the events of JODIE's CSV: user, item, time, label, then features without names of their own.

    Users and items are two sets of ids; they become the ids u0, u1, ... and i0, i1, ..., users first.

    Raises:
        MissingFileError, FormatError: no such file, or not JODIE's.
    """
    table = _csv(path, "JODIE's CSV", header=None, skiprows=1)
    if table.shape[1] < 4 or any(dtype.kind not in "iuf" for dtype in table.dtypes):
        raise FormatError(f"{path} is not JODIE's CSV: it needs a header, then user, item, time, label, features...")
    if table.isna().any(axis=None):
        row = int(np.argmax(table.isna().any(axis=1)))
        raise DataError(f"{path}: row {row} (line {row + 2}) lacks a value")
    users, src = np.unique(_whole(table, 0, path), return_inverse=True)
    items, dst = np.unique(_whole(table, 1, path), return_inverse=True)
    names = [f"u{k}" for k in users.tolist()] + [f"i{k}" for k in items.tolist()]
    features = table.iloc[:, 4:].to_numpy(np.float32) if table.shape[1] > 4 else None
    return EventStream.from_arrays(
        src,
        dst + len(users),
        _times(path, table, 2, header=None, skiprows=1),
        labels=table[3].to_numpy(),
        edge_attr=features,
        node_ids=Vocabulary(np.array(names)),
        notes=(
            f"{READ_AS}source=user_id, target=item_id, time=timestamp, label=state_label, features: "
            f"{table.shape[1] - 4}; {TWO} (sources are called u{users[0]} and so on, targets i{items[0]})",
        ),
        two_sets=True,
        **{"name": stem_of(path), "source": str(path), **fields},
    )


def is_jodie(path: Path) -> bool:
    """Return whether the first line of a text file is JODIE's header."""
    with bounded(path) as file:
        return file.readline(1000).replace(b" ", b"").startswith(b"user_id,item_id,timestamp,state_label,")


JODIE = ("tgbl-wiki", "tgbl-subreddit", "tgbl-lastfm", "tgbl-enron", "tgbl-uci")  # users, items, time, label, features

EDGES = re.compile(r"(?P<name>tgbl-\w+)_edgelist(_v\d+)?\.csv")


def read_tgb_zip(path: Path, **fields: Any) -> EventStream:
    """Return the events of an archive such as tgbl-wiki-v2.zip, times in seconds.

    Weights of events (tgbl-coin) are no features, as TGB has it; edge_columns=weight takes them.

    Args:
        path: the archive.
        fields: of `EventStream`, and options of `read_event_table` where the events are a plain table.

    Raises:
        FormatError: no archive, a damaged one, or one without TGB's CSV of events.
        ConfigError: an option that JODIE's layout has no use for.
    """
    with tempfile.TemporaryDirectory(prefix="hopstate-") as folder:
        csv, name = _unpacked(path, Path(folder))
        fields = {"name": name, "source": str(path), "time_unit": "s", **fields}
        if name in JODIE:
            unused = [key for key in fields if key.endswith(("_column", "_columns")) or key.startswith("missing")]
            if unused:
                raise ConfigError(f"{path} has its columns in JODIE's order and does not take {', '.join(unused)}")
            return read_jodie(csv, **fields)
        return event_tables.read_event_table(csv, **{"edge_columns": (), **fields})


def _unpacked(path: Path, folder: Path) -> tuple[Path, str]:
    """Return the CSV of events, copied into a folder under a name of ours, and the data set's name."""
    check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            found = [(e, m) for e in archive.namelist() if (m := EDGES.fullmatch(e.rpartition("/")[2]))]
            if len(found) != 1:
                raise FormatError(
                    f"{path} holds {len(found)} files called tgbl-NAME_edgelist.csv or tgbl-NAME_edgelist_v2.csv, "
                    "where TGB's archives of links have one"
                )
            entry, match = found[0]
            target = folder / "events.csv"
            member = archive.getinfo(entry)
            check_size(path, member.file_size, stored=member.compress_size)
            with archive.open(entry) as source, target.open("wb") as file:
                shutil.copyfileobj(Bounded(source, path), file, 1 << 20)
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise FormatError(f"{path} is no zip archive, or a damaged one: {error}") from None
    return target, match["name"]
