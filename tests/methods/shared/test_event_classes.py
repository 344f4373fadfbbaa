"""Node classes at events: any number, unknown, weighted, named; and outputs at any time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.data.events import EventStream
from hopstate.errors import ConfigError, DataError, HopstateWarning, TimeOrderError
from hopstate.evaluation.metrics import macro_f1, ovr_roc_auc
from hopstate.methods import get_method
from hopstate.methods.method import Context
from hopstate.runs.run import Run, evaluate, fit, score_stream
from hopstate.testing.conformance import F32, F32_TIGHT

SMALL: dict[str, dict[str, Any]] = {
    "dyg-mamba-nodes": {"model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12, "history.max_length": 6},
    "ctdg-ssm-nodes": {"model.dim": 6, "model.time_dim": 4, "batch_size": 16},
}
LOOP = {"loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}}
NAMES = ("idle", "busy", "gone")


ONE = pytest.mark.parametrize("name", ["ctdg-ssm-nodes", pytest.param("dyg-mamba-nodes", marks=pytest.mark.slow)])
LAST = 106  # the time of the last of 160 events


def table(first: int, count: int, classes: tuple[Any, ...] = NAMES, known: float = 0.8) -> pd.DataFrame:
    rng = np.random.default_rng([3, first])
    found: dict[str, Any] = {
        "source": [f"u{i}" for i in rng.integers(0, 10, count)],
        "target": [f"v{i}" for i in rng.integers(0, 8, count)],
        "time": first + np.arange(count) * 2 // 3,
    }
    label = np.array(classes, object)[rng.choice(len(classes), count)]
    label[rng.random(count) > known] = None
    return pd.DataFrame(found | {"label": label})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of each method on 160 events of three classes, a fifth of them unknown."""
    home = tmp_path_factory.mktemp("runs")
    table(0, 160).to_csv(home / "own.csv", index=False)
    return {name: fit(name, home / "own.csv", out=home / name, config={**LOOP, **SMALL[name]}) for name in SMALL}


