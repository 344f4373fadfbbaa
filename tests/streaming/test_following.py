"""Each batch updates the memory once, by commit or by query, and scores do not depend on which came first."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse.linalg
import torch
from threadpoolctl import threadpool_info, threadpool_limits

import made_events
from made_events import small_run

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

from hopstate.ops.filters.laplacian import sparse_laplacian
from hopstate.ops.filters.transition import SparseTransition
from hopstate.runs.queries import pair_probabilities
from hopstate.runs.run import Run
from hopstate.serving.live import LiveRun
from hopstate.serving.replay import replayed
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.memory_scorer import LazyMemoryScorer
from hopstate.streaming.slices import run_to_completion

BATCH = 16
PAIRS = [("u1", "v2")]
TIES = made_events.table(200, 70).to_dict("records")
APART = [event | {"t": 200 + i} for i, event in enumerate(TIES)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    settings = {"evaluation.batch_size": BATCH}
    return small_run("ctdg-ssm", tmp_path_factory.mktemp("run"), made_events.table(0, 160), **settings)


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the batches that update a memory."""
    found: list[int] = []
    update = LazyMemoryScorer._update

    def counted(self: LazyMemoryScorer, active: ActiveBatch) -> None:
        found.append(len(active))
        update(self, active)

    monkeypatch.setattr(LazyMemoryScorer, "_update", counted)
    return found


def stream_scores(
    run: Run, folder: Path, events: list[dict], size: int, who: str
) -> tuple[list[float | None], list[float]]:
    """Return scores of events that arrive in calls of `size`, and of a pair queried in between."""
    scores, queried = [], []
    with LiveRun(run.path, folder=folder) as live:
        for i in range(0, len(events), size):
            scores += [receipt.score for receipt in live.take(events[i : i + size])]
            if who in ("prepare", "both"):
                live.prepare()
            if who in ("query", "both"):
                queried.append(float(run_to_completion(pair_probabilities(live.session(), PAIRS))[0][0]))
    return scores, queried


@pytest.mark.parametrize("size", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("who", ["both", *(pytest.param(who, marks=pytest.mark.slow) for who in ("prepare", "query"))])
def test_a_batch_updates_the_memory_once(who: str, size: int, run: Run, tmp_path: Path, moves: list[int]) -> None:
    expected, _ = stream_scores(run, tmp_path / "a", APART, size, "commits")
    needed = len(moves)
    moves.clear()
    found, _ = stream_scores(run, tmp_path / "b", APART, size, who)
    assert found == expected
    assert len(moves) - needed in (0, 1)  # the last one, which no commit has needed yet
    assert set(moves) == {BATCH}


@pytest.mark.parametrize("events", [TIES, pytest.param(APART, marks=pytest.mark.slow)], ids=["ties", "apart"])
@pytest.mark.parametrize("size", [5, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 32))])
def test_scores_do_not_depend_on_who_updates_the_memory(
    events: list[dict], size: int, run: Run, tmp_path: Path
) -> None:
    _, queried = stream_scores(run, tmp_path / "a", events, size, "query")
    scores, also_queried = stream_scores(run, tmp_path / "b", events, size, "both")
    assert also_queried == queried
    assert [s for part in replayed(run.path, tmp_path / "b") for s in part["score"].tolist()] == scores


def test_factors_of_the_memory_are_made_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits depend on the number of threads, and two threads would spin while they wait for each other."""
    found, splu = set[int](), scipy.sparse.linalg.splu

    def seen(*args: object, **options: object) -> object:
        found.update(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return splu(*args, **options)

    monkeypatch.setattr(scipy.sparse.linalg, "splu", seen)
    after, before = (sparse_laplacian(np.array([[0, 1][:k], [1, 2][:k]]), np.ones(k), 3) for k in (2, 1))
    with threadpool_limits(2, user_api="blas"):
        SparseTransition(torch.ones(2), after, before)
    assert found == {1}
