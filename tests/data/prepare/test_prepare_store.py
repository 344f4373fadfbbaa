"""A prepared table equals the table read in memory, for any chunks and memory limit, and after a kill."""

import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb", reason="prepare needs the extra prepare")
pytest.importorskip("ibis", reason="prepare needs the extra prepare")

from hopstate.data.dates import AMBIGUOUS_DATE
from hopstate.data.prepare import prepare
from hopstate.data.readers.read_events import read_events
from hopstate.data.store import load_events
from hopstate.errors import ConfigError, DataError, FormatError, MissingExtraError, StorageError

pytestmark = pytest.mark.filterwarnings("ignore::hopstate.errors.HopstateWarning")
FIELDS = ("src", "dst", "t", "labels", "edge_attr")


def same(one, other):
    for name in FIELDS:
        mine, theirs = getattr(one, name), getattr(other, name)
        assert (mine is None) == (theirs is None), name
        if mine is not None:
            assert mine.dtype == theirs.dtype, name
            np.testing.assert_array_equal(mine, theirs, name)
    for name in ("num_nodes", "time_unit", "dates", "class_names"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.content_hash == other.content_hash


def frame(n=400, seed=0):
    r = np.random.default_rng(seed)
    columns = {"source": [f"n{k}" for k in r.integers(0, 50, n)], "target": [f"ü{k}" for k in r.integers(0, 50, n)]}
    columns |= {"time": r.integers(0, 90, n), "label": r.choice(["good", "bad", "odd"], n)}
    return pd.DataFrame(columns | {"feat_0": r.normal(size=n), "feat_1": r.integers(0, 5, n)})


ids = st.one_of(
    st.integers(0, 30).map(str), st.sampled_from(["007", "+5", "5.0", "a b", " x", "NA", "é", "zz", "𝔘", "n1", "-"])
)
whole = st.integers(0, 12).map(str) | st.sampled_from(["+5", "5.0", "900000000000"])
times = st.one_of(
    st.lists(st.integers(-5, 9).map(str), min_size=30, max_size=30),
    st.lists(st.sampled_from(["0.5", "1", "2e3", "-1.25"]), min_size=30, max_size=30),
    st.lists(
        st.sampled_from(["2024-03-01", "2024-03-01T12:00:00.5", "2023-01-01 10:00:00+02:00"]), min_size=30, max_size=30
    ),
)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(whole, min_size=30, max_size=30) | st.lists(ids, min_size=30, max_size=30),
    st.lists(whole, min_size=30, max_size=30) | st.lists(ids, min_size=30, max_size=30),
    times,
)
def test_a_prepared_table_equals_the_table_read(tmp_path_factory, src, dst, t):
    folder = tmp_path_factory.mktemp("any")
    rows = "".join(f"{u},{v},{w}\n" for u, v, w in zip(src, dst, t))
    (folder / "e.csv").write_text(f"source,target,time\n{rows}", "utf-8")
    try:
        expected = read_events(folder / "e.csv")
    except DataError:
        with pytest.raises(DataError):
            prepare(folder / "e.csv", folder / "store", batch_rows=7)
        return
    prepare(folder / "e.csv", folder / "store", batch_rows=7)
    same(read_events(folder / "store"), expected)


@pytest.mark.parametrize("kind", ["csv", "parquet", "txt"])
def test_features_labels_and_ties(tmp_path, kind):
    table, path = frame(), tmp_path / f"e.{kind}"
    if kind == "parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, sep=" " if kind == "txt" else ",")
    done = prepare(path, tmp_path / "store", batch_rows=37)
    assert (done.events, done.bad) == (400, 0)
    store = read_events(tmp_path / "store")
    same(store, read_events(path))
    assert isinstance(store.src.base, np.memmap) or isinstance(store.src, np.memmap)
    assert not (tmp_path / "store" / "work").exists()


def test_ids_that_are_numbers_on_one_side_and_texts_on_the_other(tmp_path):
    table = pd.DataFrame({"source": [7, 12, 9], "target": ["a", "b", "7"], "time": [1, 2, 3]})
    table.to_parquet(tmp_path / "e.parquet")
    prepare(tmp_path / "e.parquet", tmp_path / "s")
    same(read_events(tmp_path / "s"), read_events(tmp_path / "e.parquet"))


