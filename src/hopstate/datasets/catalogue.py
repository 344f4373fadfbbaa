"""The data sets of the five papers, and the generated ones: facts only; `registry` finds and loads them.

Checksums are of files that were looked at; None elsewhere. "not checked" stands where a licence was not looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from hopstate.datasets import generators
from hopstate.datasets.download import RemoteFile

Kind = Literal["node", "graph", "edge", "link", "sequence"]
GMN, NAG, TOP, DYG, CTDG = "GMN", "NAGphormer", "TOP", "DyG-Mamba", "CTDG-SSM"
RANDOM = "60/20/20 random, seeded"
PER_CLASS = "20 / 30 of each class, the rest for test"
OFFICIAL = "official train/val/test"


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
        licence: "not stated" where its address states none.
        papers: which of the five papers use it.
        files: what is downloaded; empty where nothing has a stable address.
        make: generator of an embedded data set.
        pyg: address for `hopstate.data.readers.pyg.read_pyg_dataset`, where that class is the reader.
        ogb: name for `hopstate.data.readers.ogb.read_ogb`, where that package is the reader.
        nodes, features, classes: what the file must hold; 0 where not known here.
    """

    name: str
    kind: Kind
    loader: str
    address: str
    split: str
    metric: str
    licence: str
    papers: tuple[str, ...] = ()
    files: tuple[RemoteFile, ...] = ()
    make: Callable[..., Any] | None = None
    pyg: str = ""
    ogb: str = ""
    nodes: int = 0
    features: int = 0
    classes: int = 0


def _heterophilous(
    name: str, nodes: int, features: int, classes: int, metric: str, sha256: str | None = None
) -> Dataset:
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
        papers=(GMN, TOP) if name != "questions" else (TOP,),
        files=(RemoteFile(url=f"{home}/raw/main/data/{file}", path=f"heterophilous/{file}", sha256=sha256),),
        nodes=nodes,
        features=features,
        classes=classes,
    )


def _gnn_benchmark(name: str, file: str, nodes: int, features: int, classes: int, sha256: str | None = None) -> Dataset:
    home = "https://github.com/shchur/gnn-benchmark"
    return Dataset(
        name=name,
        kind="node",
        loader="hopstate.data.readers.read_graph.read_graph",
        address=home,
        split=RANDOM,
        metric="accuracy",
        licence="MIT (repository)",
        papers=(NAG,),
        files=(
            RemoteFile(url=f"{home}/raw/master/data/npz/{file}.npz", path=f"gnn-benchmark/{file}.npz", sha256=sha256),
        ),
        nodes=nodes,
        features=features,
        classes=classes,
    )


def _pyg(
    name: str, kind: Kind, cls: str, argument: str, address: str, split: str, metric: str, licence: str, *papers: str
) -> Dataset:
    return Dataset(
        name=name,
        kind=kind,
        loader=f"torch_geometric.datasets.{cls}",
        address=address,
        split=split,
        metric=metric,
        licence=licence,
        papers=papers,
        pyg=f"pyg:{cls}:{argument}" if argument else f"pyg:{cls}",
    )


def _ogb(name: str, file: str, licence: str, *papers: str) -> Dataset:
    return Dataset(
        name=name,
        kind="node",
        loader="ogb.nodeproppred.PygNodePropPredDataset",
        address=f"http://snap.stanford.edu/ogb/data/nodeproppred/{file}.zip",
        split=OFFICIAL,
        metric="accuracy",
        licence=licence,
        papers=papers,
        ogb=name,
    )


def _temporal(name: str, *papers: str) -> Dataset:
    return Dataset(
        name=name,
        kind="link",
        loader="hopstate.data.readers.read_events.read_events",
        address="https://zenodo.org/record/7213796",
        split="70/15/15 by time",
        metric="average_precision",
        licence="not stated",
        papers=papers,
    )


_TGB = "https://object-arbutus.alliancecan.ca/swift/v1/14c95234f6cd4a21a47deafe20cce2a7/tgb"  # since py-tgb 2.3.0


