"""Trees beside random pairs alone: the order of candidates is theirs as far as validation says, at every door."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hopstate
from hopstate.data.event_splits import chronological_split
from hopstate.data.events import EventStream
from hopstate.errors import CheckpointError
from hopstate.methods.method import Context
from hopstate.methods.pair_trees import beside
from hopstate.methods.pair_trees import pair_head as pair_head_module
from hopstate.methods.pair_trees.fitting import random_pairs, training_pairs
from hopstate.methods.pair_trees.method import PairTreesTask
from hopstate.methods.pair_trees.ranker import ranks_by_trees
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.runs.api import Run, fit, open_run
from hopstate.runs.export import export_run
from hopstate.runs.load import load_run
from hopstate.runs.queries import reasons
from hopstate.runs.queries.calibrated import Calibrator
from hopstate.runs.queries.influences import influences
from hopstate.runs.queries.session import session
from hopstate.streaming.live import past_of
from hopstate.streaming.slices import finished
from hopstate.testing.asserts import F32, F64
from hopstate.training.tasks.link import LinkTask

LOOP = {"loop.progress": False, "loop.tensorboard": "no", "loop.device": "cpu", "loop.epochs": 1}
TREES = {"model.pair_history": True, "model.pair_trees": True, "evaluation.choose": "mean"}
SMALL: dict[str, dict[str, Any]] = {
    "pair-trees": {"model.max_trees": 20, "model.min_leaf": 10},
    "ctdg-ssm": {**TREES, "model.dim": 6, "model.time_dim": 6, "batch_size": 40, "evaluation.batch_size": 40},
    "graphmixer": {**TREES, "model.num_links": 4, "model.dim": 6, "model.time_dim": 6, "model.out_dim": 4},
}
each = pytest.mark.parametrize("method", SMALL)


def events(count: int = 500, **more: Any) -> EventStream:
    """Return events of 24 nodes, most of which repeat a pair of late, some with favourites, with ties."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 12, count), 12 + rng.integers(0, 12, count) // 2
    for i in range(20, count):
        if rng.random() < 0.4:
            back = i - 1 - rng.integers(0, 8)
            src[i], dst[i] = src[back], dst[back]
    return EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, count, count)), num_nodes=24, **more)


@pytest.fixture(autouse=True)
def _grown_from_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "LEAST", 100)
    few = PairTrees.Config(max_trees=20, max_leaves=8, min_leaf=10)
    monkeypatch.setattr(pair_head_module, "TREES", few)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranker")


def trained(method: str, home: Path, stream: EventStream | None = None, **more: Any) -> Run:
    """Return a run, the same one where nothing else is asked for."""
    name = "-".join([method, *(f"{key}={value}" for key, value in more.items())])
    if stream is None and (home / name / "result.json").is_file():
        return open_run(home / name)
    own = events() if stream is None else stream
    return fit(method, own, out=home / name, config={**LOOP, **SMALL[method], **more})


@pytest.mark.parametrize("method", ["pair-trees"])
def test_it_says_the_same_of_the_stream_and_of_its_past_alone_and_together(method: str, home: Path) -> None:
    """What is known before a time is all that is looked at: a past that ends there gives the same bits."""
    run, stream = trained(method, home), events()
    rows = np.array([300, 407, 470, 499])
    with load_run(run.path, stream) as (_, task), torch.no_grad():
        assert isinstance(task, LinkTask)
        rules = task.rules("test")
        assert rules is not None
        assert task.ranker is not None
        whole = rules(stream.src[rows], stream.dst[rows], stream.t[rows])
        assert len(set(whole.tolist())) > 1
        for row, expected in zip(rows, whole, strict=True):
            ends = np.array([stream.src[row]]), np.array([stream.dst[row]]), np.array([stream.t[row]])
            np.testing.assert_allclose(rules(*ends), [expected], rtol=F64)
            before = np.searchsorted(stream.t, stream.t[row])
            known = {name: getattr(stream, name)[:before].copy() for name in ("src", "dst", "t")}
            alone = task.ranker.over(past_of(task, replace(stream, **known)))
            np.testing.assert_allclose(alone(*ends), [expected], rtol=F64)
        assert rules(*(np.empty(0, column.dtype) for column in (stream.src, stream.dst, stream.t))).tolist() == []
        shares = rules.feature_shares(stream.src[rows], stream.dst[rows], stream.t[rows])  # type: ignore[attr-defined]
        rest = whole - shares.sum(1)
        np.testing.assert_allclose(rest, rest[0], rtol=0, atol=F64)


