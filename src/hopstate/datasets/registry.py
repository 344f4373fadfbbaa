"""Named datasets: what `catalogue.yaml` says of them, how they are downloaded, checked and read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import yaml

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.errors import DataError, DownloadError, FormatError, nearest
from hopstate.io.files import cache_folder

Kind = Literal["node", "graph", "link", "sequence"]
UNKNOWN = "unknown"
RETRIES = 3
TIMEOUT = 60.0  # seconds without an answer


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file of a dataset.

    Args:
        url: its official address.
        path: its path in the cache folder.
        sha256: SHA-256 of its content, None if none is published.
    """

    url: str
    path: str
    sha256: str | None = None

    @property
    def local(self) -> Path:
        """Where the file lies, or would lie, on this machine."""
        return cache_folder() / self.path


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One named dataset, an entry of `catalogue.yaml`.

    Args:
        name: as load_dataset and --data take it.
        kind: what is predicted: classes of nodes, whole graphs, links in time, sequences.
        loader: the class or function that reads or generates it.
        address: its official address.
        split: how it is divided.
        metric: its published metric.
        licence: as read at `read_at`. A repository's license is that of what the repository holds; what it was made
            from may have others.
        read_at: where the license was read, "" where it was not.
        sizes_at: where nodes, features and classes, or the split and the metric, were read; "" where they were not.
        reachable: what is known of the address itself.
        papers: which of the five papers use it.
        file: what is downloaded; None where nothing has a stable address.
        generated: `loader` generates it.
        config: configuration class of that generator, next to it; "" if it takes options.
        options: options of the generator.
        pyg: address for `hopstate.data.readers.pyg.read_pyg_dataset`.
        ogb: name for `hopstate.data.readers.pyg.read_ogb`.
        nodes, features, classes: what the file must hold; 0 where not known here.
    """

    name: str
    kind: Kind
    loader: str
    address: str
    split: str
    metric: str
    licence: str
    read_at: str = ""
    sizes_at: str = ""
    reachable: str = "not tried by a test: it is public and may have moved"
    papers: tuple[str, ...] = ()
    file: RemoteFile | None = None
    generated: bool = False
    config: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    pyg: str = ""
    ogb: str = ""
    nodes: int = 0
    features: int = 0
    classes: int = 0

    @property
    def fetchable(self) -> bool:
        """Whether it is downloaded on first use."""
        return bool(self.file or self.pyg or self.ogb)


@cache
def catalogue() -> dict[str, Dataset]:
    """Return all datasets by name."""
    text = Path(__file__).with_name("catalogue.yaml").read_text("utf-8")
    return {name: _entry(name, **fields) for name, fields in yaml.safe_load(text)["datasets"].items()}


def _entry(name: str, *, papers: Sequence[str] = (), file: dict[str, str] | None = None, **fields: Any) -> Dataset:
    remote = None if file is None else RemoteFile(**file)
    return Dataset(name=name, papers=tuple(papers), file=remote, **fields)


def find_dataset(name: str) -> Dataset | None:
    """Return the entry of a name (upper or lower case), or None."""
    return catalogue().get(name.lower())


def load_dataset(name: str, **options: Any) -> Any:
    """Return the record of a named dataset, generated or downloaded to the cache folder on first use.

    Args:
        name: a name that `dataset_table` lists.
        options: those of the generator, or of the reader.

    Raises:
        DataError: an unknown name, or a dataset that is listed but has no reader.
        DownloadError: it could not be fetched; the message says what to put where.
        FormatError: the file is not the published one.

    Example:
        >>> hopstate.load_dataset("minesweeper-generated").num_nodes
        10000
    """
    entry = find_dataset(name)
    if entry is None:
        raise DataError(f"unknown dataset {name!r}{nearest(name.lower(), catalogue())}; `hopstate datasets` lists all")
    record = _loaded(entry, options)
    if isinstance(record, GraphSet):
        return record.as_published()
    return record.with_(published=True) if isinstance(record, (Graph, EventStream)) else record


def _loaded(entry: Dataset, options: dict[str, Any]) -> Any:
    if entry.generated:
        return _generated(entry, options)
    options = {"name": entry.name, **options}
    if entry.kind == "link":
        return _read_events(entry, options)
    if entry.file is not None:
        from hopstate.data.readers.read_graph import read_graph

        path = fetch(entry.file)
        return _checked(entry, read_graph(path, **options), path)
    if entry.kind == "graph" and _tu_file(entry).is_file():
        from hopstate.data.readers.tu import read_tu

        del options["name"]
        return read_tu(_tu_file(entry), **options)
    if not entry.fetchable:
        how = "" if entry.loader == "none yet" else f" with {entry.loader}"
        raise DataError(
            f"{entry.name} cannot be loaded by name yet, and nothing was fetched; get it from {entry.address}{how}, "
            f"and give it as files: --data EDGES --read.features FILE --read.labels FILE (in Python, pass the record)"
        )
    from hopstate.data.readers import pyg

    if entry.ogb:
        return pyg.read_ogb(entry.ogb, **options)
    return (pyg.read_pyg_dataset if entry.kind == "node" else pyg.read_pyg_set)(entry.pyg, **options)


def _generated(entry: Dataset, options: dict[str, Any]) -> Any:
    module_name, _, function = entry.loader.rpartition(".")
    module = import_module(module_name)
    generate, options = getattr(module, function), {**entry.options, **options}
    return generate(getattr(module, entry.config)(**options)) if entry.config else generate(**options)


def _read_events(entry: Dataset, options: dict[str, Any]) -> Any:
    """Return an event stream whose files the user has put in place, or one that is downloaded."""
    from hopstate.data.readers.read_events import read_events

    if entry.file is not None:
        return read_events(fetch(entry.file), **options)
    folder = _event_folder(entry)
    if not folder.is_dir():
        raise DownloadError(
            f"{entry.name} has no address that can be fetched file by file; get it from {entry.address}, run "
            f"DyGLib's preprocessing, and put ml_{entry.name}.csv, .npy and _node.npy into {folder}"
        )
    return read_events(folder, **options)


def _checked(entry: Dataset, graph: Graph, path: Path) -> Graph:
    """Return graph if it has the published sizes, else raise FormatError."""
    sizes = (graph.num_nodes, graph.num_features, graph.num_classes)
    published = (entry.nodes, entry.features, entry.classes)
    if sizes != published:
        raise FormatError(
            f"{path} holds (nodes, features, classes) = {sizes}, the published {entry.name} {published}; "
            f"remove the file and fetch it again from {entry.address}"
        )
    return graph


def fetch(file: RemoteFile, *, retries: int = RETRIES) -> Path:
    """Return the local path of a file, downloaded first where it is not there or has another sha256.

    Raises:
        DownloadError: it could not be fetched or is not what it should be; the message says what to put where. An
            earlier file at that place is untouched.
    """
    import pooch
    import requests

    local = file.local
    if file.sha256 is None and local.is_file():
        return local
    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.create(
        path=local.parent,
        base_url="",
        registry={local.name: None if file.sha256 is None else f"sha256:{file.sha256}"},
        urls={local.name: file.url},
        retry_if_failed=retries,
    )
    try:
        downloader.fetch(local.name, downloader=pooch.HTTPDownloader(timeout=TIMEOUT))
    except (OSError, ValueError, requests.RequestException) as error:
        there = " (the file now there has another checksum)" if local.is_file() else ""
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        raise DownloadError(
            f"could not fetch {file.url}: {type(error).__name__}: {reason}. Fetch it by hand and put it at "
            f"{local}{there}, or name another cache folder with the environment variable HOPSTATE_DATA"
        ) from error
    return local


def dataset_table() -> list[dict[str, str]]:
    """Return a row a dataset: name, kind, loader, split, metric, on_disk, address, reachable, license, papers.

    "read_at" says where the license was read, "sizes_at" where sizes and split were; "unknown" where nowhere.
    """
    columns = [
        "name",
        "kind",
        "loader",
        "split",
        "metric",
        "on_disk",
        "address",
        "reachable",
        "licence",
        "read_at",
        "sizes_at",
        "papers",
    ]
    rows = []
    for entry in catalogue().values():
        row = asdict(entry) | {"on_disk": on_disk(entry), "papers": ", ".join(entry.papers)}
        rows.append({name: row[name] for name in columns})
        rows[-1] |= {name: row[name] or UNKNOWN for name in ("read_at", "sizes_at")}
    return rows


def on_disk(entry: Dataset) -> str:
    """Return "built in", "yes" where all files of a dataset lie in the cache folder, else "no"."""
    if entry.generated:
        return "built in"
    if entry.file is not None:
        found = entry.file.local.is_file()
    elif entry.pyg:
        found = _pyg_folder(entry).is_dir() or _tu_file(entry).is_file()
    elif entry.ogb:
        found = (cache_folder() / "ogb" / entry.ogb.replace("-", "_") / "processed").is_dir()
    else:
        found = _event_folder(entry).is_dir()
    return "yes" if found else "no"


def _event_folder(entry: Dataset) -> Path:
    """Return the folder in which DyGLib's ml_NAME files of a temporal dataset are looked for."""
    return cache_folder() / "temporal" / entry.name


def _pyg_folder(entry: Dataset) -> Path:
    _, kind, *name = entry.pyg.split(":")
    return cache_folder().joinpath("pyg", kind, *name, "processed")


def _tu_file(entry: Dataset) -> Path:
    return cache_folder() / "tu" / f"{entry.pyg.rpartition(':')[2]}.txt"


__all__ = ["Dataset", "cache_folder", "dataset_table", "find_dataset", "load_dataset", "on_disk"]
