"""The training loop, checkpoints, optimisers and run folders; knows no model.

| what all share | function |
|---|---|
| the loop | `trainer.Trainer` |

A task (`tasks`) and a `LoopConfig` enter `trainer.Trainer`; a run folder with weights, curves and result comes out.
"""
