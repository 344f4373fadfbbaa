"""The order of simultaneous events in a table changes neither training nor answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.data.events import EventStream
from hopstate.data.readers.read_events import read_events
from hopstate.errors import ConfigError

NARROW = {"model.channel_dim": 4, "model.time_dim": 5, "model.out_dim": 6}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "recency": ("recency", {}),
    "edgebank": ("edgebank", {}),
    "pair-trees": ("pair-trees", {"model.num_trees": 10, "model.min_leaf": 5}),
    "graphmixer": ("graphmixer", {"model.num_links": 3, "model.dim": 6, "model.out_dim": 6}),
    "dygformer": ("dygformer", {**NARROW, "model.max_length": 6, "model.patch_size": 2, "model.num_heads": 2}),
    "dyg-mamba": ("dyg-mamba", {**NARROW, "history.max_length": 5}),
    "ctdg-ssm": ("ctdg-ssm", {"model.dim": 6, "model.time_dim": 4, "model.hidden": 6}),
}
TIMES = 16


def table(first: int = 0) -> pd.DataFrame:
    """Return 192 events at 16 times, some of them equal except for their amounts."""
    rng = np.random.default_rng(first)
    ends = [f"n{i:02}" for i in range(9)]
    made = pd.DataFrame({"src": rng.choice(ends, 192), "dst": rng.choice(ends, 192)})
    return made.assign(t=first + np.repeat(np.arange(TIMES), 12) * 60, feat_0=rng.normal(size=192).round(2))


def shuffled(events: pd.DataFrame) -> pd.DataFrame:
    return events.sample(frac=1, random_state=7).sort_values("t", kind="stable")


def results(name: str, events: pd.DataFrame, home: Path, **read: Any) -> list[Any]:
    home.mkdir()
    events.to_csv(home / "own.csv", index=False)
    method, settings = METHODS[name]
    loop = {"epochs": 1, "progress": False, "logger": "none", "device": "cpu", "seed": 5}
    strategies = {"strategies": ["random", "historical"], "batch_size": 20}
    config = {**settings, "loop": loop, "evaluation": strategies, "read": read}
    run = hopstate.fit(method, home / "own.csv", out=home / "run", config=config)
    scores = run.score([("n00", "n01"), ("n03", "n02")])
    ranked = run.rank("n04", top=None)
    table, columns = run.predict(split="test"), ["src", "dst", "t"]
    ends = {"src": "string", "dst": "string"}
    mine = pd.read_csv(home / "own.csv")[columns].tail(len(table))
    pd.testing.assert_frame_equal(table[columns].astype(ends), mine.reset_index(drop=True).astype(ends))  # row by row
    return [run.metrics, table.sort_values([*columns, "score"], ignore_index=True), scores, ranked]


@pytest.mark.parametrize(
    "name",
    [name if name == "recency" else pytest.param(name, marks=pytest.mark.slow) for name in METHODS],
)
def test_the_order_of_simultaneous_rows_changes_no_result(name: str, tmp_path: Path) -> None:
    found = results(name, table(), tmp_path / "one", tie_order="sorted")
    again = results(name, shuffled(table()), tmp_path / "two", tie_order="sorted")
    for split, metrics in found[0].items():
        assert again[0][split] == pytest.approx(metrics, rel=1e-5)
    for one, other in zip(found[1:], again[1:], strict=True):
        pd.testing.assert_frame_equal(one, other, rtol=1e-5)


def test_every_column_breaks_ties() -> None:
    rows = pd.DataFrame({"src": [1, 1, 1, 0, 1], "dst": [2, 2, 0, 3, 2], "t": 3, "label": [1, 0, 0, 1, 1]})
    rows = rows.assign(feat_0=[0.5, 0.5, 0.1, 0.2, 0.4], tone=["b", "a", "a", "c", "a"])
    read: dict[str, Any] = {"columns": ["tone=category"], "tie_order": "sorted"}
    sorted_ = read_events(rows, **read)
    assert sorted_.src.tolist() == [0, 1, 1, 1, 1]
    assert sorted_.dst.tolist() == [3, 0, 2, 2, 2]
    for seed in range(5):
        assert read_events(rows.sample(frac=1, random_state=seed), **read).content_hash == sorted_.content_hash
    assert read_events(rows).src.tolist() == [1, 1, 1, 0, 1]


def test_deletions_keep_their_order_and_records_may_be_sorted(tmp_path: Path) -> None:
    deleted = pd.DataFrame({"src": [1, 1, 0], "dst": [2, 2, 5], "t": 3, "kind": ["add", "delete", "add"]})
    assert read_events(deleted, tie_order="sorted").src.tolist() == [1, 1, 0]
    record = EventStream.from_arrays([3, 1, 2], [0, 0, 0], [1, 1, 1])
    record.save(tmp_path / "events")
    for source in (record, tmp_path / "events"):
        assert read_events(source).src.tolist() == [3, 1, 2]
        assert read_events(source, tie_order="sorted").src.tolist() == [1, 2, 3]
    with pytest.raises(ConfigError, match="any"):
        read_events(record, tie_order="any")  # type: ignore[arg-type]


def test_simultaneous_rows_of_later_files_are_sorted_too(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "own.csv", index=False)
    config = {"model.dim": 6, "model.time_dim": 4, "model.hidden": 6, "batch_size": 20, "loop.epochs": 0}
    run = hopstate.fit(
        "ctdg-ssm", tmp_path / "own.csv", out=tmp_path / "run", config=config | {"read.tie_order": "sorted"}
    )
    later, found = table(60 * TIMES), []
    for events in (later, shuffled(later)):
        predicted = hopstate.predict(run.path, data=events)
        ends = events[["src", "dst", "t"]]
        pd.testing.assert_frame_equal(predicted[["src", "dst", "t"]], ends, check_dtype=False)
        found.append(predicted.sort_values([*predicted], ignore_index=True))
    pd.testing.assert_frame_equal(*found, rtol=1e-5)
