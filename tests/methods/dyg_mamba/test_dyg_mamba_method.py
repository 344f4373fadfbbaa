"""DyG-Mamba from a file to a run folder and back, explain, robustness, the leak guard, a known loss curve."""

import csv

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.cli.main import main
from hopstate.datasets.temporal_generators import MessageConfig, generate_messages
from hopstate.errors import ConfigError, DataError, FormatError
from hopstate.evaluation.leak import check_leak
from hopstate.methods.dyg_mamba.model import DyGMamba
from hopstate.runs.api import evaluate, fit, predict
from hopstate.runs.load import load_run
from hopstate.testing.asserts import COARSE, F32, F64_SOLVED, HALF
from hopstate.tokens.pair_features import EARLIER, NAMES

LOOP = {"loop__progress": False, "loop__tensorboard": "no", "loop__device": "cpu"}
SMALL = {"model__channel_dim": 6, "model__time_dim": 8, "model__out_dim": 8, "model__block__state_dim": 4}
RATE = {"loop__optim__lr": 5e-3, "loop__optim__schedule": "constant", "loop__optim__warmup": 0.0}
OPTIONS = {**LOOP, **SMALL, **RATE, "history__max_length": 8, "batch_size": 50}


STREAM = MessageConfig(num_nodes=60, num_events=1200)
GOLDEN = {"seconds": [0.67937, 0.56695, 0.47221], "median": [0.67905, 0.56241, 0.46671]}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> hopstate.Run:
    folder = tmp_path_factory.mktemp("dyg")
    options = {**OPTIONS, "loop__epochs": 2, "model__pair_trees": False}
    return fit("dyg-mamba", "messages-generated", out=folder / "run", **options)


def _flags(**options: object) -> list[str]:
    return [f"--{key.replace('__', '.')}={value}" for key, value in {**OPTIONS, **options}.items()]


def test_fit_evaluate_predict(run):
    assert {"average_precision", "historical_average_precision", "inductive_average_precision"} <= set(
        run.metrics["test"]
    )
    assert run.metrics["test"]["average_precision"] > 0.55
    assert evaluate(run.path) == run.metrics["test"]
    averaged = evaluate(run.path, evaluation={"protocol": "dyglib", "strategies": ["random"]})
    assert averaged["average_precision"] != run.metrics["test"]["average_precision"]
    assert "historical_average_precision" not in averaged
    assert predict(run.path, split="test")["score"].between(0, 1).all()


@pytest.mark.parametrize("gap_unit", GOLDEN)
def test_a_known_loss_curve(tmp_path, gap_unit):
    """The first losses on a made stream: a change of any part of the way there shows."""
    options = {**OPTIONS, "loop__epochs": 3, "gap_unit": gap_unit, "evaluation__strategies": ["random"]}
    options |= {"negatives__mixture__random": 1.0, "model__pair_history": False}
    done = fit("dyg-mamba", generate_messages(STREAM), out=tmp_path / "run", **options)
    with (done.path / "metrics.csv").open() as file:
        losses = [float(row["train_loss"]) for row in csv.DictReader(file)]
    assert losses == pytest.approx(GOLDEN[gap_unit], rel=HALF)
    assert losses[2] < losses[0]


def test_no_score_sees_the_future(run):
    with load_run(run.path) as (_, task):
        report = check_leak(task.scorer_over, task.stream.slice(0, 1500), moments=4, queries=32)
    assert report.scores > 100