def test_bad_rows_are_written_with_their_line_numbers(tmp_path):
    text = "source,target,time,feat_0\na,b,1,1\n,b,2,1\n=a,c,never,1\na,c\na,c,4,much\na,b,3,1\na,b,5,1,9\nb,c,2,2\n"
    (tmp_path / "e.csv").write_text(text)
    done = prepare(tmp_path / "e.csv", tmp_path / "s", batch_rows=2)
    assert (done.events, done.bad) == (3, 5)
    rows = pd.read_csv(done.bad_rows)
    assert rows.line.tolist() == [3, 4, 5, 6, 8]
    assert not any(cells.startswith("=") for cells in rows.cells)
    np.testing.assert_array_equal(read_events(tmp_path / "s").t, [1, 2, 3])


def damaged(tmp_path, *texts):
    folder = tmp_path / "folder"
    folder.mkdir()
    for place, text in enumerate(texts):
        (folder / f"{place}.csv").write_text(text)
    return folder


HEAD = "source,target,time\n"


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ((HEAD + "1,2,3\n", "source,target,time,feat_0\n1,2,3,4\n"), "1.csv.*feat_0"),
        ((HEAD + "1,2,3\n", HEAD + "a,2,3\n"), "0.csv.*1.csv"),
        ((HEAD + "1,2,3\n", HEAD + "1,2,2024-03-01\n"), "1.csv"),
        ((HEAD + "-1,2,3\n3,4,5\n", HEAD + "1.5,2,3\n"), ""),
        ((HEAD + ",2,3\n", HEAD + ",2,3\n"), ""),
        (("source,target,time,op\n1,2,3,delete\n",), ""),
    ],
)
def test_files_that_differ_are_named(tmp_path, texts, named):
    with pytest.raises(DataError, match=named or None):
        prepare(damaged(tmp_path, *texts), tmp_path / "s")
    assert not (tmp_path / "s" / "events.json").exists()


def test_sources_that_cannot_be_prepared_are_named(tmp_path, monkeypatch):
    frame(60).to_parquet(tmp_path / "e.parquet")
    with pytest.raises(ConfigError, match="duckdbs"):
        prepare(tmp_path / "e.parquet", tmp_path / "s", engine="duckdbs")
    with pytest.raises(ConfigError):
        prepare(tmp_path / "e.parquet", tmp_path / "s", memory="1MiB")
    with pytest.raises(ConfigError, match="sauce_column"):
        prepare(tmp_path / "e.parquet", tmp_path / "s", sauce_column="a")
    with monkeypatch.context() as absent:
        absent.setitem(sys.modules, "ibis", None)
        with pytest.raises(MissingExtraError, match=r"hopstate\[prepare\]"):
            prepare(tmp_path / "e.parquet", tmp_path / "s")
    assert not (tmp_path / "s").exists()
    prepare(tmp_path / "e.parquet", tmp_path / "s")
    frame(60, seed=1).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(StorageError):
        prepare(tmp_path / "other.parquet", tmp_path / "s")
    meta = (tmp_path / "s" / "events.json").read_text()
    (tmp_path / "s" / "events.json").write_text(meta.replace('"version": 2', '"version": 7'))
    with pytest.raises(FormatError, match="7"):
        load_events(tmp_path / "s")


def test_ids_with_ends_of_lines_are_bad_rows(tmp_path):
    rows = [("a", "b", 1), ("a\nc", "b", 2), ("", "b", 3), ("a\0", "b", 4), ("é", "b", 5)]
    pd.DataFrame(rows, columns=["src", "dst", "t"]).to_parquet(tmp_path / "e.parquet")
    done = prepare(tmp_path / "e.parquet", tmp_path / "s")
    assert (done.events, done.bad) == (2, 3)
    assert read_events(tmp_path / "s").node_ids.ids.tolist() == ["a", "b", "é"]


