"""GraphMixer: scores a pair from each end's most recent links through an MLP-Mixer, plus its neighbours' mean features.

Source: Cong et al., ICLR 2023, arXiv:2302.11636, with the widths of DyGLib (Yu et al. 2023, arXiv:2303.13047), whose
trainable parameters these are, one for one.
Deviation from DyGLib: it averages features over the most recent 2000 neighbours and divides by 2000 once more; here, as
in the paper, they are averaged once. An end that several pairs of a batch share is computed once, so in
training its dropout mask is shared too. Features that are zero throughout are not projected. Returns logits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError, ShapeError, check_range
from hopstate.layers.heads import LinkHead
from hopstate.layers.mlp_mixer import MixerBlock
from hopstate.layers.pair_history import PairHistory
from hopstate.layers.time import TimeEncoding
from hopstate.methods.baselines.graphmixer_tokens import RecentLinks
from hopstate.streaming.protocols import HistoryModel
from hopstate.tokens.history import HistoryTokens
from hopstate.tokens.pair_features import NAMES


class GraphMixer(HistoryModel):
    """A linear map of each link's features and time encoding, MLP-Mixer blocks, mean, linear with node features, head.

    Args:
        config: what a user chooses.
        node_dim: features of a node, 0 for none.
        edge_dim: features of an event, 0 for none.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of GraphMixer; DyGLib's.

        Args:
            num_links: most recent links of an end; with fewer, the first tokens are padding.
            dim: channels of a token; DyGLib pads the features of an event to 172 and takes as many.
            time_dim: frequencies of the fixed time encoding.
            out_dim: width of an embedding.
            num_layers: MLP-Mixer blocks.
            token_ratio, channel_ratio: inner widths of a block, in multiples of num_links and dim.
            dropout: probability that an element is dropped in training.
            pair_history: the head also reads what the pair's own history tells.
        """

        num_links: int = 20
        dim: int = 172
        time_dim: int = 100
        out_dim: int = 172
        num_layers: int = 2
        token_ratio: float = 0.5
        channel_ratio: float = 4.0
        dropout: float = 0.1
        pair_history: bool = False

        def __post_init__(self) -> None:
            check_range("model.", least=1, num_links=self.num_links, time_dim=self.time_dim)
            check_range("model.", least=1, dim=self.dim, out_dim=self.out_dim)
            check_range("model.", least=0, num_layers=self.num_layers)
            if not (self.token_ratio * self.num_links >= 1 and self.channel_ratio > 0):
                raise ConfigError(
                    f"model.token_ratio={self.token_ratio} of {self.num_links} links leaves no inner token, "
                    f"or model.channel_ratio={self.channel_ratio} no channel"
                )
            check_range("model.", least=0, below=1, dropout=self.dropout)

    def __init__(
        self,
        config: Config,
        *,
        node_dim: int = 0,
        edge_dim: int = 0,
    ) -> None:
        super().__init__()
        c, self.config, self.node_dim, self.edge_dim = config, config, node_dim, edge_dim
        self.feature_dims = node_dim, edge_dim
        dim, out = c.dim, c.out_dim
        self.time = TimeEncoding.decades(c.time_dim, learn=False)
        self.project = nn.Linear(edge_dim + c.time_dim, dim)
        ratios = {"token_ratio": c.token_ratio, "channel_ratio": c.channel_ratio}
        self.blocks = nn.Sequential(
            *(MixerBlock(c.num_links, dim, dropout=c.dropout, **ratios) for _ in range(c.num_layers))
        )
        self.output = nn.Linear(dim + node_dim, out)
        self.head = LinkHead(out, pair=PairHistory(len(NAMES)) if c.pair_history else None)

    def forward(self, links: RecentLinks) -> Tensor:
        """Return (P,) logits of P pairs.

        Raises:
            ShapeError: a sequence longer than num_links, or features other than the model's.
        """
        u, v = self.embed(links)[links.ends]
        return self.head(u, v, links.pair)

    def embed(self, links: RecentLinks) -> Tensor:
        """Return (S, out_dim) embeddings of the ends; errors as `forward`."""
        self._check(links)
        mixed = self.blocks(self._lay_out(links.tokens)).mean(1)
        if not self.node_dim:
            return self.output(mixed)
        if links.x is None:  # the features are zero: what they would be multiplied with does not matter
            return F.linear(mixed, self.output.weight[:, : mixed.shape[1]], self.output.bias)
        return self.output(torch.cat([mixed, links.x.to(mixed.dtype)], -1))

    def _lay_out(self, tokens: HistoryTokens) -> Tensor:
        """Return (S, num_links, dim) projected links, the latest last; padding is the projection of zeros."""
        size, bias = self.config.num_links, self.project.bias
        encoded = self.time(tokens.gaps)
        if tokens.edge_attr is None:
            values = F.linear(encoded, self.project.weight[:, self.edge_dim :], bias)
        else:
            values = self.project(torch.cat([tokens.edge_attr.to(encoded.dtype), encoded], -1))
        rows = tokens.rows()
        slot = (rows + 1) * size - tokens.lengths[rows] + tokens.positions()
        padded = bias.expand(tokens.num_sequences * size, -1).index_copy(0, slot, values)
        return padded.view(tokens.num_sequences, size, len(bias))

    def _check(self, links: RecentLinks) -> None:
        if links.tokens.longest > self.config.num_links:
            raise ShapeError(f"a sequence has {links.tokens.longest} links, the model takes {self.config.num_links}")
        for what, values, dim in (("node", links.x, self.node_dim), ("edge", links.tokens.edge_attr, self.edge_dim)):
            if values is not None and values.shape[1] != dim:
                raise ShapeError(f"the batch has {values.shape[1]} {what} features, the model was built for {dim}")
