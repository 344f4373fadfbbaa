"""What the packages of several methods share.

| NAGphormer, arXiv:2206.04910 | function |
|---|---|
| weighted hop averages, their direction | `edges.message_graph`, `data.graph.Incoming` |

Reading, splits and settings of nodes and of links; edges; floors; classes of nodes at events; settings that suit the
data; backbones trained before.
"""
