"""All GPU measurements within nine minutes: the GPU tests, then measurements by importance.

    make gpu                                            # into gpu-results/
    PYTHONPATH=src python benchmarks/gpu.py --out FOLDER [--data FOLDER] [--only scan,epochs]
    PYTHONPATH=src python benchmarks/gpu.py --out FOLDER --dry-run      # on the CPU, everything tiny

Needs torch and what hopstate's models need; neither an installation nor jsonargparse, pooch or pymetis. Each
measurement is a process with its own time limit, so that a failure or hang does not affect the others. Its lines are in
FOLDER/NAME.jsonl as soon as they are measured, its output in FOLDER/NAME.log, and its status in summary.jsonl.
Every line states whether the GPU tests passed. UCI (DyGLib's file) is looked for in --data. If it is absent, a
synthetic stream of equal size and duration is used, and the line states it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TOTAL = 520  # seconds, with process start and torch import
# name → time limit in seconds; the most important first
MEASUREMENTS = {
    "tests": 120, "scan": 70, "epochs": 120, "lengths": 90, "gmn": 80, "top": 70, "precision": 80, "compile": 100,
}  # fmt: skip


def main() -> None:
    """Run the measurements one after another, or one of them in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--data", type=Path, default=Path("data"), help="holds DyGLib's file of UCI")
    parser.add_argument("--only", default=",".join(MEASUREMENTS), help="names of measurements, separated by commas")
    parser.add_argument("--seconds", type=float, default=TOTAL, help="for everything together")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with tiny sizes: whether it works at all")
    parser.add_argument("--measurement", help=argparse.SUPPRESS)
    parser.add_argument("--tests", default="not run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = options.only.split(",")
    unknown = [name for name in chosen if name not in MEASUREMENTS]
    if unknown:
        parser.error(f"unknown measurement {unknown[0]!r}; known: {', '.join(MEASUREMENTS)}")
    options.out = options.out.resolve()
    if options.measurement:
        import gpu_measurements

        gpu_measurements.run(options.measurement, options)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    failed = run_all([name for name in MEASUREMENTS if name in chosen], options)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; see {options.out}/NAME.log")


def run_all(names: list[str], options: argparse.Namespace) -> list[str]:
    """Run measurements while there is time; return those that failed."""
    end, failed, tests = time.monotonic() + options.seconds, [], "not run"
    for name in names:
        limit = min(MEASUREMENTS[name], end - time.monotonic())
        begin = time.monotonic()
        status = run_one(name, limit, tests, options) if limit > 1 else "no time left"
        if name == "tests":
            tests = "green" if status == "ok" else status
        row = {"measurement": name, "status": status, "seconds": round(time.monotonic() - begin, 1)}
        with (options.out / "summary.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
        failed += [] if status == "ok" else [name]
    return failed


def run_one(name: str, limit: float, tests: str, options: argparse.Namespace) -> str:
    """Run a measurement in its own process group; return its status."""
    command = [sys.executable, str(ROOT / "benchmarks/gpu.py"), f"--out={options.out}", f"--data={options.data}"]
    command += [f"--measurement={name}", f"--tests={tests}", *(["--dry-run"] if options.dry_run else [])]
    if name == "tests":
        own = ["--deselect=tests/ops/test_triton.py::test_interpreted_kernels_equal_the_float64_loop"]
        chosen = ["-m", "not slow", *own] if options.dry_run else ["-m", "gpu"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, "tests/ops/test_triton.py"]
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "HOPSTATE_TYPECHECK": "0"}
    with (options.out / f"{name}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"stopped after {limit:.0f} s"
    return "ok" if code == 0 else f"exit code {code}"


def append(path: Path, row: dict[str, Any]) -> None:
    """Append a line to a results file and sync it."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    main()
