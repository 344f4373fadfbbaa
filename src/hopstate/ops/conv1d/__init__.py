"""Depthwise causal convolution on packed tokens: definition (naive.py), kernels (cpu.py, triton.py), op.py."""

from hopstate.ops.conv1d.conv import conv1d, conv1d_naive

__all__ = ["conv1d", "conv1d_naive"]
