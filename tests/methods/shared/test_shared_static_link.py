"""Links of one graph, for every method with node embeddings: no held-out link reaches a message or a step."""

from pathlib import Path

import numpy as np
import pytest
import torch
from configured import configured

import hopstate
from hopstate.data.graph import Graph
from hopstate.data.splits import link_keys, message_edges
from hopstate.errors import ConfigError, DataError
from hopstate.methods import get_method
from hopstate.methods.method import Context
from hopstate.methods.shared import static_link
from hopstate.methods.shared.baselines import graph_baselines
from hopstate.ops.proximity import proximity_naive
from hopstate.random import seed_everything
from hopstate.testing.conformance import COARSE, F32_SUM, F32_TIGHT
from hopstate.training.run_folder import RunFolder, baselines_of
from hopstate.training.tasks.static_link import StaticLinkTask

SMALL = {"model.dim": 8, "link.dim": 8, "link.num_negatives": 3, "link.num_candidates": 0, "loop.progress": False}
BATCH = {"batching.batch_size": 24, "batching.num_clusters": 4, "batching.clusters_per_batch": 2}
METHODS = {
    "mlp": ("mlp", {}),
    "gcn": ("gcn", {}),
    "sage": ("sage", {}),
    "hidden-gcn": ("gcn", {"link.mask_target_edges": True, "link.batch_size": 16}),
    "gat": ("gat", {"model.heads": 2}),
    "gin": ("gin", {}),
    "pna": ("pna", {}),
    "gcnii": ("gcnii", {}),
    **{f"{kind}-gcn": ("gcn", {"batching.kind": kind, **BATCH}) for kind in ("top", "cluster", "gas", "saint")},
    **{f"{kind}-sage": ("sage", {"batching.kind": kind, "link.batch_size": 16}) for kind in ("neighbor", "labor")},
    "shadow-sage": ("sage", {"batching.kind": "shadow", "batching.shadow_size": 8, "link.batch_size": 16}),
    "nagphormer": ("nagphormer", {"model.num_heads": 2, "tokens.num_hops": 2, "tokens.eigenvectors": 2}),
    "gmn": ("gmn", {"walks.max_length": 1, "walks.repeats": 1, "walks.walks": 2, "model.state_dim": 4}),
    "gmn-batches": ("gmn", {"walks.max_length": 1, "walks.repeats": 1, "walks.walks": 2, "batch_size": 16,
                            "link.batch_size": 16, "encoding.kind": "none"}),
}  # fmt: skip


REDUNDANT = ("mlp", "sage", "gat", "gin", "pna", "gcnii", "cluster-gcn")  # the same code path as another method


def blocks(seed=0, nodes=36, directed=False, **fields):
    """Return a graph of three groups with mostly internal edges."""
    rng = np.random.default_rng(seed)
    group = np.arange(nodes) % 3
    edges = rng.integers(0, nodes, (nodes * 12, 2))
    same = group[edges[:, 0]] == group[edges[:, 1]]
    edges = edges[(rng.random(len(edges)) < np.where(same, 0.6, 0.05)) & (edges[:, 0] != edges[:, 1])]
    x = rng.standard_normal((nodes, 5)).astype(np.float32)
    return Graph.from_edges(edges, nodes, undirected=not directed, x=x, name="blocks", **fields)


def build(name, graph, tmp_path, **settings):
    method, own = METHODS[name]
    plain = get_method(method).config(data="memory:blocks")
    config = configured(plain, {"task": "link", **SMALL, **own, **settings})
    context = Context(run=Path(tmp_path), cache=Path(tmp_path))
    seed_everything(0)
    return get_method(method).build(graph, config, context), config, context


def steps(task, count=3):
    """Return losses of some steps, and the scores of pairs after them."""
    optimizer = torch.optim.Adam(task.model.parameters(), 1e-2)
    losses = []
    for epoch in range(count):
        task.model.train()
        for batch in task.batches(epoch):
            loss = task.loss(batch)
            if loss is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    task.model.eval()
    return losses


