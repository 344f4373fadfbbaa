"""`read_events`: any supported file, folder or object to an `EventStream`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.events import TIE_ORDERS, EventStream, TieOrder, canonical_tie_order, check_deletes, not_none
from hopstate.data.readers.event_tables import EventTableOptions, read_event_table
from hopstate.data.readers.node_tables import NodeTableOptions, NodeTables, with_node_tables
from hopstate.data.readers.relations import IGNORED
from hopstate.data.readers.roles import ONE, READ_AS, TWO
from hopstate.data.readers.tables import (
    Table,
    is_array,
    is_frame,
    is_numeric,
    plain_array,
    read_table,
    stem_of,
    table_of_text,
)
from hopstate.data.readers.text import Text
from hopstate.data.readers.times import parse_time_column
from hopstate.data.validate import check_num_nodes
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError, FormatError, MissingExtraError, MissingFileError, nearest
from hopstate.io.opening import (
    TGB_EVENTS,
    byte_limit,
    exists,
    expand_home,
    first_bytes,
    open_bounded,
    reading,
    shorten,
    table_member,
    zip_members,
)
from hopstate.io.tensors import load_npy


def read_dyglib(path: Path, **fields: Any) -> EventStream:
    """Return the events of DyGLib's triple ml_X.csv, ml_X.npy (edge features) and ml_X_node.npy (node features).

    Ids start from 1 there, and both feature arrays have a row 0 of zeros; here rows start from 0 and the user's ids
    are kept in node_ids. Missing feature files are read as no features.
    """
    if path.is_dir():
        found = sorted(path.glob("ml_*.csv"))
        if len(found) != 1:
            raise MissingFileError(f"{path} holds {len(found)} files ml_*.csv; name the one to read")
        path = found[0]
    table = read_table(path, ("u", "i", "ts", "idx"), num_ids=2)
    missing = [name for name in ("u", "i", "ts", "idx") if name not in table.names]
    if missing:
        raise FormatError(f"{path} is not DyGLib's: no column {', '.join(missing)}; it has {', '.join(table.names)}")
    if not len(table.frame):
        raise DataError(f"{path} holds no events")
    u, i, index = (_integer_column(table, name) for name in ("u", "i", "idx"))
    table.check((u < 1) | (i < 1), "u" if u.min() < 1 else "i", "an id below 1", "DyGLib's ids start from 1.")
    largest = int(max(u.max(), i.max()))
    arrays = (path.with_name(f"{path.stem}{end}.npy") for end in ("", "_node"))
    edge, node = (_features(file).astype(np.float32) if exists(file) else None for file in arrays)
    if edge is not None and not (len(edge) > index.max() and index.min() >= 0):
        raise DataError(f"{path.stem}.npy has {len(edge)} rows, but idx reaches {index.max()}; they do not match")
    if node is not None and len(node) <= largest:
        raise DataError(f"{path.stem}_node.npy has {len(node)} rows, but ids reach {largest}; they do not match")
    num_nodes = largest if node is None else len(node) - 1
    if node is None:
        check_num_nodes(num_nodes, len(table.frame), str(path), fields.get("num_nodes"))
    label = "label" if "label" in table.names else None
    features = "none" if edge is None else f"{path.stem}.npy"
    roles = f"source=u, target=i, time=ts{f', label={label}' if label else ''}"
    return EventStream.from_arrays(
        u - 1,
        i - 1,
        parse_time_column(table, "ts", "", drop_missing=False)[1],
        labels=table.frame[label].to_numpy() if label else None,
        edge_attr=None if edge is None else edge[index],
        x=None if node is None else node[1:],
        node_ids=Vocabulary(np.arange(1, num_nodes + 1)),
        notes=(f"{READ_AS}{roles}, features: {features}; {ONE if u.max() >= i.min() else TWO}",),
        **{"name": path.stem.removeprefix("ml_"), "source": str(path), **fields},
    )


def _integer_column(table: Table, name: str) -> np.ndarray:
    ids = table.ids(name)
    if ids.dtype.kind != "i":
        raise FormatError(f"{table.path}: column {name!r} holds texts such as {ids[0]!s}, not whole numbers")
    return ids


def _features(path: Path) -> np.ndarray:
    array = load_npy(path)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise DataError(f"{path} holds {array.dtype} of shape {array.shape}; features are a matrix of numbers")
    return array


def read_jodie(path: Path, **fields: Any) -> EventStream:
    """Return the events of JODIE's CSV: user, item, time, label, then features without names of their own.

    Users and items are two sets of ids; they become the ids u0, u1, ... and i0, i1, ..., users first.
    """
    table = _jodie_table(path)
    width = table.frame.shape[1]
    for name in table.names:
        table.check(table.frame[name].isna(), name, "a cell is empty", "Fill it in.")
    if width < 4 or not all(is_numeric(table.frame[name]) for name in table.names):
        raise FormatError(f"{path} is not JODIE's CSV: it needs a header, then user, item, time, label, features...")
    users, src = np.unique(_integer_column(table, "user_id"), return_inverse=True)
    items, dst = np.unique(_integer_column(table, "item_id"), return_inverse=True)
    names = [f"u{k}" for k in users.tolist()] + [f"i{k}" for k in items.tolist()]
    return EventStream.from_arrays(
        src,
        dst + len(users),
        parse_time_column(table, "timestamp", "", drop_missing=False)[1],
        labels=table.frame["state_label"].to_numpy(),
        edge_attr=table.frame.iloc[:, 4:].to_numpy(np.float32) if width > 4 else None,
        node_ids=Vocabulary(np.array(names)),
        notes=(
            f"{READ_AS}source=user_id, target=item_id, time=timestamp, label=state_label, features: {width - 4}; "
            f"{TWO} (sources are called u{users[0]} and so on, targets i{items[0]})",
        ),
        two_sets=True,
        **{"name": stem_of(path), "source": str(path), **fields},
    )


def _jodie_table(path: Path) -> Table:
    """Return the table of JODIE's CSV, whose line of names has fewer cells than its rows."""
    with open_bounded(path, text=True) as file:
        file.readline()
        width = file.readline().count(b",") + 1
    names = ["user_id", "item_id", "timestamp", "state_label", *(f"f{i}" for i in range(width - 4))]
    text = Text(path, tuple(names[:width]), ",", 1)
    with reading(path, "JODIE's CSV"):
        return table_of_text(text, text.read()[0], names[:2])


