"""Ids have codes over all pieces: a log tells them all and is gone on with, a table too large is left for a new one."""

import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("duckdb", reason="prepare needs the extra prepare")
pytest.importorskip("ibis", reason="prepare needs the extra prepare")

from hopstate.data.prepare import numbering as module
from hopstate.data.prepare import prepare
from hopstate.data.prepare.id_table import IdTable, packed
from hopstate.data.prepare.numbering import Numbering, logged
from hopstate.errors import StorageError

DOOR = sys.modules["hopstate.data.prepare.prepare"]  # the package's name for it is the function's
pytestmark = pytest.mark.filterwarnings("ignore::hopstate.errors.HopstateWarning")


def table_of(kind, n=900, seed=0):
    r = np.random.default_rng(seed)
    ends = {
        "texts": lambda: [f"ü{k}" for k in r.integers(0, 300, n)],
        "numbers": lambda: r.integers(0, 2**62, n) // 2**53,
        "rows": lambda: np.arange(n) % 300,
    }
    target = ends["texts" if kind == "both" else kind]()
    columns = {"source": ends["numbers" if kind == "both" else kind](), "target": target}
    return pd.DataFrame(columns | {"time": r.integers(0, 90, n), "feat_0": r.normal(size=n)})


def files(store):
    return {path.name: path.read_bytes() for path in store.iterdir() if path.suffix == ".npy"}


@pytest.mark.parametrize(
    ("kind", "ending", "rows"),
    [
        ("texts", "csv", "events"),
        ("numbers", "parquet", "events"),
        ("rows", "csv", "edges"),
        ("both", "parquet", "edges"),
    ],
)
def test_many_generations_give_the_same_bytes(tmp_path, monkeypatch, kind, ending, rows):
    table, path = table_of(kind), tmp_path / f"e.{ending}"
    table = table if rows == "events" else table.drop(columns="time")
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
    prepare(path, tmp_path / "one", kind=rows, piece_rows=70)
    seen = []

    class Small(Numbering):
        def __init__(self, folder, memory):
            super().__init__(folder, 1 << 15)

        def codes(self, side, ids):
            codes, generation = super().codes(side, ids)
            seen.append((side, generation))
            return codes, generation

    monkeypatch.setattr(DOOR, "Numbering", Small)
    prepare(path, tmp_path / "many", kind=rows, piece_rows=70, threads=3)
    assert max(seen)[1] > 1
    assert files(tmp_path / "one") == files(tmp_path / "many")


def test_a_numbering_goes_on_where_it_was_left(tmp_path):
    ids = pa.array([f"n{i}" for i in range(50)])
    first = Numbering(tmp_path, 1 << 20)
    assert first.codes(0, ids[:20])[0].tolist() == list(range(20))
    assert first.codes(1, ids[5:9])[0].tolist() == list(range(4))
    after = Numbering(tmp_path, 1 << 20)
    assert after.codes(0, ids)[0].tolist() == list(range(50))
    assert after.codes(1, ids[:9])[0].tolist() == [4, 5, 6, 7, 8, 0, 1, 2, 3]
    log = logged(tmp_path)
    assert [(one.generation, one.side, one.first, one.count) for one in log] == [
        (0, 0, 0, 20), (0, 0, 20, 30), (0, 1, 0, 4), (0, 1, 4, 5)
    ]  # fmt: skip
    whole = pq.read_table(log[1].path)
    assert whole["code"].to_pylist() == list(range(20, 50))
    assert whole["id"].to_pylist() == ids[20:].to_pylist()


def test_a_generation_is_left_before_it_has_more_memory(tmp_path):
    asked = Numbering(tmp_path, 1 << 17)
    for start in range(0, 40_000, 1000):
        asked.codes(0, pa.array(np.arange(start, start + 1000)))
    counts: dict[int, int] = {}
    for one in logged(tmp_path):
        counts[one.generation] = counts.get(one.generation, 0) + one.count
    assert len(counts) > 2
    assert sum(counts.values()) == 40_000
    for count in counts.values():
        table = IdTable()
        table.enter(packed(pa.array(np.arange(count))))
        assert table.bytes_with(packed(pa.array([], pa.int64()))) <= 1 << 16


def test_after_a_log_that_was_not_written_nothing_goes_on(tmp_path, monkeypatch):
    asked = Numbering(tmp_path, 1 << 20)

    def full(path, write):
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(module, "replace_file", full)
        with pytest.raises(StorageError):
            asked.codes(0, pa.array(["a"]))
    with pytest.raises(StorageError):
        asked.codes(0, pa.array(["a"]))
    assert Numbering(tmp_path, 1 << 20).codes(0, pa.array(["b"]))[0].tolist() == [0]


def test_work_that_another_version_began_is_refused(tmp_path, monkeypatch):
    table_of("texts").to_parquet(tmp_path / "e.parquet")

    class StopError(Exception):
        pass

    def stop(*args):
        raise StopError

    with monkeypatch.context() as patched:
        patched.setattr(DOOR, "stage", stop)
        with pytest.raises(StopError):
            prepare(tmp_path / "e.parquet", tmp_path / "s")
    plan = tmp_path / "s" / "work" / "plan.json"
    kept = plan.read_text()
    plan.write_text(kept.replace('"work": 2', '"work": 1'))
    with pytest.raises(StorageError):
        prepare(tmp_path / "e.parquet", tmp_path / "s")
    plan.write_text(kept)
    prepare(tmp_path / "e.parquet", tmp_path / "s")
