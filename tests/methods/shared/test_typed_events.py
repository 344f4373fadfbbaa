"""Event relations and node types in temporal networks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.data.events import EventStream
from hopstate.datasets.temporal_generators import OrderConfig, generate_orders
from hopstate.errors import ConfigError, HopstateError
from hopstate.evaluation.leak import check_leak
from hopstate.layers.typed import TypeEmbedding
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.method import Context
from hopstate.runs.export import export_spec
from hopstate.streaming.live import PairQueries, state_after_stream
from hopstate.testing.conformance import F32, F32_SUM
from hopstate.training.tasks.link import LinkTask
from hopstate.training.trainer import seed_everything
from made_events import LOOP, SMALL

METHODS = ("ctdg-ssm", "graphmixer", "dygformer", "dyg-mamba")
WIDE: dict[str, dict[str, Any]] = {
    "graphmixer": {"model.num_links": 12, "model.dim": 24, "model.time_dim": 24, "model.out_dim": 24},
    "dygformer": {"model.channel_dim": 12, "model.time_dim": 16, "model.max_length": 12, "model.out_dim": 24},
    "dyg-mamba": {"model.channel_dim": 12, "model.time_dim": 16, "model.out_dim": 24, "history.max_length": 12},
    "ctdg-ssm": {"model.dim": 24, "model.time_dim": 8, "model.hidden": 0, "model.static": "random", "batch_size": 32},
}
each = pytest.mark.parametrize("method", METHODS)


def orders(num_events: int = 300, **settings: Any) -> EventStream:
    return generate_orders(OrderConfig(num_customers=12, num_shops=10, num_events=num_events, **settings))


def untyped(stream: EventStream) -> EventStream:
    return stream.with_(relation=None, relation_names=(), node_type=None, node_type_names=())


def task_of(method: str, stream: EventStream, home: Path, **settings: Any) -> LinkTask:
    chosen = get_method(method)
    given = {"data": "x", **LOOP, "batch_size": 50, **SMALL[method], "evaluation.strategies": ["random"], **settings}
    seed_everything(0)
    return chosen.build(stream, config_from(chosen, given), Context(run=home, cache=home))


def randomized(task: LinkTask) -> LinkTask:
    torch.manual_seed(1)
    for layer in task.model.modules():
        if isinstance(layer, TypeEmbedding):
            torch.nn.init.normal_(layer.weight[1:])
    return task


def scores(task: LinkTask, stream: EventStream) -> np.ndarray:
    return task.predict("test")["score"]


def train(task: LinkTask, epochs: int, lr: float = 1e-3) -> None:
    optimizer = torch.optim.Adam(task.model.parameters(), lr=lr)
    for epoch in range(epochs):
        for batch in task.batches(epoch):
            optimizer.zero_grad()
            for part in [batch] if isinstance(batch, dict) else batch:
                loss = task.loss(part)
                if loss is not None:
                    loss.backward()
            optimizer.step()


@each
def test_a_typed_network_without_type_embeddings_is_the_untyped_one(method: str, tmp_path: Path) -> None:
    stream = orders()
    typed, plain = task_of(method, stream, tmp_path / "a"), task_of(method, untyped(stream), tmp_path / "b")
    layers = [layer for layer in typed.model.modules() if isinstance(layer, TypeEmbedding)]
    assert layers
    typed.model.load_state_dict(plain.model.state_dict(), strict=False)
    for layer in layers:
        torch.nn.init.zeros_(layer.weight)
    np.testing.assert_allclose(scores(typed, stream), scores(plain, stream), rtol=F32)


@each
def test_one_relation_and_one_type_change_no_score(method: str, tmp_path: Path) -> None:
    plain = untyped(orders())
    names = {"relation_names": ("order",), "node_type_names": ("node",)}
    zeros = {"relation": np.zeros(len(plain), np.int32), "node_type": np.zeros(plain.num_nodes, np.int16)}
    tasks = [task_of(method, s, tmp_path / str(i)) for i, s in enumerate((plain, plain.with_(**zeros, **names)))]
    tasks[1].source.drawn = tasks[0].source.drawn if method != "ctdg-ssm" else None  # features of a relation differ
    if method == "ctdg-ssm":
        tasks[1].source.objective.drawn = tasks[0].source.objective.drawn
    found = []
    for task in tasks:
        seed_everything(0)
        train(task, 1)
        found.append((task.model.state_dict(), scores(task, plain)))
    assert found[0][0].keys() == found[1][0].keys()
    assert all(torch.equal(found[0][0][name], found[1][0][name]) for name in found[0][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


@each
def test_relabeled_relations_and_node_types_give_the_same_scores(method: str, tmp_path: Path) -> None:
    stream, order = orders(), np.array([3, 0, 4, 1, 2])
    place = np.argsort(order).astype(np.int32)
    other = stream.with_(
        relation=place[stream.relation],
        relation_names=tuple(stream.relation_names[i] for i in order),
        node_type=1 - stream.node_type,
        node_type_names=stream.node_type_names[::-1],
    )
    first, second = randomized(task_of(method, stream, tmp_path / "a")), task_of(method, other, tmp_path / "b")
    second.model.load_state_dict(first.model.state_dict())
    before = scores(second, other)
    for layer in second.model.modules():
        if isinstance(layer, TypeEmbedding):
            rows = layer.weight.data[1:]
            layer.weight.data[1:] = rows[order] if len(rows) == len(order) else rows.flip(0)
    np.testing.assert_allclose(scores(second, other), scores(first, stream), rtol=F32_SUM)
    assert np.abs(before - scores(first, stream)).max() > 1e-3


@each
def test_relations_of_past_events_and_of_the_query_matter(method: str, tmp_path: Path) -> None:
    stream = orders()
    task = randomized(task_of(method, stream, tmp_path))
    past = state_after_stream(task, stream)
    queries, t = PairQueries(task, past), np.full(5, past.last_time + 1)
    src, dst = stream.src[:5], stream.dst[:5]
    found = np.stack([queries.scores(src, dst, t, np.full(5, r, np.int32)) for r in range(5)])
    assert (np.ptp(found, 0) > 1e-4).all()
    changed = stream.with_(relation=(stream.relation + 1) % 5)
    altered = PairQueries(task, state_after_stream(task, changed)).scores(src, dst, t, np.zeros(5, np.int32))
    assert np.abs(altered - found[0]).max() > 1e-4
    with pytest.raises(HopstateError, match="relation"):
        queries.scores(src, dst, t)


@each
def test_a_live_state_scores_like_the_stream(method: str, tmp_path: Path) -> None:
    stream = orders()
    task = randomized(task_of(method, stream, tmp_path, **{"evaluation.batch_size": 50, "batch_size": 50}))
    cut = 250
    past = state_after_stream(task, stream.slice(0, cut))
    live = PairQueries(task, past).scores(*stream.pairs(np.arange(cut, cut + 1)))
    scorer = task.scorer_over(stream)
    scorer.reset()
    for first in range(0, cut, 50):
        scorer.observe(stream.take(np.arange(first, first + 50)))
    np.testing.assert_allclose(live, np.asarray(scorer.score(*stream.pairs(np.arange(cut, cut + 1)))), rtol=1e-4)


@each
def test_relations_do_not_leak(method: str, tmp_path: Path) -> None:
    stream = orders(200)
    task = randomized(task_of(method, stream, tmp_path, **{"loop.precision": "64"}))
    task.model.double()
    check_leak(task.scorer_over, stream, times=2, queries=16, batch_size=50)


@each
def test_export_rejects_types_by_name(method: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="relations"):
        export_spec(get_method(method), task_of(method, orders(), tmp_path))


@pytest.mark.slow
@each
def test_relations_gain_two_points_of_mrr_in_few_epochs(method: str, tmp_path: Path) -> None:
    """On a stream whose payments follow the destination of an order, with the same candidates."""
    busy = {"days": 60, "pay": 24, "transfers": 0.2, "visits": 0.4}
    stream = generate_orders(OrderConfig(num_customers=40, num_shops=40, num_events=2500, **busy))
    given = {"evaluation.strategies": ["ranking"], "evaluation.num_negatives": 20, **WIDE[method]}
    typed = task_of(method, stream, tmp_path / "a", **given)
    plain = task_of(method, untyped(stream), tmp_path / "b", **given)
    plain.negatives = typed.negatives
    found = []
    for task in (typed, plain):
        train(task, 12, 3e-3)
        found.append(task.evaluate("test")["mrr"])
    assert found[0] > found[1] + 0.02