@pytest.mark.slow
@each
def test_the_unit_of_time_changes_no_answer(method: str, tmp_path: Path) -> None:
    found = []
    for unit, scale in (("s", 1), ("ms", 1000)):
        own = events(time_unit=unit)
        own = replace(own, t=own.t * scale)
        run = trained(method, tmp_path / unit, own)
        found.append([run.metrics["test"], json.loads((run.path / "calibration.json").read_text())["share"]])
    assert found[0] == found[1]
    assert "probability_ap" in found[0][0]


@pytest.mark.slow
@each
def test_candidates_stand_in_its_order_and_probabilities_rise_with_it(method: str, home: Path) -> None:
    run, stream = trained(method, home), events()
    with session(run.path, own=stream) as asked:
        worth = Calibrator(asked)
        assert worth.share > 0
    whole = run.rank(3, top=None)
    with load_run(run.path, stream) as (_, task):
        assert isinstance(task, LinkTask)
        rules = task.rules("test")
        assert rules is not None
        said = rules(np.full(len(whole), 3), whole["dst"].to_numpy(), whole["t"].to_numpy())
    score = np.clip(whole["score"].to_numpy(), 1e-12, 1 - 1e-12)
    met = whole["dst"].isin(stream.dst[stream.src == 3]) | whole["dst"].isin(stream.src[stream.dst == 3])
    curve = json.loads((run.path / "calibration.json").read_text())
    order = (1 - curve["share"]) * np.log(score / (1 - score)) + curve["share"] * said + curve["met"] * met
    assert (np.diff(order) <= 0).all()
    np.testing.assert_allclose(whole["probability"], np.interp(order, curve["scores"], curve["values"]), atol=F64)
    few = run.rank(3, top=None, candidates=whole["dst"][::-3].tolist())
    assert few["dst"].tolist() == whole["dst"][whole["dst"].isin(few["dst"])].tolist()
    assert run.score(list(zip(few["src"], few["dst"], strict=True)))["probability"].tolist() == (
        few["probability"].tolist()
    )


@pytest.mark.slow
@each
def test_it_is_not_grown_where_ranks_are_by_scores_alone(method: str, home: Path) -> None:
    run = trained(method, home, **{"evaluation.raise_met": False})
    assert json.loads((run.path / "data.json").read_text())["ranker"] is False
    assert "probability_ap" not in run.metrics["test"]
    with load_run(run.path, events()) as (_, task):
        assert isinstance(task, LinkTask)
        assert task.ranker is None
        assert not any("ranker" in name for name in task.model.state_dict())
    other = trained(method, home)
    for name in ("average_precision", "historical_average_precision", "roc_auc"):
        assert run.metrics["test"][name] == other.metrics["test"][name]  # scores do not hang on it


@pytest.mark.slow
@each
def test_a_run_from_before_has_none(method: str, tmp_path: Path) -> None:
    """Its data.json does not speak of such trees, nor does its file hold any: it ranks by who met alone."""
    run = trained(method, tmp_path, **{"evaluation.raise_met": False})
    for name, old, new in (
        ("data.json", '"ranker": false, ', ""),
        ("config.json", '"raise_met": false', '"raise_met": true'),
    ):
        told = json.dumps(json.loads((run.path / name).read_text()))
        assert old in told or old.replace("false, ", "false") in told
        (run.path / name).write_text(told.replace(old, new).replace(', "ranker": false', ""))
    (run.path / "calibration.json").unlink(missing_ok=True)
    found = open_run(run.path).rank(3, top=None)
    assert "probability_ap" in open_run(run.path).evaluate(split="test")
    curve = json.loads((run.path / "calibration.json").read_text())
    assert curve["share"] == 0
    assert curve["met"] != 0
    (run.path / "calibration.json").write_text(
        json.dumps({**curve, "format": "hopstate-calibration-2", "values": [0.25] * len(curve["values"])})
    )
    again = open_run(run.path).rank(3, top=None)  # a curve of that time is good
    assert again["dst"].tolist() == found["dst"].tolist()
    assert set(again["probability"]) == {0.25}


