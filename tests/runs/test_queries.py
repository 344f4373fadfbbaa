"""`score` and `rank` of a trained run: the next score of `stream`, single or batched, without side effects."""

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
from numpy.testing import assert_allclose

import made_events
from hopstate.cli.main import main
from hopstate.data.readers.read_events import read_events
from hopstate.errors import ConfigError, DataError, HopstateWarning, TimeOrderError
from hopstate.runs.queries import score
from hopstate.runs.run import Run, fit, load, score_stream
from hopstate.testing.conformance import F32, F32_TIGHT
from made_events import LOOP, RANDOM, SMALL

EVALUATION = {**RANDOM, "evaluation.batch_size": 16}
READ = {"read.edge_columns": ["amount"]}
table = partial(made_events.table, seed=7, amount=True)
LAST = 106  # time of the last event
PAIRS = [("u1", "v2"), ("u3", "v3"), ("u9", "v7"), ("u0", "v1"), ("u4", "u5"), ("v1", "v2")]
QUICK = ("recency", "pair-trees", "dyg-mamba", "ctdg-ssm")  # one of each kind of scorer
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in SMALL if name not in QUICK]
each = pytest.mark.parametrize("name", [*QUICK, *OTHERS])
learned = pytest.mark.parametrize("name", [*QUICK[1:], pytest.param("recency", marks=pytest.mark.slow), *OTHERS])
Trained = Callable[[str], Run]
near = partial(assert_allclose, rtol=F32, atol=F32_TIGHT)


def files(path: Path) -> dict[str, str]:
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(path.rglob("*")) if f.is_file()}


def copied(run: Run, out: Path) -> Run:
    shutil.copytree(run.path, out)
    return load(out)


# ---- what a score is -------------------------------------------------------------------------------------
@each
def test_a_score_equals_the_next_score_of_stream(name: str, trained: Trained, tmp_path: Path) -> None:
    """Also for unseen nodes, and at the time of the last event, which is excluded then."""
    run = trained(name)
    for number, (when, pairs) in enumerate(((LAST, [*PAIRS[:3], ("u1", "absent")]), (LAST + 500, [("who", "whom")]))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HopstateWarning)
            found = run.score(pairs, when)
        events = pd.DataFrame(pairs, columns=["src", "dst"]).assign(t=when, amount=0.5)
        next_ = score_stream(run.path, events, ignore_state=True, save=tmp_path / str(number))
        near(found["score"], next_["score"])
        assert found["t"].tolist() == [when] * len(pairs)


@learned
def test_scores_do_not_depend_on_the_batch_its_order_or_a_ranking(name: str, trained: Trained) -> None:
    run = trained(name)
    together = run.score(PAIRS, LAST)["score"]
    near(run.score(PAIRS[2:3], LAST)["score"], together[2:3])
    ranked = run.rank(["u1", "u9"], top=8)
    again = run.score(list(zip(ranked["src"], ranked["dst"], strict=True))[::-1])[::-1]
    near(again["score"], ranked["score"])
    near(again["probability"], ranked["probability"])
    times = run.score([*PAIRS[:2], *PAIRS[:2]], [LAST, LAST, 300, 300])["score"]  # two times in one query
    near(times[2:], run.score(PAIRS[:2], 300)["score"])
    near(times[:2], together[:2])
    timeless = ("recency", "edgebank", "ctdg-ssm")  # a node memory changes only at events
    assert name in timeless or np.abs(times[:2].to_numpy() - times[2:].to_numpy()).max() > F32


@learned
def test_events_at_the_query_time_do_not_matter(name: str, trained: Trained) -> None:
    run, when = trained(name), LAST + 50
    before = run.score(PAIRS, when)["score"]
    later = pd.DataFrame({"src": ["u1", "u3", "u1"] * 9, "dst": ["v2", "v3", "v6"] * 9, "t": when, "amount": 9.0})
    near(run.score(PAIRS, when, events=later)["score"], before)
    changed = run.score(PAIRS, when + 1, events=later)["score"] - run.score(PAIRS, when + 1)["score"]
    assert np.abs(changed[:2]).max() > F32


