"""Binary tasks with a rare class: the positive class, splits of one class, weights, and uninformative features."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score

import hopstate
from hopstate.cli.main import main
from hopstate.errors import ConfigError, HopstateWarning
from hopstate.runs.run import Run, fit
from hopstate.runs.tune import tune
from hopstate.training.run_folder import RunFolder

LOOP = {"epochs": 20, "progress": False, "logger": "none", "device": "cpu", "optim": {"lr": 0.01}}
N = 400


def tables(
    names: tuple[Any, Any] = ("ok", "late"), *, share: float = 0.15, signal: float = 1.0, val: bool = True
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return edges, features and labels of N nodes; the second class is rare, and in validation only with `val`."""
    rng = np.random.default_rng(0)
    rare = rng.random(N) < share
    split = np.array(["train", "train", "train", "val", "test"])[np.arange(N) % 5]
    rare &= val | (split != "val")
    edges = pd.DataFrame({"source": rng.integers(0, N, 600), "target": rng.integers(0, N, 600)})
    x = rng.normal(size=(N, 2)) + signal * rare[:, None]
    features = pd.DataFrame({"id": np.arange(N), "a": x[:, 0], "b": x[:, 1]})
    labels = pd.DataFrame({"id": np.arange(N), "label": np.where(rare, names[1], names[0]), "split": split})
    return edges, features, labels


def made_run(out: Path, made: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame], **settings: Any) -> Run:
    edges, features, labels = made
    config = {"model.dim": 8, "model.dropout": 0.0, **settings}
    return fit("mlp", edges, features=features, labels=labels, out=out, config={"loop": LOOP, **config})


def words(folder: Path, made: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]) -> list[str]:
    """Write the tables as files and return the options that name them."""
    files = [folder / f"{name}.csv" for name in ("edges", "features", "labels")]
    for file, content in zip(files, made, strict=True):
        content.to_csv(file, index=False)
    own = ["--data", str(files[0]), "--read.features", str(files[1]), "--read.labels", str(files[2])]
    return [*own, "--loop.progress", "false", "--loop.logger", "none", "--loop.device", "cpu"]


@pytest.mark.parametrize(
    ("names", "settings", "positive"),
    [
        (("ok", "banned"), {}, "banned"),  # the rarer class
        (("yes", "no"), {}, "yes"),
        ((1, 0), {}, "1"),
        (("ok", "banned"), {"read.positive_class": "ok"}, "ok"),
    ],
)
def test_metrics_are_of_the_positive_class(
    names: tuple[Any, Any], settings: dict[str, Any], positive: str, tmp_path: Path
) -> None:
    run = made_run(tmp_path / "run", tables(names), metric="average_precision", **settings)
    found = run.predict(split="test")
    expected = average_precision_score(found["label"].astype(str) == positive, found[f"p_{positive}"])
    assert run.metrics["test"]["average_precision"] == pytest.approx(expected)
    assert json.loads((run.path / "result.json").read_text())["positive_class"] == positive
    assert run.evaluate(split="test") == pytest.approx(run.metrics["test"])


@pytest.mark.parametrize("made", [tables(), tables((0, 1))])
def test_an_unknown_positive_class_is_named(made: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"positive_class.*lat2"):
        made_run(tmp_path / "run", made, **{"read.positive_class": "lat2"})


def test_tables_name_the_positive_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = words(tmp_path, tables(("ok", "banned")))
    assert main(["fit", "mlp", *own, "--loop.epochs", "3", "--metric", "roc_auc", "--out", str(tmp_path / "run")]) == 0
    assert "ROC AUC of 'banned'" in capsys.readouterr().out
    assert main(["compare", "mlp", *own[:2], "--out", str(tmp_path / "both"), "--", *own[2:], "--metric=roc_auc",
                 "--loop.epochs=3"]) == 0  # fmt: skip
    assert "ROC AUC of 'banned'" in capsys.readouterr().out


