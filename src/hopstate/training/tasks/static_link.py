"""Static link prediction as a `Task`: node embeddings from any source, and a decoder of node pairs.

Training contrasts training edges with negative samples drawn from (seed, epoch, number). If the source accepts any
nodes, a step has a fixed number of edges. If it samples node sets (TOP, GAS, clusters, GraphSAINT), a step has the
training edges within a set, with negatives from the same set. Evaluation embeds each node once with the training edges
as messages and ranks candidates, see `evaluation.static_link`.
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
from hopstate.evaluation.calibration import IsotonicCurve, fit_isotonic
from hopstate.evaluation.static_link import LinkQueries, metrics_of, predict_links
from hopstate.layers.decoders import DECODERS, PairDecoder
from hopstate.ops.proximity import Proximity
from hopstate.random import named_rng
from hopstate.sampling.pair_negatives import NonNeighbors, Strategy
from hopstate.training.devices import bare
from hopstate.training.tasks.node import NodeBatches
from hopstate.training.tasks.task import SourceTask, TaskFacts

POOL = 8  # candidates per negative of "scored"
DECODED = 1 << 16  # pairs per decoder call in evaluation


@dataclass(frozen=True, kw_only=True)
class LinkConfig:
    """Link prediction on a static graph (task "link").

    Args:
        split: how edges are split: "random" (by split.seed and split.number), "time" (validation and test get the
            latest), or from a "file". "auto" uses the file if given, the time if edges have one, otherwise random.
        fractions: shares of train, val and test of a random or time split.
        time: column with the edges' times, which is then not a feature. null looks for a usual name.
        file: table of source, target and split (train, val, test) with your ids. Missing edges are for training.
        disjoint_train_ratio: fraction of the training edges used for supervision only and not as messages. 0 uses every
            training edge for both. Evaluation passes messages over all training edges.
        mask_target_edges: remove a step's own edges from its messages, as at evaluation; for models that see the whole
            graph per step.
        messages_from_val: also pass messages over validation edges when test edges are scored.
        decoder: score of two node embeddings: "dot", "mlp" (on their product), "bilinear" or "merge" (on their
            concatenation). "auto" uses bilinear for directed edges and dot otherwise, because dot and mlp are
            symmetric.
        structural_features: add a small MLP on the pair's common neighbors and paths of length three, without its own
            edge.
        dim: width of a node embedding.
        negatives: how negative targets are drawn: "uniform", by "degree", from "two-hop" neighbors, or the highest
            "scored" of eight times as many.
        num_negatives: negatives per edge.
        loss: "softmax" of an edge and its negatives, or "bce" of single pairs.
        batch_size: edges per step. null uses 16,384 if a step embeds the whole graph, otherwise 1,024. Batches of nodes
            use the edges among them.
        num_candidates: number of nodes to rank each held-out edge's target among, drawn from unconnected nodes; 0 uses
            all.
        bootstrap: resamples for 95% confidence intervals of the test metrics; 0 computes none.
    """

    split: Literal["auto", "random", "time", "file"] = "auto"
    fractions: tuple[float, float, float] = (0.85, 0.05, 0.10)
    time: str | None = None
    file: str | None = None
    disjoint_train_ratio: float = 0.0
    mask_target_edges: bool = False
    messages_from_val: bool = False
    decoder: str = "auto"
    structural_features: bool = True
    dim: int = 128
    negatives: Strategy = "uniform"
    num_negatives: int = 20
    loss: Literal["softmax", "bce"] = "softmax"
    batch_size: int | None = None
    num_candidates: int = 1000
    bootstrap: int = 0

    def __post_init__(self) -> None:
        if min(self.fractions) <= 0 or abs(sum(self.fractions) - 1) > 1e-6:
            raise ConfigError(f"link.fractions are three positive shares that sum to 1; got {list(self.fractions)}")
        known = ("auto", *DECODERS)
        if self.decoder not in known:
            raise ConfigError(f"link.decoder is one of {', '.join(known)}; got {self.decoder!r}")
        check_range("link.", minimum=0, below=1, disjoint_train_ratio=self.disjoint_train_ratio)
        check_range("link.", minimum=1, dim=self.dim, num_negatives=self.num_negatives, batch_size=self.batch_size)
        check_range("link.", minimum=0, num_candidates=self.num_candidates, bootstrap=self.bootstrap)
        if (self.split == "file") != (self.file is not None) and self.split != "auto":
            raise ConfigError(f"link.file needs link.split=file, and the reverse; got {self.split}, {self.file}")
        if self.mask_target_edges and self.disjoint_train_ratio:
            both = "link.mask_target_edges and link.disjoint_train_ratio"
            raise ConfigError(f"{both} both remove edges from messages. Use one of them")
        refuse_idle(self, time=self.split in ("random", "file") and f"link.split={self.split} does not use times")


@dataclass(frozen=True)
class Without:
    """Inputs of a step whose messages exclude its own edges."""

    source: NodeBatches[Any]
    inputs: Any

    def to(self, device: torch.device) -> Without:
        return self  # the source moves its own tensors

    @staticmethod
    def encode(encoder: nn.Module, batch: Without) -> Tensor:
        return batch.source.encode(encoder, batch.inputs)


class LinkModel(nn.Module):
    """A node encoder and a decoder of node pairs."""

    def __init__(self, encoder: nn.Module, decoder: PairDecoder, encode: Callable[[nn.Module, Any], Tensor]) -> None:
        super().__init__()
        self.encoder, self.decoder, self._encode = encoder, decoder, encode

    @property
    def edge_dim(self) -> int | None:
        return getattr(self.encoder, "edge_dim", None)

    def forward(
        self, inputs: Any, ends: Tensor, others: Tensor, near: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Return logits (n,) of edges and (n, k) of their negatives.

        Args:
            inputs: source batch.
            ends: (n, 2) edges, as rows of the batch's nodes.
            others: (n, k) negative targets of the first ends.
            near: (n, F) and (n, k, F) structural features, if the decoder reads them.
        """
        z = self._encode(self.encoder, inputs)
        sources = z.index_select(0, ends[:, 0])  # its gradient is a sum of rows; that of z[u] sorts them first
        negatives = z.index_select(0, others.reshape(-1)).view(*others.shape, -1)
        direct, far = (None, None) if near is None else near
        return self.decoder(sources, z.index_select(0, ends[:, 1]), direct), self.decoder.among(sources, negatives, far)


