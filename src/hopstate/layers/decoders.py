"""Decoders from node embeddings to logits of pairs or nodes.

`DECODERS` holds the pair decoders by name. To add one, subclass `LinkDecoder` and register it there. Then
`--link.decoder` accepts its name.

Source: Kipf & Welling 2016, arXiv:1611.07308 (dot product); Hu et al. 2020, arXiv:2005.00687 (a perceptron on the
element-wise product); Yang et al. 2015, arXiv:1412.6575, and Nickel et al. 2011 (bilinear); Xu et al. 2020,
arXiv:2002.07962 (merge layer); Yu et al. 2023, arXiv:2303.13047 (80-10 perceptron).
Deviation: all return logits; the loss applies the sigmoid. For undirected graphs the bilinear score averages both
directions. Pair features in a head are ours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, ShapeError, nearest
from hopstate.layers.typed import RelationModulation
from hopstate.types import Float, Int, shapecheck

WIDTH = 64  # default width of an encoding
FARTHEST = 5.0  # features are clipped at this many standard deviations


class PairHistory(nn.Module):
    """Encode standardized pair features and their missing-value flags with an MLP.

    Args:
        num_features: number of features F.
        dim: width of the encoding.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, num_features: int, dim: int = WIDTH) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("scale", torch.ones(num_features))
        self.hidden, self.output = nn.Linear(2 * num_features, 2 * dim), nn.Linear(2 * dim, dim)

    @property
    def num_features(self) -> int:
        """Number of features F."""
        return len(self.mean)

    @torch.no_grad()
    def fit(self, features: Tensor) -> None:
        """Set each feature's mean and standard deviation from pairs (Q, F), ignoring NaN; 0 and 1 if constant."""
        x = features.double()
        valid = ~x.isnan()
        count = valid.sum(0).clamp_min(1)
        mean = x.nan_to_num(0.0).sum(0) / count
        square = torch.where(valid, x - mean, 0.0).square().sum(0) / count
        self.mean.copy_(mean)
        self.scale.copy_(torch.where(square > 0, square.sqrt(), 1.0))

    def forward(self, features: Tensor | None) -> Tensor:
        """Return (Q, dim) encodings of features (Q, F), NaN if missing."""
        found = 0 if features is None else features.shape[1]
        if features is None or found != self.num_features:
            raise ShapeError(f"the model expects {self.num_features} pair features; the input has {found}")
        marked = self.marked(features.to(self.hidden.weight.dtype))
        return torch.relu(self.output(torch.relu(self.hidden(marked))))

    def marked(self, features: Tensor) -> Tensor:
        """Return (Q, 2F) standardized features and missing-value flags."""
        missing = features.isnan()
        x = ((features - self.mean) / self.scale).clamp(-FARTHEST, FARTHEST).masked_fill(missing, 0.0)
        return torch.cat([x, missing.to(x.dtype)], 1)


NEAR = 32  # hidden width of the MLP on structural features


class LinkDecoder(nn.Module, ABC):
    """Decoder from two node embeddings to one logit.

    Args:
        dim: width of an embedding.
        directed: whether (u, v) and (v, u) may get different scores.
        dropout: dropout probability of hidden layers.
    """

    symmetric = True  # (u, v) and (v, u) have the same score

    def __init__(self, dim: int, *, directed: bool = True, dropout: float = 0.0) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, u: Float[Tensor, "pair channel"], v: Float[Tensor, "pair channel"]) -> Float[Tensor, "pair"]: ...

    @shapecheck
    def among(
        self, u: Float[Tensor, "pair channel"], others: Float[Tensor, "pair other channel"]
    ) -> Float[Tensor, "pair other"]:
        """Return the logits of each u with each of its others; equals `forward` up to rounding."""
        count = others.shape[1]
        return self(u.repeat_interleave(count, 0), others.flatten(0, 1)).view(-1, count)


class DotProduct(LinkDecoder):
    """h_u . h_v."""

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        return (u * v).sum(-1)

    def among(self, u: Tensor, others: Tensor) -> Tensor:
        return torch.bmm(others, u.unsqueeze(-1)).squeeze(-1)


class ProductPerceptron(LinkDecoder):
    """A two-layer perceptron on h_u * h_v."""

    def __init__(self, dim: int, *, directed: bool = True, dropout: float = 0.0) -> None:
        super().__init__(dim)
        self.inner, self.drop, self.outer = nn.Linear(dim, dim), nn.Dropout(dropout), nn.Linear(dim, 1)

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        return self.outer(self.drop(torch.relu(self.inner(u * v)))).squeeze(-1)


