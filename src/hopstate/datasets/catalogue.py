"""The data sets of the five papers, and the generated ones: facts only; `registry` finds and loads them.

Checksums are of files that were looked at; None elsewhere. Beside each licence stands where it was read; what was read
nowhere is unknown, and no licence is written from memory.
"""

from __future__ import annotations

from typing import Any

from hopstate.datasets import generators
from hopstate.datasets.entry import (
    CTDG,
    DYG,
    GMN,
    NAG,
    OFFICIAL,
    RANDOM,
    TOP,
    UNKNOWN,
    Dataset,
    gnn_benchmark,
    heterophilous,
    made_here,
    of_ogb,
    of_pyg,
    of_tgb,
    temporal,
)

PER_CLASS = "20 / 30 of each class, the rest for test"


def _messages(**options: Any) -> Any:
    from hopstate.datasets.temporal_generators import MessageConfig, generate_messages

    return generate_messages(MessageConfig(**options))


def _sessions(**options: Any) -> Any:
    from hopstate.datasets.temporal_generators import SessionConfig, generate_sessions

    return generate_sessions(SessionConfig(**options))


def _blocs(**options: Any) -> Any:
    from hopstate.datasets.generators import BlocConfig, generate_blocs

    return generate_blocs(BlocConfig(**options))


def _clubs(**options: Any) -> Any:
    from hopstate.datasets.generators import ClubConfig, generate_clubs

    return generate_clubs(ClubConfig(**options))


def _path_sequences(**options: Any) -> Any:
    from hopstate.datasets.temporal_generators import path_sequences

    return path_sequences(**options)


_LRGB = "https://github.com/vijaydwivedi75/lrgb"
_BENCHMARKING = "https://github.com/graphdeeplearning/benchmarking-gnns"
_SAINT = "https://github.com/GraphSAINT/GraphSAINT"
_TU = "https://chrsmrrs.github.io/datasets"
_G = "hopstate.datasets.generators"
_R = "hopstate.datasets.generators"
_T = "hopstate.datasets.temporal_generators"

