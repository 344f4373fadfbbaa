"""Modules that know tensors only: packed tokens, adjacencies and times enter, representations leave.

`message` is what message-passing layers sum over, `mpnn` such layers stacked, `ssm` selective state spaces, `attention`
and `packed_attention` Transformers, `mlp_mixer` a mixer, `time` encodings of gaps, `cooccurrence` of counts, `heads`
what turns representations into logits; `evaluating` puts a model into evaluation for a while.
"""
