"""Questions to a trained run beyond its scores: why a pair got its score, and how much noise it bears."""
