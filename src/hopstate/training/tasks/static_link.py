"""Links of one graph as a `Task`: any source of node vectors, a decoder of pairs, and links that are no messages.

Training is that of links among pairs that are no training links, drawn from (seed, epoch, number). Where the source
takes any nodes, a step holds so many links; where it draws sets of nodes (TOP, GAS, clusters, GraphSAINT), the training
links within a set, each among pairs of the set. Evaluation encodes every node once, over training links, and ranks as
`evaluation.static_link` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.data.graph import Graph
from hopstate.data.splits import EdgeSplit
from hopstate.data.validate import SPLITS
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, check_range, refuse_idle
from hopstate.evaluation import summaries
from hopstate.evaluation.calibration import Curve, fitted
from hopstate.evaluation.static_link import Question, judged, metrics_of
from hopstate.layers.decoders import DECODERS, PairDecoder
from hopstate.ops.proximity import Proximity
from hopstate.random import named_rng
from hopstate.sampling.pair_negatives import NonNeighbors, Strategy
from hopstate.training.devices import bare
from hopstate.training.tasks.node import NodeBatches
from hopstate.training.tasks.task import SourceTask, TaskFacts

POOL = 8  # pairs that are looked at for one of the highest "scored"
DECODED = 1 << 16  # pairs at a time in evaluation


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

    split: Literal["auto", "random", "time", "file"] = "auto"
    fractions: tuple[float, float, float] = (0.85, 0.05, 0.10)
    time: str | None = None
    file: str | None = None
    disjoint: float = 0.0
    hide: bool = False
    val_messages: bool = False
    decoder: str = "auto"
    structure: bool = True
    dim: int = 128
    negatives: Strategy = "uniform"
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


@dataclass(frozen=True)
class Without:
    """Inputs of a step over messages of its own: the source over them, and what it gave for some nodes."""

    source: NodeBatches[Any]
    inputs: Any

    def to(self, device: torch.device) -> Without:
        return self  # the source moves what it has itself

    @staticmethod
    def encode(encoder: nn.Module, batch: Without) -> Tensor:
        return batch.source.encode(encoder, batch.inputs)


class LinkModel(nn.Module):
    """A network that gives nodes vectors, and a decoder of pairs of them.

    Args:
        encoder: the network.
        decoder: of pairs.
        encode: (encoder, a batch of its source) → (n, D) vectors of the batch's nodes.
    """

    def __init__(self, encoder: nn.Module, decoder: PairDecoder, encode: Callable[[nn.Module, Any], Tensor]) -> None:
        super().__init__()
        self.encoder, self.decoder, self._encode = encoder, decoder, encode

    @property
    def edge_dim(self) -> int | None:
        return getattr(self.encoder, "edge_dim", None)

    def forward(
        self, inputs: Any, ends: Tensor, others: Tensor, near: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Return logits (n,) of links, and (n, k) of pairs that are none.

        Args:
            inputs: what the source gave for some nodes.
            ends: (n, 2) links, by the places of their nodes among those.
            others: (n, k) nodes that the first ends are paired with.
            near: (n, F) and (n, k, F) how near by links alone, where the decoder reads that.
        """
        z = self._encode(self.encoder, inputs)
        own = z.index_select(0, ends[:, 0])  # its gradient is a sum of rows; that of z[u] sorts them first
        beside = z.index_select(0, others.reshape(-1)).view(*others.shape, -1)
        direct, far = (None, None) if near is None else near
        return self.decoder(own, z.index_select(0, ends[:, 1]), direct), self.decoder.among(own, beside, far)