def scored(task, pairs):
    with torch.no_grad():
        return task.scorer()(*np.asarray(pairs).T)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_and_evaluates(name, tmp_path):
    graph = blocks()
    task, *_ = build(name, graph, tmp_path)
    assert isinstance(task, StaticLinkTask)
    losses = steps(task)
    assert len(losses)
    assert np.isfinite(losses).all()
    with torch.no_grad():
        found = task.evaluate("test")
    assert 0 < found["mrr"] <= 1
    assert 0 <= found["roc_auc"] <= 1
    pairs = np.argwhere(~np.eye(36, dtype=bool))[::7]
    every = scored(task, pairs)
    np.testing.assert_allclose(scored(task, pairs[5:9]), every[5:9], rtol=F32_SUM, atol=F32_TIGHT)
    np.testing.assert_allclose(scored(task, pairs[:1]), every[:1], rtol=F32_SUM, atol=F32_TIGHT)
    np.testing.assert_allclose(scored(task, pairs[:, ::-1]), every, rtol=F32_SUM, atol=F32_TIGHT)
    grads = [p.grad is not None and bool(p.grad.abs().sum() > 0) for p in task.model.encoder.parameters()]
    assert sum(grads) > len(grads) / 2


def rewired(graph, path, seed=1):
    """Return two graphs that share their training links, and split files that differ only in the held-out links."""
    split = static_link.split_edges(graph, (0.7, 0.15, 0.15), seed=seed)
    known = set(link_keys(graph.edge_index().T, graph.num_nodes).tolist())
    rng, made = np.random.default_rng(seed), []
    for held_out in (split.pairs, None):
        if held_out is None:
            free = [p for p in np.argwhere(np.triu(np.ones((36, 36)), 1)).tolist() if p[0] * 36 + p[1] not in known]
            drawn = np.array(free)[rng.permutation(len(free))]
            sizes = [len(split.pairs[name]) for name in ("val", "test")]
            held_out = {"val": drawn[: sizes[0]], "test": drawn[sizes[0] : sum(sizes)]}
        edges = np.concatenate([split.pairs["train"], held_out["val"], held_out["test"]])
        other = Graph.from_edges(edges, graph.num_nodes, x=graph.x, name="blocks")
        file = path / f"split{len(made)}.csv"
        rows = [f"{u},{v},{name}" for name in ("val", "test") for u, v in held_out[name].tolist()]
        file.write_text("\n".join(["source,target,split", *rows]))
        made.append((other, str(file)))
    return made


@pytest.mark.parametrize("name", [name for name in METHODS if name not in REDUNDANT])
def test_held_out_links_change_no_message_and_no_step(name, tmp_path):
    found = []
    for number, (graph, file) in enumerate(rewired(blocks(), tmp_path)):
        folder = tmp_path / str(number)
        folder.mkdir()
        task, *_ = build(name, graph, folder, **{"link.file": file})
        losses = steps(task, 2)
        found.append((losses, scored(task, np.argwhere(np.ones((36, 36))))))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=F32_SUM)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=F32_SUM, atol=F32_TIGHT)


def test_negatives_are_never_training_links(tmp_path):
    for name in ("gcn", "cluster-gcn"):
        for strategy in ("uniform", "degree", "two-hop", "scored"):
            task, *_ = build(name, blocks(), tmp_path, **{"link.negatives": strategy})
            train = set(link_keys(task.split.pairs["train"], 36).tolist())
            for number, batch in enumerate(task.batches(0)):
                nodes = _nodes_of(task, batch, number)
                ends, others, real = (b.numpy() for b in batch[1:4])
                assert set(link_keys(nodes[ends], 36).tolist()) <= train
                u = np.repeat(ends[:, :1], others.shape[1], 1)[real]
                pairs = np.stack([nodes[u], nodes[others[real]]], 1)
                assert not set(link_keys(pairs, 36).tolist()) & train
                assert (pairs[:, 0] != pairs[:, 1]).all()
            loss = task.loss(next(iter(task.batches(0))))
            assert loss is None or torch.isfinite(loss)


