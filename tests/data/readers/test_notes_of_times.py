"""A table of edges with one column that is most likely times points to the option that says so."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hopstate.cli.main import main
from hopstate.data.readers.notes import possible_time_note
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.errors import HopstateWarning

pytestmark = pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")  # said, not raised
RNG = np.random.default_rng(0)
SECONDS = 1_700_000_000 + np.sort(RNG.integers(0, 10**6, 40))


def told(folder: Path, capsys: pytest.CaptureFixture[str], **columns: object) -> str:
    """Return what inspect says of a table of edges, on both streams."""
    ends = {"who": RNG.integers(0, 9, 40), "whom": RNG.integers(0, 9, 40)}
    pd.DataFrame(ends | columns).to_csv(folder / "met.csv", index=False)
    assert main(["inspect", str(folder / "met.csv")]) == 0
    said = capsys.readouterr()
    assert "(graph, " in said.out
    return said.out + said.err


@pytest.mark.parametrize(
    "moments",
    [SECONDS, SECONDS.astype(float) / 7, pd.to_datetime(SECONDS, unit="s").strftime("%Y-%m-%dT%H:%M:%S")],
    ids=["numbers", "fractions", "dates"],
)
def test_one_column_of_times_is_named(moments: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(tmp_path, capsys, weight=RNG.random(40), moment=moments)
    assert "time_column" in said
    assert "moment" in said


@pytest.mark.parametrize(
    "values",
    [RNG.permutation(SECONDS), np.arange(40) + 5, np.repeat([1.0, 2.0], 20), np.zeros(40)],
    ids=["in no order", "row numbers", "two values", "one value"],
)
def test_other_columns_are_none(values: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "time_column" not in told(tmp_path, capsys, moment=values)


@pytest.mark.parametrize("name", ["id", "edge_id", "graphID", "Index"])
def test_numbers_that_name_rows_are_none(name: str) -> None:
    assert possible_time_note(pd.DataFrame({name: SECONDS}), [name]) == ()
    assert possible_time_note(pd.DataFrame({"paid": SECONDS}), ["paid"]) != ()


def test_the_option_is_said_as_a_shell_takes_it() -> None:
    (said,) = possible_time_note(pd.DataFrame({"met; at": SECONDS}), ["met; at"])
    assert said.endswith("--read.time_column 'met; at'")


def test_of_several_none_is_named_and_few_rows_tell_nothing() -> None:
    frame = pd.DataFrame({"a": SECONDS, "b": SECONDS + 3, "gap": np.append(SECONDS[:-1].astype(float), np.nan)})
    assert possible_time_note(frame, ["a", "b"]) == ()
    assert possible_time_note(frame, ["gap"]) == ()
    assert possible_time_note(frame, ["a", "gap"]) != ()
    assert possible_time_note(frame[:9], ["a"]) == ()


@pytest.mark.parametrize(("day", "form"), [("2024-02-{}", ""), ("{}.02.2024 10:00", "%d.%m.%Y %H:%M")])
def test_a_column_of_dates_is_named_with_its_options(tmp_path, day, form):
    rows = "".join(f"u{i % 7},v{i % 5},{day.format(f'{i % 28 + 1:02}')}\n" for i in range(40))
    (tmp_path / "e.csv").write_text(f"a,b,when\n{rows}")
    with pytest.warns(HopstateWarning, match=rf"'when' looks like dates.*--read\.time_column when.*{re.escape(form)}"):
        read_graph(tmp_path / "e.csv")
    read = {"time_format": form} if form else {}
    events = read_events(tmp_path / "e.csv", source_column="a", target_column="b", time_column="when", **read)
    assert len(events) == 40
