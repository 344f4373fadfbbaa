"""Mini-batches of graphs and event streams, and negative samples for them.

For graphs, `partition` makes clusters, `samplers` draws node sets, and `subgraph` builds batches from them. For event
streams, `event_batches` makes batches and `negatives` draws negative pairs.

| TOP: topological compensation, arXiv:2502.19693 | function |
|---|---|
| METIS clusters | `partition.partition` |
| uniform and GraphSAINT batches | `samplers.UniformSampler`, `SaintSampler` |
| layer-wise and ShaDow batches | `samplers.LayerSampler`, `ShadowSampler` |

| DyG-Mamba, arXiv:2408.06966 | function |
|---|---|
| negatives: random, historical, inductive | `negatives.draw_negatives` |

A batch depends only on (seed, epoch, number). A `subgraph.Compensation` replaces the neighbors outside a batch.
"""
