"""Dates in and out: the zone of the file, exact to its unit, and durations in words."""

from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from matplotlib.dates import AutoDateLocator
from matplotlib.figure import Figure

import hopstate
from hopstate.data.dates import format_duration, format_times, plot_times, zone_of
from hopstate.data.readers.read_events import read_events
from hopstate.data.summary import _plot_activity, summarize


@pytest.mark.parametrize(
    ("texts", "zone"),
    [
        (["2024-03-01T12:00:00+01:00", "2024-03-02T12:00:00+01:00"], "+01:00"),
        (["2024-03-01T12:00:00-0530", "2024-03-02 12:00:00-05:30"], "-05:30"),
        (["2024-03-01T12:00:00+01"], "+01:00"),
        (["2024-03-01T12:00:00Z"], "Z"),
        (pd.to_datetime(["2024-03-01T12:00:00+01:00"]), "+01:00"),
        (pd.DatetimeIndex(["2024-03-01"], tz="Europe/Berlin"), "Europe/Berlin"),
        (pd.DatetimeIndex(["2024-03-01"]), "naive"),
        (["2024-03-01", "2024-03-02"], "naive"),
        (["2024-03-01 12:00", "2024-03-02 12:00:00.5"], "naive"),
        (["2024-03-01T12:00:00+01:00", "2024-07-01T12:00:00+02:00"], "UTC"),
        ([5, 6], ""),
        (["5", "6"], ""),
        (["20240301", "20240302"], ""),
        ([None, None], ""),
    ],
)
def test_the_time_zone_of_a_column(texts, zone):
    assert zone_of(pd.Series(texts)) == zone


@pytest.mark.parametrize(
    ("zone", "unit"),
    [
        ("+01:00", "s"),
        ("-05:30", "ms"),
        ("Z", "us"),
        ("naive", "ns"),
        ("Europe/Berlin", "ns"),
        ("America/New_York", "s"),
    ],
)
def test_dates_name_the_same_moment(zone, unit):
    whole = np.sort(np.random.default_rng(0).integers(-(10**9), 4 * 10**9, 50))
    t = (whole * np.timedelta64(1, "s").astype(f"timedelta64[{unit}]").astype(np.int64)).astype(np.int64)
    found = format_times(t, unit, zone)
    text = [one if zone != "naive" else f"{one}+00:00" for one in found.tolist()]
    assert [int(pd.Timestamp(one).timestamp()) for one in text] == whole.tolist()
    assert format_times(t[7], unit, zone) == found[7]  # one value and many
    assert read_events(pd.DataFrame({"src": 0, "dst": 1, "t": found})).t.tolist() == whole.tolist()


def test_a_named_zone_follows_daylight_saving_time():
    t = [int(datetime.fromisoformat(f"2024-{month}-01T00:00:00+00:00").timestamp()) for month in ("01", "07")]
    found = format_times(t, "s", "Europe/Berlin").tolist()
    assert found == ["2024-01-01T01:00:00+01:00", "2024-07-01T02:00:00+02:00"]


def test_numbers_stay_as_they_are():
    for t in (np.array([3, 2**62]), np.array([0.1, 1e300])):
        assert format_times(t, "s", "") is t
    assert format_times(np.array([0.5]), "s", "Z").tolist() == [0.5]


@pytest.mark.parametrize(
    ("span", "unit", "words"),
    [
        (7_532_879, "s", "87 days"),
        (60, "s", "60 seconds"),
        (3 * 3600 * 10**3, "ms", "3 hours"),
        (0, "s", "0 seconds"),
        (1, "s", "1 second"),
        (10 * 365.25 * 86400, "s", "10 years"),
        (1234, "", "1,234"),
        (1234, "h", "1,234 h"),
    ],
)
def test_durations_in_words(span, unit, words):
    assert format_duration(span, unit) == words


