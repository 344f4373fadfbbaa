"""Pure tensor and array functions: no Module, no graph object, no hidden randomness."""

from hopstate.ops.conv1d import conv1d, conv1d_naive
from hopstate.ops.selective_scan import (
    selective_influence,
    selective_scan,
    selective_scan_naive,
    selective_step,
)

__all__ = ["conv1d", "conv1d_naive", "selective_influence", "selective_scan", "selective_scan_naive", "selective_step"]
