"""Ids of any type: a prepared table has the ids of the table read in memory."""

import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb", reason="prepare needs the extra prepare")
pytest.importorskip("ibis", reason="prepare needs the extra prepare")

from hopstate.data.prepare import prepare
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore::hopstate.errors.HopstateWarning")


LIKE_NUMBERS = [
    "7", "12", "007", "7.0", "+7", "-7", "-0", "99999999999999999999", "9223372036854775807", "-9223372036854775809",
    "1e5", "1.5", "NA", "nan", "#7", "%", "n7", " 7", "7\u00a0", "True", "é", "𝔘",
]  # fmt: skip
some = st.lists(st.sampled_from(LIKE_NUMBERS), min_size=1, max_size=12)
ints = st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 20), min_size=1, max_size=12)
KINDS = [
    (some, pa.string()), (some, pa.large_string()), (some, pa.dictionary(pa.int32(), pa.string())), (ints, pa.int64()),
    (ints, pa.uint64()), (ints, pa.dictionary(pa.int8(), pa.int64())),
    (st.lists(st.integers(0, 2**53 - 1), min_size=1, max_size=12), pa.float64()),
    (st.lists(st.booleans(), min_size=1, max_size=12), pa.bool_()),
    (st.lists(st.integers(0, 99).map(decimal.Decimal), min_size=1, max_size=12), pa.decimal128(5, 2)),
    (st.lists(st.dates(), min_size=1, max_size=12), pa.date32()),
]  # fmt: skip
columns = st.sampled_from(KINDS).flatmap(lambda kind: kind[0].map(lambda cells: pa.array(cells, kind[1])))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(columns, columns, st.booleans())
def test_a_typed_table_has_the_same_ids_when_read_or_prepared(tmp_path_factory, src, dst, edges):
    folder, count = tmp_path_factory.mktemp("any"), min(len(src), len(dst))
    table = pa.table({"source": src[:count], "target": dst[:count], "time": np.arange(count)})
    pq.write_table(table.select(["source", "target"]) if edges else table, folder / "e.parquet")
    read = read_graph if edges else read_events
    prepare(folder / "e.parquet", folder / "store", kind="edges" if edges else "events", batch_rows=3)
    one, other = read(folder / "store"), read(folder / "e.parquet")
    assert one.content_hash == other.content_hash
    named = [None if record.node_ids is None else record.node_ids.ids for record in (one, other)]
    assert (named[0] is None) == (named[1] is None)
    if named[0] is not None:
        assert named[0].dtype.kind == named[1].dtype.kind
        assert named[0].tolist() == named[1].tolist()


def test_texts_of_whole_numbers_stay_texts(tmp_path):
    pd.DataFrame({"source": ["7", "12"], "target": ["12", "007"], "time": [1, 2]}).to_parquet(tmp_path / "e.parquet")
    prepare(tmp_path / "e.parquet", tmp_path / "s")
    assert read_events(tmp_path / "s").node_ids.ids.tolist() == ["007", "12", "7"]
    (tmp_path / "e.csv").write_text("source,target,time\n7,12,1\n12,9,2\n")
    prepare(tmp_path / "e.csv", tmp_path / "numbers")
    assert read_events(tmp_path / "numbers").node_ids.ids.tolist() == [7, 9, 12]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1.5, 2.0**53, float("nan"), None, float("inf"), 4], pa.float64()),
        ([2**63, 2**64 - 1, None, None, 2**63 + 5, 4], pa.uint64()),
    ],
)
def test_invalid_numeric_ids_are_bad_rows(tmp_path, cells, kind):
    table = pa.table({"source": pa.array(cells, kind), "target": np.arange(6), "time": np.arange(6)})
    pq.write_table(table, tmp_path / "e.parquet")
    with pytest.raises(DataError):
        read_events(tmp_path / "e.parquet")
    assert prepare(tmp_path / "e.parquet", tmp_path / "s").bad == 5
    assert read_events(tmp_path / "s").node_ids.ids.tolist() == [4, 5]


@pytest.mark.parametrize(("text", "ending"), [(False, "csv"), (True, "parquet")])
def test_negative_numbers_are_rejected_when_read_or_prepared(tmp_path, text, ending):
    table = pd.DataFrame({"source": [4, -7], "target": ["a", "b"] if text else [5, 6], "time": [1, 2]})
    path = tmp_path / f"e.{ending}"
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
    for load in (read_events, lambda path: prepare(path, tmp_path / "s")):
        with pytest.raises(DataError, match="-7"):
            load(path)


def test_column_types_that_are_not_ids_are_named(tmp_path):
    for cells in (pa.array([1, 2], pa.timestamp("us")), pa.array([b"a", b"b"]), pa.array([1, 2], pa.duration("s"))):
        pq.write_table(pa.table({"source": cells, "target": ["a", "b"], "time": [1, 2]}), tmp_path / "e.parquet")
        with pytest.raises(DataError, match="source"):
            prepare(tmp_path / "e.parquet", tmp_path / "s")
    cells = [decimal.Decimal(1), decimal.Decimal("2.50")]
    pq.write_table(pa.table({"source": cells, "target": ["a", "b"], "time": [1, 2]}), tmp_path / "e.parquet")
    with pytest.raises(DataError, match="source"):
        read_events(tmp_path / "e.parquet")
    assert prepare(tmp_path / "e.parquet", tmp_path / "s").bad == 1
    cells = [decimal.Decimal("1.00"), decimal.Decimal("2.00")]
    pq.write_table(pa.table({"source": cells, "target": [2, 1], "time": [1, 2]}), tmp_path / "e.parquet")
    prepare(tmp_path / "e.parquet", tmp_path / "whole")
    for place in ("whole", "e.parquet"):
        assert read_events(tmp_path / place).node_ids.ids.tolist() == [1, 2]


def test_a_date_is_not_a_feature_of_a_store(tmp_path):
    dates = pd.to_datetime(["2026-01-01", "2026-01-02"])
    table = pd.DataFrame({"source": [1, 2], "target": [2, 1], "time": [1, 2], "feat_0": dates})
    table.to_parquet(tmp_path / "e.parquet")
    with pytest.raises(DataError, match="feat_0"):
        prepare(tmp_path / "e.parquet", tmp_path / "s")
