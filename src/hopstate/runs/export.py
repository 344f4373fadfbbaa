"""Export a trained run as a standalone program (torch.export .pt2 or ONNX) with export.json, which describes it."""

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
from hopstate.evaluation.calibration import IsotonicCurve
from hopstate.io.files import replace_files
from hopstate.io.opening import read_json, shorten
from hopstate.layers.typed import TypeEmbedding
from hopstate.methods import method_of_run
from hopstate.methods.method import AnyMethod
from hopstate.methods.shared.programs import ExportSpec, Port, StateQuery
from hopstate.ops import use_reference_ops
from hopstate.random import random_state_kept
from hopstate.runs.load import load_run
from hopstate.runs.queries import QuerySession, calibration_of, open_session
from hopstate.runs.query_inputs import NO_COLUMNS, pair_rows, query_times, read_pairs, resolve_nodes
from hopstate.streaming.history_scorer import HistoryNodeScorer, HistoryScorer, to_values
from hopstate.streaming.live import PairQueries
from hopstate.training.run_folder import RunFolder, json_text
from hopstate.training.tasks.link import LinkTask

if TYPE_CHECKING:
    import onnx

TOLERANCE = 1e-5  # relative to 1 + |z| for logits and regression outputs z; equals testing.asserts.PROGRAM
BOUNDED_OUTPUTS = ("score", "probability")  # outputs between 0 and 1
SAMPLE_SIZE = 100  # latest events that `check_program` queries
Arrays = dict[str, np.ndarray]
Format = Literal["torch", "onnx"]
FILES: dict[str, str] = {"torch": "model.pt2", "onnx": "model.onnx"}
RUNTIMES = {18: "1.14", 19: "1.16", 20: "1.17", 21: "1.18"}  # opset to the first onnxruntime that reads it


@random_state_kept(0)
def export_run(
    run: str | Path,
    to: Format,
    out: str | Path,
    *,
    opset: int | None = None,
) -> Path:
    """Export the network of a finished run with its export.json, and return the program's file.

    Args:
        run: the run folder.
        to: "torch" (torch.export, model.pt2) or "onnx" (model.onnx).
        out: folder to write to; a program of the same format there is replaced.
        opset: version of ONNX's operators, at least 18. Default: torch's own (20).

    Raises:
        ConfigError: the format or opset is unknown, or the method has no program.
        MissingExtraError: ONNX packages are not installed.

    Example:
        >>> run = hopstate.fit("graphmixer", events, loop__epochs=1, loop__progress=False)
        >>> hopstate.export(run.path, "torch", "program").name
        'model.pt2'
    """
    if to not in FILES:
        raise ConfigError(f"a run is exported to {' or '.join(FILES)}; got {shorten(to)!r}")
    if opset is not None and (to != "onnx" or opset not in RUNTIMES):
        raise ConfigError(f"opset is of ONNX, {min(RUNTIMES)} to {max(RUNTIMES)}; got {opset} (--to {to})")
    if to == "onnx":
        require_packages("onnx", "onnxscript")
    folder, known = _exported_method(run)
    with load_run(run, device="cpu") as (_, task):
        spec = export_spec(known, task)
        if isinstance(task, LinkTask):
            spec = add_probabilities(spec, calibration_of_run(folder.path))
        spec.module.eval()
        content, versions = serialize(trace(spec), spec, to, opset)
        facts = json_text({"format": to, "method": known.name, "versions": versions, **describe_ports(spec)})
    target = Path(out)
    replace_files(
        {
            target / FILES[to]: lambda path: path.write_bytes(content),
            target / "export.json": lambda path: path.write_text(facts, encoding="utf-8"),
        }
    )
    return target / FILES[to]


def reject_without_export(method: AnyMethod) -> None:
    """Raise ConfigError, with the reason, if a method has no exported program."""
    if not callable(method.export):
        reason = method.export or "it does not say how (Method.export)"
        raise ConfigError(f"{method.name} cannot be exported: {reason}")


