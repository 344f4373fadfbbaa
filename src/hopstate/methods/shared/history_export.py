"""What programs of models of histories take: a query's past events as packed tokens, in the order of their times."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hopstate.data.clock import Clock
from hopstate.tokens.history import HistoryTokens
from hopstate.tokens.pair_features import NAMES
from hopstate.training.exported import ExportSpec, Port

PAIRS, TOKENS = 3, 9  # of the made input that a program is traced with
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


def history_form(
    program: nn.Module,
    widths: dict[str, int],
    like: Tensor,
    *,
    clock: Clock | None,
    preprocessing: str,
    nodes: bool = False,
) -> ExportSpec:
    """Return the form of a program over packed tokens.

    Args:
        program: takes lengths and then, in order, what widths names.
        widths: columns of each further input, 0 for one without columns.
        like: of the weights' type.
        clock: what a gap of 1 is; None where the run does not know.
        preprocessing: how tokens come about.
        nodes: one sequence a node, not two a pair.
    """
    first = Port(name="lengths", meaning=MEANINGS["lengths"], axes=("sequence",) if nodes else ("", "pair"))
    lengths = torch.tensor([4, 2, 3]) if nodes else torch.tensor([[3, 0, 2], [1, 1, 2]])
    ports, example = [first], [lengths]
    for name, width in widths.items():
        by_pair, by_end = name == "pair", name == "nodes"
        axes = ("", "pair", "") if by_end else ("pair" if by_pair else "token", *([""] if width else []))
        shape = [2, PAIRS, width] if by_end else [PAIRS if by_pair else TOKENS, *([width] if width else [])]
        made = torch.randint(0, 3, shape) if name == "counts" else torch.rand(shape).to(like)
        meaning = MEANINGS[name] + (", ".join(NAMES[:width]) if by_pair else "")
        ports.append(Port(name=name, meaning=meaning, axes=axes))
        example.append(made)
    if nodes:
        output = Port(
            name="output",
            axes=("sequence", ""),
            meaning="a row a node, logits, or scaled amounts, of the run's target",
        )
    else:
        output = Port(name="logit", axes=("pair",), meaning="the model's own output for each pair")
    if clock is not None:
        preprocessing += f"; a time of 1 is {clock.unit:.9g} {clock.time_unit or 'in the unit'} of the run's own data"
    return ExportSpec(
        module=program,
        inputs=tuple(ports),
        outputs=(output,),
        example=tuple(example),
        preprocessing=preprocessing,
        fill=partial(history_inputs, widths=widths, like=like, nodes=nodes),
    )


def history_inputs(found: Any, widths: dict[str, int], like: Tensor, *, nodes: bool = False) -> tuple[Tensor, ...]:
    """Return what a program takes of a tokenizer's pairs or nodes, lengths first; features that are all zero as zeros.

    Args:
        found: `HistoryTokens`; or distinct ends of pairs, with fields tokens, ends, x and pair, each of which then
            stands as often as it is an end.
        widths, like, nodes: as in `history_form`.
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


__all__ = ["history_form", "history_inputs"]
