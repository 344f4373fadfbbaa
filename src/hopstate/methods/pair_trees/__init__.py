"""Trees over the histories of pairs: features, how trees are trained and kept, and the method.

| DyG-Mamba, arXiv:2408.06966 | function |
|---|---|
| trees over pairs (ours) | `tokens.pair_features.PairFeatures`, `trees.PairTrees` |
| trees over events and earlier labels (ours) | `event_method.EventTreesScorer`, `event_method.EventTrees` |

FEATURES.md says how they are trained.
"""

# names of methods → the module here that defines them
METHODS = {"pair-trees": "method", "event-trees": "event_method"}
