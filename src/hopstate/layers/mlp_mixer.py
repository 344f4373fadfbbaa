"""MLP-Mixer block: a perceptron across the tokens of a sequence, then one across each token's channels.

Source: Tolstikhin et al. 2021, arXiv:2105.01601, with the widths of GraphMixer (Cong et al. 2023, arXiv:2302.11636):
half the tokens, four times the channels.
"""

from __future__ import annotations

from torch import Tensor, nn

from hopstate.types import Float, shapecheck


class MixerBlock(nn.Module):
    """x + MLP over tokens of LN(x), then x + MLP over channels of LN(x); a perceptron is Linear, GELU, Linear.

    Args:
        num_tokens: tokens of every sequence.
        dim: channels of a token.
        token_ratio, channel_ratio: inner widths, in multiples of num_tokens and of dim.
        dropout: probability that an element is dropped in training, after each layer of a perceptron.
    """

    def __init__(
        self, num_tokens: int, dim: int, *, token_ratio: float = 0.5, channel_ratio: float = 4.0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.token_norm, self.channel_norm = nn.LayerNorm(num_tokens), nn.LayerNorm(dim)
        self.token_mlp = _perceptron(num_tokens, int(token_ratio * num_tokens), dropout)
        self.channel_mlp = _perceptron(dim, int(channel_ratio * dim), dropout)

    @shapecheck
    def forward(self, x: Float[Tensor, "sequence token channel"]) -> Float[Tensor, "sequence token channel"]:
        x = x + self.token_mlp(self.token_norm(x.transpose(1, 2))).transpose(1, 2)
        return x + self.channel_mlp(self.channel_norm(x))


def _perceptron(dim: int, hidden: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, dim), nn.Dropout(dropout)
    )
