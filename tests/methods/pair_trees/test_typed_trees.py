"""Trees use relations of events, for any numbering; a single relation changes nothing."""

from pathlib import Path

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import EventRelations, NeighborStore
from hopstate.datasets.temporal_generators import OrderConfig, generate_orders
from hopstate.evaluation.link import evaluate_link
from hopstate.methods.heuristics.method import Recency
from hopstate.methods.method import Context
from hopstate.methods.pair_trees.method import PairTreesRun, PairTreesTask, build
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.sampling.negatives import one_against_many


@pytest.fixture(scope="module")
def orders() -> EventStream:
    return generate_orders(OrderConfig(num_customers=60, num_shops=20, num_events=2_000))


def trained(stream: EventStream, home: Path) -> PairTreesTask:
    config = PairTreesRun(data="", model=PairTrees.Config(num_trees=40))
    task = build(stream, config, Context(run=home, cache=home))
    task.fit_without_gradients()
    return task


def test_relations_determine_the_target(orders: EventStream, tmp_path: Path) -> None:
    plain = orders.with_(relation=None, relation_names=())
    typed, untyped = trained(orders, tmp_path / "a"), trained(plain, tmp_path / "b")
    many = {("test", "ranking"): one_against_many(orders, typed.split, "test", num_negatives=30)}
    found = [
        evaluate_link(task.scorer("test"), stream, task.split, strategies=("ranking",), negatives=many).rows[0]["mrr"]
        for task, stream in ((typed, orders), (untyped, plain))
    ]
    recency = Recency(NeighborStore.from_stream(orders), relations=EventRelations.of(orders))
    found.append(evaluate_link(recency, orders, typed.split, strategies=("ranking",), negatives=many).rows[0]["mrr"])
    assert found[0] > max(found[1:]) + 0.05
    order = np.random.default_rng(1).permutation(5)
    names = tuple(orders.relation_names[k] for k in order)
    other = orders.with_(relation=np.argsort(order)[orders.relation].astype(np.int32), relation_names=names)
    again = trained(other, tmp_path / "c").scorer("test")
    rows = typed.split.test[:50]
    assert np.array_equal(again.score(*other.pairs(rows)), typed.scorer("test").score(*orders.pairs(rows)))


def test_a_single_relation_trains_the_trees_of_an_untyped_stream(orders: EventStream, tmp_path: Path) -> None:
    plain = orders.with_(relation=None, relation_names=(), node_type=None, node_type_names=())
    one = plain.with_(relation=np.zeros(len(plain), np.int32))
    scorers = [trained(stream, tmp_path / str(k)).scorer("test") for k, stream in enumerate((plain, one))]
    rows = np.arange(1_900, 2_000)
    assert np.array_equal(scorers[0].score(*plain.pairs(rows)), scorers[1].score(*one.pairs(rows)))


def test_features_of_a_relation_are_those_of_its_own_events(orders: EventStream, tmp_path: Path) -> None:
    """Ages and counts of a pair in a relation equal those of a stream with only its events."""
    task = trained(orders, tmp_path)
    features, rows = task.features.features_for("test"), np.arange(1_500, 2_000)
    names, found = features.names, features.pairs(*orders.pairs(rows))
    for r in range(5):
        mine = rows[orders.relation[rows] == r]
        selected = np.flatnonzero(orders.relation == r)
        only = EventStream(
            src=orders.src[selected],
            dst=orders.dst[selected],
            t=orders.t[selected],
            num_nodes=orders.num_nodes,
            time_unit="s",
        )
        expected = trained_features(only, task).pairs(*orders.pairs(mine)[:3])
        for typed, untyped in (
            ("time since the pair's last event in the relation", "time since the pair's last event"),
            ("time since source sent to target in the relation", "time since source sent to target"),
            ("events of the pair in the relation", "events of the pair"),
        ):
            column = found[np.isin(rows, mine), names.index(typed)]
            assert np.allclose(column, expected[:, names.index(untyped)], equal_nan=True)


def trained_features(stream: EventStream, task: PairTreesTask):
    from hopstate.tokens.pair_features import PairFeatures

    return PairFeatures(NeighborStore.from_stream(stream), stream, task.features.clock, np.empty(0, np.int64))
