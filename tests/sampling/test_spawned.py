"""Samplers, loaders and records in spawned workers of a DataLoader."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import hopstate

pytestmark = pytest.mark.slow  # processes that import torch
SPAWNED = {"num_workers": 1, "multiprocessing_context": "spawn"}
ROWS = np.arange(8)


class Draws(list[Callable[[], Any]]):
    """A dataset that calls a function for each item."""

    def __getitem__(self, at: int) -> Any:  # type: ignore[override]
        return super().__getitem__(at)()


def graph() -> hopstate.Graph:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 3)).astype(np.float32)
    return hopstate.Graph.from_edges(rng.integers(0, 20, (60, 2)), 20, undirected=True, x=x, y=np.arange(20) % 2)


def same(one: Any, two: Any) -> bool:
    """Whether two objects have equal arrays."""
    if isinstance(one, np.ndarray | torch.Tensor):
        return np.array_equal(one, two)
    if isinstance(one, Mapping):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return same(vars(one), vars(two)) if hasattr(one, "__dict__") else one == two


def test_samplers_draw_the_same_in_a_worker() -> None:
    from torch_geometric.nn import GCN

    whole, at = graph(), {"epoch": 1, "number": 1}
    stream = hopstate.EventStream(src=ROWS, dst=ROWS[::-1].copy(), t=np.arange(8.0), num_nodes=8)
    store = hopstate.NeighborStore.from_stream(stream)
    tokenizer = hopstate.HistoryTokenizer(store, stream, hopstate.HistoryConfig())
    made = Draws([
        partial(hopstate.ClusterSampler(np.arange(20) % 4, 2, seed=0).node_set, **at),
        partial(hopstate.UniformSampler(ROWS, 3, seed=0).node_set, **at),
        *(partial(hopstate.SaintSampler(whole, kind, 6, seed=0).node_set, **at) for kind in ("node", "edge", "walk")),
        partial(hopstate.LayerSampler(whole, ROWS, 3, (2, 2), seed=0).layers, **at),
        *(partial(hopstate.ShadowSampler(whole, ROWS, 3, seed=0, kind=how).subgraphs, **at) for how in ("ppr", "hops")),
        partial(hopstate.top(GCN(3, 4, 2, 2), whole).batch, ROWS),
        partial(tokenizer.pairs, ROWS[:3], ROWS[3:6], np.full(3, 9.0)),
        partial(hopstate.gmn_inputs, whole, max_length=2),
        partial(stream.take, ROWS[2:5]),
        partial(whole.with_, name="again"),
    ])  # fmt: skip
    here = [made[i] for i in range(len(made))]  # so that a used object is sent
    there = list(DataLoader(made, batch_size=None, collate_fn=_as_it_is, **SPAWNED))
    for i, (one, two) in enumerate(zip(here, there, strict=True)):
        assert same(one, two), f"draw {i}: {type(one).__name__}"


def _as_it_is(item: Any) -> Any:
    return item


def test_neighbor_loader_loads_in_a_worker() -> None:
    whole = graph()
    given = {"num_neighbors": [-1, -1], "batch_size": 4, "input_nodes": torch.from_numpy(ROWS)}
    here, there = (list(hopstate.NeighborLoader(whole, **given, **more)) for more in ({}, SPAWNED))
    assert len(here) == len(there) == 2
    for one, two in zip(here, there, strict=True):
        assert all(torch.equal(one[name], two[name]) for name in ("n_id", "x", "edge_index", "input_id"))
