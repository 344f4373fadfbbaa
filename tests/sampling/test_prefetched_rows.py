"""Rows of files that are read for several batches together are bit-identical for any grouping."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hopstate.compensation.top.top import Top, TopConfig
from hopstate.data.graph import Graph
from hopstate.io.scratch import Scratch
from hopstate.methods.message_passing.batching import embedder
from hopstate.methods.message_passing.model import Backbone
from hopstate.sampling import subgraph
from hopstate.sampling.samplers import ClusterSampler, NodeSampler, UniformSampler
from hopstate.sampling.subgraph import NodeSetSource

N, WIDTH, DIM = 90, 5, 8


def made_graph(folder: Path | None) -> Graph:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, WIDTH)).astype(np.float32)
    if folder is not None:
        np.save(folder / "x.npy", x)
        x = np.load(folder / "x.npy", mmap_mode="r")
    return Graph.from_edges(rng.integers(0, N, (4 * N, 2)), N, x=x, y=np.arange(N) % 3)


def sampler_of(kind: str) -> NodeSampler:
    if kind == "random":
        return UniformSampler(np.arange(N), 20, seed=0)
    return ClusterSampler(np.arange(N) * 7 % 9, 2, seed=0)


def prepared(graph: Graph, store: Scratch, form: str = "auto") -> tuple[Top, Backbone]:
    config = Backbone.Config(dim=DIM, num_layers=2)
    model = Backbone(config, kind="gcn", in_dim=WIDTH, num_classes=3)
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_(torch.sin(torch.arange(p.numel()) + number).view_as(p))
    top = Top(graph, TopConfig(form=form, refresh=3), "symmetric", seed=0, store=store)  # type: ignore[arg-type]
    top.prepare(model, embedder(graph, top, 30, store))
    return top, model


def tensors(source: NodeSetSource, epoch: int, number: int) -> list[torch.Tensor]:
    batch = source.batch(epoch, number)
    return [batch.x, torch.from_numpy(batch.nodes), *(t for m in batch.graph.missing for t in (m.left, m.right))]


@pytest.mark.parametrize("form", ["auto", "general"])
@pytest.mark.parametrize("kind", ["random", "clusters"])
@pytest.mark.parametrize("sets", [0, 2, 100])
def test_batches_from_files_equal_those_from_memory(
    sets: int, kind: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = made_graph(None)
    expected = NodeSetSource(graph, sampler_of(kind), np.arange(N), prepared(graph, Scratch(), form)[0])
    monkeypatch.setattr(subgraph, "LARGE", 0)
    far = made_graph(tmp_path)
    top, model = prepared(far, Scratch(tmp_path), form)
    room = sets * 20 * (top.row_bytes() + 4 * WIDTH)
    source = NodeSetSource(far, sampler_of(kind), np.arange(N), top, prefetch_bytes=room)
    places = [(e, n) for e in range(2) for n in range(source.num_batches(e))]
    for epoch, number in [*places, (0, 3), (1, 1), (0, 0)]:  # in order, then back
        for one, other in zip(tensors(expected, epoch, number), tensors(source, epoch, number), strict=True):
            assert torch.equal(one, other)
    before = tensors(source, 1, 1)
    with torch.no_grad():
        next(model.parameters()).mul_(-3)
    for made in (expected, source):  # prefetched rows belong to old weights
        made.compensation.refresh(model, embedder(made.graph, made.compensation, 30, Scratch()))  # type: ignore[union-attr]
    assert not top._near._copies[1]
    assert all(map(torch.equal, tensors(expected, 1, 1), tensors(source, 1, 1)))
    assert not torch.equal(before[2], tensors(source, 1, 1)[2])


def test_features_are_read_once_for_as_many_batches_as_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subgraph, "LARGE", 0)
    sizes: list[int] = []
    read = subgraph.features
    monkeypatch.setattr(subgraph, "features", lambda graph, nodes: sizes.append(len(nodes)) or read(graph, nodes))
    graph = made_graph(tmp_path)
    for room, expected in ((0, [20, 20, 20, 20, 10]), (50, [40, 40, 10]), (90, [80, 10]), (10**6, [90])):
        sizes.clear()
        source = NodeSetSource(graph, sampler_of("random"), np.arange(N), prefetch_bytes=room * 4 * WIDTH)
        for number in range(5):
            source.batch(0, number)
        assert sizes == expected
        sizes.clear()
        NodeSetSource(made_graph(None), sampler_of("random"), np.arange(N), prefetch_bytes=10**9).batch(0, 0)
        assert sizes == [20]  # no gain in memory


def test_probes_are_skipped_if_many_nodes_determine_the_messages() -> None:
    top, model = prepared(made_graph(None), Scratch())
    top.refresh(model, embedder(top.graph, top, 30))
    many, few = np.arange(4 * DIM), np.arange(DIM)
    before = [[t.clone() for m in top.batch(nodes).missing for t in (m.left, m.right)] for nodes in (many, few)]
    for basis in top.bases:
        assert basis.probe.numel()
        basis.probe.copy_(basis.probe.flip(0).mul(1e3))
        basis.probe_sums.zero_()
    after = [[t for m in top.batch(nodes).missing for t in (m.left, m.right)] for nodes in (many, few)]
    assert all(map(torch.equal, before[0], after[0]))
    assert not all(map(torch.equal, before[1], after[1]))


def test_a_batch_does_not_depend_on_earlier_batches() -> None:
    sampler = sampler_of("random")
    drawn = [sampler.node_set(*at).nodes for at in ((0, 1), (1, 1), (0, 1), (0, 2))]
    assert np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], drawn[1])
    assert not set(drawn[0]) & set(drawn[3])
