"""Message-passing models on whole graphs or on batches: GCN, SAGE, GIN, GAT, PNA, GCNII and a perceptron.

| TOP: topological compensation, arXiv:2502.19693 | function |
|---|---|
| backbones; App. B.2: GCNII with jumping knowledge | `model.Backbone`, `blocks.BackboneConfig` |
| A_ij = 1 if (j, i) is an edge; what edges carry | `data.graph.Incoming`, `methods.shared.edges.EdgeConfig` |

`batching` says how a graph is cut and what stands for missing neighbours (`compensation`).
"""

# names of methods → the module here that defines them
METHODS = {
    "mlp": "method",
    "gcn": "method",
    "sage": "method",
    "gin": "method",
    "gat": "method",
    "pna": "method",
    "gcnii": "method",
}
