"""NAGphormer (arXiv:2206.04910): a node is the sequence of its hop averages, read by a Transformer.

| paper | function |
|---|---|
| Alg. 1, Hop2Token | `hops.hop_tokens` over `ops.propagate.hop_powers` |
| structure encoding | `tokens.encodings.laplacian_encoding` |
| Eq. 6-8: Transformer over hops | `model.NAGphormer` |
| Sec. 3.3: attention readout | `readout.AttentionReadout` |
| Sec. 4.4: SIN and SUM | `readout.SelfReadout`, `SumReadout` |
| App. D.2: settings | `method.NAGphormerRun`, `recipes` |
"""

# names of methods → the module here that defines them
METHODS = {"nagphormer": "method"}
RECIPES = ("recipes",)
