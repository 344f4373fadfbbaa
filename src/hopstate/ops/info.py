"""Which kernels this machine uses, and why: the lines of `hopstate info`."""

from __future__ import annotations

import torch

from hopstate.ops.products import pays
from hopstate.ops.selective_scan.dispatch import choose_path


def describe_paths() -> list[tuple[str, str, str]]:
    """Return (op and device, path in use, reason) for every op that has more than one path."""
    devices = [("cpu", torch.float32)]
    if torch.cuda.is_available():
        devices += [("cuda", torch.float32), ("cuda", torch.float64)]
    lines = []
    for op in ("selective_scan", "conv1d"):
        for device, dtype in devices:
            path = choose_path(device, dtype)
            label = f"{op} on {device}" + (", float64" if dtype == torch.float64 else "")
            lines.append((label, path.name, path.reason))
        if not torch.cuda.is_available():
            lines.append((f"{op} on cuda", "none", "torch sees no CUDA device"))
    why = "its 512-bit vectors, which MKL leaves unused here" if pays() else "MKL is as fast here, or the only one"
    return [*lines, ("linear maps in training on cpu", "oneDNN" if pays() else "torch", why)]
