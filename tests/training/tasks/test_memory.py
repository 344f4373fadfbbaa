"""Link prediction with a node memory: windows, truncated and full gradients, resume within an epoch, no leak."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hopstate.data.events import EventStream, edge_ends
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import CheckpointError, ConfigError, LeakError
from hopstate.evaluation.leak import check_leak
from hopstate.evaluation.link import score_split
from hopstate.evaluation.metrics import average_precision
from hopstate.methods.config import config_from
from hopstate.methods.ctdg_ssm.method import METHODS, CTDGSSMRun, build
from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.methods.method import Context
from hopstate.sampling.event_batches import event_batches
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.memory_scorer import ActiveEvents
from hopstate.testing.conformance import COARSE, F32, F32_TIGHT
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.events import training_negatives
from hopstate.training.tasks.link import LinkEvaluation, LinkTask
from hopstate.training.trainer import Trainer, seed_everything


def stream(events: int = 240, nodes: int = 20, seed: int = 0) -> EventStream:
    rng = np.random.default_rng(seed)
    return EventStream(
        src=rng.integers(0, nodes // 2, events),
        dst=rng.integers(nodes // 2, nodes, events),
        t=np.sort(rng.integers(0, events, events)),  # with ties
        edge_attr=rng.normal(size=(events, 2)).astype(np.float32),
        num_nodes=nodes,
    )


def task(tmp_path: Path, data: EventStream | None = None, **settings: Any) -> LinkTask:
    seed_everything(0)
    options = {"model.dim": 6, "model.time_dim": 4, "model.static": "random", "model.static_dim": 3, "batch_size": 16}
    strategies = LinkEvaluation(strategies=("random",), batch_size=16)
    data = stream() if data is None else data
    config = config_from(METHODS["ctdg-ssm"], {"data": "x", "evaluation": strategies, **options, **settings})
    return build(data, config, Context(run=tmp_path, cache=tmp_path))


def gradients(t: LinkTask) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in t.model.named_parameters() if p.grad is not None}


def whole_epoch_loss(t: LinkTask) -> torch.Tensor:
    """The loss of an epoch written out: score a batch, then update with it; gradients flow through everything."""
    rows, data = t.split.train, t.stream
    negatives = training_negatives(data, rows, t.source.batch_size, t.source.objective.seed, 0)
    state, total, count = t.model.initial_state(data.num_nodes), torch.zeros(()), 0
    for a, b in zip(t.source.batch_boundaries[:-1], t.source.batch_boundaries[1:], strict=True):
        batch = data.take(rows[a:b])
        for dst, label in ((batch.dst, 1.0), (negatives[a:b], 0.0)):
            gap = t.source.train_inputs.query_time_deltas(batch.src, dst, batch.t)
            logits = t.model.link_logits(state, torch.from_numpy(batch.src), torch.from_numpy(dst), gap)
            total = total + F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label), reduction="sum")
            count += len(logits)
        state = t.model.update(state, t.source.train_inputs.batch(batch))
    return total / count


def test_a_window_of_all_batches_is_back_propagation_through_the_epoch(tmp_path: Path) -> None:
    t = task(tmp_path, tbptt_window=1000)
    assert t.num_batches(0) == 1
    loss = t.loss(next(t.batches(0)))
    loss.backward()
    found = gradients(t)
    t.model.zero_grad()
    expected = whole_epoch_loss(t)
    expected.backward()
    assert torch.allclose(loss, expected, atol=F32_TIGHT)
    for name, gradient in gradients(t).items():
        assert torch.allclose(found[name], gradient, rtol=COARSE, atol=F32_TIGHT), name


def test_truncation_cuts_gradients_and_not_scores_and_every_window_trains_the_memory(tmp_path: Path) -> None:
    losses, cells = {}, {}
    for length in (1, 3, 1000):
        t = task(tmp_path, tbptt_window=length)
        total, sizes = 0.0, 0
        for batch in t.batches(0):
            loss = t.loss(batch)
            loss.backward()
            size = sum(len(step["labels"]) for step in batch["steps"])
            total, sizes = total + float(loss.detach()) * size, sizes + size
        losses[length] = total / sizes
        cells[length] = t.model.cells[0].input.weight.grad
        assert cells[length].abs().sum() > 0
    assert losses[1] == pytest.approx(losses[1000], rel=F32)
    assert losses[3] == pytest.approx(losses[1000], rel=F32)
    assert not torch.allclose(cells[3], cells[1000])


def test_a_batch_is_scored_from_earlier_events(tmp_path: Path) -> None:
    """Other features of a batch change no score of its own, but some later ones."""
    data = stream()
    attr = data.edge_attr.copy()
    t = task(tmp_path, data, tbptt_window=1)
    row = int(t.split.train[t.source.batch_boundaries[3]])
    attr[row:] += 5
    other = task(tmp_path / "other", data.with_(edge_attr=attr), tbptt_window=1)
    losses = [[float(x.loss(batch).detach()) for batch in x.batches(0)] for x in (t, other)]
    assert losses[0][:4] == pytest.approx(losses[1][:4], rel=F32_TIGHT)
    assert losses[0][4:] != pytest.approx(losses[1][4:], rel=COARSE)


def test_resuming_within_an_epoch_is_bit_identical(tmp_path: Path) -> None:
    def run(name: str, stops: list[tuple[int, int]]) -> dict[str, Any]:
        config = LoopConfig(
            epochs=2, progress=False, device="cpu", optim=OptimConfig(lr=1e-2), logger="none", checkpoint_seconds=0
        )
        folder = RunFolder.create(tmp_path / name, {}, resume=(tmp_path / name).exists())
        for stop in [*stops, None]:
            t = task(tmp_path / "negatives", tbptt_window=2)
            trainer = Trainer(t, config, folder, method="ctdg-ssm")
            if stop is not None:  # a kill after a checkpoint within an epoch
                step = trainer._step

                def stopping(batch: Any, count: int, trainer: Any = trainer, step: Any = step, at: Any = stop) -> None:
                    step(batch, count)
                    if (trainer.progress.epoch, trainer.progress.step) == at:
                        trainer.save()
                        raise KeyboardInterrupt

                trainer._step = stopping  # type: ignore[method-assign]
                with pytest.raises(KeyboardInterrupt):
                    trainer.fit(resume=True)
            else:
                result = trainer.fit(resume=True)
        weights = {k: v.clone() for k, v in t.model.state_dict().items()}
        return {"metrics": result.metrics, "weights": weights}

    straight, stopped = run("straight", []), run("stopped", [(1, 3)])
    assert straight["metrics"] == stopped["metrics"]
    for name, weight in straight["weights"].items():
        assert torch.equal(weight, stopped["weights"][name]), name


def test_resuming_without_a_memory_is_rejected(tmp_path: Path) -> None:
    t = task(tmp_path)
    with pytest.raises(CheckpointError):
        next(t.batches(0, 2))
    with pytest.raises(CheckpointError):
        t.load_state({"memory": torch.zeros(2, 3, 6)})


def test_validation_starts_from_a_warm_memory(tmp_path: Path) -> None:
    """The scores equal those after manually streaming all earlier events."""
    t = task(tmp_path)
    rows = t.split.val
    drawn = t.negatives["val", "random"]
    scores = score_split(t.scorer("val"), t.stream, rows, {("val", "random"): drawn}, batch_size=16)["val", "random"]
    scorer, found = t.scorer("val"), []
    for part in event_batches(t.stream, np.arange(rows[0]), batch_size=16):
        scorer.observe(part)
    for part in event_batches(t.stream, rows, batch_size=16):
        found.append(scorer.score(part.src, part.dst, part.t).numpy())
        scorer.observe(part)
    assert np.allclose(scores.positive, np.concatenate(found), atol=F32_TIGHT)
    cold = t.scorer("val").score(t.stream.src[rows], t.stream.dst[rows], t.stream.t[rows]).numpy()
    assert not np.allclose(cold, scores.positive)
    assert t.evaluate("val") == pytest.approx(t.evaluate("val"))


@pytest.mark.parametrize(
    "settings",
    [
        {"model.order": 2, "model.node_time_deltas": True},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"model.order": 0}, marks=pytest.mark.slow),
    ],
)
def test_a_memory_does_not_leak(tmp_path: Path, settings: dict[str, Any]) -> None:
    t = task(tmp_path, **settings)
    t.model.eval()
    report = check_leak(t.scorer_over, t.stream, times=2, queries=16, batch_size=16)
    assert report.scores > 0


def test_the_leak_check_detects_a_memory_query_that_includes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = task(tmp_path)
    strict = ActiveEvents.pair_time_deltas
    late = lambda self, u, v, when, *rest: strict(self, u, v, np.asarray(when) + 1, *rest)  # noqa: E731
    monkeypatch.setattr(ActiveEvents, "pair_time_deltas", late)
    with pytest.raises(LeakError):
        check_leak(t.scorer_over, t.stream, times=4, queries=24, batch_size=16)


def test_one_query_serves_positive_and_negative_pairs() -> None:
    data = EventStream(src=np.array([0, 1, 0]), dst=np.array([2, 2, 2]), t=np.array([1, 4, 9]), num_nodes=4)
    model = CTDGSSM(CTDGSSM.Config(node_time_deltas=True, max_log_delta=99.0))
    inputs = ActiveEvents(model, data, NeighborStore.from_stream(data), num_neighbors=5)
    gaps = inputs.query_time_deltas(np.array([2, 0, 0]), np.array([0, 2, 3]), np.array([9, 1, 9]))
    expected = [[np.log(9), np.log(6), np.log(9)], [99, 99, 99], [99, np.log(9), 99]]
    assert np.allclose(gaps.numpy(), expected)


def test_deletions_leave_the_context_and_the_graph() -> None:
    src, dst = np.array([0, 0, 1, 0, 0, 1]), np.array([1, 1, 2, 1, 1, 0])
    kind = np.array([0, 0, 0, 1, 1, 0], np.int8)
    data = EventStream(src=src, dst=dst, t=np.arange(6), kind=kind, num_nodes=3)
    ends = edge_ends(data.src, data.dst, data.kind, data.num_nodes)
    assert ends.tolist() == [3, 4, np.iinfo(np.int64).max, -1, -1, np.iinfo(np.int64).max]
    model = CTDGSSM(CTDGSSM.Config(static="random"))
    inputs = ActiveEvents(model, data, NeighborStore.from_stream(data), num_neighbors=5)

    def edges(batch: ActiveBatch) -> tuple[list[Any], list[Any]]:
        named = (sorted(batch.nodes[pairs].sort(0).values.T.tolist()) for pairs in (batch.after, batch.before))
        return tuple(named)  # type: ignore[return-value]

    assert edges(inputs.batch(data.take(np.array([2])))) == ([[0, 1], [0, 1], [1, 2]], [[0, 1], [0, 1]])
    assert edges(inputs.batch(data.take(np.array([3])))) == ([[0, 1], [1, 2]], [[0, 1], [0, 1], [1, 2]])
    assert edges(inputs.batch(data.take(np.array([5])))) == ([[0, 1], [1, 2]], [[1, 2]])
    state = model.initial_state(3)
    for row in range(6):
        state = model.update(state, inputs.batch(data.take(np.array([row]))))
    assert torch.isfinite(state.memory).all()


@pytest.mark.parametrize("part", ["val", "test"])
def test_predictions_of_a_split_equal_its_evaluation_scores(tmp_path: Path, part: str) -> None:
    """Training does not end at a batch boundary from event 0, and memories depend on batch boundaries."""
    t = task(tmp_path)
    scores = t.report(part).scores
    positive = scores[part, "random"].positive
    found = t.predict(part)["score"]
    assert np.allclose(found, positive, rtol=0, atol=F32_TIGHT)
    labels = scores[part, "random"].pooled()[0]
    ap = average_precision(labels, np.concatenate([positive, scores[part, "random"].negative]))
    assert ap == pytest.approx(t.evaluate(part)["average_precision"], abs=F32_TIGHT)


def test_predictions_of_training_cover_its_events(tmp_path: Path) -> None:
    t = task(tmp_path)
    found = t.predict("train")["score"]
    assert len(found) == len(t.split.train)
    assert np.allclose(found, t.predict("all")["score"][: len(found)], rtol=0, atol=F32_TIGHT)  # both start at event 0


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"tbptt_window": 0}, {"num_neighbors": 0}])
def test_invalid_memory_settings_are_rejected(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        CTDGSSMRun(data="x", **wrong)


def test_a_checkpoint_contains_the_memory_and_its_clock(tmp_path: Path) -> None:
    t = task(tmp_path)
    for batch in t.batches(0):
        t.loss(batch)
    other = task(tmp_path / "other")
    other.load_state(t.state())
    assert t.source.memory is not None
    assert other.source.memory is not None
    assert other.source.memory.clock == t.source.memory.clock > 0
    assert torch.equal(other.source.memory.memory, t.source.memory.memory)
