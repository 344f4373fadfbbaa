"""Candidates are ranked by score, and an evaluation fits the same calibration as a query."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.evaluation import summaries
from hopstate.evaluation.link import link_negatives, ranking_metrics, score_links
from hopstate.runs.load import load_run
from hopstate.runs.queries import calibration_of, open_session
from hopstate.runs.run import Run
from hopstate.testing.conformance import F64
from hopstate.training.tasks.link import LinkTask
from made_events import named, repeating, small_run

MANY: dict[str, Any] = {"evaluation.strategies": ["random", "ranking"], "evaluation.num_negatives": 6}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Return a run of a method by name, trained on first use."""
    home = tmp_path_factory.mktemp("ranked")
    return cache(lambda name: small_run(name, home, named(repeating(400)), **MANY))


@pytest.mark.parametrize(
    "name",
    [
        "graphmixer",
        "recency",
        pytest.param("pair-trees", marks=pytest.mark.slow),
        pytest.param("ctdg-ssm", marks=pytest.mark.slow),
    ],
)
def test_candidates_are_ranked_by_score(name: str, runs: Callable[[str], Run]) -> None:
    run = runs(name)
    with load_run(run.path) as (_, task), torch.no_grad():
        assert isinstance(task, LinkTask)
        data = task.stream, task.split, "test"
        drawn = link_negatives(*data, ("random", "ranking"), 6, 0, {}, None)
        scores = score_links(task.scorer("test"), *data, drawn, batch_size=task.evaluation.batch_size)
        many, own = drawn["test", "ranking"], scores["test", "ranking"]
        expected = ranking_metrics(task.stream, many.rows, own.positive, own.negative, many.offsets, many.dst)
    evaluated, whole = run.evaluate(split="test"), run.metrics["test"]
    for metric, value in expected.items():
        assert evaluated[metric] == pytest.approx(value, abs=F64)
        assert whole[metric] == pytest.approx(value, abs=F64)


@pytest.mark.parametrize("names", [["graphmixer"], pytest.param(["pair-trees", "ctdg-ssm"], marks=pytest.mark.slow)])
def test_evaluation_and_queries_share_one_calibration(runs: Callable[[str], Run], names: list[str]) -> None:
    for name in names:
        with open_session(runs(name).path) as session:
            kept = calibration_of(session)
        with load_run(runs(name).path) as (_, task), torch.no_grad():
            assert isinstance(task, LinkTask)
            task.report("val")
            made = task.curve
        assert made is not None
        assert (made.num_events, made.ratio, made.strategy) == (kept.num_events, kept.ratio, kept.strategy)
        for one, other in ((made.scores, kept.scores), (made.values, kept.values)):
            np.testing.assert_allclose(one, other, rtol=0, atol=F64)


@pytest.mark.slow
@pytest.mark.parametrize(("strategies", "choose"), [(["ranking", "random"], "mean"), (["historical"], "first")])
def test_a_calibration_adds_few_random_pairs_to_validation(
    strategies: list[str], choose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "evenly_spaced", lambda count: np.arange(0, count, 3))
    own = {**MANY, "evaluation.strategies": strategies, "evaluation.select_by": choose}
    run = small_run("graphmixer", tmp_path, named(repeating(400)), **own)
    assert choose == "mean" or not any(name.startswith(("average_precision", "random")) for name in run.metrics["val"])
    with load_run(run.path) as (_, task), torch.no_grad():
        assert isinstance(task, LinkTask)
        queried: list[tuple[str, str, int]] = []
        plain = task._scored

        def counted(scorer: Any, split: str, drawn: Any, **how: Any) -> Any:
            queried.extend((*key, len(one)) for key, one in drawn.items() if not key[0].startswith("new_"))
            return plain(scorer, split, drawn, **how)

        monkeypatch.setattr(task, "_scored", counted)
        task.report("val")
        whole = len(task.split.val)
        some = [("val", "random", -(-whole // 3)), ("val", "historical", whole)]
        assert queried == ([("val", "random", whole)] if choose == "mean" else some)
