"""Hop averages of features, all hops in one pass over tiles (NAGphormer, algorithm 1): definition and loop."""

from hopstate.ops.propagate.propagate import hop_powers, hop_powers_naive

__all__ = ["hop_powers", "hop_powers_naive"]