class StaticLinkTask(SourceTask[Any, NodeBatches[Any]]):
    """Static link prediction.

    Args:
        model: encoder and decoder.
        source: source of the node embeddings in training.
        vectors: function from a split to the source of its evaluation embeddings and its message graph; called lazily.
        split: the edge split.
        learned: (n, 2) supervised training edges: all, or a part that is not used as messages.
        messages: the graph of training edges.
        link: training and evaluation settings.
        batch_size: edges per step.
        seed, split_seed: seeds of training and evaluation samples.
        without: function from rows (n,) of learned edges to a source without these messages. None keeps a step's own
            edges as messages.
        node_ids: the user's node ids. None if ids are row numbers.
        walks: numbers of sampled walks, stored with the run.
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
        self._curve: IsotonicCurve | None = None  # fitted to the latest validation scores
        every = np.concatenate([split.pairs[name] for name in SPLITS])
        kinds: dict[str, Any] = {"directed": split.directed, "node_type": messages.sides}
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
                links = self._flip_at_random(self.learned[rows], rng)
                others = self._negatives(self.untrained, links[:, 0], rng)
                nodes, place = np.unique(np.concatenate([links, np.maximum(others, 0)], 1), return_inverse=True)
                source = self.source if self.without is None else self.without(rows)
                inputs, _ = source.encoder_batch(encoder, nodes, epoch, number)
                inputs = inputs if self.without is None else Without(source, inputs)
                place = place.reshape(len(links), -1)
                yield self._batch(inputs, nodes, place[:, :2], place[:, 2:], others >= 0)
            else:
                inputs, nodes = self.source.encoder_batch(encoder, np.empty(0, np.int64), epoch, number)
                links = self._flip_at_random(_inside(self.learned, nodes, self.messages.num_nodes), rng)
                known = _inside(self.split.pairs["train"], nodes, self.messages.num_nodes)
                types = None if self.messages.sides is None else self.messages.sides[nodes]
                free = NonNeighbors(known, len(nodes), directed=self.split.directed, node_type=types)
                others = self._negatives(free, links[:, 0], rng)
                yield self._batch(inputs, nodes, links, np.maximum(others, 0), others >= 0)

    def _batch(self, inputs: Any, nodes: np.ndarray, ends: np.ndarray, others: np.ndarray, real: np.ndarray) -> Any:
        """Return (inputs, ends (n, 2), others (n, k), mask of real negatives, structural features or None)."""
        near = None
        if self.link.structural_features:
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
        """Return the mean loss of a batch's edges and negatives, or None if it has no edges."""
        inputs, ends, others, real, near = batch
        logits, negatives = self.model(inputs, ends, others, near)
        if not len(logits):
            return None
        negatives = negatives.masked_fill(~real, float("-inf"))
        if self.link.negatives == "scored":
            negatives = negatives.topk(self.link.num_negatives, 1).values
        if self.link.loss == "softmax":
            both = torch.cat([logits[:, None], negatives], 1)
            return (both.logsumexp(1) - logits).mean()
        real_negatives = negatives[negatives > float("-inf")]
        return F.softplus(-logits).mean() + (F.softplus(real_negatives).mean() if len(real_negatives) else 0)

    def _flip_at_random(self, links: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return edges (n, 2); undirected edges are flipped at random so that either end gets negatives."""
        if self.split.directed:
            return links
        return np.where(rng.random(len(links))[:, None] < 0.5, links, links[:, ::-1])

    def _negatives(self, free: NonNeighbors, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return (n, k) negative targets of source rows (n,), -1 if there is none."""
        kind = self.link.negatives
        count = self.link.num_negatives * (POOL if kind == "scored" else 1)
        return free.draw(np.repeat(rows, count), rng, kind).reshape(len(rows), count)

    def facts(self) -> TaskFacts:
        return {"class_names": (), "walks": self.walks}

    # ---- evaluation ---------------------------------------------------------------------------------------
    @property
    def train_share(self) -> float:
        train, test = (len(self.split.pairs[split]) for split in ("train", "test"))
        return min(1.0, test / max(1, train))

    def question(self, split: str) -> LinkQueries:
        """Return a split's edges and ranking candidates; train is subsampled to the size of test."""
        if split not in SPLITS:
            raise ConfigError(f"links are evaluated on train, val or test, not {split!r}")
        pairs = self.split.pairs[split]
        if split == "train" and len(pairs) > len(self.split.pairs["test"]):
            limit = len(self.split.pairs["test"])
            pairs = pairs[np.linspace(0, len(pairs) - 1, limit).astype(np.int64)]
        return LinkQueries(
            pairs=pairs, free=self.free, directed=self.split.directed, candidates=self.link.num_candidates or None,
            seed=self.split_seed * len(SPLITS) + SPLITS.index(split),
        )  # fmt: skip

    def evaluate(self, split: str) -> dict[str, float]:
        """Return "mrr", "hits@k", "average_precision" and "roc_auc" of a split, and confidence limits for test.

        "loss" of validation is `LinkPredictions.loss`. It breaks ties between epochs with equal metrics.
        """
        question = self.question(split)
        predictions = predict_links(question, self.scorer(split))
        if split == "val":
            self._curve = (
                fit_isotonic(predictions.scores, predictions.y, "random")
                if 0 < predictions.y.sum() < len(predictions.y)
                else None
            )
        if split == "test":
            raw = 1 / (1 + np.exp(-np.clip(predictions.scores, -700, 700)))
            bins = summaries.pair_reliability(predictions.scores, predictions.y, "random pairs", self._curve, raw)
            self.curves = {"reliability": bins}
        metrics = metrics_of(question, predictions, bootstrap=self.link.bootstrap if split == "test" else 0)
        return metrics | ({"loss": predictions.loss} if split == "val" else {})

    def encoded(self, split: str) -> tuple[Tensor, Graph]:
        """Return (N, D) embeddings of all nodes and the message graph of a split."""
        source, messages = self.vectors(split)
        z = source.logits(_encoder(self.model), np.arange(self.messages.num_nodes))
        return z.to(next(self.model.parameters())), messages

    def scorer(self, split: str = "test") -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        model = bare(self.model)
        assert isinstance(model, LinkModel)
        z, messages = self.encoded(split)

        def score(u: np.ndarray, v: np.ndarray) -> np.ndarray:
            scores = np.empty(len(u))
            for start in range(0, len(u), DECODED):
                ends = [np.ascontiguousarray(e[start : start + DECODED], np.int64) for e in (u, v)]
                inputs = [z.index_select(0, torch.from_numpy(end).to(z.device)) for end in ends]
                if self.link.structural_features:
                    inputs.append(torch.from_numpy(self.near(messages).features(*ends)).to(z))
                scores[start : start + DECODED] = model.decoder(*inputs).double().cpu().numpy()
            return scores

        return score

    def predict(self, split: str) -> dict[str, np.ndarray]:
        names = SPLITS if split == "all" else (split,)
        if not set(names) <= set(SPLITS):
            raise ConfigError(f"links have the splits train, val, test and all, not {split!r}")
        pairs = np.concatenate([self.split.pairs[name] for name in names])
        which = np.repeat(names, [len(self.split.pairs[name]) for name in names])
        with torch.no_grad():
            # as in `evaluate`: validation edges are not messages
            scores = np.concatenate([self.scorer(name)(*self.split.pairs[name].T) for name in names])
        named = pairs if self.node_ids is None else self.node_ids.names(pairs)
        return {"source": named[:, 0], "target": named[:, 1], "split": which, "score": scores}


def _encoder(model: nn.Module) -> nn.Module:
    inner = bare(model)
    assert isinstance(inner, LinkModel)
    return inner.encoder


def _inside(pairs: np.ndarray, nodes: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return (m, 2) the pairs (n, 2) with both ends among distinct nodes, as rows of nodes."""
    place = np.full(num_nodes, -1, np.int64)
    place[nodes] = np.arange(len(nodes))
    local = place[pairs]
    return local[(local >= 0).all(1)]
