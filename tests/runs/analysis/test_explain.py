"""`explain`: at which time, and in which unit, a pair's score is taken apart."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import hopstate
from hopstate.cli.main import main
from hopstate.data.dates import Clock
from hopstate.errors import HopstateWarning
from hopstate.runs.analysis.explain import unit_words
from hopstate.runs.run import Run
from hopstate.testing.conformance import F32, F64
from made_events import small_run, table


@pytest.mark.parametrize("name", ["pair-trees", "dyg-mamba"])
def test_without_a_time_it_is_that_of_score(
    name: str, trained: Callable[[str], Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run, after = trained(name).path, int(table(0, 160).t.max()) + 1
    found, score = hopstate.explain(run, "u1", "v2"), hopstate.score(run, [("u1", "v2")])
    assert found.t == after == score["t"][0]
    assert type(found.t) is int
    assert found.probability == pytest.approx(score["score"][0], abs=F32)
    assert found.logit == pytest.approx(hopstate.explain(run, "u1", "v2", after).logit, abs=F32)
    assert main(["explain", str(run), "--pair", "u1,v2"]) == 0
    shown = capsys.readouterr().out
    assert "u1" in shown
    assert str(after) in shown


@pytest.mark.slow
def test_a_warning_says_that_streamed_events_are_left_out(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
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
    assert not [w for w in recwarn if issubclass(w.category, HopstateWarning)]
    with pytest.warns(HopstateWarning, match="--data"):
        hopstate.explain(run.path, "u1", "v2")


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        (Clock(unit=90.0, time_unit="s"), "90 seconds"),
        (Clock(unit=7_200_000.0, time_unit="ms"), "2 hours"),
        (Clock(unit=1000.0, time_unit="ms"), "1 second"),
        (Clock(unit=40.0), "40 "),
        (Clock(bounded=False), "1 "),
    ],
)
def test_units_in_words(clock: Clock, words: str) -> None:
    assert f"= {words}" in unit_words(clock)
