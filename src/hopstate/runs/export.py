"""A trained run as a program that needs no hopstate: torch.export's .pt2, or ONNX, and export.json that explains it."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, HopstateError, MissingExtraError
from hopstate.evaluation.metrics import Curve
from hopstate.io.files import replace_files
from hopstate.io.opening import shown
from hopstate.methods import method_of_run
from hopstate.methods.method import AnyMethod
from hopstate.ops import use_reference_ops
from hopstate.random import random_state_kept
from hopstate.runs.calibration import curve_of
from hopstate.runs.load import load_run
from hopstate.runs.queries import session
from hopstate.training.exported import ExportSpec, Port
from hopstate.training.run_folder import RunFolder, json_text
from hopstate.training.tasks.link import LinkTask

if TYPE_CHECKING:
    import onnx

Format = Literal["torch", "onnx"]
FILES: dict[str, str] = {"torch": "model.pt2", "onnx": "model.onnx"}
NEEDED = ("onnx", "onnxscript")
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
        raise ConfigError(f"a run is exported to {' or '.join(FILES)}; got {shown(to)!r}")
    if opset is not None and (to != "onnx" or opset not in RUNTIMES):
        raise ConfigError(f"opset is of ONNX, {min(RUNTIMES)} to {max(RUNTIMES)}; got {opset} (--to {to})")
    if to == "onnx" and (missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]):
        raise MissingExtraError(f"ONNX needs {' and '.join(missing)}: pip install 'hopstate[export]'")
    folder = RunFolder.open(run)
    known = method_of_run(folder.read_json("config.json").get("method"), str(folder.path / "config.json"), method)
    refuse(known)
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


def spec_of(method: AnyMethod, task: Any, *, fills: bool = False) -> ExportSpec:
    """Return what is exported of a task.

    Args:
        method: the task's.
        task: the task.
        fills: only where it makes inputs, too.

    Raises:
        ConfigError: the method has no program, or fills and it makes no inputs.
    """
    refuse(method)
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
    """A network's logits, their sigmoid, which is what `hopstate.score` calls a score, and its probability.

    Args:
        module: inputs → (P,) logits.
        curve: from scores to probabilities; None for a program without them.
    """

    knots: Tensor
    values: Tensor

    def __init__(self, module: nn.Module, curve: Curve | None) -> None:
        super().__init__()
        self.module, self.has_curve = module, curve is not None
        if curve is not None:
            self.register_buffer("knots", torch.from_numpy(curve.scores.astype(np.float64)))
            self.register_buffer("values", torch.from_numpy(curve.values.astype(np.float64)))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return (P,) logits, float64 scores, and float64 probabilities if there is a curve."""
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
        "inputs": [port_facts(port, tensor) for port, tensor in zip(spec.inputs, spec.example, strict=True)],
        "outputs": [port_facts(port, tensor) for port, tensor in zip(spec.outputs, outputs, strict=True)],
        "preprocessing": spec.preprocessing,
        "left_out": spec.left_out,
    }


def port_facts(port: Port, like: Tensor) -> dict[str, Any]:
    """Return name, dtype, shape (a name where a length is free) and meaning of a port."""
    shape = [axis or size for axis, size in zip(port.axes, like.shape, strict=True)]
    return {"name": port.name, "dtype": str(like.dtype).removeprefix("torch."), "shape": shape, "meaning": port.meaning}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep exporters from telling of their own affairs."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


__all__ = ["export_run"]
