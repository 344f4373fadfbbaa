"""`hopstate check-crash RUN`: kill a live run, fail its disk, cut its power: no acknowledged event is lost."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hopstate.cli.answer import Answer, lines
from hopstate.cli.options import Options
from hopstate.errors import ConfigError, MissingExtraError

_COUNTS = {
    "kills": ("kill", 20, "ends by SIGKILL, at any instant"),
    "drops": ("drop", 5, "losses of power, after which any writes that were not synced are missing"),
    "tears": ("tear", 5, "losses of power, after which what was not synced ends in the midst of a write"),
    "eio": ("eio", 2, "times that the disk fails"),
    "enospc": ("enospc", 2, "times that the disk is full"),
}


def run(argv: list[str]) -> Answer:
    """Check a live run; status 1 where something was lost (the message names it and the crash)."""
    parser = Options(prog="hopstate check-crash", description=__doc__)
    parser.add_argument("run", help="run folder of a temporal method for links; it stays as it is")
    parser.add_argument("--method", default=None, help="module:NAME, where the run's method is code of your own")
    for name, (_, usual, what) in _COUNTS.items():
        parser.add_argument(f"--{name}", type=int, default=usual, metavar="N", help=f"{what} (default: {usual})")
    parser.add_argument("--seed", type=int, default=0, help="one seed, one order of crashes (default: 0)")
    parser.add_argument(
        "--folder", default=None, help="a new folder on the disk in question; kept (default: a temporary one)"
    )
    parser.add_argument("--no-sync", action="store_true", help="sync nothing, to see the check fail")
    o = parser.parse_args(argv[1:])
    wrong = next((name for name in _COUNTS if getattr(o, name) < 0), None)
    if wrong:
        raise ConfigError(f"--{wrong} is a number of crashes, from 0; got {getattr(o, wrong)}")
    folder = Path(o.folder) if o.folder else Path(tempfile.mkdtemp(prefix="hopstate-"))
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder} holds other things; give a folder that is not there yet")
    try:
        from hopstate.serving.crashes import check_crash
    except ImportError as error:
        raise MissingExtraError(f"a live run needs {error.name}: pip install 'hopstate[serve]'") from None
    from rich.console import Console
    from rich.progress import Progress

    crashes: dict[Any, int] = {kind: getattr(o, name) for name, (kind, _, _) in _COUNTS.items()}
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("crashes", total=sum(crashes.values()))
        report = check_crash(
            o.run,
            folder,
            crashes,
            seed=o.seed,
            syncs=not o.no_sync,
            method=o.method,
            told=lambda kind: bar.advance(task),
        )
    if o.folder is None:
        shutil.rmtree(folder)
    record = {"run": o.run, "lost": 0, "crashes": report.crashes, "events": report.events}
    return Answer(record | {"slowest_start_seconds": report.slowest}, lines(str(report)))
