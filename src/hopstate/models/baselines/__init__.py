"""Models that a user would pick instead, on the same data layer: recency, EdgeBank, DyGFormer, GraphMixer."""
