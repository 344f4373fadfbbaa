"""Classes of nodes at their events: any number of them, some unknown, weighted, named; and outputs at any time."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.errors import ConfigError, DataError, HopstateWarning, TimeOrderError
from hopstate.evaluation.metrics import macro_f1, one_vs_rest_auc
from hopstate.runs.api import Run, evaluate, fit, score_stream
from hopstate.testing.asserts import F32_TIGHT

SMALL: dict[str, dict[str, Any]] = {
    "dyg-mamba-nodes": {"model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12, "history.max_length": 6},
    "ctdg-ssm-nodes": {"model.dim": 6, "model.time_dim": 4, "batch_size": 16},
}
LOOP = {"loop": {"epochs": 1, "progress": False, "tensorboard": "no", "device": "cpu"}}
NAMES = ("idle", "busy", "gone")


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


@pytest.mark.parametrize("name", SMALL)
def test_three_classes_and_unknown_ones(name: str, runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs[name]
    assert set(run.metrics["test"]) == {"macro_f1", "accuracy", "roc_auc"}
    assert evaluate(run.path) == run.metrics["test"]
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
    assert run.metrics["test"]["macro_f1"] == macro_f1(y, p)
    assert run.metrics["test"]["roc_auc"] == one_vs_rest_auc(y, p)
    assert (
        found["prediction"].tolist() == np.array(names)[found[[f"p_{n}" for n in names]].to_numpy().argmax(1)].tolist()
    )
    later = table(200, 30).drop(columns="label")
    live = score_stream(run.path, later, fresh=True, save=tmp_path / "state")
    assert list(live) == [column for column in found if column != "label"]
    assert live.equals(run.predict(later))


@pytest.mark.parametrize("name", SMALL)
def test_what_is_unknown_teaches_nothing(name: str, tmp_path: Path) -> None:
    """Whatever could be guessed for unknown labels, the run is that of events that move histories and ask nothing."""
    frame = table(0, 160, classes=(0, 1), known=1.0)
    unknown = np.random.default_rng(0).random(160) < 0.3
    frame["label"] = frame["label"].astype(float).where(~unknown)
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    frame.fillna({"label": -1}).astype({"label": int}).to_csv(tmp_path / "minus.csv", index=False)
    one, two = (
        fit(name, tmp_path / f"{file}.csv", out=tmp_path / file, config={**LOOP, **SMALL[name]})
        for file in ("gaps", "minus")
    )
    assert one.metrics == two.metrics
    assert set(one.metrics["test"]) == {"roc_auc", "average_precision", "positives"}
    assert one.metrics["test"]["positives"] == (frame["label"][-len(one.predict(split="test")) :] == 1).sum()
    assert list(one.predict()) == ["node", "t", "score", "label"]


def test_numbers_as_classes_keep_their_names(tmp_path: Path) -> None:
    frame = table(0, 160, classes=(10, 20, 30), known=1.0)
    frame.to_csv(tmp_path / "own.csv", index=False)
    run = fit("ctdg-ssm-nodes", tmp_path / "own.csv", out=tmp_path / "run", config={**LOOP, **SMALL["ctdg-ssm-nodes"]})
    found = run.predict(split="test")
    assert set(found["prediction"]) <= {"10", "20", "30"}
    assert found["label"].tolist() == frame["label"].tolist()[-len(found) :]
    frame["label"] = np.where(frame["label"] == 10, 40, frame["label"])  # a class that the run does not know
    with pytest.warns(HopstateWarning, match=r"does not know, of table, the class '40' \(\d+ events\).*as wrong"):
        found = evaluate(run.path, data=frame, fresh=True)
    with pytest.warns(HopstateWarning, match="'40'"):
        told = hopstate.predict(run.path, data=frame, fresh=True, split="test")
    assert found["accuracy"] == pytest.approx((told["prediction"] == told["label"].astype(str)).mean())


def test_weights_and_metrics_are_settings(tmp_path: Path) -> None:
    frame, name = table(0, 160), "dyg-mamba-nodes"
    frame["label"] = np.where(np.arange(160) % 4, "idle", "busy")
    frame.to_csv(tmp_path / "own.csv", index=False)
    found = {}
    for kind in ("none", "balanced", "complement"):
        config = {**LOOP, **SMALL[name], "class_weights": kind, "metric": "macro_f1", "loop.optim.lr": 1e-2}
        found[kind] = fit(name, tmp_path / "own.csv", out=tmp_path / kind, config=config)
        assert {"macro_f1", "roc_auc", "average_precision"} <= set(found[kind].metrics["test"])
    chances = {kind: run.predict()["score"].mean() for kind, run in found.items()}
    assert chances["balanced"] > chances["none"]
    assert set(found["none"].predict()["prediction"]) <= {"idle", "busy"}
    with pytest.raises(ConfigError, match="unknown metric 'macro_f'"):
        fit(name, tmp_path / "own.csv", out=tmp_path / "a", config={**LOOP, **SMALL[name], "metric": "macro_f"})
    table(0, 160).to_csv(tmp_path / "three.csv", index=False)
    with pytest.raises(ConfigError, match="average_precision is of two classes"):
        fit(
            name,
            tmp_path / "three.csv",
            out=tmp_path / "b",
            config={**LOOP, **SMALL[name], "metric": "average_precision"},
        )


@pytest.mark.parametrize("name", SMALL)
def test_outputs_of_nodes_at_any_time(name: str, runs: dict[str, Run], tmp_path: Path) -> None:
    run, last = runs[name], int(table(0, 160)["time"].iloc[-1])
    rng = np.random.default_rng(0)
    nodes = [f"u{i}" for i in range(9)] * 4
    times = rng.choice([last, last + 1, last + 50, 10 * last], 36)
    whole = run.node_outputs(nodes, times)
    columns = [column for column in whole if column.startswith("p_")]
    assert whole["node"].tolist() == nodes
    order = rng.permutation(36)
    mixed = hopstate.node_outputs(run.path, np.array(nodes)[order], times[order])
    assert np.array_equal(mixed[columns].to_numpy(), whole[columns].to_numpy()[order])
    for row in (0, 7, 20, 35):
        alone = run.node_outputs([nodes[row]], [times[row]])
        assert np.array_equal(alone[columns].to_numpy()[0], whole[columns].to_numpy()[row])
        event = pd.DataFrame({"source": [nodes[row]], "target": ["v0"], "time": [times[row]]})
        assert np.allclose(run.predict(event)[columns], alone[columns], rtol=0, atol=F32_TIGHT)
    assert len(np.unique(whole[columns[0]])) > 9  # node and time both count
    frame = pd.DataFrame({"node": nodes, "t": times})
    assert run.node_outputs(frame).equals(whole)
    with pytest.raises(TimeOrderError, match=f"node 'u1' is asked for at {last - 1}, .* up to {last}"):
        run.node_outputs(["u0", "u1"], [last, last - 1])
    with pytest.raises(DataError, match="'nobody'"):
        run.node_outputs(["nobody"], [last])
    score_stream(run.path, table(last + 5, 20), save=tmp_path / "state")
    after = hopstate.node_outputs(run.path, nodes, np.full(36, 10 * last), state=tmp_path / "state")
    before = run.node_outputs(nodes, np.full(36, 10 * last))
    assert not np.allclose(after[columns], before[columns])
    with pytest.raises(TimeOrderError):
        hopstate.node_outputs(run.path, nodes, np.full(36, last), state=tmp_path / "state")


def test_labels_that_are_no_classes_are_refused(tmp_path: Path) -> None:
    settings = {**LOOP, **SMALL["dyg-mamba-nodes"]}
    frame = table(0, 160)
    for label, said in (
        (np.arange(160), "160 different labels"),
        (np.full(160, 2), "only the class 2"),
        (np.full(160, 1), "only the class 1"),
        (np.array([f"note {i}" for i in range(160)]), "none was taken: column 'label' holds 160 different texts"),
        (np.where(np.arange(160) == 7, -3, np.arange(160) % 2), "event 7 has -3"),
        (np.full(160, -1), "no event has a label"),
        (np.where(np.arange(160) < 100, np.arange(160) % 2, -1), "no validation event has a label"),
    ):
        frame.assign(label=label).to_csv(tmp_path / "own.csv", index=False)
        with pytest.raises(DataError, match=said):
            fit("dyg-mamba-nodes", tmp_path / "own.csv", out=tmp_path / "run", config=settings)


def test_runs_of_links_have_no_outputs_of_nodes(tmp_path: Path) -> None:
    table(0, 160).to_csv(tmp_path / "own.csv", index=False)
    run = fit("recency", tmp_path / "own.csv", out=tmp_path / "run", config=LOOP)
    with pytest.raises(ConfigError, match="run of recency, which has no classes of nodes"):
        run.node_outputs(["u0"], [200])


def test_runs_that_noted_no_classes_stay_as_they_were(tmp_path: Path) -> None:
    """Run folders of 0.1.0: one logit, neither classes nor these settings noted."""
    table(0, 160, classes=(0, 1), known=1.0).to_csv(tmp_path / "own.csv", index=False)
    name = "dyg-mamba-nodes"
    run = fit(name, tmp_path / "own.csv", out=tmp_path / "run", config={**LOOP, **SMALL[name]})
    before = run.predict()
    for file, gone in (("data.json", ("target",)), ("config.json", ("metric", "class_weights"))):
        held = json.loads((run.path / file).read_text())
        (run.path / file).write_text(json.dumps({key: value for key, value in held.items() if key not in gone}))
    assert evaluate(run.path) == run.metrics["test"]
    assert run.predict().equals(before)


@pytest.mark.parametrize("name", SMALL)
def test_floors_are_the_shares_and_the_last_known_class(name: str, runs: dict[str, Run]) -> None:
    run = runs[name]
    assert set(run.floors) == {"majority", "last"}
    found = run.predict()
    rows = run.predict(split="test").index.size
    train, test = found[: -2 * rows], found[-rows:]
    most = train["label"].value_counts().index[0]
    known = test["label"].dropna()
    assert run.floors["majority"]["accuracy"] == pytest.approx((known == most).mean())
    last = []
    for _, row in test[test["label"].notna()].iterrows():
        before = found[(found["node"] == row["node"]) & (found["t"] < row["t"]) & found["label"].notna()]
        last.append((before["label"].iloc[-1] if len(before) else most) == row["label"])
    assert run.floors["last"]["accuracy"] == pytest.approx(np.mean(last))
