"""Invalid ids, pairs and times are rejected by name."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.cli.main import main
from hopstate.errors import DataError, HopstateWarning, TimeOrderError

QUIET = {"loop": {"epochs": 0, "progress": False, "logger": "none", "device": "cpu"}}
FIRST = 1_700_000_000


def events(many: int = 12) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    ends = {"src": [f"u{i:05}" for i in rng.integers(0, many, 120)], "dst": [f"v{i}" for i in rng.integers(0, 9, 120)]}
    return pd.DataFrame(ends).assign(t=np.arange(120) * 60)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Link runs: with numeric times, with dates, and on a graph."""
    home = tmp_path_factory.mktemp("runs")
    dated = events().assign(
        t=lambda f: pd.to_datetime(FIRST + f.t, unit="s", utc=True).dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    )
    for name, table in (("numbers", events()), ("dates", dated)):
        table.to_csv(home / f"{name}.csv", index=False)
        hopstate.fit("recency", home / f"{name}.csv", out=home / name)
    edges = pd.DataFrame({"source": np.arange(60), "target": (np.arange(60) * 7 + 1) % 60})
    features = pd.DataFrame(np.random.default_rng(1).normal(size=(60, 3)), columns=["a", "b", "c"])
    hopstate.fit("gcn", edges, features=features.to_numpy(), out=home / "links", config=QUIET, task="link")
    return {name: home / name for name in ("numbers", "dates", "links")}


@pytest.mark.parametrize("name", ["numbers", "dates", "links"])
def test_an_empty_list_of_pairs_is_the_same_error_everywhere(name: str, runs: dict[str, Path]) -> None:
    with pytest.raises(DataError, match="pairs"):
        hopstate.score(runs[name], [])
    with pytest.raises(DataError, match="sources"):
        hopstate.rank(runs[name], [])


def test_numeric_times_use_the_unit_of_the_dates(runs: dict[str, Path]) -> None:
    pair = pd.DataFrame({"src": ["u00001"], "dst": ["v1"], "t": [FIRST + 9_000]})
    assert hopstate.score(runs["dates"], pair).t.tolist() == ["2023-11-15T00:43:20Z"]
    with pytest.raises(DataError, match="1700009000000"):
        hopstate.score(runs["dates"], pair.assign(t=pair.t * 1000))
    with pytest.raises(TimeOrderError, match="1970"):
        hopstate.score(runs["dates"], pair, time=5)


def test_an_ambiguous_date_is_rejected_in_a_query(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["score", "--pairs", "u00001,v1"], ["rank", "--source", "u00001"]):
        assert main([words[0], str(runs["dates"]), *words[1:], "--time", "01/02/2026"]) == 2
        assert "01/02/2026" in capsys.readouterr().err


def test_a_run_with_numeric_times_rejects_dates(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("src,dst,t\nu00001,v1,2023-12-01\n")
    with pytest.raises(DataError, match=r"pairs\.csv"):
        hopstate.score(runs["numbers"], tmp_path / "pairs.csv")


@pytest.mark.slow
def test_the_nearest_id_is_found_among_many(tmp_path: Path) -> None:
    rows = np.arange(20_050)
    table = pd.DataFrame({"src": [f"u{i:05}" for i in rows], "dst": np.where(rows % 2, "v", "w"), "t": rows})
    run = hopstate.fit("recency", table, out=tmp_path / "run", config={"evaluation": {"strategies": ["random"]}})
    with pytest.warns(HopstateWarning, match=r"'u2004' \(did you mean 'u\d+'"):
        run.score([("u2004", "v")])
