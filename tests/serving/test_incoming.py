"""Events that come in mean what a file of them would, however they are read."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from made_events import small_run, table

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

import hopstate.io.files as files
from hopstate.errors import DataError
from hopstate.serving.incoming import Incoming
from hopstate.serving.live import LiveRun

RUNS: dict[str, dict[str, Any]] = {
    "texts": {},
    "numbers": {},
    "rows": {},
    "features": {"read.edge_columns": ["amount", "weight"]},
    "gaps": {"read.edge_columns": ["amount", "weight"], "read.missing": "mean"},
}


def own(name: str) -> pd.DataFrame:
    found = table(0, 160, seed=5, amount=True)
    found["weight"] = np.arange(160) % 7
    if name in ("numbers", "rows"):
        step = 1 if name == "rows" else 13
        for column, first in (("src", 0), ("dst", 10)):
            found[column] = (found[column].str[1:].astype(int) + first) * step
    if name == "gaps":
        found.loc[::5, "amount"] = np.nan
    return found if name in ("features", "gaps") else found[["src", "dst", "t"]]


@pytest.fixture(scope="module", params=RUNS)
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("run")
    run = small_run("recency", home, own(request.param), **RUNS[request.param])
    with LiveRun(run.path, folder=home / "live") as live:
        yield request.param, live


def drawn(name: str, past: Any, count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Events of nodes that are known and new, with deletions, features of any size, and gaps where there may be."""
    rows = own(name).sample(count, replace=True, random_state=rng.integers(1 << 31)).to_dict("records")
    for k, row in enumerate(rows):
        row["t"] = int(past.last_time) + k // 2
        if rng.random() < 0.2:
            row["dst"] = f"new {k}" if isinstance(row["dst"], str) else 10_000 + k
        if "weight" in row:
            row |= {"amount": float(rng.lognormal(0, 9)), "weight": int(rng.integers(1 << 40))}
            row |= {"amount": None} if name == "gaps" and rng.random() < 0.5 else {}
        if rng.random() < 0.3:
            row |= {"kind": "delete"} | ({"amount": None, "weight": None} if "weight" in row else {})
    return rows


def told(incoming: Incoming, bodies: list[dict[str, Any]], past: Any) -> list[dict[str, Any]]:
    return incoming.in_order(bodies, past, range(len(bodies)))[0]


@pytest.mark.parametrize("count", [1, 2, 40])
def test_numbers_are_what_a_file_of_them_gives(count: int, live: tuple[str, LiveRun]) -> None:
    name, run = live
    rng = np.random.default_rng(count)
    for _ in range(5):
        bodies = told(run._incoming, drawn(name, run.past, count, rng), run.past)
        quick, slow = run._incoming._of_numbers(bodies, run.past), run._incoming._as_read(bodies, run.past)
        assert quick is not None
        assert quick.content_hash == slow.content_hash
        assert (quick.time_unit, quick.num_nodes, quick.t.dtype) == (slow.time_unit, slow.num_nodes, slow.t.dtype)
        for column in ("src", "dst", "t", "kind", "edge_attr"):
            np.testing.assert_array_equal(getattr(quick, column), getattr(slow, column), strict=True)


def test_events_of_numbers_touch_no_file(live: tuple[str, LiveRun], monkeypatch: pytest.MonkeyPatch) -> None:
    name, run = live
    bodies = told(run._incoming, drawn(name, run.past, 20, np.random.default_rng(0)), run.past)
    monkeypatch.setattr(files, "_new_part", lambda path: pytest.fail(f"{path} is written"))
    run._incoming.stream(bodies, run.past)


def test_what_a_file_refuses_is_refused(live: tuple[str, LiveRun]) -> None:
    name, run = live
    for row in [{"t": 2**63 - 1}] + [{"amount": 1e300}] * (name in ("features", "gaps")):
        given = {k: v for k, v in drawn(name, run.past, 1, np.random.default_rng(1))[0].items() if k != "kind"}
        bodies = told(run._incoming, [given | {"weight": 1} | row], run.past)
        assert run._incoming._of_numbers(bodies, run.past) is None
        with pytest.raises(DataError, match=r"the last that 64 bits hold|largest number of 32 bits"):
            run._incoming.stream(bodies, run.past)
