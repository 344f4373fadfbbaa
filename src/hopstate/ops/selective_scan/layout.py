"""How the kernels of the scan cut their work; what keeps its checkpoints must know it without importing them."""

CELL, LANES = 16, 16  # of the CPU kernels: tokens between checkpoints, channels in a block
GPU_CELL = 8  # of the Triton kernels: tokens between checkpoints