def test_explain_adds_up_and_sees_only_the_past(run, tmp_path):
    with load_run(run.path) as (_, task):
        stream = task.stream
        row = len(stream) - 1
        t = float(stream.t[row]) + 0.0
        u, v = (stream.src[row], stream.dst[row])
        if stream.node_ids is not None:
            u, v = stream.node_ids.names(np.array([u, v]))
        expected = float(task.scorer("test").score(stream.src[row:], stream.dst[row:], stream.t[row:])[0])
    out, plot = tmp_path / "why.csv", tmp_path / "why.png"
    found = hopstate.explain(run.path, u, v, t, out=out, plot=plot)
    assert found.probability == pytest.approx(expected, abs=F32)
    assert found.events.contribution.sum() + found.rest == pytest.approx(found.logit, abs=F64_SOLVED)
    assert set(found.features.feature) == set(NAMES[:EARLIER])  # what the pair's own history tells stands by name
    beside = pd.read_csv(tmp_path / "why-features.csv")
    assert beside.contribution.tolist() == pytest.approx(found.features.contribution.tolist())
    real = found.events[found.events.event_id >= 0]
    assert len(real)
    assert (real.t < t).all()
    for event in real.itertuples():  # the node whose history it is, and the one it met
        row = event.event_id - stream.first_id
        ends = np.array([stream.src[row], stream.dst[row]])
        names = ends if stream.node_ids is None else stream.node_ids.names(ends)
        whose = u if event.end == "source" else v
        assert {str(whose), str(event.neighbor)} == {str(name) for name in names}
    assert set(real.end) == {"source", "target"}
    assert (found.events.event_id < 0).sum() == 2  # each node itself, in its own history
    assert pd.read_csv(out).contribution.tolist() == pytest.approx(found.events.contribution.tolist())
    assert plot.stat().st_size > 5000
    with pytest.raises(DataError, match="nobody"):
        hopstate.explain(run.path, "nobody", v, t)
    with pytest.raises(ConfigError, match="finite number"):
        hopstate.explain(run.path, u, v, "inf")
    with pytest.raises(ConfigError, match="finite number"):
        hopstate.explain(run.path, u, v, np.nan)
    with pytest.raises(FormatError, match="bmp"):
        hopstate.explain(run.path, u, v, t, plot=tmp_path / "why.bmp")


def test_explain_takes_dates_and_ids_with_commas(tmp_path):
    names = ["Smith, A", "b", "c"]
    rng = np.random.default_rng(0)
    rows = {"source": [names[i] for i in rng.integers(0, 3, 90)], "target": [f"t{i}" for i in rng.integers(0, 5, 90)]}
    when = pd.date_range("2024-01-01", periods=90, freq="7h") + pd.to_timedelta(np.arange(90), "ns")
    pd.DataFrame(rows | {"time": when.astype(str)}).to_csv(tmp_path / "dated.csv", index=False)
    settings = {**OPTIONS, "evaluation__strategies": ["random"], "loop__epochs": 1, "batch_size": 20}
    done = fit("dyg-mamba", tmp_path / "dated.csv", out=tmp_path / "run", **settings)
    with load_run(done.path) as (_, task):
        last = int(task.stream.t[-1])
    assert main(["explain", str(done.path), "--pair", '"Smith, A", t1', "--time", "2024-01-20"]) == 0
    exact = hopstate.explain(done.path, "Smith, A", "t1", str(last))  # nanoseconds that no float64 holds
    assert exact.t == last
    real = exact.events[exact.events.event_id >= 0]
    assert max(real.t) < last
    with pytest.raises(ConfigError, match="neither a number nor a date"):
        hopstate.explain(done.path, "b", "t1", "soon")
    with pytest.raises(FormatError, match="txt"):
        hopstate.explain(done.path, "b", "t1", 3, out=tmp_path / "why.txt")


def test_a_model_with_features_meets_a_stream_without(tmp_path):
    rng = np.random.default_rng(0)
    stream = _few().with_(x=rng.normal(size=(_few().num_nodes, 3)).astype(np.float32))
    done = fit("dyg-mamba", stream, out=tmp_path / "run", loop__epochs=1, **OPTIONS)
    assert 0 <= done.evaluate(data=_few(), fresh=True)["average_precision"] <= 1