def _exported_method(run: str | Path) -> tuple[RunFolder, AnyMethod]:
    folder = RunFolder.open(run)
    known = method_of_run(folder.read_json("config.json").get("method"), str(folder.path / "config.json"))
    reject_without_export(known)
    return folder, known


def export_spec(method: AnyMethod, task: Any, *, fills: bool = False) -> ExportSpec:
    """Return the export of a task; `fills` rejects methods that do not build program inputs."""
    assert callable(method.export)
    if any(isinstance(layer, TypeEmbedding) for layer in task.model.modules()):
        raise ConfigError(
            f"{method.name} cannot be exported with relations or node types, for which programs have no inputs: train "
            "without (--read.relation_column none, --read.node_type_column none)"
        )
    spec: ExportSpec = method.export(task)
    if fills and spec.fill is None:
        raise ConfigError(
            f"{method.name} does not build program inputs (ExportSpec.fill). `hopstate export` writes its program, and "
            f"export.json describes each input"
        )
    return spec


def trace(spec: ExportSpec) -> torch.export.ExportedProgram:
    """Trace a module with reference operators and dynamic lengths."""
    free: dict[str, Any] = {axis: torch.export.Dim(axis) for port in spec.inputs for axis in port.axes if axis}
    shapes = tuple({i: free[axis] for i, axis in enumerate(port.axes) if axis} for port in spec.inputs)
    with torch.no_grad(), silence_exporters(), use_reference_ops():
        return torch.export.export(_OrderedInputs(spec.module), spec.example, dynamic_shapes=(shapes,), strict=False)


class _OrderedInputs(nn.Module):
    """A module that takes each input as a positional argument, so that the program keeps their order."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.module(*inputs)


def serialize(
    program: torch.export.ExportedProgram, spec: ExportSpec, to: Format, opset: int | None = None
) -> tuple[bytes, dict[str, Any]]:
    buffer = io.BytesIO()
    with silence_exporters():
        if to == "torch":
            torch.export.save(program, buffer)
            return buffer.getvalue(), {"torch": torch.__version__}
        input_names, output_names = ([port.name for port in ports] for ports in (spec.inputs, spec.outputs))
        names: dict[str, Any] = {"input_names": input_names, "output_names": output_names, "opset_version": opset}
        onnx_program = torch.onnx.export(sequential_sums(program), dynamo=True, verbose=False, **names)
    if onnx_program is None:
        raise HopstateError("torch.onnx.export gave no program")
    reject_racing_sums(onnx_program)
    from onnx import helper

    model = onnx_program.model_proto
    # older runtimes reject a newer file format even if none of its features is used
    model.ir_version = min(model.ir_version, helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True))
    opset_found = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    return model.SerializeToString(), {
        "opset": opset_found,
        "ir": model.ir_version,
        "onnxruntime": RUNTIMES.get(opset_found),
    }


# ---- ONNX decompositions -------------------------------------------------------------------------------------
def sequential_sums(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Decompose a program into ONNX operations whose row sums do not race between threads.

    torch's exporter turns `index_add` into ScatterND, whose threads overwrite each other in onnxruntime, see
    https://github.com/microsoft/onnxruntime/issues/18048. ScatterElements (`scatter_add`) runs in one thread. ONNX
    lacks `repeat_interleave` and `segment_reduce`.
    """
    aten = torch.ops.aten
    return program.run_decompositions(
        {
            aten.index_add.default: _index_add,
            aten.repeat_interleave.Tensor: _repeat_interleave,
            aten.repeat_interleave.self_Tensor: _repeat_rows,
            aten.segment_reduce.default: _segment_reduce,
        }
    )


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    shape = [1] * source.dim()
    shape[dim] = -1
    added = source if alpha == 1 else source * alpha
    return x.scatter_add(dim, index.view(shape).expand_as(source), added)


