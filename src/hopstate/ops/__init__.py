"""Pure functions on tensors and arrays, without modules, graph objects or hidden randomness.

Most folders contain a reference implementation (`naive`), faster paths tested against it (numba kernels on CPUs,
`triton` on GPUs), a function that selects the path, and a README with the equations.

| sequences | graphs | event streams |
|---|---|---|
| `selective_scan`, `conv1d`, `span_step` | `propagate`, `proximity`, `walks` | `neighbors` |
| | `gated`, `edge_attention`, `neighbor_statistics` | |
| | `returns`, `sampling`, `filters`, `eigenvectors` | |

`rows` handles packed rows, `dispatch` selects paths, and `cpu` defines the vector type of the kernels. numba and triton
are imported on first use.
"""

from hopstate.ops.conv1d import conv1d, conv1d_naive
from hopstate.ops.dispatch import use_reference_ops
from hopstate.ops.selective_scan import (
    selective_influence,
    selective_scan,
    selective_scan_naive,
)

__all__ = [
    "conv1d",
    "conv1d_naive",
    "selective_influence",
    "selective_scan",
    "selective_scan_naive",
    "use_reference_ops",
]