class StaticLinkTask(SourceTask[Any, NodeBatches[Any]]):
    """Prediction of the links of one graph.

    Args:
        model: encoder and decoder.
        source: of the node vectors in training.
        vectors: split → source of the node vectors with which a split is judged, and the graph of its messages; made
            when first asked for.
        split: the links.
        learned: (n, 2) training links that are learned from: all of them, or a share that is no message.
        messages: the graph of training links.
        link: settings of learning and of evaluation.
        batch_size: links of a step.
        seed, split_seed: of what training and evaluation draw.
        without: rows (n,) of learned links → source of the node vectors over the messages but those; None: a step's own
            links are messages in it.
        node_ids: the user's own ids, None where they are the rows.
        walks: numbers of walks that the source draws, which a run remembers.
    """

    metric = "mrr"

    def __init__(
        self,
        model: LinkModel,
        source: NodeBatches[Any],
        vectors: Callable[[str], tuple[NodeBatches[Any], Graph]],
        split: EdgeSplit,
        *,
        learned: np.ndarray,
        messages: Graph,
        link: LinkConfig,
        batch_size: int,
        seed: int,
        split_seed: int,
        without: Callable[[np.ndarray], NodeBatches[Any]] | None = None,
        node_ids: Vocabulary | None = None,
        walks: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(model, source)
        self.vectors, self.split, self.learned, self.messages = vectors, split, learned, messages
        self.link, self.batch_size, self.node_ids, self.walks = link, batch_size, node_ids, walks
        self.seed, self.split_seed = seed, split_seed
        self.without = without
        self._curve: Curve | None = None  # from validation's scores, when they were last judged
        every = np.concatenate([split.pairs[name] for name in SPLITS])
        kinds: dict[str, Any] = {"directed": split.directed, "node_type": messages.node_type}
        self.free = NonNeighbors(every, messages.num_nodes, **kinds)
        self._near: dict[int, Proximity] = {}
        self.untrained = NonNeighbors(split.pairs["train"], messages.num_nodes, **kinds)

    # ---- training --------------------------------------------------------------------------------------
    def num_batches(self, epoch: int) -> int:
        drawn = self.source.num_sampled_batches(epoch)
        return -(-len(self.learned) // self.batch_size) if drawn is None else drawn

    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[Any]:
        drawn, encoder = self.source.num_sampled_batches(epoch), _encoder(self.model)
        if start < step:
            self.source.begin_epoch(encoder, epoch)
        order = named_rng(self.seed, "links", epoch).permutation(len(self.learned))
        for number in range(start, self.num_batches(epoch), step):
            rng = named_rng(self.seed, "pairs", epoch, number)
            if drawn is None:
                rows = order[number * self.batch_size : (number + 1) * self.batch_size]
                links = self._either_way(self.learned[rows], rng)
                others = self._others(self.untrained, links[:, 0], rng)
                nodes, place = np.unique(np.concatenate([links, np.maximum(others, 0)], 1), return_inverse=True)
                source = self.source if self.without is None else self.without(rows)
                inputs, _ = source.encoder_batch(encoder, nodes, epoch, number)
                inputs = inputs if self.without is None else Without(source, inputs)
                place = place.reshape(len(links), -1)
                yield self._batch(inputs, nodes, place[:, :2], place[:, 2:], others >= 0)
            else:
                inputs, nodes = self.source.encoder_batch(encoder, np.empty(0, np.int64), epoch, number)
                links = self._either_way(_inside(self.learned, nodes, self.messages.num_nodes), rng)
                known = _inside(self.split.pairs["train"], nodes, self.messages.num_nodes)
                types = None if self.messages.node_type is None else self.messages.node_type[nodes]
                free = NonNeighbors(known, len(nodes), directed=self.split.directed, node_type=types)
                others = self._others(free, links[:, 0], rng)
                yield self._batch(inputs, nodes, links, np.maximum(others, 0), others >= 0)

    def _batch(self, inputs: Any, nodes: np.ndarray, ends: np.ndarray, others: np.ndarray, real: np.ndarray) -> Any:
        """Return (inputs, ends (n, 2), others (n, k), which of these are pairs, how near both are or None)."""
        near = None
        if self.link.structure:
            first = np.repeat(nodes[ends[:, 0]], others.shape[1])
            far = self.near(self.messages).features(first, nodes[others.reshape(-1)])
            direct = self.near(self.messages).features(*nodes[ends].T)
            near = torch.from_numpy(direct), torch.from_numpy(far).view(*others.shape, -1)
        return inputs, *(torch.from_numpy(np.ascontiguousarray(a)) for a in (ends, others, real)), near

    def near(self, graph: Graph) -> Proximity:
        if id(graph) not in self._near:
            self._near[id(graph)] = Proximity(graph.indptr, graph.indices)
        return self._near[id(graph)]

    def loss(self, batch: Any) -> Tensor | None:
        """Return the mean loss of a batch's links among their pairs; None where it holds none."""
        inputs, ends, others, real, near = batch
        found, beside = self.model(inputs, ends, others, near)
        if not len(found):
            return None
        beside = beside.masked_fill(~real, float("-inf"))
        if self.link.negatives == "scored":
            beside = beside.topk(self.link.num_negatives, 1).values
        if self.link.loss == "softmax":
            both = torch.cat([found[:, None], beside], 1)
            return (both.logsumexp(1) - found).mean()
        kept = beside[beside > float("-inf")]
        return F.softplus(-found).mean() + (F.softplus(kept).mean() if len(kept) else 0)

    def _either_way(self, links: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return links (n, 2), those of an undirected graph from either end: the other one is drawn anew."""
        if self.split.directed:
            return links
        return np.where(rng.random(len(links))[:, None] < 0.5, links, links[:, ::-1])

    def _others(self, free: NonNeighbors, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return (n, k) nodes that rows (n,) have no training link to, -1 where there is none."""
        kind = self.link.negatives
        count = self.link.num_negatives * (POOL if kind == "scored" else 1)
        return free.draw(np.repeat(rows, count), rng, kind).reshape(len(rows), count)

    def facts(self) -> TaskFacts:
        return {"class_names": (), "walks": self.walks}

    # ---- judging ---------------------------------------------------------------------------------------
    @property
    def train_share(self) -> float:
        train, most = (len(self.split.pairs[split]) for split in ("train", "test"))
        return min(1.0, most / max(1, train))

    def question(self, split: str) -> Question:
        """Return the links of a split and what they are ranked among; of train, as many as test has."""
        if split not in SPLITS:
            raise ConfigError(f"links are evaluated on train, val or test, not {split!r}")
        pairs = self.split.pairs[split]
        if split == "train" and len(pairs) > len(self.split.pairs["test"]):
            most = len(self.split.pairs["test"])
            pairs = pairs[np.linspace(0, len(pairs) - 1, most).astype(np.int64)]
        return Question(
            pairs=pairs, free=self.free, directed=self.split.directed, candidates=self.link.candidates or None,
            seed=self.split_seed * len(SPLITS) + SPLITS.index(split),
        )  # fmt: skip

    def evaluate(self, split: str) -> dict[str, float]:
        """Return "mrr", "hits@k", "average_precision" and "roc_auc" of a split; limits of the test split's.

        "loss" of validation is `Judged.loss`. Of epochs with equal metrics the one with the smallest is kept.
        """
        question = self.question(split)
        found = judged(question, self.scorer(split))
        if split == "val":
            self._curve = fitted(found.scores, found.y, "random") if 0 < found.y.sum() < len(found.y) else None
        if split == "test":
            raw = 1 / (1 + np.exp(-np.clip(found.scores, -700, 700)))
            most = int(self.free.count.max(initial=0)) + 1  # with the node itself
            counts = np.array([min(question.candidates or most, most)])
            ranking = [summaries.ranking_curve(found.rank, counts, "nodes without a link")]
            bins = summaries.of_pairs(found.scores, found.y, "random pairs", self._curve, raw)
            self.curves = {"ranking": ranking, "reliability": bins}
        metrics = metrics_of(question, found, bootstrap=self.link.bootstrap if split == "test" else 0)
        return metrics | ({"loss": found.loss} if split == "val" else {})

    def encoded(self, split: str) -> tuple[Tensor, Graph]:
        """Return (N, D) vectors of all nodes over the messages of a split, and these."""
        source, messages = self.vectors(split)
        z = source.logits(_encoder(self.model), np.arange(self.messages.num_nodes))
        return z.to(next(self.model.parameters())), messages

    def scorer(self, split: str = "test") -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        model = bare(self.model)
        assert isinstance(model, LinkModel)
        z, messages = self.encoded(split)

        def score(u: np.ndarray, v: np.ndarray) -> np.ndarray:
            found = np.empty(len(u))
            for start in range(0, len(u), DECODED):
                ends = [np.ascontiguousarray(e[start : start + DECODED], np.int64) for e in (u, v)]
                inputs = [z.index_select(0, torch.from_numpy(end).to(z.device)) for end in ends]
                if self.link.structure:
                    inputs.append(torch.from_numpy(self.near(messages).features(*ends)).to(z))
                found[start : start + DECODED] = model.decoder(*inputs).double().cpu().numpy()
            return found

        return score

    def predict(self, split: str) -> dict[str, np.ndarray]:
        names = SPLITS if split == "all" else (split,)
        if not set(names) <= set(SPLITS):
            raise ConfigError(f"links have the splits train, val, test and all, not {split!r}")
        pairs = np.concatenate([self.split.pairs[name] for name in names])
        which = np.repeat(names, [len(self.split.pairs[name]) for name in names])
        with torch.no_grad():
            # as `evaluate` scores them: validation's links are no messages of their own
            scores = np.concatenate([self.scorer(name)(*self.split.pairs[name].T) for name in names])
        named = pairs if self.node_ids is None else self.node_ids.names(pairs)
        return {"source": named[:, 0], "target": named[:, 1], "split": which, "score": scores}


def _encoder(model: nn.Module) -> nn.Module:
    inner = bare(model)
    assert isinstance(inner, LinkModel)
    return inner.encoder


def _inside(pairs: np.ndarray, nodes: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return (m, 2) the pairs (n, 2) with both ends among distinct nodes, by their places there."""
    place = np.full(num_nodes, -1, np.int64)
    place[nodes] = np.arange(len(nodes))
    local = place[pairs]
    return local[(local >= 0).all(1)]
