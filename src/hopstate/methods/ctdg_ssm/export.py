"""What CTDG-SSM says of nodes in a given state, as a program: the memory's rows in, logits out.

How a batch of events moves the memory is not exported: it solves linear systems of the batch's own size, for which ONNX
has no operation. The state comes from `hopstate stream` (its folder) or `hopstate.streaming`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.tokens.pair_features import NAMES
from hopstate.training.exported import StateQuery, ExportSpec, Port
from hopstate.training.precision import bare
from hopstate.training.tasks.event_node import EventNodeTask
from hopstate.training.tasks.link import LinkTask

ABOUT = "the state of the memory before the query, as `hopstate stream` leaves it"
LEFT_OUT = (
    "how a batch of events moves the memory of ctdg-ssm: it solves linear systems of the batch's own size, which ONNX "
    "has no operation for; `hopstate stream` and `hopstate serve` move it"
)
PAIRS = 3  # of the made input that a program is traced with


class StateProgram(nn.Module):
    """Outputs of the memory and what else the decoder reads → (P,) logits of pairs, or (P, C) of nodes.

    Args:
        model: the trained model.
        names: of the inputs after the memory's.
    """

    def __init__(self, model: CTDGSSM, names: tuple[str, ...]) -> None:
        super().__init__()
        self.read_norm, self.decoder, self.gap_out = model.read_norm, model.decoder, model.gap_out
        self.pair, self.pair_history, self.names = model.pair, model.pair_history, names

    def forward(self, memory: Tensor, *columns: Tensor) -> Tensor:
        """Return the logits."""
        told = dict(zip(self.names, columns, strict=True))
        parts = [self.read_norm(memory), *([told["static"]] if "static" in told else [])]
        ends = list(torch.cat(parts, -1).unbind(0))
        if len(self.pair):
            ends.append(self.pair[0](ends[0]) * self.pair[1](ends[1]))
        if self.gap_out is not None:
            ends.append(self.gap_out(told["gap"]).flatten(1))
        if self.pair_history is not None:
            ends.append(self.pair_history(told["pair"]))
        logits = self.decoder(torch.cat(ends, 1))
        return logits[:, 0] if memory.shape[0] == 2 else logits


def export_form(task: LinkTask | EventNodeTask) -> ExportSpec:
    """Return the program of a trained task."""
    model, links = bare(task.model), isinstance(task, LinkTask)
    assert isinstance(model, CTDGSSM)
    ends, what = (2, "the sources, then of the targets") if links else (1, "the nodes")
    rows = "pair" if links else "node"
    ports: list[tuple[str, str, tuple[int, ...]]] = [
        (
            "memory",
            f"output of the memory's last layer of {what}; zeros of one not met",
            (ends, PAIRS, model.config.dim),
        )
    ]
    if model.static.dim:
        ports.append(("static", f"the static vectors of {what}", (ends, PAIRS, model.static.dim)))
    if model.gaps:
        gaps = "ln(1 + time since the pair last met), then since the source's and the target's last event"
        gaps = gaps if links else "ln(1 + time since the node's last event)"
        ports.append(
            ("gap", f"{gaps}, in the run's own unit; the model's own number of one not met", (PAIRS, model.gaps))
        )
    if model.pair_history is not None:
        ports.append(("pair", "what the pair's own history tells; columns: " + ", ".join(NAMES), (PAIRS, len(NAMES))))
    like = next(model.parameters())
    axes = {3: ("", rows, ""), 2: (rows, "")}
    said = (
        "the model's own output for each pair"
        if links
        else "a row a node, logits, or scaled amounts, of the run's target"
    )
    name = "logit" if links else "output"
    return ExportSpec(
        module=StateProgram(model, tuple(name for name, _, _ in ports[1:])),
        inputs=tuple(Port(name=name, meaning=meaning, axes=axes[len(shape)]) for name, meaning, shape in ports),
        outputs=(Port(name=name, meaning=said, axes=(rows,) if links else (rows, "")),),
        example=tuple(torch.rand(shape).to(like) for _, _, shape in ports),
        preprocessing=ABOUT,
        left_out=LEFT_OUT,
        fill=partial(state_inputs, model, tuple(name for name, _, _ in ports)),
    )


def state_inputs(model: CTDGSSM, names: tuple[str, ...], asked: StateQuery) -> tuple[Tensor, ...]:
    """Return what a program takes of questions: the memory's rows, zeros of a deleted node, and what else is read."""
    follower, ends, like = asked.follower, torch.from_numpy(np.ascontiguousarray(asked.ends)), next(model.parameters())
    follower.fetch(asked.ends.ravel())
    memory = follower.memory.output[ends]
    told = {"memory": torch.where(memory.isnan().any(-1, keepdim=True), 0.0, memory)}
    told["static"] = model.static(ends.flatten()).view(*ends.shape, -1)
    if len(ends) == 2:
        read = follower.inputs.query_gaps(*asked.ends, asked.t)
    else:
        read = torch.from_numpy(follower.inputs.node_gaps(asked.ends[0], asked.t))[:, None]
    told |= {"gap": read[:, : model.gaps], "pair": read[:, model.gaps :]}
    return tuple(told[name].to(like) for name in names)


__all__ = ["StateProgram", "export_form"]
