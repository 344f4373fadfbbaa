"""Candidates of an evaluation stand in the order that `rank` gives, by validation's curve, whatever comes first."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.data.event_splits import chronological_split
from hopstate.data.neighbor_store import NeighborStore
from hopstate.evaluation import summaries
from hopstate.evaluation.link import link_negatives, score_links
from hopstate.evaluation.link_scores import LinkScores
from hopstate.evaluation.metrics import average_precision
from hopstate.evaluation.orders import Key, Known, Orders, pairs_of
from hopstate.evaluation.probabilities import Curve
from hopstate.evaluation.ranked_links import ranking_metrics
from hopstate.runs.api import Run, fit, open_run
from hopstate.runs.load import load_run
from hopstate.runs.queries.calibrated import curve_of
from hopstate.runs.queries.session import session
from hopstate.sampling.negatives import draw_negatives
from hopstate.testing.asserts import F64
from hopstate.training.tasks.link import LinkTask
from made_events import LOOP, SMALL, named, repeating, small_run

MANY: dict[str, Any] = {"evaluation.strategies": ["random", "many"], "evaluation.num_negatives": 6}


class Runs(dict[str, Run]):
    """A run of each method that a test needs, judged by random pairs and among candidates."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __missing__(self, name: str) -> Run:
        self[name] = small_run(name, self.home, named(repeating(400)), **MANY)
        return self[name]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("ordered"))


def by_hand(run: Run, split: str = "test") -> dict[str, dict[str, float]]:
    """Return the metrics of candidates by the curve that answers questions, and by the scores alone."""
    with session(run.path) as asked:
        curve = curve_of(asked)
    with load_run(run.path) as (_, task), torch.no_grad():
        assert isinstance(task, LinkTask)
        data = task.stream, task.split, split
        drawn = link_negatives(*data, ("random", "many"), 6, 0, {}, None)
        size, many = task.evaluation.batch_size, drawn[split, "many"]
        scored = score_links(task.scorer(split), *data, drawn, batch_size=size)[split, "many"]
        store, found = NeighborStore.from_stream(task.stream), {}
        at, of = many.rows, np.repeat(many.rows, np.diff(many.offsets))
        own = store.last_meeting(task.stream.src[at], task.stream.dst[at], task.stream.t[at])[1]
        beside = store.last_meeting(many.src, many.dst, task.stream.t[of])[1]
        rules = task.rules(split) if curve.share else None
        ends = (task.stream.src[at], task.stream.dst[at], task.stream.t[at]), (many.src, many.dst, task.stream.t[of])
        said = [None if rules is None else rules(*pair) for pair in ends]
        ordered = curve.ordered(scored.positive, own, said[0]), curve.ordered(scored.negative, beside, said[1])
        orders = {"rank": ordered}
        orders["score"] = scored.positive, scored.negative
        both = score_links(task.scorer(split), *data, drawn, batch_size=size)[split, "random"]
        y, values = both.pooled()
        made, key = Orders(task.stream, curve, rules), (split, "random")
        order = made.of(key, both, drawn[key]).pooled()[1] if curve.moves else values
        pooled = {"probability_ap": average_precision(y, order), "average_precision": average_precision(y, values)}
        for name, (positive, negative) in orders.items():
            found[name] = ranking_metrics(task.stream, at, positive, negative, many.offsets, many.dst)
    return found | {"pooled": pooled}


@pytest.mark.parametrize(
    "name",
    [
        "graphmixer",
        "recency",
        pytest.param("pair-trees", marks=pytest.mark.slow),
        pytest.param("ctdg-ssm", marks=pytest.mark.slow),
    ],
)
def test_ranks_are_those_of_rank_alone_or_after_validation(name: str, runs: dict[str, Run]) -> None:
    run, found = runs[name], by_hand(runs[name])
    alone, whole = run.evaluate(split="test"), run.metrics["test"]
    for metric, expected in found["rank"].items():
        assert alone[f"many_{metric}"] == pytest.approx(expected, abs=F64)
        assert whole[f"many_{metric}"] == pytest.approx(alone[f"many_{metric}"], abs=F64)
    assert (found["rank"] == found["score"]) == (name == "recency")
    assert ("probability_ap" in alone) == (name != "recency")
    for metric, expected in found["pooled"].items():
        assert alone.get(metric, expected) == pytest.approx(expected, abs=F64)
        assert whole.get(metric, expected) == pytest.approx(expected, abs=F64)


