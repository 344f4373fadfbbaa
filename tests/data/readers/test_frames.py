"""Tables in memory: types are kept, rows are named, and tables that cannot be read are rejected by name."""

import threading
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest

import hopstate
from hopstate.data.readers.tables import read_table
from hopstate.errors import DataError, HopstateError
from made_tables import tables


def hostile() -> dict[str, tuple[pd.DataFrame, str]]:
    edges = tables()[0]
    return {
        "two of one name": (edges.set_axis(["source", "source"], axis=1), "source"),
        "levels of names": (pd.concat({"a": edges}, axis=1), ""),
        "levels of the index": (edges.set_index([edges.index, edges.index]), ""),
        "texts as a nameless index": (edges.set_axis([f"r{i}" for i in range(120)]), ""),
        "lists": (edges.assign(source=[[1, 2]] * 120), "source.*lists"),
        "bytes": (edges.assign(source=[b"a"] * 120), "source.*bytes"),
        "lists of Arrow": (pa.table({"source": [[1]], "target": [2]}), "source"),
        "": (pd.DataFrame(index=range(3)), ""),
        "missing ids": (edges.assign(source=edges["source"].where(edges.index != 3)), "source.*row 3"),
        "complex": (edges.assign(w=1j), "complex"),
    }


@pytest.mark.parametrize("case", hostile())
def test_tables_that_cannot_be_read_are_rejected_by_name(case):
    table, words = hostile()[case]
    with pytest.raises(HopstateError, match=words or None):
        hopstate.read_graph(table)


def test_unusual_indices_and_dtypes_are_read_like_a_file(tmp_path):
    edges, features, labels = tables()
    odd = edges.set_axis([5] * len(edges))  # a non-unique index is ignored
    odd["source"] = odd["source"].astype("category")
    odd["weight"] = pd.array([1, None] * 60, "Int64")
    odd.to_csv(tmp_path / "e.csv", index=False)
    options = {"features": features, "labels": labels.convert_dtypes(), "missing": "mean"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = hopstate.read_graph(odd, **options), hopstate.read_graph(tmp_path / "e.csv", **options)
    assert one.content_hash == two.content_hash
    assert one.edge_table.columns == two.edge_table.columns == ("weight",)
    numbers = pd.DataFrame(np.random.default_rng(0).integers(0, 9, (30, 2)))  # columns called 0 and 1
    assert hopstate.read_graph(numbers).num_nodes == 9


def test_every_kind_of_table_gives_the_same_events(tmp_path):
    large = 2**62 + 1  # rounded by a float
    columns = {"source": ["a", "b", "007"], "target": ["b", "c", "a"], "time": [large, large + 1, large + 2]}
    frame = pd.DataFrame(columns | {"f0": [0.5, 1.5, 2.5]})
    arrow = pa.Table.from_pandas(frame)
    pyarrow.feather.write_feather(frame, tmp_path / "e.arrow")
    frame.to_parquet(tmp_path / "e.parquet")
    frame.to_csv(tmp_path / "e.csv", index=False)
    memory = [frame, arrow, arrow.to_batches()[0], arrow.to_reader(), dict(frame), frame.convert_dtypes()]
    memory += [frame.convert_dtypes(dtype_backend="pyarrow"), frame.set_index("source"), frame.astype(object)]
    files = [tmp_path / name for name in ("e.arrow", "e.parquet", "e.csv")]
    found = [hopstate.read_events(source) for source in (*memory, *files)]
    assert found[0].node_ids.ids.tolist() == ["007", "a", "b", "c"]
    assert found[0].t.tolist() == columns["time"]
    assert len({stream.content_hash for stream in found}) == 1


def test_a_check_quotes_the_first_bad_cell(tmp_path):
    (tmp_path / "e.csv").write_text("source,weight\na,1e2\nb,1e300\nc,1e301\n")
    table = read_table(tmp_path / "e.csv")
    large = table.frame["weight"] > 1e299
    with pytest.raises(
        DataError, match=r"too large: got '1e300' in .*e\.csv, column 'weight', row 1 \(line 3\) \(2 such"
    ):
        table.check(large, "weight", "too large", "Scale it.")
    table.check(large & False, "weight", "too large", "Scale it.")


def test_types_of_ids_are_kept():
    edges = pd.DataFrame({"source": ["1", "2"], "target": ["2", "3"]})
    assert hopstate.read_graph(edges).node_ids.ids.tolist() == ["1", "2", "3"]
    assert hopstate.read_graph(edges.astype(int)).node_ids.ids.tolist() == [1, 2, 3]


def test_one_table_holds_features_and_labels():
    edges, features, labels = tables()
    both = features.merge(labels, on="id")
    graph = hopstate.read_graph(edges, features=both, labels=both)
    assert graph.num_features == 2
    assert graph.class_names == ("down", "up")


def test_reading_in_threads_does_not_change_warning_filters(monkeypatch):
    table = pd.DataFrame({"source": list("abcab"), "target": list("bcaca"), "time": [1, 2, 3, 4, 5]})
    entered = []
    original = warnings.catch_warnings.__enter__
    monkeypatch.setattr(warnings.catch_warnings, "__enter__", lambda self: entered.append(self) or original(self))

    def read():
        for _ in range(6):
            hopstate.read_events(table)
            hopstate.read_graph(table, edge_columns=[])

    read()  # import pandas and pyarrow lazily loaded modules first
    entered.clear()
    threads = [threading.Thread(target=read) for _ in range(3)]
    filters, hook = list(warnings.filters), warnings._showwarnmsg_impl
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (list(warnings.filters), warnings._showwarnmsg_impl) == (filters, hook)
    assert not entered
