"""RelBench's prediction tables and metrics, compared with the package if it is installed."""

import numpy as np
import pandas as pd
import pytest

from hopstate.errors import DataError
from hopstate.evaluation.relbench import mean_average_precision, normalized_mae, roc_auc, write_prediction_table


class Task:
    """A fake RelBench task with the attributes that `relbench.submit` reads."""

    time_col, entity_col, target_col = "date", "driverId", "position"
    src_entity_col, dst_entity_col = "driverId", "circuitId"

    def __init__(self, kind, keys):
        self.task_type, self.keys = kind, keys

    def get_table(self, split, mask_input_cols):
        class Table:
            df = self.keys

            def __len__(self):
                return len(self.df)

        return Table()


@pytest.fixture
def keys():
    days = pd.to_datetime(["2010-01-01", "2010-01-01", "2010-03-02"])
    return pd.DataFrame({"driverId": [5, 2, 5], "date": days}, index=[7, 8, 9])


@pytest.mark.parametrize("kind", ["BINARY_CLASSIFICATION", "REGRESSION", "RECOMMENDATION"])
def test_a_prediction_table_is_byte_identical_to_relbenchs(kind, keys, tmp_path):
    submit = pytest.importorskip("relbench.submit", reason="relbench is not installed")
    from relbench.base import TaskType

    lists = kind == "RECOMMENDATION"
    predictions = np.array([[3, 1], [0, 2], [1, -1]]) if lists else np.array([0.25, 1e-7, 0.123456789])
    submit.write_prediction_table(Task(getattr(TaskType, kind), keys), predictions, tmp_path / "theirs.csv")
    path = write_prediction_table(keys, "circuitId" if lists else "position", predictions, tmp_path / "a" / "ours.csv")
    assert path.read_bytes() == (tmp_path / "theirs.csv").read_bytes()


def test_predictions_that_a_leaderboard_rejects_are_rejected(keys, tmp_path):
    with pytest.raises(DataError):
        write_prediction_table(keys, "position", [1, 2], tmp_path / "a.csv")
    with pytest.raises(DataError, match="row 1"):
        write_prediction_table(keys, "position", [1, np.nan, 2], tmp_path / "a.csv")
    with pytest.raises(DataError, match="row 1"):
        write_prediction_table(keys.iloc[[0, 0, 1]], "position", [1, 2, 3], tmp_path / "a.csv")
    assert not (tmp_path / "a.csv").exists()


def test_metrics_equal_relbenchs():
    metrics = pytest.importorskip("relbench.metrics", reason="relbench is not installed")
    rng = np.random.default_rng(0)
    for _ in range(20):
        truth, score = rng.integers(0, 2, 50), rng.integers(0, 9, 50) / 9
        assert roc_auc(truth, score) == pytest.approx(metrics.roc_auc(truth, score))
        hit, count = rng.random((30, 10)) < 0.2, rng.integers(0, 15, 30)
        count = np.where(count > 0, np.maximum(count, hit.sum(1)), 0)
        assert mean_average_precision(hit, count) == pytest.approx(metrics.map(hit, count))
        y, pred, train = rng.normal(size=40), rng.normal(size=40), rng.normal(size=70)
        theirs = metrics.make_nmae(lambda train=train: pd.Series(train).std())(y, pred)
        assert normalized_mae(y, pred, train) == pytest.approx(theirs)
    with pytest.raises(DataError):
        mean_average_precision(np.zeros((2, 3), bool), np.zeros(2, int))
    with pytest.raises(DataError):
        normalized_mae(np.ones(2), np.ones(2), np.ones(5))
    with pytest.raises(DataError):
        normalized_mae(np.ones(2), np.ones(1), np.arange(3))
