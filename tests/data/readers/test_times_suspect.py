"""Suspicious numeric times are read unchanged, with a warning that names rows and a remedy."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from hopstate.data.readers.read_events import read_events
from hopstate.errors import HopstateWarning


def read(folder: Path, times: list[object]) -> np.ndarray:
    rows = "".join(f"{i % 3},{i % 3 + 1},{t}\n" for i, t in enumerate(times))
    (folder / "e.csv").write_text("src,dst,t\n" + rows)
    return read_events(str(folder / "e.csv")).t


DAYS = [
    ([20240131, 20240201, 20240229], "20240131.*row 0"),
    ([20240131.0, 20240201.0], "2024-01-31"),
    ([202401312359, 202402010000], "2024-01-31T23:59"),
    ([20240131235959, 20240201000000], "2024-01-31T23:59:59"),
]


@pytest.mark.parametrize(("times", "message"), DAYS)
def test_days_written_as_numbers_have_a_warning(tmp_path: Path, times: list[object], message: str) -> None:
    with pytest.warns(HopstateWarning, match=message):
        assert read(tmp_path, times).tolist() == times


def test_several_units_in_one_column_have_a_warning(tmp_path: Path) -> None:
    seconds = 1_700_000_000
    with pytest.warns(HopstateWarning, match="1700000000.*row 0.*1700000060000.*row 2"):
        read(tmp_path, [seconds, seconds + 60, (seconds + 60) * 1000])
    with pytest.warns(HopstateWarning, match="nanoseconds"):
        read(tmp_path, [seconds, seconds * 10**9])
    with pytest.warns(HopstateWarning, match="199"):
        read(tmp_path, [0, *range(seconds, seconds + 199), seconds * 10**6])  # one beyond all of them


PLAIN: list[list[object]] = [
    [1_700_000_000, 1_700_000_060],
    [1_700_000_000_000, 1_700_000_060_000],
    [1_700_000_000.25, 1_700_000_060.5],
    [20240131, 20240132],  # no day
    [20240131, 20241301],  # no month
    [20240131.5, 20240201],
    [202401312460, 202402010000],  # no minute
    [0, 1_700_000_000],
    [0, 86400, 1_700_000_000_000],
    list(np.geomspace(1e8, 1e14, 50).astype(int)),
    [-5, 3, 10**12],
]


@pytest.mark.parametrize("times", PLAIN)
def test_other_numbers_are_read_without_a_warning(tmp_path: Path, times: list[object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(tmp_path, times).tolist() == times
