"""How a big graph or a long stream is cut: partitions, samplers, subgraphs, batches of events, negatives, prefetching.

`partition` cuts a graph, `samplers` draw node sets from it, `subgraph` makes batches of them; `event_batches` cuts a
stream, `negatives` and `mixture` draw pairs that did not meet; `prefetch` makes the next batch while one is used.

| TOP: topological compensation, arXiv:2502.19693 | function |
|---|---|
| METIS clusters | `partition.partition` |
| uniform and GraphSAINT batches | `samplers.UniformSampler`, `SaintSampler` |
| layer-wise and ShaDow batches | `samplers.LayerSampler`, `ShadowSampler` |

| DyG-Mamba, arXiv:2408.06966 | function |
|---|---|
| negatives: random, historical, inductive | `negatives.draw_negatives` |

Records enter; node sets, adjacencies and batches come out, each fixed by (seed, epoch, number). What stands for the
neighbours that a batch lacks is handed in (`subgraph.Compensation`).
"""
