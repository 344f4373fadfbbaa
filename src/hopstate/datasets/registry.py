"""Names to records: `load_dataset`, and the table that `hopstate datasets` prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.datasets.catalogue import CATALOGUE
from hopstate.datasets.download import RemoteFile, fetch
from hopstate.datasets.entry import UNKNOWN, Dataset
from hopstate.errors import DataError, DownloadError, FormatError, nearest
from hopstate.io.files import cache_folder

_BY_NAME = {entry.name: entry for entry in CATALOGUE}


def find_dataset(name: str) -> Dataset | None:
    """Return the entry of a name (upper or lower case), or None."""
    return _BY_NAME.get(name.lower())


def load_dataset(name: str, **options: Any) -> Any:
    """Return the record of a named data set, made here or downloaded to the cache folder on first use.

    Args:
        name: a name that `dataset_table` lists.
        options: those of the generator, or of `hopstate.data.readers.read_graph.read_graph`.

    Raises:
        DataError: an unknown name, or a data set that is listed but has no reader.
        DownloadError: it could not be fetched; the message says what to put where.
        FormatError: the file is not the published one.
    """
    entry = find_dataset(name)
    if entry is None:
        raise DataError(f"unknown data set {name!r}{nearest(name.lower(), _BY_NAME)}; `hopstate datasets` lists all")
    record = _loaded(entry, options)
    if isinstance(record, GraphSet):
        return record.as_published()
    return record.with_(published=True) if isinstance(record, (Graph, EventStream)) else record


def _loaded(entry: Dataset, options: dict[str, Any]) -> Any:
    if entry.make is not None:
        return entry.make(**options)
    if entry.files:
        from hopstate.data.readers.read_graph import read_graph

        paths = [fetch(file) for file in entry.files]
        return _checked(entry, read_graph(paths[0], **{"name": entry.name, **options}), paths[0])
    if entry.pyg and entry.kind == "node":
        from hopstate.data.readers.pyg import read_pyg_dataset

        return read_pyg_dataset(entry.pyg, **{"name": entry.name, **options})
    if _tu_file(entry).is_file():
        from hopstate.data.readers.tu import read_tu

        return read_tu(_tu_file(entry), **options)
    if entry.pyg:
        from hopstate.data.readers.pyg import read_pyg_set

        return read_pyg_set(entry.pyg, **{"name": entry.name, **options})
    if entry.ogb:
        from hopstate.data.readers.pyg import read_ogb

        return read_ogb(entry.ogb, **{"name": entry.name, **options})
    if entry.kind == "link":
        return _events(entry, options)
    how = "" if entry.loader == "none yet" else f" with {entry.loader}"
    raise DataError(
        f"{entry.name} cannot be loaded by name yet, and nothing was fetched; get it from {entry.address}{how}, and "
        f"give it as files: --data EDGES --read.features FILE --read.labels FILE (or pass the record, in Python)"
    )


def dataset_table() -> list[dict[str, str]]:
    """Return a row a data set: name, kind, loader, split, metric, on_disk, address, reachable, licence, papers.

    "read_at" says where the licence was read, "sizes_at" where sizes and split were; "unknown" where nowhere.
    """
    return [
        {
            "name": entry.name,
            "kind": entry.kind,
            "loader": entry.loader,
            "split": entry.split,
            "metric": entry.metric,
            "on_disk": on_disk(entry),
            "address": entry.address,
            "reachable": entry.reachable,
            "licence": entry.licence,
            "read_at": entry.read_at or UNKNOWN,
            "sizes_at": entry.sizes_at or UNKNOWN,
            "papers": ", ".join(entry.papers),
        }
        for entry in CATALOGUE
    ]


def on_disk(entry: Dataset) -> str:
    """Return "built in", "yes" where all files of a data set lie in the cache folder, else "no"."""
    if entry.make is not None:
        return "built in"
    if entry.files:
        return "yes" if all(file.local.is_file() for file in entry.files) else "no"
    if entry.pyg:
        return "yes" if _pyg_folder(entry).is_dir() or _tu_file(entry).is_file() else "no"
    if entry.ogb:
        return "yes" if (cache_folder() / "ogb" / entry.ogb.replace("-", "_") / "processed").is_dir() else "no"
    if entry.name.startswith("tgb"):
        return "yes" if _tgb_file(entry).local.is_file() else "no"
    return "yes" if _event_folder(entry).is_dir() else "no"


def _tgb_file(entry: Dataset) -> RemoteFile:
    return RemoteFile(url=entry.address, path=f"temporal/{entry.address.rpartition('/')[2]}")


def _event_folder(entry: Dataset) -> Path:
    """Return the folder in which DyGLib's ml_NAME files of a temporal data set are looked for."""
    return cache_folder() / "temporal" / entry.name


def _events(entry: Dataset, options: dict[str, Any]) -> Any:
    """Return the event stream of a temporal data set whose files the user has put in place, or of a TGB one."""
    from hopstate.data.readers.read_events import read_events

    if entry.name.startswith("tgb"):
        return read_events(fetch(_tgb_file(entry)), **{"name": entry.name, **options})
    folder = _event_folder(entry)
    if not folder.is_dir():
        raise DownloadError(
            f"{entry.name} has no address that can be fetched file by file; get it from {entry.address}, run "
            f"DyGLib's preprocessing, and put ml_{entry.name}.csv, .npy and _node.npy into {folder}"
        )
    return read_events(folder, **{"name": entry.name, **options})


def _pyg_folder(entry: Dataset) -> Path:
    _, kind, *name = entry.pyg.split(":")
    return cache_folder().joinpath("pyg", kind, *name, "processed")


def _tu_file(entry: Dataset) -> Path:
    return cache_folder() / "tu" / f"{entry.pyg.rpartition(':')[2]}.txt"


def _checked(entry: Dataset, graph: Graph, path: Path) -> Graph:
    """Return graph if it has the published sizes.

    Raises:
        FormatError: it has others.
    """
    found = (graph.num_nodes, graph.num_features, graph.num_classes)
    wanted = (entry.nodes, entry.features, entry.classes)
    if found != wanted:
        raise FormatError(
            f"{path} holds (nodes, features, classes) = {found}, the published {entry.name} {wanted}; "
            f"remove the file and fetch it again from {entry.address}"
        )
    return graph


__all__ = ["Dataset", "cache_folder", "dataset_table", "find_dataset", "load_dataset", "on_disk"]
