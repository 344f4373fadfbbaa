"""`hopstate COMMAND ...`: each command imports what it needs only when it runs."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

from hopstate.cli.commands import (
    COMMANDS,
    FAILED,
    INTERRUPTED,
    USAGE,
    HelpRequest,
    command_of,
    json_text,
    main_help,
    say,
)
from hopstate.errors import ConfigError, HopstateError, HopstateWarning
from hopstate.io.output import PrintableStream

_FLAGS = {"--json": "json", "--quiet": "quiet", "-q": "quiet", "--verbose": "verbose", "-v": "verbose"}
_FLAGS |= {"--debug": "debug"}


@dataclass
class Flags:
    """Options of every command; see `commands.FLAGS`."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    debug: bool = False

    @classmethod
    def split(cls, argv: Sequence[str]) -> tuple[Flags, list[str]]:
        """Return the flags among the words, and the other words; what follows `--` is left alone."""
        end = argv.index("--") if "--" in argv else len(argv)
        given = {_FLAGS[word]: True for word in argv[:end] if word in _FLAGS}
        return cls(**given), [*(word for word in argv[:end] if word not in _FLAGS), *argv[end:]]

    @contextlib.contextmanager
    def streams(self) -> Iterator[None]:
        """Silence stderr with --quiet and send stdout to stderr with --json."""
        with contextlib.ExitStack() as stack:
            if self.quiet:
                silent = stack.enter_context(open(os.devnull, "w"))
                stack.enter_context(contextlib.redirect_stderr(silent))
            if self.json:
                stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            yield


def main(argv: list[str] | None = None) -> int:
    """Run a command; return the exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    flags, argv = Flags.split(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["fit"] and "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0":
        flags = Flags(quiet=True, debug=flags.debug)  # only rank 0 prints
    os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")  # colorama would print an escape at exit
    show, streams = warnings.showwarning, (sys.stdout, sys.stderr)
    warnings.showwarning = _warning_printer(show)
    sys.stdout, sys.stderr = map(PrintableStream, streams)  # type: ignore[assignment]
    try:
        return _run(argv, flags)
    except BrokenPipeError:  # the reader of our output (head, less) has ended
        sys.stderr.close()
        return 0
    finally:
        warnings.showwarning = show
        sys.stdout, sys.stderr = streams


def _run(argv: list[str], flags: Flags) -> int:
    """Run a command and print its result, or its error."""
    start = time.perf_counter(), time.process_time()
    try:
        if not argv or argv[0] in ("-h", "--help", "help"):
            raise HelpRequest(main_help())
        if argv[0] in ("-V", "--version"):
            from hopstate import __version__

            print(json_text({"hopstate": __version__}) if flags.json else f"hopstate {__version__}")
            return 0
        with flags.streams():
            answer = import_module(command_of(argv[0]).module).run(argv)
        if flags.json:
            print(json_text(answer.record), flush=True)
        else:
            answer.show()
        if flags.verbose:
            _print_details(*start)
        flags.json = False  # the one object is printed; a service goes on
        return answer.status if answer.then is None else answer.then()
    except HelpRequest as help_:
        print(json_text({"help": str(help_)}) if flags.json else help_)
        return 0
    except KeyboardInterrupt:
        return _fail(flags, "KeyboardInterrupt", "stopped", INTERRUPTED)
    except BrokenPipeError:
        raise
    except Exception as error:
        if flags.debug:
            traceback.print_exc()
        status = USAGE if isinstance(error, ConfigError) else FAILED
        return _fail(flags, type(error).__name__, _describe(error), status)


def _print_details(wall: float, cpu: float) -> None:
    """Print devices and operators, if a model was run, and the time used."""
    if "torch" in sys.modules:
        import torch

        from hopstate.cli.info import describe_paths

        gpus = f"{torch.cuda.device_count()} CUDA devices" if torch.cuda.is_available() else "no GPU found"
        _print_error(f"device: auto is {'cuda' if torch.cuda.is_available() else 'cpu'} here ({gpus})")
        _print_error(f"threads: {torch.get_num_threads()} (set OMP_NUM_THREADS to change)")
        for operator, path, why in describe_paths():
            _print_error(f"{operator}: {path} ({why})")
    _print_error(f"took {time.perf_counter() - wall:.2f} s, {time.process_time() - cpu:.2f} s of CPU time")


def _fail(flags: Flags, kind: str, message: str, status: int) -> int:
    """Print the error and return the status; under torchrun, only one rank prints."""
    message = message.replace("?; ", "? ")  # of a hint: "did you mean 'gmn'? known: ..."
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from hopstate.training.devices import first_to_report

        if not first_to_report(message):
            return status
    if flags.json:
        print(json_text({"error": {"kind": kind, "message": message, "exit_code": status}}), flush=True)
    _print_error(message if status == INTERRUPTED else f"error: {message}")
    return status


def _describe(error: Exception) -> str:
    """Return the text of an error line."""
    text = str(error).strip()
    if isinstance(error, (HopstateError, OSError)):
        return text or type(error).__name__
    if isinstance(error, MemoryError) or "can't allocate memory" in text or "out of memory" in text:
        return f"not enough memory{f' ({text})' if text else ''}; use smaller data, a smaller model or smaller batches"
    if isinstance(error, RecursionError):
        return "something in the input is nested too deep to be read"
    return f"unexpected {type(error).__name__}: {text or 'no message'}. --debug shows where; please report it"


def _print_error(text: str) -> None:
    """Print to stderr, cut to 4000 characters."""
    text = text if len(text) <= 4000 else f"{text[:4000]}..."
    say(text)


def _warning_printer(otherwise: Callable[..., None]) -> Callable[..., None]:
    """Return what prints warnings of this library as one line each, and each text once.

    Deprecations in other libraries are left out, because they address developers.
    """
    printed = set()

    def show(message: Warning | str, category: type[Warning], *args: object, **named: object) -> None:
        if issubclass(category, (FutureWarning, DeprecationWarning)):
            return
        if not issubclass(category, HopstateWarning):
            otherwise(message, category, *args, **named)
        elif str(message) not in printed:
            printed.add(str(message))
            _print_error(f"warning: {message}")

    return show


if __name__ == "__main__":
    sys.exit(main())

__all__ = ["COMMANDS", "main"]
