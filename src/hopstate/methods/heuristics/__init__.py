"""Links without training: how lately a pair met (`recency`), or whether (`edgebank`); as methods and as floors.

| DyG-Mamba, arXiv:2408.06966 | function |
|---|---|
| EdgeBank, to compare with | `edgebank.EdgeBank` |
"""

# names of methods → the module here that defines them
METHODS = {"recency": "method", "edgebank": "method"}