@ONE
def test_three_classes_and_unknown_labels(name: str, runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs[name]
    assert set(run.metrics["test"]) == {"macro_f1", "accuracy", "roc_auc"}
    assert evaluate(run.path) == pytest.approx(run.metrics["test"])
    found = run.predict(split="test")
    chances = [f"p_{label}" for label in sorted(NAMES)]
    assert set(found) == {"node", "t", "prediction", "label", *chances}
    assert np.allclose(found[chances].sum(axis=1), 1)
    own = table(0, 160)["label"][-len(found) :]
    assert found["label"].isna().tolist() == own.isna().tolist()
    assert found["label"].dropna().tolist() == own.dropna().tolist()
    known = found.dropna(subset=["label"])
    names = [column[2:] for column in found if column.startswith("p_")]
    y, p = known["label"].map(names.index).to_numpy(), known[[f"p_{label}" for label in names]].to_numpy()
    assert run.metrics["test"]["macro_f1"] == pytest.approx(macro_f1(y, p))
    assert run.metrics["test"]["roc_auc"] == pytest.approx(ovr_roc_auc(y, p))
    assert (
        found["prediction"].tolist() == np.array(names)[found[[f"p_{n}" for n in names]].to_numpy().argmax(1)].tolist()
    )
    later = table(200, 30).drop(columns="label")
    live = score_stream(run.path, later, ignore_state=True, save=tmp_path / "state")
    assert list(live) == [column for column in found if column != "label"]
    pd.testing.assert_frame_equal(live, run.predict(later), rtol=F32)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run on events of two classes, 0 and 1, some unknown; its labels are in gaps.csv next to it."""
    home, frame = tmp_path_factory.mktemp("binary"), table(0, 160, classes=(0, 1), known=1.0)
    unknown = np.random.default_rng(0).random(160) < 0.3
    frame["label"] = frame["label"].astype(float).where(~unknown)
    frame.to_csv(home / "gaps.csv", index=False)
    return fit("ctdg-ssm-nodes", home / "gaps.csv", out=home / "run", config={**LOOP, **SMALL["ctdg-ssm-nodes"]})


def test_unknown_labels_do_not_influence_training(binary: Run, tmp_path: Path) -> None:
    """Events with unknown labels update the history but contribute nothing to the loss, in both notations."""
    frame = pd.read_csv(binary.path.parent / "gaps.csv")
    frame.fillna({"label": -1}).astype({"label": int}).to_csv(tmp_path / "minus.csv", index=False)
    config = {**LOOP, **SMALL["ctdg-ssm-nodes"]}
    with pytest.raises(DataError, match="-1"):
        fit("ctdg-ssm-nodes", tmp_path / "minus.csv", out=tmp_path / "ambiguous", config=config)
    config["read.unlabeled_value"] = "-1"
    two = fit("ctdg-ssm-nodes", tmp_path / "minus.csv", out=tmp_path / "minus", config=config)
    assert binary.metrics == two.metrics
    assert isinstance(binary.metrics["test"]["positives"], int)  # a count, which tables do not show in percent
    assert set(binary.metrics["test"]) == {"roc_auc", "average_precision", "positives"}
    assert binary.metrics["test"]["positives"] == (frame["label"][-len(binary.predict(split="test")) :] == 1).sum()
    assert list(binary.predict()) == ["node", "t", "score", "label"]


def test_numeric_classes_keep_their_names(tmp_path: Path) -> None:
    frame = table(0, 160, classes=(10, 20, 30), known=1.0)
    frame.to_csv(tmp_path / "own.csv", index=False)
    run = fit("ctdg-ssm-nodes", tmp_path / "own.csv", out=tmp_path / "run", config={**LOOP, **SMALL["ctdg-ssm-nodes"]})
    found = run.predict(split="test")
    assert set(found["prediction"]) <= {"10", "20", "30"}
    assert found["label"].tolist() == frame["label"].tolist()[-len(found) :]
    frame["label"] = np.where(frame["label"] == 10, 40, frame["label"])  # a class that the run does not know
    with pytest.warns(HopstateWarning, match="40"):
        found = evaluate(run.path, data=frame, cold_start=True)
    with pytest.warns(HopstateWarning, match="40"):
        predicted = hopstate.predict(run.path, data=frame, cold_start=True, split="test")
    assert found["accuracy"] == pytest.approx((predicted["prediction"] == predicted["label"].astype(str)).mean())


def built(labels: np.ndarray, folder: Path, **settings: Any) -> Any:
    """Return the task of a stream of 160 events with these labels."""
    ends = np.random.default_rng(0).integers(0, 8, (2, 160))
    stream = EventStream(src=ends[0], dst=8 + ends[1], t=np.arange(160), labels=labels)
    method = get_method("dyg-mamba-nodes")
    return method.build(stream, method.config(data="x", **settings), Context(run=folder, cache=folder))


def test_class_weights_come_from_training_events(tmp_path: Path) -> None:
    labels = np.array([0, 0, 0, 1, 1, 2])[np.arange(160) % 6]
    labels[140:] = 2  # of test events, which are ignored
    task = built(labels, tmp_path, class_weights="balanced")
    share = np.bincount(labels[task.split.train]) / len(task.split.train)
    balanced = np.array(task.targets.target.class_weights)
    np.testing.assert_allclose(balanced / balanced[0], share[0] / share, rtol=1e-6)
    complement = np.array(built(labels, tmp_path, class_weights="complement").targets.target.class_weights)
    np.testing.assert_allclose(complement / complement[0], (1 - share) / (1 - share[0]), rtol=1e-6)
    assert built(labels, tmp_path).targets.target.class_weights is None


def test_the_metric_is_a_setting(tmp_path: Path) -> None:
    two, three = np.arange(160) % 2, np.arange(160) % 3
    assert built(two, tmp_path).metric == "roc_auc"
    assert built(two, tmp_path, metric="macro_f1").metric == "macro_f1"
    with pytest.raises(ConfigError, match="macro_f"):
        built(three, tmp_path, metric="macro_f")
    with pytest.raises(ConfigError, match="average_precision"):
        built(three, tmp_path, metric="average_precision")


@pytest.mark.parametrize("name", SMALL)
def test_outputs_of_nodes_at_any_time(name: str, runs: dict[str, Run]) -> None:
    run, rng = runs[name], np.random.default_rng(0)
    nodes = [f"u{i}" for i in range(9)] * 4
    times = rng.choice([LAST, LAST + 1, LAST + 50, 10 * LAST], 36)
    whole = run.node_outputs(nodes, times)
    columns = [column for column in whole if column.startswith("p_")]
    assert whole["node"].tolist() == nodes
    assert len(np.unique(whole[columns[0]])) > 9  # node and time both matter
    some = rng.permutation(36)[:5]
    mixed = run.node_outputs(pd.DataFrame({"node": np.array(nodes)[some], "t": times[some]}))
    np.testing.assert_allclose(mixed[columns], whole[columns].to_numpy()[some], rtol=F32)
    event = pd.DataFrame({"source": [nodes[7]], "target": ["v0"], "time": [times[7]]})
    np.testing.assert_allclose(run.predict(event)[columns], whole[columns][7:8], rtol=0, atol=F32_TIGHT)


def test_node_outputs_continue_from_a_state_and_never_go_back_in_time(runs: dict[str, Run], tmp_path: Path) -> None:
    run, nodes = runs["ctdg-ssm-nodes"], [f"u{i}" for i in range(9)]
    with pytest.raises(TimeOrderError, match="row 1"):
        run.node_outputs(["u0", "u1"], [LAST, LAST - 1])
    with pytest.raises(DataError, match="unknown-node"):
        run.node_outputs(["unknown-node"], [LAST])
    score_stream(run.path, table(LAST + 5, 20), save=tmp_path / "state")
    after = hopstate.node_outputs(run.path, nodes, np.full(9, 10 * LAST), state=tmp_path / "state")
    before = run.node_outputs(nodes, np.full(9, 10 * LAST))
    columns = [column for column in before if column.startswith("p_")]
    assert not np.allclose(after[columns], before[columns])
    with pytest.raises(TimeOrderError):
        hopstate.node_outputs(run.path, nodes, np.full(9, LAST), state=tmp_path / "state")


@pytest.mark.parametrize(
    ("label", "named"),
    [
        (np.arange(160), "160"),
        (np.full(160, 2), "2"),
        (np.where(np.arange(160) == 7, -3, np.arange(160) % 2), "-3"),
        (np.full(160, -1), "label"),
        (np.where(np.arange(160) < 100, np.arange(160) % 2, -1), "validation"),
    ],
    ids=["all different", "one class", "negative", "none", "none for validation"],
)
def test_labels_that_are_not_classes_are_rejected(label: np.ndarray, named: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=named):
        built(label, tmp_path)


def test_link_runs_have_no_node_outputs(trained: Callable[[str], Run]) -> None:
    with pytest.raises(ConfigError, match="recency"):
        trained("recency").node_outputs(["u0"], [200])


@ONE
def test_baselines_are_class_frequencies_and_the_last_known_class(name: str, runs: dict[str, Run]) -> None:
    run = runs[name]
    assert set(run.baselines) == {"majority", "last"}
    found = run.predict()
    rows = run.predict(split="test").index.size
    train, test = found[: -2 * rows], found[-rows:]
    most = train["label"].value_counts().index[0]
    known = test["label"].dropna()
    assert run.baselines["majority"]["accuracy"] == pytest.approx((known == most).mean())
    last = []
    for _, row in test[test["label"].notna()].iterrows():
        before = found[(found["node"] == row["node"]) & (found["t"] < row["t"]) & found["label"].notna()]
        last.append((before["label"].iloc[-1] if len(before) else most) == row["label"])
    assert run.baselines["last"]["accuracy"] == pytest.approx(np.mean(last))
