"""Links without training: how lately a pair met (`recency`), or whether (`edgebank`); as methods and as floors."""
