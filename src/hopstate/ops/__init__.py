"""Pure tensor and array functions, a folder an operator: no Module, no graph object, no hidden randomness.

Most folders hold the definition (`naive`), the fast paths that are held to it (kernels compiled by numba, `triton` for
GPUs), the function that chooses between them, and a README with the equations.

| of sequences | of graphs | of streams |
|---|---|---|
| `selective_scan`, `conv1d`, `span_step` | `propagate`, `proximity`, `walks` | `neighbors` |
| | `gated`, `edge_attention`, `neighbor_statistics` | |
| | `returns`, `sampling`, `filters`, `eigenvectors` | |

`rows` gathers rows, `dispatch` chooses the paths, `cpu` is the vector type that kernels are written in. Tensors and
arrays enter and leave; numba and triton are imported when first needed.
"""

from hopstate.ops.conv1d import conv1d, conv1d_naive
from hopstate.ops.dispatch import use_reference_ops
from hopstate.ops.selective_scan import (
    selective_influence,
    selective_scan,
    selective_scan_naive,
    selective_step,
)

__all__ = [
    "conv1d",
    "conv1d_naive",
    "selective_influence",
    "selective_scan",
    "selective_scan_naive",
    "selective_step",
    "use_reference_ops",
]