def _nodes_of(task, batch, number):
    if task.source.num_sampled_batches(0) is not None:
        return task.source.encoder_batch(task.model.encoder, np.empty(0, int), 0, number)[1]
    return batch[0][0].numpy()  # a full-graph batch lists the nodes whose embeddings it needs


@pytest.mark.parametrize("name", ["gcn", "cluster-gcn", "neighbor-sage", "nagphormer", "gmn-batches"])
def test_batches_depend_only_on_epoch_and_number(name, tmp_path):
    task, *_ = build(name, blocks(), tmp_path)
    every = list(task.batches(1))
    later = list(task.batches(1, start=len(every) - 1))
    assert len(later) == 1
    for a, b in zip(every[-1][1:4], later[0][1:4], strict=True):
        assert torch.equal(a, b)


def test_baselines_count_only_training_links(tmp_path):
    graph = blocks()
    task, config, context = build("gcn", graph, tmp_path)
    baselines = graph_baselines(graph, config, context, task)
    edges = task.split.pairs["train"].tolist()
    question = task.question("test")
    linked = {tuple(p) for pairs in task.split.pairs.values() for p in pairs.tolist()}
    linked |= {(v, u) for u, v in linked}
    assert set(baselines_of(baselines, "val")) == {*baselines_of(baselines, "test"), "chance"}
    for kind, metrics in baselines_of(baselines, "test").items():
        total = 0.0
        for given, expected in question.ends().tolist():
            own = proximity_naive(edges, 36, kind, given, expected)
            rank = 1.0
            for other in range(36):
                if other != given and (given, other) not in linked:
                    value = proximity_naive(edges, 36, kind, given, other)
                    rank += 1 if value > own + 1e-9 else 0.5 if abs(value - own) <= 1e-9 else 0
            total += 1 / rank
        assert metrics["mrr"] == pytest.approx(total / len(question.ends()), rel=COARSE), kind


