"""Questions to a run as its exported program takes them, and whether the program answers them as the run does."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hopstate.data.events import EventBatch
from hopstate.data.readers.pyg import weights_only
from hopstate.data.stream_state import StreamState
from hopstate.errors import ConfigError, DataError, FormatError, HopstateError, MissingExtraError
from hopstate.io.opening import read_json
from hopstate.methods import method_of_run
from hopstate.random import random_state_kept
from hopstate.runs.calibration import curve_of
from hopstate.runs.export import FILES, refuse, spec_of
from hopstate.runs.load import load_run
from hopstate.runs.queries import Session, session
from hopstate.runs.query_inputs import nodes_of, read_pairs, times_of, with_rows
from hopstate.streaming.history_scorer import HistoryNodeScorer, HistoryScorer, plain
from hopstate.streaming.live import PairQueries
from hopstate.training.exported import ExportSpec, StateQuery
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.link import LinkTask

PROMISED = 1e-5  # of a logit or an amount z as a part of 1 + |z|, as tests hold it (testing.asserts.PROGRAM)
SHARES = ("score", "probability")  # outputs between 0 and 1
SAMPLE = 100  # pairs that met, and as many of their ends that are drawn from other pairs; or nodes
Answers = dict[str, np.ndarray]


@dataclass(frozen=True)
class Questions:
    """What is asked of a run.

    Args:
        inputs: of its program, by name.
        answers: gives the run's own outputs, by the names of the program's.
        count, what: how many of what are asked for.
    """

    inputs: Answers
    answers: Callable[[], Answers]
    count: int
    what: str


@random_state_kept(0)
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
    refuse(known)
    if known.data == "events":
        with session(run, links=False, own=own, device="cpu", method=method) as opened:
            ask = of_pairs if isinstance(opened.task, LinkTask) else of_nodes
            yield ask(opened, spec_of(known, opened.task, fills=True), given, time)
    else:
        with load_run(run, own, device="cpu", method=method) as (_, task), torch.no_grad():
            task.model.eval()
            yield of_graphs(spec_of(known, task, fills=True), given, known.data, sample=sample)


def of_graphs(spec: ExportSpec, given: Any, kind: str, *, sample: bool) -> Questions:
    """Return what is asked of a run of a graph or of graphs: of what is given, of some or of all."""
    names = [port.name for port in spec.outputs]
    links = names == ["logit", "score"]
    asked = spec.sample if sample and given is None else given if links or kind != "graph" else None
    inputs = _named(spec, spec.filled(asked))
    what = "pairs" if links else "graphs" if kind != "graph" else "nodes"
    first = inputs["pairs" if links else "sizes" if "sizes" in inputs else next(iter(inputs))]

    def own_answers() -> Answers:
        if spec.reference is None:
            raise ConfigError("this method does not say what its own answers are (ExportSpec.reference)")
        found = spec.reference(asked).double()
        own = (found, found.sigmoid()) if links else (found,)
        return {name: value.numpy() for name, value in zip(names, own, strict=True)}

    return Questions(inputs, own_answers, len(first), what)


def of_pairs(asked: Session, spec: ExportSpec, given: Any, time: Any) -> Questions:
    """Return what is asked of a run of links: pairs, or the last that met and others of their ends."""
    if given is None:
        events = last_events(asked.past)
        u, v = np.tile(events.src, 2), np.concatenate([events.dst, np.roll(events.dst, 1)])
        column = None
    else:
        pairs = read_pairs(given, (None,) * 3, asked.columns, asked.past.node_ids)
        column = pairs.times(asked.past, asked.dates)
        u, v = with_rows(asked.past, asked.nodes(pairs.source, "sources"), asked.nodes(pairs.target, "targets"))
    t = times_of(asked.past, column if time is None else time, len(u), "pairs", asked.dates)
    follower: Any = asked.queries.at(t[0]) if len(np.unique(t)) == 1 else asked.queries.latest()
    inputs = _filled(spec, follower, (u, v), t)

    def own_answers() -> Answers:
        score = asked.queries.scores(u, v, t)
        found = {"score": score, "logit": _logits(follower, follower.score, u, v, t)}
        try:
            return found | {"probability": curve_of(asked)(score)}
        except HopstateError:  # the program has no such output then, and says why
            return found

    return Questions(inputs, own_answers, len(u), "pairs")


def of_nodes(asked: Session, spec: ExportSpec, given: Any, time: Any) -> Questions:
    """Return what is asked of a run of nodes of a stream: nodes, or the sources of the last events."""
    if given is None:
        nodes = np.unique(last_events(asked.past).src)
    else:
        nodes = nodes_of(asked.past, given, "nodes").rows
    if (nodes < 0).any():
        raise DataError(f"{int((nodes < 0).sum())} of {len(nodes)} nodes were never met; a program is asked of others")
    t = times_of(asked.past, time, len(nodes), "nodes", asked.dates)
    follower: Any = PairQueries(asked.task, asked.past).latest()
    name = spec.outputs[0].name
    return Questions(
        _filled(spec, follower, (nodes,), t),
        lambda: {name: _logits(follower, follower.score_nodes, nodes, t)},
        len(nodes),
        "nodes",
    )


def last_events(past: StreamState) -> EventBatch:
    """Return the last of a past's events that are no deletions.

    Raises:
        DataError: there is none.
    """
    found = past.events(max(0, len(past) - SAMPLE))
    rows = found.additions(np.arange(len(found)))
    if not len(rows):
        raise DataError("the run has seen no event, so that nothing can be asked of it")
    return found.take(rows)


def _filled(spec: ExportSpec, follower: Any, ends: tuple[np.ndarray, ...], t: np.ndarray) -> Answers:
    if isinstance(follower, HistoryScorer):
        return _named(spec, spec.filled(follower.tokenizer.pairs(ends[0], ends[1], t)))
    if isinstance(follower, HistoryNodeScorer):
        return _named(spec, spec.filled(follower.tokenizer.nodes(ends[0], t)))
    return _named(spec, spec.filled(StateQuery(follower=follower, ends=np.stack(ends), t=t)))


def _logits(follower: Any, ask: Callable[..., Any], *columns: np.ndarray) -> np.ndarray:
    answer, follower.answer = follower.answer, plain
    try:
        return ask(*columns).numpy()
    finally:
        follower.answer = answer


def _named(spec: ExportSpec, found: tuple[torch.Tensor, ...]) -> Answers:
    return {port.name: values.detach().numpy() for port, values in zip(spec.inputs, found, strict=True)}


@dataclass(frozen=True)
class Checked:
    """How near a program comes to its run.

    Args:
        asked, what: how many of what were asked for.
        differences: the largest by output; of logits and amounts z as a part of 1 + |z|.
        within: what is promised.
    """

    asked: int
    what: str
    differences: dict[str, float]
    within: float

    def text(self) -> str:
        largest = ", ".join(f"{name} {value:.1e}" for name, value in self.differences.items())
        parts = "" if self.differences.keys() <= {*SHARES} else " (of a logit or an amount z as a part of 1 + |z|)"
        return f"{self.asked:,} {self.what}, the largest differences from the run's own: {largest}{parts}"


@random_state_kept(0)
def check_program(
    run: str | Path, program: str | Path, pairs: Any = None, time: Any = None, *, own: Any = None,
    method: str | None = None,
) -> Checked:  # fmt: skip
    """Ask an exported program what its run is asked, and return by how much they differ.

    Args:
        run: the run folder.
        program: model.pt2 or model.onnx with export.json beside it, or their folder.
        pairs, time, own, method: as in `hopstate.export_inputs`; without pairs of a stream the last that met and as
            many other pairs of their ends, of many nodes or graphs some.

    Raises:
        ConfigError: a program of another method, or what `export_inputs` refuses.
        FormatError: a program that cannot be opened, or not without unpickling.
        MissingExtraError: an ONNX program, and onnxruntime is not installed.
        HopstateError: they differ by more than 1e-5.
    """
    path, facts = opened_facts(Path(program))
    needed(path.suffix)
    name = RunFolder.open(run).read_json("config.json").get("method")
    if facts["method"] != name:
        raise ConfigError(f"{path} is a program of {facts['method']}, and {run} a run of {name}")
    with questions(run, pairs, time, own=own, method=method, sample=True) as asked:
        taken = {port["name"] for port in facts["inputs"]}  # earlier programs lack some
        inputs = {name: value for name, value in asked.inputs.items() if name in taken}
        found = dict(zip((port["name"] for port in facts["outputs"]), answers(path, inputs), strict=True))
        wanted = asked.answers()
    between = {key: difference(key, value, wanted[key]) for key, value in found.items()}
    checked = Checked(asked.count, asked.what, between, PROMISED)
    if not all(value <= PROMISED for value in between.values()):
        raise HopstateError(f"{path} does not give what {run} gives: {checked.text()}; {PROMISED} is what is promised")
    return checked


def opened_facts(program: Path) -> tuple[Path, dict[str, Any]]:
    """Return a program's file and what export.json says of it."""
    folder = program if program.is_dir() else program.parent
    facts = read_json(folder / "export.json")
    if not {"format", "method", "inputs", "outputs"} <= facts.keys() or facts["format"] not in FILES:
        raise ConfigError(f"{folder / 'export.json'} is not what `hopstate export` writes")
    return folder / FILES[facts["format"]] if program.is_dir() else program, facts


