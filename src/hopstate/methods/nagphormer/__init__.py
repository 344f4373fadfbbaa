"""NAGphormer (arXiv:2206.04910): a node is the sequence of its hop averages, read by a Transformer.

| NAGphormer, arXiv:2206.04910 | function |
|---|---|
| Alg. 1, Hop2Token | `ops.propagate.hop_powers` |
| Hop2Token for graphs beyond memory | `hops.hop_tokens` |
| structure encoding | `tokens.encodings.laplacian_encoding`, `ops.eigenvectors.laplacian_eigenvectors` |
| Eq. 6-8: Transformer over hops | `model.NAGphormer`, `layers.attention.TransformerBlock` |
| Sec. 3.3: attention readout | `model.AttentionReadout` |
| Sec. 4.4: SIN and SUM | `model.NAGphormer` |
| App. D.2: settings | `method.NAGphormerRun`, `SPACE` |
"""

# names of methods → the module here that defines them
METHODS = {"nagphormer": "method"}
