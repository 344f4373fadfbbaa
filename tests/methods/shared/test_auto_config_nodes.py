"""Automatic settings of graphs: given values win, held-out labels are ignored, baselines share the split."""

import json
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score

from hopstate.data.graph import Graph
from hopstate.methods import get_method
from hopstate.methods.config import parse_given, parse_words, parser_of
from hopstate.methods.gmn.node_method import GMNRun
from hopstate.methods.message_passing.backbones import BACKBONES
from hopstate.methods.message_passing.batching import Batching
from hopstate.methods.message_passing.method import PRESETS, FullBatchRun, choose_preset
from hopstate.methods.message_passing.model import Backbone
from hopstate.methods.method import Context, SplitConfig
from hopstate.methods.nagphormer.method import NAGphormerRun
from hopstate.methods.shared.baselines import baselines_not_beaten, graph_baselines
from hopstate.methods.shared.node import adjusted_homophily, graph_stats
from hopstate.runs.run import fit, resolve_config
from hopstate.training.config import LoopConfig
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.static_link import LinkConfig


def blocks(n: int = 90, homophily: float = 0.9, skew: float = 0.5, seed: int = 0) -> Graph:
    """Two classes; a share `homophily` of the edges stays within one, `skew` of the nodes are of class 0."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) >= skew).astype(np.int64)
    pairs = rng.integers(0, n, (20 * n, 2))
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    pairs = pairs[np.where(same, rng.random(len(pairs)) < homophily, rng.random(len(pairs)) < 1 - homophily)][: 4 * n]
    x = rng.normal(size=(n, 4)).astype(np.float32) + y[:, None].astype(np.float32)
    part = np.arange(n) % 3
    masks = {name: part == i for i, name in enumerate(("train", "val", "test"))}
    return Graph.from_edges(pairs, n, x=x, y=y, masks=masks)


def automatic_settings(method: str, graph: Graph, metrics: tuple[str, ...] = (), **given: Any) -> Mapping[str, Any]:
    """Return the automatic settings of a graph for a configuration with these fields."""
    kind = {"nagphormer": NAGphormerRun, "gmn": GMNRun}.get(method, FullBatchRun)
    return get_method(method).auto_config(graph, kind(data="memory:toy", **given), metrics)  # type: ignore[misc]


def settled(method: str, graph: Graph, **given: Any) -> Any:
    chosen = get_method(method)
    return resolve_config(
        chosen, parse_given(chosen, {"data": "memory:toy", "loop.progress": False, **given}), record=graph
    )[0]


def test_given_settings_win_in_every_notation(tmp_path):
    graph = blocks()
    free = automatic_settings("sage", graph)
    found = settled("sage", graph, model={"dim": 7}, **{"loop.epochs": 3})
    assert (found.model.dim, found.loop.epochs, found.model.num_layers) == (7, 3, free["model.num_layers"])
    yaml = tmp_path / "c.yaml"
    yaml.write_text("model:\n  dim: 9\n")
    method = get_method("sage")
    words = ["--data=memory:toy", f"--config={yaml}", "--loop.epochs=3"]
    config, *_ = resolve_config(method, parse_words(method, parser_of(method), words)[1], record=graph)
    assert (config.model.dim, config.loop.epochs, config.model.num_layers) == (9, 3, free["model.num_layers"])


@pytest.mark.parametrize("method", ["sage", "mlp", "gcnii", "nagphormer", "gmn"])
def test_held_out_labels_change_no_setting(method):
    graph = blocks()
    other = np.where(graph.masks["train"], graph.y, 1 - graph.y)
    assert automatic_settings(method, graph) == automatic_settings(method, graph.with_(y=other))


def test_depth_follows_the_neighbors_and_the_metric_the_classes():
    homophily, mixed = (automatic_settings("gcn", blocks(homophily=share))["model.num_layers"] for share in (0.95, 0.3))
    assert homophily < mixed
    skewed = blocks(skew=0.9)
    assert "metric" not in automatic_settings("gcn", blocks())
    assert automatic_settings("gcn", skewed)["metric"] == "roc_auc"
    assert "metric" not in automatic_settings("gcn", skewed, metric="accuracy")
    assert "metric" not in automatic_settings("gcn", skewed, metrics=("macro_f1",))


@pytest.mark.parametrize(
    ("homophily", "width", "preset"),
    [(0.95, 4, "medium"), (0.95, 64, "shallow"), (0.5, 64, "residual"), (0.5, 4, "deep")],
)
def test_presets_follow_homophily_and_the_number_of_features(homophily, width, preset):
    graph = blocks(n=300, homophily=homophily)
    graph = graph.with_(x=np.random.default_rng(0).normal(size=(300, width)).astype(np.float32))
    assert choose_preset(graph_stats(graph, SplitConfig())) == preset
    for method in ("gcn", "sage", "gat"):
        found = automatic_settings(method, graph)
        assert found | PRESETS[preset] == found


def test_without_neighbors_dropout_is_lower():
    graph = blocks(n=300, homophily=0.95).with_(x=np.ones((300, 64), np.float32))
    assert automatic_settings("mlp", graph)["model.dropout"] < automatic_settings("gcn", graph)["model.dropout"]


def test_a_graph_without_edges_gets_a_shallow_model():
    graph = blocks(n=300, homophily=0.5)
    empty = Graph.from_edges(np.zeros((0, 2), np.int64), 300, x=graph.x, y=graph.y, masks=graph.masks)
    assert choose_preset(graph_stats(empty, SplitConfig())) == "medium"


def test_few_labels_without_edges_between_them_do_not_mean_heterophily():
    n = 400
    graph = Graph.from_edges(
        np.stack([np.arange(n - 1), np.arange(1, n)], 1), n, x=np.ones((n, 3), np.float32), y=np.arange(n) // 200
    )
    masks = {name: np.isin(np.arange(n), rows) for name, rows in (("train", (5, 300)), ("val", (9, 310)))}
    masks["test"] = ~masks["train"] & ~masks["val"]
    few = graph.with_(masks=masks)
    assert graph_stats(few, SplitConfig()).is_homophilous
    apart = np.arange(n) % 2 == 0  # many labels, and no edge between two of them
    many = graph.with_(masks={"train": apart, "val": masks["val"] & ~apart, "test": masks["test"] & ~apart})
    assert not graph_stats(many, SplitConfig()).is_homophilous


@pytest.mark.parametrize("homophily", [0.95, 0.5])
@pytest.mark.parametrize("width", [4, 64])
@pytest.mark.parametrize("method", [name for name, kind in BACKBONES.items() if kind.edges != "relations"])
def test_automatic_settings_are_valid_for_every_block(method, homophily, width):
    graph = blocks(homophily=homophily).with_(x=np.ones((90, width), np.float32))
    for block in ("ffn", "conv"):
        config = settled(method, graph, **{"model.block": block})
        model = Backbone(config.model, kind=method, in_dim=width, num_classes=2, degrees=torch.ones(90))
        assert sum(p.numel() for p in model.parameters()) > 0


def test_neighbor_batches_get_shallow_models():
    graph = blocks(n=300, homophily=0.5)
    assert automatic_settings("gcn", graph)["model.num_layers"] > 5
    assert automatic_settings("gcn", graph, batching=Batching(kind="neighbor"))["model.num_layers"] <= 4


def test_links_use_conv_blocks_of_gcn():
    link, without_features = {"task": "link"}, {"task": "link", "link": LinkConfig(structural_features=False)}
    assert "model.pre_linear" not in automatic_settings("gcn", blocks(), **without_features)
    assert automatic_settings("gcn", blocks(), **link)["model.pre_linear"] is False
    for method, given in (
        ("sage", link), ("sage", without_features), ("gcn", link | {"model": Backbone.Config(jumping_knowledge="cat")}),
        ("gcn", link | {"batching": Batching(kind="neighbor")}),
    ):  # fmt: skip
        assert "model.block" not in automatic_settings(method, blocks(), **given)


def test_backbones_on_the_whole_graph_hide_the_links_of_a_step():
    graph = blocks()
    found = automatic_settings("sage", graph, task="link")
    assert found["link.mask_target_edges"]
    assert found["link.batch_size"] * 6 >= LinkConfig().fractions[0] * graph.num_edges / 2
    for method, given in (
        ("mlp", {}), ("nagphormer", {}), ("gcn", {"batching": Batching(kind="neighbor")}),
        ("gcn", {"link": LinkConfig(disjoint_train_ratio=0.3)}),
        ("gcn", {"link": LinkConfig(structural_features=False)}),
    ):  # fmt: skip
        assert "link.mask_target_edges" not in automatic_settings(method, graph, task="link", **given)


def test_features_that_can_be_memorized_get_dropout():
    few = blocks(n=600)  # many compared with 200 training nodes, yet none may be missed
    many = few.with_(x=np.concatenate([few.x, np.zeros((few.num_nodes, 60), np.float32)], axis=1))
    assert automatic_settings("gmn", few)["model.input_dropout"] == 0
    assert automatic_settings("gmn", many)["model.input_dropout"] == 0.5
    train = few.masks["train"] & (np.arange(600) < 90)
    fewer_labels = many.with_(masks={**few.masks, "train": train})
    assert automatic_settings("gmn", fewer_labels)["model.input_dropout"] > 0.5


def test_many_features_give_nagphormer_fewer_steps_per_epoch():
    few = blocks(n=3000)
    many = few.with_(x=np.ones((3000, 400), np.float32))
    assert automatic_settings("nagphormer", many)["batch_size"] > automatic_settings("nagphormer", few)["batch_size"]


def test_adjusted_homophily_does_not_depend_on_class_balance():
    assert adjusted_homophily(blocks(homophily=1.0), blocks(homophily=1.0).y) == 1
    for skew in (0.5, 0.8):
        graph = blocks(n=2000, homophily=0.5, skew=skew)
        assert abs(adjusted_homophily(graph, graph.y)) < 0.05
    empty = Graph.from_edges(np.zeros((0, 2), np.int64), 3, y=np.array([0, 1, 0]))
    assert np.isnan(adjusted_homophily(empty, empty.y))
    assert graph_stats(blocks(skew=0.9), SplitConfig()).largest > 0.8


def test_larger_graphs_get_narrower_models():
    sizes = (1_000, 12_000, 60_000)
    made = [Graph.from_edges(np.random.default_rng(0).integers(0, n, (4 * n, 2)), n, x=np.ones((n, 1), np.float32),
            y=np.arange(n) % 2) for n in sizes]  # fmt: skip
    dims = [automatic_settings("sage", graph)["model.dim"] for graph in made]
    assert dims == sorted(dims, reverse=True)
    assert dims[0] > dims[-1]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A run on a heterophilous graph, with automatic settings."""
    graph = blocks(skew=0.7)
    config = {"model": {"dim": 8, "num_layers": 1}, "metric": "macro_f1", "loop": {"epochs": 2, "progress": False}}
    return fit("sage", graph, out=tmp_path_factory.mktemp("small") / "run", config=config), graph


