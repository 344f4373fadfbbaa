"""Static link prediction for all methods that compute node embeddings: edge splits, message edges and the task."""

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
from hopstate.methods.shared.node import FULL_GRAPH_LINK_BATCH, SAMPLED_LINK_BATCH, NodeRun, save_npz
from hopstate.ops.proximity import FEATURES
from hopstate.random import named_rng, random_state_kept
from hopstate.training.progress import note
from hopstate.training.tasks.node import NodeBatches, NodeLabels
from hopstate.training.tasks.static_link import LinkConfig, LinkModel, StaticLinkTask, Without
from hopstate.training.tasks.target import Target

if TYPE_CHECKING:
    from hopstate.methods.shared.node import BuildNetwork

TIME_COLUMNS = ("t", "time", "timestamp", "ts", "unixts", "unix_time", "date", "datetime", "year")


def link_task(graph: Graph, config: NodeRun, context: Context, make: BuildNetwork) -> StaticLinkTask:
    """Return the link-prediction task of a graph."""
    _check(config)
    link: LinkConfig = config.link
    split = edge_split(graph, link, config.split, context)
    untimed = drop_time_column(graph, link)
    messages = message_edges(untimed, split.pairs["train"])
    supervision, train_messages = _supervision_split(
        split.pairs["train"], untimed, messages, link, config.split, context
    )
    network = make(train_messages, context, placeholder_labels(graph.num_nodes), link.dim)
    if link.mask_target_edges and not network.full_graph:
        raise ConfigError("link.mask_target_edges needs full-graph training (--batching.kind full)")
    if context.trained is None:
        replace_file(context.run / "split.npz", lambda part: save_npz(part, dict(split.pairs)))
        _note_split(split, link, config, graph)

    decoder = PairDecoder(
        decoder_of(link, split), link.dim, directed=split.directed, dropout=network.dropout,
        features=FEATURES if link.structural_features else 0,
    )  # fmt: skip
    encode = Without.encode if link.mask_target_edges else network.source.encode
    model = LinkModel(network.model, decoder, encode)
    trained_facts = {"num_features": graph.num_features, "walks": network.walks, "edge_columns": model.edge_dim}
    trained_context = context if context.trained is not None else replace(context, trained=trained_facts)
    sources = _Sources(
        lambda other: make(other, trained_context, placeholder_labels(graph.num_nodes), link.dim).source, untimed,
        split.pairs,
        messages_from_val=link.messages_from_val,
    )  # fmt: skip
    if train_messages is messages:
        sources.known["train"] = network.source, messages
    batch_size = link.batch_size or (FULL_GRAPH_LINK_BATCH if network.full_graph else SAMPLED_LINK_BATCH)
    return StaticLinkTask(
        model, network.source, sources.vectors, split,
        learned=supervision, messages=messages,
        without=sources.without if link.mask_target_edges else None,
        link=link, batch_size=batch_size, seed=config.loop.seed, split_seed=split_seed(config.split),
        node_ids=graph.node_ids, walks=network.walks,
    )  # fmt: skip


def _supervision_split(
    links: np.ndarray, untimed: Graph, messages: Graph, link: LinkConfig, split: SplitConfig, context: Context
) -> tuple[np.ndarray, Graph]:
    if not link.disjoint_train_ratio or context.trained is not None:
        return links, messages
    order = named_rng(split_seed(split), "disjoint").permutation(len(links))
    count = max(1, round(link.disjoint_train_ratio * len(links)))
    return links[order[:count]], message_edges(untimed, links[order[count:]])


@dataclass
class _Sources:
    """Batch sources over different message edges. Each is created on first use and cached."""

    make: Callable[[Graph], NodeBatches[Any]]
    untimed: Graph
    pairs: Mapping[str, np.ndarray]
    messages_from_val: bool
    known: dict[str, tuple[NodeBatches[Any], Graph]] = field(default_factory=dict)

    def over(self, links: np.ndarray) -> tuple[NodeBatches[Any], Graph]:
        messages = message_edges(self.untimed, links)
        with random_state_kept():  # its weights are not used
            return self.make(messages), messages

    def without(self, hidden: np.ndarray) -> NodeBatches[Any]:
        return self.over(np.delete(self.pairs["train"], hidden, 0))[0]

    def vectors(self, name: str) -> tuple[NodeBatches[Any], Graph]:
        name = name if name == "test" and self.messages_from_val else "train"
        if name not in self.known:
            splits = ("train", "val") if name == "test" else ("train",)
            self.known[name] = self.over(np.concatenate([self.pairs[split] for split in splits]))
        return self.known[name]


def edge_split(graph: Graph, link: LinkConfig, split: SplitConfig, context: Context | None = None) -> EdgeSplit:
    """Return the edge split of a run. A finished run reads it from split.npz."""
    path = None if context is None or context.trained is None else context.run / "split.npz"
    if path is not None and path.is_file():
        saved = load_split_pairs(path, graph.num_nodes)
        return given_split(graph, {name: saved[name] for name in ("val", "test")})
    if link.file is not None:
        return given_split(graph, read_split(graph, link.file))
    column = time_column(graph, link)
    times = None if column is None else _column(graph, column)
    return split_edges(graph, link.fractions, seed=split_seed(split), times=times)


def split_seed(split: SplitConfig) -> int:
    return split.seed + 1000 * split.number


def time_column(graph: Graph, link: LinkConfig) -> int | None:
    """Return the index of the edge column that holds times, or None if the split is not by time."""
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
    candidates = [number for number, name in enumerate(names) if name.lower() in TIME_COLUMNS]
    if link.split == "time" and not candidates:
        raise DataError(f"{graph.name} has no time column for edges; name one (--link.time COLUMN)")
    return candidates[0] if candidates else None


