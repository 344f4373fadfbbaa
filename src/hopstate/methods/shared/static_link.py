"""Link prediction on a static graph for every method that gives nodes vectors: links shared out, messages, the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.splits import EdgeSplit, given_split, load_split_pairs, message_edges, split_edges
from hopstate.data.validate import SPLITS
from hopstate.errors import ConfigError, DataError, nearest
from hopstate.io.files import replace_file
from hopstate.layers.decoders import DECODERS, PairDecoder
from hopstate.methods.method import Context, SplitConfig
from hopstate.methods.shared.node import SAMPLED, STEP, NodeRun, save_npz
from hopstate.ops.proximity import FEATURES
from hopstate.random import named_rng, random_state_kept
from hopstate.training.progress import note
from hopstate.training.tasks.node import NodeBatches, NodeLabels
from hopstate.training.tasks.static_link import LinkConfig, LinkModel, StaticLinkTask, Without
from hopstate.training.tasks.target import Target

if TYPE_CHECKING:
    from hopstate.methods.shared.node import Make

TIMES = ("t", "time", "timestamp", "ts", "unixts", "unix_time", "date", "datetime", "year")


def link_task(graph: Graph, config: NodeRun, context: Context, make: Make) -> StaticLinkTask:
    """Return the task of predicting a graph's links."""
    _check(config)
    link: LinkConfig = config.link
    split = edge_split(graph, link, config.split, context)
    bare = without_time(graph, link)
    messages = message_edges(bare, split.pairs["train"])
    learned, over = _learned(split.pairs["train"], bare, messages, link, config.split, context)
    made = make(over, context, every_node(graph.num_nodes), link.dim)
    if link.hide and not made.whole:
        raise ConfigError("link.hide is for networks that a step gives the whole graph (--batching.kind full)")
    if context.trained is None:
        replace_file(context.run / "split.npz", lambda part: save_npz(part, dict(split.pairs)))
        _tell(split, link, config, graph)

    decoder = PairDecoder(
        decoder_of(link, split), link.dim, directed=split.directed, dropout=made.dropout,
        features=FEATURES if link.structure else 0,
    )  # fmt: skip
    encode = Without.encode if link.hide else made.source.encode
    model = LinkModel(made.model, decoder, encode)
    known = {"num_features": graph.num_features, "walks": made.walks, "edge_columns": model.edge_dim}
    finished = context if context.trained is not None else replace(context, trained=known)
    sources = _Sources(
        lambda other: make(other, finished, every_node(graph.num_nodes), link.dim).source, bare, split.pairs,
        val_messages=link.val_messages,
    )  # fmt: skip
    if over is messages:
        sources.known["train"] = made.source, messages
    sampled = link.batch_size or (STEP if made.whole else SAMPLED)
    return StaticLinkTask(
        model, made.source, sources.vectors, split,
        learned=learned, messages=messages,
        without=sources.without if link.hide else None,
        link=link, batch_size=sampled, seed=config.loop.seed, split_seed=split_seed(config.split),
        node_ids=graph.node_ids, walks=made.walks,
    )  # fmt: skip


def _learned(
    links: np.ndarray, bare: Graph, messages: Graph, link: LinkConfig, split: SplitConfig, context: Context
) -> tuple[np.ndarray, Graph]:
    if not link.disjoint or context.trained is not None:
        return links, messages
    order = named_rng(split_seed(split), "disjoint").permutation(len(links))
    count = max(1, round(link.disjoint * len(links)))
    return links[order[:count]], message_edges(bare, links[order[count:]])