def test_training_looks_up_training_events_alone(tmp_path):
    """Events of the nodes that stay unseen lie between the training events, and are in no history of training."""
    options = {**OPTIONS, "split__kind": "dyglib", "evaluation__strategies": ["random"], "batch_size": 500}
    done = fit("dyg-mamba", "messages-generated", out=tmp_path / "run", loop__epochs=1, **options)
    with load_run(done.path) as (_, task):
        stream, train = task.stream, task.split.train
        end = np.full(stream.num_nodes, stream.t[-1] + 1)
        seen = task.source.train_inputs.store.last(np.arange(stream.num_nodes), end, len(stream)).event_ids
    assert set(seen - stream.first_id) == set(train)
    assert len(train) <= train[-1]  # some events before the last of training are not for training


def test_robustness_table_and_plot(run, tmp_path):
    table = hopstate.robustness(run.path, levels=(0.0, 0.5), out=tmp_path / "r.csv", plot=tmp_path / "r.svg")
    clean = table[(table.sigma == 0) & (table.setting == "transductive")]
    assert len(clean) == 2
    assert clean.average_precision.tolist() == pytest.approx([run.metrics["test"]["average_precision"]] * 2)
    noisy = table[(table.sigma == 0.5) & (table.noise == "sequences") & (table.setting == "transductive")]
    assert noisy.average_precision.item() != clean.average_precision.iloc[0]
    edges = table[(table.sigma == 0.5) & (table.noise == "stream") & (table.setting == "transductive")]
    assert edges.average_precision.item() != clean.average_precision.iloc[0]
    again = hopstate.robustness(run.path, levels=(0.5,), noise=["sequences"])
    assert again.average_precision.iloc[0] == noisy.average_precision.item()
    assert (tmp_path / "r.svg").read_text().startswith("<?xml")
    for wrong in ({"levels": (1.5,)}, {"noise": ["edges"]}):
        with pytest.raises(ConfigError):
            hopstate.robustness(run.path, **wrong)


def test_settings_that_cannot_work(run, tmp_path):
    for wrong in ({"batch_size": 0}, {"bootstrap": -1}):
        with pytest.raises(ConfigError, match="must be at least"):
            fit("dyg-mamba-nodes", "messages-generated", out=tmp_path / "nodes", **{**OPTIONS, **wrong})
    with pytest.raises(ConfigError, match="microbatch_size"):
        fit("dyg-mamba", "messages-generated", out=tmp_path / "run", microbatch_size=0, **OPTIONS)
    for pairs in ({"model__encoders": "independent"}, {"model__cross_attention": 2}):
        with pytest.raises(ConfigError, match="are for pairs"):
            fit("dyg-mamba-nodes", "messages-generated", out=tmp_path / "nodes", **{**OPTIONS, **pairs})
    assert main(["explain", str(run.path), "--pair", "48,76", "--time", "5176200", "--top", "-1"]) != 0
    with pytest.raises(DataError, match=r"target of the pair: unknown id '?7600"):
        hopstate.explain(run.path, "48", "7600", 5176200)


def test_command_line(run, tmp_path, capsys):
    assert main(["evaluate", str(run.path), "--evaluation.protocol=dyglib", "--evaluation.strategies", "[random]"]) == 0
    assert "historical_average_precision" not in capsys.readouterr().out
    assert main(["evaluate", str(run.path), "--evaluation.protocol", "mean"]) == 2
    with load_run(run.path) as (_, task):
        stream, ids = task.stream, task.stream.node_ids
        pair = (
            [stream.src[-1], stream.dst[-1]] if ids is None else ids.names(np.array([stream.src[-1], stream.dst[-1]]))
        )
    arguments = ["--pair", f"{pair[0]},{pair[1]}", "--time", str(float(stream.t[-1]))]
    assert main(["explain", str(run.path), *arguments, "--out", str(tmp_path / "e.csv"), "--top", "3"]) == 0
    shown = capsys.readouterr().out
    assert "neither" in shown
    assert "logit" in shown
    assert main(["explain", str(run.path), "--pair", "one", "--time", "3"]) == 2
    assert main(["robustness", str(run.path), "--levels", "0,0.4", "--noise", "stream"]) == 0
    assert main(["robustness", str(run.path), "--levels", "a"]) == 2
    assert "shares joined by commas" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [
        {"model__encoders": "independent"},
        {"model__cross_attention": 2},
        {"model__block__step": "both"},
        {"history__max_length": "null"},
        {"history__window": 2000.0},
        {"evaluation__strategies": ["many"]},
        {"split__kind": "dyglib"},
        {"loop__precision": "bf16-mixed"},
    ],
    ids=str,
)
def test_options_run(option, tmp_path):
    option = {key: None if value == "null" else value for key, value in option.items()}
    settings = {**OPTIONS, "evaluation__strategies": ["random"], **option}
    done = fit("dyg-mamba", _few(), out=tmp_path / "run", loop__epochs=1, **settings)
    assert all(np.isfinite(value) for value in done.metrics["test"].values())


