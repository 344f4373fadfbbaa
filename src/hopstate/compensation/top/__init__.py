"""TOP: out-of-batch neighbors are expressed by the nodes of the batch. Works with any message-passing model.

| TOP: topological compensation, arXiv:2502.19693 | function |
|---|---|
| Eq. 3: messages inside and from outside a batch | `sampling.subgraph.NodeSetSource`, `GraphBatch` |
| Eq. 4-6: linear compensation | `top.Top`, `batch.LinearTop` |
| Alg. 1, Eq. 11: basic embeddings | `probes.basic_embeddings` |
| the range finder | `basis.range_mixing` |
| Eq. 12: least squares for a batch | `basis.fit_in_range` |
| App. B.1, Eq. 10: any aggregator | `batch.GeneralTop` |
| Alg. 2, Eq. 13: a training step of any model | `wrapper.top`, `ToppedModel` |
| GAS | `compensation.gas.GasCache`, `GasBatch` |

`top.Refresher` fits the compensation again to the model's present weights.
"""