def is_jodie(path: Path) -> bool:
    """Return whether the first line of a text file is JODIE's header."""
    with open_bounded(path) as file:
        return file.readline(1000).replace(b" ", b"").startswith(b"user_id,item_id,timestamp,state_label,")


JODIE = ("tgbl-wiki", "tgbl-subreddit", "tgbl-lastfm", "tgbl-enron", "tgbl-uci")  # users, items, time, label, features


def read_tgb_zip(path: Path, **options: Any) -> EventStream:
    """Return the events of an archive such as tgbl-wiki-v2.zip, times in seconds.

    Weights of events (tgbl-coin) are not features, as in TGB; edge_columns=weight reads them.
    """
    options = {key: value for key, value in options.items() if key not in _TABLES_ONLY}
    member = TGB_EVENTS.fullmatch(table_member(path) or "")
    if member is None:
        raise FormatError(
            f"{path} is damaged, or holds no file or several called tgbl-NAME_edgelist.csv or "
            "tgbl-NAME_edgelist_v2.csv, where TGB's archives of links have one"
        )
    options = {"name": member["name"], "time_unit": "s", **options}
    columns = {key: options.pop(key) for key in _TABLE_OPTIONS if key in options}
    if member["name"] not in JODIE:
        return read_event_table(path, EventTableOptions(**{"edge_columns": (), **columns}), **options)
    if columns:
        raise ConfigError(f"{path} has its columns in JODIE's order and does not take {', '.join(columns)}")
    return read_jodie(path, **options)


# format → what a file of it looks like
EVENT_FORMATS = {
    "table": "table of events (.csv, .tsv, .txt, .parquet, .gz): source, target, time, and optionally more columns",
    "snap": "text without a header: source target time, as in SNAP's temporal networks",
    "dyglib": "ml_X.csv with ml_X.npy and ml_X_node.npy, or the folder that holds them",
    "jodie": "CSV with the header user_id,item_id,timestamp,state_label,comma_separated_list_of_features",
    "folder": "folder that EventStream.save wrote; stays memory-mapped",
    "tgb": "tgb:NAME, for example tgb:tgbl-wiki; needs py-tgb",
    "tgb-zip": "TGB's archive of a link dataset, such as tgbl-wiki-v2.zip; the pickled negatives in it are not read",
}
_FIELDS = tuple(field.name for field in dataclasses.fields(EventStream))
_FACTS = ("num_nodes", "time_unit", "name", "source", "first_id", "from_start")  # fields that no file's columns give
_TABLE_OPTIONS = {field.name: field.default for field in dataclasses.fields(EventTableOptions)}
_TABLES_ONLY = ("text_ids", "bipartite", "unlabeled_value")  # options that sources other than tables ignore


