"""What exported programs take and give: tensors in, a model's own input record made of them, its answers out.

A model is exported as it is; what stands here are the adapters from tensors to its input, one a kind of input, and the
descriptions of these tensors that methods share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.data.clock import Clock
from hopstate.errors import ConfigError, ShapeError
from hopstate.layers.pair_decoders import PairDecoder
from hopstate.methods.shared.static_link import rows_of
from hopstate.tokens.history import HistoryTokens
from hopstate.tokens.pair_features import NAMES
from hopstate.training.exported import ExportSpec, Port
from hopstate.training.precision import bare
from hopstate.training.tasks.node import NodeBatches, NodeTask
from hopstate.training.tasks.static_link import LinkModel, StaticLinkTask

PAIRS, TOKENS = 3, 9  # of what is made to trace a program with
LINKS = 100  # links of a graph that a check asks for, and as many other pairs of their ends
MEANINGS = {
    "lengths": "tokens of each source's sequence, then of each target's; a sequence without a token is allowed",
    "gaps": "time from each token's event to the query, in units of the run's clock; 0 for the node itself",
    "spans": "time from each event to the next of its sequence, of the last to the query; of the node itself, where it "
    "stands first, the time from the sequence's first event to the query",
    "counts": "how often the token's node stands in the source's sequence and in the target's",
    "x": "features of each token's node, scaled as in training",
    "edge_attr": "features of each token's event, scaled as in training, zeros for the node itself; where deletions "
    "are marked, the last column is 1 for them",
    "pair": "what the pair's own history tells, NaN where something never happened; columns: ",
    "nodes": "mean features of the neighbours of each source, then of each target, and their own",
}


def rows_port(axis: str, what: str = "node") -> Port:
    """Return the output of a program that gives a row for each of something."""
    meaning = f"a row a {what}, logits, or scaled amounts, of the run's target"
    return Port(name="output", meaning=meaning, axes=(axis, ""))


def logit_port() -> Port:
    """Return the output of a program of pairs of a stream."""
    return Port(name="logit", meaning="the model's own output for each pair", axes=("pair",))


# ---- histories ---------------------------------------------------------------------------------------------
class HistoryProgram(nn.Module):
    """Lengths of sequences and columns of their packed tokens → what a model of histories says of its queries.

    Args:
        model: takes `HistoryTokens`, or what record makes of them.
        names: of the columns, as in `MEANINGS`.
        record: tokens and the column "nodes" → the model's input.
    """

    def __init__(
        self, model: nn.Module, names: Sequence[str], record: Callable[[HistoryTokens, Tensor | None], Any] | None
    ) -> None:
        super().__init__()
        self.model, self.names, self.record = model, tuple(names), record

    def forward(self, lengths: Tensor, *columns: Tensor) -> Tensor:
        """Return (P,) logits, or (S, C) rows of nodes."""
        given = dict(zip(self.names, columns, strict=True))
        nodes, gaps, bounds = given.pop("nodes", None), given["gaps"], F.pad(lengths.flatten().cumsum(0), (1, 0))
        unread = torch.zeros_like(gaps, dtype=torch.int64)  # ids of nodes and events are no input of a model
        fields: dict[str, Any] = dict.fromkeys(("spans", "counts", "x", "edge_attr")) | given
        longest = 0 if torch.compiler.is_exporting() else int(bounds.diff(append=bounds[-1:]).max())
        tokens = HistoryTokens(offsets=bounds, nodes=unread, event_ids=unread, longest=longest, **fields)
        return self.model(tokens if self.record is None else self.record(tokens, nodes))


def history_spec(
    model: nn.Module,
    names: Sequence[str],
    *,
    clock: Clock | None,
    preprocessing: str,
    record: Callable[[HistoryTokens, Tensor | None], Any] | None = None,
    nodes: bool = False,
) -> ExportSpec:
    """Return what is exported of a model of histories.

    Args:
        model: with `feature_dims`, and a head with `pair` where it reads a pair's own history.
        names: columns that the model can read; features of no width are left out.
        clock: what a gap of 1 is; None where the run does not know.
        preprocessing: how tokens come about.
        record: see `HistoryProgram`.
        nodes: one sequence a node, not two a pair.
    """
    (node_dim, edge_dim), history = model.feature_dims, None if nodes else model.head.pair  # type: ignore[misc,union-attr]
    known = {"gaps": 0, "spans": 0, "counts": 2, "x": node_dim, "nodes": node_dim, "edge_attr": edge_dim}
    known["pair"] = 0 if history is None else history.num_features
    widths = {name: known[name] for name in names if known[name] or name in ("gaps", "spans")}
    ports = [Port(name="lengths", meaning=MEANINGS["lengths"], axes=("sequence",) if nodes else ("", "pair"))]
    example, like = [torch.tensor([4, 2, 3] if nodes else [[3, 0, 2], [1, 1, 2]])], next(model.parameters())
    for name, width in widths.items():
        axes, shape = {"pair": (("pair",), [PAIRS]), "nodes": (("", "pair"), [2, PAIRS])}.get(
            name, (("token",), [TOKENS])
        )
        if width:
            axes, shape = (*axes, ""), [*shape, width]
        example.append(torch.randint(0, 3, shape) if name == "counts" else torch.rand(shape).to(like))
        meaning = MEANINGS[name] + (", ".join(NAMES[:width]) if name == "pair" else "")
        ports.append(Port(name=name, meaning=meaning, axes=axes))
    if clock is not None:
        preprocessing += f"; a time of 1 is {clock.unit:.9g} {clock.time_unit or 'in the unit'} of the run's own data"
    return ExportSpec(
        module=HistoryProgram(model, tuple(widths), record),
        inputs=tuple(ports),
        outputs=(rows_port("sequence") if nodes else logit_port(),),
        example=tuple(example),
        preprocessing=preprocessing,
        fill=partial(history_inputs, widths=widths, like=like, nodes=nodes),
    )


def history_inputs(found: Any, widths: dict[str, int], like: Tensor, *, nodes: bool = False) -> tuple[Tensor, ...]:
    """Return what a program takes of a tokenizer's pairs or nodes, lengths first; features that are all zero as zeros.

    Args:
        found: `HistoryTokens`; or distinct ends of pairs, with fields tokens, ends, x and pair, each of which then
            stands as often as it is an end.
        widths: columns of each further input, 0 for one without columns.
        like: of the weights' type.
        nodes: as in `history_spec`.
    """
    if isinstance(found, HistoryTokens):
        tokens, ends, rows, means = found, torch.arange(found.num_sequences), torch.arange(len(found.nodes)), None
    else:
        tokens, ends, means = found.tokens, found.ends.flatten(), found.x
        many = tokens.lengths[ends]
        first = torch.repeat_interleave(tokens.offsets[ends] - (many.cumsum(0) - many), many)
        rows = first + torch.arange(len(first))
    inputs = [tokens.lengths[ends] if nodes else tokens.lengths[ends].view(2, -1)]
    for name, width in widths.items():
        if name in ("pair", "nodes"):
            value, places = (found.pair, slice(None)) if name == "pair" else (means, ends)
        else:
            value, places = getattr(tokens, name), rows
        if value is None:
            value = torch.zeros(len(tokens.nodes) if name != "nodes" else tokens.num_sequences, width)
        value = value[places] if name == "counts" else value[places].to(like)
        inputs.append(value.view(2, -1, width) if name == "nodes" else value)
    return tuple(inputs)


# ---- memories ----------------------------------------------------------------------------------------------
class StateProgram(nn.Module):
    """Outputs of a memory, and what else is read, by name → what a model says of its queries.

    Args:
        readout: memory (E, Q, d), static vectors (E, Q, s), gaps and features of pairs (Q, G) → logits.
        names: of the inputs.
    """

    def __init__(self, readout: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.readout, self.names = readout, tuple(names)

    def forward(self, *columns: Tensor) -> Tensor:
        """Return (P,) logits of pairs, or (Q, C) rows of nodes."""
        given = dict(zip(self.names, columns, strict=True))
        memory = given["memory"]
        none = memory.new_zeros(*memory.shape[:2], 0)
        gap = torch.cat([given.get("gap", none[0]), given.get("pair", none[0])], 1)
        return self.readout(memory, given.get("static", none), gap)


# ---- networks over one graph -------------------------------------------------------------------------------
Taken = Callable[[NodeBatches[Any]], dict[str, Tensor | None]]
Vectors = Callable[[nn.Module, NodeBatches[Any]], Tensor]


def filled(spec: ExportSpec, given: dict[str, Tensor | None]) -> tuple[Tensor, ...]:
    """Return a program's inputs out of tensors by name, in the weights' precision."""
    like, found = spec.example[0], []
    for port in spec.inputs:
        value = given[port.name]
        assert value is not None
        found.append(value.to(like) if value.is_floating_point() else value)
    return tuple(found)


def graph_spec(
    task: NodeTask[Any] | StaticLinkTask, of_network: Callable[[nn.Module], ExportSpec], taken: Taken, vectors: Vectors
) -> ExportSpec:
    """Return what is exported of a task of nodes or links, from what is exported of its network or encoder.

    Args:
        task: the task.
        of_network: network → what is exported of it; its first input has a row a node.
        taken: a source → its whole graph, by the names of the network's inputs.
        vectors: network and source → (N, D) what the network itself says of all nodes.

    Raises:
        ConfigError: what `of_network` raises, or a decoder that is not of pairs.
    """
    if isinstance(task, StaticLinkTask):
        return _link_spec(task, of_network, taken, vectors)
    spec = of_network(bare(task.model))
    return replace(
        spec,
        fill=lambda _: filled(spec, taken(task.source)),
        reference=lambda _: vectors(task.model, task.source),
    )


class LinkProgram(nn.Module):
    """An encoder's inputs, pairs (P, 2) of its nodes, and (P, F) how near they are where that counts → P links.

    Args:
        encoder: inputs → (N, D) vectors of nodes.
        decoder: of pairs of them.
    """

    def __init__(self, encoder: nn.Module, decoder: PairDecoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return (P,) logits and their sigmoid in float64."""
        near = inputs[-1] if self.decoder.near is not None else None
        *first, pairs = inputs if near is None else inputs[:-1]
        z = self.encoder(*first)
        logit = self.decoder(z.index_select(0, pairs[:, 0]), z.index_select(0, pairs[:, 1]), near)
        return logit, torch.sigmoid(logit.double())


