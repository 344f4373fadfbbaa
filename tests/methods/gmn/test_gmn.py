"""GMN for users: full graphs, batches, resampling, automatic sizes, encodings, bad input, graph sets."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet, folds
from hopstate.data.splits import masks_from_rows
from hopstate.data.validate import SPLITS
from hopstate.errors import ConfigError, DataError
from hopstate.layers.mpnn import WalkEncoder
from hopstate.methods import get_method
from hopstate.methods.gmn.batches import induced_subgraph, plan_batches, plan_graph_batches, step_bytes
from hopstate.methods.gmn.graph_method import GINRun, GMNGraphsRun, build_gin, names_in_set, prepared_set
from hopstate.methods.gmn.graph_method import build as build_graphs
from hopstate.methods.gmn.model import GMN
from hopstate.methods.gmn.node_method import EncodingConfig, GMNRun, OrderConfig, WalksConfig, build, walk_settings
from hopstate.methods.gmn.orders import order_key
from hopstate.methods.gmn.tokens import WalkSettings
from hopstate.methods.method import Context, SplitConfig
from hopstate.testing.conformance import F32, F32_SUM, F64_SOLVED
from hopstate.tokens.encodings import laplacian_encoding
from hopstate.training.config import LoopConfig

CONFIGS = {"gmn": GMNRun, "gmn-graphs": GMNGraphsRun}
SMALL = GMN.Config(dim=16, expand=1.0, state_dim=4, mpnn_layers=2, dropout=0.0)
FEW = WalksConfig(max_length=2, repeats=2, walks=2)


def graph(n: int = 60, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    pairs = rng.integers(0, n, (4 * n, 2))
    pairs = pairs[(y[pairs[:, 0]] == y[pairs[:, 1]]) & (pairs[:, 0] != pairs[:, 1])]
    x = rng.normal(size=(n, 4)).astype(np.float32) + 0.5 * y[:, None].astype(np.float32)
    part = rng.permutation(n) % 3
    masks = {name: part == i for i, name in enumerate(("train", "val", "test"))}
    return Graph.from_edges(pairs, n, x=x, y=y.astype(np.int64), masks=masks)


def task(tmp_path: Path, **changes):
    config = GMNRun(**{"data": "toy", "model": SMALL, "walks": FEW, "loop": LoopConfig(seed=1), **changes})
    torch.manual_seed(0)
    return build(graph(), config, Context(run=tmp_path, cache=tmp_path / "cache"))


def train(made, epochs: int = 10) -> list[float]:
    optimizer, losses = torch.optim.Adam(made.model.parameters(), 1e-2), []
    for epoch in range(epochs):
        made.model.train()
        for batch in made.batches(epoch):
            loss = made.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize("batch_size", [None, 8])
def test_nodes_are_trained_in_one_step_or_in_batches(tmp_path, batch_size):
    made = task(tmp_path, batch_size=batch_size)
    assert made.num_batches(0) == (1 if batch_size is None else 3)
    train(made)
    made.model.eval()
    with torch.no_grad():
        assert made.evaluate("train")["accuracy"] > 0.9
        rows = made.predict("all")
    assert len(rows["node"]) == 60


def test_epochs_depend_only_on_the_seed(tmp_path):
    walks = WalksConfig(max_length=2, repeats=2, walks=2, resample_every=1)
    first, second = task(tmp_path, walks=walks), task(tmp_path, walks=walks)
    a = [next(first.batches(epoch))[0] for epoch in range(3)][2]
    b = next(second.batches(2))[0]  # as a resumed run reads it
    for name in ("x", "order", "token_order", "token_nodes"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
    assert not torch.equal(next(first.batches(0))[0].token_nodes, a.token_nodes)


def test_evaluation_does_not_depend_on_earlier_batches(tmp_path):
    walks = WalksConfig(max_length=2, repeats=2, walks=2, resample_every=1)
    for batch_size in (None, 8):
        made, rows = task(tmp_path, walks=walks, batch_size=batch_size), np.array([5, 3, 40])
        made.model.eval()
        with torch.no_grad():
            before = made.logits(rows)
            list(made.batches(2))
            assert torch.equal(made.logits(rows), before)


def test_a_batch_reads_the_induced_subgraph():
    g = graph()
    near = np.array([2, 3, 11, 12, 40])
    indptr, indices, ids = induced_subgraph(g.indptr, g.indices, near)
    expected = g.to_scipy().toarray()[near][:, near]
    got = np.zeros((5, 5))
    got[np.repeat(np.arange(5), np.diff(indptr)), indices] = 1
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(near[indices], g.indices[ids])


@pytest.mark.parametrize("kind", ["none", "laplacian", "rwse", "nondiagonal", "anonymous"])
def test_encodings_join_the_features_and_edges(tmp_path, kind):
    for relative in (False, True):
        made = task(tmp_path, encoding=EncodingConfig(kind=kind, size=3, relative=relative))
        width = {"none": 0, "laplacian": 3, "rwse": 3, "nondiagonal": 6, "anonymous": 9}[kind]
        assert made.model.in_dim == 4 + width
        edges = made.source.prepared.edge_attr
        assert (edges is None) == (not relative or kind == "none")
        assert np.isfinite(train(made, 2)).all()


def test_eigenvectors_change_sign_in_training_only(tmp_path):
    made = task(tmp_path, encoding=EncodingConfig(size=3))
    own = made.source.prepared.x
    seen = {tuple(np.sign((next(made.batches(e))[0].x.numpy() / own)[0, -3:])) for e in range(12)}
    assert len(seen) > 2
    assert torch.equal(made.source._inputs(0, None).x, torch.from_numpy(own))


@pytest.mark.parametrize("variant", ["gmn-", "gps-mamba"])
def test_variants_need_one_setting(tmp_path, variant):
    changed = GMN.Config(dim=16, expand=1.0, state_dim=4, mpnn_layers=2, variant=variant)
    made = task(tmp_path, model=changed, walks=WalksConfig())
    assert (made.model.tokens == 1) == (variant == "gps-mamba")
    assert made.model.mpnn is None
    assert made.model.in_dim == (4 if variant == "gmn-" else 12)
    assert np.isfinite(train(made, 2)).all()


@pytest.mark.parametrize("batch_size", [None, 8])
def test_tokens_of_doubling_lengths_train_with_fewer_nodes(tmp_path, batch_size):
    few = WalksConfig(max_length=7, repeats=1, walks=2, lengths="doubling")
    made = task(tmp_path, walks=few, batch_size=batch_size)
    assert made.model.tokens == 5  # 7, 4, 2 and 1 steps, and the node itself
    train(made, 2)
    made.model.eval()
    with torch.no_grad():
        assert made.logits(np.arange(60)).isfinite().all()
    settings = [WalkSettings(max_length=40, repeats=1, walks=2, lengths=w) for w in ("every", "doubling")]
    every, doubling = (plan_batches(1000, 8000, 4, SMALL, w, 1 << 40, batch_size=64).bytes for w in settings)
    assert doubling < every / 5


def test_gmn_minus_has_no_message_passing_unless_requested(tmp_path):
    changed = GMN.Config(dim=16, expand=1.0, state_dim=4, variant="gmn-")
    made = task(tmp_path, model=changed, encoding=EncodingConfig(kind="rwse", relative=True))
    assert isinstance(made.model.local.encoder, WalkEncoder)
    assert made.source.prepared.edge_attr is None
    assert not any("gate" in type(module).__name__.lower() for module in made.model.modules())
    with_messages = task(tmp_path, model=replace(changed, local="gin"))
    assert with_messages.source.kind == "subgraph"
    assert task(tmp_path).source.kind == "subgraph"


def test_automatic_settings_do_not_change_variants():
    for method, data in (("gmn", graph()), ("gmn-graphs", graph_set())):
        minus, gps, plain = (
            get_method(method).auto_config(data, CONFIGS[method](data="toy", model=GMN.Config(variant=variant)), ())
            for variant in ("gmn-", "gps-mamba", "gmn")
        )
        assert "model.local" not in minus
        assert "model.mpnn_layers" not in gps
        assert plain


def test_the_papers_search_space_can_be_trained(tmp_path):
    """Table 6: M from 1 to 32, s from 0 to 16, 3 to 6 layers; and m from 0."""
    for config in (GMN.Config(), GMN.Config(variant="gmn-"), GMN.Config(token_layers=6, node_layers=6, mpnn_layers=6)):
        for walks, repeats in product((1, 2, 4, 8, 16, 32), (0, 1, 2, 4, 8, 16)):
            given = WalkSettings(max_length=3, repeats=repeats, walks=walks)
            for nodes, edges in ((12_000, 520_000), (169_343, 2_332_486)):
                assert plan_batches(nodes, edges, 136, config, given, 4 << 30).bytes <= 4 << 30
    for walks, repeats, length in ((32, 16, 2), (1, 0, 3), (1, 1, 0)):
        made = task(tmp_path, walks=WalksConfig(max_length=length, repeats=repeats, walks=walks), batch_size=20)
        assert made.model.tokens == 1 + repeats * length
        assert np.isfinite(train(made, 1)).all()


def test_gps_with_a_scan_fits_a_budget_by_batches(tmp_path):
    none, gps = WalkSettings(max_length=0, repeats=1, walks=1), GMN.Config(variant="gps-mamba")
    assert plan_batches(10_000, 80_000, 16, gps, none, 4 << 30).batch_size is None
    large = plan_batches(2_449_029, 123_718_280, 100, gps, none, 4 << 30)
    assert large.batch_size is not None
    assert large.bytes <= 4 << 30
    for batch_size, epochs in ((None, 8), (8, 4)):
        made = task(tmp_path, model=replace(SMALL, variant="gps-mamba"), walks=WalksConfig(), batch_size=batch_size)
        losses = train(made, epochs)
        assert np.mean(losses[-3:]) < 0.9 * losses[0]


def test_graphs_without_edges_and_walks_longer_than_any_path_work(tmp_path):
    isolated = Graph.from_edges(np.empty((0, 2), np.int64), 12, x=np.eye(12, dtype=np.float32), y=np.arange(12) % 2)
    config = GMNRun(data="toy", model=SMALL, walks=WalksConfig(max_length=20, repeats=1, walks=2))
    config = GMNRun(**{**vars(config), "encoding": EncodingConfig(kind="rwse", size=2)})
    made = build(isolated, config, Context(run=tmp_path, cache=tmp_path))
    assert np.isfinite(train(made, 1)).all()


@pytest.mark.parametrize("local", ["gatedgcn", "rwf"])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_edge_encodings_work_without_edges(tmp_path, local, batch_size):
    isolated = Graph.from_edges(np.empty((0, 2), np.int64), 12, x=np.eye(12, dtype=np.float32), y=np.arange(12) % 2)
    config = GMNRun(
        data="toy", model=replace(SMALL, local=local), walks=FEW, batch_size=batch_size,
        encoding=EncodingConfig(kind="rwse", size=2, relative=True),
    )  # fmt: skip
    made = build(isolated, config, Context(run=tmp_path, cache=tmp_path))
    assert np.isfinite(train(made, 1)).all()


def test_bad_gmn_input_is_named(tmp_path):
    with pytest.raises(DataError, match="column"):
        task(tmp_path, order=OrderConfig(kind="column", column=9))
    with pytest.raises(ConfigError, match="max_memory"):
        task(tmp_path, walks=WalksConfig(max_length=500, repeats=500, walks=500))


def test_orders_come_from_a_given_column_or_table(tmp_path):
    g, keys = graph(), np.random.default_rng(3).permutation(60) / 7
    made = task(tmp_path, order=OrderConfig(kind="column", column=2))
    np.testing.assert_array_equal(made.source.prepared.key, g.x[:, 2])
    file, shuffled = tmp_path / "keys.csv", np.random.default_rng(4).permutation(60)
    file.write_text("node,other,rank\n" + "".join(f"{v},{-v},{keys[v]}\n" for v in shuffled))
    ordered = task(tmp_path, order=OrderConfig(kind="column", file=str(file), column="rank"))
    np.testing.assert_allclose(ordered.source.prepared.key, keys)
    for text, named in (
        ("node,rank\n0,1\n", "59"),
        ("node,rank\n0,a\n1,b\n", "keys.csv"),
        ("node,rank\n60,1\n", "keys.csv"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=named):
            task(tmp_path, order=OrderConfig(kind="column", file=str(file)))
    with pytest.raises(ConfigError, match="column"):
        OrderConfig(column=2)


SOME = WalkSettings(max_length=3, repeats=2, walks=4)


@pytest.mark.parametrize("budget", [20 << 20, 1 << 28])
def test_a_batch_that_does_not_fit_is_rejected_and_a_smaller_one_chosen(budget):
    large = WalkSettings(max_length=9, repeats=9, walks=8)
    with pytest.raises(ConfigError, match="max_memory"):
        plan_batches(5000, 40_000, 16, SMALL, large, budget, batch_size=5000)
    found = plan_batches(5000, 40_000, 16, SMALL, SOME, budget)
    assert 0 < found.bytes <= budget
    assert found.walks == SOME
    with pytest.raises(ConfigError, match="max_memory"):  # not even the smallest fits
        plan_batches(5000, 40_000, 16, SMALL, SOME, 1 << 10)


def test_batches_fit_the_budget():
    for nodes, edges, budget in ((1000, 8000, 1 << 30), (1_000_000, 10_000_000, 1 << 31), (10**7, 10**8, 1 << 28)):
        found = plan_batches(nodes, edges, 16, GMN.Config(), SOME, budget)
        assert found.bytes <= budget
        assert (found.batch_size is None) == (nodes == 1000)
    more = step_bytes(1000, 8000, replace(SOME, max_length=4), GMN.Config(), 16)
    assert more > step_bytes(1000, 8000, SOME, GMN.Config(), 16)


def test_walks_are_given_or_those_of_training_or_follow_the_degree(tmp_path):
    context = Context(run=tmp_path, cache=tmp_path)
    free = walk_settings(WalksConfig(), SMALL, context, 10.0)
    assert (free.max_length, free.repeats, free.walks) == (3, 2, 5)
    given = walk_settings(WalksConfig(max_length=7, walks=3), SMALL, context, 10.0)
    assert (given.max_length, given.repeats, given.walks) == (7, 2, 3)
    trained = replace(context, trained={"walks": {"max_length": 1, "repeats": 4, "walks": 6}})
    kept = walk_settings(WalksConfig(), SMALL, trained, 10.0)
    assert (kept.max_length, kept.repeats, kept.walks) == (1, 4, 6)
    assert walk_settings(WalksConfig(), replace(SMALL, variant="gps-mamba"), context, 10.0).tokens == 1


def graph_set(level: str = "graph") -> GraphSet:
    rng, parts, y = np.random.default_rng(0), [], []
    sizes = rng.integers(3, 7, 40)
    for size, first in zip(sizes, np.cumsum(sizes) - sizes):
        ring = np.stack([np.arange(size), (np.arange(size) + 1) % size], 1)
        y.append(len(y) % 2)
        parts.append(first + (ring if y[-1] else ring[:-1]))  # rings against paths
    edges = np.concatenate(parts)
    n = int(sizes.sum())
    labels = np.repeat(y, sizes) if level == "node" else None
    union = Graph.from_edges(edges, n, x=np.ones((n, 1), np.float32), y=labels)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    own = {"graph": {"y": np.array(y)}, "node": {}, "values": {"y": np.array(y, np.float32)[:, None] + 0.5}}
    if level == "edge":
        own["edge"] = {"edge_y": np.repeat(np.repeat(y, sizes), union.degree)}
    masks = folds([np.arange(30)], [np.arange(30, 40)], 40)
    return GraphSet(union=union, offsets=offsets, masks=masks, **own[level])


@pytest.mark.parametrize("level", ["graph", "node", "edge", "values"])
def test_graph_sets_are_trained_at_every_level(tmp_path, level):
    own = "graph" if level == "values" else level
    run = GMNGraphsRun(data="toy", level=own, model=SMALL, walks=FEW, batch_size=10)
    torch.manual_seed(0)
    made = build_graphs(graph_set(level), run, Context(run=tmp_path, cache=tmp_path))
    losses = train(made, 5)
    assert np.mean(losses[-3:]) < 0.9 * losses[0]
    made.model.eval()
    with torch.no_grad():
        scores, table = made.evaluate("test"), made.predict("test")
    assert set(scores) >= ({"mae", "rmse"} if level == "values" else {"accuracy"})
    assert len({len(column) for column in table.values()}) == 1


def test_a_batch_of_graphs_equals_single_graphs(tmp_path):
    run = GMNGraphsRun(data="toy", model=SMALL, walks=FEW, encoding=EncodingConfig(kind="rwse", size=3, relative=True))
    made = build_graphs(graph_set(), run, Context(run=tmp_path, cache=tmp_path))
    made.model.eval()
    with torch.no_grad():
        both = made.model(made.collate(np.array([7, 2]), 0, None))
        single = torch.cat([made.model(made.collate(np.array([k]), 0, None)) for k in (7, 2)])
    torch.testing.assert_close(both, single, rtol=F32_SUM, atol=F32)


@pytest.mark.parametrize("local", ["gin", "rwf"])
@pytest.mark.parametrize("encoding", ["rwse", "anonymous"])
def test_the_output_of_a_graph_does_not_depend_on_its_set(tmp_path, encoding, local):
    graphs = graph_set()
    lo, hi = graphs.offsets[5], graphs.offsets[9]  # of the set without the earlier graphs
    u, first, last = graphs.union, graphs.union.indptr[lo], graphs.union.indptr[hi]
    part = Graph(indptr=u.indptr[lo : hi + 1] - first, indices=u.indices[first:last] - lo, x=u.x[lo:hi])
    masks = masks_from_rows([dict(zip(SPLITS, ([0, 1], [2], [3])))], 4)
    few = GraphSet(union=part, offsets=graphs.offsets[5:10] - lo, y=graphs.y[5:9], masks=masks)
    run = GMNGraphsRun(
        data="toy", model=replace(SMALL, local=local), walks=FEW, encoding=EncodingConfig(kind=encoding, size=3)
    )
    answers = []
    for given, ids in ((graphs, np.arange(5, 9)), (few, np.arange(4))):
        torch.manual_seed(0)
        made = build_graphs(given, run, Context(run=tmp_path, cache=tmp_path))
        made.model.eval()
        with torch.no_grad():
            answers.append([made.model(made.collate(ids, number, None)) for number in (0, -1)])
    torch.testing.assert_close(answers[0], answers[1], rtol=F32_SUM, atol=F32)


def test_different_graphs_have_different_seeds_for_their_nodes():
    graphs, again = graph_set(), graph_set()
    names = names_in_set(graphs)
    for g, bounds in enumerate(zip(graphs.offsets, graphs.offsets[1:], strict=False)):
        np.testing.assert_array_equal(names[slice(*bounds)] - names[bounds[0]], np.arange(np.diff(bounds)[0]), str(g))
    first = names[graphs.offsets[:-1]]
    shapes = [(n, *np.sort(e)) for n, e in zip(np.diff(graphs.offsets), _own_edges(graphs), strict=True)]
    assert len(np.unique(first)) == len(set(shapes)) > 1
    np.testing.assert_array_equal(names, names_in_set(again))
    isolated = GraphSet(union=Graph.from_edges(np.zeros((0, 2), int), 3), offsets=np.arange(4))
    assert len(np.unique(names_in_set(isolated))) == 1


def _own_edges(graphs):
    index, first = graphs.union.edge_index(), graphs.offsets[:-1]
    of = graphs.graph_of[index[0]]
    return [((index[0] - a) * 1000 + index[1] - a)[of == g] for g, a in enumerate(first)]


def test_a_batch_of_one_graph_of_one_node_works_and_an_empty_graph_is_named(tmp_path):
    x, masks = np.ones((7, 1), np.float32), masks_from_rows([dict(zip(SPLITS, ([0, 1], [2], [3])))], 4)
    union = Graph.from_edges(np.array([(0, 1), (1, 2), (4, 5)]), 7, x=x)
    few = GraphSet(union=union, offsets=np.array([0, 3, 4, 6, 7]), y=np.arange(4) % 2, masks=masks)
    context = Context(run=tmp_path, cache=tmp_path)
    run = GMNGraphsRun(data="toy", model=SMALL, walks=FEW, batch_size=1)
    for made in (build_graphs(few, run, context), build_gin(few, GINRun(data="toy", batch_size=1), context)):
        assert made.num_batches(0) >= 2
        assert np.isfinite(train(made, 1)).all()
    with pytest.raises(DataError):
        GraphSet(union=union, offsets=np.array([0, 3, 3, 6, 7]), y=np.arange(4) % 2, masks=masks)


def test_a_graph_set_too_small_to_split_is_rejected_before_training(tmp_path):
    few, split = replace(mixed_set(), masks={}), SplitConfig(fractions=(0.9, 0.05, 0.05))
    for build_of, run in ((build_graphs, GMNGraphsRun(data="toy")), (build_gin, GINRun(data="toy"))):
        with pytest.raises(DataError, match="test"):
            build_of(few, replace(run, split=split), Context(run=tmp_path, cache=tmp_path))


def test_gin_trains_in_the_same_loop(tmp_path):
    made = build_gin(graph_set(), GINRun(data="toy", batch_size=10), Context(run=tmp_path, cache=tmp_path))
    losses = train(made, 8)
    assert np.mean(losses[-3:]) < 0.8 * losses[0]


def _single_graph(graphs: GraphSet, number: int) -> Graph:
    lo, hi = graphs.offsets[number : number + 2]
    indptr = graphs.union.indptr[lo : hi + 1]
    own = slice(indptr[0], indptr[-1])
    return Graph(indptr=indptr - indptr[0], indices=graphs.union.indices[own] - lo, x=graphs.union.x[lo:hi])


def mixed_set() -> GraphSet:
    """Graphs of 2 to 40 nodes, one disconnected, one without edges."""
    rng, edges, sizes = np.random.default_rng(3), [], [7, 2, 40, 3, 12, 25]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    for first, size in zip(offsets[:-1], sizes):
        if size != 3:
            edges.append(first + rng.integers(0, size, (2 * size if size < 40 else 25, 2)))
    pairs = np.concatenate(edges)
    union = Graph.from_edges(pairs, int(offsets[-1]), self_loops="drop", x=np.ones((offsets[-1], 1), np.float32))
    masks = {name: np.arange(6) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    return GraphSet(union=union, offsets=offsets, y=np.arange(6) % 2, masks=masks)


def test_graphs_of_a_set_have_their_own_eigenvectors(tmp_path):
    graphs = mixed_set()
    config = GMNGraphsRun(data="toy", model=SMALL, walks=FEW, encoding=EncodingConfig(kind="laplacian", size=4))
    ready, _ = prepared_set(graphs, config, Context(run=tmp_path, cache=tmp_path))
    for number in range(graphs.num_graphs):
        own = _single_graph(graphs, number)
        expected = laplacian_encoding(own, 4) * own.num_nodes**0.5
        lo, hi = graphs.offsets[number : number + 2]
        np.testing.assert_allclose(ready.x[lo:hi, 1:], expected, atol=F32)
    assert (np.abs(ready.x[:, 1:]).sum(0) > 0).all()


@pytest.mark.parametrize("kind", ["pagerank", "ppr", "eigenvector", "kcore", "degree"])
def test_graphs_of_a_set_are_ordered_independently(kind):
    graphs = mixed_set()
    union = graphs.union
    keys = order_key(union.indptr, union.indices, kind, offsets=graphs.offsets)
    for number in range(graphs.num_graphs):
        own = _single_graph(graphs, number)
        lo, hi = graphs.offsets[number : number + 2]
        np.testing.assert_allclose(keys[lo:hi], order_key(own.indptr, own.indices, kind), atol=F64_SOLVED)
    if kind in ("ppr", "eigenvector"):
        lo, hi = graphs.offsets[2:4]
        assert len(np.unique(keys[lo:hi])) > 5
        assert len(np.unique(keys[graphs.offsets[5] :])) > 5


def test_signs_of_eigenvectors_are_drawn_per_graph(tmp_path):
    config = GMNGraphsRun(data="toy", model=SMALL, walks=FEW, encoding=EncodingConfig(kind="laplacian", size=2))
    made = build_graphs(mixed_set(), config, Context(run=tmp_path, cache=tmp_path))
    ids, seen = np.array([2, 5]), set()
    still = made.collate(ids, 0, None).x[:, 1:].numpy()
    for epoch in range(20):
        moved = made.collate(ids, 0, np.random.default_rng(epoch)).x[:, 1:].numpy()
        first, second = (np.sign((moved * still)[rows].sum(0)) for rows in (slice(0, 40), slice(40, None)))
        seen.add((*first, *second))
    assert len(seen) > 8  # one sign for both graphs would give 4


def test_the_largest_batch_of_graphs_fits_the_budget(tmp_path):
    graphs = mixed_set()
    sizes = np.diff(graphs.offsets), np.diff(graphs.union.indptr[graphs.offsets])
    whole = plan_graph_batches(*sizes, 4, SMALL, SOME, 1 << 32)
    assert whole.batch_size == 32
    for budget in (whole.bytes // 2, whole.bytes * 3 // 4):
        found = plan_graph_batches(*sizes, 4, SMALL, SOME, budget)
        worst = np.argsort(-sizes[0])[: found.batch_size]
        assert step_bytes(int(sizes[0][worst].sum()), int(sizes[1][worst].sum()), SOME, SMALL, 4) <= budget
    with pytest.raises(ConfigError, match="batch_size"):
        plan_graph_batches(*sizes, 4, SMALL, SOME, whole.bytes // 20, batch_size=6)
    tight = WalksConfig(max_memory=str(whole.bytes // 2))
    config = GMNGraphsRun(data="toy", model=SMALL, walks=tight, encoding=EncodingConfig(kind="rwse", size=3))
    made = build_graphs(graphs, config, Context(run=tmp_path, cache=tmp_path))
    assert made.batch_size < 32


@pytest.mark.parametrize(("level", "column"), [("graph", True), ("graph", False), ("node", False), ("edge", True)])
def test_graph_sets_have_targets_at_every_level_and_missing_ones_are_ignored(tmp_path, level, column):
    graphs, rng = graph_set(), np.random.default_rng(0)
    count = {"graph": graphs.num_graphs, "node": graphs.num_nodes, "edge": graphs.union.num_edges}[level]
    y = rng.normal(50, 5, (count, 1) if column else count).astype(np.float32)
    y[::5] = np.nan
    own = {"edge_y": y} if level == "edge" else {"y": y}
    own = {"union": graphs.union.with_(y=y)} if level == "node" else own
    run = GMNGraphsRun(data="toy", level=level, model=SMALL, walks=FEW, batch_size=10)
    made = build_graphs(replace(graphs, **{"y": None, **own}), run, Context(run=tmp_path, cache=tmp_path))
    assert np.isfinite(train(made, 2)).all()
    made.model.eval()
    with torch.no_grad():
        scores, table = made.evaluate("test"), made.predict("all")
    assert np.isfinite(list(scores.values())).all()
    assert scores["mae"] < 30
    assert len(table["prediction"]) == count


def test_the_datasets_own_metric_is_used(tmp_path):
    context = Context(run=tmp_path, cache=tmp_path, metrics=("macro_f1",))
    made = build_gin(graph_set(), GINRun(data="toy"), context)
    assert (made.metric, made.mode) == ("macro_f1", "max")
    values = build_gin(graph_set("values"), GINRun(data="toy"), context)
    assert (values.metric, values.mode) == ("mae", "min")