def test_disjoint_links_are_not_messages_and_validation_links_may_be(tmp_path):
    graph = blocks()
    task, *_ = build("gcn", graph, tmp_path, **{"link.disjoint_train_ratio": 0.4, "link.messages_from_val": True})
    assert len(task.learned) == round(0.4 * len(task.split.pairs["train"]))
    adjacencies = [source.inputs[1] for source in (task.source, task.vectors("val")[0], task.vectors("test")[0])]
    sizes = [len(adjacency.indices) // 2 for adjacency in adjacencies]
    train, val = len(task.split.pairs["train"]), len(task.split.pairs["val"])
    assert sizes == [train - len(task.learned), train, train + val]
    with torch.no_grad():
        assert all(0 < task.evaluate(name)["mrr"] <= 1 for name in ("train", "val", "test"))


def test_masked_links_of_a_step_are_not_messages_in_it(tmp_path):
    task, *_ = build("hidden-gcn", blocks(), tmp_path)
    train = set(link_keys(task.split.pairs["train"], 36).tolist())
    targets = []
    for batch in task.batches(0):
        links = batch[0].inputs[0].numpy()[batch[1].numpy()]
        own = link_keys(links, 36).tolist()
        messages = batch[0].source.inputs[1].edge_index().numpy()
        passed = set(link_keys(messages.T, 36).tolist())
        assert passed == train - set(own)
        targets += own
        task.loss(batch).backward()
        assert all(p.grad is not None for p in task.model.parameters())
    assert sorted(targets) == sorted(train)
    evaluation_edges = task.vectors("test")[0].inputs[1].edge_index().numpy()
    assert set(link_keys(evaluation_edges.T, 36).tolist()) == train
    with pytest.raises(ConfigError, match=r"link\.mask_target_edges"):
        build("gcn", blocks(), tmp_path, **{"link.mask_target_edges": True, "link.disjoint_train_ratio": 0.5})
    with pytest.raises(ConfigError, match=r"link\.mask_target_edges"):
        build("neighbor-sage", blocks(), tmp_path, **{"link.mask_target_edges": True})


OPTIONS = [{"link.decoder": kind} for kind in ("dot", "mlp", "bilinear")]
OPTIONS += [{"link.loss": "bce"}, {"link.structural_features": False}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("directed", [False, True])
def test_decoders_losses_and_directions(options, directed, tmp_path):
    task, *_ = build("gcn", blocks(directed=directed), tmp_path, **options)
    assert np.isfinite(steps(task)).all()
    with torch.no_grad():
        assert task.evaluate("test")["mrr"] > 0
    pairs = np.argwhere(~np.eye(36, dtype=bool))[::5]
    there, back = scored(task, pairs), scored(task, pairs[:, ::-1])
    assert np.allclose(there, back, rtol=F32_SUM, atol=F32_TIGHT) is task.model.decoder.symmetric


def test_double_precision_scores_are_float64(tmp_path):
    task, *_ = build("gcn", blocks(), tmp_path, **{"loop.precision": "64"})
    task.model.double()
    assert scored(task, [[0, 1], [2, 3]]).dtype == np.float64
    assert all(p.dtype == torch.float64 for p in task.model.parameters())


def test_equal_metrics_are_resolved_by_validation_loss(tmp_path, monkeypatch):
    monkeypatch.setattr("hopstate.evaluation.static_link.mrr", lambda rank: 0.5)
    loop = {"epochs": 3, "eval_every": 1, "progress": False, "logger": "none", "device": "cpu"}
    config = {"task": "link", **SMALL, "loop": loop | {"optim": {"lr": 1e-3}}}
    run = hopstate.fit("mlp", blocks(), out=tmp_path / "run", config=config)
    losses = [row["val_loss"] for row in RunFolder(run.path).history()]
    assert run.best_epoch == 1 + int(np.argmin(losses)) > 1


def test_settings_of_nodes_and_odd_graphs_are_named(tmp_path):
    graph = blocks()
    for settings, named in (
        ({"metric": "accuracy"}, "metric"),
        ({"class_weights": "balanced"}, "class_weights"),
        ({"split.fractions": (0.5, 0.25, 0.25)}, "link.fractions"),
        ({"link.fractions": (0.5, 0.2, 0.2)}, "link.fractions"),
        ({"link.time": "year", "link.split": "random"}, "time"),
        ({"link.split": "file"}, "link.file"),
        ({"batching.train_only": True, "batching.kind": "cluster"}, "train_only"),
    ):
        with pytest.raises(ConfigError, match=named):
            build("gcn", graph, tmp_path, **settings)
    with pytest.raises(DataError, match=r"link\.time"):
        build("gcn", graph, tmp_path, **{"link.split": "time"})
    for edges in ([], [(0, 1)], [(0, 1), (1, 2)], [(3, 3)]):
        odd = Graph.from_edges(np.array(edges, int).reshape(-1, 2), 4, x=np.ones((4, 2)))
        with pytest.raises(DataError):
            build("gcn", odd, tmp_path)
    three = Graph.from_edges(np.array([(0, 1), (1, 2), (2, 3)]), 6, x=np.ones((6, 2)))  # two nodes are isolated
    task, *_ = build("gcn", three, tmp_path)
    assert np.isfinite(steps(task)).all()
    with torch.no_grad():
        assert 0 < task.evaluate("test")["mrr"] <= 1
    complete = Graph.from_edges(np.argwhere(np.triu(np.ones((5, 5)), 1)), 5, x=np.eye(5))
    task, *_ = build("gcn", complete, tmp_path)
    assert np.isfinite(steps(task)).all()
    with torch.no_grad():
        assert task.evaluate("test")["mrr"] == 1  # no candidate remains above it


def test_messages_are_the_training_links_of_the_split(tmp_path):
    graph = blocks()
    task, *_ = build("gcn", graph, tmp_path)
    assert np.array_equal(task.messages.indices, message_edges(graph, task.split.pairs["train"]).indices)
    with np.load(tmp_path / "split.npz") as file:
        assert all(np.array_equal(file[name], task.split.pairs[name]) for name in ("train", "val", "test"))
