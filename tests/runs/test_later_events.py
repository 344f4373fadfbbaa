"""`predict` on a file of later events, for every temporal method: the run's past is known, as `stream` knows it."""

import gc
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import made_events
from hopstate.cli.main import main
from hopstate.errors import ConfigError, HopstateWarning, TimeOrderError
from hopstate.runs.api import Run, evaluate, fit, open_run, predict, score_stream
from hopstate.testing.asserts import F32_TIGHT
from made_events import LOOP, RANDOM

HISTORY = {"model.channel_dim": 4, "model.time_dim": 8}
SMALL: dict[str, dict[str, Any]] = {
    **{name: made_events.SMALL[name] for name in ("recency", "pair-trees", "edgebank", "graphmixer")},
    "dygformer": {**HISTORY, "model.num_layers": 1, "model.max_length": 6},
    "dyg-mamba": {**HISTORY, "model.out_dim": 12, "history.max_length": 6},
    "dyg-mamba-nodes": {**HISTORY, "model.out_dim": 12, "history.max_length": 6},
    "ctdg-ssm": {"model.dim": 6, "model.time_dim": 4},
    "ctdg-ssm-nodes": {"model.dim": 6, "model.time_dim": 4},
}
EVALUATION = {**RANDOM, "evaluation.batch_size": 16}
READ = {"read.time_column": "when", "read.edge_columns": ["amount"]}


def table(first: int, count: int, people: int = 10) -> pd.DataFrame:
    found = made_events.table(first, count, seed=7, people=people, amount=True)
    state = np.random.default_rng([8, first]).integers(0, 2, count)
    return found.set_axis(["source", "target", "when", "amount"], axis=1).assign(state=state)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of each method on 160 events."""
    home = tmp_path_factory.mktemp("runs")
    table(0, 160).to_csv(home / "own.csv", index=False)
    found = {}
    for name, settings in SMALL.items():
        nodes = name.endswith("nodes")
        more: dict[str, Any] = {"read.label_column": "state"} if nodes else EVALUATION
        found[name] = fit(name, home / "own.csv", out=home / name, config={**LOOP, **settings, **READ, **more})
    return found


@pytest.mark.parametrize("name", SMALL)
def test_later_events_are_scored_from_the_runs_past(name: str, runs: dict[str, Run], tmp_path: Path) -> None:
    """A file of five rows and one of sixty, read as the run's own: what `stream` gives, and what one file gives."""
    run = runs[name]
    later = table(200, 60)
    (later if "nodes" not in name else later.drop(columns="state")).to_csv(tmp_path / "later.csv", index=False)
    found = run.predict(tmp_path / "later.csv")
    assert found["score"].equals(score_stream(run.path, later, fresh=True, save=tmp_path / "state")["score"])
    assert run.predict(later[:5])["score"].equals(found["score"][:5])
    pd.concat([table(0, 160), later]).to_csv(tmp_path / "both.csv", index=False)
    both = predict(run.path, data=tmp_path / "both.csv", fresh=True)
    assert np.allclose(found["score"], both["score"][160:], rtol=0, atol=F32_TIGHT)
    alone = predict(run.path, data=later, fresh=True)
    assert len(alone) == 60
    assert np.abs(alone["score"] - found["score"]).max() > 1e-4
    assert alone["score"].equals(predict(run.path, data=tmp_path / "later.csv", fresh=True)["score"])


def test_known_pairs_are_known_to_recency(runs: dict[str, Run]) -> None:
    """Three quarters of them had "never met" where the past was dropped."""
    known = table(0, 160)[40:100].assign(when=300)
    assert (runs["recency"].predict(known)["score"] > -50).all()
    assert (predict(runs["recency"].path, data=known, fresh=True)["score"] < -50).all()
    assert (runs["edgebank"].predict(known)["score"] == 1).all()


@pytest.mark.parametrize("name", ["recency", "dygformer", "dyg-mamba", "graphmixer"])
def test_scores_are_those_behind_the_evaluation_of_one_file(name: str, runs: dict[str, Run], tmp_path: Path) -> None:
    """The test split of a run on both, scored by that run from its first part alone."""
    both = pd.concat([table(0, 160), table(200, 60)])
    both.to_csv(tmp_path / "both.csv", index=False)
    settings = {**LOOP, **SMALL[name], **READ, "evaluation.strategies": ["random"], "split.kind": "time"}
    times = {"split.val_time": 90, "split.test_time": 199}
    whole = fit(name, tmp_path / "both.csv", out=tmp_path / "whole", config={**settings, **times})
    part = fit(name, tmp_path / "both.csv", out=tmp_path / "part", config={**settings, **times})
    assert whole.metrics == part.metrics
    test = whole.predict(split="test")
    table(0, 160).to_csv(tmp_path / "both.csv", index=False)  # the past is shorter, the weights are the same
    with pytest.warns(HopstateWarning, match="is not what this run was trained on"):
        later = predict(part.path, data=table(200, 60))
    assert np.allclose(later["score"], test["score"], rtol=0, atol=F32_TIGHT)