class Bilinear(LinkDecoder):
    """h_u^T W h_v."""

    symmetric = False

    def __init__(self, dim: int, *, directed: bool = True, dropout: float = 0.0) -> None:
        super().__init__(dim)
        self.symmetric = not directed
        self.weight = nn.Parameter(torch.eye(dim) + 0.01 * torch.randn(dim, dim))

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        found = (nn.functional.linear(u, self.weight.T) * v).sum(-1)
        if self.symmetric:
            found = (found + (nn.functional.linear(v, self.weight.T) * u).sum(-1)) / 2
        return found

    def among(self, u: Tensor, others: Tensor) -> Tensor:
        u = u @ ((self.weight + self.weight.T) / 2 if self.symmetric else self.weight)
        return torch.bmm(others, u.unsqueeze(-1)).squeeze(-1)


class LinkHead(LinkDecoder):
    """w_2 ReLU(W_1 (h_u || h_v)) for a pair (u, v), optionally with encoded pair features, (h_u || h_v || p).

    With relations, `RelationModulation` scales and shifts the hidden units before the ReLU.

    Args:
        dim: width of an embedding.
        directed, dropout: not used.
        pair: encoder of pair features, or None.
        num_relations: relations of the pairs, 0 for none.
    """

    symmetric = False

    def __init__(
        self,
        dim: int,
        *,
        directed: bool = True,
        dropout: float = 0.0,
        pair: PairHistory | None = None,
        num_relations: int = 0,
    ) -> None:
        super().__init__(dim)
        self.merge = nn.Linear(2 * dim + (0 if pair is None else pair.dim), dim)
        self.score = nn.Linear(dim, 1)
        self.pair = pair
        self.relation = RelationModulation(num_relations, dim) if num_relations else None

    @shapecheck
    def forward(
        self,
        u: Float[Tensor, "pair channel"],
        v: Float[Tensor, "pair channel"],
        features: Float[Tensor, "pair feature"] | None = None,
        relation: Int[Tensor, "pair"] | None = None,
    ) -> Float[Tensor, "pair"]:
        """Return one logit per pair; features are read only with a `PairHistory`, codes of relations with relations."""
        parts = [u, v] if self.pair is None else [u, v, self.pair(features)]
        hidden = self.merge(torch.cat(parts, -1))
        if self.relation is not None:
            hidden = self.relation(hidden, relation)
        return self.score(torch.relu(hidden)).squeeze(-1)


DECODERS: dict[str, type[LinkDecoder]] = {
    "dot": DotProduct,
    "mlp": ProductPerceptron,
    "bilinear": Bilinear,
    "merge": LinkHead,
}


class PairDecoder(nn.Module):
    """Sum of a decoder's logit and a small MLP on structural features of the pair.

    Args:
        kind: name in `DECODERS`.
        dim, directed, dropout: see `LinkDecoder`.
        features: number of structural features, 0 for none.

    Raises:
        ConfigError: an unknown kind.
    """

    def __init__(self, kind: str, dim: int, *, directed: bool, dropout: float = 0.0, features: int = 0) -> None:
        super().__init__()
        if kind not in DECODERS:
            raise ConfigError(f"unknown decoder {kind!r}{nearest(kind, DECODERS)}; known: {', '.join(DECODERS)}")
        self.score = DECODERS[kind](dim, directed=directed, dropout=dropout)
        self.near: nn.Module | None = None
        if features:
            self.near = nn.Sequential(nn.Linear(features, NEAR), nn.ReLU(), nn.Linear(NEAR, 1))

    @property
    def symmetric(self) -> bool:
        """Whether (u, v) and (v, u) have the same score."""
        return self.score.symmetric

    @shapecheck
    def forward(
        self,
        u: Float[Tensor, "pair channel"],
        v: Float[Tensor, "pair channel"],
        near: Float[Tensor, "pair feature"] | None = None,
    ) -> Float[Tensor, "pair"]:
        return self._with_near(self.score(u, v), near)

    @shapecheck
    def among(
        self,
        u: Float[Tensor, "pair channel"],
        others: Float[Tensor, "pair other channel"],
        near: Float[Tensor, "pair other feature"] | None = None,
    ) -> Float[Tensor, "pair other"]:
        """Return the logits of each u with each of its others; equals `forward` up to rounding."""
        return self._with_near(self.score.among(u, others), near)

    def _with_near(self, logits: Tensor, near: Tensor | None) -> Tensor:
        return logits if self.near is None else logits + self.near(near).squeeze(-1)


class NodeHead(nn.Sequential):
    """MLP with ReLU and dropout between its layers.

    Args:
        dim: width of an embedding.
        outputs: number of outputs.
        hidden: hidden widths.
        dropout: dropout probability of hidden elements.
    """

    def __init__(self, dim: int, outputs: int, *, hidden: tuple[int, ...] = (80, 10), dropout: float = 0.1) -> None:
        layers: list[nn.Module] = []
        for before, after in zip((dim, *hidden), hidden):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        super().__init__(*layers, nn.Linear((dim, *hidden)[-1], outputs))