def _repeat_interleave(repeats: Tensor, *, output_size: int) -> Tensor:
    """Return repeat_interleave's (output_size,) rows of repeats (S,)."""
    starts, ones = repeats.cumsum(0) - repeats, torch.ones_like(repeats)
    return repeats.new_zeros(output_size + 1).scatter_add(0, starts, ones).narrow(0, 0, output_size).cumsum(0) - 1


def _repeat_rows(x: Tensor, repeats: Tensor, dim: int | None = None, *, output_size: int) -> Tensor:
    return x.index_select(dim or 0, _repeat_interleave(repeats, output_size=output_size))


def _segment_reduce(data: Tensor, reduce: str, *, offsets: Tensor, initial: float, **_: Any) -> Tensor:
    rows = (
        _repeat_interleave(offsets.diff(), output_size=data.shape[0]).view(-1, *[1] * (data.dim() - 1)).expand_as(data)
    )
    out = data.new_full((offsets.shape[0] - 1, *data.shape[1:]), initial)
    return out.scatter_reduce(0, rows, data, {"sum": "sum", "max": "amax"}[reduce])


def reject_racing_sums(program: torch.onnx.ONNXProgram) -> None:
    """Raise HopstateError for an ONNX program with sums that race between onnxruntime's threads."""
    model = program.model_proto
    for node in chain(_nodes(model.graph), *map(_nodes, model.functions)):
        reduction = {a.name: a.s for a in node.attribute}.get("reduction", b"none")
        if node.op_type == "ScatterND" and reduction != b"none":
            raise HopstateError(
                f"torch {torch.__version__} writes sums (ScatterND, {reduction.decode()}) that threads of onnxruntime "
                "overwrite, so results would differ between calls. Export with --to torch, and report this"
            )


def _nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


# ---- calibration in link programs ---------------------------------------------------------------------------
def calibration_of_run(run: Path) -> IsotonicCurve | HopstateError:
    with open_session(run, device="cpu") as opened:
        try:
            return calibration_of(opened)
        except HopstateError as error:
            return error


class Calibrated(nn.Module):
    """Return (P,) logits, scores (their sigmoid) and, with a calibration curve, probabilities."""

    knots: Tensor
    values: Tensor

    def __init__(self, module: nn.Module, curve: IsotonicCurve | None) -> None:
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
        """Interpolate the curve linearly at scores (P,), constant outside its knots."""
        count = (score.unsqueeze(1) >= self.knots).sum(1)
        left, right = (count - 1).clamp(min=0), count.clamp(max=len(self.knots) - 1)
        low, width = self.knots[left], self.knots[right] - self.knots[left]
        share = ((score - low) / torch.where(width > 0, width, 1.0)).clamp(0.0, 1.0) * (width > 0)
        return self.values[left] + share * (self.values[right] - self.values[left])


def add_probabilities(spec: ExportSpec, curve: IsotonicCurve | HopstateError) -> ExportSpec:
    """Add scores and, if a curve exists, probabilities to the outputs of a link model."""
    outputs = [
        *spec.outputs,
        Port(name="score", meaning="sigmoid of the logit, as hopstate.score has it", axes=("pair",)),
    ]
    about, found = spec.preprocessing, None
    if isinstance(curve, HopstateError):
        about = f"{about}; probabilities are not exported: {curve}"
    else:
        found = curve
        outputs.append(Port(name="probability", meaning=f"of the score, {curve.text()}", axes=("pair",)))
    return replace(spec, module=Calibrated(spec.module, found), outputs=tuple(outputs), preprocessing=about)


# ---- export.json -------------------------------------------------------------------------------------------
def describe_ports(spec: ExportSpec) -> dict[str, Any]:
    """Return inputs, outputs, preprocessing and omissions for export.json."""
    with torch.no_grad():
        example_outputs = spec.module(*spec.example)
    outputs = (example_outputs,) if isinstance(example_outputs, Tensor) else example_outputs
    return {
        "inputs": [_port_facts(port, tensor) for port, tensor in zip(spec.inputs, spec.example, strict=True)],
        "outputs": [_port_facts(port, tensor) for port, tensor in zip(spec.outputs, outputs, strict=True)],
        "preprocessing": spec.preprocessing,
        "left_out": spec.left_out,
    }


