"""DyG-Mamba (arXiv:2408.06966): a state-space model of a node's past events, with step sizes from time differences.

| DyG-Mamba, arXiv:2408.06966 | function |
|---|---|
| the first-hop interaction sequence | `tokens.history.HistoryTokenizer`, `data.neighbor_store.NeighborStore` |
| time encoding | `layers.encodings.TimeEncoding` |
| Eq. 5, co-occurrence | `ops.neighbors.cooccurrence`, `layers.encodings.CountEncoding` |
| Eq. 6, aligned encodings | `model.HistoryEncoder` |
| Eq. 7-10, Alg. 1 | `model.TimeSpanBlock` |
| Eq. 11, the step from the time span | `model.SpanStep`, `ops.span_step.span_step` |
| Eq. 12, Theorem 4.2 | `ops.selective_scan.selective_influence` |
| Eq. 13, the spectral bound | `model.spectral_bound` |
| Eq. 15-16, link prediction | `model.DyGMamba`, `layers.decoders.LinkHead` |
| node classification | `model.DyGMambaNodes` |
"""

# names of methods → the module here that defines them
METHODS = {"dyg-mamba": "method", "dyg-mamba-nodes": "method"}
