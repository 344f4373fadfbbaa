"""The Triton kernels: interpreted without a GPU, compiled with one."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from scan_cases import assert_matches_naive, make_case, offsets_of, run_and_grad

HERE = Path(__file__).resolve().parent
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


@needs_triton
@pytest.mark.parametrize("size", ["few", pytest.param("all", marks=pytest.mark.slow)])
def test_interpreted_kernels_equal_the_float64_loop(size):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
    command = [sys.executable, str(HERE / "triton_checks.py"), size]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]


@needs_triton
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_compiled_kernels_equal_the_float64_loop():
    import triton_checks

    triton_checks.check_all("cuda", [(19, 5), (400, 16), (6, 1)])
    triton_checks.check_scan([700, 3], 40, 64, torch.float32, "zoh", True, False, "cuda")


@needs_triton
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_op_on_a_gpu_repeats_bit_for_bit():
    lengths = [30, 0, 700, 1]
    case = {k: x.cuda() for k, x in make_case(lengths, 40, 16, torch.float32).items()}
    offsets = offsets_of(lengths).cuda()
    first, again = run_and_grad(case, offsets), run_and_grad(case, offsets)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert_matches_naive(case, offsets, discretization="zoh")
