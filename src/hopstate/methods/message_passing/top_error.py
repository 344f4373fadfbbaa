"""How far a trained network's last layer on node batches is from the same network on the whole graph.

The error of a kind of batch is sqrt(sum_i |H*_Bi - H_Bi|^2) / sqrt(sum_i |H*_Bi|^2) over the batches of an epoch, H the
representations after the last layer (before the head) and H* those of the whole graph. For "gas" the cache holds what
one earlier pass over other batches has left, begun empty and with the trained weights: as many passes as layers would
make it exact, and in training weights move between passes.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), section 5.2, Table 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from hopstate.compensation.gas import GasCache
from hopstate.compensation.top.top import Top
from hopstate.data.graph import Graph
from hopstate.layers.message import Propagator
from hopstate.methods.message_passing.batching import Batching, node_sampler, prepared_top
from hopstate.methods.message_passing.model import Backbone
from hopstate.sampling.adjacency import around_adjacency, inside_adjacency
from hopstate.sampling.samplers import NodeSet, SaintSampler
from hopstate.sampling.subgraph import NodeSetSource, features, whole_graph

KINDS = ("top", "random", "cluster", "cut", "gas")


@torch.no_grad()
def relative_errors(
    graph: Graph,
    model: Backbone,
    batching: Batching,
    *,
    kinds: Sequence[str] = KINDS,
    seed: int = 0,
    most: int = 10,
    earlier: Backbone | None = None,
    passes: int = 1,
) -> dict[str, float]:
    """Return the relative error of each kind of batch; model is put in eval mode.

    Args:
        graph: with features.
        model: trained weights, on the CPU.
        batching: which nodes make a batch, and TOP's settings; its kind is not looked at.
        kinds: "top" (its basis made from the trained weights, as a refresh does), "random" (TOP with a basis of random
            weights), "cluster" (degrees of the subgraph, as in Cluster-GCN), "cut" (the same edges with the whole
            graph's degrees), "gas".
        seed: fixes batches and TOP's initialisations.
        most: batches looked at.
        earlier: model with its weights of some epochs ago, from which "top" then makes its basis and "gas" its
            cache, as in training; None takes the present ones.
        passes: over the batches, from empty tables, that fill the cache of "gas".
    """
    model.eval()
    source_model = model if earlier is None else earlier.eval()
    exact = model.embeddings(*whole_graph(graph))[-1]
    settings = replace(batching, kind="cluster", inference="exact")
    sampler = node_sampler(graph, settings, None, model.config.num_layers, seed=seed)
    sets = [sampler.node_set(1, i) for i in range(min(most, sampler.num_batches(1)))]
    errors = {}
    for kind in kinds:
        missing: Top | GasCache | None = None
        if kind == "top":
            missing = prepared_top(graph, replace(batching.top, refresh=1, folder=None), source_model, seed=seed)
        elif kind == "random":
            missing = prepared_top(graph, replace(batching.top, refresh=0), model, seed=seed)
        elif kind == "gas":
            missing = _filled_cache(graph, source_model, sampler, passes)
        source = NodeSetSource(graph, sampler, sets[0].nodes, missing)
        errors[kind] = _error(graph, model, source, sets, exact, kind)
    return errors


def _error(
    graph: Graph, model: Backbone, source: NodeSetSource, sets: list[NodeSet], exact: Tensor, kind: str
) -> float:
    wrong = right = 0.0
    for chosen in sets:
        found = model.embeddings(features(graph, chosen.nodes), _propagator(graph, source, chosen, kind))[-1]
        expected = exact[torch.from_numpy(chosen.nodes)]
        wrong += float((found - expected).double().square().sum())
        right += float(expected.double().square().sum())
    return (wrong / right) ** 0.5


def _propagator(graph: Graph, source: NodeSetSource, chosen: NodeSet, kind: str) -> Propagator:
    if kind not in ("cluster", "cut"):
        return source.propagator(chosen)
    local = source.cutter.induced(chosen.nodes)
    if kind == "cut":
        return around_adjacency(graph, local)
    if isinstance(source.sampler, SaintSampler):
        return source.propagator(chosen)
    return inside_adjacency(graph, local)


def _filled_cache(graph: Graph, model: Backbone, sampler: object, passes: int) -> GasCache:
    cache = GasCache(graph.num_nodes, [model.config.dim] * model.config.num_layers)
    source = NodeSetSource(graph, sampler, torch.arange(0).numpy(), cache)  # type: ignore[arg-type]
    for _ in range(passes):  # over batches other than those that are looked at
        for number in range(source.num_batches(0)):
            batch = source.batch(0, number)
            model(batch.x, batch.graph)
    return cache
