"""A run keeps the features of a pair that there were when it began; those from before there were more still score."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hopstate.errors import CheckpointError
from hopstate.methods.method import Context
from hopstate.methods.shared.pair_history import features_known
from hopstate.runs.api import evaluate, fit, open_run
from hopstate.testing.asserts import F32_SUM, F64
from hopstate.tokens.pair_features import BEFORE_PATHS, EARLIER, KNOWN, NAMES
from hopstate.training.checkpoint import load_checkpoint
from hopstate.training.run_folder import RunFolder

LOOP = {
    "loop.epochs": 1,
    "loop.optim.schedule": "constant",
    "loop.progress": False,
    "loop.tensorboard": "no",
    "loop.device": "cpu",
}
WIDTHS = {"model.channel_dim": 4, "model.time_dim": 6, "model.out_dim": 6, "batch_size": 40, "model.pair_history": True}
SMALL: dict[str, dict[str, Any]] = {
    "pair_trees": {"model.max_trees": 10, "loop.progress": False},
    "ctdg_ssm": LOOP | {"model.dim": 6, "model.time_dim": 6, "batch_size": 40, "model.pair_history": True},
    "dyg_mamba": LOOP | WIDTHS | {"history.max_length": 6},
    "baselines.dygformer": LOOP | WIDTHS | {"model.max_length": 6},
    "baselines.graphmixer": LOOP | {"model.num_links": 4, "model.dim": 6, "model.pair_history": True},
}
WHERE = {"pair_trees": "pair_trees.method", "ctdg_ssm": "ctdg_ssm.method", "dyg_mamba": "dyg_mamba.method"}


def _widths(path: Path) -> set[int]:
    """Return how many features the weights are for; trees tell by the largest that they look at."""
    found = load_checkpoint(RunFolder(path).weights).tensors["model"]
    if "child" in found:
        return {EARLIER if int(found["child"][..., 0].max()) < EARLIER else len(NAMES)}
    return {len(x) for name, x in found.items() if name.endswith(("pair.mean", "pair_history.mean"))}


QUICK = ("pair_trees", "dyg_mamba")  # trees, and a head over histories; a memory is read in the same way
PLACES = [place if place in QUICK else pytest.param(place, marks=pytest.mark.slow) for place in SMALL]


@pytest.mark.parametrize("place", PLACES)
def test_a_run_from_before_scores_as_it_did(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, file = np.random.default_rng(0), tmp_path / "events.csv"
    columns = {
        "src": rng.integers(0, 8, 240),
        "dst": rng.integers(12, 20, 240),
        "t": np.sort(rng.integers(0, 300, 240)),
    }
    pd.DataFrame(columns).to_csv(file, index=False)
    method, where = place.split(".")[-1].replace("_", "-"), f"hopstate.methods.{WHERE.get(place, place)}"
    settings = SMALL[place] | {"evaluation.strategies": ["random"]}
    with monkeypatch.context() as before:
        before.setattr(f"{where}.features_known", lambda *_, **__: EARLIER)  # which notes nothing
        old = fit(method, file, out=tmp_path / "old", config=settings)
    new = fit(method, file, out=tmp_path / "new", config=settings)
    known = [json.loads((run.path / "data.json").read_text()).get("pair_features") for run in (old, new)]
    fresh = len(NAMES) if place in ("pair_trees", "ctdg_ssm") else EARLIER
    assert known == [None, fresh]
    for run, width in ((old, EARLIER), (new, fresh)):
        assert _widths(run.path) <= {EARLIER, width}
        found = evaluate(run.path)["average_precision"]
        assert found == pytest.approx(run.metrics["test"]["average_precision"], abs=F64)
        score = run.score([(1, 13), (2, 19)])["score"]
        assert len(score) == 2
        assert np.isfinite(score).all()


@pytest.mark.slow
@pytest.mark.parametrize("place", [place for place in SMALL if place != "pair_trees"])
def test_a_run_from_before_with_trees_alone_scores_as_it_did(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head reads no history, and has a scale for as many features as there were."""
    rng, file = np.random.default_rng(0), tmp_path / "events.csv"
    src, dst = rng.integers(0, 8, 1_600), rng.integers(12, 20, 1_600)
    pd.DataFrame({"src": src, "dst": dst, "t": np.arange(1_600)}).to_csv(file, index=False)
    settings = SMALL[place] | {"evaluation.strategies": ["random"]}
    settings |= {"model.pair_history": False, "model.pair_trees": True, "batch_size": 400}
    method, where = place.split(".")[-1].replace("_", "-"), f"hopstate.methods.{WHERE.get(place, place)}"

    def of_before(context: Context, *, read: bool = True, fresh: int = 0, name: str = "pair_features") -> int:
        context.noted[name] = BEFORE_PATHS
        return BEFORE_PATHS if fresh != EARLIER else EARLIER

    with monkeypatch.context() as before:
        for module in (where, "hopstate.methods.pair_trees.beside"):
            before.setattr(f"{module}.features_known", of_before)
        old = fit(method, file, out=tmp_path / "old", config=settings)
        score = old.score([(1, 13), (2, 19)])["score"]
    again = open_run(old.path).score([(1, 13), (2, 19)])["score"]
    np.testing.assert_allclose(again, score, rtol=F32_SUM)


def test_a_run_that_is_resumed_goes_on_with_its_own(tmp_path: Path) -> None:
    new = Context(run=tmp_path, cache=tmp_path)
    assert (features_known(new), new.noted) == (len(NAMES), {"pair_features": len(NAMES)})
    for known, count in (({}, EARLIER), *(({"pair_features": count}, count) for count in KNOWN)):
        (tmp_path / "data.json").write_text(json.dumps(known), "utf-8")
        again = Context(run=tmp_path, cache=tmp_path)
        assert (features_known(again), again.noted) == (count, {"pair_features": count})


def test_another_number_is_named(tmp_path: Path) -> None:
    def context(**known: Any) -> Context:
        return Context(run=tmp_path, cache=tmp_path, trained=known)

    assert features_known(context()) == EARLIER
    assert [features_known(context(pair_features=count)) for count in KNOWN] == list(KNOWN)
    none = context(pair_features=7)
    assert (features_known(none, read=False), none.noted) == (len(NAMES), {})
    with pytest.raises(CheckpointError, match=r"pair_features.*7"):
        features_known(none)
    for wrong in ("abc", None, [1], 7):
        with pytest.raises(CheckpointError, match="tree_features"):
            features_known(context(tree_features=wrong), read=False)
