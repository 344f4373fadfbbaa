"""Readers and writers of event streams: every format, every error named."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import TemporalData

from hopstate.data.events import EventStream
from hopstate.data.prepare import prepare
from hopstate.data.readers.read_events import read_events
from hopstate.data.store import load_events
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import (
    ConfigError,
    DataError,
    FormatError,
    HopstateError,
    HopstateWarning,
    MissingExtraError,
    MissingFileError,
    StorageError,
)

CSV = "src,dst,t,label,feat_0,feat_1,note\n10,20,5,1,0.5,1,a\n20,30,5,0,1.5,2,b\n10,30,9,1,2.5,3,c\n"


def write(tmp_path, text, name="events.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def full_stream(**changes) -> EventStream:
    fields = {
        "src": np.array([0, 1, 2, 0]),
        "dst": np.array([1, 2, 0, 1]),
        "t": np.array([1, 1, 4, 2**60 + 1]),
        "kind": np.array([0, 0, 0, 1], np.int8),
        "edge_attr": np.arange(8, dtype=np.float32).reshape(4, 2),
        "labels": np.array([0, 1, 0, 1]),
        "num_nodes": 3,
        "time_unit": "s",
        "name": "made",
    }
    return EventStream(**{**fields, **changes})


def assert_same(a: EventStream, b: EventStream) -> None:
    assert a.content_hash == b.content_hash
    assert (a.name, a.time_unit, a.num_nodes) == (b.name, b.time_unit, b.num_nodes)


def test_a_csv_with_usual_column_names(tmp_path):
    stream = read_events(write(tmp_path, CSV))
    assert stream.src.tolist() == [0, 1, 0]
    assert stream.dst.tolist() == [1, 2, 2]
    assert stream.node_ids.ids.tolist() == [10, 20, 30]
    assert (stream.t.dtype, stream.t.tolist(), stream.labels.tolist()) == (np.int64, [5, 5, 9], [1, 0, 1])
    np.testing.assert_array_equal(stream.edge_attr, [[0.5, 1], [1.5, 2], [2.5, 3]])
    assert stream.name == "events"


def test_a_compressed_csv_parquet_and_pandas_give_the_same_events(tmp_path):
    plain = read_events(write(tmp_path, CSV))
    with gzip.open(tmp_path / "packed.csv.gz", "wt") as file:
        file.write(CSV)
    frame = pd.read_csv(tmp_path / "events.csv")
    frame.to_parquet(tmp_path / "events.parquet")
    for source in (tmp_path / "packed.csv.gz", tmp_path / "events.parquet", frame):
        assert read_events(source).content_hash == plain.content_hash


def test_given_columns_are_used_and_strings_are_ids(tmp_path):
    path = write(tmp_path, "who,whom,when,size\nann,bob,1.5,3\nbob,cy,2.5,4\n")
    stream = read_events(
        path, source_column="who", target_column="whom", time_column="when", edge_columns=["size"], time_unit="h"
    )
    assert stream.node_ids.ids.tolist() == ["ann", "bob", "cy"]
    assert (stream.t.dtype, stream.time_unit, stream.edge_attr.tolist()) == (np.float64, "h", [[3], [4]])


def test_dates_become_integers_in_the_coarsest_unit_that_is_exact(tmp_path):
    path = write(tmp_path, "src,dst,time\n0,1,2024-03-01T00:00:00\n1,0,2024-03-01T00:00:01\n")
    stream = read_events(path)
    assert (stream.t.tolist(), stream.time_unit) == ([1709251200, 1709251201], "s")
    path = write(tmp_path, "src,dst,time\n0,1,2024-03-01T00:00:00\n1,0,2024-03-01T00:00:01.25\n")
    assert read_events(path).time_unit == "ms"


def test_unsorted_events_are_sorted_stably_with_a_warning(tmp_path):
    path = write(tmp_path, "src,dst,t\n0,1,9\n1,2,3\n2,3,9\n3,0,3\n")
    with pytest.warns(HopstateWarning, match="row 1") as warned:
        stream = read_events(path)
    assert str(warned[0].message).startswith(f"{path.stem}: ")  # without the folders, which a run stores
    assert (stream.src.tolist(), stream.t.tolist()) == ([1, 3, 0, 2], [3, 3, 9, 9])


def test_integer_times_above_2_to_the_53_are_kept(tmp_path):
    stream = read_events(write(tmp_path, f"src,dst,t\n0,1,{2**60 + 1}\n"))
    assert stream.t.tolist() == [2**60 + 1]


def test_snap_text_without_a_header(tmp_path):
    path = write(tmp_path, "# comment\n1 2 100\n3 4 200\n5 2 300\n", "CollegeMsg.txt")
    stream = read_events(path)
    assert stream.node_ids.ids.tolist() == [1, 2, 3, 4, 5]
    assert stream.t.tolist() == [100, 200, 300]


def test_jodie(tmp_path):
    header = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features"
    text = f"{header}\n0,7,0.0,0,0.1,0.2\n3,7,36.0,1,0.3,0.4\n"
    stream = read_events(write(tmp_path, text, "wikipedia.csv"))
    assert stream.node_ids.ids.tolist() == ["u0", "u3", "i7"]
    assert (stream.src.tolist(), stream.dst.tolist(), stream.labels.tolist()) == ([0, 1], [2, 2], [0, 1])
    np.testing.assert_array_equal(stream.edge_attr, np.float32([[0.1, 0.2], [0.3, 0.4]]))
    assert stream.is_bipartite
    with pytest.raises(FormatError, match="JODIE"):
        read_events(write(tmp_path, "user_id,item_id,timestamp,state_label,x\n0,1,2,a\n", "bad.csv"))


def dyglib(tmp_path, rows=4, nodes=4):
    write(tmp_path, ",u,i,ts,label,idx\n0,1,2,0.0,0,1\n1,3,2,1.0,1,2\n2,1,3,1.0,0,3\n", "ml_made.csv")
    np.save(tmp_path / "ml_made.npy", np.arange(rows * 2).reshape(rows, 2))
    np.save(tmp_path / "ml_made_node.npy", np.zeros((nodes, 5), np.int8))
    return tmp_path / "ml_made.csv"


def test_dyglib_triple(tmp_path):
    path = dyglib(tmp_path)
    for source in (path, tmp_path):
        stream = read_events(source)
        assert (stream.src.tolist(), stream.dst.tolist()) == ([0, 2, 0], [1, 1, 2])
        assert (stream.num_nodes, stream.node_ids.ids.tolist(), stream.name) == (3, [1, 2, 3], "made")
        assert stream.edge_attr.tolist() == [[2, 3], [4, 5], [6, 7]]
        assert stream.has_edge_features
        assert not stream.has_node_features
    with pytest.raises(DataError, match="idx"):
        read_events(dyglib(tmp_path, rows=3))
    with pytest.raises(DataError):
        read_events(dyglib(tmp_path, nodes=3))
    (tmp_path / "ml_made.npy").write_bytes(b"nothing")
    with pytest.raises(FormatError):
        read_events(path)


@pytest.mark.slow
@pytest.mark.shared
def test_real_files_have_the_stated_sizes(shared):
    uci = read_events(shared / "data/temporal/uci")
    assert (len(uci), uci.num_nodes, uci.t.dtype) == (59_835, 1_899, np.int64)
    assert not uci.has_edge_features
    assert not uci.has_node_features
    enron = read_events(shared / "data/temporal/enron")
    assert (len(enron), enron.num_nodes, enron.edge_attr.shape[1], enron.has_edge_features) == (125_235, 184, 32, False)
    snap = read_events(shared / "data/temporal/collegemsg/CollegeMsg.txt", time_unit="s")
    assert (len(snap), snap.num_nodes) == (59_835, 1_899)
    np.testing.assert_array_equal(snap.t - snap.t[0], uci.t)  # the same messages


def test_temporal_data_round_trip():
    data = TemporalData(
        src=torch.tensor([0, 1]), dst=torch.tensor([2, 2]), t=torch.tensor([3, 4]), msg=torch.tensor([[0.5], [1.5]])
    )
    stream = read_events(data)
    assert (stream.num_nodes, stream.edge_attr.tolist()) == (3, [[0.5], [1.5]])
    back = stream.to_pyg()
    for name in ("src", "dst", "t", "msg"):
        assert torch.equal(back[name], data[name])
    assert stream.with_(edge_attr=None).to_pyg().msg.shape == (2, 0)


@pytest.mark.parametrize("ids", [None, Vocabulary(np.array([7, 3, 9])), Vocabulary(np.array(["b", "a", "x"]))])
def test_a_folder_round_trip(tmp_path, ids):
    stream = full_stream(node_ids=ids, num_nodes=3 if ids is not None else 5)
    stream.save(tmp_path / "made")
    assert_same(read_events(tmp_path / "made"), stream)


def test_a_memory_mapped_folder_round_trip(tmp_path):
    stream = full_stream(x=np.ones((3, 2), np.float32), node_ids=Vocabulary(np.array(["b", "a", "x"])))
    stream.save(tmp_path / "made")
    mapped = read_events(tmp_path / "made")
    assert_same(mapped, stream)
    assert isinstance(mapped.src, np.memmap)
    assert isinstance(mapped.slice(1, 3).t.base, np.memmap)
    stream.slice(1, 3).save(tmp_path / "made")  # replaces the earlier one
    part = load_events(tmp_path / "made", mmap=False)
    assert (len(part), part.first_id) == (2, 1)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("mine")
    with pytest.raises(StorageError):
        stream.save(tmp_path / "other")
    assert (tmp_path / "other/file").read_text() == "mine"
    (tmp_path / "made/t.npy").write_bytes((tmp_path / "made/t.npy").read_bytes()[:-4])
    with pytest.raises(FormatError):
        load_events(tmp_path / "made")


def test_event_kinds_in_words_numbers_and_signs(tmp_path):
    for values in (("add", "delete"), ("0", "1"), ("1", "-1"), ("+", "-")):
        path = write(tmp_path, f"src,dst,t,kind\n0,1,1,{values[0]}\n0,1,2,{values[1]}\n")
        assert read_events(path, kind_column="kind").kind.tolist() == [0, 1]
    with pytest.raises(DataError, match="perhaps"):
        read_events(write(tmp_path, "src,dst,t,kind\n0,1,1,add\n0,1,1,perhaps\n"))


def test_a_deletion_requires_an_active_edge(tmp_path):
    good = "src,dst,t,kind\n0,1,1,add\n0,1,2,add\n0,1,3,delete\n0,1,3,delete\n0,1,4,add\n0,1,5,delete\n"
    assert len(read_events(write(tmp_path, good))) == 6
    for bad, event in (
        ("0,1,1,add\n1,0,2,delete", 1),
        ("0,1,1,delete\n0,1,2,add", 0),
        ("0,1,1,add\n0,1,2,delete\n0,1,3,delete", 2),
    ):
        path = write(tmp_path, f"src,dst,t,kind\n{bad}\n")
        with pytest.raises(DataError, match=f"event {event}"):
            read_events(path)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("src,dst,t\n0,1,5\n0,-3,6\n", "-3.*dst.*row 1"),
        ("src,dst,t\n0,1,\n", "'t'"),
        ("src,dst,t\n0,1,inf\n", "row 0"),
        ("src,dst,t\n0,,1\n", "dst"),
        ("src,dst,t\n0,1,soon\n", ""),
        ("src,dst,t\n0,1,11/26/2026\n", "11/26/2026"),
        ("src,dst,t\n0,1,\n0,1,3.4.26 12:00\n0,2,4.4.26\n", "3.4.26 12:00.*row 1"),
        ("src,dst,t\n0,1,03-04-2024\n0,1,soon\n", "03-04-2024.*row 0"),
        ("src,dst,t\n0,1,1/2\n0,1,10.0.0.1\n", ""),
        ("src,dst,t\n0,1,5\n0,1,nan\n", "nan.*row 1"),
        ("src,dst,t\n0,1,2024-03-01\n0,1,soon\n", "soon.*row 1"),
        ("src,dst,tiem\n0,1,2\n", "time_column.*tiem"),
        ("src,dest,t\n0,1,2\n", "target_column.*dest"),
        ("src,dst,t,feat_0\n0,1,2,x\n0,1,3,5\n0,1,4,6\n", "feat_0.*row 0"),
        ("src,dst,t\n", ""),
    ],
)
def test_errors_of_a_table_are_named(tmp_path, text, named):
    with pytest.raises(DataError, match=f"(?s){named}"):
        read_events(write(tmp_path, text))


def test_options_apply_to_every_source_or_are_rejected(tmp_path):
    stream = full_stream()
    stream.save(tmp_path / "folder")
    jodie = tmp_path / "jodie.csv"
    jodie.write_text("user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n0,0,1,0,0.5\n")
    for source in (tmp_path / "folder", stream, jodie):
        assert read_events(source, time_unit="ms").time_unit == "ms"
        with pytest.raises(ConfigError, match="source_column"):
            read_events(source, source_column="u")


def test_features_that_do_not_match_are_named(tmp_path):
    path = write(tmp_path, "src,dst,t\n0,1,5\n1,2,6\n")
    with pytest.raises(DataError):
        read_events(path, features=np.zeros((2, 4)))
    np.save(tmp_path / "x.npy", np.zeros((3, 4)))
    assert read_events(path, features=tmp_path / "x.npy").x.shape == (3, 4)
    with pytest.raises(DataError, match="row 1"):
        read_events(path, num_nodes=2)


def test_sources_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(MissingFileError):
        read_events(tmp_path / "none.csv")
    with pytest.raises(FormatError):
        read_events(tmp_path)
    (tmp_path / "noise.bin").write_bytes(bytes(range(256)))
    with pytest.raises(FormatError):
        read_events(tmp_path / "noise.bin")
    with pytest.raises(FormatError):
        read_events(write(tmp_path, ""))
    with pytest.raises(FormatError):
        read_events([1, 2])
    with pytest.raises(ConfigError, match="jodie"):
        read_events(write(tmp_path, CSV), format="jodi")
    with pytest.raises(FormatError, match="folder"):
        full_stream().save(tmp_path / "a.csv")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and nothing")
    with pytest.raises(FormatError):
        read_events(tmp_path / "cut.parquet")


def test_tgb_names_the_missing_package(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tgb", None)
    with pytest.raises(MissingExtraError, match="py-tgb"):
        read_events("tgb:tgbl-wiki")


def test_unused_numeric_columns_have_a_note(tmp_path):
    path = write(tmp_path, "src,dst,t,f0,amount,note\n0,1,1,5,2.5,a\n1,0,2,6,3.5,b\n")
    events = read_events(path)
    assert events.edge_attr.tolist() == [[5], [6]]
    assert any("amount" in note and "edge_columns" in note for note in events.notes)
    assert read_events(path, edge_columns=["f0", "amount"]).edge_attr.tolist() == [[5, 2.5], [6, 3.5]]
    assert read_events(path, edge_columns=[]).edge_attr is None


def test_options_that_do_not_apply_to_a_table_are_rejected(tmp_path):
    path = write(tmp_path, "src,dst,t\n0,1,1\n1,0,2\n")
    full_stream().save(tmp_path / "made")
    for source in (path, pd.read_csv(path)):
        with pytest.raises(ConfigError, match="time_colum"):
            read_events(source, time_colum="t")
        with pytest.raises(ConfigError, match="src"):
            read_events(source, src="t")
    with pytest.raises(ConfigError, match="edge_attr"):
        read_events(dyglib(tmp_path), edge_attr=np.zeros((3, 1)))
    assert read_events(tmp_path / "made", time_unit="ms", num_nodes=7).num_nodes == 7


def test_dates_are_counted_in_the_requested_unit(tmp_path):
    path = write(tmp_path, "src,dst,time\n0,1,2024-03-01T00:00:00\n1,0,2024-03-01T00:00:01.25\n")
    stream = read_events(path, time_unit="us")
    assert (stream.t.tolist(), stream.time_unit) == ([1709251200_000000, 1709251201_250000], "us")
    with pytest.raises(DataError, match="time_unit"):
        read_events(path, time_unit="s")
    with pytest.raises(ConfigError, match="h"):
        read_events(path, time_unit="h")


@pytest.mark.parametrize(("sign", "name"), [("|", "|"), ("\t", "tab"), (" ", "space"), (":", ":")])
def test_a_given_separator_is_used(sign: str, name: str, tmp_path: Path) -> None:
    rows = [["source", "target", "time"], ["a;b", "c,d", "3"], ["c,d", "e", "4"]]
    path = tmp_path / "e.txt"
    path.write_text("\n".join(sign.join(row) for row in rows) + "\n")
    prepare(path, tmp_path / "store", separator=name)
    for stream in (read_events(path, separator=name), read_events(tmp_path / "store")):
        assert stream.node_ids.ids.tolist() == ["a;b", "c,d", "e"]
        assert stream.t.tolist() == [3, 4]
    for wrong in ("", "ab", "x", '"'):
        with pytest.raises(ConfigError, match="separator"):
            read_events(path, separator=wrong)


def test_dates_in_a_given_format_equal_iso_dates(tmp_path: Path) -> None:
    times = ["03.02.2026 14:05", "31.12.2026 00:00", "01.01.2027 23:59"]
    local = pd.DataFrame({"source": ["a", "b", "a"], "target": ["b", "c", "c"], "time": times})
    iso = local.assign(time=[f"{t[6:10]}-{t[3:5]}-{t[:2]}T{t[11:]}" for t in times])
    local.to_csv(tmp_path / "e.csv", index=False)
    prepare(tmp_path / "e.csv", tmp_path / "store", time_format="%d.%m.%Y %H:%M")
    for source in (local, tmp_path / "e.csv"):
        with pytest.raises(DataError, match="time_format"):
            read_events(source)
        stream = read_events(source, time_format="%d.%m.%Y %H:%M")
        for other in (read_events(iso), read_events(tmp_path / "store")):
            assert (stream.t.tolist(), stream.time_unit) == (other.t.tolist(), other.time_unit)
    for wrong in ("%Q", "%Y-%m-%d"):
        with pytest.raises(HopstateError, match="time"):
            read_events(local, time_format=wrong)
