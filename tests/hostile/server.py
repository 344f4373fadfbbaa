"""Runs command lines, each in a forked process with limits of memory and time.

A separate process reads a JSON line {"argv", "cwd", "env"} and answers {"code", "out", "err", "late"}. It imports
everything once, so that a case costs a fork instead of a start.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
SECONDS, SPARE = 20, 3 << 30  # of a case: CPU time, and bytes of address space beyond imports
WAIT = 6  # factor of wall time, because other processes may be busy


def run(case: dict) -> dict:
    """Return how a case ended."""
    cwd = Path(case["cwd"])
    out, err = cwd / ".stdout", cwd / ".stderr"
    child = os.fork()
    if not child:
        _case(case, out, err)
    begin, late = time.monotonic(), False
    handle = os.pidfd_open(child)
    if not select.select([handle], [], [], WAIT * case.get("seconds", SECONDS))[0]:
        late = True
        os.kill(child, signal.SIGKILL)
    os.close(handle)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    late |= code == -signal.SIGXCPU
    output = {name: path.read_text("utf-8", "replace")[-20000:] for name, path in (("out", out), ("err", err))}
    wrong = (cwd / ".wrong").read_text() if (cwd / ".wrong").exists() else ""
    return {"code": code, "wrong": wrong, "late": late, "seconds": round(time.monotonic() - begin, 2), **output}


def _case(case: dict, out: Path, err: Path) -> None:
    from hopstate.cli.main import main

    code = 99
    try:
        for path, number in ((out, 1), (err, 2)):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
        os.chdir(case["cwd"])
        os.environ |= case.get("env", {})
        sys.path.insert(0, case["cwd"])  # a module of the case is importable
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + SPARE, size + SPARE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (case.get("seconds", SECONDS),) * 2)
        code = main(case["argv"])
        if case.get("sound") and code == 0 and case["argv"][0] == "inspect":
            (Path(case["cwd"]) / ".wrong").write_text(_wrong(case["argv"]))
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 98
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _wrong(argv: list[str]) -> str:
    """Return the error of the object that a file was read as."""
    from hopstate.cli.inspect import load
    from hopstate.data.readers.read_graph import read_graph
    from hostile import sound

    record = load(argv[1], argv[3])
    found, data = sound.wrong(record), Path(argv[1]).read_bytes() if Path(argv[1]).is_file() else b""
    if argv[1] in ("events.csv", "packed.csv.gz"):
        found = found or sound.same_events(data, record)
    if argv[1] == "edges.csv":
        found = found or sound.same_edges(data, read_graph(argv[1], undirected=False))
    return found


def serve() -> None:
    """Answer lines until there are no more."""
    from hopstate.cli.commands import COMMANDS

    for command in COMMANDS.values():
        import_module(command.module)
    import pandas as pd  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import scipy.sparse  # noqa: F401
    import torch_geometric.data  # noqa: F401

    import hopstate.data.kernels
    import hopstate.data.readers.read_events
    import hopstate.data.readers.read_graph  # noqa: F401
    import hostile.sound  # noqa: F401

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    serve()
