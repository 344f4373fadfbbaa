"""What programs of models of histories take: a query's past events as packed tokens, in the order of their times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hopstate.tokens.history import HistoryTokens
from hopstate.tokens.pair_features import NAMES
from hopstate.training.exported import ExportForm, Port

PAIRS, TOKENS = 3, 9  # of the made input that a program is traced with
MEANINGS = {
    "lengths": "tokens of each source's sequence, then of each target's; a sequence without a token is allowed",
    "gaps": "time from each token's event to the query, in the run's own unit (config.json: gap_unit); 0 for the node",
    "spans": "time from each event to the next of its sequence, of the last to the query; of the node itself, where it "
    "stands first, the time from the sequence's first event to the query",
    "counts": "how often the token's node stands in the source's sequence and in the target's",
    "x": "features of each token's node, scaled as in training",
    "edge_attr": "features of each token's event, scaled as in training, zeros for the node itself; where deletions "
    "are marked, the last column is 1 for them",
    "pair": "what the pair's own history tells, NaN where something never happened; columns: " + ", ".join(NAMES),
    "nodes": "mean features of the neighbours of each source, then of each target, and their own",
}


def history_form(
    program: nn.Module, widths: dict[str, int], like: Tensor, *, preprocessing: str, nodes: bool = False
) -> ExportForm:
    """Return the form of a program over packed tokens.

    Args:
        program: takes lengths and then, in order, what widths names.
        widths: columns of each further input, 0 for one without columns.
        like: of the weights' type.
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
        ports.append(Port(name=name, meaning=MEANINGS[name], axes=axes))
        example.append(made)
    what = "a row a node, as the run's target has it before softmax" if nodes else "logit of each pair: sigmoid of it"
    output = Port(name="output", meaning=what, axes=("sequence", "") if nodes else ("pair",))
    return ExportForm(
        module=program, inputs=tuple(ports), output=output, example=tuple(example), preprocessing=preprocessing
    )


def history_inputs(tokens: HistoryTokens, names: Sequence[str], like: Tensor) -> dict[str, Tensor]:
    """Return what a program takes of packed tokens of pairs, by name; features that are zero throughout as zeros."""
    pairs, count = tokens.num_sequences // 2, len(tokens.nodes)
    found: dict[str, Any] = {"lengths": tokens.lengths.view(2, pairs)}
    for name in names:
        value = getattr(tokens, name)
        found[name] = torch.zeros(count, 0) if value is None else value
        found[name] = found[name] if name == "counts" else found[name].to(like)
    return found


__all__ = ["history_form", "history_inputs"]