def read_events(
    source: Any,
    *,
    format: str = "auto",
    from_start: bool = True,
    max_bytes: int | str | None = None,
    tie_order: TieOrder = "file",
    **options: Any,
) -> EventStream:
    """Return the event stream of a file, a folder, a table in memory or a torch-geometric `TemporalData`.

    Events are sorted stably by time, with a `HopstateWarning` if they were not sorted. A deletion must remove an edge
    that exists.

    Args:
        source: path, "tgb:NAME", or the object in memory: a `TemporalData`, a `HeteroData` whose edges have times, a
            table of pandas, pyarrow, polars or DuckDB, or a dictionary of columns.
        format: a key of `EVENT_FORMATS`, or "auto" to find it by content and name.
        from_start: no event came before the first. False lets deletions end edges that earlier events added.
        max_bytes: maximum size of a file after unpacking, such as "8GiB". None: 100 times the size of a packed file,
            at least 256 MiB.
        tie_order: order of events with equal timestamps: "file" keeps the order, "sorted" sorts by their values.
        options: fields of `EventStream`, such as name and time_unit, and for tables the following.

            - source_column, target_column, time_column, kind_column, label_column, edge_columns: names of columns.
              Default: the usual names.
            - relation_column: the relation of each event. node_type_column: "a,b", the types of sources and of targets.
              "none" ignores those of any source.
            - header: whether the first line has names of columns. Default: found by its content.
            - separator: of the cells of a text: a character, "tab" or "space".
            - time_format: of dates that are not ISO, as in strptime: "%d.%m.%Y %H:%M".
            - drop_missing_time: ignore events without a valid time.
            - columns: kinds of feature columns, such as "venue=category"; see
              `hopstate.data.readers.encode.parse_column_specs`.
            - missing: "mean", "median", "zero" or "auto". Missing event features stay in edge_table, and `fit` fills
              them by the training events. "auto" rejects infinities.
            - features: table of node features with an id column, or a folder with a table for each type of nodes,
              called as the type. Every node has a row. In an array or a .npy file, rows are integer ids, or other ids
              in sorted order.
            - num_nodes: ids are rows 0..num_nodes-1.
            - task: "regression" reads labels as numbers. multilabel: "all" reads a cell such as "a;b" as two labels.
            - unlabeled_value: the label that means "no label", or "none". None: an error if -1 could mean that.
            - text_ids: read ids as they are written, also if all of them look like numbers.
            - bipartite: True, False or "auto": whether sources and targets are two sets of nodes; see
              `hopstate.data.readers.roles`.

    Raises:
        MissingFileError: nothing at that path.
        ConfigError: an unknown format, or an option that the source does not use.
        FormatError: unknown, truncated or not of the format; the message lists the known formats.
        UnreadableFileError: a folder, a pipe or a device where a file is needed, or no permission.
        DataError: invalid content; the message names the row.
        MissingExtraError: py-tgb is needed and not installed.

    Example:
        >>> stream = hopstate.read_events(events)
        >>> len(stream), stream.num_nodes
        (120, 6)
    """
    if format != "auto" and format not in EVENT_FORMATS:
        raise ConfigError(
            f"unknown format {format!r}{nearest(format, EVENT_FORMATS)}; known: {', '.join(EVENT_FORMATS)}"
        )
    if tie_order not in TIE_ORDERS:
        raise ConfigError(f"read.tie_order is one of {', '.join(TIE_ORDERS)}; got {tie_order!r}")
    if options.get("task") == "classification":
        options["task"] = "auto"
    usual = {key for key in {*_TABLE_OPTIONS} - {"features"} if key in options and options[key] == _TABLE_OPTIONS[key]}
    options = {key: value for key, value in options.items() if value is not None and key not in usual}
    options |= {} if from_start else {"from_start": False}
    ignored = [field for field in ("relation", "node_type") if options.get(f"{field}_column") == IGNORED]
    options = {key: value for key, value in options.items() if key.removesuffix("_column") not in ignored}
    features = options.get("features")
    if is_array(features):
        options["x"] = plain_array(options.pop("features"), "the array of features")
    elif isinstance(features, (str, os.PathLike)) and Path(features).suffix == ".npy":
        options["x"] = _features(Path(options.pop("features")))
    if isinstance(source, EventStream):
        stream = _with_fields(source, source.name, options)
    elif isinstance(source, (str, os.PathLike)):
        with byte_limit(max_bytes), reading(source, "events", others=not_none(options.get("features"))):
            stream = _from_path(os.fspath(source), format, options)
    else:
        with reading(f"the {type(source).__name__}", "events", others=("",)):  # named errors name it
            stream = _from_object(source, options)
    if not len(stream):
        raise DataError(f"{stream.source or stream.name} holds no events")
    for field in ignored:
        stream = stream.with_(**{field: None, f"{field}_names": ()})
    if from_start:
        check_deletes(stream)
    return canonical_tie_order(stream) if tie_order == "sorted" else stream


