"""`predict` on a file of later events, for every temporal method: the history of the run is known, as in `stream`."""

import gc
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import made_events
from hopstate.cli.main import main
from hopstate.data.readers.read_events import read_events
from hopstate.errors import ConfigError, HopstateWarning, TimeOrderError
from hopstate.runs.run import Run, evaluate, fit, load, predict, score_stream
from hopstate.testing.conformance import F32, F32_SUM, F32_TIGHT
from made_events import LOOP, RANDOM

QUICK = ("recency", "ctdg-ssm-nodes")
SMALL: dict[str, dict[str, Any]] = {
    **made_events.SMALL,
    "dyg-mamba-nodes": made_events.SMALL["dyg-mamba"],
    "ctdg-ssm-nodes": {"model.dim": 6, "model.time_dim": 4},
}
near = partial(np.testing.assert_allclose, rtol=F32, atol=F32_TIGHT)
EVALUATION = {**RANDOM, "evaluation.batch_size": 16}
READ = {"read.time_column": "when", "read.edge_columns": ["amount"]}


def table(first: int, count: int, people: int = 10) -> pd.DataFrame:
    found = made_events.table(first, count, seed=7, people=people, amount=True)
    state = np.random.default_rng([8, first]).integers(0, 2, count)
    return found.set_axis(["source", "target", "when", "amount"], axis=1).assign(state=state)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run_of(home: Path) -> Callable[[str], Run]:
    """Return a run of a method on 160 events, trained on first use."""
    table(0, 160).to_csv(home / "own.csv", index=False)

    @cache
    def found(name: str) -> Run:
        more: dict[str, Any] = {"read.label_column": "state"} if name.endswith("nodes") else EVALUATION
        return fit(name, home / "own.csv", out=home / name, config={**LOOP, **SMALL[name], **READ, **more})

    return found


RunOf = Callable[[str], Run]


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SMALL])
def test_later_events_are_scored_after_the_training_data(name: str, run_of: RunOf, tmp_path: Path) -> None:
    """Files of five and sixty rows, read with the run's options, agree with `stream` and with one file."""
    run = run_of(name)
    later = table(200, 60)
    (later if "nodes" not in name else later.drop(columns="state")).to_csv(tmp_path / "later.csv", index=False)
    found = run.predict(tmp_path / "later.csv")["score"]
    near(score_stream(run.path, later, ignore_state=True, save=tmp_path / "state")["score"], found)
    near(run.predict(later[:5])["score"], found[:5])
    pd.concat([table(0, 160), later]).to_csv(tmp_path / "both.csv", index=False)
    near(predict(run.path, data=tmp_path / "both.csv", cold_start=True)["score"][160:], found)
    cold = predict(run.path, data=later, cold_start=True)["score"]
    assert len(cold) == 60
    assert np.abs(cold - found).max() > 1e-4


def test_recency_knows_pairs_of_the_training_data(run_of: RunOf) -> None:
    """Without the run's history, three quarters of them would be new pairs."""
    known = table(0, 160)[40:100].assign(when=300)
    assert (run_of("recency").predict(known)["score"] > -50).all()
    assert (predict(run_of("recency").path, data=known, cold_start=True)["score"] < -50).all()
    assert (run_of("edgebank").predict(known)["score"] == 1).all()


@pytest.mark.parametrize("name", ["recency", pytest.param("dyg-mamba", marks=pytest.mark.slow)])
def test_scores_equal_those_of_the_evaluation_of_one_file(name: str, tmp_path: Path) -> None:
    """The test split of a run on both, scored by that run from its first part only."""
    both = pd.concat([table(0, 160), table(200, 60)])
    both.to_csv(tmp_path / "both.csv", index=False)
    settings = {**LOOP, **SMALL[name], **READ, "evaluation.strategies": ["random"], "split.kind": "time"}
    times = {"split.val_time": 90, "split.test_time": 199}
    whole = fit(name, tmp_path / "both.csv", out=tmp_path / "whole", config={**settings, **times})
    part = fit(name, tmp_path / "both.csv", out=tmp_path / "part", config={**settings, **times})
    assert whole.metrics == part.metrics
    test = whole.predict(split="test")
    table(0, 160).to_csv(tmp_path / "both.csv", index=False)  # a shorter history, the same weights
    with pytest.warns(HopstateWarning, match="both"):
        later = predict(part.path, data=table(200, 60))
    near(later["score"], test["score"])


