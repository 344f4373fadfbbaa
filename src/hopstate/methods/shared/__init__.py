"""Code shared by several methods.

| NAGphormer, arXiv:2206.04910 | function |
|---|---|
| weighted hop averages, their direction | `node.message_graph`, `data.graph.Incoming` |

The base configurations of methods are in `node` (one graph), `link` (temporal links) and `event_nodes` (nodes at
events).
"""
