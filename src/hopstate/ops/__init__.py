"""Pure tensor and array functions: no Module, no graph object, no hidden randomness."""
