"""How a big graph or a long stream is cut into batches."""
