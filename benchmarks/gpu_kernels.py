"""Resources of the Triton kernels on compute capability 9.0, without a GPU: registers, spills, minimum times.

    python benchmarks/gpu_kernels.py             # tables as in benchmarks/results
    python benchmarks/gpu_kernels.py --roofline  # only the second table, which needs no compiler

Kernels are compiled as a training step launches them: by Triton for sm_90, then by its `ptxas`. Minimum times assume an
H100: 3.35 TB/s, 67 TFLOP/s in float32, and 16 exponentials per clock and multiprocessor at 1.755 GHz.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

SHAPES = [(800, 400, 64, 16), (100, 400, 2048, 16), (1, 256, 169_343, 16)]  # sequences, channels, length, S
BYTES, FLOPS, EXPONENTIALS = 3.35e12, 67e12, 132 * 16 * 1.755e9  # per second
WIDTH = 4  # of the convolution
# per token: floats of each channel, floats of each state, then per channel and state FLOPs and exponentials
COUNTS = {
    "scan forward": (3 + 2, 2, 22, 1),  # u, delta, y; checkpoints, 16 states every 8 steps; B and C
    "scan backward": (5 + 4 + 4, 4, 75, 2.5),  # and gradients; checkpoints read twice; partial dB and dC of 16 channels
    "conv1d forward": (2, 0, 2 * WIDTH / 16, 0),
    "conv1d weight sums": (2, 0, 2 * WIDTH / 16, 0),
}


class Offline:
    """Replaces Triton's driver, which queries a GPU for its capability."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def compiled() -> Iterator[tuple[str, str, Any]]:
    """Yield variant, kernel and compiled object of all kernels of a training step."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    from hopstate.ops.conv1d import triton as convolution
    from hopstate.ops.selective_scan import triton as scan

    driver.set_active(Offline())
    found, run = {}, JITFunction.run

    def keep(function: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        found[function.__name__] = run(function, *arguments, grid=grid, warmup=True, **options)

    JITFunction.run = keep
    try:
        for dtype in (torch.float32, torch.bfloat16):
            for rule in ("zoh", "euler"):
                for gate in (True, False):
                    for length in (64, 2 * scan.SHORT):  # whole sequences; chunks
                        x, A, B = torch.ones(length, 400, dtype=dtype), -torch.ones(400, 16), torch.ones(length, 16)
                        inputs = (x, x, A, B.to(dtype), B.to(dtype), A[:, 0], x if gate else None)
                        inputs = (*inputs, torch.tensor([0, length]), None)
                        y, _, checkpoints = scan.forward(*inputs, False, rule == "zoh", True, True)
                        scan.backward(*inputs, checkpoints, y, None, False, rule == "zoh")
                        words = (str(dtype)[6:], rule, "gate" if gate else "no gate", "chunks" if length > 64 else "")
                        yield from ((", ".join(filter(None, words)), *item) for item in found.items())
                        found.clear()
            x, weight, offsets = torch.ones(64, 400, dtype=dtype), torch.ones(400, WIDTH), torch.tensor([0, 64])
            convolution.forward(x, weight.to(dtype), weight[:, 0], offsets, False)
            convolution.weight_grad(x, x, offsets, WIDTH, False)
            yield from ((str(dtype)[6:], *item) for item in found.items())
            found.clear()
    finally:
        JITFunction.run = run


def facts(kernel: Any) -> tuple[int, int, int]:
    """Return registers and spilled bytes per thread, and shared bytes per program."""
    import triton.backends.nvidia

    ptxas = Path(triton.backends.nvidia.__file__).parent / "bin/ptxas"
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(kernel.asm["ptx"])
        file.flush()
        command = [str(ptxas), "-v", "--gpu-name=sm_90a", file.name, "-o", "/dev/null"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers, stores, loads = (
        re.search(pattern, text)[1]  # type: ignore[index]
        for pattern in (r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes spill loads")
    )
    return int(registers), int(stores) + int(loads), kernel.metadata.shared


def roofline() -> Iterator[str]:
    """Yield the table of minimum times: bytes and operations over their rates, and the largest of the three."""
    yield "| kernel | (sequences, channels, length, S) | MB | GFLOP | Gexp | bytes ms | FLOP ms | exp ms | least ms |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, (of_channel, of_state, flops, exponentials) in COUNTS.items():
        for n, channels, length, S in SHAPES:
            tokens = n * length
            moved = 4 * tokens * (of_channel * channels + of_state * S)
            work, exp2 = tokens * channels * S * flops, tokens * channels * S * exponentials
            times = [1e3 * amount / rate for amount, rate in ((moved, BYTES), (work, FLOPS), (exp2, EXPONENTIALS))]
            yield (
                f"| {name} | {(n, channels, length, S)} | {moved / 1e6:.0f} | {work / 1e9:.2f} | {exp2 / 1e9:.2f} | "
                f"{' | '.join(f'{time:.3f}' for time in times)} | {max(times):.3f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--roofline", action="store_true", help="only the table of minimum times")
    if not parser.parse_args().roofline:
        print("| variant | kernel | registers | spilled bytes | shared bytes |\n|---|---|---|---|---|")
        for variant, name, kernel in compiled():
            print("|", " | ".join(map(str, (variant, name, *facts(kernel)))), "|", flush=True)
        print()
    print("\n".join(roofline()))


if __name__ == "__main__":
    main()
