"""Dynamic node classification: a label is scored before its event is seen."""

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.splits import chronological_split
from hopstate.errors import ConfigError, DataError
from hopstate.evaluation.node_dynamic import evaluate_dynamic_nodes, score_node_queries
from hopstate.training.tasks.event_node import event_classes


class LastLabel:
    """Predicts that a node keeps the label observed last."""

    def __init__(self, num_nodes):
        self._num_nodes = num_nodes

    def reset(self):
        self.seen, self._last = 0, np.full(self._num_nodes, 0.5)

    def observe(self, batch):
        self.seen += len(batch)
        self._last[batch.src] = batch.labels

    def score_nodes(self, nodes, t):
        return self._last[nodes]


def made_stream(num_events: int = 2000) -> EventStream:
    rng = np.random.default_rng(0)
    src, dst, t = rng.integers(0, 20, num_events), rng.integers(20, 40, num_events), np.arange(num_events)
    labels = ((t // 300 + src) % 2 == 0).astype(int)  # each node changes now and then
    return EventStream(src=src, dst=dst, t=t, labels=labels)


def test_auc_of_a_label_that_lasts():
    stream, model = made_stream(), LastLabel(40)
    split = chronological_split(stream)
    metrics = event_classes(stream).metrics
    found = evaluate_dynamic_nodes(model, stream, split, metrics=metrics, batch_size=1, bootstrap=100)
    last, hit = np.full(40, 0.5), []
    for row in range(2000):
        hit.append(last[stream.src[row]] == stream.labels[row])
        last[stream.src[row]] = stream.labels[row]
    share = np.mean(np.array(hit)[split.test])
    assert found["roc_auc"] == pytest.approx(share, abs=0.02)  # two equally likely labels, 0 or 1 as score
    assert found["roc_auc_low"] < found["roc_auc"] < found["roc_auc_high"]
    assert found["positives"] == stream.labels[split.test].sum()
    assert model.seen == 2000
    assert evaluate_dynamic_nodes(model, stream, split, metrics=metrics, batch_size=300)["roc_auc"] < found["roc_auc"]


def test_queries_see_earlier_events_only():
    stream = made_stream(10)
    found = score_node_queries(LastLabel(40), stream, stream.src[[0, 3]], np.array([0, 3]), batch_size=1)
    assert found[0] == 0.5


def test_bad_input_is_named():
    stream = made_stream(100)
    split = chronological_split(stream)
    with pytest.raises(DataError):
        event_classes(stream.with_(labels=None))
    with pytest.raises(DataError, match="100"):
        event_classes(stream.with_(labels=np.arange(100)))
    with pytest.raises(ConfigError):
        evaluate_dynamic_nodes(LastLabel(40), stream, split, "new_val", metrics=event_classes(stream).metrics)