def test_resumed_equals_uninterrupted(tmp_path, monkeypatch):
    settings = {**OPTIONS, "evaluation__strategies": ["random"], "loop__epochs": 3, "loop__checkpoint_seconds": 0.01}
    whole = fit("dyg-mamba", _few(), out=tmp_path / "whole", **settings)
    forward, calls = DyGMamba.forward, []  # of training: evaluation asks the compiled loops

    def breaks(self, tokens):
        calls.append(1)
        if len(calls) == 12:  # in the middle of an epoch
            raise RuntimeError("power cut")
        return forward(self, tokens)

    monkeypatch.setattr(DyGMamba, "forward", breaks)
    with pytest.raises(RuntimeError, match="power cut"):
        fit("dyg-mamba", _few(), out=tmp_path / "cut", **settings)
    monkeypatch.undo()
    assert fit("dyg-mamba", _few(), out=tmp_path / "cut", resume=True, **settings).metrics == whole.metrics


def test_nodes_are_classified(tmp_path):
    done = fit("dyg-mamba-nodes", "messages-generated", out=tmp_path / "run", loop__epochs=2, **OPTIONS)
    assert 0.4 < done.metrics["test"]["roc_auc"] <= 1
    assert done.evaluate() == done.metrics["test"]
    table = done.predict(split="test")
    assert list(table) == ["node", "t", "score", "label"]
    assert table.score.between(0, 1).all()
    stream = _few()
    with pytest.raises(DataError, match="needs classes as labels of events"):
        fit("dyg-mamba-nodes", stream.with_(labels=None), out=tmp_path / "none", **OPTIONS)
    with pytest.raises(ConfigError, match="sum over events or features"):
        hopstate.explain(done.path, 0, 1, 3.0)


def _few():
    stream = hopstate.load_dataset("messages-generated")
    return stream.slice(0, 600)


def test_parts_of_a_batch_add_up_to_it(tmp_path, monkeypatch):
    """Seven pairs at a time, cut by tokens, or all at once: the same losses, and the same training up to rounding."""
    settings = {**OPTIONS, "evaluation__strategies": ["random"], "model__block__dropout": 0.0, "loop__epochs": 2}
    settings["batch_size"] = 100
    runs = [fit("dyg-mamba", _few(), out=tmp_path / str(n), microbatch_size=n, **settings) for n in (200, 7)]
    monkeypatch.setattr("hopstate.methods.dyg_mamba.method.MAX_TOKENS", 300)
    runs.append(fit("dyg-mamba", _few(), out=tmp_path / "tokens", **settings))
    with load_run(runs[2].path, _few()) as (_, task):
        assert len(list(task.batches(0))[-2]) > 3
    whole, *cut = (pd.read_csv(run.path / "metrics.csv") for run in runs)
    for parts in cut:
        assert parts.train_loss.tolist() == pytest.approx(whole.train_loss.tolist(), rel=F32)
        assert parts.val_average_precision.tolist() == pytest.approx(whole.val_average_precision.tolist(), abs=COARSE)
    with pytest.raises(ConfigError, match="microbatch_size"):
        fit("dyg-mamba", _few(), out=tmp_path / "none", microbatch_size=-1, **settings)
