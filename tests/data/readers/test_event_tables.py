"""Event tables: missing or out-of-range times, text labels, unused columns, and scaling."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.data.events import EventStream
from hopstate.data.readers.read_events import read_events
from hopstate.data.summary import summarize
from hopstate.errors import ConfigError, DataError, FormatError
from hopstate.methods.method import Context
from hopstate.methods.shared.link import EventReadOptions, HistoryLinkRun
from hopstate.runs.data import apply_scalers, preprocess
from hopstate.testing.conformance import F32, F32_TIGHT
from hopstate.training.tasks.event_node import event_classes


def table(tmp_path: Path, *times: str) -> Path:
    path = tmp_path / "events.csv"
    rows = [f"{i},{i + 1},{t}" for i, t in enumerate(times)]
    path.write_text("\n".join(["src,dst,time", *rows]) + "\n")
    return path


def test_column_names_that_contain_a_role_are_suggested_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "mail.csv"
    path.write_text("Sender Name,Receiver Name,When,Note\na,b,1,x\nb,c,2,x\n")
    with pytest.raises(FormatError) as caught:
        read_events(path)
    message = str(caught.value)
    assert "--read.source_column 'Sender Name' --read.target_column 'Receiver Name'" in message
    assert "did you mean" not in message


GOOD = ("2024-03-01", "2024-03-02T12:00:00")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("NaT", "NaT.*row 1"),
        ("nan", "nan.*row 1"),
        ("None", "None.*row 1"),
        ("", "row 1"),
        ("9999-01-01", "9999-01-01.*row 1"),
        ("9999-12-31T23:59:59+00:00", r"9999-12-31T23:59:59\+00:00.*row 1"),
        ("0001-01-01", "0001-01-01.*row 1"),
    ],
)
@pytest.mark.parametrize("good", [GOOD, ("2024-03-01T00:00:00.123456789", GOOD[1])])
def test_missing_or_out_of_range_dates_are_named(tmp_path, bad, message, good):
    path = table(tmp_path, good[0], bad, good[1])
    with pytest.raises(DataError, match=message or None):
        read_events(path)
    kept = read_events(path, drop_missing_time=True)
    assert kept.t.tolist() == read_events(table(tmp_path, *good)).t.tolist()
    assert (kept.src.tolist(), kept.num_nodes) == ([0, 2], 4)
    assert any("1 of 3" in note for note in kept.notes)


@pytest.mark.parametrize("bad", ["NaT", "nan", "", "inf"])
def test_missing_numbers_are_named(tmp_path, bad):
    path = table(tmp_path, "5", bad, str(2**60 + 1))
    with pytest.raises(DataError, match="drop_missing_time"):
        read_events(path)
    kept = read_events(path, drop_missing_time=True).t
    assert kept.tolist() == [5, 2**60 + 1]
    with pytest.raises(DataError):
        read_events(table(tmp_path, bad, bad), drop_missing_time=True)


def test_invalid_times_are_rejected_even_if_missing_ones_are_dropped(tmp_path):
    for times in ((GOOD[0], "soon", "NaT"), ("5", "soon", "")):
        with pytest.raises(DataError, match="soon"):
            read_events(table(tmp_path, *times), drop_missing_time=True)
    with pytest.raises(ConfigError, match="drop_missing_time"):
        read_events(table(tmp_path, *GOOD), drop_missing_time="zero")


def test_rows_in_errors_are_those_of_the_file(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("src,dst,t,feat_0\n0,1,,1\n1,2,3,2\n2,3,4,\n")
    with pytest.raises(DataError, match=r"feat_0.*row 2"):
        read_events(path, drop_missing_time=True)


def test_mixed_time_zones_are_converted_to_one(tmp_path):
    times = ("2024-03-01T02:00:00+02:00", "2024-03-01", "2024-03-01T00:00:00Z", "2024-02-29T19:00:00-0500")
    stream = read_events(table(tmp_path, *times))
    assert set(stream.t.tolist()) == {1709251200}
    assert len(stream.notes) == 2
    assert len(read_events(table(tmp_path, *GOOD)).notes) == 1


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_of_parquet_and_pandas(tmp_path, unit):
    times = pd.Series(pd.to_datetime(["2024-03-01", "2024-03-02", None])).astype(f"datetime64[{unit}]")
    frame = pd.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 3], "time": times})
    frame.to_parquet(tmp_path / "e.parquet")
    for source in (frame, tmp_path / "e.parquet"):
        with pytest.raises(DataError, match="row 2"):
            read_events(source)
        assert read_events(source, drop_missing_time=True).t.tolist() == [1709251200, 1709337600]
    if unit != "ns":
        never = frame.assign(time=times.fillna(pd.Timestamp("9999-01-01").as_unit(unit)))
        with pytest.raises(DataError, match="9999-01-01"):
            read_events(never)
        with pytest.raises(DataError, match="9999-01-01"):
            EventStream.from_arrays([0, 1, 2], [1, 2, 3], never["time"].to_numpy())


# ---- labels ---------------------------------------------------------------------------------------------------
def labelled(tmp_path: Path, n: int = 300, **changes) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"src": rng.integers(0, 12, n), "dst": 12 + rng.integers(0, 12, n), "t": np.arange(n)})
    frame["label"] = np.where(rng.random(n) < 0.2, "fraud", "ok")
    frame["feat_0"] = 1e6 * rng.normal(size=n)
    path = tmp_path / "labelled.csv"
    frame.assign(**changes).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("label", ["label", "label,feat_0"])
def test_a_label_is_not_a_feature_of_its_own_event(tmp_path, label):
    with pytest.raises(ConfigError, match="label"):
        read_events(labelled(tmp_path, label=1.0), label_column=label, edge_columns=["label"])


def test_labels_in_text_are_classes_with_names(tmp_path):
    path = labelled(tmp_path)
    stream = read_events(path)
    frame = pd.read_csv(path)
    assert stream.class_names == ("ok", "fraud")  # the rarer is 1
    np.testing.assert_array_equal(stream.labels, frame["label"] == "fraud")
    assert any("0 = ok" in note and "1 = fraud" in note for note in stream.notes)
    assert "ok: " in summarize(stream).facts["classes"]
    stream.save(tmp_path / "folder")
    loaded = read_events(tmp_path / "folder")
    assert loaded.class_names == stream.class_names
    np.testing.assert_array_equal(loaded.labels, stream.labels)
    gaps = read_events(labelled(tmp_path, label=np.where(np.arange(300) == 7, "", frame["label"])))
    assert gaps.labels[7] == -1
    assert np.flatnonzero(event_classes(gaps).y < 0).tolist() == [7]
    three = read_events(labelled(tmp_path, label=np.array(["a", "b", "c"])[np.arange(300) % 3]))
    assert event_classes(three).names == ("a", "b", "c")


def test_numbers_with_a_comma_have_a_note(tmp_path):
    amounts = np.array(["0,5", "-12", "", "3,25"])[np.arange(300) % 4]
    assert any("amount" in note and "comma" in note for note in read_events(labelled(tmp_path, amount=amounts)).notes)
    for texts in (["0,5", "a, b", "1"], ["1", "2", "3 kg"], ["", "", ""]):
        other = read_events(labelled(tmp_path, amount=np.array(texts)[np.arange(300) % 3]))
        assert not any("comma" in note.replace(str(tmp_path), "") for note in other.notes), texts


def test_several_label_columns_are_not_guessed_and_unused_text_has_a_note(tmp_path):
    other = np.array(["p", "q"])[np.arange(300) % 2]
    path = labelled(tmp_path, y=other, remark=[f"text {i}" for i in range(300)])
    with pytest.raises(DataError, match="label_column"):
        read_events(path)
    stream = read_events(path, label_column="")
    assert stream.labels is None
    assert any("label, y, remark" in note for note in stream.notes)
    assert read_events(labelled(tmp_path, y=other), label_column="label").class_names == ("ok", "fraud")
    free = read_events(labelled(tmp_path, label=[f"text {i}" for i in range(300)]))
    assert free.labels is None
    assert any("300" in note for note in free.notes)


def test_text_labels_train_links_and_classes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = labelled(tmp_path, 120)
    assert hopstate.fit("recency", str(path), out="links", loop={"progress": False}).metrics["test"]
    small = {"model": {"channel_dim": 6, "time_dim": 8, "out_dim": 8, "block": {"state_dim": 4}}}
    small |= {"history": {"max_length": 8}, "loop": {"epochs": 1, "progress": False}}
    run = hopstate.fit("dyg-mamba-nodes", str(path), out="nodes", **small)
    assert json.loads(Path("nodes/data.json").read_text())["class_names"] == ["ok", "fraud"]
    assert set(run.predict(split="test")["label"]) == {"ok", "fraud"}
    other = labelled(tmp_path, 120, label=np.where(np.arange(120) % 3, "fraud", "ok"))  # here fraud is the larger class
    labels = pd.read_csv(other)["label"].iloc[-18:]
    assert (
        hopstate.predict("nodes", data=str(other), split="test", cold_start=True)["label"].tolist() == labels.tolist()
    )


# ---- scales ---------------------------------------------------------------------------------------------------
def ready(path: Path, tmp_path: Path, **read):
    options = {key: value for key, value in read.items() if key != "scale"}
    context = Context(run=tmp_path, cache=tmp_path)
    return preprocess(read_events(path, **options), HistoryLinkRun(data="made", read=EventReadOptions(**read)), context)


def test_event_features_are_scaled_by_training_events_only(tmp_path):
    feature = pd.read_csv(labelled(tmp_path))["feat_0"].to_numpy()
    one, kept = ready(labelled(tmp_path), tmp_path)
    train = feature[: kept["edge_attr"]["rows"]]
    assert 200 <= len(train) < 220
    np.testing.assert_allclose(one.edge_attr[:, 0], (feature - train.mean()) / train.std(), rtol=F32, atol=F32_TIGHT)
    late = np.where(np.arange(300) < len(train), feature, -1e9)
    _, again = ready(labelled(tmp_path, feat_0=late), tmp_path)
    for name in ("fill", "shift", "scale"):
        np.testing.assert_allclose(kept["edge_attr"][name], again["edge_attr"][name], rtol=1e-12)
    thousands, _ = ready(labelled(tmp_path, feat_0=feature / 1000), tmp_path)
    np.testing.assert_allclose(thousands.edge_attr, one.edge_attr, rtol=F32, atol=F32_TIGHT)
    stream = read_events(labelled(tmp_path))
    np.testing.assert_allclose(
        apply_scalers(stream.slice(7, 8), kept).edge_attr[0], one.edge_attr[7], rtol=1e-5, atol=1e-6
    )
    assert ready(labelled(tmp_path), tmp_path, scale="none")[0].edge_attr[3, 0] == np.float32(feature[3])


def test_missing_event_features_are_imputed_and_marked_on_request(tmp_path):
    feature = pd.read_csv(labelled(tmp_path))["feat_0"].to_numpy().copy()
    feature[[3, 290]] = np.nan
    path = labelled(tmp_path, feat_0=feature)
    with pytest.raises(DataError, match=r"feat_0.*row 3.*2 such rows"):
        read_events(path)
    stream, kept = ready(path, tmp_path, missing="median")
    assert np.flatnonzero(stream.edge_attr[:, 1]).tolist() == [3, 290]
    assert kept["edge_attr"]["fill"] == [np.nanmedian(feature[: kept["edge_attr"]["rows"]])]
    loaded = read_events(path, missing="mean")
    loaded.save(tmp_path / "folder")
    assert np.isnan(read_events(tmp_path / "folder").edge_table.values[3, 0])
    assert read_events(tmp_path / "folder").content_hash == loaded.content_hash


def test_new_events_are_scaled_by_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.read_csv(labelled(tmp_path, 130))
    frame.iloc[:100].to_csv("old.csv", index=False)
    loop = {"epochs": 1, "progress": False}
    hopstate.fit("ctdg-ssm", "old.csv", out="run", loop=loop)
    whole = hopstate.stream("run", frame.iloc[100:], ignore_state=True)
    frame.iloc[100:110].to_csv("next.csv", index=False)
    first_row = hopstate.stream("run", "next.csv", ignore_state=True)
    np.testing.assert_allclose(first_row["score"], whole["score"][:10], rtol=F32)
    assert np.isfinite(whole["score"]).all()


@pytest.mark.parametrize("end", ["c", "c,", "c,d", "c,d,"])
def test_a_file_truncated_in_its_last_line_is_rejected(tmp_path, end):
    path = tmp_path / "events.csv"
    rows = "source,target,time,price\na,b,1,2.5\nb,c,2,1.5\n"
    path.write_text(rows + end)
    with pytest.raises(FormatError):
        read_events(path)
    for whole in (rows, rows.rstrip("\n"), rows + "c,d,3,", rows + "c,d,3\n", rows + "\n", rows.replace("\n", "\r\n")):
        path.write_text(whole)
        read_events(path)
