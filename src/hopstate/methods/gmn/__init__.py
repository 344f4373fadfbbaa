"""Graph Mamba (arXiv:2402.08678): a node is the sequence of what random walks find around it, read by state spaces.

| paper | function |
|---|---|
| Alg. 1, lines 1-7: walks, subgraphs as tokens | `ops.walks.random_walks`, `walk_subgraphs` |
| order and shuffling of a node's tokens | `walk_tokens.walk_tokens`, `Resampler` |
| line 14: local encoder | `layers.mpnn.MPNN` |
| lines 16-18 | `model.GMN` |
| Alg. 2, Eq. 8-9: bidirectional block | `layers.ssm.BidirectionalMamba` |
| order of nodes | `ordering.node_order` |
| structural and relative encodings | `structural.random_walk_encoding`, `relative_encoding`, ... |
| GPS + Mamba | `gps.GPSLayer` |
| a graph beyond memory | `layerwise.all_outputs`, `inference.NodeOutputs` |
| Table 6: settings | `method.GMNRun`, `sizing.choose` |

`whole_graph.gmn_inputs` makes what the model reads for loops of one's own.
`method` is for nodes of one graph, `graphs` for sets of graphs.
"""

# names of methods → the module here that defines them
METHODS = {"gmn": "method", "gmn-graphs": "graphs", "gin-graphs": "graphs"}
RECIPES = ("recipes",)
