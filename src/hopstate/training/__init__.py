"""Training loop, checkpoints, optimizers and run folders, independent of any model.

`trainer.Trainer` runs a task (`tasks`) with a `LoopConfig` and writes weights, curves and results to a run folder.
"""