def _tgb(name: str, *papers: str) -> Dataset:
    return Dataset(
        name=name,
        kind="link",
        loader="hopstate.data.readers.read_events.read_events",
        address=f"{_TGB}/{name}-v2.zip",
        split="official, by time",
        metric="mrr",
        licence="not checked",
        papers=papers,
    )


def _made(
    name: str, kind: Kind, loader: str, split: str, metric: str, make: Callable[..., Any], *papers: str
) -> Dataset:
    return Dataset(
        name=name,
        kind=kind,
        loader=loader,
        address="made here, no download",
        split=split,
        metric=metric,
        licence="MIT (hopstate)",
        papers=papers,
        make=make,
    )


def _messages(**options: Any) -> Any:
    from hopstate.datasets.temporal_generators import MessageConfig, generate_messages

    return generate_messages(MessageConfig(**options))


def _sessions(**options: Any) -> Any:
    from hopstate.datasets.temporal_generators import SessionConfig, generate_sessions

    return generate_sessions(SessionConfig(**options))


def _path_sequences(**options: Any) -> Any:
    from hopstate.datasets.temporal_generators import path_sequences

    return path_sequences(**options)


_LRGB = "https://github.com/vijaydwivedi75/lrgb"
_BENCHMARKING = "https://github.com/graphdeeplearning/benchmarking-gnns"
_SAINT = "https://github.com/GraphSAINT/GraphSAINT"
_TU = "https://chrsmrrs.github.io/datasets"
_G = "hopstate.datasets.generators"
_T = "hopstate.datasets.temporal_generators"

