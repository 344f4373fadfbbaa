"""Files: durable writing, locks, guarded opening, arrays and tensors without pickle, the cache folder, output."""
