"""`explain`: at which time, and in which unit, a pair's score is taken apart."""

from pathlib import Path

import pytest

import hopstate
from hopstate.cli.main import main
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
