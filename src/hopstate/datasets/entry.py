"""What the catalogue says of a data set, and how data sets of one source are alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from hopstate.datasets.download import RemoteFile

Kind = Literal["node", "graph", "edge", "link", "sequence"]
GMN, NAG, TOP, DYG, CTDG = "GMN", "NAGphormer", "TOP", "DyG-Mamba", "CTDG-SSM"
UNKNOWN = "unknown"  # said of what was read nowhere
RANDOM = "60/20/20 random, seeded"
OFFICIAL = "official train/val/test"
PYG = "torch-geometric 2.8.1, the table of sizes in datasets"  # of a class's own file


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One named data set.

    Args:
        name: as load_dataset and --data take it.
        kind: what is predicted: classes of nodes, whole graphs, edges; links in time; sequences.
        loader: the class or function that reads it.
        address: its official address.
        split: how it is divided.
        metric: its published metric.
        licence: as read at `read_at`; "unknown" where it was read nowhere. A repository's licence is that of what the
            repository holds; what it was made from may have others.
        read_at: where the licence was read, "" where it was not.
        sizes_at: where nodes, features and classes, or the split and the metric, were read; "" where they were not.
        reachable: what is known of the address itself.
        papers: which of the five papers use it.
        files: what is downloaded; empty where nothing has a stable address.
        make: generator of an embedded data set.
        pyg: address for `hopstate.data.readers.pyg.read_pyg_dataset`, where that class is the reader.
        ogb: name for `hopstate.data.readers.pyg.read_ogb`, where that package is the reader.
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
    files: tuple[RemoteFile, ...] = ()
    make: Callable[..., Any] | None = None
    pyg: str = ""
    ogb: str = ""
    nodes: int = 0
    features: int = 0
    classes: int = 0


def heterophilous(
    name: str, nodes: int, features: int, classes: int, metric: str, sha256: str | None = None
) -> Dataset:
    """Return the entry of a graph of Platonov et al. 2023, by its published file."""
    file = f"{name.replace('-', '_')}.npz"
    home = "https://github.com/yandex-research/heterophilous-graphs"
    return Dataset(
        name=name,
        kind="node",
        loader="hopstate.data.readers.read_graph.read_graph",
        address=home,
        split="10 stored 50/25/25",
        metric=metric,
        licence="MIT (repository)",
        read_at=f"{home}/blob/main/LICENCE.txt",
        sizes_at=f"{PYG}/heterophilous_graph_dataset.py",
        papers=(GMN, TOP) if name != "questions" else (TOP,),
        files=(RemoteFile(url=f"{home}/raw/main/data/{file}", path=f"heterophilous/{file}", sha256=sha256),),
        nodes=nodes,
        features=features,
        classes=classes,
    )


def gnn_benchmark(name: str, file: str, nodes: int, features: int, classes: int, sha256: str | None = None) -> Dataset:
    """Return the entry of a graph of Shchur et al. 2018, by its published file."""
    home = "https://github.com/shchur/gnn-benchmark"
    return Dataset(
        name=name,
        kind="node",
        loader="hopstate.data.readers.read_graph.read_graph",
        address=home,
        split=RANDOM,
        metric="accuracy",
        licence="MIT (repository)",
        read_at=f"{home}/blob/master/LICENSE",
        sizes_at=f"{PYG}/amazon.py, coauthor.py, citation_full.py, planetoid.py",
        papers=(NAG,),
        files=(
            RemoteFile(url=f"{home}/raw/master/data/npz/{file}.npz", path=f"gnn-benchmark/{file}.npz", sha256=sha256),
        ),
        nodes=nodes,
        features=features,
        classes=classes,
    )


def of_pyg(
    name: str, kind: Kind, cls: str, argument: str, address: str, split: str, metric: str, licence: str, *papers: str,
    read_at: str = "",
) -> Dataset:  # fmt: skip
    """Return the entry of a data set that a torch-geometric class reads."""
    return Dataset(
        name=name,
        kind=kind,
        loader=f"torch_geometric.datasets.{cls}",
        address=address,
        split=split,
        metric=metric,
        licence=licence,
        read_at=read_at,
        papers=papers,
        pyg=f"pyg:{cls}:{argument}" if argument else f"pyg:{cls}",
    )


def of_ogb(name: str, file: str, *papers: str) -> Dataset:
    """Return the entry of a data set that the package ogb reads."""
    return Dataset(
        name=name,
        kind="node",
        loader="ogb.nodeproppred.PygNodePropPredDataset",
        address=f"http://snap.stanford.edu/ogb/data/nodeproppred/{file}.zip",
        split=OFFICIAL,
        metric="accuracy",
        licence=UNKNOWN,
        sizes_at="https://ogb.stanford.edu/docs/nodeprop/",
        papers=papers,
        ogb=name,
    )


def temporal(name: str, *papers: str) -> Dataset:
    """Return the entry of a stream of DyGLib's collection."""
    return Dataset(
        name=name,
        kind="link",
        loader="hopstate.data.readers.read_events.read_events",
        address="https://zenodo.org/record/7213796",
        split="70/15/15 by time",
        metric="average_precision",
        licence="MIT or Apache 2.0, as the collection's authors state of all of it",
        read_at="https://openreview.net/forum?id=1GVpwr2Tfdg",
        sizes_at="https://github.com/yule-BUAA/DyGLib (README: which streams, and this address)",
        papers=papers,
    )


TGB_ADDRESS = (
    "https://object-arbutus.alliancecan.ca/swift/v1/14c95234f6cd4a21a47deafe20cce2a7/tgb"  # since py-tgb 2.3.0
)


def of_tgb(name: str, *papers: str) -> Dataset:
    """Return the entry of a stream of TGB, by the archive it publishes."""
    return Dataset(
        name=name,
        kind="link",
        loader="hopstate.data.readers.read_events.read_events",
        address=f"{TGB_ADDRESS}/{name}-v2.zip",
        split="official, by time",
        metric="mrr",
        licence=UNKNOWN,
        sizes_at="tgb/utils/info.py of py-tgb 2.3.0 (this address), whose README sends to TGB's site for licences",
        reachable="as py-tgb 2.3.0 has it; the earlier object-arbutus.cloud.computecanada.ca of older versions is dead",
        papers=papers,
    )


def made_here(
    name: str, kind: Kind, loader: str, split: str, metric: str, make: Callable[..., Any], *papers: str
) -> Dataset:
    """Return the entry of generated data."""
    return Dataset(
        name=name,
        kind=kind,
        loader=loader,
        address="made here, no download",
        split=split,
        metric=metric,
        licence="MIT (hopstate)",
        read_at="LICENSE of hopstate",
        sizes_at=f"{loader}: options of its own",
        reachable="made on this machine",
        papers=papers,
        make=make,
    )
