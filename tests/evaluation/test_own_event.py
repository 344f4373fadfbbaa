"""Few destinations: a random negative is often the event itself, which is reported and biases no probability."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hopstate.cli.main import main
from hopstate.data.events import EventStream
from hopstate.data.splits import chronological_split
from hopstate.evaluation.link import LinkScores, evaluate_link
from hopstate.methods.heuristics.edgebank import EdgeBank
from hopstate.runs.run import load
from made_events import LOOP, SMALL

LEAST = 0.95  # probability of a trip that always occurs, among trips that never do


def drops(trips: int = 1000) -> pd.DataFrame:
    """Return trips of 40 vans, each of which always goes to the same one of 5 depots."""
    van = np.arange(trips) % 40
    columns = {"source": [f"van-{i:02d}" for i in van], "target": [f"depot-{i % 5}" for i in van]}
    return pd.DataFrame({**columns, "time": np.arange(trips)})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("few") / "drops.csv"
    drops().to_csv(path, index=False)
    return path


def options(method: str, data: Path, out: Path) -> list[str]:
    settings = {f"loop.{name}": value for name, value in LOOP["loop"].items()} | SMALL[method]
    settings |= {"data": data, "out": out, "evaluation.strategies": "[random,ranking]", "loop.epochs": 3}
    return [
        "fit",
        method,
        "--no-auto",
        *(word for name, value in settings.items() for word in (f"--{name}", f"{value}")),
    ]


@pytest.mark.parametrize("method", ["pair-trees", pytest.param("dygformer", marks=pytest.mark.slow)])
def test_fit_evaluate_and_report_name_the_share_and_probabilities_are_not_biased(
    method: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options(method, data, tmp_path / "run")) == 0
    run = load(tmp_path / "run")
    found = run.metrics["test"]
    share = found["collision_rate"]
    assert share == pytest.approx(1 / 5, abs=0.08)
    assert found["average_precision"] == pytest.approx(1 / (1 + share), abs=0.02)
    assert found["mrr"] == 1.0  # no candidate is the event itself
    assert not any(name.startswith("ranking") for name in found)
    note = f"{share:.0%} of random negatives"
    assert note in capsys.readouterr().out
    assert main(["evaluate", str(run.path)]) == 0
    assert note in capsys.readouterr().err
    assert main(["report", str(run.path), "--out", str(tmp_path / "report.html")]) == 0
    assert note in (tmp_path / "report.html").read_text()
    probability = run.score([("van-00", "depot-0"), ("van-00", "depot-1")])["probability"]
    assert probability[0] > LEAST
    assert probability[1] < 1 - LEAST
    assert found["ece"] < share / 2  # about share if such negatives counted


class Oracle(EdgeBank):
    """Knows which depot a van goes to."""

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        return (dst == 40 + src % 5).astype(np.float64)


def test_reliability_uses_negatives_other_than_the_event() -> None:
    van = np.arange(1000) % 40
    stream = EventStream(src=van, dst=40 + van % 5, t=np.arange(1000), num_nodes=45)
    splits = chronological_split(stream)
    found = evaluate_link(Oracle(45), stream, splits, strategies=("random", "historical"))
    row, own = found.rows[0], found.scores["test", "random"]
    assert row["collision_rate"] == own.collisions.mean() == (own.negative == 1).mean()
    assert (row["ece"], row["brier"]) == (0, 0)
    assert "collision_rate" not in found.rows[1]


def test_scores_skip_negatives_equal_to_their_event() -> None:
    own = np.array([True, False, False, True])
    scores = LinkScores(
        rows=np.array([3, 5, 6]),
        positive=np.ones(3),
        negative=np.arange(4.0),
        offsets=np.array([0, 1, 3, 4]),
        collisions=own,
    )
    found = scores.without_collisions()
    assert (found.negative.tolist(), found.offsets.tolist()) == ([1, 2], [0, 0, 2, 2])
    assert found.without_collisions() is found
