"""DyG-Mamba as a method: runs, contributions of events, noise, training queries, microbatches, settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import hopstate
from hopstate.cli.main import main
from hopstate.data.events import EventStream
from hopstate.errors import ConfigError, DataError
from hopstate.evaluation.leak import check_leak
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.method import Context
from hopstate.runs.load import load_run
from hopstate.runs.run import Run, fit, predict
from hopstate.testing.conformance import F32, F32_TIGHT
from made_events import repeating

SMALL: dict[str, Any] = {
    "model.channel_dim": 6, "model.time_dim": 8, "model.out_dim": 8, "model.block.state_dim": 4,
    "history.max_length": 8, "batch_size": 50,
}  # fmt: skip
QUIET: dict[str, Any] = {"loop.epochs": 1, "loop.progress": False, "loop.logger": "none", "loop.device": "cpu"}
RANDOM: dict[str, Any] = {"evaluation.strategies": ["random"]}


def _task(stream: EventStream, folder: Path, **settings: Any) -> Any:
    torch.manual_seed(0)
    chosen = get_method("dyg-mamba")
    config = config_from(chosen, {"data": "x", **SMALL, **RANDOM, **settings})
    return chosen.build(stream, config, Context(run=folder, cache=folder))


def test_no_score_sees_the_future(trained: Callable[[str], Run]) -> None:
    with load_run(trained("dyg-mamba").path) as (_, task):
        report = check_leak(task.scorer_over, task.stream, times=4, queries=32)
    assert report.scores > 100


def test_a_model_with_features_scores_a_stream_without(tmp_path: Path) -> None:
    bare = repeating(160).with_(edge_attr=None)
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    done = fit("dyg-mamba", bare.with_(x=x), out=tmp_path / "run", config={**QUIET, **SMALL, **RANDOM})
    assert predict(done.path, data=bare, cold_start=True)["score"].between(0, 1).all()


def test_training_queries_only_training_events(tmp_path: Path) -> None:
    """Events of held-out nodes are between training events, but in no training history."""
    task = _task(repeating(), tmp_path, **{"split.kind": "dyglib"})
    stream, train = task.stream, task.split.train
    end = np.full(stream.num_nodes, stream.t[-1] + 1)
    seen = task.source.train_inputs.store.last(np.arange(stream.num_nodes), end, len(stream)).event_ids
    assert set(seen - stream.first_id) == set(train)
    assert len(train) <= train[-1]


def _gradients(task: Any) -> tuple[list[int], torch.Tensor]:
    """Return the number of parts of each batch, and the gradient of the second batch's loss."""
    task.model.eval()  # no dropout
    parts = list(task.batches(0))
    for part in parts[1]:
        task.source.loss(task.model, part).backward()
    return [len(batch) for batch in parts], torch.cat([p.grad.flatten() for p in task.model.parameters()])


def test_microbatches_add_up_to_the_gradient_of_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = repeating()
    (whole, *_), expected = _gradients(_task(own, tmp_path, microbatch_size=200))
    (seven, *_), found = _gradients(_task(own, tmp_path, microbatch_size=7))
    monkeypatch.setattr("hopstate.methods.dyg_mamba.method.MAX_TOKENS", 300)
    (by_tokens, *_), other = _gradients(_task(own, tmp_path))
    assert whole == 1
    assert seven > by_tokens > 1
    torch.testing.assert_close(found, expected, rtol=F32, atol=F32_TIGHT)
    torch.testing.assert_close(other, expected, rtol=F32, atol=F32_TIGHT)
    assert expected.abs().max() > 1e-3


@pytest.mark.parametrize(
    "option",
    [
        {"history.max_length": None, "evaluation.strategies": ["ranking"], "split.kind": "dyglib", "batch_size": 200},
        {"history.window": 40.0, "loop.precision": "bf16-mixed", "model.cross_attention": 2},
    ],
    ids=str,
)
def test_all_options_combined(option: dict[str, Any], tmp_path: Path) -> None:
    settings = {**QUIET, **SMALL, **RANDOM, "evaluation.num_negatives": 5, **option}
    done = fit("dyg-mamba", repeating(200), out=tmp_path / "run", config=settings)
    assert np.isfinite(list(done.metrics["test"].values())).all()


def test_classes_of_nodes(tmp_path: Path) -> None:
    stream = repeating(160).with_(labels=np.arange(160) % 2)
    done = fit("dyg-mamba-nodes", stream, out=tmp_path / "run", config={**QUIET, **SMALL})
    table = done.predict(split="test")
    assert list(table) == ["node", "t", "score", "label"]
    assert table.score.between(0, 1).all()
    with pytest.raises(DataError, match="labels"):
        fit("dyg-mamba-nodes", stream.with_(labels=None), out=tmp_path / "none", config={**QUIET, **SMALL})
    with pytest.raises(ConfigError):
        hopstate.explain(done.path, 0, 1, 3.0)


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("dyg-mamba", "microbatch_size", 0),
        ("dyg-mamba-nodes", "batch_size", 0),
        ("dyg-mamba-nodes", "bootstrap", -1),
        ("dyg-mamba-nodes", "model.encoders", "independent"),
        ("dyg-mamba-nodes", "model.cross_attention", 2),
    ],
)
def test_invalid_dyg_mamba_settings_are_rejected(method: str, name: str, value: Any, tmp_path: Path) -> None:
    stream = repeating(100).with_(labels=np.arange(100) % 2)
    with pytest.raises(ConfigError, match=name.rpartition(".")[2]):
        fit(method, stream, out=tmp_path / "run", config={**QUIET, **SMALL, name: value})


def test_explain_by_command(trained: Callable[[str], Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(trained("dyg-mamba").path)
    out = tmp_path / "why.csv"
    assert main(["explain", run, "--pair", "u1,v2", "--time", "90", "--out", str(out), "--top", "3"]) == 0
    assert "logit" in capsys.readouterr().out
    table = pd.read_csv(out)
    assert (table.t[table.event_id >= 0] < 90).all()
    assert main(["explain", run, "--pair", "one", "--time", "3"]) == 2
    assert main(["explain", run, "--pair", "u1,v2", "--time", "90", "--top", "-1"]) == 2
    assert main(["evaluate", run, "--evaluation.protocol", "mean"]) == 2


@pytest.mark.slow
def test_explain_accepts_dates_and_ids_with_commas(tmp_path: Path) -> None:
    names = ["Smith, A", "b", "c"]
    rng = np.random.default_rng(0)
    rows = {"source": [names[i] for i in rng.integers(0, 3, 90)], "target": [f"t{i}" for i in rng.integers(0, 5, 90)]}
    when = pd.date_range("2024-01-01", periods=90, freq="7h") + pd.to_timedelta(np.arange(90), "ns")
    pd.DataFrame(rows | {"time": when.astype(str)}).to_csv(tmp_path / "dated.csv", index=False)
    done = fit("dyg-mamba", tmp_path / "dated.csv", out=tmp_path / "run", config={**QUIET, **SMALL, **RANDOM})
    with load_run(done.path) as (_, task):
        last = int(task.stream.t[-1])
    assert main(["explain", str(done.path), "--pair", '"Smith, A", t1', "--time", "2024-01-20"]) == 0
    exact = hopstate.explain(done.path, "Smith, A", "t1", str(last))  # nanoseconds that float64 cannot represent
    assert exact.t == last
    assert max(exact.events[exact.events.event_id >= 0].t) < last
