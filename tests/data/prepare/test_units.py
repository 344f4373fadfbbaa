"""Files of a source in two time units are rejected, streams cut into periods are not; no partial store is left."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("duckdb", reason="prepare needs the extra prepare")
pytest.importorskip("ibis", reason="prepare needs the extra prepare")

from hopstate.cli.inspect import load
from hopstate.data.prepare import prepare
from hopstate.data.prepare.prepare import _check_units
from hopstate.errors import DataError, FormatError

pytestmark = pytest.mark.filterwarnings("ignore::hopstate.errors.HopstateWarning")
HOURS = 1_700_000_000 + 3600 * np.arange(50)
DAYS = 86_400 * np.arange(100)


def written(folder: Path, *times: np.ndarray) -> Path:
    folder.mkdir()
    for place, t in enumerate(times):
        table = pd.DataFrame({"source": np.arange(len(t)) % 7, "target": np.arange(len(t)) % 5, "time": t})
        table.to_csv(folder / f"{'abc'[place]}.csv", index=False)
    return folder


def facts(*times: np.ndarray) -> list[dict]:
    return [{"path": f"{'abcdefghijkl'[file]}.csv", "least": t.min(), "most": t.max()} for file, t in enumerate(times)]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (HOURS, (HOURS + 180_000) * 1000, r"b\.csv.*a\.csv"),
        (HOURS * 1000, HOURS, r"a\.csv.*b\.csv"),
        (HOURS, HOURS * 10**9, "ns"),
        (HOURS * 1000, HOURS * 10**9, "ns"),
        (HOURS + 0.5, HOURS * 1e6, "us"),
        (HOURS[:1], HOURS[:1] * 1000, "ms"),
    ],
)
def test_files_in_two_units_are_rejected(first: np.ndarray, second: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=words):
        _check_units(facts(first, second))
    with pytest.raises(DataError, match="time_unit"):
        _check_units(facts(first, first, second, second))


@given(
    st.lists(st.integers(1, 300), min_size=2, max_size=12),
    st.sampled_from([1e-3, 1.0, 60.0, 1e3, 1e6, 1e9]),
    st.sampled_from([0, 1, 631_152_000, 1_700_000_000]),
    st.integers(0, 2**32 - 1),
)
def test_consecutive_periods_have_one_unit(counts: list[int], pace: float, start: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    t = start + np.cumsum(rng.integers(1, 1000, sum(counts)) * pace)
    parts = np.split(t, np.cumsum(counts)[:-1])
    _check_units(facts(*parts))


@pytest.mark.parametrize(
    "times",
    [
        [DAYS, DAYS + 2_000 * DAYS[-1]],  # a long pause at a constant rate
        [DAYS, DAYS[-1] + 1 + 10 * DAYS],  # another rate, without a pause
        [np.array([0, 1]), np.array([1000, 1001])],
        [np.array([1, 2]), np.array([1002, 2003, 3004])],  # too few for a rate
        [np.zeros(3), np.zeros(3)],
        [-HOURS, HOURS * 1000],
        [HOURS, HOURS],
        [HOURS],
    ],
)
def test_ranges_compatible_with_one_unit_are_accepted(times: list[np.ndarray], tmp_path: Path) -> None:
    prepared = prepare(written(tmp_path / "in", *times), tmp_path / "store")
    assert prepared.events == sum(map(len, times))


def test_a_rejected_source_leaves_nothing_and_a_given_unit_is_used(tmp_path: Path) -> None:
    source, store = written(tmp_path / "in", HOURS, HOURS * 1000), tmp_path / "store"
    with pytest.raises(DataError, match=r"b\.csv"):
        prepare(source, store)
    assert not store.exists()
    store.mkdir()  # an existing folder of the user is kept
    with pytest.raises(DataError, match=r"b\.csv"):
        prepare(source, store)
    assert list(store.iterdir()) == []
    assert prepare(source, store, time_unit="s").events == 100


def test_text_mixed_with_parquet_is_named(tmp_path: Path) -> None:
    source = written(tmp_path / "in", HOURS)
    pd.read_csv(source / "a.csv").to_parquet(source / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet"):
        prepare(source, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_file_without_good_rows_names_the_first_bad_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("source,target,time\n1,2,3\n,2,3\n".replace("1,2,3", "1,2,never"))
    with pytest.raises(DataError, match=r"a\.csv"):
        prepare(tmp_path / "a.csv", tmp_path / "store", time_column="time")
    assert not (tmp_path / "store").exists()


def _other_version(store: Path) -> None:
    meta = (store / "events.json").read_text()
    (store / "events.json").write_text(meta.replace('"version": 2', '"version": 9'))


def _cut(store: Path) -> None:
    with (store / "t.npy").open("r+b") as file:
        file.truncate(200)


@pytest.mark.parametrize(
    ("spoil", "refused", "read"),
    [
        (_other_version, "9", "9"),
        (_cut, r"t\.npy", r"t\.npy"),
        (lambda store: (store / "src.npy").unlink(), r"src\.npy", r"src\.npy"),
    ],
)
def test_a_damaged_store_is_named(spoil, refused: str, read: str, tmp_path: Path) -> None:
    source, store = written(tmp_path / "in", HOURS), tmp_path / "store"
    prepare(source, store)
    spoil(store)
    with pytest.raises(FormatError, match=refused):
        prepare(source, store)
    with pytest.raises(FormatError, match=read):
        load(str(store), "auto")
