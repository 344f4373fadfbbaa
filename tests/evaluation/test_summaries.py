"""Candidates of an evaluation stand in the order that `rank` gives, by validation's curve, whatever comes first."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hopstate.data.event_splits import chronological_split
from hopstate.data.neighbor_store import NeighborStore
from hopstate.evaluation.link import link_negatives, score_links
from hopstate.evaluation.metrics import average_precision
from hopstate.evaluation.ranked_links import ranking_metrics
from hopstate.evaluation.summaries import met_of
from hopstate.runs.api import Run, fit
from hopstate.runs.load import load_run
from hopstate.runs.queries.calibrated import curve_of
from hopstate.runs.queries.session import session
from hopstate.sampling.negatives import draw_negatives
from hopstate.testing.asserts import F64
from hopstate.training.tasks.link import LinkTask
from made_events import LOOP, SMALL, repeating, small_run

METHODS = ["pair-trees", "graphmixer", "ctdg-ssm"]
MANY: dict[str, Any] = {"evaluation.strategies": ["random", "many"], "evaluation.num_negatives": 6}


def events() -> pd.DataFrame:
    made = repeating(400)
    return pd.DataFrame({"src": [f"u{i}" for i in made.src], "dst": [f"v{i}" for i in made.dst], "t": made.t})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of each method, judged by random pairs and among candidates."""
    home = tmp_path_factory.mktemp("ordered")
    return {name: small_run(name, home, events(), **MANY) for name in [*METHODS, "recency"]}


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
        orders = {"rank": (curve.ordered(scored.positive, own), curve.ordered(scored.negative, beside))}
        orders["score"] = scored.positive, scored.negative
        both = score_links(task.scorer(split), *data, drawn, batch_size=size)[split, "random"]
        y, values = both.pooled()
        order = curve.ordered(values, met_of(task.stream, drawn[split, "random"]))
        pooled = {"probability_ap": average_precision(y, order), "average_precision": average_precision(y, values)}
        for name, (positive, negative) in orders.items():
            found[name] = ranking_metrics(task.stream, at, positive, negative, many.offsets, many.dst)
    return found | {"pooled": pooled}


@pytest.mark.parametrize("name", [*METHODS, "recency"])
def test_ranks_are_those_of_rank_alone_or_after_validation(name: str, runs: dict[str, Run]) -> None:
    run, found = runs[name], by_hand(runs[name])
    alone, whole = run.evaluate(split="test"), run.metrics["test"]
    for metric, expected in found["rank"].items():
        assert alone[f"many_{metric}"] == pytest.approx(expected, abs=F64)
        assert whole[f"many_{metric}"] == alone[f"many_{metric}"]
    assert (found["rank"] == found["score"]) == (name == "recency")
    assert ("probability_ap" in alone) == (name != "recency")
    for metric, expected in found["pooled"].items():
        assert alone.get(metric, expected) == whole.get(metric, expected) == pytest.approx(expected, abs=F64)


def test_by_scores_alone_where_asked(tmp_path: Path) -> None:
    """As published figures do; and DyGLib's protocol, which is one, ranks so too."""
    settings = {**LOOP, **SMALL["graphmixer"], **MANY}
    events().to_csv(tmp_path / "own.csv", index=False)
    for i, own in enumerate(({"evaluation.raise_met": False}, {"evaluation.protocol": "dyglib"})):
        run = fit("graphmixer", tmp_path / "own.csv", out=tmp_path / str(i), config={**settings, **own})
        if not i:
            assert run.metrics["test"]["many_mrr"] == by_hand(run)["score"]["mrr"]
        with load_run(run.path) as (_, task), torch.no_grad():
            assert isinstance(task, LinkTask)
            task.report("val")
            assert not task.report("test").orders
        assert "probability_ap" not in run.metrics["test"]


def test_the_curve_of_an_evaluation_is_that_of_questions(runs: dict[str, Run]) -> None:
    for name in METHODS:
        with session(runs[name].path) as asked:
            kept = curve_of(asked)
        with load_run(runs[name].path) as (_, task), torch.no_grad():
            assert isinstance(task, LinkTask)
            made = task.report("val").curve
        assert made is not None
        assert (made.events, made.ratio, made.strategy) == (kept.events, kept.ratio, kept.strategy)
        for one, other in ((made.met, kept.met), (made.scores, kept.scores), (made.values, kept.values)):
            np.testing.assert_allclose(one, other, rtol=0, atol=F64)


@pytest.mark.parametrize("first", ["many", "historical"])
def test_validation_of_another_kind_has_random_pairs_for_its_curve(first: str, tmp_path: Path) -> None:
    """The choice of an epoch is by candidates as they will be ranked; the table holds what was asked for alone."""
    own = {**MANY, "evaluation.strategies": [first, *({"many"} - {first})]}
    run = small_run("graphmixer", tmp_path, events(), **own)
    assert not any(name.startswith(("average_precision", "random")) for name in run.metrics["val"])
    found = by_hand(run, "val")["rank"]["mrr"] if first == "many" else by_hand(run)["rank"]["mrr"]
    told = run.metrics["val" if first == "many" else "test"]["many_mrr"]
    assert told == pytest.approx(found, abs=F64)


def test_who_met_is_told_in_the_order_of_pooled_scores() -> None:
    stream = repeating(200)
    drawn = draw_negatives(stream, chronological_split(stream), "test")
    src, dst = np.concatenate([stream.src[drawn.rows], drawn.src]), np.concatenate([stream.dst[drawn.rows], drawn.dst])
    t = np.tile(stream.t[drawn.rows], 2)
    expected = NeighborStore.from_stream(stream).last_meeting(src, dst, t)[1]
    assert met_of(stream, drawn).tolist() == expected.tolist()
    at = np.array([3, 0, len(expected) - 1])
    assert met_of(stream, drawn, at).tolist() == expected[at].tolist()
