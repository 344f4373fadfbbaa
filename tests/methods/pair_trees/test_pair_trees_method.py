"""`pair-trees` as a method: training, evaluation, live scores, explanations, and invariances."""

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import hopstate
from hopstate.cli.main import main
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import CheckpointError, ConfigError
from hopstate.evaluation.leak import check_leak
from hopstate.evaluation.metrics import roc_auc
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.method import Context
from hopstate.methods.pair_trees.method import link_baselines, training_table
from hopstate.runs.explain import explain
from hopstate.runs.inference import evaluate, predict, score_stream
from hopstate.runs.load import load_run
from hopstate.runs.run import Run, fit
from hopstate.runs.saved_run import SavedRun
from hopstate.streaming.live import continue_stream, state_after_stream
from hopstate.testing.conformance import F32_SUM, F64, F64_SOLVED
from hopstate.tokens.pair_features import GROWING, NAMES

SMALL = {
    "model.num_trees": 30, "model.max_leaves": 8, "model.min_leaf": 10,
    "loop.progress": False, "loop.logger": "none", "loop.device": "cpu",
}  # fmt: skip


def events(count: int = 1200, seed: int = 0, **more: Any) -> EventStream:
    """Return events with soon repeated pairs, with ties and times in steps of 60 units."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, 12, count), 12 + rng.integers(0, 12, count)
    for i in range(20, count):
        if rng.random() < 0.6:
            back = i - 1 - rng.integers(0, 8)
            src[i], dst[i] = src[back], dst[back]
    t = 60 * np.sort(rng.integers(0, count, count)) + 1_650_000_000
    attr = rng.normal(size=(count, 2)).astype(np.float32)
    return EventStream(src=src, dst=dst, t=t, edge_attr=attr, num_nodes=26, time_unit="s", **more)


def part(whole: EventStream, a: int, b: int) -> EventStream:
    names = ("src", "dst", "t", "edge_attr")
    return replace(whole, **{name: getattr(whole, name)[a:b].copy() for name in names})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit("pair-trees", events(), out=tmp_path_factory.mktemp("runs") / "run", config=SMALL)


@pytest.mark.slow
def test_outperforms_recency_on_learnable_streams(run: Run, tmp_path: Path) -> None:
    baseline = fit("recency", events(), out=tmp_path / "baseline", config={"loop.progress": False})
    for name in ("average_precision", "historical_average_precision", "inductive_average_precision"):
        assert run.metrics["test"][name] > baseline.metrics["test"][name] - 0.01
    assert run.metrics["test"]["average_precision"] > 0.75


@pytest.mark.slow
def test_similar_nodes_are_informative_of_new_pairs(tmp_path: Path) -> None:
    """In a bipartite stream no source and destination share partners; without paths of three events this is 0.57."""
    rng, people, pages, groups = np.random.default_rng(0), 120, 60, 6
    src = rng.integers(0, people, 1500)
    dst = people + groups * rng.integers(0, pages // groups, 1500) + src % groups
    stream = EventStream(src=src, dst=dst, t=10 * np.arange(1500), num_nodes=people + pages)
    run = fit("pair-trees", stream, out=tmp_path / "run", config=SMALL | {"evaluation.strategies": ["random"]})
    u, v = np.divmod(np.arange(people * pages), pages)
    seen = np.zeros((people, pages), bool)
    seen[src, dst - people] = True
    u, v = u[~seen[u, v]], v[~seen[u, v]]
    same_group = u % groups == v % groups
    assert 300 < same_group.sum() < 400
    score = run.score(list(zip(u.tolist(), (people + v).tolist())))["score"].to_numpy()
    assert roc_auc(same_group, score) > 0.95


@pytest.mark.slow
def test_next_moves_of_others_predict_the_next_destination(tmp_path: Path) -> None:
    """Songs follow each other as on a record, three times in four; without moves a quarter of them is predicted."""
    rng, people, songs, count = np.random.default_rng(0), 60, 20, 1_800
    after, src, dst = rng.permutation(songs), rng.integers(0, people, count), rng.integers(0, songs, count)
    last = rng.integers(0, songs, people)
    for i, person in enumerate(src):
        dst[i] = last[person] = after[last[person]] if rng.random() < 0.75 else dst[i]
    stream = EventStream(src=src, dst=people + dst, t=10 * np.arange(count), num_nodes=people + songs)
    run = fit("pair-trees", stream, out=tmp_path / "run", config=SMALL | {"evaluation.strategies": ["random"]})
    pairs = [(person, people + song) for person in range(people) for song in range(songs)]
    first = run.score(pairs)["score"].to_numpy().reshape(people, songs).argmax(1)
    assert (first == after[last]).mean() > 0.9


def test_the_run_folder_contains_settings_and_feature_importance(run: Run) -> None:
    (row,) = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert run.best_epoch == row["epoch"] == 30
    assert run.metrics["val"]["average_precision"] == pytest.approx(row["val_average_precision"], abs=F64)
    table = pd.read_csv(run.path / "importances.csv")
    assert table.gain.sum() == pytest.approx(1, abs=F32_SUM)
    assert (np.diff(table.gain) <= 0).all()
    assert not table.gain[table.feature.isin([NAMES[i] for i in GROWING])].any()
    assert table.gain[table.feature.isin(NAMES[-10:-3])].any()
    assert table.gain[table.feature.isin(NAMES[-3:])].any()
    assert {"importances.csv", "model.safetensors", "result.json"} <= {file.name for file in run.path.iterdir()}


@pytest.mark.slow
def test_equal_seeds_are_bit_identical_for_any_number_of_threads(run: Run, tmp_path: Path) -> None:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=3):
        again = fit("pair-trees", events(), out=tmp_path / "again", config=SMALL)
    assert again.metrics == run.metrics
    with load_run(run.path, events()) as (_, a), load_run(again.path, events()) as (_, b):
        for name, tensor in a.model.state_dict().items():
            assert torch.equal(tensor, b.model.state_dict()[name]), name


def test_evaluate_and_predict_agree_with_training(run: Run) -> None:
    assert evaluate(run.path, data=events()) == run.metrics["test"]
    table = predict(run.path, data=events(), split="test")
    assert len(table) == run.metrics["test"].get("num_events", len(table))
    assert table.score.between(0, 1).all()


def test_the_time_unit_changes_no_score(run: Run, tmp_path: Path) -> None:
    fine = events().with_(t=events().t * 10**9, time_unit="ns")
    other = fit("pair-trees", fine, out=tmp_path / "ns", config=SMALL)
    assert other.metrics["test"] == pytest.approx(run.metrics["test"], abs=F64)
    with load_run(run.path, events()) as (_, task):
        u, v, t = events().src[-50:], events().dst[-50:], events().t[-50:]
        expected = task.scorer("test").score(u, v, t)
        np.testing.assert_allclose(task.scorer_over(fine).score(u, v, t * 10**9), expected, rtol=F64)


def test_later_events_in_any_cut(tmp_path: Path) -> None:
    """One call, many calls and one scorer over all events are bit-identical."""
    whole = events(1300)
    own, later = part(whole, 0, 1200), part(whole, 1200, 1300)
    trained_on = fit("pair-trees", own, out=tmp_path / "run", config=SMALL)
    with load_run(trained_on.path, own, bare=True) as (_, task), torch.no_grad():
        folder = SavedRun.open(trained_on.path)
        past, later_scaled = (
            state_after_stream(task, folder.preprocess(own)),
            folder.preprocess(later),
        )
        expected = task.scorer_over(folder.preprocess(whole)).score(later.src, later.dst, later.t)
        for size in (1, 33, 100):
            found, now = [], past
            for a in range(0, 100, size):
                columns, now = continue_stream(
                    task, now, part(later_scaled, a, min(a + size, 100)), allow_duplicates=True
                )
                found.append(columns["score"])
            np.testing.assert_allclose(np.concatenate(found), expected, rtol=F64)
    calls = [score_stream(trained_on.path, part(later, a, a + 50)) for a in (0, 50)]
    np.testing.assert_allclose(pd.concat(calls).score, expected, rtol=F64)


def test_no_event_at_or_after_a_time_changes_a_score(run: Run) -> None:
    with load_run(run.path, events()) as (_, task):
        assert check_leak(task.scorer_over, events(), times=4, queries=40).scores > 0


def test_future_events_do_not_change_training(run: Run, tmp_path: Path) -> None:
    """Trees depend only on training, and their features only on training events."""
    other, first = events(), len(events()) * 85 // 100 + 20
    rng = np.random.default_rng(9)
    src, dst = other.src.copy(), other.dst.copy()
    src[first:], dst[first:] = rng.integers(0, 12, len(src) - first), 12 + rng.integers(0, 12, len(src) - first)
    changed = fit("pair-trees", other.with_(src=src, dst=dst), out=tmp_path / "changed", config=SMALL)
    with load_run(run.path, events()) as (_, a), load_run(changed.path, other.with_(src=src, dst=dst)) as (_, b):
        assert torch.equal(a.model.threshold, b.model.threshold)
        assert torch.equal(a.model.value, b.model.value)
        split, known = a.split, a.features.features_over(NeighborStore.from_stream(a.stream, a.split.train), a.stream)
        whole = a.features.features_over(NeighborStore.from_stream(a.stream), a.stream)
        few = {"seed": 0, "max_events": 10**6, "random": 1, "historical": 1}
        found, _ = training_table(a.stream, split, known, **few)
        expected, _ = training_table(a.stream, split, whole, **few)
        assert np.array_equal(found, expected, equal_nan=True)  # training ends first: the full stream adds nothing


def test_explain_returns_the_contribution_of_each_feature(run: Run, tmp_path: Path) -> None:
    own = events()
    found = explain(run.path, 3, 15, own.t[-1], data=own, out=tmp_path / "why.csv", plot=tmp_path / "why.png")
    assert (np.diff(found.features.contribution.abs()) <= 0).all()
    with load_run(run.path, own) as (_, task):
        scorer = task.scorer("test")
        score = scorer.score(np.array([3]), np.array([15]), own.t[-1:])
        rest = scorer.forest.contributions(scorer.features.pairs(np.array([3]), np.array([15]), own.t[-1:]))[1]
    assert found.features.contribution.sum() + rest == pytest.approx(found.logit, abs=F64_SOLVED)
    assert found.score == pytest.approx(score[0], abs=F64)
    assert list(pd.read_csv(tmp_path / "why-features.csv").columns) == ["feature", "value", "contribution"]
    assert (tmp_path / "why.png").stat().st_size > 1000


def test_invalid_pair_tree_settings_are_rejected() -> None:
    for setting, value in (("historical", -1), ("random", 0), ("model.learning_rate", 2)):
        with pytest.raises(ConfigError, match=setting.rpartition(".")[2]):
            fit("pair-trees", events(), config={setting: value})


@pytest.mark.slow
def test_damaged_trees_are_rejected_or_give_probabilities(run: Run, tmp_path: Path) -> None:
    """Flipped bits in every tensor of the weights never cause an access outside an array."""
    bad, rng, refused = tmp_path / "bad", np.random.default_rng(0), []
    copytree(run.path, bad)
    weights = load_file(run.path / "model.safetensors")
    with safe_open(run.path / "model.safetensors", "pt") as file:
        header = {key: text for key, text in file.metadata().items() if key != "crc32"}  # without a checksum
    for name in sorted(weights) * 3:
        damaged = dict(weights)
        flat = weights[name].clone().view(torch.uint8).reshape(-1)
        flat[rng.integers(0, len(flat), 3)] ^= 1 << int(rng.integers(8))
        damaged[name] = flat.view(weights[name].dtype).reshape(weights[name].shape)
        save_file(damaged, bad / "model.safetensors", metadata=header)
        try:
            with load_run(bad, events()) as (_, task):
                scores = task.scorer("test").score(events().src, events().dst, events().t)
            assert ((scores >= 0) & (scores <= 1)).all(), name
        except CheckpointError as error:
            refused.append(str(error))
    assert len(refused) > 2
    assert all("model.safetensors" in error for error in refused)


@pytest.mark.slow
def test_from_a_table_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = events(600)
    table = pd.DataFrame({"src": own.src, "dst": own.dst, "t": own.t, "amount": own.edge_attr[:, 0]})
    table.to_csv(tmp_path / "events.csv", index=False)
    flags = [f"--{name}={value}" for name, value in SMALL.items()] + ["--read.edge_columns=[amount]"]
    out = str(tmp_path / "run")
    assert main(["fit", "pair-trees", "--data", str(tmp_path / "events.csv"), "--out", out, *flags]) == 0
    assert main(["explain", out, "--pair", "3,15", "--time", str(own.t[-1]), "--top", "3"]) == 0
    assert "since the pair's last event" in capsys.readouterr().out
    assert main(["check-leak", out, "--times", "2", "--queries", "16"]) == 0


@pytest.mark.slow
def test_tiny_streams_train(tmp_path: Path) -> None:
    """A single pair: no historical pair can be drawn; and ties throughout."""
    one = EventStream(src=np.zeros(60, np.int64), dst=np.ones(60, np.int64), t=np.arange(60), num_nodes=4)
    tied = events(300).with_(t=events(300).t // 1500)
    for i, own in enumerate((one.with_(dst=1 + np.arange(60) % 2), tied)):
        found = hopstate.fit(
            "pair-trees", own, out=tmp_path / str(i), config={**SMALL, "evaluation.strategies": ["random"]}
        )
        assert 0 <= found.metrics["test"]["average_precision"] <= 1


def test_the_baseline_equals_the_run(tmp_path: Path) -> None:
    own, settings = events(1600), {"evaluation.strategies": ["random"], "loop.progress": False, "loop.seed": 3}
    run = fit("pair-trees", own, out=tmp_path / "run", config={**settings, "loop.logger": "none"})
    config = config_from(get_method("graphmixer"), {"data": "x", **settings})
    found = link_baselines(own, config, Context(run=tmp_path, cache=tmp_path), None)
    assert set(found) == {"recency", "edgebank", "chance", "pair-trees"}
    on_validation = found["pair-trees"].pop("val_average_precision")
    assert on_validation == pytest.approx(run.metrics["val"]["average_precision"], abs=F64)
    assert found["pair-trees"] == pytest.approx(run.metrics["test"], abs=F64)
    assert not (tmp_path / "importances.csv").exists()
    few = link_baselines(events(600), config, Context(run=tmp_path / "few", cache=tmp_path), None)
    assert set(few) == {"recency", "edgebank", "chance"}
