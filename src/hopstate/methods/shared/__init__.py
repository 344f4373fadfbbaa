"""What the packages of several methods share.

| NAGphormer, arXiv:2206.04910 | function |
|---|---|
| weighted hop averages, their direction | `node.message_graph`, `data.graph.Incoming` |

`node`, `link` and `event_nodes` have the configurations of methods on one graph, on links in time and on nodes at
events.
"""
