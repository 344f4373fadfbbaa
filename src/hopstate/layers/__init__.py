"""Modules that know tensors only: packed tokens, adjacencies and times enter, representations leave.

`message` is what message-passing layers sum over, `mpnn` such layers stacked, `ssm` selective state spaces, `attention`
Transformers, `encodings` those of gaps and of counts, `decoders` what turns representations into logits; `modes` puts a
model into evaluation, or into faster products, for a while.
"""
