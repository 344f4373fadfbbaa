"""Run folders that version 0.1.0 wrote (`runs_of_0_1_0`) open, and give what it gave.

`static` is a run of nagphormer, `history` one of dyg-mamba, `memory` one of ctdg-ssm, each of two epochs on the files
in `data`; `evaluated.json` and `predicted.csv` are what that version's `evaluate` and `predict --split test` printed.
`settings.json` holds every setting of every method with its default then. "DATA" stands for the folder of the files.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.cli.main import main
from hopstate.errors import ConfigError, HopstateWarning
from hopstate.methods import get_method
from hopstate.methods.settings import config_from, with_earlier
from hopstate.ops.threads import one_thread
from hopstate.testing.asserts import F32_TIGHT
from hopstate.training.renamed import todays_metrics, with_todays_names
from hopstate.training.run_folder import RunFolder, flatten

OLD = Path(__file__).with_name("runs_of_0_1_0")
SETTINGS = json.loads((OLD / "settings.json").read_text("utf-8"))
RUNS = ("static", "history", "memory")


@pytest.fixture
def opened(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of one of the run folders that finds its data."""
    run = tmp_path / request.param
    shutil.copytree(OLD / request.param, run)
    config = run / "config.json"
    config.write_text(config.read_text("utf-8").replace("DATA", (OLD / "data").as_posix()), "utf-8")
    return run


def test_they_are_small():
    assert sum(file.stat().st_size for file in OLD.rglob("*") if file.is_file()) < 200_000


@pytest.mark.parametrize("opened", RUNS, indirect=True)
def test_they_give_what_they_gave(opened: Path):
    told = json.loads((opened / "evaluated.json").read_text("utf-8"))
    assert told.pop("split") == "test"
    told = todays_metrics(told)
    rows = pd.read_csv(opened / "predicted.csv")
    former = pytest.warns(HopstateWarning, match=r"loop\.products is called loop\.matmul_precision now")
    with former, one_thread():
        found = hopstate.evaluate(opened, device="cpu")
    with former, one_thread():
        predicted = hopstate.predict(opened, split="test", device="cpu")
    counts = {name for name in found.keys() - told.keys() if name.endswith("events")}  # which it did not tell yet
    assert {name: found[name] for name in found.keys() - counts} == pytest.approx(told, abs=F32_TIGHT)
    assert list(predicted.columns) == list(rows.columns)
    for name in rows.columns:
        if rows[name].dtype.kind == "f":
            np.testing.assert_allclose(predicted[name], rows[name], atol=F32_TIGHT)
        else:
            assert predicted[name].astype(str).tolist() == rows[name].astype(str).tolist()


@pytest.mark.parametrize("opened", ["memory"], indirect=True)
@pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")
def test_one_goes_on_where_it_stopped(opened: Path):
    events = opened / "again.yaml"
    config = json.loads((opened / "config.json").read_text("utf-8"))
    config["loop"] |= {"epochs": 3, "patience": 3}
    method, data = config.pop("method"), config.pop("data")
    events.write_text(json.dumps(config), "utf-8")  # its own settings, by their former names
    told = (opened / "metrics.csv").read_text("utf-8").splitlines()
    words = ["fit", method, "--data", data, "--config", str(events), "--resume", "--out", str(opened)]
    events.rename(opened.parent / "again.yaml")
    words[words.index(str(events))] = str(opened.parent / "again.yaml")
    assert main(words) == 0
    rows = (opened / "metrics.csv").read_text("utf-8").splitlines()
    assert len(rows) == len(told) + 1
    assert [row.split(",")[0] for row in rows[1:]] == ["1", "2", "3"]
    assert "val_average_precision,val_roc_auc" in rows[0]
    assert "val_ap" not in rows[0]  # the rows that were there have today's names too
    stored = RunFolder(opened).read_json("config.json")
    assert stored["tbptt_window"] == config["truncate"] == 2
    assert stored["loop"]["matmul_precision"] == "highest"
    with pytest.raises(ConfigError, match=r"tbptt_window=2, now 5"):
        hopstate.fit(method, data, out=opened, resume=True, tbptt_window=5)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_of_that_version_is_read(name: str):
    method, then = get_method(name), SETTINGS[name]
    with pytest.warns(HopstateWarning, match=r"loop\.matmul_precision"):
        today = with_todays_names(then, "settings")
    now = flatten(config_from(method, with_earlier(method, today)))
    kept = {k: v for k, v in flatten(today).items() if k != "data"}
    assert {k: json.loads(json.dumps(now[k])) for k in kept} == kept
