"""Message-passing models on whole graphs or on batches: GCN, SAGE, GIN, GAT, PNA, GCNII and a perceptron.

`batching` says how a graph is cut and what stands for missing neighbours (`compensation`); `top_error` how far that is
from the whole graph (TOP, tables 3, 7 and 8).
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
RECIPES = ("recipes_heterophilous", "recipes")
