"""Untrained link predictors, as methods and as baselines: `recency` and `edgebank`.

| DyG-Mamba, arXiv:2408.06966 | function |
|---|---|
| EdgeBank, to compare with | `edgebank.EdgeBank` |
"""

# names of methods → the module here that defines them
METHODS = {"recency": "method", "edgebank": "method"}
