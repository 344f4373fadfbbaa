"""Runs operators, layers and golden values with the instructions of other processors, and with 1 and 3 threads.

    make test-portable            # the settings of CI
    .venv/bin/python tests/portable.py --all

The golden values are those of each method on its first dataset. numba caches kernels
of each processor separately. Two settings run at the same time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "golden"))

import cases  # noqa: E402

GOLDEN = "tests/golden/test_golden.py::test_training_and_answers_are_the_stored_ones"
TESTS = (
    "tests/ops",
    "tests/layers",
    "tests/methods/ctdg_ssm/test_hippo.py",
    "tests/methods/dyg_mamba/test_timespan.py",
    "tests/methods/nagphormer/test_readout.py",
    *(f"{GOLDEN}[{method}-{next(iter(cases.KINDS[kind].sets))}]" for method, (kind, _) in cases.METHODS.items()),
)
# thread comparisons set their own count; Triton's interpreter takes minutes and uses no CPU kernel
LEFT_OUT = "not two_threads and not interpreted"
AVX2 = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt"  # otherwise numba adds the features of this processor
SETTINGS: tuple[dict[str, str], ...] = (
    {"NUMBA_CPU_NAME": "generic"},  # compiles every kernel, so it starts first
    {"ATEN_CPU_CAPABILITY": "default"},
    {"OMP_NUM_THREADS": "1"},
    {"OMP_NUM_THREADS": "3"},
)
MORE: tuple[dict[str, str], ...] = (
    {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": AVX2},
    {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    {"OMP_NUM_THREADS": "2"},
)


def run(setting: dict[str, str]) -> bool:
    """Run the tests under a setting and return whether they passed; print the end of their output if they did not."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **setting}
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-m", "not slow and not gpu", "-k", LEFT_OUT, "-p", "no:cacheprovider"]
    begin = time.monotonic()
    done = subprocess.run(
        [*command, *TESTS], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    words = " ".join(f"{name}={value}" for name, value in setting.items())
    print(f"{'ok' if done.returncode == 0 else 'FAILED'}  {time.monotonic() - begin:4.0f} s  {words}", flush=True)
    if done.returncode != 0:
        print(done.stdout[-6000:], flush=True)
    return done.returncode == 0


def main() -> None:
    """Run every setting, two at a time, those of several threads at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="further processors and numbers of threads too")
    settings = SETTINGS + (MORE if parser.parse_args().all else ())
    begin = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        passed = list(pool.map(run, settings))
    print(f"{sum(passed)} of {len(passed)} settings passed in {time.monotonic() - begin:.0f} s")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
