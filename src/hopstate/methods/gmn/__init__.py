"""Graph Mamba (arXiv:2402.08678): a node is the sequence of what random walks find around it, read by state spaces.

| Graph Mamba Networks, arXiv:2402.08678 | function |
|---|---|
| Alg. 1, lines 1-7: walks, subgraphs as tokens | `ops.walks.walks.random_walks`, `walk_subgraphs` |
| order and shuffling of a node's tokens | `walk_tokens.walk_tokens`, `token_order`, `Resampler` |
| Alg. 1, line 14: local encoder | `layers.mpnn.MPNN`, `pool` |
| line 14, random-walk features | `ops.walks.walks.walk_features`, `layers.mpnn.WalkEncoder` |
| Alg. 1, lines 16-18, and Psi | `model.GMN` |
| Alg. 2, Eq. 8-9: bidirectional block | `layers.ssm.BidirectionalMamba`, `SelectiveSSM` |
| order of nodes | `ordering.node_order`, `order_key` |
| structural encodings | `structural.random_walk_encoding`, `nondiagonal_encoding`, `anonymous_walk_encoding` |
| relative encodings | `structural.relative_encoding` |
| GPS + Mamba | `gps.GPSLayer` |
| a graph beyond memory | `layerwise.all_outputs`, `inference.NodeOutputs` |
| Table 6: settings, and what is searched | `method.GMNRun`, `SPACE`, `sizing.choose` |
| classes of graphs; graphs packed | `graphs.GMNGraphsRun`, `packing.Collator` |

`whole_graph.gmn_inputs` makes what the model reads for loops of one's own.
`method` is for nodes of one graph, `graphs` for sets of graphs.
"""

# names of methods → the module here that defines them
METHODS = {"gmn": "node_method", "gmn-graphs": "graph_method", "gin-graphs": "graph_method"}
