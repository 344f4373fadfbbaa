"""Evaluation of events with relations: negatives respect them, and numbers of relations do not matter."""

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import EventRelations, NeighborStore
from hopstate.data.splits import EventSplit, chronological_split
from hopstate.datasets.temporal_generators import OrderConfig, generate_orders
from hopstate.errors import LeakError
from hopstate.evaluation.leak import check_leak
from hopstate.evaluation.link import evaluate_link
from hopstate.methods.heuristics.edgebank import EdgeBank
from hopstate.methods.heuristics.method import Recency
from hopstate.sampling.negatives import STRATEGIES, Negatives, RelationEnds, TrainingNegatives, strategy_of
from hopstate.training.tasks.events import EpochNegatives

SMALL = OrderConfig(num_customers=40, num_shops=15, num_events=700)


@pytest.fixture(scope="module")
def orders() -> EventStream:
    return generate_orders(SMALL)


def untyped(stream: EventStream) -> EventStream:
    return stream.with_(relation=None, relation_names=(), node_type=None, node_type_names=())


def renamed(stream: EventStream, seed: int = 0) -> EventStream:
    """Return a stream whose relations have other numbers."""
    order = np.random.default_rng(seed).permutation(len(stream.relation_names))
    names = tuple(stream.relation_names[k] for k in order)
    return stream.with_(relation=np.argsort(order)[stream.relation].astype(np.int32), relation_names=names)


def drawn(stream: EventStream, strategy: str) -> tuple[EventSplit, Negatives]:
    splits = chronological_split(stream)
    return splits, strategy_of(strategy).draw(stream, splits, "test", num_negatives=10)


def recency(stream: EventStream) -> Recency:
    return Recency(NeighborStore.from_stream(stream), relations=EventRelations.of(stream))


@pytest.mark.parametrize("types", [True, False])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_negatives_are_nodes_that_the_relation_joins(orders: EventStream, strategy: str, types: bool) -> None:
    stream = orders if types else orders.with_(node_type=None, node_type_names=())
    _, negatives = drawn(stream, strategy)
    relation = np.repeat(stream.relation[negatives.rows], np.diff(negatives.offsets))
    for r in np.unique(relation):
        targets = np.unique(stream.dst[stream.relation == r])
        if types:
            assert len(np.unique(stream.node_type[negatives.dst[relation == r]])) == 1
        else:
            assert np.isin(negatives.dst[relation == r], targets).all()
        assert np.array_equal(RelationEnds(stream).targets(int(r)), targets) or types


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_single_relation_has_the_negatives_of_an_untyped_stream(orders: EventStream, strategy: str) -> None:
    plain = untyped(orders)
    one = plain.with_(relation=np.zeros(len(plain), np.int32))
    assert drawn(plain, strategy)[1].equals(drawn(one, strategy)[1])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_numbering_of_relations_does_not_change_negatives(orders: EventStream, strategy: str) -> None:
    assert drawn(orders, strategy)[1].equals(drawn(renamed(orders), strategy)[1])


def test_ranking_filters_targets_of_the_same_relation_and_time() -> None:
    relation = np.array([0, 0, 1, 1, 0, 1, 0], np.int32)
    dst = np.array([5, 6, 5, 6, 7, 7, 5])
    stream = EventStream(src=np.zeros(7, np.int64), dst=dst, t=np.array([0, 1, 2, 3, 4, 4, 4]), relation=relation)
    splits = EventSplit(train=np.arange(4), val=np.empty(0, np.int64), test=np.arange(4, 7))
    negatives = strategy_of("ranking").draw(stream, splits, "test", num_negatives="all")
    found = [set(part) for part in np.split(negatives.dst, negatives.offsets[1:-1])]
    assert found == [{6}, {5, 6}, {6}]  # 5 and 7 are targets of relation 0 then


def test_training_negatives_respect_relations(orders: EventStream) -> None:
    rows = np.arange(400)
    src, dst = EpochNegatives(orders, rows, 50, 0, TrainingNegatives()).of(0)
    assert np.array_equal(src[:, 0], orders.src[rows])
    assert (orders.node_type[dst[:, 0]] == orders.node_type[orders.dst[rows]]).all()
    assert (dst[:, 0] != orders.dst[rows]).all()


@pytest.mark.parametrize("make", [recency, lambda stream: EdgeBank(stream.num_nodes)])
def test_scores_and_metrics_by_relation(orders: EventStream, make) -> None:
    splits = chronological_split(orders)
    row = evaluate_link(make(orders), orders, splits, strategies=("ranking",)).rows[0]
    again = evaluate_link(make(renamed(orders)), renamed(orders), splits, strategies=("ranking",)).rows[0]
    assert again.pop("strategy") == row.pop("strategy")
    assert {k: v for k, v in again.items() if type(v) is not str} == pytest.approx(
        {k: v for k, v in row.items() if type(v) is not str}
    )
    test = [orders.relation_names[r] for r in orders.relation[splits.test]]
    counts = {name: test.count(name) for name in set(test)}
    assert {name: row[f"num_events[{name}]"] for name in counts} == counts
    micro = sum(row[f"mrr[{name}]"] * count for name, count in counts.items()) / len(test)
    assert micro == pytest.approx(row["mrr"])
    assert np.mean([row[f"mrr[{name}]"] for name in counts]) == pytest.approx(row["mrr_macro"])


@pytest.mark.parametrize("make", [recency, lambda stream: EdgeBank(stream.num_nodes)])
def test_a_single_relation_scores_like_an_untyped_stream(orders: EventStream, make) -> None:
    plain = untyped(orders)
    one = plain.with_(relation=np.zeros(len(plain), np.int32))
    splits = chronological_split(plain)
    rows = [evaluate_link(make(s), s, splits, strategies=("random", "ranking")).rows for s in (plain, one)]
    assert rows[0] == rows[1]


def test_recency_per_relation_finds_targets_that_depend_on_it() -> None:
    """Each source has one target per relation; without relations, the last target is a guess."""
    rng = np.random.default_rng(0)
    src, relation = rng.integers(0, 20, 900), rng.integers(0, 3, 900).astype(np.int32)
    dst = 20 + (src * 7 + relation * 5) % 23
    stream = EventStream(src=src, dst=dst, t=np.arange(900), relation=relation)
    splits = chronological_split(stream)
    many = {("test", "ranking"): strategy_of("ranking").draw(stream, splits, "test", num_negatives=20)}
    store = NeighborStore.from_stream(stream)
    scorers = [Recency(store, relations=EventRelations.of(stream)), Recency(store)]
    found = [evaluate_link(s, stream, splits, strategies=("ranking",), negatives=many).rows[0]["mrr"] for s in scorers]
    assert found[0] > found[1] + 0.05


def test_recency_and_edgebank_do_not_leak_relations(orders: EventStream) -> None:
    check_leak(recency, orders, times=2, batch_size=40)
    check_leak(lambda stream: EdgeBank(stream.num_nodes), orders, times=2, batch_size=40)


def test_a_score_from_future_relations_is_a_leak(orders: EventStream) -> None:
    class Peeking(Recency):
        def score(self, src, dst, t, relation=None):
            return super().score(src, dst, t, relation) + self.relations.codes.mean()

    def build(stream: EventStream) -> Recency:
        return Peeking(NeighborStore.from_stream(stream), relations=EventRelations.of(stream))

    with pytest.raises(LeakError):
        check_leak(build, orders, times=2, batch_size=40)
