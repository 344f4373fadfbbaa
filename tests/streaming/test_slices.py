"""Work in slices gives the result of one call."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from hopstate.runs.queries import QuerySession, open_session, pair_probabilities, rank_session
from hopstate.runs.run import Run
from hopstate.streaming import slices
from hopstate.streaming.slices import SliceSizer, map_sliced, run_to_completion


@pytest.mark.parametrize("pace", [None, SliceSizer()])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 100])
def test_every_row_is_processed_once(count: int, pace: SliceSizer | None) -> None:
    rows, parts = np.arange(float(count)), list[slice]()

    def work(part: slice) -> np.ndarray:
        parts.append(part)
        return rows[part]

    np.testing.assert_array_equal(run_to_completion(map_sliced(work, count, pace)), rows)
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]


@pytest.mark.parametrize(("each", "expected"), [(1.0, [16] + [4] * 121), (0.0, [16, 64, 256, 164])])
def test_slices_fit_their_target_duration(each: float, expected: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """One second per row gives the minimum size; no time at all multiplies the size by four each time."""
    now, sizes = 0.0, list[int]()
    monkeypatch.setattr(slices.time, "thread_time", lambda: now)

    def work(part: slice) -> np.ndarray:
        nonlocal now
        sizes.append(min(part.stop, 500) - part.start)
        now += each * sizes[-1]
        return np.zeros(sizes[-1])

    run_to_completion(map_sliced(work, 500, SliceSizer()))
    assert sizes == expected


def test_a_pace_persists_across_calls_and_ignores_single_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pace, each = 0.0, SliceSizer(), 1 / 128
    monkeypatch.setattr(slices, "TARGET_SECONDS", 1.0)
    monkeypatch.setattr(slices.time, "thread_time", lambda: now)

    def sizes(count: int, call: float = 0.0) -> list[int]:
        found = []

        def work(part: slice) -> np.ndarray:
            nonlocal now
            found.append(part.stop - part.start)
            now += call + each * found[-1]
            return np.zeros(found[-1])

        run_to_completion(map_sliced(work, count, pace))
        return found

    assert sizes(300) == [16, 64, 128, 92]
    assert sizes(1, call=16.0) == [1]
    assert sizes(300) == [128, 128, 44]


@pytest.mark.parametrize("name", ["ctdg-ssm", "dyg-mamba", "pair-trees", "recency"])
def test_scores_in_slices_equal_those_of_one_call(
    name: str, trained: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting, value in {"INITIAL_ROWS": 3, "MIN_ROWS": 1, "TARGET_SECONDS": 0.0}.items():
        monkeypatch.setattr(slices, setting, value)
    with open_session(trained(name).path) as session:
        pairs = [(f"u{i}", f"v{j}") for i in range(3) for j in range(4)]
        sliced = QuerySession(session.run, session.task, session.past, pace=SliceSizer())
        one, other = (run_to_completion(pair_probabilities(run, pairs))[0] for run in (sliced, session))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        found, whole = (run_to_completion(rank_session(run, ["u1", "u2"], top=5)) for run in (sliced, session))
        pd.testing.assert_frame_equal(found, whole, check_exact=False, rtol=1e-5, atol=1e-6)
