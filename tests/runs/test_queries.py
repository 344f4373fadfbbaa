"""`score` and `rank` of a trained run: what `stream` would give next, whatever else is asked, leaving no trace."""

import hashlib
import json
import math
import re
import shlex
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hopstate
import made_events
from hopstate.cli.main import main
from hopstate.data.readers.read_events import read_events
from hopstate.errors import ConfigError, DataError, HopstateWarning, TimeOrderError
from hopstate.runs.api import Run, fit, open_run, predict, score_stream
from hopstate.runs.queries import rank, score
from made_events import LOOP, RANDOM

SMALL = {**made_events.SMALL, "ctdg-ssm": {**made_events.SMALL["ctdg-ssm"], "model.node_gaps": True}}
EVALUATION = {**RANDOM, "evaluation.batch_size": 16}
READ = {"read.edge_columns": ["amount"]}
table = partial(made_events.table, seed=7, amount=True)
LAST = 106  # of the run's own events


PAIRS = [("u1", "v2"), ("u3", "v3"), ("u9", "v7"), ("u0", "v1"), ("u4", "u5"), ("v1", "v2")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of each method on 160 events of buyers and goods."""
    home = tmp_path_factory.mktemp("runs")
    table(0, 160).to_csv(home / "own.csv", index=False)
    found = {}
    for name, settings in SMALL.items():
        found[name] = fit(name, home / "own.csv", out=home / name, config={**LOOP, **settings, **READ, **EVALUATION})
        found[name].score(PAIRS)  # the curve of probabilities is there from now on
    return found


def folder(path: Path) -> dict[str, str]:
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(path.rglob("*")) if f.is_file()}


# ---- what a score is -------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("when", [LAST, LAST + 1, LAST + 500])
def test_a_score_is_what_stream_would_give_such_an_event_next(
    name: str, when: int, runs: dict[str, Run], tmp_path: Path
) -> None:
    run = runs[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopstateWarning)
        asked = [*PAIRS[:3], ("u1", "nobody"), ("who", "v1"), ("who", "whom"), ("who", "who")]
        found = run.score(asked, when)
    for i, (u, v) in enumerate(asked):
        event = pd.DataFrame({"src": [u], "dst": [v], "t": [when], "amount": [0.5]})
        next_ = score_stream(run.path, event, fresh=True, save=tmp_path / str(i))
        assert found["score"][i] == next_["score"][0], (u, v)
    assert found["t"].tolist() == [when] * len(asked)


@pytest.mark.parametrize("name", SMALL)
def test_alone_in_company_in_any_order_and_in_a_ranking(name: str, runs: dict[str, Run]) -> None:
    run = runs[name]
    together = run.score(PAIRS)["score"]
    assert [run.score([pair])["score"][0] for pair in PAIRS[:3]] == together[:3].tolist()
    assert run.score(PAIRS[::-1])["score"].tolist() == together.tolist()[::-1]
    ranked = run.rank(["u1", "u9"], top=8)
    pairs = list(zip(ranked["src"], ranked["dst"], strict=True))
    assert run.score(pairs)["score"].tolist() == ranked["score"].tolist()
    assert run.score(pairs)["probability"].tolist() == ranked["probability"].tolist()
    few = run.rank("u9", top=3)
    assert few["score"].tolist() == ranked[ranked.src == "u9"]["score"][:3].tolist()
    times = run.score([*PAIRS[:2], *PAIRS[:2]], [LAST, LAST, 300, 300])["score"]  # and beside other times
    assert times[2:].tolist() == run.score(PAIRS[:2], 300)["score"].tolist()
    assert times[:2].tolist() == run.score(PAIRS[:2], LAST)["score"].tolist()


@pytest.mark.parametrize("name", SMALL)
def test_nothing_at_the_time_of_a_query_changes_it(name: str, runs: dict[str, Run]) -> None:
    run, when = runs[name], LAST + 50
    before, ranking = run.score(PAIRS, when)["score"], run.rank("u1", top=8, time=when)
    later = pd.DataFrame({"src": ["u1", "u3", "u1"] * 9, "dst": ["v2", "v3", "v6"] * 9, "t": when, "amount": 9.0})
    for events in (later, later.assign(src="u9", amount=-4.0), later.assign(dst="v0")):
        assert run.score(PAIRS, when, events=events)["score"].tolist() == before.tolist()
        after = run.rank("u1", top=8, time=when, events=events)
        assert after.drop(columns="probability").equals(ranking.drop(columns="probability"))
    assert run.score(PAIRS, when + 1, events=later)["score"].tolist() != run.score(PAIRS, when + 1)["score"].tolist()


@pytest.mark.parametrize("name", SMALL)
def test_further_events_in_one_file_or_in_parts_or_streamed(name: str, runs: dict[str, Run], tmp_path: Path) -> None:
    run, later = runs[name], table(200, 60)
    later.to_csv(tmp_path / "later.csv", index=False)
    one = run.score(PAIRS, events=tmp_path / "later.csv")
    for size in (7, 32):
        parts = [later[a : a + size] for a in range(0, 60, size)]
        assert run.score(PAIRS, events=parts)["score"].tolist() == one["score"].tolist()
    score_stream(run.path, later, fresh=True, save=tmp_path / "state")
    assert run.score(PAIRS, state=tmp_path / "state")["score"].tolist() == one["score"].tolist()
    assert one["t"][0] == later["t"].max() + 1


@pytest.mark.parametrize("name", SMALL)
def test_a_query_leaves_the_run_as_it_was(name: str, runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs[name]
    before = folder(run.path)
    run.score(PAIRS, explain=True, events=table(200, 20), out=tmp_path / "out.csv")
    run.rank("u1", top=2, first_stage=4, new_only=True, explain=True)
    assert folder(run.path) == before
    assert str(run.path / "calibration.json") in before


@pytest.mark.parametrize("name", ["recency", "edgebank", "pair-trees", "graphmixer", "dyg-mamba"])
def test_scores_are_those_behind_predict_where_the_past_ends_there(name: str, tmp_path: Path) -> None:
    """Events of the test split, asked for with everything before them known and nothing after."""
    own = table(0, 160)
    own.to_csv(tmp_path / "own.csv", index=False)
    config = {**LOOP, **SMALL[name], **READ, **EVALUATION, "loop.precision": "64"}
    run = fit(name, tmp_path / "own.csv", out=tmp_path / "run", config=config)
    expected = predict(run.path, split="test")
    run.score(PAIRS)  # the curve of probabilities is of the whole
    for row in (0, len(expected) // 2, len(expected) - 1):
        u, v, t = expected.loc[row, ["src", "dst", "t"]]
        own[own.t < t].to_csv(tmp_path / "own.csv", index=False)
        with pytest.warns(HopstateWarning, match="has changed since"):
            found = run.score([(u, v)], int(t))
        assert abs(found["score"][0] - expected["score"][row]) < 1e-12


# ---- ranking ---------------------------------------------------------------------------------------------
def test_candidates(runs: dict[str, Run], tmp_path: Path) -> None:
    """Goods alone where buyers are never bought; whom one has met left out; and those that a file names."""
    own, run = table(0, 160), runs["recency"]
    whole = run.rank("u1", top=None)
    assert set(whole["dst"]) == set(own["dst"])
    assert whole["rank"].tolist() == list(range(1, len(whole) + 1))
    assert (np.diff(whole["score"]) <= 0).all()
    met = set(own[own.src == "u1"]["dst"])
    fresh = run.rank("u1", top=None, new_only=True)
    assert set(fresh["dst"]) == set(own["dst"]) - met
    assert run.rank("u1", top=None, exclude_seen=True).equals(fresh)
    (tmp_path / "some.csv").write_text("id\nv3\nu2\nv3\nv0\n")
    assert set(run.rank("u1", top=None, candidates=tmp_path / "some.csv")["dst"]) == {"v3", "u2", "v0"}
    with pytest.warns(HopstateWarning, match="5 were asked for, but source 'u1' has 3 candidates"):
        assert len(run.rank("u1", top=5, candidates=["v3", "u2", "v0"])) == 3
    with pytest.warns(HopstateWarning, match="1 of the sources asked for were only ever targets: 'v1'; no node"):
        assert set(run.rank("v1", top=None)["dst"]) == set(own["dst"]) - {"v1"}


def test_all_nodes_are_candidates_where_nodes_are_both_ends(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    own = pd.DataFrame({"src": rng.integers(0, 12, 150), "dst": rng.integers(0, 12, 150), "t": np.arange(150)})
    own.to_csv(tmp_path / "own.csv", index=False)
    run = fit("recency", tmp_path / "own.csv", out=tmp_path / "run", config={**LOOP, **EVALUATION})
    found = run.rank(3, top=None)
    assert sorted(found["dst"]) == [i for i in range(12) if i != 3]
    assert run.rank(["3"], top=None).equals(found)
    with pytest.warns(HopstateWarning, match="never met: 99;"):
        assert len(run.score([(3, 99)])) == 1
    for missing in (None, float("nan"), np.float64("nan"), pd.NA):
        with pytest.raises(DataError, match=r"targets hold no id in place 2: (None|nan|<NA>)"):
            run.score([(3, 1), (3, missing)])
        with pytest.raises(DataError, match="candidates hold no id in place 1"):
            run.rank(3, candidates=[missing, 4])
        with pytest.raises(DataError, match="candidates hold no id in place 2"):
            run.rank(3, candidates=np.array([4, missing], object))
        with pytest.raises(DataError, match="sources hold no id in place 1"):
            run.rank(missing)


def test_the_first_stage_keeps_the_models_own_best_and_tells_what_it_loses(
    runs: dict[str, Run], tmp_path: Path
) -> None:
    shutil.copytree(runs["dyg-mamba"].path, tmp_path / "run", ignore=shutil.ignore_patterns("first_stage*"))
    run, file = open_run(tmp_path / "run"), tmp_path / "run" / "first_stage.safetensors"
    whole = run.rank("u1", top=None)
    assert not [name for name in whole.attrs if name.startswith("first_stage")]
    assert run.rank("u1", top=8, first_stage=8).attrs["first_stage_recall"] == 1
    assert not file.exists()  # nothing was left out, so nothing was learned
    found = run.rank("u1", top=None, first_stage=3)
    kept = file.read_bytes()
    assert found["score"].tolist() == whole[whole["dst"].isin(found["dst"])]["score"].tolist()
    assert found.attrs["first_stage_recall"] == 3 / 8  # of eight candidates all are among the best ten
    assert 0 < found.attrs["first_stage_destinations"] <= 1
    again = run.rank(["u2", "u1"], top=None, first_stage=3)
    assert again[again["src"] == "u1"]["dst"].tolist() == found["dst"].tolist()
    assert again.attrs["first_stage_recall"] == found.attrs["first_stage_recall"]
    for spoiled in (kept[:-40], b"", kept[:200] + b"x" + kept[201:]):
        file.write_bytes(spoiled)
        assert run.rank("u1", top=None, first_stage=3).equals(found)
        assert len(file.read_bytes()) == len(kept)


@pytest.mark.parametrize("name", ["recency", "pair-trees", "dyg-mamba"])
def test_slices_of_a_first_stage_change_nothing(
    name: str, runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs[name].path, tmp_path / "run")
    found = []
    for size in (1, 3, 1_000):
        monkeypatch.setattr("hopstate.streaming.slices.FIRST", size)
        monkeypatch.setattr("hopstate.streaming.slices.LEAST", size)
        monkeypatch.setattr("hopstate.streaming.slices.AIM", 0.0)  # so that no slice is larger than the first
        found.append(open_run(tmp_path / "run").rank(["u1", "u2"], top=None, first_stage=4))
    assert found[0].equals(found[2])
    assert found[1].equals(found[2])


def test_a_first_stage_orders_candidates_whatever_their_order(runs: dict[str, Run], tmp_path: Path) -> None:
    """And those that were never met are ordered too."""
    shutil.copytree(runs["recency"].path, tmp_path / "run")
    run = open_run(tmp_path / "run")
    names = [f"v{i}" for i in range(8)] + ["nobody"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopstateWarning)  # nobody was never met
        one = run.rank("u1", top=None, first_stage=4, candidates=names)
        other = run.rank("u1", top=None, first_stage=4, candidates=names[::-1])
        assert len(run.rank("no one else", top=2, first_stage=4, candidates=names)) == 2
    assert set(one["dst"]) == set(other["dst"])
    assert one["dst"].iloc[0] == run.rank("u1", top=1, candidates=names[:-1])["dst"].iloc[0]


# ---- probabilities, reasons ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SMALL)
def test_probabilities_rise_with_ranks_and_are_kept(name: str, runs: dict[str, Run]) -> None:
    run, own = runs[name], table(0, 160)
    met = set(zip(own["src"], own["dst"], strict=True))
    found = run.rank(["u1", "u2"], top=None)
    assert found["probability"].between(0, 1).all()
    assert "1 random other pair beside each" in found.attrs["probability"]
    found["met"] = [pair in met for pair in zip(found["src"], found["dst"], strict=True)]
    for _, one in found.groupby("src"):
        assert (np.diff(one["probability"]) <= 0).all()
        for _, same in one.groupby("met"):  # but for trees that rank, which stand beside the score
            assert name == "pair-trees" or (np.diff(same["score"]) <= 0).all()
    kept = run.path / "calibration.json"
    kept.unlink()
    found = run.rank(["u1", "u2"], top=None)  # what training kept is the same to rounding; see test_calibrated
    text, told = kept.read_text(), json.loads(kept.read_text())
    damages = (
        {"values": [3.0]},
        {"met": None},
        {"met": "much"},
        {"met": math.nan},
        {"met": 1e300},
        {"format": "other"},
    )
    for damage in ("", "{", text.replace("scores", "x"), *(json.dumps(told | one) for one in damages)):
        kept.write_text(damage)
        again = run.rank(["u1", "u2"], top=None)
        assert again["dst"].equals(found["dst"])
        assert again["probability"].equals(found["probability"])
        assert kept.read_text() == text


@pytest.mark.parametrize("name", SMALL)
def test_reasons_name_what_weighed_most(name: str, runs: dict[str, Run]) -> None:
    """An event says when who met whom, and what it adds; EdgeBank tells what it knows of the pair."""
    why = runs[name].score([("u1", "v2")], explain=True)["why"][0]
    own = table(0, 160)
    count = len(own[(own.src == "u1") & (own.dst == "v2")])
    if name == "edgebank" or (name == "recency" and not count):
        assert why.startswith(f"meetings: {count}, " if count else "never met")
        return
    events = [part for part in why.split("; ") if " with " in part]
    assert 1 <= len(events) <= 3
    for text in events:
        who, other, when = re.fullmatch(r"(\w+) with (\w+) at (\d+) \([+-]\d[\d.e-]*\)", text).groups()
        ends = own[own.t == int(when)][["src", "dst"]].to_numpy().tolist()
        assert who in ("u1", "v2")
        assert [who, other] in ends or [other, who] in ends
    assert (name == "pair-trees") == (len(events) < len(why.split("; ")))


# ---- dates, files, the command line ----------------------------------------------------------------------
def test_dates_in_dates_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = table(0, 160)
    own["t"] = pd.Timestamp("2024-03-01") + pd.to_timedelta(own["t"], unit="h")
    own.to_csv(tmp_path / "own.csv", index=False)
    config = {**LOOP, **SMALL["pair-trees"], **READ, **EVALUATION}
    run = fit("pair-trees", tmp_path / "own.csv", out=tmp_path / "run", config=config)
    found = run.score([("u1", "v2")], "2024-04-01T12:00:00")
    assert found["t"].tolist() == ["2024-04-01T12:00:00"]
    (tmp_path / "pairs.csv").write_text("src,dst,t\nu1,v2,2024-04-01T12:00:00\nu1,v2,2024-05-01\n")
    both = run.score(tmp_path / "pairs.csv")
    assert both["score"][0] == found["score"][0]
    assert both["t"].tolist() == ["2024-04-01T12:00:00", "2024-05-01T00:00:00"]
    monkeypatch.setenv("COLUMNS", "50")
    assert main(["score", str(run.path), "--pairs", "u1,v2", "--time", "2024-04-01T12:00:00", "--explain"]) == 0
    assert "\u2026" not in capsys.readouterr().out  # nothing of a date is left out of a narrow table
    assert main(["inspect", str(run.path)]) == 0
    (explain,) = (line for line in capsys.readouterr().out.splitlines() if "hopstate explain" in line)
    assert explain.endswith(" --time 2024-03-05T10:00:00")
    assert main(shlex.split(explain)[1:]) == 0


def test_dates_without_a_zone_are_told_where_the_run_has_one(tmp_path: Path) -> None:
    own = table(0, 160)
    own["t"] = (pd.Timestamp("2024-03-01") + pd.to_timedelta(own["t"], unit="h")).astype(str) + "+05:30"
    own.to_csv(tmp_path / "own.csv", index=False)
    run = fit("recency", tmp_path / "own.csv", out=tmp_path / "run", config={**LOOP, **READ, **EVALUATION})
    (tmp_path / "pairs.csv").write_text("src,dst,t\nu1,v2,2024-04-01T12:00:00\n")
    own.tail(1).assign(t="2024-04-01T12:00:00").to_csv(tmp_path / "later.csv", index=False)
    times = ("2024-04-01T12:00:00", pd.Timestamp("2024-04-01T12:00:00"))
    asked: list[Callable[[], object]] = [
        *(partial(run.score, [("u1", "v2")], time) for time in times),
        *(partial(run.rank, "u1", time=time, top=3) for time in times),
        partial(run.score, tmp_path / "pairs.csv"),
        partial(run.predict, tmp_path / "later.csv"),
    ]
    for ask in asked:
        with pytest.warns(HopstateWarning, match=r"no time zone and are taken as UTC.*\+05:30"):
            ask()
    with warnings.catch_warnings():
        warnings.simplefilter("error", HopstateWarning)
        zoned = [str(time) + "+05:30" for time in times] + [pd.Timestamp(times[0], tz="Asia/Kolkata")]
        scores = [run.score([("u1", "v2")], time)["score"][0] for time in zoned]
        assert len(set(scores)) == 1
        run.predict()


def test_the_command_line(runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where, run = str(runs["dyg-mamba"].path), runs["dyg-mamba"]
    (tmp_path / "pairs.csv").write_text("src,dst\nu1,v2\nu3,v3\n")
    expected = run.score(PAIRS[:2])
    for kind, read in (
        ("csv", pd.read_csv),
        ("parquet", pd.read_parquet),
        ("jsonl", lambda p: pd.DataFrame([json.loads(line) for line in Path(p).read_text().splitlines()])),
    ):
        out = tmp_path / f"out.{kind}"
        assert main(["score", where, "--pairs", str(tmp_path / "pairs.csv"), "--out", str(out)]) == 0
        assert read(out)["score"].tolist() == expected["score"].tolist()
    assert "calibrated on 24 validation events" in capsys.readouterr().out
    assert main(["score", where, "--pairs", "u1,v2", "--time", "300"]) == 0
    assert "300" in capsys.readouterr().out
    (tmp_path / "who.csv").write_text("u1\nu2\n")
    (tmp_path / "new.csv").write_text(table(200, 20).to_csv(index=False))
    more = ["--events", str(tmp_path / "new.csv"), "--first-stage", "5", "--explain", "--top", "2"]
    out = tmp_path / "ranked.csv"
    assert main(["rank", where, "--source-file", str(tmp_path / "who.csv"), *more, "--out", str(out)]) == 0
    assert pd.read_csv(out).columns.tolist() == ["src", "rank", "dst", "t", "score", "probability", "why"]
    assert "first stage of 5: " in capsys.readouterr().out
    assert main(["rank", where, "--source", "u1", "--source", "u2", "--new-only", "--top", "1"]) == 0


@pytest.mark.parametrize("name", ["recency", "pair-trees", "ctdg-ssm"])
@pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")
def test_the_page_of_a_run_and_the_commands_on_it(
    name: str, runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a run is, its figures beside the floors, and commands that do what they say."""
    monkeypatch.chdir(tmp_path)
    table(200, 20).to_csv(tmp_path / "new-events.csv", index=False)
    where = tmp_path / "run"
    shutil.copytree(runs[name].path, where)
    assert main(["inspect", str(where)]) == 0
    told = capsys.readouterr().out
    assert f"method  {name}: " in told
    assert f"{runs[name].metrics['test']['average_precision']:.4f}" in told
    assert ("recency (test)" in told) == (name != "recency")
    lines = [line.strip() for line in told.split("ask it:\n")[1].splitlines()]
    assert any(line.startswith("hopstate rank") for line in lines)
    for line in lines:
        if "check-leak" not in line:
            assert main(shlex.split(line, comments=True)[1:]) == 0, line
    assert main(["inspect", str(where), "--kind", "graph"]) == 2


# ---- bad input -------------------------------------------------------------------------------------------
def test_ids_that_were_never_met_are_told_with_the_nearest(runs: dict[str, Run]) -> None:
    with pytest.warns(HopstateWarning, match=r"1 of the ids asked for were never met: 'u11' \(did you mean 'u1'\?\)"):
        runs["recency"].score([("u11", "v1")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("src,source,dst\nu1,u1,v1\n", "columns src and source could both be the source"),
        ("dst,amount\nv1,3\n", "has no column for the source"),
        ("src,dst\n", "holds no pairs"),
        ("", "empty"),
        ("src,dst\nu1,v1\nu2\n", ""),
        ('src,dst\nu1,"v1\n', ""),
        ("src,dst,t\nu1,v1,300\nu1,v1,soon\n", "soon"),
        ("src,dst,t\nu1,v1,300\nu1,v1,50\n", "row 1, are asked for at 50, but what is known has events up to 106"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(
    text: str, said: str, runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.csv").write_text(text)
    out = tmp_path / "out.csv"
    assert main(["score", str(runs["recency"].path), "--pairs", str(tmp_path / "pairs.csv"), "--out", str(out)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert said in told
    assert not out.exists()


def test_what_cannot_be_asked(runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, where = runs["recency"], str(runs["recency"].path)
    with pytest.raises(TimeOrderError, match="known has events up to 106"):
        run.rank("u1", time=100)
    with pytest.raises(TimeOrderError):
        run.score(PAIRS, events=table(0, 5))
    with pytest.raises(ConfigError, match="top is a number of candidates"):
        run.rank("u1", top=0)
    with pytest.raises(DataError, match="is no time of this run"):
        run.score(PAIRS, 300.5)
    assert main(["rank", where]) == 2
    assert main(["rank", where, "--source", "u1", "--out", "x.xls"]) == 1
    assert main(["score", str(tmp_path), "--pairs", "u1,v1"]) == 1
    assert main(["score", where, "--pairs", "u1"]) == 1
    assert "--pairs is a table, or one pair written out" in capsys.readouterr().err
    shutil.copytree(run.path, tmp_path / "moved")
    settings = (tmp_path / "moved" / "config.json").read_text()
    (tmp_path / "moved" / "config.json").write_text(settings.replace("own.csv", "gone.csv"))
    assert main(["rank", str(tmp_path / "moved"), "--source", "u1"]) == 1
    assert "gone.csv; this run answers from its own data, which are its past" in capsys.readouterr().err
    (tmp_path / "ids.csv").write_text("src,dst\nu1,v1\n")
    assert main(["rank", where, "--source-file", str(tmp_path / "ids.csv")]) == 1
    assert "columns src and dst could all hold the sources" in capsys.readouterr().err
    named = fit(
        "recency",
        read_events(table(0, 160), edge_columns=["amount"]),
        out=tmp_path / "held",
        keep_data=False,
        config={**LOOP, **READ, **EVALUATION},
    ).path
    with pytest.raises(ConfigError, match="record in memory"):
        score(named, PAIRS)


def test_a_run_of_another_kind_is_named(tmp_path: Path) -> None:
    own = read_events(table(0, 160).assign(label=np.arange(160) % 2), edge_columns=[])
    config = {**LOOP, "model.channel_dim": 4, "model.time_dim": 8, "history.max_length": 4}
    run = fit("dyg-mamba-nodes", own, out=tmp_path / "nodes", config=config)
    with pytest.raises(ConfigError, match="run of dyg-mamba-nodes, which scores no pairs"):
        run.score(PAIRS, own=own)


def test_deleted_nodes_are_no_candidates_and_named_where_asked_for(tmp_path: Path) -> None:
    own = table(0, 160).assign(kind="add")
    gone = pd.DataFrame({"src": ["v3"], "dst": ["v3"], "t": [LAST], "amount": [0.0], "kind": ["delete-node"]})
    pd.concat([own, gone]).to_csv(tmp_path / "own.csv", index=False)
    run = fit("recency", tmp_path / "own.csv", out=tmp_path / "run", config={**LOOP, **READ, **EVALUATION})
    assert "v3" not in set(run.rank("u1", top=None)["dst"])
    with pytest.raises(DataError, match="node 'v3' was deleted"):
        run.score([("u1", "v3")])


def test_a_model_that_knows_a_fixed_number_of_nodes_refuses_others_by_name(tmp_path: Path) -> None:
    table(0, 160).to_csv(tmp_path / "own.csv", index=False)
    config = {**LOOP, **SMALL["ctdg-ssm"], **READ, **EVALUATION, "model.static": "learnable"}
    run = fit("ctdg-ssm", tmp_path / "own.csv", out=tmp_path / "run", config=config)
    with (
        pytest.warns(HopstateWarning, match="never met"),
        pytest.raises(DataError, match="'nobody' was never met, and"),
    ):
        run.score([("u1", "nobody")])


@pytest.fixture
def numbered(tmp_path: Path) -> Run:
    """A run whose ids are rows and whose times are whole numbers, up to 119."""
    rng = np.random.default_rng(3)
    ends = {"src": rng.integers(0, 20, 120), "dst": 20 + rng.integers(0, 20, 120)}
    pd.DataFrame({**ends, "t": np.arange(120)}).to_csv(tmp_path / "own.csv", index=False)
    return fit("recency", tmp_path / "own.csv", out=tmp_path / "run", config={**LOOP, **EVALUATION})


@pytest.mark.parametrize("name", ["99999999999999999999", "+-5", "--5", "\u0663", "1.5", "1_0", ""])
def test_an_id_that_is_no_number_of_64_bits_is_named(numbered: Run, name: str) -> None:
    with pytest.raises(DataError, match="the run's nodes are numbers"):
        numbered.score([(name, "3")])
    with pytest.raises(DataError, match="the run's nodes are numbers"):
        numbered.rank(name)


def test_numbers_that_were_never_met_are_new_nodes_however_large(numbered: Run) -> None:
    with pytest.warns(HopstateWarning, match="never met"):
        found = numbered.score([(3, 60), (3, 1_500_000), (3, 10**12), (3, -1)])
    assert len(set(found["score"])) == 1


@pytest.mark.parametrize("when", [1e300, 2.0**63, -(2.0**64), 10**20, float("inf"), 2000.5])
def test_a_time_that_the_run_cannot_tell_is_named(numbered: Run, when: float, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match="no time of this run"):
            numbered.score([(3, 24)], when)
    before = folder(numbered.path)
    if np.isfinite(float(when)):
        event = pd.DataFrame({"src": [3], "dst": [24], "t": [float(when)]})
        with pytest.raises(DataError):
            score_stream(numbered.path, event)
    assert {k: v for k, v in folder(numbered.path).items() if "lock" not in k} == before


def test_nothing_that_is_read_is_written_over(numbered: Run, tmp_path: Path) -> None:
    own = tmp_path / "own.csv"
    before = own.read_bytes()
    later, pairs, ids = (tmp_path / f"{name}.csv" for name in ("later", "pairs", "ids"))
    later.write_text("src,dst,t\n3,24,500\n")
    pairs.write_text("src,dst\n3,24\n")
    ids.write_text("id\n24\n25\n")
    held = {path: path.read_bytes() for path in (later, pairs, ids)}
    link = tmp_path / "link.csv"
    link.symlink_to(own)
    asks = [
        lambda: numbered.predict(out=own),
        lambda: numbered.predict(out=link),
        lambda: numbered.predict(data=later, out=later),
        lambda: numbered.score_stream(later, out=later),
        lambda: numbered.score_stream(later, out=own),
        lambda: numbered.score(pairs, out=pairs),
        lambda: numbered.score(pairs, events=[later], out=later),
        lambda: numbered.rank(3, candidates=ids, out=ids),
    ]
    for ask in asks:
        with pytest.raises(ConfigError, match="is read here"):
            ask()
    assert own.read_bytes() == before
    assert all(path.read_bytes() == text for path, text in held.items())
    assert len(numbered.predict(out=tmp_path / "new.csv")) == len(pd.read_csv(tmp_path / "new.csv"))


def test_a_run_whose_data_can_be_no_file_ends_in_a_named_error(numbered: Run, tmp_path: Path, capsys) -> None:
    config = json.loads((numbered.path / "config.json").read_text())
    (numbered.path / "config.json").write_text(json.dumps(config | {"data": "a\0b.csv"}))
    assert main(["predict", str(numbered.path), "--out", str(tmp_path / "p.csv")]) in (1, 2)
    told = capsys.readouterr().err
    assert "error: " in told
    assert "unforeseen" not in told


def test_the_curve_of_another_run_is_not_believed(numbered: Run, tmp_path: Path) -> None:
    """Models without weights all look alike: the run's own data and settings tell them apart."""
    other = pd.DataFrame({"src": [0, 1] * 60, "dst": [2, 3] * 60, "t": np.arange(120)})
    other.to_csv(tmp_path / "other.csv", index=False)
    run = fit("recency", tmp_path / "other.csv", out=tmp_path / "there", config={**LOOP, **EVALUATION})
    run.score([(0, 2)])
    own = numbered.score([(3, 24)])["probability"][0]
    shutil.copy(run.path / "calibration.json", numbered.path / "calibration.json")
    assert numbered.score([(3, 24)])["probability"][0] == own


@pytest.mark.parametrize("top", [2.5, "2", 0])
def test_a_number_of_candidates_is_whole(numbered: Run, top: object) -> None:
    with pytest.raises(ConfigError, match="top is a number of candidates"):
        numbered.rank(3, top=top)


def test_public_names() -> None:
    assert hopstate.score is score
    assert hopstate.rank is rank