CATALOGUE: tuple[Dataset, ...] = (
    made_here(
        "minesweeper-generated", "node", f"{_G}.minesweeper", "10 of 50/25/25", "roc_auc", generators.minesweeper
    ),
    made_here("sbm", "node", f"{_G}.stochastic_block_model", "60/20/20", "accuracy", generators.stochastic_block_model),
    made_here("rmat", "node", f"{_G}.rmat", "none", "accuracy", generators.rmat),
    made_here("long-range-path", "node", f"{_G}.long_range", "70/15/15", "accuracy", generators.long_range),
    made_here(
        "long-range-ring",
        "node",
        f"{_G}.long_range",
        "70/15/15",
        "accuracy",
        lambda **o: generators.long_range(ring=True, **o),
    ),
    made_here("tree-match", "node", f"{_R}.tree_match", "70/15/15", "accuracy", generators.tree_match),
    made_here("far-clues", "node", f"{_R}.far_clues", "70/15/15", "accuracy", generators.far_clues),
    made_here("messages-generated", "link", f"{_T}.generate_messages", "by time", "average_precision", _messages),
    made_here("sessions-generated", "link", f"{_T}.generate_sessions", "by time", "average_precision", _sessions),
    made_here(
        "blocs-generated",
        "link",
        "hopstate.datasets.generators.generate_blocs",
        "by time",
        "average_precision",
        _blocs,
    ),
    made_here(
        "clubs-generated",
        "link",
        "hopstate.datasets.generators.generate_clubs",
        "by time",
        "average_precision",
        _clubs,
    ),
    made_here("path-sequences", "sequence", f"{_T}.path_sequences", "70/15/15", "accuracy", _path_sequences, CTDG),
    heterophilous("roman-empire", 22_662, 300, 18, "accuracy"),
    heterophilous("amazon-ratings", 24_492, 300, 5, "accuracy"),
    heterophilous(
        "minesweeper", 10_000, 7, 2, "roc_auc", "e664c8dacf1e8ac466c2c09ed4b237bd2c5541f47a6eae9c6092cb87f16412b3"
    ),
    heterophilous("tolokers", 11_758, 10, 2, "roc_auc"),
    heterophilous("questions", 48_921, 301, 2, "roc_auc"),
    gnn_benchmark("cora", "cora", 2_708, 1_433, 7, "068e22d90c3849b4057dfb05851741428992af058efcd4e7ebb4186f3d581de2"),
    gnn_benchmark("pubmed", "pubmed", 19_717, 500, 3),
    gnn_benchmark("corafull", "cora_full", 19_793, 8_710, 70),
    gnn_benchmark("computer", "amazon_electronics_computers", 13_752, 767, 10),
    gnn_benchmark(
        "photo",
        "amazon_electronics_photo",
        7_650,
        745,
        8,
        "77c41781de87f5f6f822e08b004e45816291c1149dfe1d468a3ee76e6a63ef3a",
    ),
    gnn_benchmark("cs", "ms_academic_cs", 18_333, 6_805, 15),
    gnn_benchmark("physics", "ms_academic_phy", 34_493, 8_415, 5),
    of_pyg(
        "citeseer",
        "node",
        "Planetoid",
        "CiteSeer",
        "https://github.com/kimiyoung/planetoid",
        RANDOM,
        "accuracy",
        "MIT (repository)",
        NAG,
        read_at="https://github.com/kimiyoung/planetoid/blob/master/LICENSE",
    ),
    Dataset(
        name="aminer-cs",
        kind="node",
        loader="none yet",
        address="https://github.com/THUDM/GRAND-plus",
        split=PER_CLASS,
        metric="accuracy",
        licence=UNKNOWN,
        sizes_at="https://github.com/THUDM/GRAND-plus (README: where the files are; it states no licence)",
        papers=(NAG,),
    ),
    Dataset(
        name="amazon2m",
        kind="node",
        loader="ogb.nodeproppred.PygNodePropPredDataset (ogbn-products)",
        address="http://snap.stanford.edu/ogb/data/nodeproppred/products.zip",
        split=PER_CLASS,
        metric="accuracy",
        licence=UNKNOWN,
        sizes_at="https://ogb.stanford.edu/docs/nodeprop/",
        papers=(NAG,),
    ),
    of_pyg(
        "reddit",
        "node",
        "Reddit",
        "",
        "https://data.dgl.ai/dataset/reddit.zip",
        OFFICIAL,
        "accuracy",
        UNKNOWN,
        NAG,
        TOP,
    ),
    of_pyg("yelp", "node", "Yelp", "", _SAINT, OFFICIAL, "micro_f1", UNKNOWN, TOP),
    of_pyg("flickr", "node", "Flickr", "", _SAINT, OFFICIAL, "accuracy", UNKNOWN, TOP),
    of_ogb("ogbn-arxiv", "arxiv", GMN, TOP),
    of_ogb("ogbn-products", "products", TOP),
    of_ogb("ogbn-papers100m", "papers100M-bin", TOP),
    of_pyg(
        "peptides-func",
        "graph",
        "LRGBDataset",
        "Peptides-func",
        _LRGB,
        OFFICIAL,
        "average_precision",
        "CC BY-NC 4.0",
        GMN,
        read_at=f"{_LRGB}#license-information",
    ),
    of_pyg(
        "peptides-struct",
        "graph",
        "LRGBDataset",
        "Peptides-struct",
        _LRGB,
        OFFICIAL,
        "mae",
        "CC BY-NC 4.0",
        GMN,
        read_at=f"{_LRGB}#license-information",
    ),
    of_pyg(
        "pascalvoc-sp",
        "graph",
        "LRGBDataset",
        "PascalVOC-SP",
        _LRGB,
        OFFICIAL,
        "macro_f1",
        "Pascal VOC's own (Flickr terms)",
        GMN,
        read_at=f"{_LRGB}#license-information",
    ),
    of_pyg(
        "coco-sp",
        "graph",
        "LRGBDataset",
        "COCO-SP",
        _LRGB,
        OFFICIAL,
        "macro_f1",
        "CC BY 4.0",
        GMN,
        read_at=f"{_LRGB}#license-information",
    ),
    of_pyg(
        "mnist",
        "graph",
        "GNNBenchmarkDataset",
        "MNIST",
        _BENCHMARKING,
        OFFICIAL,
        "accuracy",
        "MIT (repository)",
        GMN,
        read_at=f"{_BENCHMARKING}/blob/master/LICENSE",
    ),
    of_pyg(
        "cifar10",
        "graph",
        "GNNBenchmarkDataset",
        "CIFAR10",
        _BENCHMARKING,
        OFFICIAL,
        "accuracy",
        "MIT (repository)",
        GMN,
        read_at=f"{_BENCHMARKING}/blob/master/LICENSE",
    ),
    of_pyg(
        "pattern",
        "graph",
        "GNNBenchmarkDataset",
        "PATTERN",
        _BENCHMARKING,
        OFFICIAL,
        "balanced_accuracy",
        "MIT (repository)",
        GMN,
        read_at=f"{_BENCHMARKING}/blob/master/LICENSE",
    ),
    of_pyg(
        "malnet-tiny",
        "graph",
        "MalNetTiny",
        "",
        "http://malnet.cc.gatech.edu",
        OFFICIAL,
        "accuracy",
        UNKNOWN,
        GMN,
    ),
    of_pyg("mutag", "graph", "TUDataset", "MUTAG", _TU, "10 folds", "accuracy", UNKNOWN),
    of_pyg("proteins", "graph", "TUDataset", "PROTEINS", _TU, "10 folds", "accuracy", UNKNOWN),
    *(
        temporal(name, DYG, CTDG)
        for name in ("wikipedia", "reddit-temporal", "mooc", "lastfm", "enron", "social-evo", "uci")
    ),
    temporal("flights", CTDG),
    *(temporal(name, DYG, CTDG) for name in ("can-parl", "us-legis", "un-trade", "un-vote", "contact")),
    of_tgb("tgbl-wiki", CTDG),
    of_tgb("tgbl-coin", DYG, CTDG),
)
