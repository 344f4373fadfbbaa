"""Files of the package that a command enters: from `fit METHOD` to the first optimizer step, and for `score`.

    python benchmarks/call_path.py fit dyg-mamba --data events.csv
    python benchmarks/call_path.py score RUN --pairs alice,bob

A file counts if one of its functions is called; code that runs at import does not. Prints the files in the order in
which they are entered first, and how often the path goes from one file to another.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

from torch.optim.optimizer import register_optimizer_step_pre_hook

import hopstate
from hopstate.cli.main import main

ROOT = Path(hopstate.__file__).parent


class FirstStep(BaseException):
    """Raised before the first step of the optimizer."""


class CallPath:
    """A profiler that records files of the package.

    files: first entered first.
    switches: calls whose file differs from that of the call before.
    """

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.switches = 0
        self._last = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        # module and class bodies are not functions: only functions have fast locals
        if event != "call" or not code.co_flags & inspect.CO_OPTIMIZED or not code.co_filename.startswith(str(ROOT)):
            return
        if code.co_filename not in self.files and importing(frame):
            return
        self.files.setdefault(code.co_filename)
        self.switches += code.co_filename != self._last
        self._last = code.co_filename


def importing(frame: FrameType | None) -> bool:
    """Return whether a module of the package is being imported: its comprehensions and decorators are functions too."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(str(ROOT)):
            return True
        frame = frame.f_back
    return False


def stop_at_first_step(*_: object) -> None:
    raise FirstStep


def measure(words: list[str]) -> CallPath:
    path = CallPath()
    hook = register_optimizer_step_pre_hook(stop_at_first_step)
    sys.setprofile(path)
    try:
        main(words)
    except FirstStep:
        pass
    finally:
        sys.setprofile(None)
        hook.remove()
    return path


if __name__ == "__main__":
    words = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        if words[:1] == ["fit"] and "--out" not in words:
            words += ["--out", f"{scratch}/run"]
        path = measure(words)
    for number, name in enumerate(path.files, 1):
        print(f"{number:3} {Path(name).relative_to(ROOT)}")
    print(f"{len(path.files)} files, {path.switches} switches")