@pytest.mark.slow
def test_by_scores_alone_if_set(tmp_path: Path) -> None:
    """As published figures do; and DyGLib's protocol, which is one, ranks so too."""
    settings = {**LOOP, **SMALL["graphmixer"], **MANY}
    named(repeating(400)).to_csv(tmp_path / "own.csv", index=False)
    for i, own in enumerate(({"evaluation.raise_met": False}, {"evaluation.protocol": "dyglib"})):
        run = fit("graphmixer", tmp_path / "own.csv", out=tmp_path / str(i), config={**settings, **own})
        if not i:
            assert run.metrics["test"]["many_mrr"] == pytest.approx(by_hand(run)["score"]["mrr"], abs=F64)
        with load_run(run.path) as (_, task), torch.no_grad():
            assert isinstance(task, LinkTask)
            task.report("val")
            assert ("test", "many") not in task.report("test").orders
        assert "probability_ap" not in run.metrics["test"]


@pytest.mark.parametrize("names", [["graphmixer"], pytest.param(["pair-trees", "ctdg-ssm"], marks=pytest.mark.slow)])
def test_the_curve_of_an_evaluation_is_that_of_questions(runs: dict[str, Run], names: list[str]) -> None:
    for name in names:
        with session(runs[name].path) as asked:
            kept = curve_of(asked)
        with load_run(runs[name].path) as (_, task), torch.no_grad():
            assert isinstance(task, LinkTask)
            made = task.report("val").curve
        assert made is not None
        assert (made.events, made.ratio, made.strategy) == (kept.events, kept.ratio, kept.strategy)
        for one, other in (
            (made.met, kept.met),
            (made.share, kept.share),
            (made.scores, kept.scores),
            (made.values, kept.values),
        ):
            np.testing.assert_allclose(one, other, rtol=0, atol=F64)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["many", "historical"])
def test_validation_of_another_kind_has_random_pairs_for_its_curve(first: str, tmp_path: Path) -> None:
    """The choice of an epoch is by candidates as they will be ranked; the table holds what was asked for alone."""
    own = {**MANY, "evaluation.strategies": [first, *({"many"} - {first})]}
    run = small_run("graphmixer", tmp_path, named(repeating(400)), **own)
    assert not any(name.startswith(("average_precision", "random")) for name in run.metrics["val"])
    assert "probability_ap" not in run.metrics["test"]
    found = by_hand(run, "val")["rank"]["mrr"] if first == "many" else by_hand(run)["rank"]["mrr"]
    told = run.metrics["val" if first == "many" else "test"]["many_mrr"]
    assert told == pytest.approx(found, abs=F64)