@learned
def test_later_events_in_one_file_in_parts_or_streamed(name: str, trained: Trained, tmp_path: Path) -> None:
    run, later = trained(name), table(200, 60)
    later.to_csv(tmp_path / "later.csv", index=False)
    one = run.score(PAIRS, events=tmp_path / "later.csv")
    parts = run.score(PAIRS, events=[later[a : a + 7] for a in range(0, 60, 7)])
    assert parts["score"].tolist() == one["score"].tolist()
    score_stream(run.path, later, ignore_state=True, save=tmp_path / "state")
    near(run.score(PAIRS, state=tmp_path / "state")["score"], one["score"])
    assert one["t"][0] == later["t"].max() + 1


@pytest.mark.parametrize("name", ["ctdg-ssm", pytest.param("recency", marks=pytest.mark.slow)])
def test_a_query_does_not_change_the_run(name: str, trained: Trained, tmp_path: Path) -> None:
    run = copied(trained(name), tmp_path / "run")
    before = files(run.path)
    run.score(PAIRS, explain=True, events=table(200, 20), out=tmp_path / "out.csv")
    run.rank("u1", top=2, prefilter=6, explain=True)
    assert files(run.path) == before
    assert str(run.path / "calibration.json") in before


# ---- ranking ---------------------------------------------------------------------------------------------
def test_candidates_of_a_ranking(trained: Trained, tmp_path: Path) -> None:
    """Only items, because buyers are never destinations; without seen items; and those that a file names."""
    own, run = table(0, 160), trained("recency")
    whole = run.rank("u1", top=None)
    assert set(whole["dst"]) == set(own["dst"])
    assert whole["rank"].tolist() == list(range(1, len(whole) + 1))
    assert (np.diff(whole["score"]) <= 0).all()
    seen = set(own[own.src == "u1"]["dst"])
    assert set(run.rank("u1", top=None, exclude_seen=True)["dst"]) == set(own["dst"]) - seen
    (tmp_path / "some.csv").write_text("id\nv3\nu2\nv3\nv0\n")
    assert set(run.rank("u1", top=None, candidates=tmp_path / "some.csv")["dst"]) == {"v3", "u2", "v0"}
    assert len(run.rank("u1", top=5, candidates=["v3", "u2", "v0"])) == 3
    assert set(run.rank("v1", top=None)["dst"]) == set(own["dst"]) - {"v1"}


def test_all_nodes_are_candidates_unless_bipartite(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    own = pd.DataFrame({"src": rng.integers(0, 12, 150), "dst": rng.integers(0, 12, 150), "t": np.arange(150)})
    run = fit("recency", own, out=tmp_path / "run", config={**LOOP, **EVALUATION})
    found = run.rank(3, top=None)
    assert sorted(found["dst"]) == [i for i in range(12) if i != 3]
    assert run.rank(["3"], top=None).equals(found)
    with pytest.warns(HopstateWarning, match="99"):
        assert len(run.score([(3, 99)])) == 1
    with pytest.raises(DataError, match="targets"):
        run.score([(3, 1), (3, pd.NA)])
    with pytest.raises(DataError, match="candidates"):
        run.rank(3, candidates=np.array([4, float("nan")], object))
    with pytest.raises(DataError, match="sources"):
        run.rank(None)


def test_a_prefilter_keeps_likely_candidates_and_reports_its_recall(trained: Trained) -> None:
    run = trained("dyg-mamba")
    whole = run.rank(["u1", "u2"], top=None)
    assert "prefilter_recall" not in whole.attrs
    assert run.rank("u1", top=8, prefilter=8).attrs["prefilter_recall"] == 1  # of all candidates
    few = run.rank(["u2", "u1"], top=None, prefilter=3)
    assert few.groupby("src").size().tolist() == [3, 3]
    assert 0 < few.attrs["prefilter_recall"] < 1
    merged = few.merge(whole, on=["src", "dst"], validate="one_to_one")
    near(merged["score_x"], merged["score_y"])
    own = table(0, 160)
    last = own[own.src == "u1"]["dst"].iloc[-1]
    assert last in set(few[few["src"] == "u1"]["dst"])


def test_a_prefilter_accepts_candidates_in_any_order_and_unknown_ones(trained: Trained) -> None:
    names = [f"v{i}" for i in range(8)] + ["absent"]
    run = trained("recency")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopstateWarning)  # the node is absent
        one = run.rank("u1", top=None, prefilter=4, candidates=names)
        other = run.rank("u1", top=None, prefilter=4, candidates=names[::-1])
        assert len(run.rank("no one else", top=2, prefilter=4, candidates=names)) == 2
    assert set(one["dst"]) == set(other["dst"])
    assert one["dst"].iloc[0] == run.rank("u1", top=1, candidates=names[:-1])["dst"].iloc[0]


