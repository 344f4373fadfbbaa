"""Questions to a run as its exported program takes them, with the run's own answers beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hopstate.data.events import EventBatch
from hopstate.data.past import Past
from hopstate.errors import ConfigError, DataError, HopstateError
from hopstate.methods import method_of_run
from hopstate.methods.method import AnyMethod
from hopstate.runs.load import load_run
from hopstate.runs.queries.calibrated import Calibrator
from hopstate.runs.queries.names import nodes_of, read_pairs, times_of, with_rows
from hopstate.runs.queries.session import Session, session
from hopstate.streaming.history_scorer import HistoryNodeScorer, HistoryScorer, plain
from hopstate.streaming.pair_queries import PairQueries
from hopstate.training.exported import Asked, ExportForm
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.protocols import Task

SAMPLE = 100  # pairs that met, and as many of their ends that are drawn from other pairs; or nodes
Answers = dict[str, np.ndarray]


@dataclass(frozen=True)
class Questions:
    """What is asked of a run.

    Args:
        inputs: of its program, by name.
        said: gives the run's own outputs, by the names of the program's.
        count, what: how many of what are asked for.
    """

    inputs: Answers
    said: Callable[[], Answers]
    count: int
    what: str


def export_inputs(
    run: str | Path, pairs: Any = None, time: Any = None, *, own: Any = None, method: str | None = None
) -> dict[str, np.ndarray]:
    """Return the inputs of a run's exported program: for pairs at a time, or of the run's own graph or graphs.

    Args:
        run: the run folder.
        pairs, time, own, method: as in `hopstate.score`. A run of nodes has all nodes of its graph, whatever pairs are;
            a run over graphs takes numbers of graphs (G,) in their place, or None for all; a run of nodes of a stream
            ids of nodes (Q,). None asks the last pairs or nodes of a stream, or test links of a graph.

    Returns:
        An array for each input, by its name in export.json, which says what it holds.

    Raises:
        ConfigError: the run's method has no program, or is one of your own that makes no inputs.
        TimeOrderError, DataError, ShapeError: as `hopstate.score`; DataError too for graphs that are not there.
    """
    with questions(run, pairs, time, own=own, method=method) as asked:
        return asked.inputs


@contextmanager
def questions(
    run: str | Path,
    given: Any = None,
    time: Any = None,
    *,
    own: Any = None,
    method: str | None = None,
    sample: bool = False,
) -> Iterator[Questions]:
    """Yield what is asked of a run; see `export_inputs`.

    Args:
        run, given, time, own, method: as there.
        sample: of many nodes or graphs, ask of some.
    """
    folder = RunFolder.open(run)
    known = method_of_run(folder.read_json("config.json").get("method"), str(folder.path / "config.json"), method)
    if not callable(known.export):
        raise ConfigError(f"{known.name} has no program, so that there are no inputs: {known.export}")
    if known.data == "events":
        with session(run, links=False, own=own, device="cpu", method=method) as opened:
            ask = of_pairs if isinstance(opened.task, LinkTask) else of_nodes
            yield ask(opened, form_of(known, opened.task), given, time)
    else:
        with load_run(run, own, device="cpu", method=method) as (_, task), torch.no_grad():
            task.model.eval()
            yield of_graphs(form_of(known, task), given, known.data, sample=sample)


def form_of(method: AnyMethod, task: Task) -> ExportForm:
    """Return the form of a task's program.

    Raises:
        ConfigError: it makes no inputs.
    """
    assert callable(method.export)
    form: ExportForm = method.export(task)
    if form.fill is None:
        raise ConfigError(
            f"{method.name} makes no inputs (ExportForm.fill); `hopstate export` does write its program, whose "
            f"export.json says what each of them holds"
        )
    return form


def of_graphs(form: ExportForm, given: Any, kind: str, *, sample: bool) -> Questions:
    """Return what is asked of a run of a graph or of graphs: of what is given, of some or of all."""
    assert form.fill is not None
    names = [port.name for port in form.outputs]
    links = names == ["logit", "score"]
    asked = form.sample if sample and given is None else given if links or kind != "graph" else None
    inputs = _named(form, form.fill(asked))
    what = "pairs" if links else "graphs" if kind != "graph" else "nodes"
    first = inputs["pairs" if links else "sizes" if "sizes" in inputs else next(iter(inputs))]

    def said() -> Answers:
        if form.said is None:
            raise ConfigError("this method does not say what its own answers are (ExportForm.said)")
        found = form.said(asked).double()
        own = (found, found.sigmoid()) if links else (found,)
        return {name: value.numpy() for name, value in zip(names, own, strict=True)}

    return Questions(inputs, said, len(first), what)


def of_pairs(asked: Session, form: ExportForm, given: Any, time: Any) -> Questions:
    """Return what is asked of a run of links: pairs, or the last that met and others of their ends."""
    if given is None:
        events = last_events(asked.past)
        u, v = np.tile(events.src, 2), np.concatenate([events.dst, np.roll(events.dst, 1)])
        column = None
    else:
        src, dst, column = read_pairs(asked.past, given, (None,) * 3, asked.columns, asked.dates)
        nodes = (
            nodes_of(asked.past, ids, what, two_sets=asked.two_sets)
            for ids, what in ((src, "sources"), (dst, "targets"))
        )
        u, v = with_rows(asked.past, *nodes)
    t = times_of(asked.past, column if time is None else time, len(u), "pairs", asked.dates)
    follower: Any = asked.queries.at(t[0]) if len(np.unique(t)) == 1 else asked.queries.latest()

    inputs, worth = _filled(form, follower, (u, v), t), Calibrator(asked)

    def said() -> Answers:
        score = asked.queries.scores(u, v, t)
        found = {"score": score, "logit": _logits(follower, follower.score, u, v, t)}
        if isinstance(worth.curve, HopstateError):  # the program has no such output then, and says why
            return found
        return found | {"probability": worth.probabilities(score)[0]}

    return Questions(inputs, said, len(u), "pairs")


def of_nodes(asked: Session, form: ExportForm, given: Any, time: Any) -> Questions:
    """Return what is asked of a run of nodes of a stream: nodes, or the sources of the last events."""
    if given is None:
        nodes = np.unique(last_events(asked.past).src)
    else:
        nodes = nodes_of(asked.past, given, "nodes").rows
    if (nodes < 0).any():
        raise DataError(f"{int((nodes < 0).sum())} of {len(nodes)} nodes were never met; a program is asked of others")
    t = times_of(asked.past, time, len(nodes), "nodes", asked.dates)
    follower: Any = PairQueries(asked.task, asked.past).latest()
    name = form.outputs[0].name
    return Questions(
        _filled(form, follower, (nodes,), t),
        lambda: {name: _logits(follower, follower.score_nodes, nodes, t)},
        len(nodes),
        "nodes",
    )


def last_events(past: Past) -> EventBatch:
    """Return the last of a past's events that are no deletions.

    Raises:
        DataError: there is none.
    """
    found = past.events(max(0, len(past) - SAMPLE))
    rows = found.additions(np.arange(len(found)))
    if not len(rows):
        raise DataError("the run has seen no event, so that nothing can be asked of it")
    return found.take(rows)


def _filled(form: ExportForm, follower: Any, ends: tuple[np.ndarray, ...], t: np.ndarray) -> Answers:
    assert form.fill is not None
    if isinstance(follower, HistoryScorer):
        return _named(form, form.fill(follower.tokenizer.pairs(ends[0], ends[1], t)))
    if isinstance(follower, HistoryNodeScorer):
        return _named(form, form.fill(follower.tokenizer.nodes(ends[0], t)))
    return _named(form, form.fill(Asked(follower=follower, ends=np.stack(ends), t=t)))


def _logits(follower: Any, ask: Callable[..., Any], *columns: np.ndarray) -> np.ndarray:
    """Return what a follower's model says, without what makes scores of it."""
    answer, follower.answer = follower.answer, plain
    try:
        return ask(*columns).numpy()
    finally:
        follower.answer = answer


def _named(form: ExportForm, found: tuple[torch.Tensor, ...]) -> Answers:
    return {port.name: values.detach().numpy() for port, values in zip(form.inputs, found, strict=True)}


__all__ = ["export_inputs"]
