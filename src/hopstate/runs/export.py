"""A trained run as a program that needs no hopstate: torch.export's .pt2, or ONNX, and export.json that explains it."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.events import EventBatch
from hopstate.data.readers.pyg import weights_only
from hopstate.data.stream_state import StreamState
from hopstate.errors import ConfigError, DataError, FormatError, HopstateError, MissingExtraError
from hopstate.evaluation.calibration import Curve
from hopstate.io.files import replace_files
from hopstate.io.opening import printable_name, read_json
from hopstate.methods import method_of_run
from hopstate.methods.method import AnyMethod
from hopstate.methods.shared.programs import ExportSpec, Port, StateQuery
from hopstate.ops import use_reference_ops
from hopstate.random import random_state_kept
from hopstate.runs.load import load_run
from hopstate.runs.queries import Session, curve_of, session
from hopstate.runs.query_inputs import nodes_of, read_pairs, times_of, with_rows
from hopstate.streaming.history_scorer import HistoryNodeScorer, HistoryScorer, to_values
from hopstate.streaming.live import PairQueries
from hopstate.training.run_folder import RunFolder, json_text
from hopstate.training.tasks.link import LinkTask

if TYPE_CHECKING:
    import onnx

PROMISED = 1e-5  # of a logit or an amount z as a part of 1 + |z|, as tests hold it (testing.asserts.PROGRAM)
SHARES = ("score", "probability")  # outputs between 0 and 1
SAMPLE = 100  # pairs that met, and as many of their ends that are drawn from other pairs; or nodes
Answers = dict[str, np.ndarray]
Format = Literal["torch", "onnx"]
FILES: dict[str, str] = {"torch": "model.pt2", "onnx": "model.onnx"}
RUNTIMES = {18: "1.14", 19: "1.16", 20: "1.17", 21: "1.18"}  # opset to the first onnxruntime that reads it


@random_state_kept(0)
def export_run(
    run: str | Path,
    to: Format,
    out: str | Path,
    *,
    data: Any = None,
    method: str | None = None,
    opset: int | None = None,
) -> Path:
    """Write a finished run's network as a program, with export.json beside it, and return the program's file.

    Args:
        run: the run folder.
        to: "torch" (torch.export, model.pt2) or "onnx" (model.onnx).
        out: folder to write to; a program of the same format there is replaced.
        data: the run's own data, where they are nowhere else.
        method: as in `hopstate.evaluate`.
        opset: version of ONNX's operators, 18 or more; null takes what torch writes by default (20).

    Raises:
        ConfigError: an unknown format or opset, or a method that has no program, with the reason.
        MissingExtraError: ONNX is asked for and its packages are not installed.
    """
    if to not in FILES:
        raise ConfigError(f"a run is exported to {' or '.join(FILES)}; got {printable_name(to)!r}")
    if opset is not None and (to != "onnx" or opset not in RUNTIMES):
        raise ConfigError(f"opset is of ONNX, {min(RUNTIMES)} to {max(RUNTIMES)}; got {opset} (--to {to})")
    if to == "onnx":
        needed("onnx", "onnxscript")
    folder, known = _exported_method(run, method)
    with load_run(run, data, device="cpu", method=method) as (_, task):
        spec = spec_of(known, task)
        if isinstance(task, LinkTask):
            spec = with_probabilities(spec, curve_of_run(folder.path, data, method))
        spec.module.eval()
        content, versions = packed(traced(spec), spec, to, opset)
        facts = json_text({"format": to, "method": known.name, "versions": versions, **described(spec)})
    target = Path(out)
    replace_files(
        {
            target / FILES[to]: lambda path: path.write_bytes(content),
            target / "export.json": lambda path: path.write_text(facts, encoding="utf-8"),
        }
    )
    return target / FILES[to]


def refuse(method: AnyMethod) -> None:
    """Raise ConfigError, with the reason, for a method that has no program."""
    if not callable(method.export):
        reason = method.export or "it does not say how (Method.export)"
        raise ConfigError(f"{method.name} is not exported: {reason}")


def _exported_method(run: str | Path, method: str | None) -> tuple[RunFolder, AnyMethod]:
    folder = RunFolder.open(run)
    known = method_of_run(folder.read_json("config.json").get("method"), str(folder.path / "config.json"), method)
    refuse(known)
    return folder, known


def spec_of(method: AnyMethod, task: Any, *, fills: bool = False) -> ExportSpec:
    """Return what is exported of a task; `fills` refuses a method that makes no inputs."""
    assert callable(method.export)
    spec: ExportSpec = method.export(task)
    if fills and spec.fill is None:
        raise ConfigError(
            f"{method.name} makes no inputs (ExportSpec.fill); `hopstate export` does write its program, whose "
            f"export.json says what each of them holds"
        )
    return spec


def traced(spec: ExportSpec) -> torch.export.ExportedProgram:
    """Return the program of a module, its operators in their reference form, with the lengths that are left free."""
    free: dict[str, Any] = {axis: torch.export.Dim(axis) for port in spec.inputs for axis in port.axes if axis}
    shapes = tuple({i: free[axis] for i, axis in enumerate(port.axes) if axis} for port in spec.inputs)
    with torch.no_grad(), quiet(), use_reference_ops():
        return torch.export.export(_InOrder(spec.module), spec.example, dynamic_shapes=(shapes,), strict=False)


class _InOrder(nn.Module):
    """A module with one argument an input, so that the program's inputs stand in order."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.module(*inputs)


