"""Inputs and outputs of exported programs.

A program takes tensors, builds the model's input object from them and returns the model's outputs. This module builds
those inputs for histories and graphs, and describes the tensors for the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.data.dates import Clock
from hopstate.errors import ConfigError, ShapeError
from hopstate.layers.decoders import PairDecoder
from hopstate.methods.shared.static_link import node_rows
from hopstate.tokens.history import HistoryTokens
from hopstate.tokens.pair_features import NAMES
from hopstate.training.devices import bare
from hopstate.training.tasks.node import NodeBatches, NodeTask
from hopstate.training.tasks.static_link import LinkModel, StaticLinkTask

__all__ = ["graph_spec", "history_spec", "logit_port", "packed_tokens", "rows_port"]

Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Port:
    """An input or output of a program.

    Args:
        name: name in the program.
        meaning: description for the caller.
        axes: a name for each axis of variable length, "" for each fixed axis. Ports that share a name share a length.
        example: of an input, a tensor of its shape and dtype. Variable axes have at least two entries.
    """

    name: str
    meaning: str
    axes: tuple[str, ...]
    example: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class StateQuery:
    """Queries to a memory model: a follower of a stream, (1 or 2, Q) rows of nodes or pairs, and (Q,) times."""

    follower: Any
    ends: np.ndarray
    t: np.ndarray


class Program(nn.Module):
    """A module that maps tensors, in the order of inputs or by name, to the outputs of a model.

    Args:
        model: the trained model.
        inputs: input ports in order.
        call: (model, tensors by name) → outputs.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[Port], call: Callable[[Any, Tensors], Any]) -> None:
        super().__init__()
        self.model, self.names, self.call = model, tuple(port.name for port in inputs), call

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.call(self.model, dict(zip(self.names, inputs)) | named)


@dataclass(frozen=True, kw_only=True)
class ExportSpec:
    """Everything needed to export a run.

    Args:
        module: takes the inputs in order and returns the output, or a tuple of outputs. Operators of hopstate are
            traced in their reference form (`hopstate.ops.use_reference_ops`).
        inputs: input ports with examples, in the order of the module's arguments.
        outputs: output ports.
        preprocessing: description of the preprocessing that the caller must do.
        fill: queries → inputs by name. Queries of streams are a tokenizer's result or a `StateQuery`. Queries of graphs
            are those of `hopstate.export_inputs`, None for all. None if a custom method does not define it.
        reference: graph queries → the first output, computed by the training code.
        sample: graph queries for `check_program`. None for all.
        left_out: description of what the program lacks, and why. "" for nothing.
    """

    module: nn.Module
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    preprocessing: str
    fill: Callable[[Any], Mapping[str, Tensor | None]] | None = None
    reference: Callable[[Any], Tensor] | None = None
    sample: Any = None
    left_out: str = ""

    @property
    def example(self) -> tuple[Tensor, ...]:
        return tuple(port.example for port in self.inputs if port.example is not None)

    def filled(self, queries: Any) -> tuple[Tensor, ...]:
        """Return the input tensors for queries, in order and in the program's precision."""
        assert self.fill is not None
        tensors, filled = self.fill(queries), []
        for port, like in zip(self.inputs, self.example, strict=True):
            value = tensors[port.name]
            assert value is not None, port.name
            filled.append(value.to(like.dtype))
        return tuple(filled)


PAIRS, TOKENS = 3, 9  # sizes of the example inputs
LINKS = 100  # links that a check queries, with as many negatives
MEANINGS = {
    "lengths": "tokens of each source's sequence, then of each target's; a sequence without a token is allowed",
    "gaps": "time from each token's event to the query, in units of the run's clock; 0 for the node itself",
    "spans": "time from each event to the next of its sequence, of the last to the query; of the node itself, if it "
    "is first, the time from the sequence's first event to the query",
    "counts": "how often the token's node occurs in the source's and in the target's sequence",
    "x": "features of each token's node, scaled as in training",
    "edge_attr": "features of each token's event, scaled as in training, zeros for the node itself; where deletions "
    "are marked, the last column is 1 for them",
    "pair": "features of the pair's history, NaN if undefined; columns: ",
    "nodes": "mean features of the neighbors of each source, then of each target, and their own",
}


def rows_port(axis: str, what: str = "node") -> Port:
    meaning = f"a row a {what}, logits, or scaled amounts, of the run's target"
    return Port(name="output", meaning=meaning, axes=(axis, ""))


