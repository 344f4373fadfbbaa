"""The training loop, checkpoints, optimisers and run folders; knows no model.

A task (`tasks`) and a `LoopConfig` enter `trainer.Trainer`; a run folder with weights, curves and result comes out.
"""