def test_new_ids_are_named(run_of: RunOf, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    later = table(200, 5).assign(source=["u1", "zoe", "u2", "yan", "zoe"])
    with pytest.warns(HopstateWarning, match="yan"):
        assert len(run_of("recency").predict(later)) == 5
    later.to_csv(tmp_path / "tomorrow.csv", index=False)
    command = ["predict", str(run_of("recency").path), "--data", str(tmp_path / "tomorrow.csv")]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main([*command, "--out", str(tmp_path / "p.csv")]) == 0
    assert "zoe" in capsys.readouterr().err
    assert main([*command, "--cold-start", "--out", str(tmp_path / "p.csv")]) == 0
    assert "zoe" not in capsys.readouterr().err
    assert len(pd.read_csv(tmp_path / "p.csv")) == 5


def test_events_that_are_not_later_are_rejected_with_a_remedy(run_of: RunOf) -> None:
    run = run_of("recency")
    with pytest.raises(TimeOrderError, match=r"50.*106"):
        run.predict(table(50, 20))
    with pytest.raises(ConfigError, match="split"):
        run.predict(table(200, 20), split="test")
    assert len(run.predict(table(0, 60), split="test", cold_start=True)) > 0
    assert not (run.path / "state").exists()


def test_the_training_file_is_recognized(run_of: RunOf) -> None:
    run = run_of("ctdg-ssm-nodes")
    one, other = load(run.path).predict(table(0, 160), split="test"), run.predict(split="test")
    near(one["score"], other["score"])
    # its columns need not be given again
    assert evaluate(run.path, data=table(0, 160)) == pytest.approx(run.metrics["test"], abs=F32_SUM)


@pytest.mark.slow
def test_a_run_of_objects_needs_its_history_again(tmp_path: Path) -> None:
    own = read_events(table(0, 160), time_column="when", edge_columns=["amount"])
    later = read_events(table(200, 20), time_column="when", edge_columns=["amount"])
    config = {**LOOP, "evaluation.strategies": ["random"]}
    run = fit("recency", own, out=tmp_path / "run", config=config, keep_data=False)
    assert len(run.predict(later)) == 20  # while the object exists
    kept = fit("recency", read_events(table(0, 160), time_column="when", edge_columns=["amount"]), config=config,
               out=tmp_path / "kept")  # fmt: skip
    near(kept.predict(later)["score"], run.predict(later)["score"])
    run, copy = replace(run, record=None), own.with_(name="copy")
    del own
    gc.collect()  # a process finds the object as long as it is referenced, also by cycles
    with pytest.raises(ConfigError, match=r"hopstate\.load"):
        run.predict(later)
    own = copy
    assert len(load(run.path, data=own).predict(later)) == 20
    assert len(run.predict(later, cold_start=True)) == 20
    assert len(run.predict(own, split="test")) > 0


@pytest.mark.parametrize("change", ["changed", pytest.param("grown", marks=pytest.mark.slow)])
def test_a_warning_names_data_that_changed_after_training(change: str, tmp_path: Path) -> None:
    own = table(0, 160)
    own.to_csv(tmp_path / "own.csv", index=False)
    run = fit("recency", tmp_path / "own.csv", out=tmp_path / "run", config={**LOOP, **READ, **EVALUATION})
    assert len(run.predict(table(200, 20))) == 20  # no warning: it is known
    other = table(0, 170) if change == "grown" else own.assign(amount=own["amount"] + (own.index == 3))
    other.to_csv(tmp_path / "own.csv", index=False)
    with pytest.warns(HopstateWarning, match=r"own\.csv"):
        assert len(run.predict(table(200, 20))) == 20
    with pytest.warns(HopstateWarning, match=r"own\.csv"):
        run.stream(table(200, 20))
    assert len(run.stream(table(300, 20))) == 20  # continues from the saved state


@pytest.mark.parametrize("name", ["ctdg-ssm-nodes", pytest.param("ctdg-ssm", marks=pytest.mark.slow)])
def test_other_events_are_evaluated_without_history_only_on_request(
    name: str, run_of: RunOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(200, 60).to_csv(tmp_path / "later.csv", index=False)
    with pytest.raises(ConfigError, match="later"):
        run_of(name).evaluate(tmp_path / "later.csv")
    found = run_of(name).evaluate(tmp_path / "later.csv", cold_start=True)
    assert main(["evaluate", str(run_of(name).path), "--data", str(tmp_path / "later.csv"), "--cold-start"]) == 0
    assert f'"{next(iter(found))}"' in capsys.readouterr().out
