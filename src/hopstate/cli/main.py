"""`hopstate COMMAND ...`: each command imports what it needs only when it runs."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from importlib import import_module

from hopstate.cli.answer import DONE, FAILED, INTERRUPTED, USAGE, Answer, json_text
from hopstate.cli.manner import FLAGS, Heard, Manner
from hopstate.errors import ConfigError, HopstateError, HopstateWarning, nearest

# command → (module with run(argv) -> Answer, one line of help)
COMMANDS = {
    "fit": ("hopstate.cli.fit", "train a method on a file or a named data set"),
    "evaluate": ("hopstate.cli.apply", "metrics of a trained run on a split, or on other data"),
    "predict": ("hopstate.cli.apply", "predictions of a trained run as CSV or Parquet"),
    "stream": ("hopstate.cli.apply", "let a temporal model go on over new events: scores, and its state after them"),
    "score": ("hopstate.cli.ask", "how likely pairs are to meet next, or at a time, from all that a run knows"),
    "rank": ("hopstate.cli.ask", "whom a node most likely meets next, best first"),
    "serve": ("hopstate.cli.serve", "take events as they happen, durably, and answer over HTTP"),
    "replay": ("hopstate.cli.serve", "what the events of a live run's log were scored, again"),
    "explain": ("hopstate.cli.analysis", "what each past event added to a pair's score, as a table and a timeline"),
    "robustness": ("hopstate.cli.analysis", "metrics of a trained run when its view of the past is made noisy"),
    "ensemble": ("hopstate.cli.ensemble", "combine finished link prediction runs into one"),
    "compare": ("hopstate.cli.compare", "several methods over splits and seeds in one table"),
    "tune": ("hopstate.cli.tune", "search a method's settings on validation data"),
    "reproduce": ("hopstate.cli.reproduce", "rows of the papers' tables: run them, published against measured"),
    "report": ("hopstate.cli.report", "runs and results as one HTML page that needs nothing else"),
    "inspect": (
        "hopstate.cli.inspect",
        "what a file holds, what about it looks suspicious; or what a run is, and how to ask it",
    ),
    "export": ("hopstate.cli.export", "a trained network as a program: torch.export or ONNX"),
    "prepare": ("hopstate.cli.prepare", "a table of events of any size as a store that --data maps into memory"),
    "check-leak": ("hopstate.cli.check_leak", "prove that no score of a trained run sees the future"),
    "check-crash": ("hopstate.cli.check_crash", "prove that a live run loses no event, whatever kills it"),
    "datasets": ("hopstate.cli.datasets", "the data sets of the papers: where from, which are on disk"),
    "top-error": ("hopstate.cli.top_error", "how far a trained backbone on node batches is from the whole graph"),
    "info": ("hopstate.cli.info", "versions, devices, and which fast paths are in use and why"),
    "completion": ("hopstate.cli.completion", "a script that lets bash, zsh or fish complete commands and options"),
}


def main(argv: list[str] | None = None) -> int:
    """Run a command; return the exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    manner, argv = Manner.of(list(sys.argv[1:] if argv is None else argv))
    if argv[:1] == ["fit"] and "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0":
        manner = Manner(quiet=True, debug=manner.debug)  # rank 0 speaks for all
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(json_text({"help": usage()}) if manner.json else usage())
        return 0
    if argv[0] in ("-V", "--version"):
        from hopstate import __version__

        print(json_text({"hopstate": __version__}) if manner.json else f"hopstate {__version__}")
        return 0
    before = warnings.showwarning
    warnings.showwarning = _show(before)
    try:
        return _answered(argv, manner)
    except BrokenPipeError:  # the reader of our output (head, less) has left
        sys.stderr.close()
        return 0
    finally:
        warnings.showwarning = before


def _answered(argv: list[str], manner: Manner) -> int:
    """Run a command and print what it found, or why it did not."""
    heard = Heard(None)
    try:
        with manner.speaking() as heard:
            answer = _command(argv[0])(argv)
        if manner.json:
            print(json_text(answer.record), flush=True)
        else:
            answer.show()
        for text in manner.decided():
            _say(text)
        manner.json = False  # the object is printed
        return answer.status if answer.then is None else answer.then()
    except KeyboardInterrupt:
        return _failed(manner, "KeyboardInterrupt", "stopped", INTERRUPTED)
    except SystemExit as left:  # of argparse, which has printed help or what is wrong
        if not (manner.json or manner.quiet):
            raise
        if not left.code:
            print(json_text({"help": heard.text}) if manner.json else heard.text)
            return DONE
        message = heard.last_line().partition("error: ")[2]
        return _failed(manner, "ConfigError", message, int(left.code), said=not manner.quiet)
    except BrokenPipeError:
        raise
    except Exception as error:
        if manner.debug:
            traceback.print_exc()
        status = USAGE if isinstance(error, ConfigError) else FAILED
        return _failed(manner, type(error).__name__, _described(error), status)


def _failed(manner: Manner, kind: str, message: str, status: int, *, said: bool = False) -> int:
    """Say why there is no result, where it is not said yet, and return the status; of torchrun's ranks one says it."""
    message = message.replace("?; ", "? ")  # of a hint: "did you mean 'gmn'? known: ..."
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from hopstate.training.ranks import first_to_say

        if not first_to_say(message):
            return status
    if manner.json:
        print(json_text({"error": {"kind": kind, "message": message, "exit_code": status}}), flush=True)
    if not said:
        _say(message if status == INTERRUPTED else f"error: {message}")
    return status


def _described(error: Exception) -> str:
    """Return what an error line says: a sentence, whatever was raised."""
    told = str(error).strip()
    if isinstance(error, HopstateError):
        return told or type(error).__name__
    if isinstance(error, MemoryError) or "can't allocate memory" in told or "out of memory" in told:
        return f"not enough memory{f' ({told})' if told else ''}; take smaller data, a smaller model or smaller batches"
    if isinstance(error, RecursionError):
        return "something in the input is nested too deep to be read"
    if isinstance(error, OSError):
        return told or type(error).__name__
    return (
        f"something unforeseen, {type(error).__name__}: {told or 'no more is known'}; --debug shows where. A report of "
        "it is welcome"
    )


def _say(text: str) -> None:
    """Print a line to stderr, whatever characters it holds."""
    plain = "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
    plain = plain if len(plain) <= 4000 else f"{plain[:4000]}..."
    print(plain.encode("utf-8", "backslashreplace").decode(), file=sys.stderr)


def usage() -> str:
    """Return the overview of commands."""
    lines = [f"  {name:<11} {help_}" for name, (_, help_) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: hopstate COMMAND [options]",
            "",
            *lines,
            "",
            "hopstate COMMAND --help tells more of a command. With any of them:",
            *(f"  {flag:<11} {what}" for flag, (_, what) in FLAGS.items()),
        ]
    )


def _command(name: str) -> Callable[[list[str]], Answer]:
    if name not in COMMANDS:
        raise ConfigError(f"unknown command {name!r}{nearest(name, COMMANDS)}; known: {', '.join(COMMANDS)}")
    return import_module(COMMANDS[name][0]).run


def _show(otherwise: Callable[..., None]) -> Callable[..., None]:
    told = set()  # what concerns the run's own data would come up with each reading of them

    def show(message: Warning | str, category: type[Warning], *rest: object, **named: object) -> None:
        if issubclass(category, HopstateWarning):
            if str(message) not in told:
                _say(f"warning: {message}")
            told.add(str(message))
        else:
            otherwise(message, category, *rest, **named)

    return show


if __name__ == "__main__":
    sys.exit(main())