def drop_time_column(graph: Graph, link: LinkConfig) -> Graph:
    column = time_column(graph, link)
    if column is None or graph.edge_attr is None or graph.edge_table is None:
        return graph
    kept_columns = [number for number in range(graph.edge_attr.shape[1]) if number != column]
    if len(graph.edge_table.columns) == 1:
        return graph.with_(edge_attr=None, edge_table=None)
    table = graph.edge_table.without(column)
    return graph.with_(edge_attr=graph.edge_attr[:, kept_columns], edge_table=table)


def read_split(graph: Graph, path: str) -> dict[str, np.ndarray]:
    """Return the node rows of the links in a table with source, target and split columns."""
    from hopstate.data.readers.roles import SOURCES, TARGETS
    from hopstate.data.readers.tables import read_table

    table = read_table(Path(path).expanduser(), [*SOURCES, *TARGETS, "split"], num_ids=2)
    source = table.column(None, SOURCES, 0, "source_column")
    target = table.column(None, [name for name in TARGETS if name != source], 1, "target_column")
    split_column = table.column(None, ("split", "part", "set"), 2, "split_column")
    if source is None or target is None or split_column is None:
        raise DataError(f"{path} needs columns source, target and split; it has: {', '.join(map(str, table.frame))}")
    ends = np.stack(
        [node_rows(graph, table.ids(end), path, letter) for end, letter in ((source, "u"), (target, "i"))], 1
    )
    values = (
        table.frame[split_column].astype(str).str.strip().str.lower().replace({"valid": "val", "validation": "val"})
    )
    splits = values.to_numpy(str)
    bad = np.flatnonzero(~np.isin(splits, SPLITS))
    if len(bad):
        raise DataError(
            f"{path}: {table.place(int(bad[0]))} has the split {splits[bad[0]]!r}; known: {', '.join(SPLITS)}"
        )
    return {name: ends[splits == name] for name in SPLITS if (splits == name).any()}


def node_rows(graph: Graph, ids: np.ndarray, what: str, letter: str = "") -> np.ndarray:
    """Return (n,) node rows of ids (n,). letter ("u", "i") is the prefix that reading gave ids of bipartite graphs."""
    vocabulary = graph.node_ids
    ids = np.asarray(ids)
    if vocabulary is not None:
        if vocabulary.is_text != (ids.dtype.kind in "UT"):
            ids = ids.astype(str) if vocabulary.is_text else _numbers(ids, what)
        rows = vocabulary.rows(ids)
        if ids.dtype.kind in "UT":  # ignore spaces around ids, as file readers do
            rows = np.where(rows < 0, vocabulary.rows(np.strings.strip(ids)), rows)
            if graph.two_sets and letter:
                rows = np.where(rows < 0, vocabulary.rows(np.strings.add(letter, np.strings.strip(ids))), rows)
        candidates: Any = vocabulary.first()
    else:
        ids = _numbers(ids, what)
        rows, candidates = np.where((ids >= 0) & (ids < graph.num_nodes), ids, -1), ()
    bad = np.flatnonzero(rows < 0)
    if len(bad):
        problem = (
            f"{len(bad)} of {len(ids)} ids are not nodes of {graph.name}, the first is {ids[bad[:1]].tolist()[0]!r}"
        )
        raise DataError(f"{what}: {problem}{nearest(str(ids[bad[0]]), candidates)}")
    return rows.astype(np.int64)


def _numbers(ids: np.ndarray, what: str) -> np.ndarray:
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64)
    try:
        return np.array([int(name) for name in ids.tolist()], np.int64)
    except (ValueError, OverflowError):
        bad = next(name for name in ids.tolist() if not str(name).lstrip("+-").isdigit())
        raise DataError(f"{what}: node ids must be integers, as in the data: got {bad!r}") from None


def placeholder_labels(count: int) -> NodeLabels:
    target = Target(goal="classes", names=("node",), metrics=("accuracy",))
    return NodeLabels(y=np.zeros(count, np.int64), split={"train": np.arange(count)}, target=target)


def decoder_of(link: LinkConfig, split: EdgeSplit) -> str:
    return ("bilinear" if split.directed else "dot") if link.decoder == "auto" else link.decoder


def _column(graph: Graph, column: int) -> np.ndarray:
    assert graph.edge_table is not None
    return np.asarray(graph.edge_table.values[:, column], np.float64)


def _check(config: NodeRun) -> None:
    if config.metric not in ("auto", "mrr"):
        raise ConfigError(f"task=link selects models by mrr: got metric={config.metric}; remove it")
    if config.class_weights != "none":
        raise ConfigError("class_weights apply to node classes, not to task=link; remove them")
    if config.split.per_class is not None or config.split.fractions != SplitConfig().fractions:
        raise ConfigError("split.fractions and split.per_class split nodes; with task=link use link.fractions")


def _note_split(split: EdgeSplit, link: LinkConfig, config: NodeRun, graph: Graph) -> None:
    sizes = ", ".join(f"{len(split.pairs[name]):,} {name}" for name in SPLITS)
    column = time_column(graph, link)
    how = "the file" if link.file else "time" if column is not None else f"chance, seed {split_seed(config.split)}"
    note(config.loop, f"links: {sizes}, by {how}; only training links pass messages")
    kind = decoder_of(link, split)
    if split.directed and DECODERS[kind].symmetric:
        note(config.loop, f"links: link.decoder={kind} scores both directions of a pair alike; bilinear does not")


__all__ = [
    "edge_split",
    "link_task",
    "node_rows",
    "placeholder_labels",
    "read_split",
    "split_seed",
    "time_column",
]
