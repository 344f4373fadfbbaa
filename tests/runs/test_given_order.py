"""Results have the order and the index of the given table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.errors import HopstateWarning
from hopstate.runs.run import Run

QUIET = {"progress": False, "logger": "none"}
NEW = pd.DataFrame(
    {
        "source": ["van-01", "van-02", "van-03", "van-04"],
        "target": ["depot-1", "depot-4", "depot-3", "depot-4"],
        "time": [3000, 2500, 2700, 2500],
    }
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    rows = [(f"van-{i % 40:02d}", f"depot-{i % 40 % 5}", i) for i in range(400)]
    drops = pd.DataFrame(rows, columns=["source", "target", "time"])
    return hopstate.fit("recency", drops, loop=QUIET, out=tmp_path_factory.mktemp("drops") / "run")


@pytest.mark.filterwarnings("ignore::hopstate.errors.HopstateWarning")
@pytest.mark.parametrize("index", [[7, 3, 5, 4], list("abcd"), [1, 1, 0, 0], pd.MultiIndex.from_tuples([(1, 2)] * 4)])
def test_tables_keep_order_and_index(run: Run, index: object) -> None:
    new = NEW.set_axis(index, axis=0)  # type: ignore[call-overload]
    sorted_ = run.predict(NEW.sort_values("time", kind="stable"))
    for found in (run.predict(new), run.stream(new, ignore_state=True, save=run.path / "other")):
        assert found.index.equals(new.index)
        assert found.src.tolist() == NEW.source.tolist()
        assert found.t.tolist() == NEW.time.tolist()
        assert found.score.tolist() == sorted_.score.loc[[0, 1, 2, 3]].tolist()
    assert run.score(new, 5000).index.equals(new.index)


def test_files_keep_order(run: Run, tmp_path: Path) -> None:
    NEW.to_csv(tmp_path / "new.csv", index=False)
    NEW.to_parquet(tmp_path / "new.parquet")
    for name in ("new.csv", "new.parquet"):
        with pytest.warns(HopstateWarning, match="sorted"):
            run.predict(tmp_path / name, out=tmp_path / "scores.csv")
        assert pd.read_csv(tmp_path / "scores.csv").src.tolist() == NEW.source.tolist()


@pytest.mark.filterwarnings("ignore::hopstate.errors.HopstateWarning")
def test_rows_without_a_score_keep_their_position(run: Run) -> None:
    new = NEW.assign(kind=["add", "add", "delete", "add"], time=[3000, 2500, 3200, None])
    new.loc[2, ["source", "target"]] = ["van-01", "depot-1"]
    new.index = list("wxyz")
    found = run.predict(new, read={"drop_missing_time": True})
    assert found.index.tolist() == list("wxyz")
    assert found.score.notna().tolist() == [True, True, False, False]
    assert found.src.tolist()[:3] == ["van-01", "van-02", "van-01"]
    assert found.t.tolist()[:3] == [3000, 2500, 3200]
    assert pd.isna(found.src.iloc[3])


@pytest.mark.filterwarnings("ignore::hopstate.errors.HopstateWarning")
def test_single_rows_and_dicts_of_columns(run: Run) -> None:
    one = {"source": ["van-01"], "target": ["depot-1"], "time": [3000]}
    assert run.predict(one).score.tolist() == run.predict(NEW.iloc[[0]]).score.tolist()
    assert len(run.score(one)) == 1


def test_filtered_pairs_keep_their_index(run: Run) -> None:
    pairs = pd.DataFrame({"source": ["van-00", "van-01", "van-02"], "target": ["depot-0", "depot-1", "depot-4"]})
    whole, part = run.score(pairs).probability, pairs[pairs.source != "van-00"]
    assigned = part.assign(p=run.score(part).probability).p
    assert assigned.index.tolist() == [1, 2]
    np.testing.assert_allclose(assigned, whole[1:])


@pytest.mark.filterwarnings("ignore::hopstate.errors.HopstateWarning")
def test_predictions_follow_the_order_of_the_training_file(tmp_path: Path) -> None:
    rows = [(f"van-{i % 40:02d}", f"depot-{i % 40 % 5}", i) for i in range(400)]
    drops = pd.DataFrame(rows, columns=["source", "target", "time"]).iloc[::-1].reset_index(drop=True)
    run = hopstate.fit("recency", drops, loop=QUIET, out=tmp_path / "run")
    assert run.predict(split="test").t.is_monotonic_decreasing
    again = run.predict(drops, split="test")
    assert (drops.time[again.index] == again.t).all()