@pytest.mark.slow
@each
def test_a_curve_from_before_is_not_good_for_a_run_that_has_it(method: str, home: Path) -> None:
    run = trained(method, home)
    kept = (run.path / "calibration.json").read_text()
    before = json.loads(kept) | {"format": "hopstate-calibration-2"}
    del before["share"]
    (run.path / "calibration.json").write_text(json.dumps(before))
    run.rank(3, top=3)
    assert json.loads((run.path / "calibration.json").read_text())["share"] > 0
    (run.path / "calibration.json").write_text(kept)


def test_no_random_pair_is_drawn_twice_for_one_event() -> None:
    """Each of the further ones has its own draw, the same again for the same seed."""
    stream = events()
    split = chronological_split(stream)

    class Reader:
        def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
            return np.stack([u, v], 1).astype(np.float32)

    found = random_pairs(stream, split, Reader(), seed=0, most=300, each=3).reshape(3, 300, 2)
    again = random_pairs(stream, split, Reader(), seed=0, most=300, each=3).reshape(3, 300, 2)
    assert np.array_equal(found, again)
    first = training_pairs(stream, split, Reader(), seed=0, most=300)[1]["random"]
    drawn = [first[:, 1], *found[:, :, 1]]
    shares = [(drawn[i] == drawn[k]).mean() for i in range(4) for k in range(i)]
    assert max(shares) < 0.4  # six targets, so that chance alone gives a sixth


@pytest.mark.parametrize(("noted", "expected"), [(None, True), ({}, False), ({"ranker": True}, True)])
def test_a_run_that_is_resumed_or_applied_has_what_it_began_with(
    noted: dict[str, bool] | None, expected: bool, tmp_path: Path
) -> None:
    if noted is not None:
        (tmp_path / "data.json").write_text(json.dumps(noted))
    resumed = Context(run=tmp_path, cache=tmp_path)
    assert ranks_by_trees(resumed, wanted=True) is expected
    assert resumed.noted == {"ranker": expected}
    assert ranks_by_trees(Context(run=tmp_path, cache=tmp_path, trained=noted or {}), wanted=True) is bool(noted)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [7, -1])
def test_damaged_trees_that_rank_are_refused(broken: int, tmp_path: Path) -> None:
    run = trained("pair-trees", tmp_path)
    with load_run(run.path, events()) as (_, task):
        state = {name: value.clone() for name, value in task.model.state_dict().items()}
        state["ranker.child"][0, 0, 1] = broken * 1000
        with pytest.raises(CheckpointError):
            task.model.load_state_dict(state)


@pytest.mark.slow
@each
@pytest.mark.parametrize("share", [1.5, "much"])
def test_a_curve_with_a_share_that_cannot_be_is_made_anew(method: str, share: object, home: Path) -> None:
    run = trained(method, home)
    kept = (run.path / "calibration.json").read_text()
    before = run.rank(3, top=None)
    broken = json.loads(kept) | {"share": share}
    (run.path / "calibration.json").write_text(json.dumps(broken))
    after = run.rank(3, top=None)
    assert after["dst"].tolist() == before["dst"].tolist()
    assert json.loads((run.path / "calibration.json").read_text())["share"] == pytest.approx(
        json.loads(kept)["share"], abs=F32
    )
    (run.path / "calibration.json").write_text(kept)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ctdg-ssm", "graphmixer"])
