"""DyGFormer and GraphMixer from a file to a run folder and its predictions."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hopstate.cli.main import main
from hopstate.data.events import EventStream
from hopstate.data.readers.read_events import read_events
from hopstate.errors import ConfigError
from hopstate.methods.shared.link import LinkSplitConfig
from hopstate.runs.inference import evaluate, predict
from hopstate.runs.run import fit
from hopstate.sampling.negatives import Negatives

LOOP = {"loop__epochs": 1, "loop__progress": False, "loop__logger": "none", "loop__device": "cpu"}
SMALL = {
    "dygformer": {"model__max_length": 6, "model__channel_dim": 4, "model__time_dim": 4, "model__out_dim": 4},
    "graphmixer": {"model__num_links": 4, "model__dim": 6, "model__time_dim": 4, "model__out_dim": 4},
}


@pytest.fixture
def events(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "source": [f"u{i}" for i in rng.integers(0, 12, 240)],
            "target": [f"v{i}" for i in rng.integers(0, 9, 240)],
            "time": np.sort(rng.integers(0, 500, 240)),
        }
    )
    table.to_csv(tmp_path / "messages.csv", index=False)
    return tmp_path / "messages.csv"


@pytest.mark.parametrize("method", ["graphmixer", pytest.param("dygformer", marks=pytest.mark.slow)])
def test_fit_evaluate_predict(method, events, tmp_path):
    strategies = ("random", "historical", "inductive", "ranking")
    run = fit(
        method,
        events,
        out=tmp_path / "run",
        batch_size=40,
        evaluation__strategies=list(strategies),
        evaluation__num_negatives=4,
        **LOOP,
        **SMALL[method],
    )
    test = run.metrics["test"]
    assert {"average_precision", "historical_roc_auc", "inductive_average_precision", "mrr"} <= set(test)
    assert evaluate(run.path, split="test") == test
    table = predict(run.path, split="test")
    stream = read_events(events)
    rows = LinkSplitConfig().of(stream).test
    assert table["src"].tolist() == stream.node_ids.names(stream.src[rows]).tolist()
    assert table["score"].between(0, 1).all()
    for strategy in strategies:
        kept = Negatives.load(
            run.path / "negatives" / f"test_{strategy}{4 if strategy == 'ranking' else ''}.npz", stream
        )
        assert np.array_equal(kept.rows, rows)


@pytest.mark.slow
def test_features_determine_the_input_width(tmp_path):
    rng = np.random.default_rng(0)
    stream = EventStream(
        src=rng.integers(0, 9, 150),
        dst=rng.integers(0, 9, 150),
        t=np.arange(150),
        x=rng.normal(size=(9, 3)).astype(np.float32),
        edge_attr=rng.normal(size=(150, 2)).astype(np.float32),
    )
    for method in SMALL:
        options = {**SMALL[method], **LOOP, "evaluation__strategies": ["random"], "split__kind": "dyglib"}
        run = fit(method, stream, out=tmp_path / method, **options)
        assert run.metrics["test"]["average_precision"] > 0
        assert run.evaluate(data=stream, split="test") == run.metrics["test"]


@pytest.mark.slow
def test_command_line(events, tmp_path, capsys):
    flags = [f"--{k.replace('__', '.')}={v}" for k, v in {**SMALL["dygformer"], **LOOP}.items()]
    command = ["fit", "dygformer", "--data", str(events)]
    assert main([*command, "--out", str(tmp_path / "run"), "--evaluation.strategies=[random]", *flags]) == 0
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    assert "average_precision" in capsys.readouterr().out
    assert main([*command, "--out", str(tmp_path / "other"), "--evaluation.strategies=[randm]"]) == 2
    assert "random" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [{"kind": "date"}, {"val_ratio": 0.9}, {"kind": "time"}, {"kind": "dyglib", "new_node_ratio": 1.0}]
)
def test_impossible_splits_are_named(wrong):
    with pytest.raises(ConfigError, match=r"split\."):
        LinkSplitConfig(**wrong)


def test_splits_by_time(events):
    stream = read_events(events)
    split = LinkSplitConfig(kind="time", val_time=300, test_time=400).of(stream)
    assert stream.t[split.train].max() <= 300 < stream.t[split.val].min()
    assert stream.t[split.val].max() <= 400 < stream.t[split.test].min()