@pytest.mark.slow
@pytest.mark.parametrize(("strategies", "choose"), [(["many", "random"], "mean"), (["historical"], "first")])
def test_a_curve_costs_validation_some_random_pairs_at_most(
    strategies: list[str], choose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "evenly", lambda count: np.arange(0, count, 3))
    own = {**MANY, "evaluation.strategies": strategies, "evaluation.choose": choose}
    run = small_run("graphmixer", tmp_path, named(repeating(400)), **own)
    with load_run(run.path) as (_, task), torch.no_grad():
        assert isinstance(task, LinkTask)
        asked: list[tuple[str, str, int]] = []
        plain = task._scored

        def counted(scorer: Any, split: str, drawn: Any, **how: Any) -> Any:
            asked.extend((*key, len(one)) for key, one in drawn.items() if not key[0].startswith("new_"))
            return plain(scorer, split, drawn, **how)

        monkeypatch.setattr(task, "_scored", counted)
        task.report("val")
        whole = len(task.split.val)
        some = [("val", "random", -(-whole // 3)), ("val", "historical", whole)]
        assert asked == ([("val", "random", whole)] if choose == "mean" else some)


def test_scores_that_are_no_probabilities_are_never_moved(tmp_path: Path) -> None:
    """EdgeBank answers 0 or 1, which is no probability."""
    for name in ("edgebank",):
        found = []
        for by in (True, False):
            home = tmp_path / name / str(by)
            home.mkdir(parents=True)
            found.append(small_run(name, home, named(repeating(400)), **MANY, **{"evaluation.raise_met": by}))
        assert found[0].metrics["test"] == found[1].metrics["test"]
        assert "probability_ap" not in found[0].metrics["test"]
        assert curve_of_run(found[0]).met == 0


def curve_of_run(run: Run) -> Curve:
    with session(run.path) as asked:
        return curve_of(asked)


def test_other_events_are_ranked_in_the_runs_own_order(runs: dict[str, Run], tmp_path: Path) -> None:
    other = named(repeating(400))
    other["t"] += 1000
    other["dst"] = np.roll(other["dst"], 7)
    run = runs["graphmixer"]
    with load_run(run.path, other) as (_, task), torch.no_grad():
        assert isinstance(task, LinkTask)
        own = task.judged_curve()
    assert own is not None
    kept = curve_of_run(run)
    assert own.met != pytest.approx(kept.met, rel=0.01)
    shutil.copytree(run.path, tmp_path / "run")
    twin = open_run(tmp_path / "run")
    before = twin.evaluate(other, split="test", fresh=True)
    (twin.path / "calibration.json").write_text(
        json.dumps(json.loads((twin.path / "calibration.json").read_text()) | {"met": -30.0})
    )
    assert twin.evaluate(other, split="test", fresh=True)["many_mrr"] != before["many_mrr"]


def spoken(u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return log-odds that differ from pair to pair and from time to time."""
    return 10.0 * u + v + t / 1000


def test_pairs_stand_in_the_order_of_pooled_scores() -> None:
    """Who met, and what rules say of each, is told of the pair that has the score."""
    stream = repeating(200)
    drawn = draw_negatives(stream, chronological_split(stream), "test")
    src, dst = np.concatenate([stream.src[drawn.rows], drawn.src]), np.concatenate([stream.dst[drawn.rows], drawn.dst])
    t = np.tile(stream.t[drawn.rows], 2)
    for column, expected in zip(pairs_of(stream, drawn), (src, dst, t), strict=True):
        assert column.tolist() == expected.tolist()
    at = np.array([3, 0, len(src) - 1])
    assert pairs_of(stream, drawn, at)[1].tolist() == dst[at].tolist()
    curve = Curve(np.array([-9.0, 9.0]), np.array([0.1, 0.9]), 1, 1.0, "random", 2.0, 0.25)
    scores = np.linspace(0.2, 0.8, len(src))
    count = len(drawn.rows)
    given = LinkScores(rows=drawn.rows, positive=scores[:count], negative=scores[count:], offsets=drawn.offsets)
    order = Orders(stream, curve, spoken).of(summaries.KEY, given, drawn).pooled()[1]
    met = NeighborStore.from_stream(stream).last_meeting(src, dst, t)[1]
    expected = 0.75 * np.log(scores / (1 - scores)) + 0.25 * spoken(src, dst, t) + 2 * met
    np.testing.assert_allclose(order, expected, rtol=F64, atol=F64)


def test_what_is_asked_again_is_known() -> None:
    """Validation of every share and epoch: the same orders as if each were asked anew, and each thing asked once."""
    stream, calls = repeating(200), []
    split = chronological_split(stream)

    def rules(u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
        calls.append(len(u))
        return spoken(u, v, t)

    known: dict[Key, Known] = {}
    drawn = {("val", name): draw_negatives(stream, split, "val", name) for name in ("random", "historical")}
    shares = [(0.0, 0.0), (2.0, 0.0), (2.0, 0.25), (0.0, 0.5), (-1.0, 1.0)]
    for i, (met, share) in enumerate(shares):
        curve = Curve(np.array([-9.0, 9.0]), np.array([0.1, 0.9]), 1, 1.0, "random", met, share)
        if not curve.moves:
            continue
        for key, own in drawn.items():
            values = np.linspace(0.2, 0.8, len(own.rows)) ** (i + 1)
            given = LinkScores(rows=own.rows, positive=values, negative=values[: len(own.src)], offsets=own.offsets)
            again = Orders(stream, curve, rules if share else None, known).of(key, given, own)
            anew = Orders(stream, curve, spoken).of(key, given, own)
            np.testing.assert_allclose(again.pooled()[1], anew.pooled()[1], rtol=F64, atol=F64)
    assert len(calls) == len(drawn)
