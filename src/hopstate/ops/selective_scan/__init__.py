"""The selective scan: definition (naive.py), kernels (cpu.py, triton.py), choice between them (dispatch.py).

README.md derives the gradients and gives layouts and measurements.
"""

from hopstate.ops.selective_scan.naive import selective_scan_naive
from hopstate.ops.selective_scan.scan import selective_influence, selective_scan, selective_step

__all__ = ["selective_influence", "selective_scan", "selective_scan_naive", "selective_step"]
