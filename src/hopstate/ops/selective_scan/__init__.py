"""The selective scan: definition (naive.py), kernels (cpu.py, triton.py), choice between them (dispatch.py).

| Graph Mamba Networks, arXiv:2402.08678 | function |
|---|---|
| Eq. 2, the recurrence on packed sequences | `scan.selective_scan` |
| its definition, for tests | `naive.selective_scan_naive` |
| Eq. 3, zero-order hold | `ops.discretize.discretize` |

DERIVATION.md derives the gradients and gives layouts and measurements.
"""

from hopstate.ops.selective_scan.naive import selective_scan_naive
from hopstate.ops.selective_scan.scan import selective_influence, selective_scan, selective_step

__all__ = ["selective_influence", "selective_scan", "selective_scan_naive", "selective_step"]
