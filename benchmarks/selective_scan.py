"""Times the selective scan against plain-torch loops (CPU) or the bandwidth bound (GPU). Needs green tests.

python benchmarks/selective_scan.py                    # CPU table; pin with taskset -c 0 for one core
python benchmarks/selective_scan.py --threads 2        # also the speed-up from threads
python benchmarks/selective_scan.py --device cuda      # GPU table; with mamba-ssm's kernel if it is installed
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from common import machine, median_time, require_green
from hopstate.ops import selective_scan
from scan_baselines import recomputing, textbook

CPU_SHAPES = [(64, 128, 64, 16), (64, 128, 512, 16), (16, 256, 2048, 16)]
GPU_SHAPES = [
    (800, 400, 32, 16), (800, 400, 64, 16), (800, 400, 256, 16), (100, 400, 2048, 16), (22000, 128, 16, 16),
    (10000, 256, 64, 16), (1, 256, 169343, 16),
]  # fmt: skip
Shape = tuple[int, int, int, int]  # sequences, channels, length, S


def inputs(shape: Shape, device: str = "cpu") -> list[Tensor]:
    """u, delta, A, B, C and dy, padded, float32."""
    n, channels, length, S = shape
    g = torch.Generator().manual_seed(0)
    u, dy = torch.randn(n, length, channels, generator=g), torch.randn(n, length, channels, generator=g)
    delta = torch.rand(n, length, channels, generator=g) * 0.1
    A = -torch.arange(1, S + 1, dtype=torch.float32).repeat(channels, 1)
    B, C = torch.randn(n, length, S, generator=g), torch.randn(n, length, S, generator=g)
    return [*(x.to(device).requires_grad_() for x in (u, delta, A, B, C)), dy.to(device)]


def forward_backward(function: Callable[..., Tensor], tensors: list[Tensor], **options: object) -> Callable[[], object]:
    *leaves, dy = tensors
    return lambda: torch.autograd.grad(function(*leaves, **options), leaves, dy)


def moved_bytes(shape: Shape) -> int:
    """Bytes of inputs, outputs and gradients: u, delta, y, B, C, A and their gradients."""
    n, channels, length, S = shape
    return 4 * (n * length * (6 * channels + 4 * S) + 2 * channels * S)


def cpu_table(shapes: list[Shape], threads: int, clock: Callable[[], float]) -> None:
    print("| shape | textbook ms | recomputing ms | zoh ms | euler ms | ratio zoh | ratio euler | memory / bytes |")
    print("|---|---|---|---|---|---|---|---|")
    for shape in shapes:
        data = inputs(shape)
        loop = median_time(forward_backward(recomputing, data), clock=clock)
        book = (
            median_time(forward_backward(textbook, data), repeats=3, clock=clock)
            if shape[0] * shape[2] < 10_000
            else float("nan")
        )
        zoh, euler = (
            median_time(forward_backward(selective_scan, data, discretization=r), clock=clock) for r in ("zoh", "euler")
        )
        print(
            f"| {shape} | {book * 1e3:.1f} | {loop * 1e3:.1f} | {zoh * 1e3:.2f} | {euler * 1e3:.2f} "
            f"| {loop / zoh:.1f} | {loop / euler:.1f} | {peak_ratio(shape):.2f} |",
            flush=True,
        )
    packed_line(clock)
    if threads > 1:
        thread_lines(shapes, threads)


def thread_lines(shapes: list[Shape], threads: int) -> None:
    for shape in shapes:
        data, times = inputs(shape), []
        for count in (1, threads):
            torch.set_num_threads(count)
            times.append(median_time(forward_backward(selective_scan, data), repeats=7))
        one, many = (t * 1e3 for t in times)
        print(f"{shape}: 1 thread {one:.2f} ms, {threads} threads {many:.2f} ms, {one / many:.2f}x")


def packed_line(clock: Callable[[], float]) -> None:
    """Lengths uniform in 1..64 against equal lengths of about the same total, per token."""
    equal = inputs((128, 128, 32, 16))
    lengths = torch.randint(1, 65, (128,), generator=torch.Generator().manual_seed(0))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    tokens = int(offsets[-1])
    flat = [x.detach().flatten(0, -2).repeat(2, 1)[:tokens] if x.dim() == 3 else x.detach() for x in equal]
    packed = [*(x.requires_grad_() for x in flat[:5]), flat[5]]
    same = median_time(forward_backward(selective_scan, equal), repeats=11, clock=clock) / (128 * 32)
    mixed = median_time(forward_backward(selective_scan, packed, offsets=offsets), repeats=11, clock=clock) / tokens
    print(f"ns a token, 128 channels, S 16: equal lengths {same * 1e9:.0f}, uniform 1..64 packed {mixed * 1e9:.0f}")


def peak_ratio(shape: Shape) -> float:
    """Growth of a fresh process's peak memory over one forward and backward pass, inputs included, over moved_bytes."""
    command = [sys.executable, __file__, "--peak", *map(str, shape)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / moved_bytes(shape)


def print_peak(shape: Shape) -> None:
    forward_backward(selective_scan, inputs((1, 16, 4, shape[3])))()  # load kernels and start thread pools
    before = peak_memory()
    forward_backward(selective_scan, inputs(shape))()
    print(peak_memory() - before)


def peak_memory() -> int:
    """Bytes of this program's largest resident size (getrusage's starts from its parent's)."""
    if not Path("/proc/self/status").exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def gpu_table() -> None:
    big = torch.empty(2**28, device="cuda")
    bandwidth = 2 * big.numel() * 4 / median_time(big.clone, repeats=10)
    del big
    print(f"copy bandwidth {bandwidth / 1e12:.2f} TB/s")
    print("| shape | forward ms | backward ms | bounds ms | times the bounds | mamba-ssm forward, backward ms |")
    print("|---|---|---|---|---|---|")
    for shape in GPU_SHAPES:
        n, channels, length, S = shape
        *leaves, dy = inputs(shape, "cuda")
        forward = median_time(lambda leaves=leaves: selective_scan(*leaves))
        y = selective_scan(*leaves)
        backward = median_time(lambda y=y, leaves=leaves, dy=dy: torch.autograd.grad(y, leaves, dy, retain_graph=True))
        bounds = [4 * n * length * w / bandwidth for w in (3 * channels + 2 * S, 5 * channels + 4 * S)]
        print(
            f"| {shape} | {forward * 1e3:.3f} | {backward * 1e3:.3f} | {bounds[0] * 1e3:.3f}, {bounds[1] * 1e3:.3f} "
            f"| {forward / bounds[0]:.1f}, {backward / bounds[1]:.1f} | {mamba_times(leaves, dy)} |",
            flush=True,
        )


def mamba_times(leaves: list[Tensor], dy: Tensor) -> str:
    if importlib.util.find_spec("mamba_ssm") is None:
        return "not installed"
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

    u, delta, A, B, C = leaves
    turned = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (u, delta, B, C)]
    call = [turned[0], turned[1], A, turned[2], turned[3]]
    forward = median_time(lambda: selective_scan_fn(*call))
    y, back = selective_scan_fn(*call), dy.transpose(1, 2).contiguous()
    backward = median_time(lambda: torch.autograd.grad(y, call, back, retain_graph=True))
    return f"{forward * 1e3:.3f}, {backward * 1e3:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=len(CPU_SHAPES), help="how many of the CPU's shapes")
    parser.add_argument("--peak", type=int, nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: on a busy machine, one thread")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.peak:
        print_peak(tuple(args.peak))
        return
    require_green("tests/ops/test_selective_scan.py")
    if args.device == "cuda":
        require_green("tests/ops/test_triton.py")
    print(machine())
    gpu_table() if args.device == "cuda" else cpu_table(
        CPU_SHAPES[: args.shapes], args.threads, time.process_time if args.clock == "cpu" else time.perf_counter
    )


if __name__ == "__main__":
    main()