# ---- probabilities, reasons ------------------------------------------------------------------------------
@each
def test_probabilities_decrease_with_ranks(name: str, trained: Trained) -> None:
    found = trained(name).rank(["u1", "u2"], top=None)
    assert found["probability"].between(0, 1).all()
    for _, one in found.groupby("src"):
        assert (np.diff(one["probability"]) <= 0).all()
        assert (np.diff(one["score"]) <= 0).all()


def test_a_damaged_calibration_is_recomputed(trained: Trained, tmp_path: Path) -> None:
    run = copied(trained("dyg-mamba"), tmp_path / "run")
    kept = run.path / "calibration.json"
    content = json.loads(kept.read_text())
    kept.unlink()
    found = run.rank(["u1", "u2"], top=None)
    damages = ({"values": [3.0]}, {"scores": [math.nan]})
    for damage in ("{", *(json.dumps(content | one) for one in damages)):
        kept.write_text(damage)
        again = run.rank(["u1", "u2"], top=None)
        assert again["dst"].equals(found["dst"])
        near(again["probability"], found["probability"])
        assert kept.read_text() == damage


@pytest.mark.parametrize("name", ["recency", "pair-trees", "dyg-mamba"])
def test_explanations_name_real_events_of_source_or_destination(name: str, trained: Trained) -> None:
    own = table(0, 160)
    u, v = own[["src", "dst"]].iloc[-4]
    why = trained(name).score([(u, v)], explain=True)["why"][0]
    events = {(frozenset((src, dst)), t) for src, dst, t in own[["src", "dst", "t"]].itertuples(index=False)}
    named = 0
    for part in why.split("; "):
        ids = re.findall(r"\b[uv]\d+\b", part)
        if len(ids) != 2:
            continue
        assert {u, v} & {*ids}
        assert any((frozenset(ids), int(number)) in events for number in re.findall(r"(?<![\w.])\d+(?![\w.])", part))
        named += 1
    assert 1 <= named <= 3


def test_explanations_of_edgebank_count_events(trained: Trained) -> None:
    own = table(0, 160)
    (u, v), count = next(iter(own.groupby(["src", "dst"]).size().items()))
    why = trained("edgebank").score([(u, v)], explain=True)["why"][0]
    assert str(count) in re.findall(r"\d+", why)


