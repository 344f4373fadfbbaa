"""`explain`: at which time, and in which unit, a pair's score is taken apart."""

from pathlib import Path

import pandas as pd
import pytest

import hopstate
from hopstate.cli.main import main
from hopstate.data.clock import Clock
from hopstate.errors import HopstateWarning
from hopstate.runs.analysis.explain import unit_words
from hopstate.testing.asserts import F64
from made_events import small_run, table


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("runs")
    return {name: small_run(name, home).path for name in ("pair-trees", "dyg-mamba")}


@pytest.mark.parametrize("name", ["pair-trees", "dyg-mamba"])
def test_without_a_time_it_is_that_of_score(
    name: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    after = int(table(0, 160).t.max()) + 1
    found = hopstate.explain(runs[name], "u1", "v2")
    assert found.t == after == hopstate.score(runs[name], [("u1", "v2")])["t"][0]
    assert type(found.t) is int
    assert found.logit == hopstate.explain(runs[name], "u1", "v2", after).logit
    assert main(["explain", str(runs[name]), "--pair", "u1,v2"]) == 0
    assert f"u1 - v2 at {after}: " in capsys.readouterr().out


def test_what_was_streamed_since_is_told_not_to_be_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    run = small_run("pair-trees", tmp_path)
    hopstate.explain(run.path, "u1", "v2")
    more = table(int(table(0, 160).t.max()) + 1, 60)
    run.score_stream(more)
    known = run.score([("u1", "v2")])
    recwarn.clear()
    hopstate.explain(run.path, "u1", "v2", 50)  # before all that was streamed
    whole = tmp_path / "whole.csv"
    pd.concat([table(0, 160), more]).to_csv(whole, index=False)
    found = hopstate.explain(run.path, "u1", "v2", data=whole)
    assert (found.t, found.probability) == (known["t"][0], pytest.approx(known["score"][0], abs=F64))
    assert not [w for w in recwarn if "is not seen here" in str(w.message)]
    with pytest.warns(HopstateWarning, match=r"state is not seen here, while score and rank know it; give --data"):
        hopstate.explain(run.path, "u1", "v2")
    assert main(["explain", str(run.path), "--pair", "u1,v2"]) == 0
    assert "is not seen here" in capsys.readouterr().err


def test_what_a_unit_is_is_told(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(runs["pair-trees"]), "--pair", "u1,v2"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "1 unit = 1 in the numbers of the data's own times; values 'since ...' are ln(1 + units)"
    found = hopstate.explain(runs["dyg-mamba"], "u1", "v2")
    assert len(found.features)
    assert found.unit == told[-1]


@pytest.mark.parametrize(
    ("clock", "told"),
    [
        (Clock(unit=90.0, time_unit="s"), "90 seconds, the median gap between training events"),
        (Clock(unit=7_200_000.0, time_unit="ms"), "2 hours, the median gap between training events"),
        (Clock(unit=1000.0, time_unit="ms"), "1 second"),
        (Clock(unit=40.0), "40 in the numbers of the data's own times, the median gap between training events"),
        (Clock(bounded=False), "1 in the numbers of the data's own times"),
    ],
)
def test_units_in_words(clock: Clock, told: str) -> None:
    assert unit_words(clock) == f"1 unit = {told}; values 'since ...' are ln(1 + units)"