def _port_facts(port: Port, like: Tensor) -> dict[str, Any]:
    """Return name, dtype, shape (dynamic lengths by name) and meaning of a port."""
    shape = [axis or size for axis, size in zip(port.axes, like.shape, strict=True)]
    return {"name": port.name, "dtype": str(like.dtype).removeprefix("torch."), "shape": shape, "meaning": port.meaning}


@contextlib.contextmanager
def silence_exporters() -> Iterator[None]:
    """Silence logging and warnings of the exporters."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


# ---- comparison of a run and its program -------------------------------------------------------------------
@dataclass(frozen=True)
class ProgramQueries:
    """Queries of an exported program, with the outputs of the run that they are compared with.

    Args:
        inputs: arrays by input name.
        expected: computes the run's outputs by name.
        count, what: number and kind of the queries: pairs, nodes or graphs.
    """

    inputs: Arrays
    expected: Callable[[], Arrays]
    count: int
    what: str


@random_state_kept(0)
def export_inputs(run: str | Path, pairs: Any = None, time: Any = None) -> dict[str, np.ndarray]:
    """Return input arrays for the exported program of a run.

    Args:
        run: the run folder.
        pairs: (source, target) pairs of a link run, (Q,) node ids of a node run on a stream, or (G,) graph indices of a
            run on graphs. Node runs on a graph ignore them and use all nodes. Default: the last pairs or nodes of a
            stream, test links of a graph, or all graphs.
        time: as in `hopstate.score`.

    Returns:
        One array per input, by its name in export.json, which also describes it.

    Raises:
        ConfigError: the run's method has no program, or is one of your own that makes no inputs.
        TimeOrderError, DataError, ShapeError: as `hopstate.score`; DataError too for graphs that are not there.

    Example:
        >>> run = hopstate.fit("graphmixer", events, loop__epochs=1, loop__progress=False)
        >>> sorted(hopstate.export_inputs(run.path))
        ['gaps', 'lengths']
    """
    with program_queries(run, pairs, time) as queries:
        return queries.inputs


@contextlib.contextmanager
def program_queries(
    run: str | Path,
    given: Any = None,
    time: Any = None,
    *,
    sample: bool = False,
) -> Iterator[ProgramQueries]:
    """Yield the queries of `export_inputs`; with sample=True only some of many nodes or graphs."""
    _, known = _exported_method(run)
    if known.data == "events":
        with open_session(run, links=False, device="cpu") as opened:
            ask = pair_queries if isinstance(opened.task, LinkTask) else node_queries
            yield ask(opened, export_spec(known, opened.task, fills=True), given, time)
    else:
        with load_run(run, device="cpu") as (_, task), torch.no_grad():
            task.model.eval()
            yield graph_queries(export_spec(known, task, fills=True), given, known.data, sample=sample)


def graph_queries(spec: ExportSpec, given: Any, kind: str, *, sample: bool) -> ProgramQueries:
    """Return queries of a run on one graph or on several: those given, a sample, or all."""
    names = [port.name for port in spec.outputs]
    links = names == ["logit", "score"]
    chosen = spec.sample if sample and given is None else given if links or kind != "graph" else None
    inputs = _by_port_name(spec, spec.filled(chosen))
    what = "pairs" if links else "graphs" if kind != "graph" else "nodes"
    first = inputs["pairs" if links else "sizes" if "sizes" in inputs else next(iter(inputs))]

    def run_outputs() -> Arrays:
        if spec.reference is None:
            raise ConfigError("this method has no reference outputs (ExportSpec.reference)")
        expected = spec.reference(chosen).double()
        outputs = (expected, expected.sigmoid()) if links else (expected,)
        return {name: value.numpy() for name, value in zip(names, outputs, strict=True)}

    return ProgramQueries(inputs, run_outputs, len(first), what)


def pair_queries(opened: QuerySession, spec: ExportSpec, given: Any, time: Any) -> ProgramQueries:
    """Return pair queries of a stream; by default the last events, and as many pairs with shifted destinations."""
    if given is None:
        events = last_events(opened.past)
        u, v = np.tile(events.src, 2), np.concatenate([events.dst, np.roll(events.dst, 1)])
        column = None
    else:
        pairs = read_pairs(given, NO_COLUMNS, opened.columns, opened.past.node_ids)
        column = pairs.times(opened.past, opened.dates)
        u, v = pair_rows(opened.past, opened.nodes(pairs.source, "sources"), opened.nodes(pairs.target, "targets"))
    t = query_times(opened.past, column if time is None else time, len(u), "pairs", opened.dates)
    follower: Any = opened.queries.at(t[0]) if len(np.unique(t)) == 1 else opened.queries.latest()
    inputs = _program_inputs(spec, follower, (u, v), t)

    def run_outputs() -> Arrays:
        score = opened.queries.scores(u, v, t)
        outputs = {"score": score, "logit": _logits(follower, follower.score, u, v, t)}
        try:
            return outputs | {"probability": calibration_of(opened)(score)}
        except HopstateError:  # the program has no such output then, and says why
            return outputs

    return ProgramQueries(inputs, run_outputs, len(u), "pairs")


def node_queries(opened: QuerySession, spec: ExportSpec, given: Any, time: Any) -> ProgramQueries:
    """Return node queries of a stream; by default the sources of the last events."""
    if given is None:
        nodes = np.unique(last_events(opened.past).src)
    else:
        nodes = resolve_nodes(opened.past, given, "nodes").rows
    if (nodes < 0).any():
        raise DataError(
            f"{int((nodes < 0).sum())} of {len(nodes)} nodes have no event. Query nodes that occur in the events"
        )
    t = query_times(opened.past, time, len(nodes), "nodes", opened.dates)
    follower: Any = PairQueries(opened.task, opened.past).latest()
    name = spec.outputs[0].name
    return ProgramQueries(
        _program_inputs(spec, follower, (nodes,), t),
        lambda: {name: _logits(follower, follower.score_nodes, nodes, t)},
        len(nodes),
        "nodes",
    )


def last_events(past: StreamState) -> EventBatch:
    """Return the latest events of a state without deletions."""
    events = past.events(max(0, len(past) - SAMPLE_SIZE))
    rows = events.additions(np.arange(len(events)))
    if not len(rows):
        raise DataError("the run has no events to query")
    return events.take(rows)


def _program_inputs(spec: ExportSpec, follower: Any, ends: tuple[np.ndarray, ...], t: np.ndarray) -> Arrays:
    if isinstance(follower, HistoryScorer):
        return _by_port_name(spec, spec.filled(follower.tokenizer.pairs(ends[0], ends[1], t)))
    if isinstance(follower, HistoryNodeScorer):
        return _by_port_name(spec, spec.filled(follower.tokenizer.nodes(ends[0], t)))
    return _by_port_name(spec, spec.filled(StateQuery(follower=follower, ends=np.stack(ends), t=t)))


def _logits(follower: Any, ask: Callable[..., Any], *columns: np.ndarray) -> np.ndarray:
    activation, follower.activation = follower.activation, to_values
    try:
        return ask(*columns).numpy()
    finally:
        follower.activation = activation


def _by_port_name(spec: ExportSpec, outputs: tuple[torch.Tensor, ...]) -> Arrays:
    return {port.name: values.detach().numpy() for port, values in zip(spec.inputs, outputs, strict=True)}


@dataclass(frozen=True)
class ProgramCheck:
    """Differences between the outputs of a program and of its run.

    Args:
        num_queries, kind: number and kind of the queries.
        differences: the largest by output. Logits and regression outputs z are relative to 1 + |z|.
        tolerance: the largest permitted difference.
    """

    num_queries: int
    kind: str
    differences: dict[str, float]
    tolerance: float

    def text(self) -> str:
        largest = ", ".join(f"{name} {value:.1e}" for name, value in self.differences.items())
        parts = (
            ""
            if self.differences.keys() <= {*BOUNDED_OUTPUTS}
            else " (relative to 1 + |z| for logits and regression outputs z)"
        )
        return f"{self.num_queries:,} {self.kind}, largest differences from the run: {largest}{parts}"


@random_state_kept(0)
def check_program(run: str | Path, program: str | Path) -> ProgramCheck:
    """Compare the outputs of an exported program with those of its run.

    The queries are the last events of a stream and as many random pairs, or a sample of nodes or graphs.

    Args:
        run: the run folder.
        program: model.pt2 or model.onnx in the folder of its export.json, or that folder.

    Raises:
        ConfigError: a program of another method, or what `export_inputs` refuses.
        FormatError: a program that cannot be opened, or not without unpickling.
        MissingExtraError: an ONNX program, and onnxruntime is not installed.
        HopstateError: they differ by more than 1e-5.

    Example:
        >>> run = hopstate.fit("graphmixer", events, loop__epochs=1, loop__progress=False)
        >>> program = hopstate.export(run.path, "torch", "checked")
        >>> max(hopstate.check_program(run.path, program).differences.values()) < 1e-5
        True
    """
    path, facts = read_export_json(Path(program))
    if path.suffix == ".onnx":
        require_packages("onnxruntime")
    name = RunFolder.open(run).read_json("config.json").get("method")
    if facts["method"] != name:
        raise ConfigError(f"{path} is a program of {facts['method']}, and {run} a run of {name}")
    with program_queries(run, sample=True) as queries:
        input_names = {port["name"] for port in facts["inputs"]}  # earlier programs lack some
        inputs = {name: value for name, value in queries.inputs.items() if name in input_names}
        outputs = dict(zip((port["name"] for port in facts["outputs"]), run_program(path, inputs), strict=True))
        expected = queries.expected()
    differences = {key: max_difference(key, value, expected[key]) for key, value in outputs.items()}
    checked = ProgramCheck(queries.count, queries.what, differences, TOLERANCE)
    if not all(value <= TOLERANCE for value in differences.values()):
        raise HopstateError(f"{path} differs from {run}: {checked.text()}; the tolerance is {TOLERANCE}")
    return checked


def read_export_json(program: Path) -> tuple[Path, dict[str, Any]]:
    """Return the file of a program and the content of its export.json."""
    folder = program if program.is_dir() else program.parent
    facts = read_json(folder / "export.json")
    if not {"format", "method", "inputs", "outputs"} <= facts.keys() or facts["format"] not in FILES:
        raise ConfigError(f"{folder / 'export.json'} was not written by `hopstate export`")
    return folder / FILES[facts["format"]] if program.is_dir() else program, facts


def require_packages(*packages: str) -> None:
    """Raise MissingExtraError if a package is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"ONNX needs {' and '.join(missing)}: pip install 'hopstate[export]'")


def run_program(path: Path, inputs: Arrays) -> list[np.ndarray]:
    """Return the outputs of a program, in order."""
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
        raise FormatError(f"{path} cannot be opened as a program ({type(error).__name__}: {reason})") from error
    if is_torch:
        with torch.no_grad():
            outputs = program(*map(torch.from_numpy, inputs.values()))
        return [x.numpy() for x in (outputs if isinstance(outputs, tuple) else (outputs,))]
    input_names = {port.name for port in program.get_inputs()}  # unused inputs are pruned
    return program.run(None, {name: x for name, x in inputs.items() if name in input_names})


def max_difference(name: str, found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference, relative to 1 + |expected| for unbounded outputs; inf if either is NaN."""
    apart = np.abs(found.reshape(expected.shape).astype(np.float64) - expected)
    if name not in BOUNDED_OUTPUTS:
        apart /= 1 + np.abs(expected)
    return float(np.where(np.isnan(apart), np.inf, apart).max(initial=0.0))