@dataclass
class _Sources:
    """Sources of a network's vectors over other messages than it learns over; each is made on first use."""

    make: Callable[[Graph], NodeBatches[Any]]
    bare: Graph
    pairs: Mapping[str, np.ndarray]
    val_messages: bool
    known: dict[str, tuple[NodeBatches[Any], Graph]] = field(default_factory=dict)

    def over(self, links: np.ndarray) -> tuple[NodeBatches[Any], Graph]:
        messages = message_edges(self.bare, links)
        with random_state_kept():  # its weights are not used
            return self.make(messages), messages

    def without(self, hidden: np.ndarray) -> NodeBatches[Any]:
        return self.over(np.delete(self.pairs["train"], hidden, 0))[0]

    def vectors(self, name: str) -> tuple[NodeBatches[Any], Graph]:
        name = name if name == "test" and self.val_messages else "train"
        if name not in self.known:
            splits = ("train", "val") if name == "test" else ("train",)
            self.known[name] = self.over(np.concatenate([self.pairs[split] for split in splits]))
        return self.known[name]


def edge_split(graph: Graph, link: LinkConfig, split: SplitConfig, context: Context | None = None) -> EdgeSplit:
    """Return how a run shares out the links of a graph; a finished run has its own in split.npz."""
    path = None if context is None or context.trained is None else context.run / "split.npz"
    if path is not None and path.is_file():
        kept = load_split_pairs(path, graph.num_nodes)
        return given_split(graph, {name: kept[name] for name in ("val", "test")})
    if link.file is not None:
        return given_split(graph, read_split(graph, link.file))
    column = time_column(graph, link)
    times = None if column is None else _column(graph, column)
    return split_edges(graph, link.fractions, seed=split_seed(split), times=times)


def split_seed(split: SplitConfig) -> int:
    return split.seed + 1000 * split.number


def time_column(graph: Graph, link: LinkConfig) -> int | None:
    """Return the column of the edges that holds their time, None where the split is not by time."""
    if link.split in ("random", "file") or link.file is not None:
        return None
    names = () if graph.edge_table is None else graph.edge_table.columns
    if link.time is not None:
        if link.time not in names:
            raise DataError(
                f"{graph.name} has no column {link.time!r} of edges{nearest(link.time, names)}; it has: "
                f"{', '.join(names) or 'none'}"
            )
        return names.index(link.time)
    usual = [number for number, name in enumerate(names) if name.lower() in TIMES]
    if link.split == "time" and not usual:
        raise DataError(f"{graph.name} has no column of times of edges; name one (--link.time COLUMN)")
    return usual[0] if usual else None


def without_time(graph: Graph, link: LinkConfig) -> Graph:
    column = time_column(graph, link)
    if column is None or graph.edge_attr is None or graph.edge_table is None:
        return graph
    rest = [number for number in range(graph.edge_attr.shape[1]) if number != column]
    if len(graph.edge_table.columns) == 1:
        return graph.with_(edge_attr=None, edge_table=None)
    table = graph.edge_table.without(column)
    return graph.with_(edge_attr=graph.edge_attr[:, rest], edge_table=table)


def read_split(graph: Graph, path: str) -> dict[str, np.ndarray]:
    """Return the rows of the links that a table of source, target and split names."""
    from hopstate.data.readers.roles import SOURCES, TARGETS
    from hopstate.data.readers.tables import read_table

    table = read_table(Path(path).expanduser(), [*SOURCES, *TARGETS, "split"], num_ids=2)
    source = table.column(None, SOURCES, 0, "source_column")
    target = table.column(None, [name for name in TARGETS if name != source], 1, "target_column")
    named = table.column(None, ("split", "part", "set"), 2, "split_column")
    if source is None or target is None or named is None:
        raise DataError(f"{path} needs columns source, target and split; it has: {', '.join(map(str, table.frame))}")
    ends = np.stack([rows_of(graph, table.ids(end), path, letter) for end, letter in ((source, "u"), (target, "i"))], 1)
    words = table.frame[named].astype(str).str.strip().str.lower().replace({"valid": "val", "validation": "val"})
    which = words.to_numpy(str)
    bad = np.flatnonzero(~np.isin(which, SPLITS))
    if len(bad):
        raise DataError(
            f"{path}: {table.place(int(bad[0]))} has the split {which[bad[0]]!r}; known: {', '.join(SPLITS)}"
        )
    return {name: ends[which == name] for name in SPLITS if (which == name).any()}