def test_ambiguous_dates_are_bad_rows_with_a_reason(tmp_path):
    source = tmp_path / "e.csv"
    source.write_text("src,dst,t\na,b,01/02/2026\nb,c,2026-02-02\nc,a,soon\na,c,3.2.26 12:00\nb,a,\n")
    done = prepare(source, tmp_path / "s")
    assert read_events(tmp_path / "s").t.tolist() == [1_769_990_400]
    assert pd.read_csv(done.bad_rows).reason.str.contains(AMBIGUOUS_DATE).tolist() == [True, False, True, False]
    source.write_text("src,dst,t\na,b,01/02/2026\n")
    with pytest.raises(DataError, match="01/02/2026"):
        prepare(source, tmp_path / "store")


@pytest.mark.parametrize("times", [["1.58E+12", "1.58E+12", "1.59E+12"], ["0.5", str(2**53 + 1), "x"]])
def test_times_that_lost_digits_are_rejected(tmp_path, times):
    (tmp_path / "e.csv").write_text("source,target,time\n" + "".join(f"a,b,{t}\n" for t in times))
    with pytest.raises(DataError, match=r"e\.csv, column 'time', row \d \(line \d\)"):
        prepare(tmp_path / "e.csv", tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_times_and_labels_of_any_type(tmp_path):
    columns = {"time": [[-0.0, 2.5, 1.0], pd.to_datetime(["2024-03-02", "2024-03-01", "2024-03-03"]), [3, 1, 2]]}
    columns["label"] = [[0.5, 1.0, 2.0], np.array([1, 0, 1], np.int8), [True, False, True]]
    for place, (time, label) in enumerate(zip(*columns.values())):
        table = pd.DataFrame({"source": ["a", "b", "c"], "target": ["d", "e", "f"], "time": time, "label": label})
        table.to_parquet(tmp_path / f"{place}.parquet")
        prepare(tmp_path / f"{place}.parquet", tmp_path / f"{place}.store", batch_rows=2)
        same(read_events(tmp_path / f"{place}.store"), read_events(tmp_path / f"{place}.parquet"))


def test_a_fraction_after_many_whole_times_and_labels(tmp_path):
    table = pd.DataFrame({"source": "a", "target": "b", "time": ["1"] * 40 + ["0.5"], "label": ["3"] * 40 + ["0.25"]})
    table.to_csv(tmp_path / "e.csv", index=False)
    prepare(tmp_path / "e.csv", tmp_path / "s", batch_rows=8)
    same(read_events(tmp_path / "s"), read_events(tmp_path / "e.csv"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("labels", "unlabeled_value"),
    [
        (["01", "1", "2"], None),
        (["NA", "1", "2"], None),
        (["NA", "1", "2"], "NA"),
        (["NA", "1", "2"], "none"),
        (["NA", "spam", "ham"], None),
        (["NA", "spam", "ham"], "NA"),
        (["?", "spam", "ham"], "none"),
        (["", "0", "1"], None),
        (["-1", "0", "1"], None),
        (["-1", "0", "1"], "-1"),
        (["none", "spam", "ham"], "none"),
    ],
)
def test_unknown_labels_agree_with_those_of_reading(tmp_path, labels, unlabeled_value, kind):
    table = pd.DataFrame({"source": "a", "target": "b", "time": range(30), "label": labels * 10})
    path = tmp_path / f"e.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)
    reads = (read_events, lambda source, **read: prepare(source, tmp_path / "s", batch_rows=8, **read))
    if unlabeled_value is None and labels[0] in ("NA", *["-1"] * (kind == "csv")):  # typed texts are classes
        for read in reads:
            with pytest.raises(DataError, match=r"--read\.unlabeled_value"):
                read(path)
        return
    expected, made = (read(path, unlabeled_value=unlabeled_value) for read in reads)
    same(read_events(tmp_path / "s"), expected)
    unknown = (expected.labels < 0).sum()
    assert unknown == (10 if unlabeled_value not in (None, "none") or not labels[0] else 0)
    for notes in (expected.notes, made.notes):
        assert ("10 of 30 rows" in " ".join(notes)) == (unknown == 10)


def test_labels_with_leading_zeros_are_texts(tmp_path):
    table = pd.DataFrame({"source": "a", "target": "b", "time": range(30), "label": ["01", "1", "1"] * 10})
    table.to_csv(tmp_path / "e.csv", index=False)
    assert read_events(tmp_path / "e.csv").class_names == ("1", "01")