CATALOGUE: tuple[Dataset, ...] = (
    _made("minesweeper-generated", "node", f"{_G}.minesweeper", "10 of 50/25/25", "roc_auc", generators.minesweeper),
    _made("sbm", "node", f"{_G}.stochastic_block_model", "60/20/20", "accuracy", generators.stochastic_block_model),
    _made("rmat", "node", f"{_G}.rmat", "none", "accuracy", generators.rmat),
    _made("long-range-path", "node", f"{_G}.long_range", "70/15/15", "accuracy", generators.long_range),
    _made(
        "long-range-ring",
        "node",
        f"{_G}.long_range",
        "70/15/15",
        "accuracy",
        lambda **o: generators.long_range(ring=True, **o),
    ),
    _made("messages-generated", "link", f"{_T}.generate_messages", "by time", "average_precision", _messages),
    _made("sessions-generated", "link", f"{_T}.generate_sessions", "by time", "average_precision", _sessions),
    _made("path-sequences", "sequence", f"{_T}.path_sequences", "70/15/15", "accuracy", _path_sequences, CTDG),
    _heterophilous("roman-empire", 22_662, 300, 18, "accuracy"),
    _heterophilous("amazon-ratings", 24_492, 300, 5, "accuracy"),
    _heterophilous(
        "minesweeper", 10_000, 7, 2, "roc_auc", "e664c8dacf1e8ac466c2c09ed4b237bd2c5541f47a6eae9c6092cb87f16412b3"
    ),
    _heterophilous("tolokers", 11_758, 10, 2, "roc_auc"),
    _heterophilous("questions", 48_921, 301, 2, "roc_auc"),
    _gnn_benchmark("cora", "cora", 2_708, 1_433, 7, "068e22d90c3849b4057dfb05851741428992af058efcd4e7ebb4186f3d581de2"),
    _gnn_benchmark("pubmed", "pubmed", 19_717, 500, 3),
    _gnn_benchmark("corafull", "cora_full", 19_793, 8_710, 70),
    _gnn_benchmark("computer", "amazon_electronics_computers", 13_752, 767, 10),
    _gnn_benchmark(
        "photo",
        "amazon_electronics_photo",
        7_650,
        745,
        8,
        "77c41781de87f5f6f822e08b004e45816291c1149dfe1d468a3ee76e6a63ef3a",
    ),
    _gnn_benchmark("cs", "ms_academic_cs", 18_333, 6_805, 15),
    _gnn_benchmark("physics", "ms_academic_phy", 34_493, 8_415, 5),
    _pyg(
        "citeseer",
        "node",
        "Planetoid",
        "CiteSeer",
        "https://github.com/kimiyoung/planetoid",
        RANDOM,
        "accuracy",
        "MIT (repository)",
        NAG,
    ),
    Dataset(
        name="aminer-cs",
        kind="node",
        loader="none yet",
        address="https://github.com/THUDM/GRAND-plus",
        split=PER_CLASS,
        metric="accuracy",
        licence="not stated",
        papers=(NAG,),
    ),
    Dataset(
        name="amazon2m",
        kind="node",
        loader="ogb.nodeproppred.PygNodePropPredDataset (ogbn-products)",
        address="http://snap.stanford.edu/ogb/data/nodeproppred/products.zip",
        split=PER_CLASS,
        metric="accuracy",
        licence="Amazon licence",
        papers=(NAG,),
    ),
    _pyg(
        "reddit",
        "node",
        "Reddit",
        "",
        "https://data.dgl.ai/dataset/reddit.zip",
        OFFICIAL,
        "accuracy",
        "not stated",
        NAG,
        TOP,
    ),
    _pyg("yelp", "node", "Yelp", "", _SAINT, OFFICIAL, "micro_f1", "not checked", TOP),
    _pyg("flickr", "node", "Flickr", "", _SAINT, OFFICIAL, "accuracy", "not checked", TOP),
    _ogb("ogbn-arxiv", "arxiv", "ODC-BY", GMN, TOP),
    _ogb("ogbn-products", "products", "Amazon licence", TOP),
    _ogb("ogbn-papers100m", "papers100M-bin", "ODC-BY", TOP),
    _pyg(
        "peptides-func",
        "graph",
        "LRGBDataset",
        "Peptides-func",
        _LRGB,
        OFFICIAL,
        "average_precision",
        "CC BY-NC 4.0",
        GMN,
    ),
    _pyg("peptides-struct", "graph", "LRGBDataset", "Peptides-struct", _LRGB, OFFICIAL, "mae", "CC BY-NC 4.0", GMN),
    _pyg(
        "pascalvoc-sp",
        "graph",
        "LRGBDataset",
        "PascalVOC-SP",
        _LRGB,
        OFFICIAL,
        "macro_f1",
        "Pascal VOC's own (Flickr terms)",
        GMN,
    ),
    _pyg("coco-sp", "graph", "LRGBDataset", "COCO-SP", _LRGB, OFFICIAL, "macro_f1", "CC BY 4.0", GMN),
    _pyg(
        "mnist", "graph", "GNNBenchmarkDataset", "MNIST", _BENCHMARKING, OFFICIAL, "accuracy", "MIT (repository)", GMN
    ),
    _pyg(
        "cifar10",
        "graph",
        "GNNBenchmarkDataset",
        "CIFAR10",
        _BENCHMARKING,
        OFFICIAL,
        "accuracy",
        "MIT (repository)",
        GMN,
    ),
    _pyg(
        "pattern",
        "graph",
        "GNNBenchmarkDataset",
        "PATTERN",
        _BENCHMARKING,
        OFFICIAL,
        "balanced_accuracy",
        "MIT (repository)",
        GMN,
    ),
    _pyg(
        "malnet-tiny",
        "graph",
        "MalNetTiny",
        "",
        "http://malnet.cc.gatech.edu",
        OFFICIAL,
        "accuracy",
        "not checked",
        GMN,
    ),
    _pyg("mutag", "graph", "TUDataset", "MUTAG", _TU, "10 folds", "accuracy", "not stated"),
    _pyg("proteins", "graph", "TUDataset", "PROTEINS", _TU, "10 folds", "accuracy", "not stated"),
    *(
        _temporal(name, DYG, CTDG)
        for name in ("wikipedia", "reddit-temporal", "mooc", "lastfm", "enron", "social-evo", "uci")
    ),
    _temporal("flights", CTDG),
    *(_temporal(name, DYG, CTDG) for name in ("can-parl", "us-legis", "un-trade", "un-vote", "contact")),
    _tgb("tgbl-wiki", CTDG),
    _tgb("tgbl-coin", DYG, CTDG),
)