# ---- dates, files, the command line ----------------------------------------------------------------------
def test_queries_with_dates_return_dates(
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
    near(both["score"][0], found["score"][0])
    assert both["t"].tolist() == ["2024-04-01T12:00:00", "2024-05-01T00:00:00"]
    monkeypatch.setenv("COLUMNS", "50")
    assert main(["score", str(run.path), "--pairs", "u1,v2", "--time", "2024-04-01T12:00:00", "--explain"]) == 0
    assert "\u2026" not in capsys.readouterr().out  # dates are not cut in a narrow table


def test_queries_on_the_command_line(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied(trained("recency"), tmp_path / "run")
    where = str(run.path)
    (tmp_path / "pairs.csv").write_text("src,dst\nu1,v2\nu3,v3\n")
    expected = run.score(PAIRS[:2])
    for kind, read in (("csv", pd.read_csv), ("jsonl", partial(pd.read_json, lines=True))):
        out = tmp_path / f"out.{kind}"
        assert main(["score", where, "--pairs", str(tmp_path / "pairs.csv"), "--out", str(out)]) == 0
        near(read(out)["score"], expected["score"])
    assert main(["score", where, "--pairs", "u1,v2", "--time", "300"]) == 0
    assert "300" in capsys.readouterr().out
    (tmp_path / "who.csv").write_text("id\nu1\nu2\n")
    (tmp_path / "new.csv").write_text(table(200, 20).to_csv(index=False))
    more = ["--events", str(tmp_path / "new.csv"), "--prefilter", "5", "--explain", "--top", "2"]
    out = tmp_path / "ranked.csv"
    assert main(["rank", where, "--source-file", str(tmp_path / "who.csv"), *more, "--out", str(out)]) == 0
    ranked = pd.read_csv(out)
    assert ranked.columns.tolist() == ["src", "rank", "dst", "t", "score", "probability", "why"]
    assert ranked["src"].tolist() == ["u1", "u1", "u2", "u2"]


@pytest.mark.parametrize("name", ["recency", pytest.param("ctdg-ssm", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")
def test_the_run_card_and_its_commands(
    name: str, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table(200, 20).to_csv(tmp_path / "new-events.csv", index=False)
    run = copied(trained(name), tmp_path / "run")
    assert main(["inspect", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert f"{100 * run.metrics['test']['average_precision']:.2f}" in shown
    lines = [line.strip() for line in shown.splitlines() if line.strip().startswith("hopstate ")]
    assert any(line.startswith("hopstate rank") for line in lines)
    for line in lines:
        if "check-leak" not in line:
            line = line.replace("SOURCE", "u1").replace("TARGET", "v2")
            assert main(shlex.split(line, comments=True)[1:]) == 0, line
    assert main(["inspect", str(run.path), "--kind", "graph"]) == 2


# ---- bad input -------------------------------------------------------------------------------------------
def test_an_unknown_id_is_named_with_the_nearest_known_one(trained: Trained) -> None:
    with pytest.warns(HopstateWarning, match="'u11'.*'u1'"):
        trained("recency").score([("u11", "v1")])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("src,source,dst\nu1,u1,v1\n", "source"),
        ("dst,amount\nv1,3\n", "pairs.csv"),
        ("src,dst\n", "pairs.csv"),
        ("src,dst\nu1,v1\nu2\n", "pairs.csv"),
        ("src,dst,t\nu1,v1,300\nu1,v1,soon\n", "soon"),
        ("src,dst,t\nu1,v1,300\nu1,v1,50\n", "106"),
    ],
)
def test_an_unusable_query_file_is_rejected(
    text: str, named: str, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.csv").write_text(text)
    out = tmp_path / "out.csv"
    assert main(["score", str(trained("recency").path), "--pairs", str(tmp_path / "pairs.csv"), "--out", str(out)]) == 1
    assert named in capsys.readouterr().err
    assert not out.exists()


def test_invalid_queries_are_rejected(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained("recency")
    where = str(run.path)
    with pytest.raises(TimeOrderError, match="106"):
        run.rank("u1", time=100)
    with pytest.raises(TimeOrderError):
        run.score(PAIRS, events=table(0, 5))
    with pytest.raises(DataError, match=r"300\.5"):
        run.score(PAIRS, 300.5)
    for top in (0, 2.5, "2"):
        with pytest.raises(ConfigError, match="top"):
            run.rank("u1", top=top)
    assert main(["rank", where]) == 2
    assert main(["rank", where, "--source", "u1", "--out", "x.xls"]) == 1
    assert main(["score", str(tmp_path), "--pairs", "u1,v1"]) == 1
    assert main(["score", where, "--pairs", "u1"]) == 1
    assert "--pairs" in capsys.readouterr().err
    (tmp_path / "ids.csv").write_text("src,dst\nu1,v1\n")
    assert main(["rank", where, "--source-file", str(tmp_path / "ids.csv")]) == 1
    assert "src" in capsys.readouterr().err


def test_a_run_names_its_missing_data(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = copied(trained("recency"), tmp_path / "moved").path
    settings = json.loads((where / "config.json").read_text())
    (where / "config.json").write_text(json.dumps(settings | {"data": str(tmp_path / "gone.csv")}))
    assert main(["rank", str(where), "--source", "u1"]) == 1
    assert "gone.csv" in capsys.readouterr().err
    config = {**LOOP, **READ, **EVALUATION}
    named = fit(
        "recency",
        read_events(table(0, 160), edge_columns=["amount"]),
        out=tmp_path / "record",
        keep_data=False,
        config=config,
    ).path
    with pytest.raises(ConfigError):
        score(named, PAIRS)


@pytest.mark.slow
def test_a_run_of_another_kind_is_named(tmp_path: Path) -> None:
    own = read_events(table(0, 60).assign(label=np.arange(60) % 2), edge_columns=[])
    config = {**LOOP, "model.channel_dim": 4, "model.time_dim": 8, "history.max_length": 4}
    run = fit("dyg-mamba-nodes", own, out=tmp_path / "nodes", config=config)
    with pytest.raises(ConfigError, match="dyg-mamba-nodes"):
        run.score(PAIRS)


@pytest.mark.slow
def test_a_model_with_node_embeddings_rejects_unseen_nodes_by_name(tmp_path: Path) -> None:
    settings = {"model.static": "learnable"}
    run = made_events.small_run("ctdg-ssm", tmp_path, made_events.table(0, 60), **settings)
    with pytest.warns(HopstateWarning, match="absent"), pytest.raises(DataError, match="absent"):
        run.score([("u1", "absent")])


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose ids are row numbers and whose times are integers up to 119."""
    home, rng = tmp_path_factory.mktemp("numbered"), np.random.default_rng(3)
    ends = {"src": rng.integers(0, 20, 120), "dst": 20 + rng.integers(0, 20, 120)}
    pd.DataFrame({**ends, "t": np.arange(120)}).to_csv(home / "own.csv", index=False)
    run = fit("recency", home / "own.csv", out=home / "run", config={**LOOP, **EVALUATION})
    run.score([(3, 24)])
    return run


@pytest.mark.parametrize("name", ["99999999999999999999", "+-5", "\u0663", "1.5", "1_0", ""])
def test_an_id_that_is_not_a_64_bit_integer_is_rejected(numbered: Run, name: str) -> None:
    with pytest.raises(DataError):
        numbered.score([(name, "3")])
    with pytest.raises(DataError):
        numbered.rank(name)


def test_unseen_ids_are_new_nodes_up_to_64_bits(numbered: Run) -> None:
    with pytest.warns(HopstateWarning, match="1500000"):
        found = numbered.score([(3, 60), (3, 1_500_000), (3, 10**12), (3, -1)])
    assert found["dst"].tolist() == [60, 1_500_000, 10**12, -1]
    assert len(set(found["score"])) == 1


@pytest.mark.parametrize("when", [1e300, 2.0**63, float("inf"), 2000.5])
def test_an_incompatible_query_time_is_rejected(numbered: Run, when: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError):
            numbered.score([(3, 24)], when)
    before = files(numbered.path)
    if np.isfinite(when) and when == np.floor(when):  # events may have fractional times
        with pytest.raises(DataError):
            score_stream(numbered.path, pd.DataFrame({"src": [3], "dst": [24], "t": [when]}))
    assert {k: v for k, v in files(numbered.path).items() if "lock" not in k} == before


def test_input_files_are_never_overwritten(numbered: Run, tmp_path: Path) -> None:
    own = numbered.path.parent / "own.csv"
    later, pairs, ids, link = (tmp_path / f"{name}.csv" for name in ("later", "pairs", "ids", "link"))
    later.write_text("src,dst,t\n3,24,500\n")
    pairs.write_text("src,dst\n3,24\n")
    ids.write_text("id\n24\n25\n")
    link.symlink_to(own)
    before = {path: path.read_bytes() for path in (own, later, pairs, ids)}
    asks = [
        lambda: numbered.predict(out=own),
        lambda: numbered.predict(out=link),
        lambda: numbered.predict(data=later, out=later),
        lambda: numbered.stream(later, out=later),
        lambda: numbered.stream(later, out=own),
        lambda: numbered.score(pairs, out=pairs),
        lambda: numbered.score(pairs, events=[later], out=later),
        lambda: numbered.rank(3, candidates=ids, out=ids),
    ]
    for ask in asks:
        with pytest.raises(ConfigError):
            ask()
    assert all(path.read_bytes() == text for path, text in before.items())
    assert len(numbered.predict(out=tmp_path / "new.csv")) == len(pd.read_csv(tmp_path / "new.csv"))


def test_impossible_data_paths_are_rejected(numbered: Run, tmp_path: Path, capsys) -> None:
    run = copied(numbered, tmp_path / "run")
    config = json.loads((run.path / "config.json").read_text())
    (run.path / "config.json").write_text(json.dumps(config | {"data": "a\0b.csv"}))
    assert main(["predict", str(run.path), "--out", str(tmp_path / "p.csv")]) in (1, 2)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_calibration_of_another_run_is_not_used(numbered: Run, tmp_path: Path) -> None:
    """Models without weights have equal hashes; the run's data and settings distinguish them."""
    other = pd.DataFrame({"src": [0, 1] * 60, "dst": [2, 3] * 60, "t": np.arange(120)})
    run = fit("recency", other, out=tmp_path / "there", config={**LOOP, **EVALUATION})
    run.score([(0, 2)])
    mine = copied(numbered, tmp_path / "mine")
    shutil.copy(run.path / "calibration.json", mine.path / "calibration.json")
    near(mine.score([(3, 24)])["probability"], numbered.score([(3, 24)])["probability"])
