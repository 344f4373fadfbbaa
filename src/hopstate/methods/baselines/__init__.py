"""What a user would pick instead, on the same data layer: DyGFormer and GraphMixer.

| DyG-Mamba, arXiv:2408.06966 | function |
|---|---|
| baselines | `dygformer.DyGFormer`, `graphmixer.GraphMixer` |

`*_model` are the models, `dygformer` and `graphmixer` the methods; `recipes` the published rows of links.
"""

# names of methods → the module here that defines them
METHODS = {"dygformer": "dygformer", "graphmixer": "graphmixer"}