def test_a_resumed_run_keeps_its_own_settings(small, tmp_path):
    run, graph = small
    own = shutil.copytree(run.path, tmp_path / "run")
    again = fit("sage", graph, out=own, resume=True)
    stored = json.loads((again.path / "config.json").read_text())
    assert (stored["model"]["dim"], stored["metric"], stored["loop"]["epochs"]) == (8, "macro_f1", 2)


def test_baselines_have_the_same_split_and_metric(small):
    run, graph = small
    split = dict(graph.masks)
    dummy = DummyClassifier().fit(graph.x[split["train"]], graph.y[split["train"]])
    expected = accuracy_score(graph.y[split["test"]], dummy.predict(graph.x[split["test"]]))
    assert run.baselines["majority"]["accuracy"] == pytest.approx(expected)
    assert run.baselines["logistic"]["accuracy"] > 0.7
    assert RunFolder(run.path).baselines() == run.baselines


def test_baselines_are_repeatable_and_draw_nothing_from_the_runs_random_numbers(tmp_path):
    graph, config = blocks(skew=0.7), FullBatchRun(data="x", loop=LoopConfig(progress=False))
    context = Context(run=tmp_path, cache=tmp_path)
    task = get_method("gcn").build(graph, config, context)
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    baselines = graph_baselines(graph, config, context, task)
    torch.testing.assert_close(torch.rand(3), expected)
    assert graph_baselines(graph, config, context, task) == baselines


