"""What exported programs take and give: tensors in, a model's own input record made of them, its answers out.

A model is exported as it is; what stands here are the adapters from tensors to its input, one a kind of input, and the
descriptions of these tensors that methods share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.data.clock import Clock
from hopstate.tokens.history import HistoryTokens
from hopstate.tokens.pair_features import NAMES
from hopstate.training.exported import ExportSpec, Port

PAIRS, TOKENS = 3, 9  # of the made histories that a program is traced with
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


__all__ = ["StateProgram", "history_inputs", "history_spec", "logit_port", "rows_port"]