def table(zone: str, first: int = 0, count: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(first)
    t = format_times(1_700_000_000 + 3600 * (first + np.arange(count)), "s", zone)
    return pd.DataFrame({"src": rng.integers(0, 6, count), "dst": rng.integers(6, 12, count), "time": t})


@pytest.mark.parametrize(
    "zone", ["+01:00", pytest.param("Z", marks=pytest.mark.slow), pytest.param("naive", marks=pytest.mark.slow)]
)
def test_every_table_of_a_run_has_the_dates_of_its_file(tmp_path, zone):
    own = table(zone)
    own.to_csv(tmp_path / "own.csv", index=False)
    run = hopstate.fit("recency", tmp_path / "own.csv", out=tmp_path / "run", loop={"progress": False})
    assert run.predict()["t"].tolist() == own["time"].tolist()
    later = table(zone, 120, 8)
    assert run.predict(later)["t"].tolist() == later["time"].tolist()
    assert run.score([(1, 7)], later["time"][0])["t"].tolist() == later["time"][:1].tolist()
    assert run.rank(1, top=1, time=later["time"][0])["t"].tolist() == later["time"][:1].tolist()
    assert run.stream(later)["t"].tolist() == later["time"].tolist()
    run.stream(table(zone, 128, 2), out=tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv")["t"].tolist() == table(zone, 128, 2)["time"].tolist()
    facts = summarize(read_events(tmp_path / "own.csv")).facts
    assert own["time"][0] in facts["time"]
    assert facts["time span"] == "5 days"
    with pytest.raises(hopstate.errors.TimeOrderError, match=own["time"][0].replace("+", r"\+")):
        run.predict(own[:5])
    early = own["time"][3].replace("+", r"\+")
    for ask in (lambda t: run.score([(1, 7)], t), lambda t: run.rank(1, top=1, time=t)):
        with pytest.raises(hopstate.errors.TimeOrderError, match=early):
            ask(own["time"][3])


@pytest.mark.slow
def test_a_new_stream_in_another_unit_has_its_own_dates(tmp_path):
    own, later = table("+01:00"), table("Z", 120, 8)
    finer = later.assign(time=later["time"].str.replace("Z", ".250Z"))
    run = hopstate.fit("recency", own, out=tmp_path / "run", loop={"progress": False})
    assert run.predict(finer, cold_start=True)["t"].tolist() == finer["time"].tolist()
    assert run.predict(later, cold_start=True)["t"].tolist() == later["time"].tolist()
    numbers = later.assign(time=np.arange(8))
    assert run.predict(numbers, cold_start=True)["t"].tolist() == list(range(8))
    assert run.predict(later)["t"].tolist() == table("+01:00", 120, 8)["time"].tolist()
    run.stream(later)
    with pytest.raises(hopstate.errors.TimeOrderError, match=own["time"][5][:13]):
        run.stream(own[5:9])


def test_a_live_run_of_dates_is_replayed_bit_for_bit(tmp_path):
    pytest.importorskip("apsw")
    from hopstate.runs.queries import rank_session
    from hopstate.serving.live import LiveRun
    from hopstate.serving.replay import replayed
    from hopstate.streaming.slices import run_to_completion

    run = hopstate.fit("recency", table("+01:00"), out=tmp_path / "run", loop={"progress": False})
    later = table("+01:00", 120, 8)
    with LiveRun(run.path) as live:
        scores = [receipt.score for receipt in live.take(later.to_dict("records"))]
        assert run_to_completion(rank_session(live.session(), sources=1, top=1))["t"].tolist() == [
            "2023-11-20T06:13:21+01:00"
        ]
        with pytest.raises(hopstate.errors.TimeOrderError, match=r"2023-11-20T06:13:20\+01:00"):
            live.take(later[:1].to_dict("records"))
    assert pd.concat(list(replayed(run.path)))["score"].tolist() == scores


def test_an_explanation_shows_dates(tmp_path):
    from hopstate.runs.explain import Explanation

    events = pd.DataFrame({"end": "source", "neighbor": 7, "t": [0, 3600], "event_id": [0, 1], "contribution": 0.5})
    known = {"score": 0.5, "probability": 0.4, "logit": 0.0, "events": events, "features": events[:0]}
    found = Explanation(1, 7, 7200, **known, time_unit="s", dates="+01:00")
    assert found.table["t"].tolist() == ["1970-01-01T01:00:00+01:00", "1970-01-01T02:00:00+01:00"]
    assert found.when == "1970-01-01T03:00:00+01:00"
    found.plot(tmp_path / "why.png")
    numbers = Explanation(1, 7, 7200, **known)
    assert (numbers.table["t"].tolist(), numbers.when) == ([0, 3600], "7200")


def test_charts_of_a_stream_have_dates():
    t = [0, 3600]
    assert plot_times(t, "s", "+01:00").astype(str).tolist() == ["1970-01-01T01:00:00", "1970-01-01T02:00:00"]
    assert str(plot_times(0, "ms", "Z")) == "1970-01-01T00:00:00.000"
    assert plot_times(t, "s", "") is t
    figure = Figure()
    axes = figure.subplots()
    _plot_activity(axes, read_events(table("+01:00")))
    assert isinstance(axes.xaxis.get_major_locator(), AutoDateLocator)


def test_numeric_times_stay_numeric(tmp_path):
    own = table("Z").assign(time=np.arange(120) + 0.25)
    run = hopstate.fit("recency", own, out=tmp_path / "run", loop={"progress": False})
    assert run.predict()["t"].tolist() == own["time"].tolist()


def test_written_files_keep_the_zone(tmp_path):
    stream = read_events(table("-05:30"))
    stream.save(tmp_path / "kept")
    assert read_events(tmp_path / "kept").dates == stream.dates == "-05:30"
