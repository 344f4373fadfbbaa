"""Untrained link predictors, as methods and as baselines: `recency` and `edgebank`.

| DyG-Mamba, arXiv:2408.06966 | function |
|---|---|
| EdgeBank | `edgebank.EdgeBank` |
"""

# names of methods → the module here that defines them
METHODS = {"recency": "method", "edgebank": "method"}
