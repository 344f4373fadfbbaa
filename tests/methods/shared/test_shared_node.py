"""What is learned of nodes, as a user says it: amounts, classes and their weights."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.methods.message_passing.method import FullBatchRun, build
from hopstate.methods.method import Context, ReadOptions

N = 40
EDGES = pd.DataFrame({"source": np.arange(N), "target": np.roll(np.arange(N), 1)})
FEATURES = pd.DataFrame({"id": np.arange(N), "a": np.linspace(-1, 1, N)})


def built(labels: pd.DataFrame, folder: Path, config: dict | None = None, **read):
    """Return the task that a fit with these labels and options of reading trains."""
    graph = hopstate.read_graph(EDGES, features=FEATURES, labels=labels, **read)
    run = FullBatchRun(data="made", read=ReadOptions(**read), **(config or {}))
    return build(graph, run, Context(run=folder, cache=folder), kind="mlp")


@pytest.mark.parametrize("columns", [["bit"], ["bit", "other"]])
def test_amounts_of_0_and_1_are_amounts_where_that_is_said(columns, tmp_path):
    bits = (np.arange(N) % 2).astype(float)
    labels = pd.DataFrame({"id": np.arange(N), "bit": bits, "other": 1 - bits})[["id", *columns]]
    labels.loc[3, columns[0]] = np.nan
    read = {"label_column": ",".join(columns)}
    task = built(labels, tmp_path, task="regression", **read)
    assert task.labels.target.goal == "values"
    assert task.labels.target.metrics[0] == "mae"
    rng = np.random.default_rng(0)
    apart = labels.assign(bit=labels["bit"] * 3 + rng.normal(size=N))  # as any other amounts
    assert built(apart, tmp_path, task="regression", **read).labels.target.goal == "values"
    if len(columns) > 1:
        assert built(labels, tmp_path, **read).labels.target.goal == "labels"