def test_a_program_holds_it(method: str, home: Path, tmp_path: Path) -> None:
    run, pairs = trained(method, home).path, [(i % 12, 12 + i % 6) for i in range(9)]
    path = export_run(run, "torch", tmp_path / "program", data=events())
    wanted, given = hopstate.score(run, pairs, own=events()), hopstate.export_inputs(run, pairs, own=events())
    with torch.no_grad():
        program = torch.export.load(path).module()
        for rows in (slice(None), slice(4, 5)):
            inputs = hopstate.export_inputs(run, pairs[rows], own=events()) if rows != slice(None) else given
            _, score, probability = program(*(torch.from_numpy(x) for x in inputs.values()))
            np.testing.assert_allclose(score, wanted.score[rows], rtol=0, atol=F32)
            np.testing.assert_allclose(probability, wanted.probability[rows], rtol=0, atol=F32)


@pytest.mark.slow
def test_a_programs_probability_is_by_it_where_the_network_has_all_of_the_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "SHARES", (0.0,))
    run, pairs = trained("graphmixer", tmp_path).path, [(i, 12 + i % 6) for i in range(9)]
    path = export_run(run, "torch", tmp_path / "program", data=events())
    wanted, given = hopstate.score(run, pairs, own=events()), hopstate.export_inputs(run, pairs, own=events())
    assert json.loads((run / "calibration.json").read_text())["share"] > 0
    with torch.no_grad():
        *_, probability = torch.export.load(path).module()(*(torch.from_numpy(x) for x in given.values()))
    np.testing.assert_allclose(probability, wanted.probability, rtol=0, atol=F32)


@pytest.mark.slow
@each
def test_reasons_are_of_the_order(method: str, home: Path) -> None:
    """What an event weighs is what the pair's place loses without it; features of trees add up to that place."""
    run, stream = trained(method, home), events()
    row = int(np.flatnonzero(stream.src[:490] == 3)[-1])
    pair = np.array([3]), stream.dst[[row]], np.array([600])
    with session(run.path, own=stream) as asked, torch.no_grad():
        worth = Calibrator(asked)
        curve: Any = worth.curve
        found = finished(influences(asked.queries, *pair, worth.in_order()))[0]
        plain = finished(influences(asked.queries, *pair))[0]
        assert [one.event.id for one in found] == [one.event.id for one in plain]
        assert worth.rules is not None
        assert asked.task.ranker is not None
        for one, other in zip(found, plain, strict=True):
            kept = np.arange(len(stream)) != one.event.id
            known = {name: getattr(stream, name)[kept].copy() for name in ("src", "dst", "t")}
            past = past_of(asked.task, replace(stream, **known))
            lost = worth.rules(*pair) - asked.task.ranker.over(past)(*pair)
            met = 1.0 - float(past.store().last_meeting(*pair)[1][0])
            slope = asked.task.trees.platt[0].item() if isinstance(asked.task, PairTreesTask) else 1.0
            expected = (1 - curve.share) * slope * other.weight + curve.share * lost[0] + curve.met * met
            assert one.weight == pytest.approx(expected, abs=F64)
    table = run.rank(3, top=3, explain=True)
    assert (table["why"] != "").all()


@pytest.mark.slow
def test_features_that_are_told_add_up_to_the_order(home: Path) -> None:
    run, stream = trained("pair-trees", home), events()
    v = np.arange(12, 18)
    u, t = np.full(6, 3), np.full(6, 600)
    with session(run.path, own=stream) as asked, torch.no_grad():
        worth: Any = Calibrator(asked)
        worth.curve = replace(worth.curve, share=0.5)  # so that both forests have a say
        _, _, shares = reasons._shares(asked.queries.follower, worth, u, v, t)  # type: ignore[arg-type]
        order = worth.ordered(asked.queries.scores(u, v, t), u, v, t) - worth.curve.met * worth.met(u, v, t)
    rest = order - shares.sum(1)
    assert np.ptp(order) > 0
    np.testing.assert_allclose(rest, rest[0], rtol=0, atol=F64)
