"""Dynamic node classification: a label is scored before its event is observed."""

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.splits import chronological_split
from hopstate.errors import ConfigError, DataError
from hopstate.training.tasks.event_node import EventNodeTask, event_classes
from hopstate.training.tasks.events import Untrained


class LastLabel:
    """Predicts that a node keeps its last observed label."""

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
    labels = ((t // 300 + src) % 2 == 0).astype(int)  # each node changes sometimes
    return EventStream(src=src, dst=dst, t=t, labels=labels)


def task_of(stream: EventStream, batch_size: int, bootstrap: int = 0) -> EventNodeTask:
    source = Untrained(lambda data: LastLabel(data.num_nodes), stream, chronological_split(stream))
    return EventNodeTask(source, targets=event_classes(stream), eval_batch_size=batch_size, bootstrap=bootstrap)


def test_auc_of_a_persistent_label():
    stream = made_stream()
    task = task_of(stream, batch_size=1, bootstrap=100)
    found, test = task.evaluate("test"), task.split.test
    last, hit = np.full(40, 0.5), []
    for row in range(2000):
        hit.append(last[stream.src[row]] == stream.labels[row])
        last[stream.src[row]] = stream.labels[row]
    share = np.mean(np.array(hit)[test])
    assert found["roc_auc"] == pytest.approx(share, abs=0.02)  # two equally likely labels, 0 or 1 as score
    assert found["roc_auc_low"] < found["roc_auc"] < found["roc_auc_high"]
    assert found["positives"] == stream.labels[test].sum()
    assert task.scorer("test").seen == 2000
    assert task_of(stream, batch_size=300).evaluate("test")["roc_auc"] < found["roc_auc"]


def test_bad_node_event_input_is_named():
    stream = made_stream(100)
    with pytest.raises(DataError):
        event_classes(stream.with_(labels=None))
    with pytest.raises(DataError, match="100"):
        event_classes(stream.with_(labels=np.arange(100)))
    with pytest.raises(ConfigError):
        task_of(stream, batch_size=1).evaluate("new_val")
