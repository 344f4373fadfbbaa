"""Incoming events are parsed like a file with the same rows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from made_events import small_run, table

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

import hopstate.io.files as files
from hopstate.errors import ConfigError, DataError
from hopstate.runs.run import Run
from hopstate.serving.event_parser import Columns, EventParser
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


QUICK = ("rows", "gaps")  # numeric ids, or text ids with features that may be missing


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in RUNS]
)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Run]:
    home = tmp_path_factory.mktemp("run")
    return request.param, small_run("recency", home, own(request.param), **RUNS[request.param])


@pytest.fixture(scope="module")
def live(made: tuple[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, LiveRun]]:
    with LiveRun(made[1].path, folder=tmp_path_factory.mktemp("live")) as live:
        yield made[0], live


def drawn(name: str, past: Any, count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Events of known and new nodes, with deletions, features of any size, and missing values where allowed."""
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


def parse(incoming: EventParser, bodies: list[dict[str, Any]], past: Any) -> Columns:
    return incoming.in_order(bodies, past, range(len(bodies)))[0]


@pytest.mark.parametrize("count", [1, 2, 40])
def test_numbers_are_parsed_as_in_a_file(count: int, live: tuple[str, LiveRun]) -> None:
    name, run = live
    rng = np.random.default_rng(count)
    for _ in range(5):
        bodies = parse(run._parser, drawn(name, run.past, count, rng), run.past)
        quick, slow = run._parser._numeric_stream(bodies, run.past), run._parser._table_stream(bodies, run.past)
        assert quick is not None
        assert (quick.time_unit, quick.t.dtype) == (slow.time_unit, slow.t.dtype)
        for column in ("t", "kind", "edge_attr"):
            np.testing.assert_array_equal(getattr(quick, column), getattr(slow, column), strict=True)
        names = [
            rows if stream.node_ids is None else stream.node_ids.names(rows)
            for stream in (quick, slow)
            for rows in (stream.src, stream.dst)
        ]
        assert [end.tolist() for end in names[:2]] == [end.tolist() for end in names[2:]]


def test_numeric_events_write_no_file(live: tuple[str, LiveRun], monkeypatch: pytest.MonkeyPatch) -> None:
    name, run = live
    bodies = parse(run._parser, drawn(name, run.past, 20, np.random.default_rng(0)), run.past)
    monkeypatch.setattr(files, "temporary_name", lambda path: pytest.fail(f"{path} is written"))
    run._parser.stream(bodies, run.past)


def test_values_that_a_file_rejects_are_rejected(live: tuple[str, LiveRun]) -> None:
    name, run = live
    for row in [{"t": 2**63 - 1}] + [{"amount": 1e300}] * (name in ("features", "gaps")):
        given = {k: v for k, v in drawn(name, run.past, 1, np.random.default_rng(1))[0].items() if k != "kind"}
        bodies = parse(run._parser, [given | {"weight": 1} | row], run.past)
        assert run._parser._numeric_stream(bodies, run.past) is None
        with pytest.raises(DataError):
            run._parser.stream(bodies, run.past)


def plain(name: str, past: Any, count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """The common case: uniform events, without deletions and missing values."""
    rows = [{k: v for k, v in row.items() if k != "kind"} for row in drawn(name, past, count, rng)]
    return [row | {k: 0.1 * i for k in ("amount", "weight") if row.get(k, 1) is None} for i, row in enumerate(rows)]


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_a_time_does_not_depend_on_other_events_of_the_request(
    together: bool, made: tuple[str, Run], tmp_path: Path
) -> None:
    """Integers in a request with fractions, as two clients may send them, must not be rounded."""
    name, run = made
    with LiveRun(run.path, folder=tmp_path) as live:
        first, other = plain(name, live.past, 2, np.random.default_rng(0))
        times = [2**53 + 1, 2.0**53 + 4, 2**53 + 5]
        given = [first | {"t": times[0]}, other | {"t": times[1]}, first | {"t": times[2]}]
        for group in [given] if together else [[row] for row in given]:
            live.take(group)
        assert live.past.events(live.own_events).t.tolist() == times
        assert [json.loads(body)["t"] for commit in live.log.commits() for body in commit.bodies] == times


@pytest.mark.parametrize(
    ("value", "is_good"),
    [("x" * 1000, True), ("\u00e9" * 500, True), ("x" * 1001, False), ("\u00e9" * 501, False), ("\ud800", False)],
)
@pytest.mark.parametrize("field", ["src", "dst", "event_id"])
def test_ids_have_at_most_a_thousand_bytes(field: str, value: str, is_good: bool, tmp_path: Path) -> None:
    run = small_run("recency", tmp_path)
    event = {"src": "u1", "dst": "v1", "t": 900, field: value}
    with LiveRun(run.path) as live:
        if is_good:
            assert live.take([event])[0].position == 0
        else:
            with pytest.raises(DataError, match=field):
                live.take([event])
        assert len(live.log) == is_good


def test_a_feature_named_like_an_endpoint_or_the_time_is_rejected(tmp_path: Path) -> None:
    """In the log it would replace the field of that name."""
    events = own("features").rename(columns={"t": "timestamp", "weight": "t"})
    run = small_run(
        "recency", tmp_path, events, **{"read.edge_columns": ["amount", "t"], "read.time_column": "timestamp"}
    )
    with pytest.raises(ConfigError, match=r"\bt\b"):
        LiveRun(run.path)


def test_events_of_a_commit_are_written_like_single_events():
    """Characters that end a line, a value or an object, and placeholders of format strings."""
    texts = ["a", "},\n{", ', "x": {', "\u00e9\u2028\x00", "", "%s %"]
    fields = {"src": texts, "dst": [*range(6)], "t": [k / 3 for k in range(6)], "100%": [None, 1e30, *"\n1a2"]}
    for deletes in ([False] * 6, [k % 2 == 1 for k in range(6)]):
        rows = [dict(zip(fields, row)) for row in zip(*fields.values())]
        each = [row | ({"kind": "delete"} if gone else {}) for row, gone in zip(rows, deletes)]
        columns = Columns(fields, deletes, "kind")
        assert columns.texts() == [json.dumps(event) for event in each]
    assert columns.take([]).texts() == []
