"""Shared by all benchmarks: the machine line, the check of green tests, and timing by the median."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]


def machine() -> str:
    """One line: processor, cores in use, GPU, versions."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [x.split(":", 1)[1].strip() for x in info.read_text().splitlines() if x.startswith("model name")]
        cpu = models[0] if models else cpu
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, numba {numba.__version__}"
    return (
        f"{cpu}, {cores} core(s), {torch.get_num_threads()} torch thread(s), {gpu}, {versions}, numpy {np.__version__}"
    )


def require_green(*tests: str) -> None:
    """Run the named test files and exit if one fails: no result is printed for wrong code.

    HOPSTATE_UNTESTED=1 in the environment skips them with a note: for smoke runs, not for measurements.
    """
    if os.environ.get("HOPSTATE_UNTESTED") == "1":
        print("UNTESTED: a smoke run, do not keep its results")
        return
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", *(str(ROOT / t) for t in tests)]
    if subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"tests are red, so nothing is measured: {' '.join(tests)}")


def median_time(
    work: Callable[[], object],
    *,
    repeats: int = 5,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Median seconds of work() after warmup calls; waits for the GPU if there is one.

    clock=time.process_time excludes other programs on a busy machine (one thread only).
    """
    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    times = []
    for i in range(warmup + repeats):
        wait()
        start = clock()
        work()
        wait()
        if i >= warmup:
            times.append(clock() - start)
    return statistics.median(times)


def rmat_edges(num_nodes: int, edges: int, seed: int = 0) -> np.ndarray:
    """Return (edges, 2) of a recursive-matrix graph (0.57, 0.19, 0.19, 0.05), folded to num_nodes nodes."""
    generator, bits = np.random.default_rng(seed), int(np.ceil(np.log2(num_nodes)))
    ends = np.zeros((edges, 2), np.int64)
    for _ in range(bits):
        draw = generator.random(edges, np.float32)
        ends *= 2
        ends[:, 0] += draw >= 0.76
        ends[:, 1] += ((draw >= 0.57) & (draw < 0.76)) | (draw >= 0.95)
    return ends % num_nodes
