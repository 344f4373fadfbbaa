"""Node targets as users specify them: regression, classes and class weights."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import hopstate
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.methods.config import as_dict, config_from, parse_words, parser_of
from hopstate.methods.message_passing.method import METHODS, FullBatchRun, build
from hopstate.methods.method import Context, ReadOptions
from hopstate.testing.conformance import COARSE, F32, F64

N = 40
EDGES = pd.DataFrame({"source": np.arange(N), "target": np.roll(np.arange(N), 1)})
FEATURES = pd.DataFrame({"id": np.arange(N), "a": np.linspace(-1, 1, N)})


def built(labels: pd.DataFrame, folder: Path, config: dict | None = None, **read):
    """Return the task of a fit with these labels and read options."""
    graph = hopstate.read_graph(EDGES, features=FEATURES, labels=labels, **read)
    run = FullBatchRun(data="made", read=ReadOptions(**read), **(config or {}))
    return build(graph, run, Context(run=folder, cache=folder), kind="mlp")


@pytest.mark.parametrize("columns", [["bit"], ["bit", "other"]])
def test_regression_values_of_0_and_1_need_the_task(columns, tmp_path):
    bits = (np.arange(N) % 2).astype(float)
    labels = pd.DataFrame({"id": np.arange(N), "bit": bits, "other": 1 - bits})[["id", *columns]]
    labels.loc[3, columns[0]] = np.nan
    read = {"label_column": ",".join(columns)}
    task = built(labels, tmp_path, task="regression", **read)
    assert task.labels.target.goal == "values"
    assert task.labels.target.metrics[0] == "mae"
    rng = np.random.default_rng(0)
    apart = labels.assign(bit=labels["bit"] * 3 + rng.normal(size=N))  # like any other regression target
    assert built(apart, tmp_path, task="regression", **read).labels.target.goal == "values"
    if len(columns) > 1:
        assert built(labels, tmp_path, **read).labels.target.goal == "labels"


@pytest.mark.parametrize("unit", [1.0, 1e-42, 1e42, 1e290])
@pytest.mark.parametrize("start", [0.0, 1.7e9])
def test_regression_does_not_depend_on_unit_or_offset(start, unit, tmp_path):
    small = 64.0 * np.random.default_rng(0).integers(0, 99, N)  # float32 has a spacing of 128 at 1.7e9
    labels = pd.DataFrame({"id": np.arange(N), "label": small, "split": "train"})
    labels.loc[30:34, "split"], labels.loc[35:, "split"], labels.loc[3, "label"] = "val", "test", np.nan
    labels.loc[3, "split"] = ""
    moved = labels.assign(label=(labels["label"] + start) * unit)
    own, other = (built(one, tmp_path, task="regression").labels for one in (labels, moved))
    out = torch.from_numpy(np.random.default_rng(1).normal(size=(N, 1))).float()
    losses = [one.target.loss(out, torch.from_numpy(one.y)) for one in (own, other)]
    torch.testing.assert_close(losses[1], losses[0], rtol=F32, atol=0)
    found = [one.target.predictions(out) for one in (own, other)]
    np.testing.assert_allclose(found[1] / unit - start, found[0], atol=COARSE)
    np.testing.assert_allclose(other.y[:, 0], moved["label"], rtol=F32)
    assert np.isfinite(other.target.score(other.y, out)["mae"])


def test_large_regression_values_survive_saving(tmp_path):
    labels = pd.DataFrame({"id": np.arange(N), "label": 1.7e9 + np.arange(N), "more": np.arange(N) / 7})
    graph = hopstate.read_graph(EDGES, labels=labels, label_column="label,more")
    np.testing.assert_array_equal(graph.y, labels[["label", "more"]])
    graph.save(str(tmp_path / "graph"))
    loaded = Graph.load(str(tmp_path / "graph"))
    np.testing.assert_array_equal(loaded.y, graph.y)
    assert loaded.content_hash == graph.content_hash
    assert hopstate.read_graph(EDGES, labels=labels, label_column="more", task="regression").y.dtype == np.float32


# ---- weights and order of classes --------------------------------------------------------------------------
def classes(words: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"id": np.arange(N), "label": [words[i % len(words)] for i in range(N)]})


def test_given_class_weights_apply_to_the_named_classes(tmp_path):
    task = built(classes(["spam", "ham", "x=y"]), tmp_path, {"class_weights": ("x=y=0.5", "spam=4")})
    assert dict(zip(task.labels.target.names, task.labels.target.class_weights)) == {"ham": 1, "spam": 4, "x=y": 0.5}
    out, y = torch.randn(N, 3, generator=torch.Generator().manual_seed(0)).double(), torch.from_numpy(task.labels.y)
    weights = torch.tensor([1, 4, 0.5], dtype=torch.float64)[y]
    own = -out.log_softmax(1)[torch.arange(N), y]
    torch.testing.assert_close(task.labels.target.loss(out, y), (own * weights).sum() / weights.sum(), rtol=F64, atol=0)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (("spm=2",), "spm"),
        (("spam=-1",), "spam=-1"),
        (("spam=inf",), "spam=inf"),
        (("spam",), "spam"),
        (("spam=0", "ham=0"), "class_weights"),
    ],
)
def test_invalid_class_weights_are_named(weights, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        built(classes(["spam", "ham"]), tmp_path, {"class_weights": weights})


def test_the_command_line_accepts_class_weights():
    words = ["--data=x", "--class_weights=[spam=5, ham=1]"]
    parser = parser_of(METHODS["mlp"])
    config = parse_words(METHODS["mlp"], parser, words)[1]({})
    assert config.class_weights == ("spam=5", "ham=1")
    assert config_from(METHODS["mlp"], json.loads(json.dumps(as_dict(config)))) == config
    assert config_from(METHODS["mlp"], {"data": "x", "class_weights": "balanced"}).class_weights == "balanced"
    with pytest.raises(ConfigError, match="class_weights"):
        config_from(METHODS["mlp"], {"data": "x", "class_weights": "balancd"})
