"""The table of a finished fit says what its figures are of."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hopstate.cli.fit import print_result
from hopstate.runs.api import Run, fit
from made_events import LOOP, small_run


def test_training_that_is_judged_by_a_sample_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    ends = pd.DataFrame({"source": rng.integers(0, 30, 200), "target": rng.integers(0, 30, 200)})
    ends.to_csv(tmp_path / "edges.csv", index=False)
    pd.DataFrame({"id": np.arange(30), "a": rng.normal(size=30)}).to_csv(tmp_path / "features.csv", index=False)
    graph = {"task": "link", "read.features": str(tmp_path / "features.csv"), "model.dim": 4}

    def told(run: Run) -> tuple[list[str], int]:
        capsys.readouterr()
        print_result(run)
        lines = capsys.readouterr().out.splitlines()
        result = json.loads((run.path / "result.json").read_text())
        return [line for line in lines if line.startswith("train: ")], result["metrics"]["train"].get("events", 0)

    lines, count = told(small_run("edgebank", tmp_path))
    assert count == 24
    assert lines == ["train: judged on 21.2% of the training events, the latest 24"]
    (line,), _ = told(fit("gcn", tmp_path / "edges.csv", out=tmp_path / "gcn", config={**LOOP, **graph}))
    assert line.endswith("% of the training links, a sample")
    whole = small_run("recency", tmp_path, **{"split.val_ratio": 0.4, "split.test_ratio": 0.4})
    assert told(whole)[0] == []