def _link_spec(
    task: StaticLinkTask, of_network: Callable[[nn.Module], ExportSpec], taken: Taken, vectors: Vectors
) -> ExportSpec:
    model = bare(task.model)
    if not isinstance(model, LinkModel) or not isinstance(model.decoder, PairDecoder):
        raise ConfigError(f"{type(model).__name__} has no program: it is no encoder with a decoder of pairs")
    spec, decoder = of_network(model.encoder), model.decoder
    meaning = "int64 sources and targets of the pairs, by their rows among the nodes"
    inputs, example = [Port(name="pairs", meaning=meaning, axes=("pair", ""))], [torch.tensor([[0, 1]] * PAIRS)]
    preprocessing = f"{spec.preprocessing}; messages are the training links, those of other splits left out"
    if decoder.near is not None:
        first = next(decoder.near.parameters())
        meaning = f"{first.shape[1]} numbers a pair, how near its nodes are by the links that are messages"
        inputs.append(Port(name="near", meaning=meaning, axes=("pair", "")))
        example.append(torch.rand(PAIRS, first.shape[1]).to(first))
        preprocessing += "; near is hopstate.ops.proximity.Proximity(indptr, indices).features(sources, targets)"

    def asked(pairs: Any) -> tuple[Tensor, ...]:
        """Return pairs, and how near they are by the links that the test split is judged over, where that is read."""
        ends = _ends(task, pairs)
        if decoder.near is None:
            return (torch.from_numpy(ends),)
        found = task.near(task.vectors("test")[1]).features(*np.ascontiguousarray(ends.T))
        return torch.from_numpy(ends), torch.from_numpy(found).to(next(decoder.parameters()))

    def reference(pairs: Any) -> Tensor:
        ends, *near = asked(pairs)
        z = vectors(model.encoder, task.vectors("test")[0])
        return decoder(z[ends[:, 0]], z[ends[:, 1]], *near)

    return replace(
        spec,
        module=LinkProgram(spec.module, decoder),
        inputs=(*spec.inputs, *inputs),
        outputs=(
            Port(name="logit", meaning="of a link between the two nodes", axes=("pair",)),
            Port(name="score", meaning="sigmoid of the logit", axes=("pair",)),
        ),
        example=(*spec.example, *example),
        preprocessing=preprocessing,
        fill=lambda pairs: (*filled(spec, taken(task.vectors("test")[0])), *asked(pairs)),
        reference=reference,
    )


def _ends(task: StaticLinkTask, pairs: Any) -> np.ndarray:
    """Return (P, 2) rows of pairs of ids; None asks links of the test split, and other pairs of their ends.

    Raises:
        ShapeError, DataError: no pairs, or ids that are no nodes.
    """
    if pairs is None:
        links = task.split.pairs["test"][:LINKS]
        return np.concatenate([links, np.stack([links[:, 0], np.roll(links[:, 1], 1)], 1)])
    given = np.asarray(pairs)
    if given.ndim != 2 or given.shape[1] != 2:
        raise ShapeError(f"pairs are (P, 2) ids of sources and targets; got {given.shape}")
    return np.stack([rows_of(task.messages, column, "pairs") for column in given.T], 1)


__all__ = ["StateProgram", "filled", "graph_spec", "history_inputs", "history_spec", "logit_port", "rows_port"]