def needed(suffix: str) -> None:
    """Raise MissingExtraError where a program of a kind cannot be run."""
    if suffix == ".onnx" and importlib.util.find_spec("onnxruntime") is None:
        raise MissingExtraError("to run ONNX needs onnxruntime: pip install 'hopstate[export]'")


def answers(path: Path, inputs: Answers) -> list[np.ndarray]:
    """Return what a program gives, in the order of its outputs.

    Raises:
        FormatError: it cannot be opened, or not without unpickling.
    """
    is_torch = path.suffix == ".pt2"
    try:
        program = _opened(path) if is_torch else _session(path)
    except Exception as error:  # torch and onnxruntime raise many kinds
        reason = str(error).strip().partition("\n")[0][:200]
        raise FormatError(f"{path} is no program that can be opened ({type(error).__name__}: {reason})") from error
    if is_torch:
        with torch.no_grad():
            found = program(*map(torch.from_numpy, inputs.values()))
        return [x.numpy() for x in (found if isinstance(found, tuple) else (found,))]
    taken = {port.name for port in program.get_inputs()}  # what the network does not read is none
    return program.run(None, {name: x for name, x in inputs.items() if name in taken})


def _opened(path: Path) -> Any:
    with weights_only():  # torch would unpickle parts of it
        return torch.export.load(path).module()


def _session(path: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def difference(name: str, found: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference, as a part of 1 + |wanted| where an output has no bounds; inf where one is NaN."""
    apart = np.abs(found.reshape(wanted.shape).astype(np.float64) - wanted)
    if name not in SHARES:
        apart /= 1 + np.abs(wanted)
    return float(np.where(np.isnan(apart), np.inf, apart).max(initial=0.0))


__all__ = ["Checked", "check_program", "export_inputs"]
