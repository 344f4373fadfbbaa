"""A NAGphormer training epoch compared with a plain implementation of the published architecture.

    python benchmarks/nagphormer_epoch.py [--dim 512] [--epochs 1]

The baseline follows the published architecture: three projections, attention by matmul and softmax, one
head of the readout over (Z_0 || Z_k), log-probabilities and NLL loss. Both train on tokens of Minesweeper's shape
(5,000 training nodes, K = 10, 7 features, batches of 2,000) with AdamW.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import machine, median_time, require_green
from hopstate.methods.nagphormer.model import NAGphormer


class PlainAttention(nn.Module):
    """Multi-head attention with a separate tensor for every step."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.heads, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = self.dropout(torch.softmax((q * self.size**-0.5) @ k.transpose(2, 3), 3))
        return self.out((weights @ v).transpose(1, 2).contiguous().view(b, t, d))


class PlainBlock(nn.Module):
    """Pre-norm Transformer block."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = PlainAttention(dim, heads, dropout)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.drop1, self.drop2 = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop1(self.attention(self.norm1(x)))
        return x + self.drop2(self.down(F.gelu(self.up(self.norm2(x)))))


class Plain(nn.Module):
    """The published architecture with its attention readout."""

    def __init__(self, in_dim: int, classes: int, dim: int, heads: int = 8, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed, self.block, self.norm = nn.Linear(in_dim, dim), PlainBlock(dim, heads, dropout), nn.LayerNorm(dim)
        self.score = nn.Linear(2 * dim, 1)
        self.hidden, self.last = nn.Linear(dim, dim // 2), nn.Linear(dim // 2, classes)

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm(self.block(self.embed(x)))
        hops = z.shape[1] - 1
        target = z[:, 0].unsqueeze(1).repeat(1, hops, 1)
        own, others = torch.split(z, [1, hops], dim=1)
        alpha = torch.softmax(self.score(torch.cat((target, others), 2)), 1)
        z = (own + torch.sum(others * alpha, 1, keepdim=True)).squeeze(1)
        return torch.log_softmax(self.last(torch.relu(self.hidden(z))), 1)


def epoch_of(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return a function that trains model one epoch in batches of 2,000."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5)

    def epoch() -> None:
        for rows in torch.randperm(len(x)).split(2000):
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()

    return epoch


def main() -> None:
    """Print seconds per epoch and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=1, help="timed epochs of each, after one untimed")
    options = parser.parse_args()
    require_green(
        "tests/methods/nagphormer/test_nagphormer.py",
        "tests/layers/test_attention.py",
        "tests/methods/nagphormer/test_readout.py",
    )
    print(machine())
    x, y = torch.randn(5000, 11, 7), torch.randint(0, 2, (5000,))
    config = NAGphormer.Config(dim=options.dim)
    ours = epoch_of(NAGphormer(config, in_dim=7, num_classes=2, num_hops=10), F.cross_entropy, x, y)
    plain = epoch_of(Plain(7, 2, options.dim), F.nll_loss, x, y)
    pairs = [
        (median_time(ours, repeats=1, warmup=i == 0), median_time(plain, repeats=1, warmup=i == 0))
        for i in range(options.epochs)
    ]  # alternating, so that other load affects both
    a, b = (min(times) for times in zip(*pairs))
    print(f"dim {options.dim}: hopstate {a:.2f} s an epoch, plain {b:.2f} s, ratio {a / b:.2f}")


if __name__ == "__main__":
    main()
