"""The method of docs/extending.md, from its mathematics to the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tests.made_events import LOOP, repeating

import hopstate
from hopstate import methods
from hopstate.cli.main import main
from hopstate.errors import ConfigError
from hopstate.methods import get_method
from hopstate.methods.shared.link import HISTORICAL_SHARE
from hopstate.testing.conformance import F32, F32_SUM, ModelCase, check_model
from hopstate.training.run_folder import RunFolder

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
QUICK = ["--loop.epochs=2", "--loop.progress=false", "--loop.logger=none", "--loop.device=cpu"]


@pytest.fixture(autouse=True)
def _examples(empty_folder: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_the_model_passes_the_conformance_suite() -> None:
    from sgc import SGC

    for readout in ("last", "average"):
        config = SGC.Config(readout=readout)
        case = ModelCase(
            make=lambda config=config: SGC(config, in_dim=4, num_classes=3),
            inputs=(torch.randn(6, 3, 4),),
            permute=lambda inputs, order: (inputs[0][order],),
            take=lambda inputs, rows: (inputs[0][rows],),
        )
        check_model(case)


def test_logits_equal_those_of_a_dense_matrix_power() -> None:
    from sgc import SGC, hops

    graph = _small()
    adjacency = np.eye(graph.num_nodes)
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    adjacency[rows, graph.indices] += 1
    scale = adjacency.sum(1) ** -0.5
    power = np.linalg.matrix_power(scale[:, None] * adjacency * scale, 3) @ graph.x
    model = SGC(SGC.Config(), in_dim=graph.num_features, num_classes=2)
    found = model(hops(graph, 3))
    torch.testing.assert_close(found, model.linear(torch.from_numpy(power).float()), rtol=F32_SUM, atol=F32)


def _small() -> hopstate.Graph:
    rng = np.random.default_rng(0)
    pairs = {tuple(sorted(p)) for p in rng.integers(0, 12, (30, 2)).tolist() if p[0] != p[1]}
    src, dst = np.array(sorted(pairs)).T
    edges = np.unique(np.stack([np.concatenate([src, dst]), np.concatenate([dst, src])]), axis=1)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(edges[0], minlength=12))])
    x = rng.normal(size=(12, 3)).astype(np.float32)
    return hopstate.Graph(indptr=indptr, indices=edges[1], x=x, y=rng.integers(0, 2, 12))


def test_the_method_trains_evaluates_and_predicts(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fit", "sgc:METHOD", "--data=sbm", *QUICK, "--num_hops=1", "--out=run"]
    assert main(command) == 0
    capsys.readouterr()
    assert main(["evaluate", "run"]) == 0
    assert "accuracy" in capsys.readouterr().out
    table = hopstate.predict("run")
    assert {"node", "prediction"} <= set(table)
    assert main(["compare", "sgc:METHOD,mlp", "--data=sbm", "--out=both", "--", *QUICK, "--mlp.model.dim=8"]) == 0


def test_an_unknown_method_is_an_error_with_its_name() -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        get_method("nowhere:METHOD")
    with pytest.raises(ConfigError, match="sgc:SGC"):
        get_method("sgc:SGC")
    with pytest.raises(ConfigError, match="missing"):
        get_method("sgc:missing")


def test_a_package_of_the_library_may_contain_a_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "more" / "sgc"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('METHODS = {"sgc": "method"}\n')
    (package / "method.py").write_text((EXAMPLES / "sgc.py").read_text())
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(package.parent)])
    monkeypatch.setattr(methods, "MODULES", methods.modules())
    for name in ("hopstate.methods.sgc", "hopstate.methods.sgc.method"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert get_method("sgc").name == "sgc"
    (package / "method.py").write_text("")
    monkeypatch.delitem(sys.modules, "hopstate.methods.sgc.method")
    with pytest.raises(ConfigError, match="sgc"):
        get_method("sgc")


def test_a_stream_method_trains_with_automatic_settings_and_answers_queries() -> None:
    stream = repeating(300)
    run = hopstate.fit("mean_history:METHOD", stream, out="events", dim=8, **LOOP)
    assert RunFolder(run.path).settings()["negatives"]["mixture"]["historical"] == HISTORICAL_SHARE
    assert 0 < run.metrics["test"]["average_precision"] <= 1
    pairs = list(zip(stream.src[-5:].tolist(), stream.dst[-5:].tolist(), strict=True))
    scores = run.score(pairs, float(stream.t[-1]) + 1)["score"]
    assert scores.between(0, 1).all()
    assert scores.nunique() > 1


def test_scores_of_a_memory_do_not_depend_on_how_a_stream_is_cut() -> None:
    stream = repeating(300)
    run = hopstate.fit("node_memory:METHOD", stream, out="memory", dim=8, batch_size=32, **LOOP)
    assert 0 < run.metrics["test"]["average_precision"] <= 1
    later = pd.DataFrame({"source": stream.src[:40], "target": stream.dst[:40], "time": stream.t[-1] + np.arange(40)})
    later[["feat_0", "feat_1"]] = stream.edge_attr[:40]
    whole = hopstate.stream("memory", later, save="one", ignore_state=True)
    parts = [hopstate.stream("memory", later[:7], save="two", ignore_state=True)]
    parts.append(hopstate.stream("memory", later[7:], state="two", save="two"))
    np.testing.assert_allclose(pd.concat(parts)["score"], whole["score"], rtol=F32, atol=F32)
    assert whole["score"].nunique() > 1
