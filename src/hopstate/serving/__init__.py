"""Load a trained run and score with it."""
