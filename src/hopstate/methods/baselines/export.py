"""DyGFormer and GraphMixer as programs: packed past events in, laid out in rows of one size within; logits out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hopstate.layers.packed_attention import PackedTransformerBlock
from hopstate.layers.plain import Sequences, attended
from hopstate.methods.baselines.dygformer_model import DyGFormer
from hopstate.methods.baselines.graphmixer_model import GraphMixer
from hopstate.methods.shared.history_export import history_form
from hopstate.training.exported import ExportSpec
from hopstate.training.precision import bare
from hopstate.training.tasks.link import LinkTask

PATCHES = (
    "the node itself and its last events strictly before the query, oldest first, up to model.max_length tokens; "
    "`hopstate.tokens.history` has the definition"
)
LINKS = "the last model.num_links events of each node strictly before the query, oldest first, the node itself left out"


class DyGFormerProgram(nn.Module):
    """Lengths, gaps, counts and what else the model reads → (P,) logits.

    Args:
        model: the trained model.
        names: of the inputs after lengths.
    """

    def __init__(self, model: DyGFormer, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, lengths: Tensor, *columns: Tensor) -> Tensor:
        """Return the logits."""
        told, model, c = dict(zip(self.names, columns, strict=True)), self.model, self.model.config
        own, slots = Sequences(lengths.flatten(), told["gaps"].shape[0]), c.max_length // c.patch_size
        encodings = {"node": told.get("x"), "edge": told.get("edge_attr"), "time": model.time(told["gaps"])}
        padded = {k: own.padded(v, c.max_length) for k, v in encodings.items() if v is not None}
        counts = own.padded(told["counts"].to(told["gaps"].dtype), c.max_length)
        padded["count"] = model.count(counts.unsqueeze(-1)).sum(2)
        rows = lengths.shape[0] * lengths.shape[1]
        parts = [
            model.project[k](padded[k].unflatten(1, (slots, c.patch_size)).flatten(2))
            if k in padded
            else counts.new_zeros(rows, slots, c.channel_dim)
            for k in ("node", "edge", "time", "count")
        ]
        x, bias, weight = torch.cat(parts, -1), None, counts.new_ones(rows, slots)
        if c.padding == "masked":
            patches = (own.lengths + c.patch_size - 1) // c.patch_size
            weight = (torch.arange(slots)[None] < patches[:, None]).to(x.dtype)
            both = torch.cat(weight.view(2, -1, slots).unbind(0), 1)
            bias = torch.where(both > 0, 0.0, -torch.inf)[:, None, None]
        x = torch.cat(x.view(2, -1, slots, x.shape[-1]).unbind(0), 1)
        for block in model.blocks:
            assert isinstance(block, PackedTransformerBlock)
            x = x + _attention(block, block.attention_norm(x), bias)
            x = x + block.ffn(block.ffn_norm(x))
        shares = (weight / weight.sum(1, keepdim=True)).view(2, -1, slots, 1)
        u, v = ((half * share).sum(1) for half, share in zip(x.split(slots, 1), shares.unbind(0)))
        return model.head(model.output(u), model.output(v), told.get("pair"))


def _attention(block: PackedTransformerBlock, x: Tensor, bias: Tensor | None) -> Tensor:
    heads = block.attention.num_heads
    q, k, v = (p.unflatten(-1, (heads, -1)).transpose(1, 2) for p in block.attention.qkv(x).chunk(3, -1))
    return block.attention.out(attended(q, k, v, bias).transpose(1, 2).flatten(2))


class GraphMixerProgram(nn.Module):
    """Lengths, gaps and what else the model reads → (P,) logits.

    Args:
        model: the trained model.
        names: of the inputs after lengths.
    """

    def __init__(self, model: GraphMixer, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, lengths: Tensor, *columns: Tensor) -> Tensor:
        """Return the logits."""
        told, model = dict(zip(self.names, columns, strict=True)), self.model
        own, encoded = Sequences(lengths.flatten(), told["gaps"].shape[0]), model.time(told["gaps"])
        links = encoded if "edge_attr" not in told else torch.cat([told["edge_attr"], encoded], 1)
        mixed = model.blocks(model.project(own.padded(links, model.config.num_links, last=True))).mean(1)
        if "nodes" in told:
            mixed = torch.cat([mixed, told["nodes"].flatten(0, 1)], 1)
        u, v = model.output(mixed).view(2, -1, model.config.out_dim).unbind(0)
        return model.head(u, v, told.get("pair"))


def dygformer_form(task: LinkTask) -> ExportSpec:
    """Return the program of a trained DyGFormer."""
    model = bare(task.model)
    assert isinstance(model, DyGFormer)
    widths = {"gaps": 0, "counts": 2} | _features(x=model.node_dim, edge_attr=model.edge_dim)
    widths |= {} if model.head.pair is None else {"pair": model.head.pair.num_features}
    program = DyGFormerProgram(model, tuple(widths))
    return history_form(program, widths, next(model.parameters()), clock=task.clock, preprocessing=PATCHES)


def graphmixer_form(task: LinkTask) -> ExportSpec:
    """Return the program of a trained GraphMixer."""
    model = bare(task.model)
    assert isinstance(model, GraphMixer)
    widths = {"gaps": 0} | _features(edge_attr=model.edge_dim, nodes=model.node_dim)
    widths |= {} if model.head.pair is None else {"pair": model.head.pair.num_features}
    program = GraphMixerProgram(model, tuple(widths))
    return history_form(program, widths, next(model.parameters()), clock=task.clock, preprocessing=LINKS)


def _features(**widths: int) -> dict[str, int]:
    return {name: width for name, width in widths.items() if width}


__all__ = ["dygformer_form", "graphmixer_form"]