def _from_path(text: str, format: str, options: dict[str, Any]) -> EventStream:
    from hopstate.data.store import load_events

    if text.startswith("tgb:"):
        return _from_tgb(text.removeprefix("tgb:"), options)
    path = expand_home(text)
    if not exists(path):
        raise MissingFileError(f"no file or folder called {shorten(text)}")
    kind = _detect(path) if format == "auto" else format
    if kind == "folder":
        known = {name: options[name] for name in ("num_nodes", "from_start") if name in options}
        return _with_fields(load_events(path, **known), text, options)
    if kind == "tgb-zip":
        return read_tgb_zip(path, published=True, **options)
    if kind in ("dyglib", "jodie"):
        options = _check_options(options, f"{text} (read as {kind})", _FACTS)
        return (read_dyglib if kind == "dyglib" else read_jodie)(path, published=True, **options)
    return _from_table(path, options, {})


def _from_table(source: Any, options: dict[str, Any], facts: dict[str, Any]) -> EventStream:
    where = str(source) if isinstance(source, Path) else "a table"
    options = facts | _check_options(options, where, (*_TABLE_OPTIONS, "x", "node_ids", *_FACTS))
    columns = {name: options.pop(name) for name in _TABLE_OPTIONS if name in options}
    return read_event_table(source, EventTableOptions(**columns), **options)


def _with_fields(stream: EventStream, where: str, options: dict[str, Any]) -> EventStream:
    nodes = None
    if "features" in options:
        given = {name: options.pop(name) for name in ("features", "missing") if name in options}
        nodes = NodeTables.read(NodeTableOptions(**given), specs={})
    options = _check_options(options, where, _FIELDS)
    stream = stream.with_(**options) if options else stream
    return stream if nodes is None else with_node_tables(stream, nodes)


def _check_options(options: dict[str, Any], where: str, allowed: tuple[str, ...]) -> dict[str, Any]:
    """Return options without those that ask nothing of this source; raise ConfigError for one that it cannot take."""
    given = {key: value for key, value in options.items() if key in allowed or key not in _TABLES_ONLY}
    if "missing" not in allowed and given.get("missing") == "auto":
        given.pop("missing")
    for name in given:
        if name not in allowed:
            raise ConfigError(
                f"{where} does not take the option {name!r}{nearest(name, allowed)}; it takes: {', '.join(allowed)}"
            )
    return given


def _detect(path: Path) -> str:
    from hopstate.data.readers.text import check_archive, is_text_file
    from hopstate.data.store import check_finished, is_event_folder

    if path.is_dir():
        check_finished(path)
        if is_event_folder(path):
            return "folder"
        if any(path.glob("ml_*.csv")):
            return "dyglib"
    elif path.name.startswith("ml_") and path.suffix == ".csv":
        return "dyglib"
    elif path.suffix == ".zip" and ((one := table_member(path)) is None or TGB_EVENTS.fullmatch(one)):
        if one is None and not any(name.endswith(".pkl") for name in zip_members(path)):  # TGB's negatives
            check_archive(path)
        return "tgb-zip"
    elif first_bytes(path).startswith((b"PAR1", b"ARROW1")) or table_member(path) is not None:
        return "table"
    elif is_text_file(path):
        return "jodie" if is_jodie(path) else "table"
    check_archive(path)
    known = "\n".join(f"  {name}: {what}" for name, what in EVENT_FORMATS.items())
    raise FormatError(f"{path} is of no format that holds events. Known:\n{known}")


def _from_object(source: Any, options: dict[str, Any]) -> EventStream:
    temporal = all(hasattr(source, name) for name in ("src", "dst", "t")) or hasattr(source, "edge_types")
    if temporal and not is_frame(source):
        known = tuple(name for name in _FIELDS if name not in ("src", "dst", "t"))
        return EventStream.from_pyg(source, **_check_options(options, "a TemporalData", known))
    if is_frame(source) or isinstance(source, Mapping):
        return _from_table(source, options, {"name": "table", "source": "memory"})
    raise FormatError(
        f"cannot read events from a {type(source).__name__}; give a path, a table, TemporalData or HeteroData"
    )


def _from_tgb(name: str, options: dict[str, Any]) -> EventStream:
    try:
        from tgb.linkproppred.dataset import LinkPropPredDataset
    except ImportError:
        raise MissingExtraError("tgb: datasets need py-tgb; install it with: pip install py-tgb") from None
    options = {key: value for key, value in options.items() if key not in _TABLES_ONLY}
    dataset = LinkPropPredDataset(name=name, root=options.pop("root", "datasets"), preprocess=True)
    full = dataset.full_data
    fields = {"edge_attr": full["edge_feat"], "labels": full["edge_label"], "name": name, "source": f"tgb:{name}"}
    fields["published"] = True
    if full.get("edge_type") is not None:  # of tkgl- and thgl- data
        fields["relation"] = np.asarray(full["edge_type"]).reshape(-1)
    fields["node_type"] = getattr(dataset, "node_type", None)  # of thgl- data
    return EventStream.from_arrays(full["sources"], full["destinations"], full["timestamps"], **{**fields, **options})
