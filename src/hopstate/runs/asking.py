"""What a trained model of nodes in an event stream gives for any node at any time from now on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.dates import parse_times, shown_time, shown_times
from hopstate.data.readers.tables import is_frame
from hopstate.data.stream_state import StreamState
from hopstate.errors import ConfigError, DataError, ShapeError, TimeOrderError
from hopstate.runs.answers import with_index_of
from hopstate.runs.data import known_data, settings_of_run
from hopstate.runs.going_on import check_temporal, kept_state, own_past
from hopstate.runs.load import load_run
from hopstate.training.run_folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd


def node_outputs(
    run: str | Path,
    nodes: Any,
    t: Any = None,
    *,
    state: str | Path | None = None,
    fresh: bool = False,
    own: Any = None,
    device: str | None = None,
    method: str | None = None,
) -> pd.DataFrame:
    """Return the chances of the classes of nodes at times, from what a run has seen; nothing is kept.

    Histories hold what is strictly earlier than the time asked for, and the memory is that from before the batch that
    an event at that time would fall into: what `stream` would score such an event from. Each answer depends on its
    node and time alone, not on what else is asked.

    Args:
        run: a run folder of a method that classifies nodes at their events, such as dyg-mamba-nodes.
        nodes: (Q,) the user's own ids; or a table with columns node and t.
        t: (Q,) times, or one for all: numbers in the unit of the run's own data, or dates.
        state, fresh, own: which past to answer from, as in `hopstate.score_stream`.
        device: where to compute; None takes the run's own setting.
        method: as in `hopstate.evaluate`.

    Returns:
        Columns node, t and score, the chance of the second of two classes; of more, prediction and p_<class>.

    Raises:
        ConfigError: the run's method does not classify nodes at their events.
        TimeOrderError: a time before the last event that is known.
        DataError: an id that the run has not met, or a deleted node, or a time that is none.
        ShapeError: not a time for each node.
    """
    import pandas as pd
    import torch

    from hopstate.data.stream_checkpoint import load_stream_state
    from hopstate.streaming.live import fingerprint, outputs_at
    from hopstate.training.tasks.event_node import EventNodeTask

    given = nodes
    if t is None:
        if not is_frame(nodes) or not {"node", "t"} <= set(nodes.columns):
            raise ShapeError("give nodes and their times, or a table with columns node and t")
        nodes, t = nodes["node"].to_numpy(), nodes["t"].to_numpy()
    folder = RunFolder.open(run)
    check_temporal(folder, method)
    with (
        load_run(run, own, device=device, bare=True, method=method) as (trainer, task),
        torch.no_grad(),
        trainer.precision(),
    ):
        if not isinstance(task, EventNodeTask):
            name = settings_of_run(folder, method)[0].name
            raise ConfigError(f"{folder.path} is a run of {name}, which has no classes of nodes; see predict")
        start = None if fresh else state if state is not None else kept_state(folder)
        past = own_past(folder, task, own) if start is None else load_stream_state(start, model=fingerprint(task))
        dates = str(known_data(folder).get("dates") or "")
        rows, names, times = _asked(past, nodes, t, dates)
        found = outputs_at(task, past, rows, times)
        shown = shown_times(times, past.time_unit or "", dates)
        return with_index_of(pd.DataFrame({"node": names, "t": shown} | task.targets.columns(found)), given)


def _asked(past: StreamState, nodes: Any, t: Any, dates: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (Q,) rows of nodes, their ids, and times in the type of the past's."""
    names = np.atleast_1d(np.asarray(nodes))
    times = times_in(past, np.atleast_1d(np.asarray(t)), dates)
    if names.ndim != 1 or times.shape not in ((1,), names.shape):
        raise ShapeError(f"one time for each node, or one for all: got {names.shape} nodes and {times.shape} times")
    times = np.broadcast_to(times, names.shape).copy()
    early = np.flatnonzero(times < past.last_time) if len(past) else np.empty(0, np.int64)
    if len(early):
        asked, end = (shown_time(t, past.time_unit or "", dates) for t in (times[early[0]], past.last_time))
        raise TimeOrderError(
            f"node {names[early[0]].item()!r} is asked for at {asked}, but what is known has events up to {end}, and "
            f"{len(early)} of {len(names)} times lie before it; ask for later ones, or use "
            "predict, which gives what was known at each of the run's own events"
        )
    known = past.node_ids
    if known is not None:
        text = known.is_text
        rows = known.rows(names.astype(str) if text else names) if len(names) else np.empty(0, np.int64)
    else:
        whole = names.dtype.kind in "iu"
        rows = np.where((names >= 0) & (names < past.num_nodes), names, -1) if whole else np.full(len(names), -1)
    unmet = np.flatnonzero(rows < 0)
    if len(unmet):
        raise DataError(
            f"{len(unmet)} of {len(names)} nodes are none that the run has met, the first {names[unmet[0]].item()!r}; "
            "give ids as in its own data, or stream the events in which they occur"
        )
    rows = rows.astype(np.int64)
    return rows, names, times


LAST = np.iinfo(np.int64).max


def first_after(last: Any) -> Any:
    """Return the first time after that of the last event that is known, a number of numpy, of its type.

    Raises:
        TimeOrderError: there is none.
    """
    if last == LAST:
        raise TimeOrderError(f"the last event that is known is at {last}, after which no time can be told")
    return last.dtype.type(last + 1 if last.dtype.kind == "i" else np.nextafter(last, np.inf))


def times_in(past: StreamState, t: np.ndarray, dates: str, *, fractions: bool = False) -> np.ndarray:
    """Return times as numbers in the unit and type of a past's; dates without a zone are in that of the run's own.

    With fractions true, times that have some stay floats although the past's are whole numbers.
    """
    kind = past.time_dtype if len(past) else t.dtype
    if t.dtype.kind in "OUM":
        values = list(t) if t.dtype.kind == "M" else t.tolist()
        t = np.array(parse_times(values, past.time_unit or "", dates, "the run's events"))
    if t.dtype.kind == "O" and all(isinstance(value, int) for value in t.tolist()):
        t = t.astype(np.float64)  # beyond 64 bits, which is said below
    if t.dtype.kind not in "iuf":
        raise DataError(f"times are numbers in the unit of the run's own data, or dates; got {t.dtype}")
    wrong = ~np.isfinite(t)
    if fractions and t.dtype.kind == "f" and not wrong.any() and (t != np.floor(t)).any():
        kind = t.dtype
    if kind.kind != "f":  # 2.0**63 is the first float beyond int64
        wrong |= (t != np.floor(t)) | (t >= 2.0**63) | (t < -(2.0**63)) if t.dtype.kind == "f" else t > LAST
    if wrong.any():
        number = "a finite number" if kind.kind == "f" else "a whole number"
        raise DataError(f"{t[np.argmax(wrong)]} is no time of this run: its own data have {number} for each event")
    return t.astype(kind)
