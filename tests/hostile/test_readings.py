"""Nothing is misread: tables, arrays and metadata that are easily misread are rejected or read exactly."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data, TemporalData

from hopstate.data.events import EventStream
from hopstate.data.graph_set import GraphSet
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.data.readers.tables import ids_of
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError, FormatError, HopstateError, MissingExtraError
from hopstate.io.opening import parse_json, reading
from hopstate.io.tensors import load_npy

H = "src,dst,t\n"
LATE = "".join(f"7,1,{i}\n" for i in range(1500)) + "007,1,9999\n"


def events_of(path: Path, text: str | bytes, **options: Any) -> EventStream:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_events(path, **options)


def ids(stream: Any) -> list[str]:
    names = np.arange(stream.num_nodes) if stream.node_ids is None else stream.node_ids.ids
    return [str(name) for name in names.tolist()]


REFUSED = {
    "an exponent": (H + "1e3,2,3\n1000,1,4\n", r"exponent.*1e3.*row 0 \(line 2\)"),
    "a spreadsheet's exponent": (H + "5,2,3\n1.23457E+15,1,4\n", r"1\.23457E\+15.*row 1"),
    "infinity": (H + "inf,2,3\n1,1,4\n", "inf.*row 0"),
    "a word for nothing": (H + "7,2,3\nnan,1,4\n", r"'nan'.*column 'src', row 1"),
    "a missing quotation mark": (H + '"a,2,3\n2,1,4\nb",5,6\n', "quotation mark"),
    "a label beyond 2^63": ("src,dst,t,label\n1,2,3,1180591620717411303424\n1,2,4,1\n", "label"),
    "a label that is infinite": (H[:-1] + ",label\n1,2,3,inf\n2,1,4,1\n", "holds inf in row 0"),
    "an amount that is missing": (H[:-1] + ",label\n1,2,3,0.5\n2,1,4,\n", r"none in row 1 \(line 3\)"),
    "a feature beyond 32 bits": (H[:-1] + ",feat_0\n1,2,3,1e39\n2,1,4,1\n", "1e\\+?39.*row 0"),
    "a heading among the rows": (H + "1,2,3\nsrc,dst,t\n", "'t'.*column 't'"),
    "lines of JSON": ('{"src": 1, "dst": 2, "t": 3}\n', "JSON|no format"),
    "joined files": (H + "a,b,1\n" * 50_000 + "\ufeffa,b,9\n", "byte-order mark"),
    "two byte-order marks": ("\ufeff\ufeff1,2,3\n", "byte-order mark"),
    "a backslash before a quotation mark": (H + '"a\\"b",c,3\nd,c,4\n', "quotation mark"),
    "UTF-16": ((H + "1,2,3\n").encode("utf-16"), "no format"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_ambiguous_event_tables_are_rejected(tmp_path: Path, name: str) -> None:
    text, message = REFUSED[name]
    with pytest.raises(HopstateError, match=message) as caught:
        events_of(tmp_path / "e.csv", text)
    assert "e.csv" in str(caught.value)


READ = {
    "zeros in front, far down": (H + LATE, ["007", "1", "7"]),
    "zeros in front of a sign": (H + "+007,1,3\n7,1,4\n", ["+007", "1", "7"]),
    "a plus": (H + "+5,1,3\n5,1,4\n", ["1", "5"]),
    "spaces around numbers": (H + " 5 ,1,3\n5, 1 ,4\n", ["1", "5"]),
    "spaces around texts": (H + "a ,b,3\na,b ,4\n b, a,6\n", ["a", "b"]),
    "truth as it is written": (H + "True,x,3\nTRUE,x,4\ntrue,x,5\n", ["TRUE", "True", "true", "x"]),
    "a word for nothing among names": (H + "NA,b,3\na,null,4\n", ["NA", "a", "b", "null"]),
    "quoted numbers": (H + '"5","1",3\n5,1,4\n', ["1", "5"]),
    "hexadecimal": (H + "0x10,16,3\n16,0x10,4\n", ["0x10", "16"]),
    "decimals without a fraction": (H + "5.0,1,3\n5,1,4\n", ["1", "5"]),
}


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("packed", [False, True])
def test_ids_are_not_changed(tmp_path: Path, name: str, packed: bool) -> None:
    text, expected = READ[name]
    data = gzip.compress(text.encode()) if packed else text.encode()
    found = events_of(tmp_path / ("e.csv.gz" if packed else "e.csv"), data)
    assert sorted(ids(found)) == sorted(expected)
    assert len(found) == text.count("\n") - 1


def test_integer_times_stay_exact_with_missing_values(tmp_path: Path) -> None:
    whole = [1_700_000_000_123_456_789, 1_700_000_000_123_456_791]
    text = f"{H}1,2,{whole[0]}\n2,1,\n1,2,{whole[1]}\n"
    assert events_of(tmp_path / "e.csv", text, drop_missing_time=True).t.tolist() == whole
    table = pa.table(
        {"src": [1, 2, 1], "dst": [2, 1, 2], "t": [whole[0], None, whole[1]], "label": [2**60 + 1, None, 1]}
    )
    pq.write_table(table, tmp_path / "e.parquet")
    found = read_events(tmp_path / "e.parquet", drop_missing_time=True)
    assert found.t.tolist() == whole
    assert found.labels is not None
    assert found.labels.tolist() == [2**60 + 1, 1]


def test_integer_classes_stay_exact_with_missing_values_and_minus_one(tmp_path: Path) -> None:
    columns = {"src": [1, 2, 1], "dst": [2, 1, 2], "t": [1, 2, 3]}
    pq.write_table(pa.table({**columns, "label": [2**60 + 1, None, 2**60]}), tmp_path / "gap.parquet")
    assert read_events(tmp_path / "gap.parquet").labels.tolist() == [2**60 + 1, -1, 2**60]
    pq.write_table(pa.table({**columns, "label": [2**60 + 1, -1, 2**60]}), tmp_path / "minus.parquet")
    found = read_events(tmp_path / "minus.parquet", unlabeled_value="none")
    assert found.class_names == ("-1", str(2**60), str(2**60 + 1))


def test_booleans_with_missing_values_are_numbered_as_without(tmp_path: Path) -> None:
    head = H[:-1] + ",label\n"
    found = events_of(tmp_path / "e.csv", head + "1,2,3,True\n2,1,4,\n1,2,5,False\n1,2,6,True\n")
    assert found.labels is not None
    assert found.labels.tolist() == [1, -1, 0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source,target\n1,2\nsource,target\n2,1\n", r"row 1 \(line 3\) is the line of names once more"),
        (
            "source,target\n1,2\n# a note, by hand\n2,1\n",
            "'# a note'.*column 'source', row 1",
        ),
        ("source,target\n1e3,2\n1000,2\n", "exponent"),
        ('{"source":1,"target":2}\n', "JSON, not a table"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "Git LFS"),
        ("%PDF-1.4\n1 0 obj\n", "for printing"),
        ("INSERT INTO e VALUES (1,2);\nINSERT INTO e VALUES (2,1);\n", "SQL"),
    ],
)
def test_ambiguous_edge_tables_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "g.csv").write_text(text)
    with pytest.raises(HopstateError, match=message):
        read_graph(tmp_path / "g.csv")


@pytest.mark.parametrize("table", ["source,target\n#a,#b\n#b,#c\n", "source,target\nsource,b\nb,c\n"])
def test_ids_that_look_like_comments_or_headers_are_read(tmp_path: Path, table: str) -> None:
    (tmp_path / "g.csv").write_text(table)
    assert read_graph(tmp_path / "g.csv").num_nodes == 3


def labelled(folder: Path, labels: list[str], **options: Any) -> Any:
    count = range(len(labels))
    (folder / "g.csv").write_text("source,target\n" + "".join(f"{i},{(i + 1) % len(labels)}\n" for i in count))
    (folder / "l.csv").write_text("id,label\n" + "".join(f"{i},{label}\n" for i, label in zip(count, labels)))
    return read_graph(folder / "g.csv", labels=folder / "l.csv", **options)


def test_a_word_for_missing_is_not_a_class_by_default(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'NA' in 1 rows, the first row 1 \(line 3\).*--read.unlabeled_value NA"):
        labelled(tmp_path, ["a", "NA", "b"])
    assert labelled(tmp_path, ["a", "NA", "b"], unlabeled_value="NA").y.tolist() == [0, -1, 1]
    assert labelled(tmp_path, ["a", "NA", "b"], unlabeled_value="none").class_names == ("NA", "a", "b")
    numbers = labelled(tmp_path, ["0", "NA", "10", "2"], unlabeled_value="NA")
    assert numbers.class_names == ("0", "2", "10")
    amounts = labelled(tmp_path, ["0.5", "NA", "10", "2"], unlabeled_value="NA")
    np.testing.assert_array_equal(amounts.y, np.array([0.5, np.nan, 10, 2], np.float32))


def test_classes_do_not_merge(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"beyond 2\^53"):
        labelled(tmp_path, ["9007199254740993", "9007199254740992", "2"])
    assert labelled(tmp_path, ["01", "1", "2"]).class_names == ("01", "1", "2")


# ---- arrays, records, notes ------------------------------------------------------------------------------------
BAD = {
    "node_labels": [np.array([2**64 - 1, 0, 1], np.uint64), np.array([np.inf, 0.5, 1])],
    "edges": [np.array([[0, 2**63 + 1]], np.uint64)],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in BAD.items() for value in values])
def test_numbers_do_not_wrap(tmp_path: Path, key: str, value: np.ndarray) -> None:
    good = {"node_features": np.eye(3), "node_labels": np.array([0, 1, 0]), "edges": np.array([[0, 1]])}
    np.savez(tmp_path / "g.npz", **{**good, key: value})
    with pytest.raises(DataError, match=r"2\^63|is inf"):
        read_graph(tmp_path / "g.npz")
    with pytest.raises(DataError, match=r"2\^63"):
        EventStream.from_arrays(np.array([2**63 + 1], np.uint64), np.array([1]), np.array([1]))
    with pytest.raises(DataError, match=r"2\^63"):
        Vocabulary(np.array([2**63 + 1], np.uint64))


def test_byte_order_and_width_do_not_change_numbers(tmp_path: Path) -> None:
    x, edges = np.arange(12.0).reshape(4, 3), np.array([[0, 1], [1, 2], [2, 3]])
    y = np.array([0, 1, 0, 1])
    for order, number in ((">f8", ">i4"), ("<f2", "<u8"), ("<f4", "<i2")):
        np.savez(tmp_path / "g.npz", node_features=np.asfortranarray(x.astype(order)), node_labels=y.astype(number),
                 edges=edges.astype(number))  # fmt: skip
        found = read_graph(tmp_path / "g.npz", undirected=False)
        assert found.x is not None
        assert found.y is not None
        assert found.x.tolist() == x.tolist()
        assert found.y.tolist() == y.tolist()
        assert found.indices.tolist() == [1, 2, 3]


def test_an_array_without_elements_claims_no_size(tmp_path: Path) -> None:
    head = {"descr": "<f4", "fortran_order": False, "shape": (2**31, 10**12, 0)}
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, head)
    with pytest.raises(FormatError, match=r"x\.npy"):
        load_npy(tmp_path / "x.npy")


def test_a_repeated_settings_key_is_rejected() -> None:
    with pytest.raises(FormatError, match="'method'"):
        parse_json('{"method": "mlp", "method": "gcn"}', "config.json")
    assert parse_json('{"a": {"b": 1}, "b": 2}', "x") == {"a": {"b": 1}, "b": 2}


def test_missing_times_are_missing_in_a_saved_stream_too() -> None:
    with pytest.raises(DataError, match="time of event 0 is"):
        EventStream(src=np.array([0]), dst=np.array([1]), t=np.array([np.iinfo(np.int64).min]))


def test_many_nodes_of_few_events_are_read_on_request(tmp_path: Path) -> None:
    name = "few"
    few = EventStream(src=np.array([1, 2]), dst=np.array([3, 4]), t=np.array([1, 2]), num_nodes=5_000_000)
    few.save(tmp_path / name)
    with pytest.raises(DataError, match=r"--read\.num_nodes 5000000"):
        read_events(tmp_path / name)
    assert read_events(tmp_path / name, num_nodes=5_000_000).num_nodes == 5_000_000
    (tmp_path / "ml_x.csv").write_text(",u,i,ts,label,idx\n0,1,5000000,3,0,1\n")
    with pytest.raises(DataError, match=r"--read\.num_nodes 5000000"):
        read_events(tmp_path / "ml_x.csv")


def test_parquet_columns_keep_their_types(tmp_path: Path) -> None:
    def read(**columns: Any) -> EventStream:
        made = {"src": [7, 9], "dst": [9, 7], "t": [3, 4]} | columns
        pq.write_table(pa.table(made), tmp_path / "e.parquet")
        return read_events(tmp_path / "e.parquet")

    wrong: list[Callable[[], Any]] = [
        lambda: read(src=["a", ""]), lambda: read(src=["a", " "]), lambda: read(src=[1, None]),
        lambda: read(src=pa.array([2**63 + 1, 1], pa.uint64())), lambda: read(t=pa.array([2**63 + 1, 1], pa.uint64())),
        lambda: read(t=pa.array([5, 6], pa.duration("s"))), lambda: read(t=pa.array([253370764800, 4], pa.timestamp("s"))),
        lambda: read(feat_0=[[1.0], [2.0]]), lambda: read(src=[Decimal("1.50"), Decimal("2.00")]),
    ]  # fmt: skip
    for make in wrong:
        with pytest.raises(HopstateError, match=r"e\.parquet"):
            make()
    assert ids(read(src=pa.array([7, 9]).dictionary_encode())) == ["7", "9"]
    stamps = pa.array([1_700_000_000_123_456_789, 1_700_000_000_123_456_790], pa.timestamp("ns", "Europe/Berlin"))
    assert read(t=stamps).t.tolist() == [1_700_000_000_123_456_789, 1_700_000_000_123_456_790]
    assert read(label=pa.nulls(2)).labels.tolist() == [-1, -1]  # type: ignore[union-attr]
    assert ids(read(src=["007", "7"], dst=["7", "007"])) == ["007", "7"]
    assert ids(read(src=[Decimal("1.00"), Decimal("2.00")], dst=[2, 1])) == ["1", "2"]


def test_decreasing_matrix_parts_are_rejected(tmp_path: Path) -> None:
    parts = {"data": np.ones(4, np.float32), "indices": np.array([0, 1, 0, 1]), "shape": np.array([2, 2])}
    good = parts | {"indptr": np.array([0, 2, 4])}
    for bad in ({"indptr": np.array([0, 4, 0])}, {"indptr": np.array([0, 2, 3])}, {"data": np.ones(3)}):
        for where in ("adj", "attr"):
            arrays = {f"{name}_{key}": value for name in ("adj", "attr") for key, value in good.items()}
            arrays |= {f"{where}_{key}": value for key, value in bad.items()}
            np.savez(tmp_path / "g.npz", **arrays)
            with pytest.raises(DataError, match=rf"g\.npz: .*{where}_indptr"):
                read_graph(tmp_path / "g.npz")


def test_statistics_of_parquet_columns_are_not_read(tmp_path: Path) -> None:
    """Damaged statistics crash pyarrow's process."""
    source = (Path(ids_of.__code__.co_filename).parent / "tables.py").read_text("utf-8")
    reader = source[source.index("def _read_arrow") :]
    assert ".column(" not in reader[: reader.index("\n\n\n")]


