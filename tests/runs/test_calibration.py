"""Candidates are ranked by score, and every function gives the same probabilities."""

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch

from hopstate.errors import HopstateWarning, MissingFileError
from hopstate.evaluation.calibration import IsotonicCurve
from hopstate.runs import queries as module
from hopstate.runs.load import load_run
from hopstate.runs.queries import calibration_of, open_session, pair_probabilities, rank_session, score_session
from hopstate.runs.run import Run
from hopstate.streaming.slices import run_to_completion
from hopstate.testing.conformance import F32, F32_TIGHT
from hopstate.training.tasks.link import LinkTask
from made_events import named, repeating, small_run

near = partial(np.testing.assert_allclose, rtol=F32, atol=F32_TIGHT)
METHODS = ["pair-trees", "graphmixer", "ctdg-ssm"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Return a run of a method on events half of which repeat a pair, trained on first use."""
    home = tmp_path_factory.mktemp("calibrated")
    return cache(lambda name: small_run(name, home, named(repeating(400))))


@pytest.fixture
def run(request: pytest.FixtureRequest, runs: Callable[[str], Run]) -> Run:
    return runs(request.param)


each = pytest.mark.parametrize(
    "run", [METHODS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in METHODS[1:])], indirect=True
)


@each
def test_candidates_are_ranked_by_score_and_probabilities_decrease(run: Run) -> None:
    whole = run.rank("u3", top=None)
    assert (np.diff(whole["score"]) <= 0).all()
    assert (np.diff(whole["probability"]) <= 0).all()
    near(whole["probability"], curve_of_run(run)(whole["score"].to_numpy()))


@each
@pytest.mark.slow
def test_the_order_of_a_subset_equals_that_among_all(run: Run) -> None:
    whole = run.rank(["u3", "u5"], top=None)
    some = whole["dst"].unique()[::-3].tolist()
    few = run.rank(["u5", "u3"], top=None, candidates=some)
    for source in ("u3", "u5"):
        expected = whole[(whole.src == source) & whole.dst.isin(some)]
        assert few[few.src == source]["dst"].tolist() == expected["dst"].tolist()
        near(few[few.src == source]["probability"], expected["probability"])


def curve_of_run(run: Run) -> IsotonicCurve:
    with open_session(run.path) as session:
        return calibration_of(session)


@each
def test_every_function_gives_the_same_probabilities(run: Run) -> None:
    pairs = [("u3", "v12"), ("u5", "v11"), ("u3", "unknown"), ("who", "whom"), ("v12", "u3")]
    with open_session(run.path) as session, warnings.catch_warnings():
        warnings.simplefilter("ignore", HopstateWarning)  # some ids are unknown
        table = score_session(session, pairs)
        scores, values = run_to_completion(pair_probabilities(session, pairs))
        near(scores, table["score"])
        near(values, table["probability"])
        single = [score_session(session, [pair])["probability"][0] for pair in pairs]
    near(single, values)
    near(run.score(pairs[:2])["probability"], single[:2])


@pytest.mark.parametrize("strategy", ["historical", "ranking"])
def test_the_calibration_uses_random_pairs_for_every_strategy(strategy: str, runs: Callable[[str], Run]) -> None:
    expected = curve_of_run(runs("graphmixer"))
    with load_run(runs("graphmixer").path) as (_, task), torch.no_grad():
        assert isinstance(task, LinkTask)
        task.evaluation = replace(task.evaluation, strategies=(strategy,))
        task.negatives = {}
        found = task.calibration_curve()
    assert found is not None
    assert found.strategy == expected.strategy == "random"
    for one, other in ((found.scores, expected.scores), (found.values, expected.values)):
        np.testing.assert_allclose(one, other, rtol=0, atol=F32)


@each
def test_training_stores_the_calibration_that_a_query_computes(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    before = json.loads((run.path / "calibration.json").read_text())
    with open_session(tmp_path / "run") as session, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "load_run", broken)  # its data are not read again
        assert calibration_of(session).values.tolist() == before["values"]
    (tmp_path / "run" / "calibration.json").unlink()
    with open_session(tmp_path / "run") as session:
        after = vars(calibration_of(session))
    assert not (tmp_path / "run" / "calibration.json").exists()  # a query writes nothing
    assert after["strategy"] == before["strategy"]
    for key in ("scores", "values", "num_events", "ratio"):
        np.testing.assert_allclose(after[key], before[key], rtol=0, atol=F32)


@pytest.mark.parametrize("settings", [{"evaluation.protocol": "dyglib"}, {"evaluation.strategies": ["historical"]}])
def test_training_stores_a_calibration_for_every_evaluation(settings: dict, tmp_path: Path) -> None:
    run = small_run("recency", tmp_path, named(repeating(200)), **settings)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert run.path / "calibration.json" in before
    assert run.rank("u3", top=None)["probability"].notna().all()
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


@each
def test_without_a_calibration_the_order_follows_scores(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / "calibration.json").unlink(missing_ok=True)
    with open_session(tmp_path / "run") as session, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "load_run", broken)
        with pytest.warns(HopstateWarning, match="the file is gone"):
            whole = run_to_completion(rank_session(session, "u3", top=None))
        assert whole["probability"].isna().all()
        assert (np.diff(whole["score"]) <= 0).all()
        assert "the file is gone" in whole.attrs["probability"]
    assert not (tmp_path / "run" / "calibration.json").exists()


def broken(*_args: object, **_kwargs: object) -> None:
    raise MissingFileError("the file is gone")
