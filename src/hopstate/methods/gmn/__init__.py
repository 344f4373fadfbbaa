"""Graph Mamba (arXiv:2402.08678): a node is the sequence of what random walks find around it, read by state spaces.

| Graph Mamba Networks, arXiv:2402.08678 | function |
|---|---|
| Alg. 1, lines 1-7: walks, subgraphs as tokens | `ops.walks.random_walks`, `walk_subgraphs` |
| order and shuffling of a node's tokens | `tokens.walk_tokens`, `token_order` |
| Alg. 1, line 14: local encoder | `layers.mpnn.MPNN`, `pool` |
| line 14, random-walk features | `ops.walks.walk_features`, `layers.mpnn.WalkEncoder` |
| Alg. 1, lines 16-18, and Psi | `model.GMN` |
| Alg. 2, Eq. 8-9: bidirectional block | `layers.ssm.BidirectionalMamba`, `SelectiveSSM` |
| order of nodes | `orders.node_order`, `order_key` |
| structural encodings | `tokens.random_walk_encoding`, `nondiagonal_encoding`, `anonymous_walk_encoding` |
| relative encodings | `tokens.relative_encoding` |
| GPS + Mamba | `model.GPSLayer` |
| a graph beyond memory | `layerwise.NodeOutputs` |
| Table 6: settings, and what is searched | `node_method.GMNRun`, `SPACE` |
| classes of graphs; graphs packed | `graph_method.GMNGraphsRun`, `Collator` |

`batches.gmn_inputs` makes what the model reads for loops of one's own.
`node_method` is for nodes of one graph, `graph_method` for sets of graphs.
"""

# names of methods → the module here that defines them
METHODS = {"gmn": "node_method", "gmn-graphs": "graph_method", "gin-graphs": "graph_method"}
