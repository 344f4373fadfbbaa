"""Links without training: how lately a pair met (`recency`), or whether (`edgebank`); as methods and as floors."""

# names of methods → the module here that defines them
METHODS = {"recency": "method", "edgebank": "method"}