def test_recency_is_a_baseline_of_links(trained):
    baselines = RunFolder(trained("graphmixer").path).baselines()
    assert set(baselines) == {"recency", "edgebank"}  # the stream is too short for trees
    metrics = trained("recency").metrics["test"]
    assert baselines["recency"]["average_precision"] == pytest.approx(metrics["average_precision"])


def test_a_run_below_a_baseline_is_named():
    baselines = {"majority": {"accuracy": 0.6, "mae": 2.0}, "mlp": {"accuracy": 0.8, "mae": 1.0}}
    assert baselines_not_beaten({"accuracy": 0.7}, baselines, "accuracy", "max") == ["mlp"]
    assert baselines_not_beaten({"accuracy": 0.8}, baselines, "accuracy", "max") == ["mlp"]
    assert baselines_not_beaten({"mae": 1.5}, baselines, "mae", "min") == ["mlp"]
    assert baselines_not_beaten({"accuracy": 0.9}, baselines, "accuracy", "max") == []
    assert baselines_not_beaten({"m": 0.9}, {"a": {"n": 1.0}, "b": {"m": float("nan")}}, "m", "max") == []


def test_averaged_runs_have_the_same_settings():
    method = get_method("gcn")
    graphs = blocks(homophily=0.95), blocks(homophily=0.3)
    words = ["--data=memory:toy", "--loop.progress=false"]
    parse = parse_words(method, parser_of(method), words)[1]
    first, _, automatic = resolve_config(method, parse, record=graphs[0])
    assert resolve_config(method, parse, record=graphs[1], automatic=automatic)[0] == first
    assert settled("gcn", graphs[0]) != settled("gcn", graphs[1])


@pytest.mark.parametrize("task", ["node", "link"])
@pytest.mark.parametrize("method", ["sage", "gcn", "gcnii", "pna", "mlp", "nagphormer", "gmn"])
def test_help_marks_automatic_settings(method, task):
    """Also settings for other graphs: with many features, or with one class."""
    for graph in (blocks(), blocks(homophily=0.1, skew=0.9)):
        assert set(automatic_settings(method, graph, task=task)) <= set(get_method(method).automatic)
    options = {action.dest: action.help for action in parser_of(get_method(method))._actions}
    assert options["loop.epochs"].endswith("[auto]")
    assert not options["loop.device"].endswith("[auto]")
