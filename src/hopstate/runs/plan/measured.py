"""Measured points: those of the package, and those that `hopstate plan --measure` takes and keeps on a machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hopstate.errors import ConfigError, DataError, FormatError, HopstateError, nearest
from hopstate.io.cache import cache_folder
from hopstate.io.files import make_folder, write_text
from hopstate.io.lock import file_lock
from hopstate.io.opening import read_json
from hopstate.io.scratch import machine_memory
from hopstate.runs.plan.cost import Point
from hopstate.runs.plan.stages import PLANS

VERSION = 1
SHIPPED = Path(__file__).with_name("shipped.json")
GRAPHS = ((100_000, 1_000_000, 128), (200_000, 4_000_000, 64), (1_000_000, 10_000_000, 128), (500_000, 8_000_000, 96))
BATCHED = ((50_000, 1_000_000, 32), (100_000, 1_000_000, 128), (200_000, 4_000_000, 64), (150_000, 2_000_000, 96))
# of streams; the last of each is not fitted but judged
EPOCHS = ((1_000, 20_000, 128), (10_000, 200_000, 32), (100_000, 2_000_000, 8), (50_000, 1_000_000, 16))
STREAMS = ((300, 4_000, 16), (2_000, 20_000, 64), *EPOCHS[1:])
Say = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """Points of one machine.

    Args:
        machine: which.
        own: it is this one; the points do not come with the package.
        points: of any methods.
    """

    machine: str
    own: bool
    points: tuple[Point, ...]


def sizes_of(method: str) -> tuple[tuple[int, int, int], ...]:
    """Return nodes, edges and features of the points that a method is measured at; the last judges the others."""
    own = PLANS[method]
    if own.events:
        return STREAMS if own.whole else EPOCHS
    return BATCHED if own.batches else GRAPHS


def place() -> Path:
    """Return the file of this machine's points, in the cache folder."""
    return cache_folder() / "plan" / "measured.json"


def stored(method: str) -> Measured:
    """Return the points of this machine where it was measured with a method, else those of the package.

    Raises:
        FormatError: the file is damaged or of another version.
        DataError: there are points of the method in neither.
    """
    for path, own in ((place(), True), (SHIPPED, False)):
        if path.is_file():
            found = _read(path, own)
            if any(point.method == method for point in found.points):
                return found
    raise DataError(
        f"no measured points of {method} came with the package; hopstate plan {method} --measure takes them here"
    )


def _read(path: Path, own: bool) -> Measured:
    told = read_json(path)
    mend = "delete it, and take the points again with hopstate plan --measure"
    if not isinstance(told, dict) or told.get("version") != VERSION:
        raise FormatError(f"{path} holds no measured points of format {VERSION}; {mend}")
    try:
        return Measured(str(told["machine"]), own, tuple(map(Point.of, told["points"])))
    except (KeyError, TypeError) as error:
        raise FormatError(f"{path} is damaged ({error}); {mend}") from None


def measure(
    methods: Sequence[str] = (), *, say: Say | None = None, sizes: Sequence[tuple[int, int, int]] | None = None
) -> Path:
    """Measure methods on made data, each size in a process of its own, and keep the points in the cache folder.

    Args:
        methods: of `PLANS`; none for all. Points of others stay.
        say: takes lines of progress.
        sizes: nodes, edges and features of each point, the last of which is judged; by default `sizes_of`.

    Returns:
        The file of the points.

    Raises:
        ConfigError: a method without a cost model.
        HopstateError: a point could not be measured, e.g. for lack of memory.
    """
    for method in methods:
        if method not in PLANS:
            raise ConfigError(f"plan measures no {method!r}{nearest(method, PLANS)}; it knows: {', '.join(PLANS)}")
    chosen, path = list(methods) or list(PLANS), place()
    asked = [(name, one) for name in chosen for one in sizes or sizes_of(name)]
    points = []
    for number, (method, (nodes, edges, features)) in enumerate(asked, 1):
        what = "events" if PLANS[method].events else "edges"
        if say:
            say(f"{number}/{len(asked)} {method}: {nodes:,} nodes, {edges:,} {what}, {features} features")
        last = number == len(asked) or asked[number][0] != method
        size = {"method": method, "nodes": nodes, "edges": edges, "features": features}
        points.append(Point.of(_point(size) | {"fitted": not last}))
    make_folder(path.parent)
    with file_lock(path, wait=True):
        kept = [point for point in _read(path, True).points if point.method not in chosen] if path.is_file() else []
        text = {"version": VERSION, "machine": machine(), "points": [asdict(point) for point in (*kept, *points)]}
        write_text(path, json.dumps(text, indent=1))
    return path


def _point(size: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "hopstate.runs.plan.point", json.dumps(size)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"ended by signal {-done.returncode}"])[-1][:300]
        raise HopstateError(f"{size} could not be measured: {why}; free memory and run it again")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def machine() -> str:
    """Return the processor, its cores and the memory of this machine."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line[:10] == "model name"]
        name = models[0] if models else name
    memory = machine_memory()
    told = f", {memory / 2**30:.0f} GiB" if memory < 1 << 62 else ""
    return f"{name}, {os.cpu_count()} cores{told}"
