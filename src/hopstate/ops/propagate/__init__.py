"""Hop averages of features, all hops in one pass over tiles (NAGphormer, algorithm 1): definition and loop."""

from hopstate.ops.propagate.propagate import hop_powers, hop_powers_naive, hop_rows, hop_scale

__all__ = ["hop_powers", "hop_powers_naive", "hop_rows", "hop_scale"]
