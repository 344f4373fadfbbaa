"""One pair at one time has one score: single, in a batch, among candidates, in `predict` and in `evaluate`.

Scores of a test event and its negatives use only the events before it.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hopstate.errors import HopstateWarning
from hopstate.runs.load import load_run
from hopstate.runs.run import fit, predict
from hopstate.testing.conformance import F32, F32_TIGHT
from torch_threads import torch_threads

NARROW = {"model.channel_dim": 6, "model.time_dim": 9, "model.out_dim": 13}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "recency": ("recency", {}),
    "edgebank": ("edgebank", {}),
    "pair-trees": ("pair-trees", {"model.num_trees": 20, "model.min_leaf": 5}),
    "graphmixer": ("graphmixer", {"model.num_links": 5, "model.dim": 11, "model.out_dim": 13}),
    "dygformer": ("dygformer", {**NARROW, "model.max_length": 9, "model.patch_size": 3, "model.num_heads": 3}),
    "dyg-mamba": ("dyg-mamba", {**NARROW, "history.max_length": 9}),
    "dyg-mamba with attention": ("dyg-mamba", {**NARROW, "model.cross_attention": 3, "model.encoders": "independent"}),
    "ctdg-ssm": ("ctdg-ssm", {"model.dim": 9, "model.time_dim": 5, "model.hidden": 11, "model.node_time_deltas": True}),
}
QUICK = ("pair-trees",)
near = partial(np.testing.assert_allclose, rtol=F32, atol=F32_TIGHT)
BATCH, EVENTS = 10, 200  # validation and test start at a batch boundary, because a memory's batches restart with them
KINDS = ("random", "historical", "inductive")


def table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    parts = (rng.integers(0, 11, EVENTS), 11 + rng.integers(0, 9, EVENTS), np.arange(EVENTS) * 7)
    made = pd.DataFrame(dict(zip(("src", "dst", "t"), parts, strict=True)))
    return made.assign(amount=rng.normal(size=EVENTS).round(3))


def evaluation_scores(run: Any, row: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return pairs (n, 2) of an event and of the negatives of `evaluate`, their scores there, and their time."""
    with load_run(run.path) as (_, task), torch.no_grad():
        report, stream = task.report("test").scores, task.stream  # type: ignore[attr-defined]
    pairs, scores = [], []
    for kind in KINDS:
        drawn, split_scores = task.negatives["test", kind], report["test", kind]  # type: ignore[attr-defined]
        i = int(np.flatnonzero(split_scores.rows == row)[0])
        at = slice(*split_scores.offsets[i : i + 2])
        pairs += [(stream.src[row], stream.dst[row]), *zip(drawn.src[at], drawn.dst[at], strict=True)]
        scores += [split_scores.positive[i], *split_scores.negative[at]]
    return np.array(pairs), np.array(scores), int(stream.t[row])


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in METHODS])
def test_a_score_is_the_same_everywhere(name: str, tmp_path: Path) -> None:
    method, settings = METHODS[name]
    own, file, row = table(), tmp_path / "own.csv", EVENTS - BATCH - 3
    own.to_csv(file, index=False)
    loop = {"epochs": 1, "progress": False, "logger": "none", "device": "cpu", "seed": 5}
    judging = {"strategies": list(KINDS), "batch_size": BATCH}
    config = {**settings, "loop": loop, "evaluation": judging, "read": {"edge_columns": ["amount"]}}
    run = fit(method, file, out=tmp_path / "run", config=config)
    pairs, scores, t = evaluation_scores(run, row)
    assert len(np.unique(scores)) > 2 or method == "edgebank"
    assert predict(run.path, split="test").score[row - 170] == pytest.approx(scores[0], rel=F32, abs=F32_TIGHT)
    run.score(pairs[:1])  # the calibration is of the full split
    own[own.t < t].to_csv(file, index=False)
    with torch_threads(3 - min(torch.get_num_threads(), 2)), pytest.warns(HopstateWarning, match=r"own\.csv"):
        found = [run.score(pairs, t), run.score(pairs[-1:], t), run.rank(pairs[0, 0], top=None, time=t)]
    near(found[0]["score"], scores)
    near(found[1]["score"], scores[-1:])
    near(found[2].set_index("dst")["score"][pairs[0, 1]], scores[0])


@pytest.mark.parametrize(
    "name", ["dyg-mamba", *(pytest.param(n, marks=pytest.mark.slow) for n in ("dyg-mamba with attention", "ctdg-ssm"))]
)
@pytest.mark.slow
def test_evaluation_scores_do_not_depend_on_other_pairs(name: str, tmp_path: Path) -> None:
    method, settings = METHODS[name]
    loop = {"epochs": 0, "progress": False, "logger": "none", "device": "cpu", "seed": 5}
    read = {"edge_columns": ["amount"]}
    table().to_csv(tmp_path / "own.csv", index=False)
    run = fit(method, tmp_path / "own.csv", out=tmp_path / "run", config={**settings, "loop": loop, "read": read})
    with load_run(run.path) as (_, task), torch.no_grad():
        scorer, stream = task.scorer("test"), task.stream  # type: ignore[attr-defined]
        at = np.arange(170, EVENTS)
        whole = np.asarray(scorer.score(stream.src[at], stream.dst[at], stream.t[at]))
        for some in (at[:1], at[-1:], at[3:20], at[::-1]):
            found = np.asarray(scorer.score(stream.src[some], stream.dst[some], stream.t[some]))
            near(found, whole[some - 170])
