"""A replacement for torch-geometric's `NeighborLoader` without compiled extensions.

A hopstate sampler behind torch-geometric's `NodeLoader`, which collects features, labels and other `Data` attributes.
Random numbers come from torch's generator, so `torch.manual_seed` makes batches reproducible.

Source: Hamilton et al. 2017, arXiv:1706.02216; the attributes are those of `torch_geometric.loader.NeighborLoader` 2.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.base import SubgraphType

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError, nearest
from hopstate.ops.rows import bounds_of
from hopstate.ops.sampling import LocalGraph, Neighborhoods
from hopstate.random import named_rng
from hopstate.sampling.samplers import DRAWS

KINDS = ("directional", "bidirectional", "induced")
REFUSED = {  # arguments of torch-geometric's loader that are not taken, with the reason
    "input_time": "times of seeds are not looked at; for events use NeighborStore and HistoryTokenizer",
    "time_attr": "neighbors are drawn whatever their time; for events use NeighborStore and HistoryTokenizer",
    "temporal_strategy": "neighbors are drawn whatever their time",
    "weight_attr": "neighbors are drawn uniformly, whatever the weight of their edge",
    "replace": "neighbors are drawn without replacement",
    "directed": "give subgraph_type='induced'",
    "custom_cls": "a feature store is not taken",
    "neighbor_sampler": "the sampler is this loader's own",
    "disjoint": "seeds of a batch share their neighbors; hopstate.ShadowSampler gives each seed a subgraph of its own",
}
# values that ask for nothing
USUAL = {"temporal_strategy": "uniform", "disjoint": False, "replace": False, "directed": True}

HopEdges = tuple[
    np.ndarray, np.ndarray, np.ndarray
]  # (e,) sources and (e,) targets in the graph, (e,) places in the CSR


class NeighborLoader(NodeLoader):
    """Replaces `torch_geometric.loader.NeighborLoader` for homogeneous graphs, without pyg-lib or torch-sparse.

    A batch is a `Data` of the sampled nodes, seeds first, and edges, with `n_id`, `e_id`, `input_id` and `batch_size`.
    Subgraphs of type "directional" also have `num_sampled_nodes` and `num_sampled_edges`. A seed that is twice in a
    batch has two rows with the same sampled neighbors.

    Args:
        data: a torch-geometric `Data` with edge_index, or a `Graph`.
        num_neighbors: sampled in-neighbors per node, one number per hop from the seeds; -1 takes all.
        input_nodes: (n,) int64 seeds or (N,) bool mask. Default: all nodes.
        subgraph_type: "directional" (the edges that were sampled), "bidirectional" (and their reverses) or "induced"
            (all edges among the sampled nodes).
        labor: LABOR-0: nodes share samples, so that batches have fewer nodes; `num_neighbors` is then an average.
        transform, transform_sampler_output, filter_per_worker: as in torch-geometric.
        is_sorted: no effect.
        more: arguments of `torch.utils.data.DataLoader`: batch_size, shuffle, drop_last, num_workers, ...

    Raises:
        ConfigError: an argument of torch-geometric's loader that is not supported, or an invalid value.
        DataError: heterogeneous data, data without edges, or, when sampling, a seed that does not exist.

    Example:
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> loader = hopstate.NeighborLoader(graph, [10, 10], batch_size=32)
        >>> batch = next(iter(loader))
        >>> batch.batch_size, batch.input_id.shape
        (32, torch.Size([32]))
    """

    def __init__(
        self,
        data: Data | Graph,
        num_neighbors: Sequence[int],
        input_nodes: Any = None,
        *,
        subgraph_type: Literal["directional", "bidirectional", "induced"] | Any = "directional",
        labor: bool = False,
        is_sorted: bool = False,
        **more: Any,
    ) -> None:
        for name, why in REFUSED.items():
            value = more.pop(name, None)
            if value is not None and value != USUAL.get(name):
                raise ConfigError(f"NeighborLoader does not take {name}: {why}")
        data = data.to_pyg() if isinstance(data, Graph) else data
        if not isinstance(data, Data) or data.edge_index is None:
            raise DataError(f"NeighborLoader takes one Data with edge_index, or a Graph; got {type(data).__name__}")
        kind = str(subgraph_type.value if isinstance(subgraph_type, SubgraphType) else subgraph_type)
        if kind not in KINDS:
            raise ConfigError(f"subgraph_type is one of {', '.join(KINDS)}; got {kind!r}{nearest(kind, KINDS)}")
        if isinstance(num_neighbors, dict) or any(type(k) is not int or k < -1 for k in num_neighbors):
            raise ConfigError(f"num_neighbors is a list of counts, -1 for all; got {num_neighbors}")
        sampler = _Sampler(data, tuple(num_neighbors), kind, labor)
        super().__init__(data, sampler, input_nodes=input_nodes, **more)


class _Sampler(BaseSampler):
    """Samples hop by hop; the in-neighbors of a node are drawn once, in the hop after the one that reached it."""

    def __init__(self, data: Data, fanouts: tuple[int, ...], kind: str, labor: bool) -> None:
        self.fanouts, self.kind, self.labor = fanouts, kind, labor
        source, target = data.edge_index.detach().cpu().numpy()
        count = int(data.num_nodes)
        if len(source) and not 0 <= min(source.min(), target.min()) <= max(source.max(), target.max()) < count:
            raise DataError(f"edge_index leaves 0..{count - 1}, the nodes of the graph")
        order = np.argsort(target, kind="stable")
        self._permutation = torch.from_numpy(order)
        self._cutter = Neighborhoods(bounds_of(np.bincount(target, minlength=count)), source[order])
        self._place = np.full(count, -1, np.int64)

    @property
    def edge_permutation(self) -> torch.Tensor:
        """(E,) position in edge_index of each place of the CSR that is sampled from."""
        return self._permutation

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        given = index.node.detach().cpu().numpy().astype(np.int64)
        first = np.sort(np.unique(given, return_index=True)[1])
        seeds = given[first]
        rng = named_rng(DRAWS, int(torch.randint(2**62, ())), 8)
        nodes, hops = self._sampled(seeds, rng)
        all_nodes = np.concatenate(nodes)
        if self.kind == "induced":
            local = self._cutter.induced(all_nodes)
            assert local.edges is not None
            row, col, edge = local.indices, _receivers(local), local.edges
        else:
            self._place[all_nodes] = np.arange(len(all_nodes))
            source, target, edge = (np.concatenate([np.empty(0, np.int64), *part]) for part in zip(*hops, strict=True))
            row, col = self._place[source], self._place[target]
            self._place[all_nodes] = -1
        counted = self.kind == "directional"
        out = SamplerOutput(
            node=torch.from_numpy(all_nodes),
            row=torch.from_numpy(row),
            col=torch.from_numpy(col),
            edge=torch.from_numpy(edge),
            num_sampled_nodes=[len(found) for found in nodes] if counted else None,
            num_sampled_edges=[len(found[2]) for found in hops] if counted else None,
            metadata=(index.input_id, index.time),
        )
        out = out.to_bidirectional() if self.kind == "bidirectional" else out
        return out if len(seeds) == len(given) else _with_repeats(out, given, first)

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> SamplerOutput:
        """Raise ConfigError: links are not sampled."""
        raise ConfigError("this sampler draws around nodes, not around links")

    def _sampled(self, seeds: np.ndarray, rng: np.random.Generator) -> tuple[list[np.ndarray], list[HopEdges]]:
        nodes, hops, rim = [seeds], [], seeds
        for fanout in self.fanouts:
            near, hop = self._hop(rim, fanout, rng)
            self._place[np.concatenate(nodes)] = 0
            rim = near[self._place[near] < 0]
            self._place[np.concatenate(nodes)] = -1
            nodes.append(rim)
            hops.append(hop)
        return nodes, hops or [(np.empty(0, np.int64),) * 3]

    def _hop(self, rim: np.ndarray, fanout: int, rng: np.random.Generator) -> tuple[np.ndarray, HopEdges]:
        if fanout == 0:
            return rim, (np.empty(0, np.int64),) * 3
        if fanout < 0:
            local = self._cutter.induced(rim, halo=True)
        else:
            local = self._cutter.sample(rim, fanout, seed=int(rng.integers(2**62)), labor=self.labor)
        assert local.edges is not None
        return local.nodes, (local.nodes[local.indices], rim[_receivers(local)], local.edges)


def _with_repeats(out: SamplerOutput, given: np.ndarray, first: np.ndarray) -> SamplerOutput:
    """Return a sample in which each given seed (B,) has its own row and edges, also if seeds repeat.

    Args:
        out: sample of the distinct seeds, by first occurrence.
        given: (B,) seeds with repeats.
        first: (D,) first position of each distinct seed.
    """
    count, more = len(first), len(given) - len(first)
    place = np.concatenate([first, np.arange(count, len(out.node)) + more])  # row of the sample → row of the batch
    own = np.searchsorted(np.sort(given[first]), given)
    own = np.argsort(given[first])[own]  # (B,) which of the distinct seeds each is
    again = np.setdiff1d(np.arange(len(given)), first)
    row, col, edge = (np.asarray(part) for part in (out.row, out.col, out.edge))
    order = np.argsort(col, kind="stable")
    start, stop = (np.searchsorted(col[order], own[again], side) for side in ("left", "right"))
    copied = [order[a:b] for a, b in zip(start, stop, strict=True)]
    picked = np.concatenate(copied)
    at = len(row) if out.num_sampled_edges is None else out.num_sampled_edges[0]  # edges to seeds are of the first hop
    out.node = torch.from_numpy(np.concatenate([given, np.asarray(out.node)[count:]]))
    out.row = torch.from_numpy(np.insert(place[row], at, place[row[picked]]))
    out.col = torch.from_numpy(np.insert(place[col], at, np.repeat(again, [len(part) for part in copied])))
    out.edge = torch.from_numpy(np.insert(edge, at, edge[picked]))
    if out.num_sampled_nodes is not None and out.num_sampled_edges is not None:
        out.num_sampled_nodes[0] = len(given)
        out.num_sampled_edges[0] += len(picked)
    return out


def _receivers(local: LocalGraph) -> np.ndarray:
    """Return (e,) the receiver of each edge of a local graph."""
    return np.repeat(np.arange(local.num_receivers), np.diff(local.indptr))
