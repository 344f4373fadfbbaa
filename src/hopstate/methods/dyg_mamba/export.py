"""DyG-Mamba as a program: packed past events of two nodes in, the logit of their meeting out; or of a node, a row."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.layers.plain import Sequences
from hopstate.methods.dyg_mamba.encoder import HistoryEncoder
from hopstate.methods.dyg_mamba.model import DyGMamba, DyGMambaNodes
from hopstate.methods.dyg_mamba.timespan import BoundedLinear, TimeSpanBlock, _Direction
from hopstate.methods.shared.history_export import history_form
from hopstate.training.exported import ExportForm
from hopstate.training.precision import bare
from hopstate.training.tasks.events import EventTask

ABOUT = (
    "the last events of each node strictly before the query, oldest first, as many as history.max_length keeps, and "
    "the node itself as a token where history.target says; `hopstate.tokens.history` has the definition"
)


class DyGMambaProgram(nn.Module):
    """Lengths, gaps, spans and what else the model reads → (P,) logits, or (S, C) rows of nodes.

    Args:
        model: the trained model; it is copied, its bounded maps become plain ones.
        names: of the inputs after lengths.
    """

    def __init__(self, model: DyGMamba | DyGMambaNodes, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = deepcopy(model), names
        for module in list(self.model.modules()):
            if isinstance(module, _Direction) and isinstance(module.to_maps, BoundedLinear):
                module.to_maps = _plain(module.to_maps)

    def forward(self, lengths: Tensor, *columns: Tensor) -> Tensor:
        """Return the logits."""
        told = dict(zip(self.names, columns, strict=True))
        own = Sequences(lengths.flatten(), told["gaps"].shape[0])
        if isinstance(self.model, DyGMambaNodes):
            return self.model.head(self.model.output(own.mean(encoded(self.model.encoder, own, told))))
        ends = [own.mean(encoded(encoder, own, told)) for encoder in self.model.encoders]  # type: ignore[arg-type]
        count = lengths.shape[1]
        u, v = ends[0][:count], ends[-1][count:]
        return self.model.head(self.model.output(u), self.model.output(v), told.get("pair"))


def encoded(encoder: HistoryEncoder, own: Sequences, told: dict[str, Tensor]) -> Tensor:
    """Return (T, 4 channel_dim) of packed tokens after an encoder's blocks."""
    gaps, spans = told["gaps"], told["spans"]
    counts = None if encoder.count is None else encoder.count(told["counts"].to(gaps.dtype).unsqueeze(-1)).sum(1)
    values = {
        "node": told.get("x"),
        "edge": told.get("edge_attr"),
        "time": None if encoder.time is None else encoder.time(gaps),
        "count": counts,
    }
    z = torch.cat([encoder._project(name, value, gaps.shape[0]) for name, value in values.items()], 1)
    ratio = spans
    if encoder.config.block.step_function != "unnormalized":
        total = own.largest(gaps)[own.rows]
        ratio = torch.where(total > 0, spans / torch.where(total > 0, total, 1.0), 0.0)
    for block in encoder.blocks:
        assert isinstance(block, TimeSpanBlock)
        z = _block(block, z, own, ratio)
    return z


def _block(block: TimeSpanBlock, z: Tensor, own: Sequences, ratio: Tensor) -> Tensor:
    normed = block.norm(z)
    x, y = block.input(normed), torch.zeros(())
    for direction in block.directions:
        assert isinstance(direction, _Direction)
        y = y + _direction(direction, x, own, ratio)
    if block.gate is not None:
        y = y * F.silu(block.gate(normed))
    return z + block.output(y) if block.residual else block.output(y)


def _direction(ssm: _Direction, x: Tensor, own: Sequences, ratio: Tensor) -> Tensor:
    if ssm.conv is not None:
        x = own.convolved(x, ssm.conv.weight.squeeze(1), ssm.conv.bias, reverse=ssm.reverse)
    u = F.silu(x)
    into, out = ssm._maps(u, ratio)
    return own.scanned(u, ssm._steps(u, ratio), -ssm.A_log.exp(), into, out, reverse=ssm.reverse)


def _plain(linear: BoundedLinear) -> nn.Linear:
    """Return a map with the bounded weight."""
    made = nn.Linear(linear.in_features, linear.out_features).to(linear.weight)
    made.load_state_dict({"weight": linear.bounded().detach(), "bias": linear.bias.detach()})
    return made


def export_form(task: EventTask[Any]) -> ExportForm:
    """Return the program of a trained task.

    Raises:
        ConfigError: attention between the two ends.
    """
    model = bare(task.model)
    assert isinstance(model, (DyGMamba, DyGMambaNodes))
    if model.config.cross_attention:
        raise ConfigError("attention between the two ends (model.cross_attention) has no program")
    nodes, (node_dim, edge_dim) = isinstance(model, DyGMambaNodes), model.feature_dims
    widths = {"gaps": 0, "spans": 0}
    widths |= {} if nodes or not model.config.cooccurrence else {"counts": 2}
    widths |= {name: dim for name, dim in (("x", node_dim), ("edge_attr", edge_dim)) if dim}
    pair = model.head.pair if isinstance(model, DyGMamba) else None
    widths |= {} if pair is None else {"pair": pair.num_features}
    program, like = DyGMambaProgram(model, tuple(widths)), next(model.parameters())
    return history_form(program, widths, like, clock=task.clock, preprocessing=ABOUT, nodes=nodes)


__all__ = ["DyGMambaProgram", "export_form"]
