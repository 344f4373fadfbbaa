"""Runs the tests that must hold on any machine as if on other processors, and with 1, 2 and 3 threads.

    make test-portable

What runs: all of tests/ops and tests/layers, the layers of methods, and the stored loss curves of one method of each
kind. Compiled kernels of another processor are kept in .portable/, apart from those of this one. Two settings run
side by side.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    "tests/ops",
    "tests/layers",
    "tests/methods/ctdg_ssm/test_hippo.py",
    "tests/methods/dyg_mamba/test_timespan.py",
    "tests/methods/nagphormer/test_readout.py",
    "tests/test_curves.py",
)
# comparisons of thread counts choose their own; Triton's interpreter takes minutes and runs none of our kernels
LEFT_OUT = "not two_threads and not interpreted"
AVX2 = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt"  # numba adds this processor's own otherwise
SETTINGS: tuple[dict[str, str], ...] = (
    {"NUMBA_CPU_NAME": "generic"},  # first: these compile
    {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": AVX2},
    {"ATEN_CPU_CAPABILITY": "default"},
    {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    {"OMP_NUM_THREADS": "1"},
    {"OMP_NUM_THREADS": "2"},
    {"OMP_NUM_THREADS": "3"},
)


def run(setting: dict[str, str]) -> bool:
    """Run the tests under a setting; return whether they passed, and print the end of what they said where not."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **setting}
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        environment.pop(name, None)
    if "NUMBA_CPU_NAME" in setting:
        environment["NUMBA_CACHE_DIR"] = str(ROOT / ".portable" / setting["NUMBA_CPU_NAME"])
    command = [sys.executable, "-m", "pytest", "-m", "not slow and not gpu", "-k", LEFT_OUT, "-p", "no:cacheprovider"]
    begin = time.monotonic()
    done = subprocess.run(
        [*command, *TESTS], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    said = " ".join(f"{name}={value}" for name, value in setting.items())
    print(f"{'ok' if done.returncode == 0 else 'FAILED'}  {time.monotonic() - begin:4.0f} s  {said}", flush=True)
    if done.returncode != 0:
        print(done.stdout[-6000:], flush=True)
    return done.returncode == 0


def main() -> None:
    """Run every setting, two at a time, those of several threads at the end."""
    begin = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        passed = list(pool.map(run, SETTINGS))
    print(f"{sum(passed)} of {len(passed)} settings passed in {time.monotonic() - begin:.0f} s")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
