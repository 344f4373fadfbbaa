"""`read_events`: any supported file, folder or object to an `EventStream`; `write_events`: to Parquet or a folder."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.dates import beyond_clock, why_beyond
from hopstate.data.events import TIES, EventStream, Ties, check_deletes, in_own_order
from hopstate.data.labels import AS_STORED
from hopstate.data.readers import event_tables
from hopstate.data.readers.ids import EXACT, whole_numbers
from hopstate.data.readers.roles import ONE, READ_AS, TWO
from hopstate.data.readers.tables import is_array, is_frame, plain_array, stem_of
from hopstate.data.readers.times import check_digits
from hopstate.data.validate import check_num_nodes
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError, FormatError, MissingExtraError, MissingFileError, nearest
from hopstate.io.files import is_broken, replace_file
from hopstate.io.opening import (
    Bounded,
    at_most,
    bounded,
    check_regular,
    check_size,
    exists,
    expanded,
    member_of,
    names_in,
    open_regular,
    parse_json,
    reading,
    shown,
)
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


# format → what a file of it looks like
EVENT_FORMATS = {
    "table": "table of events (.csv, .tsv, .txt, .parquet, .gz): source, target, time, and optionally more columns",
    "snap": "text without a header: source target time, as in SNAP's temporal networks",
    "dyglib": "ml_X.csv with ml_X.npy and ml_X_node.npy, or the folder that holds them",
    "jodie": "CSV with the header user_id,item_id,timestamp,state_label,comma_separated_list_of_features",
    "folder": "folder that write_events wrote; stays memory-mapped",
    "tgb": "tgb:NAME, for example tgb:tgbl-wiki; needs py-tgb",
    "tgb-zip": "TGB's archive of a link data set, such as tgbl-wiki-v2.zip; the pickled negatives in it are not read",
}
_PARQUET_KEY = b"hopstate"
_FIELDS = tuple(field.name for field in dataclasses.fields(EventStream))
OF_TABLES = ("text_ids", "bipartite", "unlabelled")  # options that other sources have no use for
_FACTS = ("num_nodes", "time_unit", "name", "source", "first_id", "from_start")  # fields that no file's columns give


def read_events(
    source: Any,
    *,
    format: str = "auto",
    from_start: bool = True,
    max_bytes: int | str | None = None,
    ties: Ties = "file",
    **options: Any,
) -> EventStream:
    """Return the event stream of a file, a folder, a table in memory or a torch-geometric `TemporalData`.

    Events are sorted stably by time; where they were not sorted, a `HopstateWarning` says so. A deletion must remove
    an edge that stands.

    Args:
        source: path, "tgb:NAME", or the object in memory: a `TemporalData`, a table of pandas, pyarrow, polars or
            DuckDB, or a dictionary of columns.
        format: "auto" goes by content and name; else a key of `EVENT_FORMATS`.
        from_start: no event came before the first. False lets deletions end edges that earlier events added.
        max_bytes: most bytes to read of a file, unpacked where it is packed, such as "8GiB"; None takes for packed
            files a hundred times their size, at least 2 GiB.
        ties: order of events of one time: "file" as they are, "sorted" by their own values, whatever the file's order.
        options: for tables source_column, target_column, time_column, kind_column, label_column, edge_columns
            (by default the usual names), header (whether a text's first line holds names of columns; by default it
            goes by what stands there), columns (what columns of features hold, where it is not as it looks, as
            "venue=category"; see `hopstate.data.readers.encode.declared`), num_nodes (ids are rows 0..num_nodes-1), x
            (node features as an array or a .npy file; integer ids are then its rows, others its rows in sorted
            order), missing ("mean", "median", "zero" or "auto": event features without a number stay in edge_table, to
            be filled from training events; "auto" still refuses infinities), missing_time ("drop" leaves events
            without a usable time out), task ("regression" takes labels as amounts), label_cells ("all" takes each label
            of a cell such as "a;b" as a target of its own), unlabelled (the
            value of a label that stands for "no label", "none" where there is none; None asks about -1), text_ids (True
            takes ids as they are written, also where all of a column look like numbers), bipartite (True, False or
            "auto": whether sources and targets are two sets of nodes, see `hopstate.data.readers.roles`);
            for all, fields of `EventStream` such as name and time_unit.

    Raises:
        MissingFileError: nothing at that path.
        ConfigError: an unknown format, or an option that the source has no use for.
        FormatError: unknown, truncated or not of the format; the message lists the known formats.
        UnreadableFileError: a folder, a pipe or a device where a file is needed, or no permission.
        DataError: content that breaks a promise of `EventStream`; the message names the row.
        MissingExtraError: py-tgb is needed and absent.
    """
    if format != "auto" and format not in EVENT_FORMATS:
        raise ConfigError(
            f"unknown format {format!r}{nearest(format, EVENT_FORMATS)}; known: {', '.join(EVENT_FORMATS)}"
        )
    if ties not in TIES:
        raise ConfigError(f"read.ties is one of {', '.join(TIES)}; got {ties!r}")
    usual: dict[str, tuple[Any, ...]] = {  # as good as absent
        "missing": ("error",),
        "missing_time": ("error",),
        "task": ("auto", "classification"),
        "label_cells": ("whole",),
        "text_ids": (False,),
        "bipartite": ("auto",),
    }
    options = {k: v for k, v in options.items() if v is not None and v not in usual.get(k, ())}
    options |= {} if from_start else {"from_start": False}
    if is_array(options.get("x")):
        options["x"] = plain_array(options["x"], "the array x")
    if isinstance(options.get("x"), (str, os.PathLike)):
        options["x"] = _features(Path(options["x"]))
    if isinstance(source, EventStream):
        stream = _with_fields(source, source.name, options)
    elif isinstance(source, (str, os.PathLike)):
        with at_most(max_bytes), reading(source, "events"):
            stream = _from_path(os.fspath(source), format, options)
    else:
        stream = _from_object(source, options)
    if not len(stream):
        raise DataError(f"{stream.source or stream.name} holds no events")
    if from_start:
        check_deletes(stream)
    return in_own_order(stream) if ties == "sorted" else stream


def _from_path(text: str, format: str, options: dict[str, Any]) -> EventStream:
    from hopstate.data.readers import event_tables
    from hopstate.data.store import load_events

    if text.startswith("tgb:"):
        options = {key: value for key, value in options.items() if key not in OF_TABLES}
        return _from_tgb(text.removeprefix("tgb:"), options)
    path = expanded(text)
    if not exists(path):
        raise MissingFileError(f"no file or folder called {shown(text)}")
    kind = _detect(path) if format == "auto" else format
    if kind == "folder":
        known = {name: options[name] for name in ("num_nodes", "from_start") if name in options}
        return _with_fields(load_events(path, **known), text, options)
    if kind == "tgb-zip":
        options = {key: value for key, value in options.items() if key not in OF_TABLES}
        return read_tgb_zip(path, published=True, **options)
    if kind in ("dyglib", "jodie"):
        _check_options(options, f"{text} (read as {kind})", _FACTS)
        return (read_dyglib if kind == "dyglib" else read_jodie)(path, published=True, **options)
    _check_options(options, text, _table_options())
    return event_tables.read_event_table(path, **{**_parquet_facts(path, options.get("num_nodes")), **options})


def _with_fields(stream: EventStream, where: str, options: dict[str, Any]) -> EventStream:
    _check_options(options, where, _FIELDS)
    return stream.with_(**options) if options else stream


def _table_options() -> tuple[str, ...]:
    from hopstate.data.readers.event_tables import OPTIONS

    own = (
        "bipartite",
        "header",
        "edge_columns",
        "columns",
        "x",
        "node_ids",
        "missing",
        "missing_time",
        "task",
        "text_ids",
        "label_cells",
        "unlabelled",
    )
    return (*OPTIONS, *own, *_FACTS)


def _check_options(options: dict[str, Any], where: str, known: tuple[str, ...]) -> None:
    """Raise a ConfigError for an option that a source has no use for."""
    if options.get("missing") == "auto" and "missing" not in known:
        options.pop("missing")  # nothing is asked for
    if options.get("unlabelled") == AS_STORED and "unlabelled" not in known:
        options.pop("unlabelled")  # of a file of our own
    for name in {"text_ids", "bipartite"} - {*known}:
        options.pop(name, None)  # of tables alone
    for name in options:
        if name not in known:
            raise ConfigError(
                f"{where} does not take the option {name!r}{nearest(name, known)}; it takes: {', '.join(known)}"
            )


def _detect(path: Path) -> str:
    from hopstate.data.readers.text import check_archive, looks_like_text
    from hopstate.data.store import check_finished, is_event_folder

    if path.is_dir():
        check_finished(path)
        if is_event_folder(path):
            return "folder"
        if any(path.glob("ml_*.csv")):
            return "dyglib"
    elif path.name.startswith("ml_") and path.suffix == ".csv":
        return "dyglib"
    elif path.suffix == ".zip" and ((one := member_of(path)) is None or EDGES.fullmatch(one.rpartition("/")[2])):
        if one is None and not any(name.endswith(".pkl") for name in names_in(path)):  # TGB's negatives
            check_archive(path)
        return "tgb-zip"
    elif _is_binary_table(path) or member_of(path) is not None:
        return "table"
    elif looks_like_text(path):
        return "jodie" if is_jodie(path) else "table"
    check_archive(path)
    known = "\n".join(f"  {name}: {what}" for name, what in EVENT_FORMATS.items())
    raise FormatError(f"{path} is of no format that holds events. Known:\n{known}")


def _is_binary_table(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(8).startswith((b"PAR1", b"ARROW1"))


def _is_parquet(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(4) == b"PAR1"


def _features(path: Path) -> np.ndarray:
    array = load_npy(path)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise DataError(f"{path} holds {array.dtype} of shape {array.shape}; node features are a matrix of numbers")
    return array


def _from_object(source: Any, options: dict[str, Any]) -> EventStream:
    if not is_frame(source) and all(hasattr(source, name) for name in ("src", "dst", "t")):
        _check_options(options, "a TemporalData", tuple(name for name in _FIELDS if name not in ("src", "dst", "t")))
        return EventStream.from_pyg(source, **options)
    if is_frame(source) or isinstance(source, Mapping):
        _check_options(options, "a table", _table_options())
        from hopstate.data.readers.event_tables import read_event_table

        return read_event_table(source, **{"name": "table", "source": "memory", **options})
    raise FormatError(f"cannot read events from a {type(source).__name__}; give a path, a table or TemporalData")


def _from_tgb(name: str, options: dict[str, Any]) -> EventStream:
    try:
        from tgb.linkproppred.dataset import LinkPropPredDataset
    except ImportError:
        raise MissingExtraError("tgb: data sets need py-tgb; install it with: pip install py-tgb") from None
    full = LinkPropPredDataset(name=name, root=options.pop("root", "datasets"), preprocess=True).full_data
    fields = {"edge_attr": full["edge_feat"], "labels": full["edge_label"], "name": name, "source": f"tgb:{name}"}
    fields["published"] = True
    return EventStream.from_arrays(full["sources"], full["destinations"], full["timestamps"], **{**fields, **options})


# ---- writing ------------------------------------------------------------------------------------------------
def write_events(stream: EventStream, path: str | Path) -> None:
    """Write a stream as .parquet (events with the user's ids; no node features) or, without extension, as a folder.

    Raises:
        FormatError: another extension.
        StorageError: it could not be written; what stood there is untouched.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        replace_file(path, lambda part: _write_parquet(stream, part))
    elif not path.suffix:
        from hopstate.data.store import save_events

        save_events(stream, path)
    else:
        raise FormatError(f"events are written as .parquet or as a folder, not as {path.name!r}")


def _write_parquet(stream: EventStream, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = None if stream.node_ids is None else stream.node_ids
    columns: dict[str, Any] = {
        "src": stream.src if names is None else names.names(stream.src),
        "dst": stream.dst if names is None else names.names(stream.dst),
        "t": stream.t,
    }
    columns |= {"kind": stream.kind} if stream.kind is not None else {}
    wide = stream.labels is not None and stream.labels.ndim > 1
    if wide and stream.labels is not None:
        if stream.labels.shape[1] == 1:
            raise FormatError("one column of several labels is written as a folder, not as .parquet")
        told = [f"label_{i}" for i in range(stream.labels.shape[1])]
        columns |= dict(zip(told, stream.labels.T, strict=True))
    elif stream.labels is not None:
        columns |= {"label": stream.labels}
    if stream.edge_attr is not None:
        values = stream.edge_attr if stream.edge_table is None else stream.edge_table.values
        columns |= {f"feat_{i}": values[:, i] for i in range(values.shape[1])}
    facts: dict[str, Any] = {"name": stream.name, "time_unit": stream.time_unit}
    facts |= {"class_names": stream.class_names} if stream.class_names is not None else {}
    facts |= {"dates": stream.dates} if stream.dates else {}
    facts |= {"label_column": ",".join(told)} if wide else {}
    if names is None:
        facts["num_nodes"] = stream.num_nodes
    else:
        facts["node_ids"] = names.ids.tolist()
    table = pa.table(columns)
    pq.write_table(table.replace_schema_metadata({_PARQUET_KEY: json.dumps(facts).encode()}), path)


def _parquet_facts(path: Path, stated: int | None) -> dict[str, Any]:
    """Return the fields that `write_events` kept beside the columns; nothing for other files."""
    import pyarrow.parquet as pq

    if not _is_parquet(path):
        return {}
    try:
        noted = (pq.read_schema(path).metadata or {}).get(_PARQUET_KEY)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} is damaged: {error}") from None
    if noted is None:
        return {}
    facts = parse_json(noted, f"{path}: what hopstate noted in it")
    kinds = {"name": str, "time_unit": str, "num_nodes": int, "node_ids": list, "class_names": list, "dates": str}
    kinds["label_column"] = str
    for name, value in facts.items():
        if type(value) is not kinds.get(name):
            raise FormatError(f"{path}: what hopstate noted in it gives {name} as {str(value)[:60]!r}; write it again")
    if facts.get("num_nodes", 0) < 0:
        raise FormatError(f"{path}: what hopstate noted in it gives {facts['num_nodes']} nodes; write it again")
    check_num_nodes(facts.get("num_nodes", 0), pq.read_metadata(path).num_rows, str(path), stated)
    if "kind" in pq.read_schema(path).names:
        facts["kind_column"] = "kind"
    if "node_ids" in facts:
        facts["node_ids"] = Vocabulary(_ids(facts["node_ids"], path))
    return {"unlabelled": AS_STORED, **facts}


def _ids(values: list[Any], path: Path) -> np.ndarray:
    if not all(type(value) is str for value in values) and not all(type(value) is int for value in values):
        raise FormatError(f"{path}: node ids are all strings or all integers; write the file again")
    if any(type(value) is str and not value.isprintable() and is_broken(value) for value in values):
        raise FormatError(f"{path}: a node id holds half of a character (a lone surrogate); write the file again")
    return np.array(values, None if values else np.int64)
