"""Neural network layers on tensors, independent of datasets and tasks.

| module | contents |
|---|---|
| `message`, `mpnn`, `edge_layers` | adjacency and message-passing layers |
| `ssm` | selective state spaces |
| `attention` | Transformer blocks |
| `encodings` | encodings of time differences and counts |
| `decoders` | decoders from embeddings to logits |
| `modes` | evaluation mode and faster linear layers |
"""
