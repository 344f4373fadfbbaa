"""Where the figures of a run go besides its folder: TensorBoard, MLflow, Weights & Biases, each behind one protocol.

| what all share | function |
|---|---|
| what a logger does | `protocol.Logger` |
| which are asked for, and whether they are installed | `choose.check_loggers` |
| a thread a logger, so that training waits for none | `worker.Loggers` |

A row of metrics an epoch, the run's settings and its final metrics enter; nothing comes back.
"""
