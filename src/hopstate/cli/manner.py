"""How the command line speaks: as people read it or as JSON, quiet or verbose; what it says beside its result."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TextIO

FLAGS = {
    "--json": ("json", "print one JSON object on stdout; all else goes to stderr"),
    "-q": ("quiet", "print results and errors alone"),
    "--quiet": ("quiet", "the same"),
    "-v": ("verbose", "also tell what was decided and why, and what it took"),
    "--verbose": ("verbose", "the same"),
    "--debug": ("debug", "show where an error arose"),
}


def own_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command whose runs' settings stand after --; settings before it are told where to go."""
    options, others = parser.parse_known_args(words)
    if others:
        setting = others[0].startswith("--") and "." in others[0].partition("=")[0]
        words = " ".join(others)
        if setting:  # no slip of an own option, so that none is suggested
            where = f"settings of the runs stand after --: -- {words}"
            argparse.ArgumentParser.error(parser, f"unrecognized arguments: {words}; {where}")
        parser.error(f"unrecognized arguments: {words}")
    return options


@dataclass
class Manner:
    """How a command speaks.

    Args:
        json, quiet, verbose, debug: as `FLAGS` says.
    """

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    _began: tuple[float, float] = field(default_factory=lambda: (time.perf_counter(), time.process_time()), init=False)

    @classmethod
    def of(cls, argv: Sequence[str]) -> tuple[Manner, list[str]]:
        """Return the manner that a command line asks for, and its other words; what follows -- is left alone."""
        end = argv.index("--") if "--" in argv else len(argv)
        asked = {FLAGS[word][0] for word in argv[:end] if word in FLAGS}
        rest = [word for word in argv[:end] if word not in FLAGS]
        return cls(*(name in asked for name in ("json", "quiet", "verbose", "debug"))), [*rest, *argv[end:]]

    @contextlib.contextmanager
    def speaking(self) -> Iterator[Heard]:
        """Within it stdout is stderr where JSON is asked for, and stderr is silent where quiet is."""
        heard = Heard(None if self.quiet else sys.stderr)
        if not (self.json or self.quiet):
            yield heard
            return
        out: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if self.json:
            out = contextlib.redirect_stdout(heard)
        with out, contextlib.redirect_stderr(heard):
            yield heard

    def decided(self) -> Iterator[str]:
        """Yield what was decided and why, and what the command took, where verbose is asked for."""
        if not self.verbose:
            return
        if "torch" in sys.modules:  # else no model was run
            import torch

            from hopstate.ops.info import describe_paths

            found = f"{torch.cuda.device_count()} of CUDA" if torch.cuda.is_available() else "no GPU is seen"
            yield f"device: auto takes {'cuda' if torch.cuda.is_available() else 'cpu'} here ({found})"
            yield f"threads: {torch.get_num_threads()} (OMP_NUM_THREADS, or torch.set_num_threads, for others)"
            for operator, path, why in describe_paths():
                yield f"{operator}: {path} ({why})"
        wall, cpu = self._began
        spent = time.perf_counter() - wall, time.process_time() - cpu
        yield f"took {spent[0]:.2f} s, {spent[1]:.2f} s of the processor"


class Heard(io.TextIOBase):
    """A stream that passes on what it is told, or nothing, and keeps the end of it."""

    def __init__(self, to: TextIO | None) -> None:
        self.to, self.text = to, ""

    def write(self, text: str, /) -> int:
        self.text = (self.text + text)[-20_000:]
        return len(text) if self.to is None else self.to.write(text)

    def flush(self) -> None:
        """Pass on what waits."""
        if self.to is not None:
            self.to.flush()

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self.to is not None and self.to.isatty()

    def fileno(self) -> int:
        """Return the number of the stream behind."""
        if self.to is None:
            raise io.UnsupportedOperation("fileno")
        return self.to.fileno()

    def last_line(self) -> str:
        return next((line.strip() for line in reversed(self.text.splitlines()) if line.strip()), "")