def logit_port() -> Port:
    """Return the output of a program of pairs of a stream."""
    return Port(name="logit", meaning="the model's own output for each pair", axes=("pair",))


# ---- histories ---------------------------------------------------------------------------------------------
def packed_tokens(tensors: Tensors) -> HistoryTokens:
    """Return packed tokens from tensors. Ids of nodes and events, which no model reads, are zeros."""
    bounds, gaps = F.pad(tensors["lengths"].flatten().cumsum(0), (1, 0)), tensors["gaps"]
    none = torch.zeros_like(gaps, dtype=torch.int64)
    fields: dict[str, Any] = {name: tensors.get(name) for name in ("spans", "counts", "x", "edge_attr", "pair")}
    longest = 0 if torch.compiler.is_exporting() else int(bounds.diff(append=bounds[-1:]).max())
    return HistoryTokens(offsets=bounds, nodes=none, event_ids=none, gaps=gaps, longest=longest, **fields)


def history_spec(
    model: nn.Module,
    names: Sequence[str],
    *,
    clock: Clock | None,
    preprocessing: str,
    record: Callable[[Tensors], Any] = packed_tokens,
    nodes: bool = False,
) -> ExportSpec:
    """Return the export of a model of event histories.

    Args:
        names: inputs that the model can read. Features with no columns are skipped.
        clock: time normalization of the run, or None if unknown.
        record: tensors by name → the model's input.
        nodes: one sequence per node instead of two per pair.
    """
    network: Any = model
    (node_dim, edge_dim), history = network.feature_dims, None if nodes else network.head.pair
    columns = {"gaps": 0, "spans": 0, "counts": 2, "x": node_dim, "nodes": node_dim, "edge_attr": edge_dim}
    columns["pair"] = 0 if history is None else history.num_features
    widths = {name: columns[name] for name in names if columns[name] or name in ("gaps", "spans")}
    lengths, like = torch.tensor([4, 2, 3] if nodes else [[3, 0, 2], [1, 1, 2]]), next(model.parameters())
    axes: tuple[str, ...] = ("sequence",) if nodes else ("", "pair")
    ports = [Port(name="lengths", meaning=MEANINGS["lengths"], axes=axes, example=lengths)]
    for name, width in widths.items():
        axes = {"pair": ("pair",), "nodes": ("", "pair")}.get(name, ("token",)) + (("",) if width else ())
        shape = {"pair": (PAIRS,), "nodes": (2, PAIRS)}.get(name, (TOKENS,)) + ((width,) if width else ())
        example = torch.randint(0, 3, shape) if name == "counts" else torch.rand(shape).to(like)
        meaning = MEANINGS[name] + (", ".join(NAMES[:width]) if name == "pair" else "")
        ports.append(Port(name=name, meaning=meaning, axes=axes, example=example))
    if clock is not None:
        preprocessing += f"; a time of 1 is {clock.unit:.9g} {clock.time_unit or 'in the unit'} of the run's own data"
    return ExportSpec(
        module=Program(model, ports, lambda model, given: model(record(given))),
        inputs=tuple(ports),
        outputs=(rows_port("sequence") if nodes else logit_port(),),
        preprocessing=preprocessing,
        fill=lambda found: _history_tensors(found, widths, nodes=nodes),
    )


def _history_tensors(found: Any, widths: dict[str, int], *, nodes: bool) -> Tensors:
    """Return the program's tensors from a tokenizer's result. Absent features become zeros.

    Args:
        found: `HistoryTokens`, or the distinct endpoints of pairs with fields tokens, ends, x and pair. Tokens of an
            endpoint are repeated for each of its pairs.
        widths: columns of each input, 0 for none.
        nodes: one sequence per node instead of two per pair.
    """
    single_nodes = isinstance(found, HistoryTokens)
    tokens = found if single_nodes else found.tokens
    ends = torch.arange(tokens.num_sequences) if single_nodes else found.ends.flatten()
    lengths = tokens.lengths[ends]
    rows = torch.repeat_interleave(tokens.offsets[ends] - (lengths.cumsum(0) - lengths), lengths) + torch.arange(
        int(lengths.sum())
    )
    tensors = {"lengths": lengths if nodes else lengths.view(2, -1)}
    for name, width in widths.items():
        if name == "pair":
            tensors[name] = found.pair
            continue
        value, places = (found.x, ends) if name == "nodes" else (getattr(tokens, name), rows)
        value = torch.zeros(len(places), width) if value is None else value[places]
        tensors[name] = value.view(2, -1, width) if name == "nodes" else value
    return tensors


