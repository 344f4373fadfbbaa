"""DyGFormer on a user's event stream.

Source: Yu et al., NeurIPS 2023, arXiv:2303.13047; settings of its Table 6 for short histories, in `DyGFormer.Config`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.data.events import EventStream
from hopstate.errors import ConfigError, ShapeError, check_range
from hopstate.layers.attention import PackedLayout, PackedTransformerBlock
from hopstate.layers.decoders import LinkHead, PairHistory
from hopstate.layers.encodings import AlignedProjections, CountEncoding, TimeEncoding, check_widths
from hopstate.methods.method import Context
from hopstate.methods.pair_trees.method import link_baselines
from hopstate.methods.shared.link import HistoryLinkRun, feature_dims, history_features, history_method, history_task
from hopstate.methods.shared.programs import ExportSpec, history_spec
from hopstate.ops.rows import segment_sum
from hopstate.streaming.protocols import HistoryModel
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer, HistoryTokens
from hopstate.tokens.pair_features import NAMES
from hopstate.training.devices import bare
from hopstate.training.tasks.link import LinkTask

DYGLIB_DROPOUT = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


CHANNELS = 4  # node, edge, time, co-occurrence


class DyGFormer(HistoryModel):
    """Patches of four aligned encodings, Transformer blocks over both sequences together, mean, linear, link head.

    Deviation: with relations, each token gets the vectors of its own and of the queried relation. The queried relation
    also modulates the head. With node types, each token gets a vector of the type.

    Args:
        config: settings of the model.
        node_dim: features of a node, 0 for none.
        edge_dim: features of an event, 0 for none.
        num_relations, num_node_types: types of events and nodes, 0 for none.

    Example:
        >>> stream = hopstate.read_events(events)
        >>> store = hopstate.NeighborStore.from_stream(stream)
        >>> history = hopstate.HistoryTokenizer(store, stream, hopstate.HistoryConfig(max_length=8))
        >>> config = DyGFormer.Config(channel_dim=8, time_dim=8, out_dim=8, max_length=8)
        >>> model = DyGFormer(config, **stream.used_features)
        >>> model(history.pairs(stream.src[-2:], stream.dst[-2:], stream.t[-2:])).shape
        torch.Size([2])
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of DyGFormer; the published ones.

        Args:
            max_length: tokens of a padded sequence, the node itself included; a multiple of patch_size.
            patch_size: consecutive tokens joined into one.
            channel_dim: width of each of the four encodings.
            time_dim: frequencies of the time encoding.
            out_dim: width of an embedding.
            num_layers: Transformer blocks.
            num_heads: attention heads; divides 4 channel_dim.
            dropout: probability that an element is dropped in training.
            pair_features: the head also reads features of the pair's history.
        """

        max_length: int = 32
        patch_size: int = 1
        channel_dim: int = 50
        time_dim: int = 100
        out_dim: int = 172
        num_layers: int = 2
        num_heads: int = 2
        dropout: float = 0.1
        pair_features: bool = False

        def __post_init__(self) -> None:
            check_range("model.", minimum=2, max_length=self.max_length)
            check_range("model.", minimum=1, patch_size=self.patch_size, channel_dim=self.channel_dim)
            check_range("model.", minimum=1, time_dim=self.time_dim, num_heads=self.num_heads, out_dim=self.out_dim)
            check_range("model.", minimum=0, num_layers=self.num_layers)
            if self.max_length % self.patch_size:
                raise ConfigError(
                    f"model.max_length={self.max_length} is not a multiple of model.patch_size={self.patch_size}"
                )
            if CHANNELS * self.channel_dim % self.num_heads:
                raise ConfigError(
                    f"4 x model.channel_dim={self.channel_dim} is not a multiple of model.num_heads={self.num_heads}"
                )
            check_range("model.", minimum=0, below=1, dropout=self.dropout)

    def __init__(
        self,
        config: Config,
        *,
        node_dim: int = 0,
        edge_dim: int = 0,
        num_relations: int = 0,
        num_node_types: int = 0,
    ) -> None:
        super().__init__()
        c, self.config = config, config
        self.feature_dims = self.node_dim, self.edge_dim = node_dim, edge_dim
        dim = CHANNELS * c.channel_dim
        self.time = TimeEncoding.between(c.time_dim, 1e-9, 1.0, learn=True)
        self.count = CountEncoding(c.channel_dim)
        widths = {"node": node_dim, "edge": edge_dim, "time": c.time_dim, "count": c.channel_dim}
        types = {"node": num_node_types, "edge": num_relations, "count": num_relations}
        self.project = AlignedProjections(widths, c.channel_dim, patch_size=c.patch_size, types=types)
        self.blocks = nn.ModuleList(
            PackedTransformerBlock(dim, c.num_heads, ffn_dim=4 * dim, dropout=c.dropout) for _ in range(c.num_layers)
        )
        self.output = nn.Linear(dim, c.out_dim)
        history = PairHistory(len(NAMES)) if c.pair_features else None
        self.head = LinkHead(c.out_dim, pair=history, num_relations=num_relations)

    def forward(self, tokens: HistoryTokens) -> Tensor:
        """Return (P,) logits of P pairs from their sequences, the node itself first in each.

        Raises:
            ShapeError: tokens without counts, longer than max_length, or with other features than the model's.
        """
        u, v = self.embed(tokens)
        return self.head(u, v, tokens.pair, tokens.query_relation)

    def embed(self, tokens: HistoryTokens) -> tuple[Tensor, Tensor]:
        """Return (P, out_dim) embeddings of u and of v; errors as `forward`."""
        self._check(tokens)
        c, size = self.config, self.config.patch_size
        num_pairs, slots = tokens.num_sequences // 2, c.max_length // size
        filled = (tokens.lengths + size - 1).div(size, rounding_mode="floor")  # patches with a token
        # how many patches are filled is not known while a model is exported: padding is computed like them then
        full = torch.compiler.is_exporting()
        lengths, longest = (torch.full_like(filled, slots), c.max_length) if full else (filled, tokens.longest)
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        x, pad = self._encode(tokens, offsets, longest, num_pairs * 2 * slots if full else None)
        real = lengths.view(2, num_pairs)
        missing = (slots - real).to(x.dtype)
        width = 2 * min(slots, -(-longest // size)) + 1
        layout = self._layout(offsets, real, missing.sum(0), width, x.shape[0])
        x = torch.cat([x, pad.expand(num_pairs, -1)])
        for block in self.blocks:
            x = block(x, layout)
        x, pad = x.split([x.shape[0] - num_pairs, num_pairs])
        total = segment_sum(x, offsets).view(2, num_pairs, x.shape[1])
        u, v = (total + missing.unsqueeze(-1) * pad) / slots
        return self.output(u), self.output(v)

    # ---- parts -----------------------------------------------------------------------------------------
    def _encode(self, tokens: HistoryTokens, offsets: Tensor, longest: int, count: int | None) -> tuple[Tensor, Tensor]:
        """Return (R, 4 channel_dim) patches and the (1, 4 channel_dim) patch that holds nothing but padding.

        offsets (S + 1,) bound the sequences' patches; count is R where it is known without looking at offsets.
        """
        size, rows = self.config.patch_size, None
        num_patches = tokens.nodes.shape[0]
        if size > 1 or count is not None:
            num_patches = int(offsets[-1]) if count is None else count
            rows = offsets[tokens.rows()] * size + tokens.positions()
        assert tokens.counts is not None
        table = self.count.table(longest)
        counts = F.embedding(_scatter_rows(tokens.counts, rows, num_patches * size), table).sum(1)
        encodings = {"node": tokens.x, "edge": tokens.edge_attr, "time": self.time(tokens.gaps)}
        encodings |= {"node_type": tokens.node_type, "edge_type": tokens.relation, "count_type": tokens.query_types()}
        padded = {k: None if v is None else _scatter_rows(v, rows, num_patches * size) for k, v in encodings.items()}
        padded["count"] = counts
        empty = {"count": (2 * table[:1]).repeat(size, 1)}  # what padding holds; zeros for the rest
        return self.project(padded, num_patches), self.project(empty, 1)

    def _layout(self, offsets: Tensor, real: Tensor, missing: Tensor, width: int, num_patches: int) -> PackedLayout:
        """Place u's patches, then v's, then the padding patch of each pair in one row. It counts missing times."""
        num_pairs = real.shape[1]
        index = torch.arange(2 * num_pairs, device=offsets.device)
        sequence = index.repeat_interleave(real.flatten(), output_size=num_patches)
        position = torch.arange(num_patches, device=offsets.device) - offsets[sequence]
        second = sequence >= num_pairs
        row = torch.where(second, sequence - num_pairs, sequence)
        position = position + real[0][row] * second
        row = torch.cat([row, index[:num_pairs]])
        position = torch.cat([position, real.sum(0)])
        weight = torch.cat([missing.new_ones(num_patches), missing])
        return PackedLayout.of(row, position, weight, num_pairs, width)

    def _check(self, tokens: HistoryTokens) -> None:
        if tokens.counts is None or tokens.num_sequences % 2:
            raise ShapeError("DyGFormer takes the tokens of pairs, with co-occurrence counts")
        if tokens.longest > self.config.max_length:
            raise ShapeError(f"a sequence has {tokens.longest} tokens, the model takes {self.config.max_length}")
        check_widths(self.feature_dims, tokens.x, tokens.edge_attr)


def _scatter_rows(values: Tensor, rows: Tensor | None, size: int) -> Tensor:
    """Scatter values to `size` zero rows. Return values unchanged if rows is None."""
    if rows is None:
        return values
    return values.new_zeros(size, *values.shape[1:]).index_copy(0, rows, values)


@dataclass(frozen=True, kw_only=True)
class DyGFormerRun(HistoryLinkRun):
    """Configuration of a DyGFormer run.

    Args:
        model: the Transformer over past events; its max_length is also how much of the past is looked up.
    """

    model: DyGFormer.Config = field(default_factory=DyGFormer.Config)


def build(stream: EventStream, config: DyGFormerRun, context: Context) -> LinkTask:
    history = HistoryConfig(max_length=config.model.max_length, target="first")
    widths = history_features(feature_dims(stream, context), stream, config.deletions, context)
    return history_task(
        stream,
        config,
        context,
        model=DyGFormer(config.model, **widths),
        tokenizer=lambda store, events, *args: HistoryTokenizer(store, events, history, *args),
    )


def export_spec(task: LinkTask) -> ExportSpec:
    """Return the export of a trained task: tokens of past events → logits of pairs."""
    about = (
        "the node itself and its last events strictly before the query, oldest first, up to model.max_length tokens; "
        "`hopstate.tokens.history` has the definition"
    )
    names = ("gaps", "counts", "x", "edge_attr", "pair")
    return history_spec(bare(task.model), names, clock=task.clock, preprocessing=about)


METHODS = {
    "dygformer": history_method(
        "dygformer",
        DyGFormerRun,
        build,
        summary="a Transformer over two nodes' past events, with co-occurrence counts",
        source="arXiv:2303.13047",
        baselines=link_baselines,
        space={
            "model.max_length,model.patch_size": ["32,1", "64,2", "128,4", "256,8", "512,16", "1024,32"],
            "model.dropout": DYGLIB_DROPOUT,
        },
        budget=300_000,
        export=export_spec,
    )
}