def test_new_ids_are_named(runs: dict[str, Run], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    later = table(200, 5).assign(source=["u1", "zoe", "u2", "yan", "zoe"])
    for name in ("recency", "ctdg-ssm"):
        with pytest.warns(HopstateWarning, match=r"2 of \d+ ids in .* are new to the run: (yan, zoe|zoe, yan)$"):
            assert len(runs[name].predict(later)) == 5
    later.to_csv(tmp_path / "tomorrow.csv", index=False)
    command = ["predict", str(runs["recency"].path), "--data", str(tmp_path / "tomorrow.csv")]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main([*command, "--out", str(tmp_path / "p.csv")]) == 0
    told = capsys.readouterr()
    assert "warning: 2 of" in told.err
    assert "5 predictions written" in told.out
    assert main([*command, "--fresh", "--out", str(tmp_path / "p.csv")]) == 0
    told = capsys.readouterr()
    assert "nothing that the run had seen was known to them (--fresh)" in told.out
    assert not told.err


def test_what_cannot_be_later_is_refused_with_what_to_do(runs: dict[str, Run]) -> None:
    run = runs["ctdg-ssm"]
    with pytest.raises(TimeOrderError, match=r"begins at 50, before the end of the run's own data at 106.*--fresh"):
        run.predict(table(50, 20))
    with pytest.raises(ConfigError, match=r"have no test split; leave --split out, or give --fresh"):
        run.predict(table(200, 20), split="test")
    assert len(run.predict(table(0, 60), split="test", fresh=True)) == 9
    assert not (run.path / "state").exists()


def test_the_runs_own_data_are_still_its_own(runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs["dyg-mamba"]
    assert open_run(run.path).predict(table(0, 160), split="test").equals(run.predict(split="test"))
    assert evaluate(run.path, data=table(0, 160)) == run.metrics["test"]  # its columns need no naming again


def test_a_run_of_records_is_given_its_past_again(tmp_path: Path) -> None:
    from hopstate.data.readers.read_events import read_events

    own = read_events(table(0, 160), time_column="when", edge_columns=["amount"])
    later = read_events(table(200, 20), time_column="when", edge_columns=["amount"])
    asked = {**LOOP, "evaluation.strategies": ["random"]}
    run = fit("recency", own, out=tmp_path / "run", config=asked, keep_data=False)
    assert len(run.predict(later)) == 20  # while the record lives
    kept = fit("recency", read_events(table(0, 160), time_column="when", edge_columns=["amount"]), config=asked,
               out=tmp_path / "kept")  # fmt: skip
    assert kept.predict(later).equals(run.predict(later))
    run, copy = replace(run, record=None), own.with_(name="copy")
    del own
    gc.collect()  # a process finds the record as long as anything holds it, cycles too
    with pytest.raises(ConfigError, match="give it again as own"):
        run.predict(later)
    own = copy
    assert len(run.predict(later, own=own)) == 20
    assert len(run.predict(later, fresh=True)) == 20
    assert len(run.predict(own, split="test")) > 0


@pytest.mark.parametrize("change", ["grown", "changed"])
def test_a_past_that_is_not_what_the_run_was_trained_on_is_told(change: str, tmp_path: Path) -> None:
    own = table(0, 160)
    own.to_csv(tmp_path / "own.csv", index=False)
    run = fit("recency", tmp_path / "own.csv", out=tmp_path / "run", config={**LOOP, **READ, **EVALUATION})
    assert len(run.predict(table(200, 20))) == 20  # no warning: it is
    other = table(0, 170) if change == "grown" else own.assign(amount=own["amount"] + (own.index == 3))
    other.to_csv(tmp_path / "own.csv", index=False)
    with pytest.warns(HopstateWarning, match=r"own.csv is not what this run was trained on, or has changed since"):
        assert len(run.predict(table(200, 20))) == 20
    with pytest.warns(HopstateWarning, match=r"own.csv is not what this run was trained on"):
        run.score_stream(table(200, 20))
    assert len(run.score_stream(table(300, 20))) == 20  # goes on from the state that is kept


@pytest.mark.parametrize("name", ["recency", "ctdg-ssm", "dyg-mamba-nodes"])
def test_other_events_are_evaluated_without_a_past_only_where_that_is_said(
    name: str, runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(200, 60).to_csv(tmp_path / "later.csv", index=False)
    with pytest.raises(ConfigError, match=r"later holds other events .* from an empty past.*--fresh.*hopstate predict"):
        runs[name].evaluate(tmp_path / "later.csv")
    found = runs[name].evaluate(tmp_path / "later.csv", fresh=True)
    assert main(["evaluate", str(runs[name].path), "--data", str(tmp_path / "later.csv"), "--fresh"]) == 0
    assert f'"{next(iter(found))}"' in capsys.readouterr().out
