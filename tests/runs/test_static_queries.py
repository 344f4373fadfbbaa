"""A link run on a graph from fit to queries: bit-identical resume, and equal scores from every function."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.cli.main import main
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.runs.load import load_run
from hopstate.testing.conformance import F32, F32_TIGHT
from hopstate.training.run_folder import RunFolder

near = partial(np.testing.assert_allclose, rtol=F32, atol=F32_TIGHT)
SMALL = {
    "model.dim": 8, "link.dim": 8, "link.num_negatives": 3, "loop.epochs": 3, "loop.progress": False,
    "loop.patience": None, "loop.eval_every": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return tables of edges and features of people, without labels."""
    folder = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(0)
    names = np.array([f"n{i:02d}" for i in range(30)])
    ends = rng.integers(0, 30, (160, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    edges, features = folder / "edges.csv", folder / "features.csv"
    years = np.sort(rng.integers(2000, 2020, len(ends)))
    table = pd.DataFrame({"source": names[ends[:, 0]], "target": names[ends[:, 1]], "year": years})
    table.to_csv(edges, index=False)
    pd.DataFrame({"id": names, "a": rng.random(30), "b": rng.random(30)}).to_csv(features, index=False)
    return str(edges), str(features)


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "links"
    return hopstate.fit("gcn", files[0], out=out, task="link", **{"read.features": files[1], **SMALL})


def test_a_link_run_has_baselines_splits_and_metrics(run, files, capsys):
    assert set(run.baselines) == {"common_neighbors", "adamic_adar", "resource_allocation", "pagerank"}
    assert all(0 < baseline["mrr"] <= 1 for baseline in run.baselines.values())
    again = run.evaluate()
    assert again == pytest.approx(run.metrics["test"])
    table = run.predict()
    assert list(table.columns) == ["source", "target", "split", "score"]
    years = pd.read_csv(files[0])
    years[["source", "target"]] = np.sort(years[["source", "target"]].to_numpy(str), 1)
    first = years.groupby(["source", "target"]).year.min()
    of = {name: [first[tuple(sorted(p))] for p in part[["source", "target"]].to_numpy()]
          for name, part in table.groupby("split")}  # fmt: skip
    assert max(of["train"]) <= min(of["val"]) <= max(of["val"]) <= min(of["test"])  # edges have a year
    assert main(["inspect", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert "hopstate rank" in shown
    assert "hopstate score" in shown


def test_single_and_batched_scores_equal_those_of_evaluate(run):
    with load_run(run.path) as (_, task):
        import torch

        task.model.eval()
        pairs = task.split.pairs["test"]
        with torch.no_grad():
            expected = task.scorer()(*pairs.T)
        names = task.node_ids.names(pairs)
    found = run.score(names.tolist())
    near(found["score"], expected)
    one = run.score([names[2].tolist()])
    near(one["score"], expected[2:3])
    near(one["probability"], found["probability"][2:3])
    near(run.predict(split="test")["score"], expected)
    ranked = run.rank([str(names[0, 0])], top=None)
    assert run.rank(f" {names[0, 0]} ", top=None).equals(ranked)  # spaces are not part of an id, as in files
    own = ranked[ranked.dst == names[0, 1]]
    near(own.score, expected[:1])
    assert ranked.score.is_monotonic_decreasing
    assert len(ranked) == 29


def test_exclude_seen_removes_links_of_every_split(run, files):
    edges = pd.read_csv(files[0])
    known = set(edges[edges.source == "n03"].target) | set(edges[edges.target == "n03"].source)
    ranked = run.rank("n03", top=None, exclude_seen=True)
    assert set(ranked.dst) == {f"n{i:02d}" for i in range(30)} - known - {"n03"}
    few = run.rank("n03", candidates=["n05", "n07"], top=1)
    assert few["rank"].tolist() == [1]


def test_link_queries_on_the_command_line(run, tmp_path, capsys):
    pairs, out = tmp_path / "pairs.csv", tmp_path / "scores.csv"
    pairs.write_text("source,target\nn00,n01\nn02,n03\n")
    assert main(["score", str(run.path), "--pairs", str(pairs), "--out", str(out)]) == 0
    assert len(pd.read_csv(out)) == 2
    assert main(["rank", str(run.path), "--source", "n00", "--top", "3", "--exclude-seen"]) == 0
    assert main(["score", str(run.path), "--pairs", "n00,m01"]) == 1
    assert "m01" in capsys.readouterr().err
    assert main(["rank", str(run.path), "--source", "n00", "--time", "3"]) == 2
    assert main(["report", str(run.path), "--out", str(tmp_path / "report.html")]) == 0
    assert "resource allocation" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_a_resumed_link_run_is_bit_identical(files, run, tmp_path):
    settings = {"read.features": files[1], "task": "link", **SMALL}
    hopstate.fit("gcn", files[0], out=tmp_path / "part", **{**settings, "loop.epochs": 1})
    (tmp_path / "part" / "result.json").unlink()
    config = json.loads((tmp_path / "part" / "config.json").read_text())
    config["loop"]["epochs"] = 3
    (tmp_path / "part" / "config.json").write_text(json.dumps(config))
    done = hopstate.fit("gcn", files[0], out=tmp_path / "part", resume=True, **settings)
    assert done.metrics == run.metrics
    assert np.array_equal(done.predict()["score"], run.predict()["score"])


def test_records_in_memory_options_and_errors(tmp_path):
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(rng.integers(0, 25, (90, 2)), 25, x=rng.random((25, 4)), name="bare")
    with pytest.raises(DataError, match="--task"):
        hopstate.fit("gcn", graph, out=tmp_path / "nodes", **{"loop.progress": False})
    options = {"link.num_candidates": 0, "link.bootstrap": 5, "link.disjoint_train_ratio": 0.3, "split.number": 1}
    run = hopstate.fit("sage", graph, out=tmp_path / "links", task="link", **{**SMALL, **options})
    assert run.evaluate(graph) == pytest.approx(run.metrics["test"])
    assert "mrr_low" in run.metrics["test"]
    assert len(run.score([(0, 1)])) == 1
    with pytest.raises(DataError, match="25"):
        run.score([(0, 25)])
    with pytest.raises(ConfigError, match="time"):
        run.score([(0, 1)], 3)
    assert RunFolder.open(run.path).settings()["task"] == "link"


def test_a_model_of_links_is_called_as_a_module(run):
    pairs = [("n00", "n05"), ("n07", "n21"), ("n03", "n04")]
    model = run.model
    source, target = map(list, zip(*pairs, strict=True))
    scores = model(source, target)
    near(scores, run.score(pairs)["score"])
    near(model("n00", "n05"), scores[:1])
    near(model("n00", target), run.score([("n00", name) for name in target])["score"])
    ids, vectors = model.embeddings()
    assert ids.tolist() == [f"n{i:02d}" for i in range(30)]
    assert vectors.shape == (30, SMALL["link.dim"])
    some = run.embeddings(["n21", "n07"])
    assert some.node.tolist() == ["n21", "n07"]
    near(some.drop(columns="node"), vectors[[21, 7]])
    with pytest.raises(DataError, match="n99"):
        model(["n99"], ["n00"])
    with pytest.raises(ConfigError, match="target"):
        model(["n00"])
