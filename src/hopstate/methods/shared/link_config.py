"""Settings of link prediction on a static graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hopstate.errors import ConfigError, check_range, refuse_idle
from hopstate.layers.decoders import DECODERS

STEP, SAMPLED = 16_384, 1024  # links of a step: where it encodes the whole graph anyway, and where it does not
How = Literal["auto", "random", "time", "file"]


@dataclass(frozen=True, kw_only=True)
class LinkConfig:
    """Link prediction on a static graph (task "link").

    Args:
        split: how links are shared out: "random" (by split.seed and split.number), "time" (the latest are for test,
            those before them for validation), a "file"; "auto" takes the file where one is named, the time where
            edges carry one, else random.
        fractions: shares of train, val and test of a split by chance or time.
        time: column of the edges that holds their time; null takes one of a usual name. It is no feature then.
        file: table of source, target and split (train, val, test) with your ids; links that it leaves out are for
            training.
        disjoint: share of the training links that are learned from and are no messages meanwhile; 0 takes every
            training link for both, as is usual. Evaluation passes messages over all training links.
        hide: a step's own links are no messages in it, as a link that is asked about is none; for networks that a step
            gives the whole graph.
        val_messages: pass messages over validation links too where test links are scored.
        decoder: score of two node vectors: "dot", "mlp" (a perceptron on their product), "bilinear", "merge" (a
            perceptron on both); "auto" takes dot,
            or bilinear where edges have a direction: dot and mlp score both directions alike.
        structure: add what a small perceptron makes of the pair's common neighbours and paths of three steps over
            messages, its own link left out; false scores by the two vectors alone.
        dim: width of a node vector.
        negatives: pairs that are no training links: their targets are drawn "uniform", by "degree", from "two-hop"
            neighbours, or of eight times as many the highest "scored".
        num_negatives: of each link.
        loss: "softmax" of a link among its own negatives, or "bce" of single pairs.
        batch_size: links of a step; null takes 16,384 where a step encodes the whole graph anyway, else 1,024. Batches
            of nodes take the links among them.
        candidates: nodes that a held-out link's end is ranked among, drawn from those without a link in any split;
            0 takes all of them.
        bootstrap: resamples for 95% limits of the test figures; 0 gives none.
    """

    split: How = "auto"
    fractions: tuple[float, float, float] = (0.85, 0.05, 0.10)
    time: str | None = None
    file: str | None = None
    disjoint: float = 0.0
    hide: bool = False
    val_messages: bool = False
    decoder: str = "auto"
    structure: bool = True
    dim: int = 128
    negatives: Literal["uniform", "degree", "two-hop", "scored"] = "uniform"
    num_negatives: int = 20
    loss: Literal["softmax", "bce"] = "softmax"
    batch_size: int | None = None
    candidates: int = 1000
    bootstrap: int = 0

    def __post_init__(self) -> None:
        if min(self.fractions) <= 0 or abs(sum(self.fractions) - 1) > 1e-6:
            raise ConfigError(f"link.fractions are three positive shares that sum to 1; got {list(self.fractions)}")
        known = ("auto", *DECODERS)
        if self.decoder not in known:
            raise ConfigError(f"link.decoder is one of {', '.join(known)}; got {self.decoder!r}")
        check_range("link.", least=0, below=1, disjoint=self.disjoint)
        check_range("link.", least=1, dim=self.dim, num_negatives=self.num_negatives, batch_size=self.batch_size)
        check_range("link.", least=0, candidates=self.candidates, bootstrap=self.bootstrap)
        if (self.split == "file") != (self.file is not None) and self.split != "auto":
            raise ConfigError(f"link.split=file takes link.file, and nothing else does; got {self.split}, {self.file}")
        if self.hide and self.disjoint:
            raise ConfigError("link.hide and link.disjoint both keep links out of messages; give one of them")
        refuse_idle(self, time=self.split in ("random", "file") and f"link.split={self.split} looks at no time")


__all__ = ["SAMPLED", "STEP", "How", "LinkConfig"]