# ---- networks over one graph -------------------------------------------------------------------------------
FullGraph = Callable[[NodeBatches[Any]], Mapping[str, Tensor | None]]
Vectors = Callable[[nn.Module, NodeBatches[Any]], Tensor]


def graph_spec(
    task: NodeTask[Any] | StaticLinkTask,
    of_network: Callable[[nn.Module], ExportSpec],
    full_graph: FullGraph,
    vectors: Vectors,
) -> ExportSpec:
    """Return the export of a node or link task from the export of its network or encoder.

    Args:
        task: the trained task.
        of_network: network → its export. The first input has one row per node.
        full_graph: source → inputs of the full graph, by name.
        vectors: (network, source) → (N, D) outputs of all nodes.
    """
    if not isinstance(task, StaticLinkTask):
        spec, node_task = of_network(bare(task.model)), task
        return replace(
            spec,
            fill=lambda _: full_graph(node_task.source),
            reference=lambda _: vectors(node_task.model, node_task.source),
        )
    model = bare(task.model)
    if not isinstance(model, LinkModel) or not isinstance(model.decoder, PairDecoder):
        raise ConfigError(f"{type(model).__name__} cannot be exported: it is not an encoder with a pair decoder")
    spec, links, decoder = of_network(model.encoder), task, model.decoder
    meaning, pairs = "int64 sources and targets of the pairs, by their rows among the nodes", torch.tensor([[0, 1]] * 4)
    inputs = [*spec.inputs, Port(name="pairs", meaning=meaning, axes=("pair", ""), example=pairs)]
    preprocessing = f"{spec.preprocessing}; messages are the training links, those of other splits left out"
    if decoder.near is not None:
        first = next(decoder.near.parameters())
        near = torch.rand(len(pairs), first.shape[1]).to(first)
        meaning = f"{first.shape[1]} numbers a pair, how near its nodes are by the links that are messages"
        inputs.append(Port(name="near", meaning=meaning, axes=("pair", ""), example=near))
        preprocessing += "; near is hopstate.ops.proximity.Proximity(indptr, indices).features(sources, targets)"

    def call(parts: nn.ModuleList, given: Tensors) -> tuple[Tensor, Tensor]:
        pairs, near = given.pop("pairs"), given.pop("near", None)
        z = parts[0](*given.values())
        logit = parts[1](z.index_select(0, pairs[:, 0]), z.index_select(0, pairs[:, 1]), near)
        return logit, torch.sigmoid(logit.double())

    def fill(pairs: Any) -> dict[str, Tensor | None]:
        ends, (source, messages) = _ends(links, pairs), links.vectors("test")
        tensors = {**full_graph(source), "pairs": torch.from_numpy(ends)}
        if decoder.near is not None:  # with the links that test evaluation uses
            tensors["near"] = torch.from_numpy(links.near(messages).features(*np.ascontiguousarray(ends.T)))
        return tensors

    def reference(pairs: Any) -> Tensor:
        tensors, z = fill(pairs), vectors(model.encoder, links.vectors("test")[0])
        ends, near = tensors["pairs"], tensors.get("near")
        assert ends is not None
        return decoder(z[ends[:, 0]], z[ends[:, 1]], None if near is None else near.to(z))

    return ExportSpec(
        module=Program(nn.ModuleList([spec.module, decoder]), inputs, call),
        inputs=tuple(inputs),
        outputs=(
            Port(name="logit", meaning="of a link between the two nodes", axes=("pair",)),
            Port(name="score", meaning="sigmoid of the logit", axes=("pair",)),
        ),
        preprocessing=preprocessing,
        fill=fill,
        reference=reference,
    )


def _ends(task: StaticLinkTask, pairs: Any) -> np.ndarray:
    """Return (P, 2) node rows of pairs of ids. None: test links and negatives made of their endpoints."""
    if pairs is None:
        links = task.split.pairs["test"][:LINKS]
        return np.concatenate([links, np.stack([links[:, 0], np.roll(links[:, 1], 1)], 1)])
    ids = np.asarray(pairs)
    if ids.ndim != 2 or ids.shape[1] != 2:
        raise ShapeError(f"pairs must be (P, 2) ids of sources and targets: got {ids.shape}")
    return np.stack(
        [node_rows(task.messages, column, "pairs", letter) for column, letter in zip(ids.T, "ui", strict=True)], 1
    )
