"""Dynamic node classification from histories: content of batches, inputs, reports."""

import numpy as np
import pytest
import torch

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import chronological_split
from hopstate.errors import ConfigError, DataError
from hopstate.methods.dyg_mamba.model import DyGMambaConfig, DyGMambaNodes
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer
from hopstate.training.tasks.event_node import EventNodeTask, event_classes
from hopstate.training.tasks.events import HistoryNodes


def _stream(events: int = 200) -> EventStream:
    """A node's label is whether its last event was with an even node: predictable only from the history."""
    rng = np.random.default_rng(0)
    src, dst, last, labels = rng.integers(0, 6, events), rng.integers(6, 16, events), {}, []
    for u, v in zip(src.tolist(), dst.tolist()):
        labels.append(last.get(u, 0))
        last[u] = int(v % 2 == 0)
    x = np.eye(16, dtype=np.float32)
    return EventStream(src=src, dst=dst, t=np.arange(events) // 2, labels=np.array(labels), x=x)


def _task(stream: EventStream | None = None, **options: object) -> EventNodeTask:
    stream = _stream() if stream is None else stream
    split, history = chronological_split(stream), HistoryConfig(max_length=4, target="none")
    rows = split.train
    train = NeighborStore.from_events(stream.src[rows], stream.dst[rows], stream.t[rows], None, stream.num_nodes)
    torch.manual_seed(0)
    config = DyGMambaConfig(channel_dim=8, time_dim=4, out_dim=8)
    targets = event_classes(stream)
    source = HistoryNodes(
        DyGMambaNodes(config, **stream.used_features),
        stream,
        split,
        train_inputs=HistoryTokenizer(train, stream, history),
        inputs=lambda events: HistoryTokenizer(NeighborStore.from_stream(events), events, history),
        y=targets.y,
        target=targets.target,
        batch_size=options.pop("batch_size", 32),
    )
    return EventNodeTask(source, targets=targets, **options)


def test_batches_hold_the_training_events_in_order():
    task = _task()
    batches = list(task.batches(0))
    assert len(batches) == task.num_batches(0) == 5
    labels = torch.cat([labels for _, labels in batches])
    assert torch.equal(labels, torch.from_numpy(task.stream.labels[task.split.train]))
    seen = torch.cat([tokens.event_ids for tokens, _ in batches])
    assert int(seen.max()) < task.split.val[0]
    assert [len(labels) for _, labels in task.batches(0, start=3)] == [32, len(task.split.train) - 128]


def test_the_task_learns_from_the_history():
    task = _task()
    optimizer = torch.optim.Adam(task.model.parameters(), lr=6e-3)
    for epoch in range(15):
        for batch in task.batches(epoch):
            optimizer.zero_grad()
            task.loss(batch).backward()
            optimizer.step()
    found = task.evaluate("test")
    assert found["roc_auc"] > 0.85
    assert set(task.evaluate("train")) == {"roc_auc", "average_precision", "positives"}
    table = task.predict("val")
    assert table["node"].tolist() == task.stream.src[task.split.val].tolist()
    with pytest.raises(ConfigError, match="all"):
        task.evaluate("all")


@pytest.mark.parametrize("labels", [None, np.full(200, 2), np.full(200, 0.5)])
def test_labels_are_classes(labels):
    with pytest.raises(DataError):
        _task(_stream().with_(labels=labels))
    with pytest.raises(ConfigError, match="batch_size"):
        _task(batch_size=0)