def rows_of(graph: Graph, ids: np.ndarray, what: str, letter: str = "") -> np.ndarray:
    """Return (n,) rows of user ids (n,); reading put `letter` ("u", "i") before ids of two sets of nodes."""
    vocabulary = graph.node_ids
    ids = np.asarray(ids)
    if vocabulary is not None:
        if vocabulary.is_text != (ids.dtype.kind in "UT"):
            ids = ids.astype(str) if vocabulary.is_text else _numbers(ids, what)
        rows = vocabulary.rows(ids)
        if ids.dtype.kind in "UT":  # spaces around an id are no part of it, as in files
            rows = np.where(rows < 0, vocabulary.rows(np.strings.strip(ids)), rows)
            if graph.two_sets and letter:
                rows = np.where(rows < 0, vocabulary.rows(np.strings.add(letter, np.strings.strip(ids))), rows)
        known: Any = vocabulary.first()
    else:
        ids = _numbers(ids, what)
        rows, known = np.where((ids >= 0) & (ids < graph.num_nodes), ids, -1), ()
    bad = np.flatnonzero(rows < 0)
    if len(bad):
        told = f"{len(bad)} of {len(ids)} ids are not nodes of {graph.name}, the first is {ids[bad[:1]].tolist()[0]!r}"
        raise DataError(f"{what}: {told}{nearest(str(ids[bad[0]]), known)}")
    return rows.astype(np.int64)


def _numbers(ids: np.ndarray, what: str) -> np.ndarray:
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64)
    try:
        return np.array([int(name) for name in ids.tolist()], np.int64)
    except (ValueError, OverflowError):
        bad = next(name for name in ids.tolist() if not str(name).lstrip("+-").isdigit())
        raise DataError(f"{what}: the nodes are numbers, and {bad!r} is none; give ids as in the data") from None


def every_node(count: int) -> NodeLabels:
    target = Target(goal="classes", names=("node",), metrics=("accuracy",))
    return NodeLabels(y=np.zeros(count, np.int64), split={"train": np.arange(count)}, target=target)


def decoder_of(link: LinkConfig, split: EdgeSplit) -> str:
    return ("bilinear" if split.directed else "dot") if link.decoder == "auto" else link.decoder


def _column(graph: Graph, column: int) -> np.ndarray:
    assert graph.edge_table is not None
    return np.asarray(graph.edge_table.values[:, column], np.float64)


def _check(config: NodeRun) -> None:
    if config.metric not in ("auto", "mrr"):
        raise ConfigError(f"task=link is chosen by mrr; got metric={config.metric}, leave it out")
    if config.class_weights != "none":
        raise ConfigError("class_weights are of classes of nodes; task=link has none, leave them out")
    if config.split.per_class is not None or config.split.fractions != SplitConfig().fractions:
        raise ConfigError("split.fractions and split.per_class share out nodes; with task=link give link.fractions")


def _tell(split: EdgeSplit, link: LinkConfig, config: NodeRun, graph: Graph) -> None:
    sizes = ", ".join(f"{len(split.pairs[name]):,} {name}" for name in SPLITS)
    column = time_column(graph, link)
    how = "the file" if link.file else "time" if column is not None else f"chance, seed {split_seed(config.split)}"
    note(config.loop, f"links: {sizes}, by {how}; messages pass over training links alone")
    kind = decoder_of(link, split)
    if split.directed and DECODERS[kind].symmetric:
        note(config.loop, f"links: link.decoder={kind} scores both directions of a pair alike; bilinear does not")


__all__ = ["edge_split", "every_node", "link_task", "read_split", "rows_of", "split_seed", "time_column"]
