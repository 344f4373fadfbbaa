"""Reliability curves: what runs store, and how a report shows it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from test_report import make_run, table

import hopstate
from hopstate.errors import CheckpointError
from hopstate.evaluation import summaries
from hopstate.evaluation.calibration import calibration, fit_isotonic
from hopstate.evaluation.link import LinkReport, LinkScores
from hopstate.runs.report import write_report
from hopstate.training.run_folder import RunFolder, load_curves

BINS = {"target": "random negatives", "prob_pred": [0.2, 0.9], "prob_true": [0.1, 0.8], "count": [30, 10], "brier": 0.1}


def keep(folder: Path, **found: list) -> None:
    (folder / "curves.json").write_text(json.dumps(found))


def test_test_scores_use_the_calibration_of_validation() -> None:
    rng = np.random.default_rng(0)

    def scored(count: int) -> LinkScores:
        positive, negative = rng.beta(2, 6, count), rng.beta(1, 12, count)  # strongly underconfident
        return LinkScores(rows=np.arange(count), positive=positive, negative=negative, offsets=np.arange(count + 1))

    truth, scores = scored(4000).pooled()
    curve = fit_isotonic(scores, truth.astype(float), "random")
    test = scored(3000)
    y, p = test.pooled()
    report = LinkReport(rows=[], scores={("test", "random"): test}, reliability={("test", "random"): calibration(y, p)})
    before, after = summaries.link_curves(report, "test", curve)["reliability"]
    assert (before["calibration"], after["calibration"]) == (summaries.TRAINED, summaries.FITTED)
    assert before["ece"] > 0.2 > 0.05 > after["ece"]
    assert after["ece"] == pytest.approx(calibration(y, curve(p)).ece)
    assert sum(after["count"]) == 6000
    (only,) = summaries.link_curves(report, "test", None)["reliability"]
    assert only["calibration"] == summaries.TRAINED


def test_calibration_of_classes_uses_the_most_likely_class() -> None:
    p = np.array([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4], [0.5, 0.5]])
    found = summaries.class_reliability(p, np.array([0, 0, -1, 5]))
    assert found is not None
    assert sum(found["count"]) == 3  # one label is missing; one class is unknown to the model
    assert found["ece"] == pytest.approx((0.1 + 0.7 + 0.5) / 3)
    assert summaries.class_reliability(p, np.full(4, -1)) is None


def test_runs_store_short_curves_and_reports_draw_them(tmp_path: Path) -> None:
    graph = hopstate.load_dataset("sbm", num_nodes=120)
    run = hopstate.fit("mlp", graph, out=tmp_path / "run", loop={"epochs": 2, "progress": False})
    kept = load_curves(RunFolder.open(run.path))
    assert 0 < sum(kept["reliability"][0]["count"]) < 120
    assert (run.path / "curves.json").stat().st_size < 4_000
    page = write_report([run.path], tmp_path / "r.html")
    words = page.read_text()
    assert "Calibration</h2>" in words


def test_curves_are_means_over_runs(tmp_path: Path) -> None:
    for seed, shift in enumerate((0.0, 0.2)):
        make_run(tmp_path / f"runs/{seed}", "dyg-mamba", "uci", {"mrr": 0.3}, seed=seed)
        bins = [BINS | {"calibration": how, "ece": 0.1 + shift} for how in summaries.CALIBRATIONS[:2]]
        keep(tmp_path / f"runs/{seed}", reliability=bins)
    make_run(tmp_path / "runs/old", "gcn", "uci", {"mrr": 0.3})  # without curves
    page = write_report([tmp_path / "runs"], tmp_path / "r.html")
    rows = table(page, "Calibration on uci")[1:]
    assert [row[2:] for row in rows] == [[how, "20.00", "80"] for how in summaries.CALIBRATIONS[:2]]


@pytest.mark.parametrize(
    "change",
    [
        {"count": [1]},
        {"prob_true": [0.2, "x"]},
        {"prob_true": [0.2, 3]},
        {"target": 3},
        {"count": None},
        {"ece": float("nan")},
    ],
)
def test_damaged_curves_are_named(tmp_path: Path, change: dict) -> None:
    make_run(tmp_path / "run", "gcn", "uci", {"mrr": 0.3})
    keep(tmp_path / "run", reliability=[BINS | {"calibration": "as trained", "ece": 0.1} | change])
    with pytest.raises(CheckpointError, match=r"curves\.json"):
        write_report([tmp_path / "run"], tmp_path / "r.html")
