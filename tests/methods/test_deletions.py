"""A deletion is neither a positive nor an interaction, and its token differs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopstate.data.events import DELETE, EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import chronological_split
from hopstate.errors import ConfigError
from hopstate.evaluation.leak import check_leak
from hopstate.evaluation.link import evaluate_link
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.heuristics.edgebank import EdgeBank
from hopstate.methods.heuristics.method import Recency
from hopstate.methods.method import Context
from hopstate.runs.run import evaluate, fit, predict
from hopstate.sampling.negatives import draw_negatives, one_against_many
from hopstate.testing.conformance import F32_TIGHT
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer
from made_events import additions_and_deletions

LOOP = {"loop.epochs": 1, "loop.progress": False, "loop.logger": "none", "loop.device": "cpu"}
WIDTHS = {"model.channel_dim": 4, "model.time_dim": 6, "model.out_dim": 6, "batch_size": 40}
SMALL: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {"model.dim": 6, "model.time_dim": 6, "batch_size": 40, "evaluation.batch_size": 40},
    "dyg-mamba": {**WIDTHS, "history.max_length": 6},
    "dygformer": {**WIDTHS, "model.max_length": 6},
    "graphmixer": {"model.num_links": 4, "model.dim": 6, "model.time_dim": 6, "model.out_dim": 4, "batch_size": 40},
    "recency": {},
    "pair-trees": {"model.num_trees": 20, "model.min_leaf": 5},
    "edgebank": {},
}
HISTORY = ("dyg-mamba", "dygformer", "graphmixer")
KINDS = ("ctdg-ssm", "dyg-mamba", "recency", "edgebank", "pair-trees")  # one of each kind of scorer
each = pytest.mark.parametrize("method", [m if m in KINDS else pytest.param(m, marks=pytest.mark.slow) for m in SMALL])


def events(count: int = 300, seed: int = 0, *, features: bool = False) -> EventStream:
    return additions_and_deletions(count, seed, people=12, goods=8, last=200, features=features)


def task_of(method: str, stream: EventStream, folder: Path, **settings: Any) -> Any:
    chosen = get_method(method)
    given = {"data": "x", **LOOP, **SMALL[method], "evaluation.strategies": ["random"], **settings}
    return chosen.build(stream, config_from(chosen, given), Context(run=folder, cache=folder))


@each
def test_only_additions_are_training_targets(method: str, tmp_path: Path) -> None:
    """In predictions, in evaluation, in training."""
    stream = events()
    added = stream.additions()
    assert 0 < len(added) < len(stream)
    task = task_of(method, stream, tmp_path)
    for part in ("all", "train", "val", "test"):
        rows = added if part == "all" else stream.additions(task.split.rows(part))
        found = task.predict(part)
        assert found["src"].tolist() == stream.src[rows].tolist()
        assert found["t"].tolist() == stream.t[rows].tolist()
    scores = task.report("test").scores
    assert scores["test", "random"].rows.tolist() == stream.additions(task.split.test).tolist()
    positives = 0
    for batch in task.batches(0):
        steps = batch["steps"] if isinstance(batch, dict) else [{"labels": part[1]} for part in batch]
        positives += sum(int(step["labels"].sum()) for step in steps)
    unbatched = method in ("recency", "edgebank", "pair-trees")
    assert positives == (0 if unbatched else len(stream.additions(task.split.train)))


FITTED = [m if m in ("dyg-mamba", "ctdg-ssm") else pytest.param(m, marks=pytest.mark.slow) for m in SMALL]


@pytest.mark.parametrize("method", FITTED)
def test_a_deletion_is_not_an_interaction_for_any_method(method: str, tmp_path: Path) -> None:
    """Queries after a deletion differ from queries after an addition in its place."""
    run = fit(
        method, events(), out=tmp_path / "run", config={**LOOP, **SMALL[method], "evaluation.strategies": ["random"]}
    )
    assert evaluate(run.path, data=events())["average_precision"] == pytest.approx(
        run.metrics["test"]["average_precision"], abs=F32_TIGHT
    )
    added = events().with_(kind=None)
    rows = events().additions()
    scores, found = (
        predict(run.path, **of)["score"].to_numpy() for of in ({"data": added, "cold_start": True}, {"data": events()})
    )
    assert np.isnan(found).sum() == len(found) - len(rows)  # a deletion has no score
    assert np.abs(scores[rows] - found[rows]).max() > 1e-4


@pytest.mark.parametrize("strategy", ["random", "historical", "inductive"])
def test_negatives_depend_only_on_additions(strategy: Any) -> None:
    """As if the file had no deletions: a deletion neither excludes nor adds a pair."""
    stream = events(600)
    split = chronological_split(stream)
    rows = stream.additions()
    columns = {name: getattr(stream, name)[rows] for name in ("src", "dst", "t")}
    bare = EventStream(**columns, num_nodes=20)
    place = {name: np.searchsorted(rows, stream.additions(split.rows(name))) for name in ("train", "val", "test")}
    additions_split = type(split)(**place)
    for part in ("val", "test"):
        found, expected = (
            draw_negatives(stream, split, part, strategy),
            draw_negatives(bare, additions_split, part, strategy),
        )
        assert found.rows.tolist() == rows[expected.rows].tolist()
        assert (found.src.tolist(), found.dst.tolist()) == (expected.src.tolist(), expected.dst.tolist())
        many = [one_against_many(s, p, part, num_negatives=4) for s, p in ((stream, split), (bare, additions_split))]
        assert many[0].dst.tolist() == many[1].dst.tolist()


def test_recency_counts_from_the_last_addition() -> None:
    stream = EventStream(
        src=np.array([0, 1, 0, 0]),
        dst=np.array([2, 2, 2, 2]),
        t=np.array([10, 20, 30, 40]),
        kind=np.array([0, 0, 1, 0], np.int8),
    )
    store = NeighborStore.from_stream(stream)
    assert store.last_meeting(np.array([0, 0]), np.array([2, 2]), np.array([40, 41]))[0].tolist() == [10, 40]
    assert Recency(store).score(np.array([0]), np.array([2]), np.array([40]))[0] == -np.log1p(30)
    assert store.last(np.array([2]), np.array([40]), 5).event_ids.tolist() == [0, 1]
    assert NeighborStore.from_stream(stream, deletions=True).last(np.array([2]), np.array([40]), 5).lengths[0] == 3


def bank_naive(stream: EventStream, pairs: list[tuple[int, int]], memory: str) -> list[float]:
    """Score pairs after all events by a loop over events (the definition)."""
    pairs_times: dict[tuple[int, int], list[int]] = {}
    for u, v, t, kind in zip(stream.src, stream.dst, stream.t, stream.kind, strict=True):
        if kind == DELETE:
            pairs_times.pop((u, v), None)
        else:
            pairs_times.setdefault((u, v), []).append(t)
    added = stream.t[stream.additions()]
    if memory == "threshold":
        least = np.mean([len(times) for times in pairs_times.values()])
        return [float(len(pairs_times.get(pair, [])) >= least) for pair in pairs]
    start = {"unlimited": -1, "proportion": np.quantile(added, 0.7)}.get(memory)
    if memory == "repeat":
        gaps = [(times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0 for times in pairs_times.values()]
        start = added[-1] - np.mean(gaps)
    return [float(pair in pairs_times and pairs_times[pair][-1] >= start) for pair in pairs]


@pytest.mark.parametrize("memory", ["unlimited", "proportion", "repeat", "threshold"])
@pytest.mark.parametrize("size", [7, 1000])
def test_edgebank_forgets_a_deleted_pair(memory: str, size: int) -> None:
    stream = events(400, seed=3)
    rows = np.arange(len(stream))
    again = stream.src * 20 + stream.dst
    assert len(np.unique(again[stream.additions()])) < len(stream.additions())  # some are added again
    window = {"memory": "window", "window": memory, "proportion": 0.3} if memory in ("proportion", "repeat") else None
    bank = EdgeBank(20, EdgeBank.Config(**(window or {"memory": memory})))
    for start in range(0, len(rows), size):
        bank.observe(stream.take(rows[start : start + size]))
    pairs = [(u, v) for u in range(12) for v in range(12, 20)]
    src, dst = np.array(pairs).T
    found = bank.score(src, dst, np.zeros(len(src)))
    assert found.tolist() == bank_naive(stream, pairs, memory)
    assert 0 < found.sum() < len(found)


@pytest.mark.parametrize("features", [False, True])
def test_tokens_mark_deletions_or_skip_them(features: bool) -> None:
    stream = events(features=features)
    query = np.arange(20), np.full(20, 150)

    def tokens(deletions: Any, of: EventStream = stream) -> Any:
        store = NeighborStore.from_stream(of, deletions=deletions != "drop")
        return HistoryTokenizer(store, of, HistoryConfig(max_length=30), deletions=deletions).nodes(*query)

    marked, left, plain = (tokens(kind) for kind in ("feature", "drop", "keep"))
    ids = marked.event_ids.numpy()
    expected = np.where(ids < 0, 0, stream.kind[np.maximum(ids, 0)] == DELETE)
    np.testing.assert_array_equal(marked.edge_attr[:, -1].numpy(), expected)
    assert marked.edge_attr.shape[1] == 1 + 2 * features
    assert 0 < expected.sum() < len(expected)
    assert not (stream.kind[left.event_ids[left.event_ids >= 0]] == DELETE).any()
    assert plain.event_ids.tolist() == marked.event_ids.tolist()
    assert (plain.edge_attr is None) == (not features)
    bare = stream.with_(kind=None)
    assert tokens("feature", bare).edge_attr is None or tokens("feature", bare).edge_attr[:, -1].abs().sum() == 0


@pytest.mark.parametrize("method", ["graphmixer", *(pytest.param(m, marks=pytest.mark.slow) for m in HISTORY[:2])])
def test_the_deletion_setting_needs_deletions_in_training(method: str, tmp_path: Path) -> None:
    stream = events()
    width = {kind: _edge_dim(task_of(method, stream, tmp_path / kind, deletions=kind)) for kind in ("feature", "drop")}
    assert width == {"feature": 1, "drop": 0}
    assert _edge_dim(task_of(method, stream.with_(kind=None), tmp_path / "none")) == 0
    with pytest.raises(ConfigError, match="deletions"):
        task_of(method, stream, tmp_path / "bad", deletions="forgotten")
    given = {**LOOP, **SMALL[method], "evaluation.strategies": ["random"]}
    plain = fit(method, stream.with_(kind=None), out=tmp_path / "run", config=given)
    found = predict(plain.path, data=stream, cold_start=True)
    assert np.flatnonzero(found["score"].notna()).tolist() == stream.additions().tolist()


@each
def test_leak_guard_with_deletions(method: str, tmp_path: Path) -> None:
    stream = events(120, features=True)
    task = task_of(method, stream, tmp_path)
    assert check_leak(task.scorer_over, stream, times=3, queries=16, batch_size=16).scores > 0


def test_a_part_with_only_deletions_cannot_be_evaluated() -> None:
    stream = events()
    split = chronological_split(stream)
    kind = stream.kind.copy()
    kind[split.test] = DELETE
    only = stream.with_(kind=kind, from_start=False)
    report = evaluate_link(Recency(NeighborStore.from_stream(only)), only, split, "test", strategies=("random",))
    assert report.rows == []


def _edge_dim(task: Any) -> int:
    model = task.model
    return model.edge_dim if hasattr(model, "edge_dim") else model.encoders[0].edge_dim
