"""Graph sets from users' files: scales, column names, directions, and the metric of skewed classes."""

from pathlib import Path

import numpy as np
import pytest

import hopstate
from hopstate.data.readers.tu import read_tu
from hopstate.errors import DataError, HopstateWarning
from hopstate.methods import get_method
from hopstate.methods.gmn.graph_method import GINRun, GMNGraphsRun
from hopstate.runs.run import Run
from hopstate.testing.conformance import F32, F32_TIGHT, F64_SOLVED

pytestmark = pytest.mark.usefixtures("empty_folder")

FAST = {"loop.epochs": 2, "loop.progress": False, "loop.device": "cpu", "model.dim": 8}


def write(
    name: str, *, count: int = 40, seed: int = 0, year: float = 0, scale: float = 1, tags: int = 3, share: int = 2,
    directed: bool = False, first_tag: int = 0,
) -> str:  # fmt: skip
    """Write rings of 3 to 8 nodes with a tag and one attribute per node; one graph in `share` is of class 1."""
    rng, lines = np.random.default_rng(seed), [str(count)]
    for number in range(count):
        size = int(rng.integers(3, 9))
        lines.append(f"{size} {int(number % share == 0)}")
        for v in range(size):
            near = sorted({(v + 1) % size} if directed else {(v + 1) % size, (v - 1) % size})
            value = year + scale * rng.normal()
            lines.append(" ".join(map(str, [first_tag + int(rng.integers(0, tags)), len(near), *near, repr(value)])))
    Path(f"{name}.txt").write_text("\n".join(lines) + "\n")
    return f"{name}.txt"


def chances(run: Run, data: str | None = None) -> np.ndarray:
    return run.predict(data)[["p_0", "p_1"]].to_numpy()


@pytest.mark.parametrize("method", ["gin-graphs", "gmn-graphs"])
def test_the_unit_of_an_attribute_does_not_matter(method: str) -> None:
    plain, years = write("plain"), write("years", year=2010, scale=1024)
    exact = {**FAST, "loop.precision": "64"}  # in float32 the first steps of Adam amplify rounding
    runs = [hopstate.fit(method, path, out=f"run-{path}", config=exact) for path in (plain, years)]
    np.testing.assert_allclose(chances(runs[0]), chances(runs[1]), atol=F32)
    np.testing.assert_allclose(chances(runs[1]), chances(runs[1], years), atol=F32_TIGHT)


def test_scales_come_from_training_graphs_and_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    path = write("own", year=2010, tags=1)
    run = hopstate.fit("gin-graphs", path, out="run", config={**FAST, "loop.progress": True})
    assert "features" in capsys.readouterr().err
    kept = run.path / "data.json"
    graphs = read_tu(path)
    with np.load(run.path / "split.npz") as split:
        nodes, _ = graphs.rows(split["train"])
    assert graphs.union.x is not None
    import json

    facts = json.loads(kept.read_text())["features"]["x"]
    assert facts["columns"] == ["tag 0", "attribute 0"]
    np.testing.assert_allclose(facts["shift"][1], graphs.union.x[nodes, 1].astype(float).mean(), rtol=F64_SOLVED)
    assert (facts["shift"][0], facts["scale"][0]) == (0.0, 1.0)  # sums over nodes count with a column of ones
    hopstate.fit("gin-graphs", path, out="raw", config={**FAST, "read.scale": "none"})
    assert json.loads(Path("raw/data.json").read_text())["features"]["x"]["kind"] == "none"


def test_tags_are_matched_by_name() -> None:
    run = hopstate.fit("gin-graphs", write("own"), out="run", config=FAST)
    fewer = write("fewer", tags=2, seed=1)
    again = write("again", tags=2, seed=1)
    Path(again).write_text(Path(fewer).read_text() + "")
    assert len(chances(run, fewer)) == 40
    with pytest.raises(DataError, match="tag 3"):
        chances(run, write("shifted", first_tag=1))


def test_directions_of_a_file_are_kept_on_request_and_otherwise_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write("rings", directed=True)
    loud = {**FAST, "loop.progress": True}
    hopstate.fit("gin-graphs", path, out="both", config=loud)
    assert "stored in both directions" in capsys.readouterr().err
    hopstate.fit("gin-graphs", path, out="kept", config={**loud, "read.undirected": False})
    assert "stored in both directions" not in capsys.readouterr().err
    assert read_tu(path, undirected=False).union.num_edges == read_tu(path).union.num_nodes
    with pytest.warns(HopstateWarning, match=r"read\.features"):
        hopstate.fit("gin-graphs", path, out="idle", config={**FAST, "read.features": "f.csv"})


@pytest.mark.parametrize("method", ["gin-graphs", "gmn-graphs"])
def test_skewed_classes_select_their_metric(method: str) -> None:
    known = get_method(method)
    make = GINRun if method == "gin-graphs" else GMNGraphsRun
    assert known.auto_config is not None
    for share, metric in ((2, None), (10, "roc_auc")):
        graphs = read_tu(write("own", share=share, count=60))
        config = make(data="own.txt")
        assert known.auto_config(graphs, config, ()).get("metric") == metric
        assert "metric" not in known.auto_config(graphs, config, ("accuracy",))
        assert "metric" not in known.auto_config(graphs, make(data="own.txt", metric="accuracy"), ())
