"""The training loop, checkpoints, seeds and run folders; knows no model."""