def packed(
    program: torch.export.ExportedProgram, spec: ExportSpec, to: Format, opset: int | None = None
) -> tuple[bytes, dict[str, Any]]:
    buffer = io.BytesIO()
    with quiet():
        if to == "torch":
            torch.export.save(program, buffer)
            return buffer.getvalue(), {"torch": torch.__version__}
        taken, given = ([port.name for port in ports] for ports in (spec.inputs, spec.outputs))
        names: dict[str, Any] = {"input_names": taken, "output_names": given, "opset_version": opset}
        made = torch.onnx.export(one_by_one(program), dynamo=True, verbose=False, **names)
    if made is None:
        raise HopstateError("torch.onnx.export gave no program")
    refuse_races(made)
    from onnx import helper

    model = made.model_proto
    # older runtimes refuse a newer file format, also where none of its novelties is used
    model.ir_version = min(model.ir_version, helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True))
    found = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    return model.SerializeToString(), {"opset": found, "ir": model.ir_version, "onnxruntime": RUNTIMES.get(found)}


# ---- operations that ONNX has, and that add in one order ---------------------------------------------------
def one_by_one(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program whose sums over rows are added one by one wherever it runs, of operations that ONNX has.

    onnxruntime adds up what torch's exporter makes of `index_add` (ScatterND) in several threads that overwrite each
    other, https://github.com/microsoft/onnxruntime/issues/18048; that of `scatter_add` (ScatterElements) in one. ONNX
    has no operation for `repeat_interleave` and `segment_reduce`.
    """
    aten = torch.ops.aten
    return program.run_decompositions(
        {
            aten.index_add.default: _scattered,
            aten.repeat_interleave.Tensor: _repeated,
            aten.repeat_interleave.self_Tensor: _repeated_rows,
            aten.segment_reduce.default: _reduced,
        }
    )


def _scattered(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    shape = [1] * source.dim()
    shape[dim] = -1
    added = source if alpha == 1 else source * alpha
    return x.scatter_add(dim, index.view(shape).expand_as(source), added)


def _repeated(repeats: Tensor, *, output_size: int) -> Tensor:
    """Return repeat_interleave's (output_size,) rows of repeats (S,)."""
    starts, ones = repeats.cumsum(0) - repeats, torch.ones_like(repeats)
    return repeats.new_zeros(output_size + 1).scatter_add(0, starts, ones).narrow(0, 0, output_size).cumsum(0) - 1


def _repeated_rows(x: Tensor, repeats: Tensor, dim: int | None = None, *, output_size: int) -> Tensor:
    return x.index_select(dim or 0, _repeated(repeats, output_size=output_size))


def _reduced(data: Tensor, reduce: str, *, offsets: Tensor, initial: float, **_: Any) -> Tensor:
    rows = _repeated(offsets.diff(), output_size=data.shape[0]).view(-1, *[1] * (data.dim() - 1)).expand_as(data)
    out = data.new_full((offsets.shape[0] - 1, *data.shape[1:]), initial)
    return out.scatter_reduce(0, rows, data, {"sum": "sum", "max": "amax"}[reduce])


def refuse_races(program: torch.onnx.ONNXProgram) -> None:
    """Raise HopstateError for an ONNX program with sums that onnxruntime does not add one by one."""
    model = program.model_proto
    for node in chain(_nodes(model.graph), *map(_nodes, model.functions)):
        how = {a.name: a.s for a in node.attribute}.get("reduction", b"none")
        if node.op_type == "ScatterND" and how != b"none":
            raise HopstateError(
                f"torch {torch.__version__} writes sums (ScatterND, {how.decode()}) that threads of onnxruntime "
                "overwrite, so that answers would differ from one call to the next; export with --to torch, and tell us"
            )


def _nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


# ---- what programs of links carry besides the network: a run's curve of probabilities -----------------------
def curve_of_run(run: Path, own: Any, method: str | None) -> Curve | HopstateError:
    with session(run, own=own, device="cpu", method=method) as opened:
        try:
            return curve_of(opened)
        except HopstateError as error:
            return error


class Calibrated(nn.Module):
    """A network's (P,) logits, the scores of `hopstate.score`, their sigmoid, and with a curve their probabilities."""

    knots: Tensor
    values: Tensor

    def __init__(self, module: nn.Module, curve: Curve | None) -> None:
        super().__init__()
        self.module, self.has_curve = module, curve is not None
        if curve is not None:
            self.register_buffer("knots", torch.from_numpy(curve.scores.astype(np.float64)))
            self.register_buffer("values", torch.from_numpy(curve.values.astype(np.float64)))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        logit = self.module(*inputs)
        score = torch.sigmoid(logit.double())
        return (logit, score, self._interpolated(score)) if self.has_curve else (logit, score)

    def _interpolated(self, score: Tensor) -> Tensor:
        """Return the curve at scores (P,): linear between knots, as at the nearest one beyond them."""
        count = (score.unsqueeze(1) >= self.knots).sum(1)
        left, right = (count - 1).clamp(min=0), count.clamp(max=len(self.knots) - 1)
        low, width = self.knots[left], self.knots[right] - self.knots[left]
        share = ((score - low) / torch.where(width > 0, width, 1.0)).clamp(0.0, 1.0) * (width > 0)
        return self.values[left] + share * (self.values[right] - self.values[left])


def with_probabilities(spec: ExportSpec, curve: Curve | HopstateError) -> ExportSpec:
    """Return a model of pairs with scores and, where there is a curve, probabilities beside its logits."""
    outputs = [
        *spec.outputs,
        Port(name="score", meaning="sigmoid of the logit, as hopstate.score has it", axes=("pair",)),
    ]
    about, found = spec.preprocessing, None
    if isinstance(curve, HopstateError):
        about = f"{about}; there is no output of probabilities: {curve}"
    else:
        found = curve
        outputs.append(Port(name="probability", meaning=f"of the score, {curve.text()}", axes=("pair",)))
    return replace(spec, module=Calibrated(spec.module, found), outputs=tuple(outputs), preprocessing=about)


# ---- export.json -------------------------------------------------------------------------------------------
def described(spec: ExportSpec) -> dict[str, Any]:
    """Return what export.json says of inputs, output, preprocessing, and what is left out."""
    with torch.no_grad():
        found = spec.module(*spec.example)
    outputs = (found,) if isinstance(found, Tensor) else found
    return {
        "inputs": [_port_facts(port, tensor) for port, tensor in zip(spec.inputs, spec.example, strict=True)],
        "outputs": [_port_facts(port, tensor) for port, tensor in zip(spec.outputs, outputs, strict=True)],
        "preprocessing": spec.preprocessing,
        "left_out": spec.left_out,
    }


def _port_facts(port: Port, like: Tensor) -> dict[str, Any]:
    """Return name, dtype, shape (a name where a length is free) and meaning of a port."""
    shape = [axis or size for axis, size in zip(port.axes, like.shape, strict=True)]
    return {"name": port.name, "dtype": str(like.dtype).removeprefix("torch."), "shape": shape, "meaning": port.meaning}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep exporters from telling of their own affairs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


# ---- the same queries to a run and to its program -------------------------------------------------------------------
@dataclass(frozen=True)
class Questions:
    """What is asked of a run: inputs of its program by name, its own outputs by name, and how many of what they are."""

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


@contextlib.contextmanager
def questions(
    run: str | Path,
    given: Any = None,
    time: Any = None,
    *,
    own: Any = None,
    method: str | None = None,
    sample: bool = False,
) -> Iterator[Questions]:
    """Yield what is asked of a run, as in `export_inputs`; with sample, of many nodes or graphs some."""
    _, known = _exported_method(run, method)
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
    activation, follower.activation = follower.activation, to_values
    try:
        return ask(*columns).numpy()
    finally:
        follower.activation = activation


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
    if path.suffix == ".onnx":
        needed("onnxruntime")
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


def needed(*packages: str) -> None:
    """Raise MissingExtraError where a package of ONNX is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"ONNX needs {' and '.join(missing)}: pip install 'hopstate[export]'")


def answers(path: Path, inputs: Answers) -> list[np.ndarray]:
    """Return what a program gives, in the order of its outputs.

    Raises:
        FormatError: it cannot be opened, or not without unpickling.
    """
    is_torch = path.suffix == ".pt2"
    try:
        if is_torch:
            with weights_only():  # torch would unpickle parts of it
                program: Any = torch.export.load(path).module()
        else:
            import onnxruntime

            program = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # torch and onnxruntime raise many kinds
        reason = str(error).strip().partition("\n")[0][:200]
        raise FormatError(f"{path} is no program that can be opened ({type(error).__name__}: {reason})") from error
    if is_torch:
        with torch.no_grad():
            found = program(*map(torch.from_numpy, inputs.values()))
        return [x.numpy() for x in (found if isinstance(found, tuple) else (found,))]
    taken = {port.name for port in program.get_inputs()}  # what the network does not read is none
    return program.run(None, {name: x for name, x in inputs.items() if name in taken})


def difference(name: str, found: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference, as a part of 1 + |wanted| where an output has no bounds; inf where one is NaN."""
    apart = np.abs(found.reshape(wanted.shape).astype(np.float64) - wanted)
    if name not in SHARES:
        apart /= 1 + np.abs(wanted)
    return float(np.where(np.isnan(apart), np.inf, apart).max(initial=0.0))
