"""A table of edges with a column of dates points to the options that read it as times."""

import re

import pytest

from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.errors import HopstateWarning

pytestmark = pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")  # warnings, not errors


@pytest.mark.parametrize(("day", "form"), [("2024-02-{}", ""), ("{}.02.2024 10:00", "%d.%m.%Y %H:%M")])
def test_a_column_of_dates_is_named_with_its_options(tmp_path, day, form):
    rows = "".join(f"u{i % 7},v{i % 5},{day.format(f'{i % 28 + 1:02}')}\n" for i in range(40))
    (tmp_path / "e.csv").write_text(f"a,b,when\n{rows}")
    with pytest.warns(HopstateWarning, match=rf"'when' looks like dates.*--read\.time_column when.*{re.escape(form)}"):
        read_graph(tmp_path / "e.csv")
    read = {"time_format": form} if form else {}
    events = read_events(tmp_path / "e.csv", source_column="a", target_column="b", time_column="when", **read)
    assert len(events) == 40


@pytest.mark.parametrize(("name", "first"), [("year", 1990), ("Time Stamp", 0), ("start", 1_600_000_000)])
def test_a_number_that_looks_like_a_time_is_named_with_its_option(tmp_path, name, first):
    rows = "".join(f"u{i % 7},v{i % 5},{first + i},{i % 3}\n" for i in range(40))
    (tmp_path / "e.csv").write_text(f"a,b,{name},weight\n{rows}")
    notes = read_graph(tmp_path / "e.csv", duplicates="keep").notes
    assert any(repr(name) in note and "--read.time_column" in note for note in notes)
    assert not any("'weight'" in note for note in notes)