def events(names: tuple[str, str], count: int = 200, share: float = 0.2, val: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    rare = rng.random(count) < share
    rare[int(0.7 * count) : int(0.85 * count)] &= val
    return pd.DataFrame(
        {
            "source": [f"u{i}" for i in rng.integers(0, 10, count)],
            "target": [f"v{i}" for i in rng.integers(0, 8, count)],
            "time": np.arange(count),
            "label": np.where(rare, names[1], names[0]),
        }
    )


EVENTS = {"model.dim": 6, "model.time_dim": 4, "batch_size": 16, "loop": {**LOOP, "epochs": 2}}


def test_labels_of_events_have_a_positive_class_too(tmp_path: Path) -> None:
    made = events(("ok", "banned"), share=0.4)
    made["label"] = made["label"].where(np.arange(200) < 140, np.where(np.arange(200) % 10, "banned", "ok"))
    run = fit("ctdg-ssm-nodes", made, out=tmp_path / "run", config=EVENTS)  # rarer in training, not in all events
    found = run.predict(split="test")
    expected = average_precision_score(found["label"] == "banned", found["score"])
    assert run.metrics["test"]["average_precision"] == pytest.approx(expected)


# ---- a split with one class ----------------------------------------------------------------------------
def test_a_validation_split_with_one_class_selects_by_loss(tmp_path: Path) -> None:
    with pytest.warns(HopstateWarning, match="val.*late"):
        run = made_run(
            tmp_path / "run", tables(val=False), **{"metric": "roc_auc", "loop.epochs": 40, "loop.patience": 3}
        )
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    losses = [row["val_loss"] for row in rows]
    assert run.best_epoch == 1 + int(np.argmin(losses))
    assert len(rows) == min(40, run.best_epoch + 3)
    edges, features, labels = tables(val=False)
    with pytest.warns(HopstateWarning, match="val.*late"):
        again = fit("mlp", edges, features=features, labels=labels, out=run.path, resume=True)
    assert again.best_epoch == run.best_epoch


def test_validation_events_of_one_class_select_by_loss(tmp_path: Path) -> None:
    with pytest.warns(HopstateWarning, match="val.*banned"):
        run = fit("ctdg-ssm-nodes", events(("ok", "banned"), val=False), out=tmp_path / "run", config=EVENTS)
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert run.best_epoch == 1 + int(np.argmin([row["val_loss"] for row in rows]))


def test_a_search_compares_losses_if_the_metric_is_undefined(tmp_path: Path) -> None:
    edges, features, labels = tables(val=False)
    files = words(tmp_path, (edges, features, labels))
    read = {"read.features": files[3], "read.labels": files[5]}
    settings = {"metric": "roc_auc", "loop": {**LOOP, "epochs": 2}, **read}
    with pytest.warns(HopstateWarning, match="val.*late"):
        found = tune("mlp", files[1], trials=2, out=tmp_path / "search", space={"model.dim": [4, 8]}, config=settings)
    assert (found.metric, found.mode) == ("loss", "min")
    assert found.value == min(row["value"] for row in found.trials)


# ---- class weights -------------------------------------------------------------------------------------
@pytest.mark.parametrize("weights", ["balanced", "complement", ("late=8",)])
def test_probabilities_of_weighted_classes_match_the_data(weights: Any, tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", tables(signal=0.7), class_weights=weights, **{"loop.epochs": 60})
    found = run.predict(split="test")
    assert found["p_late"].mean() == pytest.approx((found["label"] == "late").mean(), abs=0.06)
    assert (found["prediction"] == "late").mean() > 0.2  # the purpose of weights
    accuracy = (found["prediction"] == found["label"]).mean()
    assert run.metrics["test"]["accuracy"] == pytest.approx(accuracy)


def test_probabilities_of_weighted_events_match_the_data(tmp_path: Path) -> None:
    config = {**EVENTS, "class_weights": "balanced", "metric": "accuracy"}
    run = fit("ctdg-ssm-nodes", events(("ok", "banned")), out=tmp_path / "run", config=config)
    found = run.predict(split="test")
    assert found["score"].mean() == pytest.approx((found["label"] == "banned").mean(), abs=0.1)
    assert run.metrics["test"]["accuracy"] == pytest.approx((found["prediction"] == found["label"]).mean())
    outputs = hopstate.node_outputs(run.path, ["u1", "u2"], 300)
    assert outputs["score"].max() < 0.4


# ---- runs that learn nothing ---------------------------------------------------------------------------
@pytest.fixture(scope="module")
def noise() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Tables with uninformative features."""
    return tables(signal=0.0)


def test_a_run_below_a_baseline_on_validation_prints_a_warning_first(
    noise: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [*words(tmp_path, noise), "--metric", "accuracy", "--class_weights", "[late=100]", "--loop.epochs", "5"]
    assert main(["fit", "mlp", *own, "--out", str(tmp_path / "run")]) == 0
    result, below = capsys.readouterr().out.strip().splitlines()[:2]
    assert "mlp" in result
    assert "majority" in below
    assert main(["--json", "fit", "mlp", *own, "--out", str(tmp_path / "again")]) == 0
    assert "majority" in json.loads(capsys.readouterr().out)["not_outperformed_on_validation"]
    options = ["--metric=accuracy", "--loop.epochs=5", "--mlp.class_weights=[late=100]"]
    assert main(["compare", "mlp,gcn", *own[:2], "--out", str(tmp_path / "both"), "--", *own[2:12], *options]) == 0
    printed = capsys.readouterr().out
    assert "baseline" in printed


def test_a_run_above_its_baselines_prints_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = [*words(tmp_path, tables(signal=2.0)), "--metric", "roc_auc", "--loop.epochs", "20"]
    assert main(["--json", "fit", "sage", *own, "--out", str(tmp_path / "run")]) == 0
    assert "majority" not in json.loads(capsys.readouterr().out)["not_outperformed_on_validation"]


def test_links_and_events_have_baselines_on_validation(tmp_path: Path) -> None:
    made = events(("ok", "banned"))
    run = fit("ctdg-ssm-nodes", made, out=tmp_path / "nodes", config=EVENTS)
    assert RunFolder(run.path).baselines("val")["majority"]["roc_auc"] == 0.5
    assert "val_roc_auc" not in run.baselines["majority"]
    links = fit("ctdg-ssm", made.drop(columns="label"), out=tmp_path / "links", config=EVENTS)
    baselines = RunFolder(links.path).baselines("val")
    (metric,) = baselines["recency"]
    assert baselines["chance"][metric] == 0.5
    assert "chance" not in links.baselines
