"""Batched sequences equal single sequences; a path's first label reaches its end only through the graph."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hopstate.datasets.temporal_generators import PathSequences, path_sequences
from hopstate.errors import ConfigError, TimeOrderError
from hopstate.methods.config import config_from
from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.methods.ctdg_ssm.sequences import METHODS
from hopstate.methods.method import Context
from hopstate.testing.conformance import COARSE, F32
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.sequence import SequenceTask
from hopstate.training.trainer import Trainer

METHOD = METHODS["ctdg-ssm-sequences"]


def paths(length: int, count: int = 60) -> PathSequences:
    return path_sequences(length, count=count)


def task(data: PathSequences, order: int = 2, seed: int = 0, **options: int | None) -> SequenceTask:
    torch.manual_seed(seed)
    config = CTDGSSM.Config(dim=16, order=order, time_dim=0)
    return SequenceTask(CTDGSSM(config, node_dim=2, edge_dim=2, decoder="sequence"), data, hops=order, **options)  # type: ignore[arg-type]


def train(t: SequenceTask, epochs: int) -> None:
    optimizer = torch.optim.Adam(t.model.parameters(), 1e-2)
    for epoch in range(epochs):
        for batch in t.batches(epoch):
            optimizer.zero_grad()
            t.loss(batch).backward()
            torch.nn.utils.clip_grad_norm_(t.model.parameters(), 1.0)
            optimizer.step()


def accuracy(t: SequenceTask, split: str) -> float:
    with torch.no_grad():
        return t.evaluate(split)["accuracy"]


def test_active_nodes_of_a_path_are_within_order_hops_of_its_end() -> None:
    t = task(paths(7), order=3)
    assert [s.active.tolist() for s in t.steps] == [
        [0, 1],
        [0, 1, 2],
        [0, 1, 2, 3],
        [0, 1, 2, 3, 4],
        [1, 2, 3, 4, 5],
        [2, 3, 4, 5, 6],
    ]
    last = t.steps[-1]
    assert last.active[last.ends].tolist() == [5, 6]
    assert last.active[last.after].T.tolist() == [[2, 3], [3, 4], [4, 5], [5, 6]]
    assert last.active[last.before].T.tolist() == [[2, 3], [3, 4], [4, 5]]


def test_most_recent_neighbours_are_followed_first() -> None:
    pairs = np.array([[0, 1], [0, 2], [0, 3], [4, 0]])
    data = replace(paths(5, 10), pairs=pairs)
    steps = task(data, order=1, neighbors=2).steps
    assert steps[-1].active.tolist() == [0, 2, 3, 4]


def test_batched_sequences_equal_single_sequences() -> None:
    t = task(paths(6, 9))
    with torch.no_grad():
        together = t._probabilities("all")
        t.eval_batch_size = 1
        single = t._probabilities("all")
    assert np.allclose(together, single, atol=F32)
    assert not np.allclose(together[0], together[1], atol=COARSE)


def test_training_and_inference_give_the_same_logits() -> None:
    t = task(paths(6, 8))
    columns = t._columns(np.arange(8))
    with torch.no_grad():
        in_place = t._logits(columns)
    assert torch.equal(in_place, t._logits(columns).detach())


def test_the_class_crosses_the_path_only_through_the_graph() -> None:
    data = paths(8, 160)
    t = task(data, order=1)
    train(t, 8)
    assert accuracy(t, "val") == 1
    assert accuracy(t, "test") == 1
    blind = task(data, order=0)
    train(blind, 8)
    assert accuracy(blind, "test") < 0.8
    rng = np.random.default_rng(1)  # without the class at the start no signal remains: no leak by another way
    x, attr = data.x.copy(), data.edge_attr.copy()
    x[:, 0], attr[:, 0] = rng.uniform(-1, 1, x[:, 0].shape), rng.uniform(-1, 1, attr[:, 0].shape)
    t.data = replace(data, x=x, edge_attr=attr)
    assert accuracy(t, "all") < 0.65


def test_truncation_cuts_gradients_and_not_values() -> None:
    data = paths(8, 8)
    whole, cut = task(data), task(data, tbptt_window=2)
    batch = next(whole.batches(0))
    losses = [t.loss(batch) for t in (whole, cut)]
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-5, atol=1e-6)
    for loss in losses:
        loss.backward()
    grads = [t.model.encoder[0].weight.grad for t in (whole, cut)]
    assert not torch.allclose(grads[0], grads[1])


def test_batches_depend_only_on_seed_and_epoch_and_resume_anywhere() -> None:
    t = task(paths(4, 40), batch_size=8)
    rows = [b["x"] for b in t.batches(3)]
    assert t.num_batches(3) == len(rows) == 4
    assert torch.equal(next(t.batches(3, 2))["x"], rows[2])
    assert not torch.equal(next(t.batches(4))["x"], rows[0])


def test_outputs_of_any_node_and_names_of_sequences() -> None:
    data = paths(5, 12)
    t = task(data, read=0)
    with torch.no_grad():
        table = t.predict("test")
    assert list(table) == ["sequence", "prediction", "p_0", "p_1", "label"]
    assert np.allclose(table["p_0"] + table["p_1"], 1)
    assert table["sequence"].tolist() == data.split["test"].tolist()


def test_bad_settings_and_data_are_named() -> None:
    data = paths(4, 8)
    with pytest.raises(ConfigError, match="batch_size"):
        task(data, batch_size=0)
    with pytest.raises(ConfigError):
        task(data, read=4)
    with pytest.raises(ConfigError):
        task(data).evaluate("bonus")


def test_times_out_of_order_are_named() -> None:
    data = paths(4, 8)
    t = task(replace(data, t=data.t[:, ::-1].copy()))
    with pytest.raises(TimeOrderError):
        t.loss(next(t.batches(0)))


@pytest.mark.parametrize("order", [1, 2])
def test_scalar_features_random_times_and_gaps(order: int) -> None:
    """The "ctdg-ssm" variant, with encodings of time deltas."""
    data = path_sequences(6, count=40, variant="ctdg-ssm")
    config = CTDGSSM.Config(dim=8, order=order, time_dim=4)
    model = CTDGSSM(config, node_dim=1, edge_dim=1, decoder="sequence")
    t = SequenceTask(model, data, hops=order)
    assert np.isfinite(t.loss(next(t.batches(0))).item())


@pytest.mark.parametrize("time_scale", ["median", "seconds", "raw"])
def test_only_raw_times_depend_on_their_unit(time_scale: str, tmp_path: Path) -> None:
    """The same sequences in s, ms and ns, with repeat pairs."""
    rng, made = np.random.default_rng(0), path_sequences(5, count=40)
    pairs, t = np.array([[0, 1], [1, 2], [0, 1], [2, 3], [1, 2], [3, 4]]), rng.integers(0, 9, (40, 6)).cumsum(1)
    attr = rng.normal(size=(40, 6, 2)).astype(np.float32)
    found, gaps = [], []
    for factor in (1, 10**3, 10**9):
        data = replace(made, pairs=pairs, t=t * factor, edge_attr=attr)
        config = config_from(METHOD, {"data": "x", "model.time_dim": 4, "model.dim": 6, "time_scale": time_scale})
        torch.manual_seed(0)
        one = METHOD.build(data, config, Context(run=tmp_path, cache=tmp_path))
        with torch.no_grad():
            found.append(one._probabilities("all"))
        gaps.append(one._gaps)
    assert np.unique(gaps[0]).size > 5
    assert (gaps[0] <= np.float32(45)).all()
    assert (gaps[0][:, :2] == 45).all()  # never, a setting of the model
    for scores, gap in zip(found[1:], gaps[1:]):
        assert np.allclose(scores, found[0], rtol=1e-5) == (time_scale == "median")
        assert np.allclose(gap, gaps[0], rtol=1e-6) == (time_scale == "median")


def test_all_seen_nodes_are_updated_on_request() -> None:
    """Appendix E.4: without a graph, the first node's memory decays with every event and still predicts the class."""
    data = paths(7, 120)
    t = task(data, order=0, read=0)
    whole = SequenceTask(
        CTDGSSM(replace(t.model.config, update_all=True), node_dim=2, edge_dim=2, decoder="sequence"),
        data, hops=0, read=0,
    )  # fmt: skip
    assert [step.active.tolist() for step in whole.steps] == [list(range(k + 2)) for k in range(6)]
    whole.model.load_state_dict(t.model.state_dict())
    with torch.no_grad():
        assert not torch.allclose(t._logits(t._columns(np.arange(9))), whole._logits(t._columns(np.arange(9))))
    train(whole, 10)
    assert accuracy(whole, "test") > 0.9


def test_the_trainer_runs_the_task(tmp_path: Path) -> None:
    config = LoopConfig(epochs=2, grad_clip=1.0, optim=OptimConfig(lr=1e-2), progress=False, device="cpu")
    result = Trainer(task(paths(5, 60), order=1), config, RunFolder.create(tmp_path / "run", {}), method="ctdg").fit()
    assert result.progress.epoch == 2
    assert set(result.metrics) == {"train", "val", "test"}
