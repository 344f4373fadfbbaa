"""Sets of graphs by path or address."""

from __future__ import annotations

from typing import Any

from hopstate.data.graph import Keep
from hopstate.data.graph_set import GraphSet
from hopstate.errors import ConfigError
from hopstate.io.opening import at_most, reading

PYG_SETS = ("TUDataset", "GNNBenchmarkDataset", "LRGBDataset", "MalNetTiny", "ZINC")


def read_graph_set(
    source: str,
    *,
    max_bytes: int | str | None = None,
    undirected: bool = True,
    duplicates: Keep = "drop",
    self_loops: Keep = "keep",
) -> GraphSet:
    """Return the graphs of a TU text file or folder, of "pyg:Class:name" or of "ogb:ogbg-...".

    Args:
        source: path or address.
        max_bytes: as `hopstate.data.readers.read_graph.read_graph`.
        undirected, duplicates, self_loops: of a TU text file or folder, as `hopstate.data.graph.Graph.from_edges`.

    Raises:
        MissingFileError, FormatError, DataError, DownloadError: see the readers.
    """
    with at_most(max_bytes), reading(source, "a set of graphs"):
        return _read(source, {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops})


def is_set(source: str) -> bool:
    """Return whether a path or address is that of a set of graphs, as far as that can be told without reading it all.

    Addresses are those of torch-geometric's TUDataset, GNNBenchmarkDataset, LRGBDataset, MalNetTiny and ZINC, and OGB's
    ogbg data sets.
    """
    from hopstate.data.readers.tu import is_tu_folder, is_tu_text

    if source.startswith("pyg:"):
        return source[4:].partition(":")[0] in PYG_SETS
    return source.startswith("ogb:ogbg-") or is_tu_folder(source) or is_tu_text(source)


def _read(source: str, build: dict[str, Any]) -> GraphSet:
    if source.startswith("pyg:"):
        from hopstate.data.readers.pyg import read_pyg_set

        return read_pyg_set(source).as_published()
    if source.startswith("ogb:"):
        from hopstate.data.readers.pyg import read_ogb

        found = read_ogb(source[4:])
        if not isinstance(found, GraphSet):
            raise ConfigError(f"{source} is one graph; take a method of nodes for it")
        return found.as_published()
    from hopstate.data.readers.tu import is_tu_folder, read_tu, read_tu_folder

    if is_tu_folder(source):
        return read_tu_folder(source, **build)
    return read_tu(source, table=True, **build)


__all__ = ["is_set", "read_graph_set"]