STAMP = 1704067200000000001
MIXED = {
    "a fraction below whole stamps": (f"1,2,{STAMP}\n1,2,{STAMP + 1}\n1,2,{STAMP + 2}.5\n", rf"'{STAMP}'.*row 0"),
    "a fraction above whole stamps": (f"1,2,0.5\n1,2,{2**53 + 1}\n", rf"'{2**53 + 1}'.*row 1"),
    "a gap": (f"1,2,NULL\n1,2,0.5\n1,2,{2**53 + 1}\n", rf"'{2**53 + 1}'.*row 2"),
    "a sign": (f"1,2,0.5\n1,2,-{2**53 + 1}\n", rf"'-{2**53 + 1}'.*row 1"),
    "the end of int64": (f"1,2,3\n1,2,{2**63 - 1}\n", rf"'{2**63 - 1}'.*row 1"),
    "beyond every clock": ("1,2,3\n1,2,1e300\n", r"2\^63.*'1e\+?300'.*row 1"),
    "below every clock": ("1,2,3\n1,2,-1e19\n", r"2\^63.*'-1e\+?19'.*row 1"),
    "the last of dates": ("1,2,2020-01-01\n1,2,2262-04-11T23:47:16.854775807\n", "beyond.*row 1"),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("how", ["table", "dyglib", "jodie"])
def test_times_that_would_merge_or_overflow_are_rejected(tmp_path: Path, name: str, how: str) -> None:
    rows, message = MIXED[name]
    if how != "table" and ("gap" in name or "dates" in name):
        pytest.skip("these have neither gaps nor dates")
    times = [row.split(",")[2] for row in rows.splitlines()]
    path = tmp_path / {"table": "e.csv", "dyglib": "ml_e.csv", "jodie": "e.csv"}[how]
    if how == "dyglib":
        rows = ",u,i,ts,label,idx\n" + "".join(f"{i},1,2,{t},0,{i}\n" for i, t in enumerate(times))
    elif how == "jodie":
        head = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
        rows = head + "".join(f"1,2,{t},0,0.1\n" for t in times)
    with pytest.raises(DataError, match=message):
        events_of(path, rows if how != "table" else H + rows, **({"drop_missing_time": True} if "gap" in name else {}))


def test_times_that_floats_represent_are_read(tmp_path: Path) -> None:
    found = events_of(tmp_path / "e.csv", f"{H}1,2,0.5\n1,2,{2**53 + 2}\n1,2,1.704067200123457e+18\n")
    assert found.t.tolist() == [0.5, float(2**53 + 2), 1.704067200123457e18]
    stamps = events_of(tmp_path / "e.csv", f"{H}1,2,{STAMP}\n1,2,{STAMP + 1}\n1,2,{2**63 - 2}\n")
    assert stamps.t.tolist() == [STAMP, STAMP + 1, 2**63 - 2]


def test_arrays_of_extreme_times_are_rejected() -> None:
    for t in (np.array([3, 2**63 - 1]), np.array([3.0, 1e300]), np.array([3.0, 2.0**63])):
        with pytest.raises(DataError, match="row 1"):
            EventStream.from_arrays(np.array([1, 2]), np.array([2, 1]), t)
        with pytest.raises(DataError, match="event 1"):
            EventStream(src=np.array([1, 2]), dst=np.array([2, 1]), t=t)


@pytest.mark.parametrize("name", ["h.parquet", "h.pq", "h.csv.gz", "h.tsv.gz"])
def test_files_whose_content_differs_from_their_suffix_are_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("not parquet\n")
    message = rf"{name} begins with b'not ', .* (Parquet|gzip)"
    with pytest.raises(FormatError, match=message):
        read_graph(tmp_path / name)
    with pytest.raises(FormatError, match=message):
        read_events(tmp_path / name)
    (tmp_path / "g.csv").write_text("source,target\n0,1\n")
    with pytest.raises(FormatError, match=message):
        read_graph(tmp_path / "g.csv", labels=tmp_path / name)


def test_ids_of_labels_in_no_edge_are_named(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("source,target\na,b\nb,c\nc,d\n")
    (tmp_path / "l.csv").write_text("id,label\nA,0\nB,1\na1,1\na,0\n")
    found = read_graph(tmp_path / "g.csv", labels=tmp_path / "l.csv")
    assert found.num_nodes == 7
    assert any(
        "3 of 4 ids of labels are in no edge" in note and "'A'" in note and "'a'" in note for note in found.notes
    )
    (tmp_path / "l.csv").write_text("id,label\na,0\nd,1\n")
    assert not any("in no edge" in note for note in read_graph(tmp_path / "g.csv", labels=tmp_path / "l.csv").notes)


def test_a_failed_import_is_not_reported_as_damage() -> None:
    with pytest.raises(MissingExtraError, match="no_such_package_anywhere") as found, reading("config.json"):
        exec("import no_such_package_anywhere")
    assert "damaged" not in str(found.value)


def test_another_unicode_form_of_an_id_is_suggested() -> None:
    composed, apart = "Ren\u00e9", "Rene\u0301"
    for known, query in ((composed, apart), (apart, composed), ("\u00e9", "e\u0301")):
        names = Vocabulary(np.array([known, "Rene", "Renate"]))
        with pytest.raises(DataError, match="another Unicode form") as error:
            names.row(query)
        assert repr(known) in str(error.value)


TABLE = {"src": [1, 2], "dst": [2, 1], "t": [3, 4]}
ODD_OBJECTS: dict[str, Callable[[], Any]] = {
    "columns of unequal length": lambda: TABLE | {"dst": [2]},
    "single values": lambda: {"src": 1, "dst": 2, "t": 3},
    "a column of columns": lambda: TABLE | {"t": np.array([[3], [4]])},
    "a sparse column": lambda: pd.DataFrame(TABLE | {"t": pd.arrays.SparseArray([3, 4])}),
    "complex features": lambda: temporal_data(msg=torch.ones(2, 1, dtype=torch.cfloat)),
    "times that are booleans": lambda: temporal_data(t=torch.tensor([True, False])),
    "rows far beyond the events": lambda: temporal_data(src=torch.tensor([0, 10**15])),
}


def temporal_data(**changed: torch.Tensor) -> TemporalData:
    return TemporalData(**{key: torch.tensor(column) for key, column in TABLE.items()} | changed)


@pytest.mark.parametrize("name", ODD_OBJECTS)
def test_odd_objects_in_memory_are_rejected_by_name(name: str) -> None:
    with pytest.raises(HopstateError):
        read_events(ODD_OBJECTS[name]())


ODD_GRAPHS = {
    "edges of another shape": {"edge_index": torch.zeros(3, 2, dtype=torch.long)},
    "no edges": {"edge_index": None},
    "features of another width": {"x": torch.ones(2, 3)},
    "no features": {"x": None, "num_nodes": 2},
    "no label": {"y": None},
    "an end beyond its nodes": {"edge_index": torch.tensor([[0], [3]])},
}


@pytest.mark.parametrize("name", ODD_GRAPHS)
def test_inconsistent_graphs_of_a_set_are_rejected(name: str) -> None:
    plain = {"x": torch.eye(2), "edge_index": torch.tensor([[0], [1]]), "y": torch.tensor([0])}
    with pytest.raises(DataError):
        GraphSet.from_pyg([Data(**plain), Data(**plain | ODD_GRAPHS[name]), Data(**plain)])


def test_huge_empty_and_complex_adjacencies_are_rejected() -> None:
    with pytest.raises(DataError, match="nodes for 1 edges"):
        read_graph(scipy.sparse.coo_array(([1], ([0], [1])), shape=(10**12, 10**12)))
    with pytest.raises(DataError, match="complex"):
        read_graph(scipy.sparse.csr_array(np.array([[0, 1j], [1, 0]])))


@pytest.mark.parametrize("option", ["task", "multilabel"])
def test_label_options_are_checked_without_labels(tmp_path: Path, option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        events_of(tmp_path / "e.csv", H + "1,2,3\n", **{option: "x"})
