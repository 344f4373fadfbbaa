"""Whether an exported program gives what its run gives: both asked the same, and the largest difference."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hopstate.data.readers.pyg import weights_only
from hopstate.errors import ConfigError, FormatError, HopstateError, MissingExtraError
from hopstate.io.opening import read_json
from hopstate.runs.export import FILES
from hopstate.runs.exported_inputs import Answers, questions
from hopstate.training.run_folder import RunFolder

PROMISED = 1e-5  # of a logit or an amount z as a part of 1 + |z|, as tests hold it (testing.asserts.PROGRAM)
SHARES = ("score", "probability")  # outputs between 0 and 1


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
        """Return a sentence."""
        largest = ", ".join(f"{name} {value:.1e}" for name, value in self.differences.items())
        parts = "" if self.differences.keys() <= {*SHARES} else " (of a logit or an amount z as a part of 1 + |z|)"
        return f"{self.asked:,} {self.what}, the largest differences from the run's own: {largest}{parts}"


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
    path, told = told_of(Path(program))
    needed(path.suffix)
    name = RunFolder.open(run).read_json("config.json").get("method")
    if told["method"] != name:
        raise ConfigError(f"{path} is a program of {told['method']}, and {run} a run of {name}")
    with questions(run, pairs, time, own=own, method=method, sample=True) as asked:
        taken = {port["name"] for port in told["inputs"]}  # earlier programs were not told who met
        inputs = {name: value for name, value in asked.inputs.items() if name in taken}
        found = dict(zip((port["name"] for port in told["outputs"]), answers(path, inputs), strict=True))
        wanted = asked.said()
    between = {key: difference(key, value, wanted[key]) for key, value in found.items()}
    checked = Checked(asked.count, asked.what, between, PROMISED)
    if not all(value <= PROMISED for value in between.values()):
        raise HopstateError(f"{path} does not give what {run} gives: {checked.text()}; {PROMISED} is what is promised")
    return checked


def told_of(program: Path) -> tuple[Path, dict[str, Any]]:
    """Return a program's file and what export.json says of it."""
    folder = program if program.is_dir() else program.parent
    told = read_json(folder / "export.json")
    if not {"format", "method", "inputs", "outputs"} <= told.keys() or told["format"] not in FILES:
        raise ConfigError(f"{folder / 'export.json'} is not what `hopstate export` writes")
    return folder / FILES[told["format"]] if program.is_dir() else program, told


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
        told = str(error).strip().partition("\n")[0][:200]
        raise FormatError(f"{path} is no program that can be opened ({type(error).__name__}: {told})") from error
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


__all__ = ["Checked", "check_program"]
