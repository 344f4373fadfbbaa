"""Message-passing models on whole graphs or on batches: GCN, SAGE, GIN, GAT, PNA, GCNII and a perceptron.

| TOP: topological compensation, arXiv:2502.19693 | function |
|---|---|
| backbones; App. B.2: GCNII with jumping knowledge | `backbones.BACKBONES`, `model.Backbone` |
| A_ij = 1 if (j, i) is an edge; what edges carry | `data.graph.Incoming`, `methods.shared.node.EdgeConfig` |

`batching` defines batches and the compensation of missing neighbors (`compensation`).
"""

from hopstate.methods.message_passing.backbones import BACKBONES

METHODS = dict.fromkeys(BACKBONES, "method")  # name → the module here that defines it
