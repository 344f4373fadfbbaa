"""The card of a saved model agrees with the run's files, and so does its YAML header."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

import hopstate
from hopstate.runs.hub import model_card
from hopstate.runs.run import fit
from hopstate.runs.saved_run import SavedRun
from made_events import LOOP, small_run, table
from made_tables import tables


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("card")
    return small_run("recency", home, table(0, 120), evaluation={"bootstrap": 20}).save_pretrained(home / "saved")


def test_the_header_is_yaml_with_the_test_metrics(saved: Path) -> None:
    _, head, body = (saved / "README.md").read_text("utf-8").split("---\n", 2)
    facts = yaml.safe_load(head)
    result = json.loads((saved / "result.json").read_text())
    metrics = facts["model-index"][0]["results"][0]["metrics"]
    assert {metric["type"]: metric["value"] for metric in metrics} == result["metrics"]["test"]
    assert facts["library_name"] == "hopstate"
    assert "recency" in body.strip().splitlines()[0]


def test_the_card_contains_intervals_protocol_and_settings(saved: Path) -> None:
    card = (saved / "README.md").read_text("utf-8")
    test = json.loads((saved / "result.json").read_text())["metrics"]["test"]
    low, high = test["average_precision_low"], test["average_precision_high"]
    assert f"{test['average_precision']:.4f} [{low:.4f}, {high:.4f}]" in card
    for part in ("chronological", '"bootstrap": 20'):
        assert part in card


@pytest.mark.parametrize("kind", ["graph", pytest.param("events", marks=pytest.mark.slow)])
def test_a_card_of_a_node_run_has_intervals_by_default(kind: str, tmp_path: Path) -> None:
    if kind == "graph":
        edges, features, labels = tables()
        run = fit("mlp", edges, features=features, labels=labels, out=tmp_path / "run", loop=LOOP["loop"])
    else:
        events = table(0, 160)
        events = events.assign(label=(events["src"] < "u5").astype(int))
        run = fit("ctdg-ssm-nodes", events, out=tmp_path / "run", loop=LOOP["loop"])
    metric = json.loads((run.path / "result.json").read_text())["metric"]
    low, high = json.loads((run.path / "curves.json").read_text())["intervals"][metric]
    assert not [name for name in run.metrics["test"] if name.endswith(("_low", "_high"))]
    saved = run.save_pretrained(tmp_path / "saved")
    row = f"{run.metrics['test'][metric]:.4f} [{low:.4f}, {high:.4f}]"
    assert row in (saved / "README.md").read_text("utf-8")
    again = hopstate.from_pretrained(saved, out=tmp_path / "again").save_pretrained(tmp_path / "twice")
    assert row in (again / "README.md").read_text("utf-8")


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_verdict_depends_on_the_baselines(saved: Path, tmp_path: Path, mode: str) -> None:
    """Higher is better in one mode, lower in the other: the same distance gives the same verdict."""
    assert verdict(saved, tmp_path, mode, 0.2) != verdict(saved, tmp_path, mode, 0.9)
    assert verdict(saved, tmp_path, mode, 0.6) == verdict(saved, tmp_path, mode, 0.9)
    assert verdict(saved, tmp_path, mode, 0.9) == verdict(saved, tmp_path, "max", 0.9)


def verdict(saved: Path, tmp_path: Path, mode: str, value: float) -> list[str]:
    """Return the lines of a card that name the baseline, without numbers."""
    for file in saved.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    result = json.loads((saved / "result.json").read_text())
    sign = 1 if mode == "max" else -1
    result["metrics"]["test"][result["metric"]] = sign * value
    (tmp_path / "result.json").write_text(json.dumps(result | {"mode": mode}))
    (tmp_path / "baselines.json").write_text(json.dumps({"recency": {result["metric"]: sign * 0.5}}))
    return [
        re.sub(r"-?\d[\d.]*", "", line)
        for line in model_card(SavedRun(tmp_path), ids=False).splitlines()
        if "baseline" in line or "recency" in line
    ]
